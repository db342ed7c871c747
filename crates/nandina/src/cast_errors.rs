//! Errors of casts name the columns that are cast.
//!
//! Arrow says which value does not fit which type. Which column holds it stands in the plan alone, and often the cast is
//! not in the statement either: `WHERE i > 10` casts `i`, once one odd line has made a CSV column text.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::CastExpr;
use nandina_functions::{CANNOT_BE_CAST, CAST_FUNCTION, sql_type};

use crate::error::Error;

/// How many columns are named.
const MOST_COLUMNS: usize = 3;

/// The error of a statement that ran as `plan`, with the columns that may hold the value it is about.
pub(crate) fn with_columns(error: Error, plan: Option<&Arc<dyn ExecutionPlan>>) -> Error {
    let (Error::Query { message }, Some(plan)) = (&error, plan) else { return error };
    let Some(target) = target_of_failed_cast(message) else { return error };
    let mut columns = BTreeSet::new();
    let visited = plan.apply(|node| {
        node.apply_expressions(&mut |expression| {
            expression.apply(|part| {
                let cast = part.downcast_ref::<CastExpr>();
                if let Some(cast) = cast.filter(|cast| target.is(cast.cast_type())) {
                    columns
                        .extend(collect_columns(cast.expr()).iter().map(|column| column.name().to_owned()));
                }
                let function = part.downcast_ref::<ScalarFunctionExpr>();
                if let Some(function) = function.filter(|function| target.is_of(function)) {
                    let arguments = function.args().iter().flat_map(collect_columns);
                    columns.extend(arguments.map(|column| column.name().to_owned()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(TreeNodeRecursion::Continue)
    });
    // An operator that does not show its expressions leaves the message as it is.
    if visited.is_err() || columns.is_empty() {
        return error;
    }
    let named: Vec<String> = columns.iter().take(MOST_COLUMNS).map(|name| format!("\"{name}\"")).collect();
    let more = if columns.len() > MOST_COLUMNS { ", …" } else { "" };
    let column = if columns.len() == 1 { "column" } else { "one of the columns" };
    let named = named.join(", ");
    Error::Query {
        message: format!("{message}{TOLD}{column} {named}{more}; TRY_CAST gives NULL instead of an error"),
    }
}

/// The type of a cast, as far as its error tells.
enum Target<'a> {
    /// By its name in SQL.
    Sql(&'a str),
    /// As Arrow writes it; of decimals without their digits, which it does not know.
    Arrow(&'a str),
    Timestamp,
}

impl Target<'_> {
    /// Whether a function casts by itself.
    fn is_of(&self, function: &ScalarFunctionExpr) -> bool {
        match self {
            Target::Sql(name) => {
                function.name() == CAST_FUNCTION && sql_type(function.return_type()) == **name
            }
            Target::Timestamp => function.name().starts_with("to_timestamp"),
            Target::Arrow(_) => false,
        }
    }

    fn is(&self, data_type: &DataType) -> bool {
        match self {
            Target::Sql(name) => sql_type(data_type) == **name,
            Target::Arrow(name) if name.starts_with("Decimal") => {
                data_type.to_string().split('(').next() == Some(*name)
            }
            Target::Arrow(name) => data_type.to_string() == **name,
            Target::Timestamp => matches!(data_type, DataType::Timestamp(..)),
        }
    }
}

/// Marks a message that has its columns, as one of a statement that runs inside of another.
const TOLD: &str = ", in a cast of ";

fn target_of_failed_cast(message: &str) -> Option<Target<'_>> {
    if message.contains(TOLD) {
        return None;
    }
    if message.contains("Error parsing timestamp from") {
        return Some(Target::Timestamp);
    }
    if let Some((_, rest)) = message.rsplit_once(CANNOT_BE_CAST) {
        return Some(Target::Sql(rest.split_once("; ").map_or(rest, |(name, _)| name)));
    }
    let (_, rest) = message.rsplit_once("to value of ")?;
    let name = rest.strip_suffix(" type")?;
    let decimal = name.split_once('(').filter(|_| name.starts_with("Decimal"));
    Some(Target::Arrow(decimal.map_or(name, |(decimal, _)| decimal)))
}
