//! Functions of SQL that DataFusion does not have, or has under another name. They mean what they mean in DuckDB.
//!
//! ```text
//!   register ──► aliases      other names of DataFusion's functions, which plans know as what they are
//!            ──► aggregates   states of many groups, which spill with those of the aggregation
//!            ──► kernels      tables of scalar functions: text, patterns, formats, numbers, time, lists
//!            ──► json         texts that are JSON: read by paths, and made of values
//!            ──► typeof, …    scalar functions whose type depends on their arguments' values
//! ```
//!
//! [`TypeNames`] reads the names of types, [`sql_type`] is how types are called, and [`cast_array`] casts between them.

mod aggregates;
mod bit_strings;
mod casts;
mod digests;
mod encodings;
mod enums;
mod formats;
mod function;
mod graphemes;
mod huge_bits;
mod interval_text;
mod json;
mod lists;
mod maps;
mod numbers;
mod patterns;
mod sort_keys;
mod structs;
mod text;
mod time;
mod tried;
mod type_names;
mod types;
mod variants;
mod windows;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::registry::FunctionRegistry;

pub use bit_strings::bit_operation;
pub use casts::unions::{compare_unions, is_union};
pub use casts::{
    CANNOT_BE_CAST, CAST_FUNCTION, Failed, cast_array, cast_call, enum_texts, is_cast_of_points, is_marked,
    is_own_cast, takes_all, texts_of,
};
pub use huge_bits::huge_operation;
pub use interval_text::parse_interval;
pub use json::{JsonEncoder, TimeFormats};
pub use maps::map_value;
pub use time::{function_of_part, interval_multiple, moment_of_sum};
pub use tried::TRY_FUNCTION;
pub use type_names::{OwnTypes, TypeNames, type_of};
pub use types::sql_type;
pub use variants::{is_variant, variant_extract, variant_keys, variant_type};
pub use windows::{Exclusion, Frame, FrameBound, FrameFunction, FrameUnits, WindowCall};

/// Other names of scalar functions.
const ALIASES: &[(&str, &[&str])] = &[
    ("make_array", &["list_value", "list_pack", "array_value"]),
    ("get_field", &["struct_extract", "union_extract"]),
    ("character_length", &["len"]),
    ("starts_with", &["prefix"]),
    ("ends_with", &["suffix"]),
    ("lower", &["lcase"]),
    ("upper", &["ucase"]),
    ("levenshtein", &["editdist3"]),
    ("ceil", &["ceiling"]),
    ("gcd", &["greatest_common_divisor"]),
    ("lcm", &["least_common_multiple"]),
    ("uuid", &["gen_random_uuid", "uuidv4"]),
    ("now", &["get_current_timestamp", "transaction_timestamp"]),
    (
        "inner_product",
        &["list_inner_product", "list_dot_product", "array_inner_product", "array_dot_product"],
    ),
    ("cosine_distance", &["list_cosine_distance", "array_cosine_distance"]),
];

/// Other names of aggregate functions.
const AGGREGATE_ALIASES: &[(&str, &[&str])] = &[
    ("array_agg", &["list"]),
    ("first_value", &["first", "arbitrary"]),
    ("last_value", &["last"]),
    ("approx_percentile_cont", &["approx_quantile"]),
    ("approx_distinct", &["approx_count_distinct"]),
    ("string_agg", &["group_concat", "listagg"]),
    ("bool_and", &["every"]),
    ("var", &["variance"]),
];

/// Makes the functions known, beside those that a session has and in the place of some of the same name.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, aliases) in ALIASES {
        let function = registry.udf(name)?;
        registry.register_udf(Arc::new(function.as_ref().clone().with_aliases(aliases.iter().copied())))?;
        // What is called by its own name stays what rules look for.
        registry.register_udf(function)?;
    }
    for (name, aliases) in AGGREGATE_ALIASES {
        let function = registry.udaf(name)?;
        registry.register_udaf(Arc::new(function.as_ref().clone().with_aliases(aliases.iter().copied())))?;
        registry.register_udaf(function)?;
    }
    // With a window they are functions of their own.
    for (name, aliases) in [("first_value", ["first", "arbitrary"].as_slice()), ("last_value", &["last"])] {
        let function = registry.udwf(name)?;
        registry.register_udwf(Arc::new(function.as_ref().clone().with_aliases(aliases.iter().copied())))?;
        registry.register_udwf(function)?;
    }
    registry.register_higher_order_function(tried::function())?;
    for function in lists::lambdas::functions() {
        registry.register_higher_order_function(function)?;
    }
    lists::coerced::register(registry)?;
    let tables = [
        text::FUNCTIONS,
        patterns::FUNCTIONS,
        formats::FUNCTIONS,
        numbers::FUNCTIONS,
        time::FUNCTIONS,
        lists::FUNCTIONS,
        lists::slices::FUNCTIONS,
        structs::FUNCTIONS,
        encodings::FUNCTIONS,
        enums::FUNCTIONS,
        huge_bits::FUNCTIONS,
        maps::FUNCTIONS,
        graphemes::FUNCTIONS,
        bit_strings::FUNCTIONS,
        variants::FUNCTIONS,
        casts::unions::FUNCTIONS,
        sort_keys::FUNCTIONS,
        digests::FUNCTIONS,
        casts::uuids::FUNCTIONS,
        casts::huge_integers::FUNCTIONS,
    ];
    for kernel in tables.into_iter().flatten() {
        registry.register_udf(kernel.function())?;
    }
    registry.register_udf(Arc::new(ScalarUDF::from(types::TypeOf::new())))?;
    registry.register_udf(Arc::new(ScalarUDF::from(patterns::RegexpExtract::new())))?;
    for function in json::functions() {
        registry.register_udf(function)?;
    }
    for function in aggregates::functions(&*registry)? {
        registry.register_udaf(function)?;
    }
    register_list_aggregates(registry)
}

fn register_list_aggregates(registry: &mut dyn FunctionRegistry) -> Result<()> {
    use lists::aggregates::{ListAggregate, NAMED};
    let names = registry.udafs();
    let functions = names.into_iter().map(|name| registry.udaf(&name).map(|function| (name, function)));
    let functions = Arc::new(functions.collect::<Result<HashMap<_, _>>>()?);
    for name in NAMED {
        if let Some(function) = functions.get(name) {
            let function = ListAggregate::named(name, Arc::clone(function));
            registry.register_udf(Arc::new(ScalarUDF::from(function)))?;
        }
    }
    registry.register_udf(Arc::new(ScalarUDF::from(ListAggregate::any(functions))))?;
    Ok(())
}
