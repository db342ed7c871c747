//! What is said of CSV files beside DataFusion's `CsvOptions`.

use arrow::datatypes::{DataType, Field};
use datafusion::execution::SessionState;

use super::columns::unique_names;
use super::dialect::NeverNull;
use super::encoding::Encoding;
use crate::error::{Error, Result};
use crate::files::reading::{Reading, type_named};
use crate::suggestion;

/// Options of reading, with types in place of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub skipped_lines: usize,
    pub encoding: Encoding,
    pub ignores_errors: bool,
    pub union_by_name: bool,
    /// All columns.
    pub columns: Option<Vec<(String, DataType)>>,
    /// Of the first columns.
    names: Vec<String>,
    first_types: Vec<DataType>,
    /// By the names of columns.
    types: Vec<(String, DataType)>,
    /// Those that columns may be found to have; empty: all.
    candidates: Vec<DataType>,
    pub never_null: NeverNull,
    normalizes_names: bool,
    pub most_record_bytes: Option<usize>,
}

impl Extras {
    pub(crate) fn of(state: &SessionState, reading: &Reading) -> Result<Self> {
        let csv = &reading.csv;
        let named = |columns: &[(String, String)]| -> Result<Vec<_>> {
            columns.iter().map(|(name, of)| Ok((name.clone(), type_named(state, of)?))).collect()
        };
        let extras = Extras {
            skipped_lines: csv.skipped_lines,
            encoding: csv.encoding,
            ignores_errors: csv.ignores_errors,
            union_by_name: reading.union_by_name,
            columns: reading.columns.as_deref().map(named).transpose()?,
            names: csv.names.clone(),
            first_types: csv.first_types.iter().map(|of| type_named(state, of)).collect::<Result<_>>()?,
            types: named(&csv.types)?,
            candidates: csv.candidates.iter().map(|of| type_named(state, of)).collect::<Result<_>>()?,
            never_null: csv.never_null.clone(),
            normalizes_names: csv.normalizes_names,
            most_record_bytes: csv.most_record_bytes,
        };
        let is_empty_null = csv.nulls.as_deref().is_none_or(|nulls| *nulls == [String::new()]);
        if extras.never_null != NeverNull::None && !is_empty_null {
            return Err(Error::unsupported(
                "force_not_null is for files whose nulls are empty texts, without nullstr",
            ));
        }
        let all = [extras.columns.as_ref(), Some(&extras.types)].into_iter().flatten().flatten();
        let types = all.map(|(_, of)| of).chain(&extras.first_types);
        for of in types {
            if of.is_nested() {
                return Err(Error::unsupported(format!("a column of a CSV file cannot be of the type {of}")));
            }
        }
        Ok(extras)
    }

    /// Whether the fields of a record are the columns in their order, whatever a header says.
    pub(super) fn are_in_order(&self) -> bool {
        !self.names.is_empty()
    }

    /// The columns that were found, with the names and types that were given.
    pub(super) fn settle(&self, path: &str, found: Vec<Field>) -> Result<Vec<Field>> {
        if self.names.len().max(self.first_types.len()) > found.len() {
            let message = format!("it has {} columns, fewer than there are names or types", found.len());
            return Err(Error::file(path, message));
        }
        let mut names: Vec<String> = found.iter().map(|field| field.name().clone()).collect();
        if self.normalizes_names {
            names.iter_mut().for_each(|name| *name = normalized(name));
        }
        for (name, given) in names.iter_mut().zip(&self.names) {
            name.clone_from(given);
        }
        let given = self.first_types.iter().map(Some).chain(std::iter::repeat(None));
        let mut fields: Vec<Field> = unique_names(names)
            .into_iter()
            .zip(&found)
            .zip(given)
            .map(|((name, field), given)| {
                let of = given.cloned().unwrap_or_else(|| self.candidate(field.data_type()));
                Field::new(name, of, true)
            })
            .collect();
        for (name, of) in &self.types {
            let Some(field) = fields.iter_mut().find(|field| field.name().eq_ignore_ascii_case(name)) else {
                let hint = suggestion::phrase(name, fields.iter().map(|field| field.name().as_str()));
                return Err(Error::UnknownColumn { name: name.clone(), hint });
            };
            *field = field.clone().with_data_type(of.clone());
        }
        Ok(fields)
    }

    /// The type that a column has which was found to have another one.
    fn candidate(&self, found: &DataType) -> DataType {
        if self.candidates.is_empty() || self.candidates.contains(found) {
            return found.clone();
        }
        let may_be = |of: &DataType| match found {
            DataType::Int64 => of.is_integer() || of.is_floating(),
            DataType::Float64 => of.is_floating(),
            DataType::Date32 | DataType::Timestamp(..) => matches!(of, DataType::Timestamp(..)),
            _ => false,
        };
        let wider = |of: &&DataType| may_be(of);
        self.candidates.iter().find(wider).cloned().unwrap_or(DataType::Utf8)
    }
}

/// A name as a word in small letters: `Unit Price (€)` is `unit_price`.
fn normalized(name: &str) -> String {
    let letters = name.trim().chars().map(|letter| match letter.is_alphanumeric() {
        true => letter.to_ascii_lowercase(),
        false => '_',
    });
    let mut word = String::new();
    for letter in letters {
        if letter != '_' || !word.ends_with('_') {
            word.push(letter);
        }
    }
    let word = word.trim_matches('_');
    match word.chars().next() {
        Some(first) if !first.is_ascii_digit() => word.to_owned(),
        _ => format!("_{word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        assert_eq!(normalized(" Unit  Price (€)"), "unit_price");
        assert_eq!(normalized("2020"), "_2020");
        assert_eq!(normalized("Größe"), "größe");
    }
}
