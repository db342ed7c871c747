//! Columns that files have from where they are: their paths, and what folders `name=value` say.
//!
//! ```text
//!   sales/day=2026-01-01/a.parquet   id, amount │ filename │ day
//!         └── the folder ────────────── all rows of a file have the same value ──┘
//! ```
//!
//! DataFusion's table of files finds out such columns by the folder that is the table, and knows no paths; here files are
//! given one by one. So a table of files without these columns lists them, and each gets its values. Filters on these
//! columns alone decide which files are read.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::ColumnStatistics;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::datasource::listing::{ListingTable, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::object_store::path::Path as ObjectPath;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion_datasource::{TableSchema, compute_all_files_statistics};

use super::names::display;
use super::reading::Reading;

/// The columns, and their values for each file.
#[derive(Debug, Default)]
pub(super) struct Located {
    fields: Vec<FieldRef>,
    values: Vec<Vec<ScalarValue>>,
}

/// What the name of a folder has for null, in Hive and DuckDB.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

impl Located {
    /// The columns of files that are read in this way, beside those that are in them.
    pub fn of(files: &[PathBuf], reading: &Reading, columns: &Schema) -> Self {
        let mut located = Located { fields: Vec::new(), values: vec![Vec::new(); files.len()] };
        let taken: HashSet<String> =
            columns.fields().iter().map(|field| field.name().to_lowercase()).collect();
        let is_free = |name: &str| !taken.contains(&name.to_lowercase());
        if let Some(name) = reading.filename.as_deref().filter(|name| is_free(name)) {
            let is_relative =
                reading.names.iter().all(|name| !name.starts_with(['/', '~']) && !name.contains("://"));
            let path = |file: &PathBuf| ScalarValue::from(shown_path(file, is_relative));
            located.add(name, &DataType::Utf8, files.iter().map(path));
        }
        if reading.hive_partitioning != Some(false) {
            for (name, values) in folder_columns(files) {
                if is_free(&name) && located.fields.iter().all(|field| *field.name() != name) {
                    let of = if reading.hive_texts { DataType::Utf8 } else { type_of(&values) };
                    let value = |text: &Option<String>| {
                        let text = ScalarValue::Utf8(text.clone());
                        text.cast_to(&of).unwrap_or(text)
                    };
                    located.add(&name, &of, values.iter().map(value));
                }
            }
        }
        located
    }

    fn add(&mut self, name: &str, of: &DataType, values: impl Iterator<Item = ScalarValue>) {
        self.fields.push(Arc::new(Field::new(name, of.clone(), true)));
        for (file, value) in self.values.iter_mut().zip(values) {
            file.push(value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// A file's path as it is shown: as it was given, if that is relative.
pub(super) fn shown_path(file: &Path, is_relative: bool) -> String {
    let here = is_relative.then(std::env::current_dir).and_then(std::io::Result::ok);
    let shown = here.and_then(|here| file.strip_prefix(here).ok());
    display(shown.unwrap_or(file))
}

/// The names of folders `name=value` that all files have, with the value for each file.
fn folder_columns(files: &[PathBuf]) -> Vec<(String, Vec<Option<String>>)> {
    let mut columns: Vec<(String, Vec<Option<String>>)> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let found = folder_values(file);
        if number == 0 {
            columns = found.into_iter().map(|(name, value)| (name, vec![value])).collect();
            continue;
        }
        let has_others = found.len() != columns.len()
            || found.iter().zip(&columns).any(|((name, _), (known, _))| name != known);
        if has_others {
            return Vec::new();
        }
        for ((_, values), (_, value)) in columns.iter_mut().zip(found) {
            values.push(value);
        }
    }
    columns
}

fn folder_values(file: &Path) -> Vec<(String, Option<String>)> {
    let folders = file.parent().into_iter().flat_map(Path::components);
    let mut seen = HashSet::new();
    folders
        .filter_map(|folder| match folder {
            Component::Normal(name) => name.to_str()?.split_once('='),
            _ => None,
        })
        .filter(|(name, _)| !name.is_empty() && seen.insert(*name))
        .map(|(name, value)| (decoded(name), (value != NULL_FOLDER).then(|| decoded(value))))
        .collect()
}

/// A text whose bytes may be written as `%2F`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let code = match rest {
            [b'%', high, low, ..] => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { rest.get(3..).unwrap_or_default() } else { behind };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// A value as a part of the name of a folder. A text that is the name for nulls has one letter encoded, also where it differs in
/// capitals alone: some file systems do not tell these apart.
pub(super) fn encoded_value(value: Option<&str>) -> String {
    match value {
        None => NULL_FOLDER.to_owned(),
        Some(text) if text.eq_ignore_ascii_case(NULL_FOLDER) => text.replacen('_', "%5F", 1),
        Some(text) => encoded(text),
    }
}

/// A text as a part of the name of a folder: other bytes than those of words are `%2F`.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// The type of all values: a number, a date or a timestamp, if all are; else texts.
fn type_of(values: &[Option<String>]) -> DataType {
    let is = |of: &DataType| {
        let mut known = values.iter().flatten().peekable();
        known.peek().is_some()
            && known.all(|text| {
                let value = ScalarValue::from(text.as_str()).cast_to(of);
                value.is_ok_and(|value| !value.is_null())
            })
    };
    let is_date = |text: &String| {
        let bytes = text.as_bytes();
        bytes.len() >= 10 && bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-')
    };
    let look_like_dates = values.iter().flatten().all(is_date);
    let are_short = values.iter().flatten().all(|text| text.len() == 10);
    let timestamp = DataType::Timestamp(TimeUnit::Nanosecond, None);
    match () {
        () if look_like_dates && are_short && is(&DataType::Date32) => DataType::Date32,
        () if look_like_dates && is(&timestamp) => timestamp,
        () if is(&DataType::Int64) => DataType::Int64,
        () => DataType::Utf8,
    }
}

/// A table of files with such columns.
#[derive(Debug)]
pub(crate) struct LocatedFiles {
    files: ListingTable,
    schema: TableSchema,
    /// The values of a file, by its place in the store.
    values: HashMap<ObjectPath, Vec<ScalarValue>>,
}

impl LocatedFiles {
    /// The table with the columns that the files of `places` have, in the same order.
    pub(super) fn new(
        files: ListingTable,
        columns: SchemaRef,
        located: Located,
        places: impl Iterator<Item = ObjectPath>,
    ) -> Self {
        let schema = TableSchema::builder(columns).with_table_partition_cols(located.fields).build();
        LocatedFiles { files, schema, values: places.zip(located.values).collect() }
    }

    pub(crate) fn files(&self) -> &ListingTable {
        &self.files
    }

    /// Whether a filter looks at nothing but the columns that are decided file by file.
    fn is_about_files(&self, filter: &Expr) -> bool {
        let names: HashSet<&str> =
            self.schema.table_partition_cols().iter().map(|field| field.name().as_str()).collect();
        let columns = filter.column_refs();
        !columns.is_empty()
            && columns.iter().all(|column| names.contains(column.name.as_str()))
            && !filter.is_volatile()
            && !has_query(filter)
    }

    /// The files that pass all filters, each with its values.
    fn chosen(
        &self,
        state: &dyn Session,
        groups: Vec<FileGroup>,
        filters: &[&Expr],
    ) -> Result<Vec<FileGroup>> {
        let fields = Schema::new(self.schema.table_partition_cols().clone());
        let known = DFSchema::try_from(fields.clone())?;
        let filters = filters
            .iter()
            .map(|filter| {
                // The planner may have put the table's name in front of columns.
                let filter = datafusion::logical_expr::expr_rewriter::unnormalize_col((*filter).clone());
                state.create_physical_expr(filter, &known)
            })
            .collect::<Result<Vec<_>>>()?;
        let fields = Arc::new(fields);
        let mut chosen = Vec::with_capacity(groups.len());
        for group in groups {
            let mut kept = Vec::new();
            for file in group.into_inner() {
                let Some(values) = self.values.get(&file.object_meta.location) else { continue };
                let arrays = values.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
                let row = RecordBatch::try_new(Arc::clone(&fields), arrays)?;
                let mut passes = true;
                for filter in &filters {
                    let answer = filter.evaluate(&row)?.into_array(1)?;
                    let answer = answer.as_boolean();
                    passes &= answer.is_valid(0) && answer.value(0);
                }
                if passes {
                    kept.push(with_values(file, values));
                }
            }
            if !kept.is_empty() {
                chosen.push(FileGroup::new(kept));
            }
        }
        Ok(chosen)
    }
}

fn has_query(filter: &Expr) -> bool {
    use datafusion::common::tree_node::TreeNode as _;
    let found = filter.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
        ))
    });
    // Nothing in the closure fails.
    found.unwrap_or(true)
}

fn with_values(mut file: PartitionedFile, values: &[ScalarValue]) -> PartitionedFile {
    file.partition_values = values.to_vec();
    let Some(own) = file.statistics.take() else { return file };
    let columns = own.column_statistics.len();
    let mut file = file.with_statistics(own);
    // A value that is null is counted as one that is not.
    if let Some(statistics) = &mut file.statistics {
        let statistics = Arc::make_mut(statistics);
        for (column, value) in statistics.column_statistics.iter_mut().skip(columns).zip(values) {
            if value.is_null() {
                *column = ColumnStatistics::new_unknown();
            }
        }
    }
    file
}

#[async_trait]
impl TableProvider for LocatedFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let listed = self.files.list_files_for_scan(state, &[], None).await?;
        let about_files: Vec<&Expr> = filters.iter().filter(|filter| self.is_about_files(filter)).collect();
        let groups = self.chosen(state, listed.file_groups, &about_files)?;
        let schema = self.schema();
        let Some(url) = self.files.table_paths().first().filter(|_| !groups.is_empty()) else {
            let projected = projection.map(|columns| schema.project(columns)).transpose()?;
            return Ok(Arc::new(EmptyExec::new(projected.map_or(schema, Arc::new))));
        };
        let collects = state.config().collect_statistics();
        let (groups, statistics) = compute_all_files_statistics(groups, schema, collects, false)?;
        let format = &self.files.options().format;
        let config = FileScanConfigBuilder::new(url.object_store(), format.file_source(self.schema.clone()))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        format.create_physical_plan(state, config).await
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let pushed = |filter: &&Expr| match self.is_about_files(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(pushed).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(files: &[&str]) -> Vec<(String, DataType, Vec<Option<String>>)> {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        folder_columns(&files).into_iter().map(|(name, values)| (name, type_of(&values), values)).collect()
    }

    #[test]
    fn folders_are_columns_if_all_files_have_them() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            columns(&["/d/day=2026-01-01/k=a%2Fb/x.csv", "/d/day=2026-01-02/k=1/x.csv"]),
            [
                ("day".to_owned(), DataType::Date32, vec![some("2026-01-01"), some("2026-01-02")]),
                ("k".to_owned(), DataType::Utf8, vec![some("a/b"), some("1")]),
            ]
        );
        assert_eq!(columns(&["/d/n=1/x.csv", "/d/n=__HIVE_DEFAULT_PARTITION__/y.csv"])[0].1, DataType::Int64);
        assert_eq!(columns(&["/d/n=1/x.csv", "/d/x.csv"]), []);
        assert_eq!(columns(&["/d/n=1/x.csv", "/d/m=1/x.csv"]), []);
        assert_eq!(columns(&["/d/n=/x.csv"])[0].1, DataType::Utf8);
    }

    #[test]
    fn names_of_folders_are_decoded() {
        for (written, meant) in [("a%2Fb%", "a/b%"), ("%C3%BC", "ü"), ("%FF", "%FF"), ("%2", "%2")] {
            assert_eq!(decoded(written), meant);
        }
        assert_eq!(encoded("a/b c.ü"), "a%2Fb%20c.%C3%BC");
    }
}
