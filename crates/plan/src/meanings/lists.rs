//! Functions of lists.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit, when};

use super::function::call;

#[derive(Debug)]
pub(super) struct ListFunctions;

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

impl FunctionRewrite for ListFunctions {
    fn name(&self) -> &str {
        "list_functions"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        match expr {
            Expr::ScalarFunction(function) => of_function(function, type_of),
            Expr::Cast(Cast { ref expr, ref field }) | Expr::TryCast(TryCast { ref expr, ref field })
                if field.data_type().is_nested() && type_of(expr).is_string() =>
            {
                plan_err!(
                    "a text cannot be cast to {}; write the value, as [1, 2], or take the text apart with \
                     string_to_array",
                    field.data_type()
                )
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn of_function(function: ScalarFunction, type_of: impl Fn(&Expr) -> DataType) -> Result<Transformed<Expr>> {
    let name = function.func.name().to_owned();
    match (name.as_str(), function.args.as_slice()) {
        ("character_length", [list]) if is_list(&type_of(list)) => {
            let length = ScalarFunction::new_udf(array_length_udf(), function.args);
            Ok(Transformed::yes(cast(Expr::ScalarFunction(length), DataType::Int64)))
        }
        ("character_length", [other]) if !is_text(&type_of(other)) => {
            plan_err!(
                "length counts the characters of a text or the elements of a list, not those of a {}",
                type_of(other)
            )
        }
        ("array_has_any" | "array_has_all", [left, right]) => {
            let any_is_null = left.clone().is_null().or(right.clone().is_null());
            let known = Expr::ScalarFunction(function);
            // Once more over the same function, when the plan is analyzed again, changes nothing but the time it takes.
            Ok(Transformed::yes(when(any_is_null, lit(ScalarValue::Boolean(None))).otherwise(known)?))
        }
        ("map", [keys, values]) if is_list(&type_of(keys)) && is_list(&type_of(values)) => {
            let arguments = vec![keys.clone(), values.clone()];
            let checked = vec![call("keys_of_map", of_equal_lengths, arguments), values.clone()];
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function.func, checked))))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(function))),
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => other.is_string() || other.is_null(),
    }
}

/// The first of two lists, which have the same number of elements in every row.
fn of_equal_lengths(lists: &[ArrayRef]) -> Result<ArrayRef> {
    let [keys, values] = lists else { return internal_err!("a map is made of two lists") };
    let lengths =
        [keys, values].map(|lists| datafusion::arrow::compute::kernels::length::length(lists.as_ref()));
    let [keys_lengths, values_lengths] = lengths;
    let (keys_lengths, values_lengths) = (keys_lengths?, values_lengths?);
    for row in 0..keys.len() {
        let is_there = keys_lengths.is_valid(row) && values_lengths.is_valid(row);
        if is_there && keys_lengths.slice(row, 1).as_ref() != values_lengths.slice(row, 1).as_ref() {
            return exec_err!("a map has as many values as keys, which these lists do not");
        }
    }
    Ok(Arc::clone(keys))
}
