//! What is said of CSV files beside DataFusion's `CsvOptions`.

use arrow::datatypes::{DataType, Field};
use datafusion::execution::SessionState;

use super::columns::unique_names;
use crate::error::{Error, Result};
use crate::files::reading::{Reading, type_named};
use crate::suggestion;

/// Options of reading, with types in place of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub skipped_lines: usize,
    pub ignores_errors: bool,
    pub union_by_name: bool,
    /// All columns.
    pub columns: Option<Vec<(String, DataType)>>,
    /// Of the first columns.
    names: Vec<String>,
    first_types: Vec<DataType>,
    /// By the names of columns.
    types: Vec<(String, DataType)>,
}

impl Extras {
    pub(crate) fn of(state: &SessionState, reading: &Reading) -> Result<Self> {
        let csv = &reading.csv;
        let named = |columns: &[(String, String)]| -> Result<Vec<_>> {
            columns.iter().map(|(name, of)| Ok((name.clone(), type_named(state, of)?))).collect()
        };
        let extras = Extras {
            skipped_lines: csv.skipped_lines,
            ignores_errors: csv.ignores_errors,
            union_by_name: reading.union_by_name,
            columns: reading.columns.as_deref().map(named).transpose()?,
            names: csv.names.clone(),
            first_types: csv.first_types.iter().map(|of| type_named(state, of)).collect::<Result<_>>()?,
            types: named(&csv.types)?,
        };
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
        for (name, given) in names.iter_mut().zip(&self.names) {
            name.clone_from(given);
        }
        let given = self.first_types.iter().map(Some).chain(std::iter::repeat(None));
        let mut fields: Vec<Field> = unique_names(names)
            .into_iter()
            .zip(&found)
            .zip(given)
            .map(|((name, field), given)| Field::new(name, given.unwrap_or(field.data_type()).clone(), true))
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
}
