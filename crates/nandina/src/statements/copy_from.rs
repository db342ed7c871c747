//! `COPY table FROM 'file'`: loads files into a table that exists.
//!
//! ```sql
//! COPY orders FROM 'orders-*.csv' (DELIMITER ';', HEADER false);
//! COPY orders (o_orderkey, o_comment) FROM 'some.parquet';
//! ```
//!
//! Columns are matched by their names, if the file has just those of the table, in whatever order; else, and if they are
//! listed, by position, as in other databases. They are cast to the table's types. (`COPY … TO`: see `copy_to`.)

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, col, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{CopySource, CopyTarget, Statement};

use crate::error::{Error, Result};
use crate::files::csv::{by_name, columns_of_fields};
use crate::files::names::{Format, is_pattern};
use crate::files::reading::Reading;
use crate::files::{self, names};
use crate::planning::catalog_statement::reference;
use crate::planning::copy_statement::{CopyOption, CopyText, Direction};
use crate::planning::{checks, normalized, syntax};
use crate::suggestion;

/// A parsed `COPY … FROM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyFrom {
    pub table: TableReference,
    /// The table's columns that the file has, in the file's order; empty: all.
    pub columns: Vec<String>,
    pub reading: Reading,
}

/// Recognises `COPY … FROM`; other statements, `COPY … TO` among them, are `None`.
pub(crate) fn parse(text: &str) -> Result<Option<CopyFrom>> {
    let is_copy = text.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
    if !is_copy {
        return Ok(None);
    }
    let Some(copy) = CopyText::of(text) else {
        return if mentions_from(text) { Err(misspelt()) } else { Ok(None) };
    };
    if copy.direction == Direction::To {
        return Ok(None);
    }
    let mut statements =
        syntax::part(copy.head, |parser| parser.parse_statements()).map_err(|_| misspelt())?;
    let (Some(Statement::Copy { source, to: false, target, .. }), true) =
        (statements.pop(), statements.is_empty())
    else {
        return Err(misspelt());
    };
    let (CopySource::Table { table_name, columns }, CopyTarget::File { filename }) = (source, target) else {
        return Err(misspelt());
    };
    let reading = reading(filename, copy.options()?.unwrap_or_default())?;
    let columns = columns.iter().map(normalized).collect();
    Ok(Some(CopyFrom { table: reference(&table_name).map_err(Error::from_parser)?, columns, reading }))
}

/// How a file is read with these options.
fn reading(file: String, options: Vec<CopyOption>) -> Result<Reading> {
    let mut reading = Reading::of_names(&[&file]);
    if let Some((_, value)) = options.iter().find(|(name, _)| name == "format") {
        let name = value.text("format")?;
        let format = Format::named(&name);
        reading.format = Some(format.ok_or_else(|| value.refused("format", "csv, json, parquet or arrow"))?);
    }
    let format = match reading.format.or_else(|| Format::of_name(&file)) {
        Some(format) => format,
        // As in other databases. A pattern, or a folder, is of the format of its files.
        None if !options.is_empty() && !is_pattern(&file) && !Path::new(&file).is_dir() => {
            reading.format = Some(Format::Csv);
            Format::Csv
        }
        None => Format::Csv,
    };
    let about = format!("COPY … FROM '{file}'");
    for (option, value) in options.iter().filter(|(name, _)| name != "format") {
        reading.set(format, option, value, &about)?;
    }
    // The table's columns are known.
    reading.csv.is_given = false;
    Ok(reading)
}

/// The plan that inserts all rows of the files into the table.
pub(crate) async fn insert_plan(
    target: impl Future<Output = Result<Arc<dyn TableProvider>>>,
    state: &SessionState,
    from: CopyFrom,
) -> Result<LogicalPlan> {
    if names::looks_like_path(from.table.table()) {
        return Err(Error::unsupported(format!("'{}' is a file; COPY FROM loads into a table", from.table)));
    }
    let target = target.await?;
    let target_schema = target.schema();
    let given: Vec<String> = if from.columns.is_empty() {
        target_schema.fields().iter().map(|field| field.name().clone()).collect()
    } else {
        from.columns.clone()
    };
    let mut reading = from.reading.clone();
    reading.csv.columns = Some(given.clone());
    let source = files::open(state, &reading).await?;
    let source_schema = source.schema();
    if given.len() != source_schema.fields().len() {
        return Err(Error::file(
            from.reading.names.join(", "),
            format!(
                "the file has {} columns, but {} are to be loaded into '{}'",
                source_schema.fields().len(),
                given.len(),
                from.table
            ),
        ));
    }
    for (position, name) in given.iter().enumerate() {
        let known = || target_schema.fields().iter().map(|field| field.name().as_str());
        if !known().any(|other| other == name) {
            let hint = suggestion::phrase(name, known());
            return Err(Error::UnknownColumn { name: format!("{}.{name}", from.table), hint });
        }
        if given.iter().take(position).any(|earlier| earlier == name) {
            return Err(Error::unsupported(format!("column '{name}' is listed twice")));
        }
    }
    let sources = sources(&from, &given, &source_schema)?;
    let mut values: Vec<Expr> = Vec::with_capacity(target_schema.fields().len());
    for field in target_schema.fields() {
        let position = given.iter().position(|name| name == field.name());
        #[allow(clippy::indexing_slicing, reason = "there is a source for each column that is given")]
        let loaded = position.map(|position| source_schema.field(sources[position]));
        let value = match loaded {
            Some(column) if column.data_type() == field.data_type() => quoted_column(column.name()),
            Some(column) => cast(quoted_column(column.name()), field.data_type().clone()),
            None => lit(ScalarValue::try_from(field.data_type())?),
        };
        values.push(value.alias(field.name()));
    }
    let rows =
        LogicalPlanBuilder::scan("file", provider_as_source(source), None)?.project(values)?.build()?;
    let table = from.table.clone();
    let insert = LogicalPlanBuilder::insert_into(rows, table, provider_as_source(target), InsertOp::Append)?;
    checks::add(state, insert.build()?)
}

/// For each column that is loaded, which one of the file it is.
fn sources(from: &CopyFrom, given: &[String], source: &Schema) -> Result<Vec<usize>> {
    let names: Vec<String> = source.fields().iter().map(|field| field.name().clone()).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    if from.columns.is_empty() {
        if let Some(by_name) = by_name(given, &known) {
            return Ok(by_name);
        }
        // Refuses names that are those of other columns.
        let columns: Vec<&str> = given.iter().map(String::as_str).collect();
        columns_of_fields(&from.reading.names.join(", "), &names, &columns)?;
    }
    Ok((0..given.len()).collect())
}

fn quoted_column(name: &str) -> Expr {
    col(datafusion::common::Column::new_unqualified(name))
}

fn mentions_from(text: &str) -> bool {
    let words = text.split_whitespace().map(str::to_ascii_uppercase).collect::<Vec<_>>();
    words.get(2).is_some_and(|word| word == "FROM")
}

fn misspelt() -> Error {
    Error::Syntax {
        message: "write COPY table [(columns)] FROM 'file' [(DELIMITER ';', HEADER false, QUOTE '\"', ESCAPE '\\')]"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parsed =
            parse("COPY Orders (a, \"B\") FROM 'x.csv' (DELIMITER ';', HEADER false)").unwrap().unwrap();
        assert_eq!(parsed.table, TableReference::bare("orders"));
        assert_eq!(parsed.columns, ["a", "B"]);
        assert_eq!(parsed.reading.names, ["x.csv"]);
        assert_eq!(parsed.reading.csv.delimiter, Some(b';'));
        assert_eq!(parsed.reading.csv.header, Some(false));
        let other = parse("COPY t FROM 'x.txt' WITH CSV HEADER NULL 'NA'").unwrap().unwrap();
        assert_eq!(other.reading.format, Some(Format::Csv));
        assert_eq!(other.reading.csv.nulls, Some(vec!["NA".to_owned()]));
    }

    #[test]
    fn copy_to_is_left_to_datafusion() {
        assert_eq!(parse("COPY t TO 'x.parquet'").unwrap(), None);
        assert_eq!(parse("COPY (SELECT 1 FROM t) TO 'x.csv' STORED AS CSV").unwrap(), None);
        assert_eq!(parse("SELECT 1").unwrap(), None);
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(parse("COPY t FROM x.csv").unwrap_err().to_string().contains("write COPY table"));
        assert!(parse("COPY a.b.c.d FROM 'x.csv'").unwrap_err().to_string().contains("too many parts"));
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert!(message("COPY t FROM 'x.csv' (FORMAT pdf)").contains("csv, json, parquet or arrow, not pdf"));
        assert!(message("COPY t FROM 'x.csv' (DELIMTER ';')").contains("did you mean 'delimiter'?"));
        assert!(message("COPY t FROM 'x.parquet' (HEADER)").contains("has no option 'header'"));
    }
}
