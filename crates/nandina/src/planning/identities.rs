//! Columns whose rows are numbered.
//!
//! ```sql
//! CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10), n SERIAL)
//! -- id BIGINT NOT NULL DEFAULT nextval('t_id_seq'), and a sequence that is made and dropped with the table
//! ```

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, DataType, GeneratedAs, Ident, Query, SequenceOptions, SetExpr,
};
use nandina_storage::{MAIN, Sequence, TableRules, parts};

use super::creation::{Creation, Identity};
use super::insertion::is_default;
use super::wrong_plans::normalized;
use super::{catalog_statement, syntax};
use crate::error::{Error, Result};

/// Takes what makes a column numbered out of its definition.
pub(super) fn take(column: &mut ColumnDef, creation: &mut Creation) -> Result<()> {
    let name = normalized(&column.name);
    let mut options: Option<(bool, Vec<SequenceOptions>)> = None;
    if let Some(data_type) = serial(&column.data_type) {
        column.data_type = data_type;
        options = Some((false, Vec::new()));
    }
    column.options.retain(|option| match &option.option {
        ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
            let is_always = *generated_as == GeneratedAs::Always;
            options = Some((is_always, sequence_options.clone().unwrap_or_default()));
            false
        }
        _ => true,
    });
    let Some((is_always, options)) = options else { return Ok(()) };
    let has = |wanted: fn(&ColumnOption) -> bool| column.options.iter().any(|option| wanted(&option.option));
    if has(|option| matches!(option, ColumnOption::Default(_))) {
        return Err(Error::unsupported(format!(
            "column '{name}' is numbered by a sequence, and has a DEFAULT: it can have one of both"
        )));
    }
    if has(|option| matches!(option, ColumnOption::Null)) {
        return Err(Error::unsupported(format!(
            "column '{name}' is numbered by a sequence, and cannot be NULL"
        )));
    }
    if !matches!(
        column.data_type,
        DataType::SmallInt(_)
            | DataType::Int2(_)
            | DataType::Int(_)
            | DataType::Int4(_)
            | DataType::Integer(_)
            | DataType::BigInt(_)
            | DataType::Int8(_)
            | DataType::Int64
            | DataType::Int32
            | DataType::Int16
    ) {
        return Err(Error::unsupported(format!(
            "column '{name}' is of type {}: columns that are numbered are SMALLINT, INTEGER or BIGINT",
            column.data_type
        )));
    }
    if !has(|option| matches!(option, ColumnOption::NotNull)) {
        column.options.push(ColumnOptionDef { name: None, option: ColumnOption::NotNull });
    }
    if is_always {
        creation.rules.always_numbered.push(name.clone());
    }
    creation.identities.push(Identity { column: name, sequence: sequence(&options)? });
    Ok(())
}

fn serial(of: &DataType) -> Option<DataType> {
    let DataType::Custom(name, arguments) = of else { return None };
    if !arguments.is_empty() {
        return None;
    }
    match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => Some(DataType::Integer(None)),
        "bigserial" | "serial8" => Some(DataType::BigInt(None)),
        "smallserial" | "serial2" => Some(DataType::SmallInt(None)),
        _ => None,
    }
}

/// Read as `CREATE SEQUENCE` reads them.
fn sequence(options: &[SequenceOptions]) -> Result<Sequence> {
    let text = options.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    syntax::part(&text, catalog_statement::sequence_options)
}

/// The default of a column that a sequence numbers.
pub(crate) fn default(sequence: &str) -> String {
    let written = |part: &str| {
        let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        match part.chars().all(is_plain) {
            true => part.to_owned(),
            false => Ident::with_quote('"', part).to_string(),
        }
    };
    let (schema, name) = parts(sequence);
    let name = match schema.as_str() {
        MAIN => written(&name),
        schema => format!("{}.{}", written(schema), written(&name)),
    };
    format!("nextval('{}')", name.replace('\'', "''"))
}

/// Statements insert nothing but `DEFAULT` into a column that is always numbered.
pub(super) fn check_insert(rules: &TableRules, columns: &[String], source: &Query) -> Result<()> {
    for (number, column) in columns.iter().enumerate() {
        if !rules.always_numbered.contains(column) {
            continue;
        }
        let is_left_to_it = match source.body.as_ref() {
            SetExpr::Values(values) => {
                values.rows.iter().all(|row| row.content.get(number).is_none_or(is_default))
            }
            _ => false,
        };
        if !is_left_to_it {
            return Err(is_numbered(column));
        }
    }
    Ok(())
}

pub(super) fn check_update(rules: &TableRules, column: &str) -> Result<()> {
    match rules.always_numbered.iter().any(|numbered| numbered == column) {
        true => Err(is_numbered(column)),
        false => Ok(()),
    }
}

fn is_numbered(column: &str) -> Error {
    Error::unsupported(format!(
        "column '{column}' is GENERATED ALWAYS AS IDENTITY: leave it out, or write DEFAULT; GENERATED BY DEFAULT takes other values"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_name_their_sequence() {
        assert_eq!(default("t_id_seq"), "nextval('t_id_seq')");
        assert_eq!(default("s.T_id_seq"), "nextval('s.\"T_id_seq\"')");
        assert_eq!(default("it's_id_seq"), "nextval('\"it''s_id_seq\"')");
    }
}
