//! `SUMMARIZE t` and `(DESCRIBE t)`: a row for each column of a table.

use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, Query, TableFactor, Value};
use nandina_functions::sql_type;

use super::{Column, over};
use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::syntax::calls::{DESCRIBE, SUMMARIZE};

/// One of both.
pub(super) struct Table {
    source: Query,
    is_summary: bool,
}

impl Table {
    /// The one that a table is.
    pub fn of(factor: &TableFactor) -> Result<Option<Self>> {
        let TableFactor::Table { name, args: Some(arguments), .. } = factor else { return Ok(None) };
        let name = name.to_string();
        let is_summary = match name.trim_matches('"') {
            SUMMARIZE => true,
            DESCRIBE => false,
            _ => return Ok(None),
        };
        match arguments.args.as_slice() {
            [FunctionArg::Named { arg: FunctionArgExpr::Expr(Expr::Subquery(source)), .. }] => {
                Ok(Some(Table { source: source.as_ref().clone(), is_summary }))
            }
            _ => Err(Error::bug("a table is summarized and described as a query")),
        }
    }

    pub fn source(&self) -> &Query {
        &self.source
    }

    /// The query for it, when the columns are known.
    pub fn written_out(self, columns: &[Column]) -> Result<Query> {
        if columns.is_empty() {
            return Err(Error::Query { message: "the table has no columns to be described".to_owned() });
        }
        if !self.is_summary {
            return syntax::query(&description(columns));
        }
        // Values of all columns are computed at once, as lists, which are then put below one another.
        let value = |of: fn(&Column, &str) -> String| {
            let values: Vec<String> =
                columns.iter().map(|column| of(column, &column.ident().to_string())).collect();
            format!("[{}]", values.join(", "))
        };
        let outputs: [(&str, String); 12] = [
            ("column_name", value(|column, _| text(&column.name))),
            ("column_type", value(|column, _| text(&sql_type(&column.data_type)))),
            ("min", value(|column, name| ordered(column, format!("CAST(min({name}) AS VARCHAR)")))),
            ("max", value(|column, name| ordered(column, format!("CAST(max({name}) AS VARCHAR)")))),
            (
                "approx_unique",
                value(|column, name| {
                    ordered(column, format!("CAST(approx_distinct({}) AS BIGINT)", counted(column, name)))
                }),
            ),
            ("avg", value(|column, name| of_number(column, format!("CAST(avg({name}) AS VARCHAR)")))),
            ("std", value(|column, name| of_number(column, format!("CAST(stddev({name}) AS VARCHAR)")))),
            ("q25", value(|column, name| of_number(column, quantile(name, "0.25")))),
            ("q50", value(|column, name| of_number(column, quantile(name, "0.5")))),
            ("q75", value(|column, name| of_number(column, quantile(name, "0.75")))),
            ("count", value(|_, _| "count(*)".to_owned())),
            (
                "null_percentage",
                value(|_, name| {
                    format!("CAST(100.0 * (count(*) - count({name})) / nullif(count(*), 0) AS DECIMAL(9, 2))")
                }),
            ),
        ];
        let lists: Vec<String> =
            outputs.iter().map(|(name, values)| format!("{values} AS \"{name}\"")).collect();
        let inner = over(&format!("SELECT {} FROM (SELECT 1) AS source", lists.join(", ")), self.source)?;
        let columns: Vec<String> =
            outputs.iter().map(|(name, _)| format!("unnest(((\"{name}\"))) AS \"{name}\"")).collect();
        over(&format!("SELECT {} FROM (SELECT 1) AS source", columns.join(", ")), inner)
    }
}

/// The columns of a table as rows.
fn description(columns: &[Column]) -> String {
    let none = "CAST(NULL AS VARCHAR)";
    let row = |column: &Column| {
        format!(
            "({}, {}, 'YES', {none}, {none}, {none})",
            text(&column.name),
            text(&sql_type(&column.data_type))
        )
    };
    let rows: Vec<String> = columns.iter().map(row).collect();
    format!(
        "SELECT * FROM (VALUES {}) AS columns(column_name, column_type, \"null\", \"key\", \"default\", extra)",
        rows.join(", ")
    )
}

fn text(value: &str) -> String {
    Value::SingleQuotedString(value.to_owned()).to_string()
}

/// What is counted for the different values of a column: not all types have sketches.
fn counted(column: &Column, name: &str) -> String {
    match column.data_type.is_integer() || column.data_type.is_string() {
        true => name.to_owned(),
        false => format!("CAST({name} AS VARCHAR)"),
    }
}

fn quantile(name: &str, fraction: &str) -> String {
    format!("CAST(approx_percentile_cont({name}, {fraction}) AS VARCHAR)")
}

/// A value that only numbers have.
fn of_number(column: &Column, value: String) -> String {
    if column.data_type.is_numeric() { value } else { "CAST(NULL AS VARCHAR)".to_owned() }
}

/// A value that what is made of others does not have.
fn ordered(column: &Column, value: String) -> String {
    if column.data_type.is_nested() { "NULL".to_owned() } else { value }
}
