//! The fetch of columns by row id in a logical plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, TableReference, internal_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use nandina_exec::fetch::{FetchEstimate, RowOrder};
use nandina_storage::Table;

/// Columns of one table, and where the ids of its rows are in the input.
#[derive(Clone, Debug)]
pub(super) struct LateTable {
    /// The snapshot that the ids are from.
    pub table: Table,
    pub row_ids: Column,
    pub columns: Vec<LateColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LateColumn {
    /// In the table.
    pub column: usize,
    /// As the plan calls it.
    pub relation: Option<TableReference>,
    pub field: FieldRef,
}

impl PartialEq for LateTable {
    fn eq(&self, other: &Self) -> bool {
        self.table.id() == other.table.id() && self.row_ids == other.row_ids && self.columns == other.columns
    }
}

impl Eq for LateTable {}

impl Hash for LateTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row_ids.hash(state);
        self.columns.hash(state);
    }
}

/// Adds columns of stored tables behind those of its input, which has the ids of their rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LateFetch {
    pub input: LogicalPlan,
    pub tables: Vec<LateTable>,
    pub order: RowOrder,
    /// Its number among those that the planner may do without.
    pub candidate: Option<usize>,
    /// What it was chosen for.
    pub estimate: Option<FetchEstimate>,
    schema: DFSchemaRef,
}

impl LateFetch {
    pub fn try_new(input: LogicalPlan, tables: Vec<LateTable>, order: RowOrder) -> Result<Self> {
        let of_input = input.schema();
        let own = of_input.iter().map(|(relation, field)| (relation.cloned(), Arc::clone(field)));
        let added = tables.iter().flat_map(|table| &table.columns);
        let added = added.map(|column| (column.relation.clone(), Arc::clone(&column.field)));
        let schema = DFSchema::new_with_metadata(own.chain(added).collect(), of_input.metadata().clone())?;
        Ok(Self { tables, order, candidate: None, estimate: None, schema: Arc::new(schema), input })
    }

    pub fn numbered(self, number: usize) -> Self {
        Self { candidate: Some(number), ..self }
    }

    pub fn estimated(self, estimate: Option<FetchEstimate>) -> Self {
        Self { estimate, ..self }
    }
}

impl PartialOrd for LateFetch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self == other { Some(Ordering::Equal) } else { self.input.partial_cmp(&other.input) }
    }
}

impl UserDefinedLogicalNodeCore for LateFetch {
    fn name(&self) -> &str {
        "LateFetch"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.tables.iter().map(|table| Expr::Column(table.row_ids.clone())).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names: Vec<&str> = self.tables.iter().map(|table| table.table.name()).collect();
        write!(f, "LateFetch: {}", names.join(", "))
    }

    fn with_exprs_and_inputs(&self, expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let Ok([input]) = <[_; 1]>::try_from(inputs) else { return internal_err!("a fetch has one input") };
        let mut tables = self.tables.clone();
        for (table, expression) in tables.iter_mut().zip(expressions) {
            let Expr::Column(row_ids) = expression else { return internal_err!("row ids are a column") };
            table.row_ids = row_ids;
        }
        let fetch = Self::try_new(input, tables, self.order)?;
        Ok(Self { candidate: self.candidate, estimate: self.estimate.clone(), ..fetch })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let passed = output_columns.iter().copied().filter(|&column| column < schema.fields().len());
        let row_ids = self.tables.iter().map(|table| schema.maybe_index_of_column(&table.row_ids));
        let mut wanted: Vec<usize> = row_ids.collect::<Option<Vec<_>>>()?;
        wanted.extend(passed);
        wanted.sort_unstable();
        wanted.dedup();
        Some(vec![wanted])
    }
}
