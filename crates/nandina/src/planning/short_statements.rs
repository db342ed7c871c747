//! Which statements can do without a plan of operators: those that read or change few rows by a key, or insert one.
//!
//! ```text
//!   SELECT … FROM t WHERE k = $1         Projection ◄ Filter ◄ TableScan t       ─►  ShortStatement
//!   UPDATE t SET a = $1 WHERE k = $2     Dml ◄ Projection ◄ Filter ◄ TableScan t
//!   INSERT INTO t VALUES ($1, $2)        Dml ◄ Projection ◄ Values
//! ```
//!
//! They are planned once with parameters in the place of their values, as any statement is. If what comes of it has this shape, its
//! expressions are kept; every other statement goes the usual way. A parameter may stand only where its type alone decides what the
//! expression means: compared with something of the same kind, in sums and products, or as the value of a column.

mod keys;
mod parameters;

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, FetchType, LogicalPlan, SkipType, SortExpr, TableScan, Volatility, WriteOp,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, create_physical_expr};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    FromTable, ObjectName, SetExpr, Statement as SqlStatement, TableFactor, TableObject, TableWithJoins,
};
use nandina_exec::rows::{KeyLookup, RowChange, RowTableProvider, ShortSource, ShortStatement, ShortStep};
use nandina_storage::{PlannedBy, Table};

use super::short_text::ShortText;
use super::{Planned, catalog_statement, macros, on_planning_thread, parse_one, planned};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::tables::plans;

/// What planning has found out about a text with parameters.
#[derive(Debug, Clone)]
pub(crate) enum Recognized {
    Short {
        statement: Arc<ShortStatement>,
        /// The table as the statement names it.
        table: TableReference,
        /// What it was planned with, macros among them.
        plans: u64,
    },
    /// It is for a plan, as long as the table is as it is now. Without `planned_by`, its rows are not changed one by one.
    Planned { table: TableReference, planned_by: Option<PlannedBy> },
    /// It is for a plan.
    Never,
}

/// What a text is, with parameters of these types; `None` if that cannot be told now.
pub(crate) async fn recognized(state: &Arc<SessionState>, short: &ShortText) -> Result<Option<Recognized>> {
    let (state, text) = (Arc::clone(state), short.text.clone());
    let types: Vec<DataType> = short.values.iter().map(|value| value.data_type()).collect();
    on_planning_thread(move || async move {
        // What is wrong with a statement is told where it is planned as it was written.
        let plans = plans();
        let recognized = recognize(&state, &text, &types, plans).await;
        Ok(recognized.inspect_err(|error| log::debug!("not a short statement: {error}")).ok())
    })
    .await
}

async fn recognize(state: &SessionState, text: &str, types: &[DataType], plans: u64) -> Result<Recognized> {
    let statement = parse_one(state, text)?;
    let Some(name) = table_name(&statement) else { return Ok(Recognized::Never) };
    let Some(names) = state.config().get_extension::<Names>() else { return Ok(Recognized::Never) };
    let Ok(reference) = catalog_statement::reference(name) else { return Ok(Recognized::Never) };
    let place = names.find(&reference);
    let table = place.and_then(|place| place.tables.changeable(&place));
    let planned_by = table.as_ref().map(Table::planned_by);
    let is_insert = matches!(&statement, Statement::Statement(inner) if matches!(inner.as_ref(), SqlStatement::Insert(_)));
    // Without an index there is no short statement, and planning it would find that out at the end.
    let found = table.filter(|table| is_insert || table.indexes().next().is_some());
    let Some(table) = found else {
        return Ok(Recognized::Planned { table: reference, planned_by });
    };
    // Macros can be changed by other sessions without a trace in the table.
    let mut expanded = statement.clone();
    macros::write_out(state, &mut expanded)?;
    if expanded != statement {
        return Ok(Recognized::Never);
    }
    let Planned::Plan(plan, _) = planned(state, statement).await? else { return Ok(Recognized::Never) };
    let plan = parameters::with_types(plan, types)?;
    let changes_rows = matches!(plan, LogicalPlan::Dml(_));
    if !parameters::stand_well(&plan, changes_rows)? || !can_be_kept(&plan)? {
        return Ok(Recognized::Never);
    }
    let plan = nandina_plan::optimize(state, &plan)?;
    let statement = match Shape::of(&plan) {
        Some(shape) => shape.statement(state, types)?,
        None => None,
    };
    Ok(match statement {
        Some(statement) => Recognized::Short { statement: Arc::new(statement), table: reference, plans },
        None => Recognized::Planned { table: reference, planned_by: Some(table.planned_by()) },
    })
}

/// The table that a statement is about, if it is about one.
fn table_name(statement: &Statement) -> Option<&ObjectName> {
    let Statement::Statement(inner) = statement else { return None };
    match inner.as_ref() {
        SqlStatement::Query(query) => match query.body.as_ref() {
            SetExpr::Select(select) if query.with.is_none() => only(&select.from),
            _ => None,
        },
        SqlStatement::Insert(insert) => match (&insert.table, &insert.source) {
            (TableObject::TableName(name), Some(source)) => match source.body.as_ref() {
                SetExpr::Values(values) if values.rows.len() == 1 => Some(name),
                _ => None,
            },
            _ => None,
        },
        SqlStatement::Update(update) if update.from.is_none() => only(std::slice::from_ref(&update.table)),
        SqlStatement::Delete(delete) if delete.using.is_none() => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            only(from)
        }
        _ => None,
    }
}

fn only(from: &[TableWithJoins]) -> Option<&ObjectName> {
    match from {
        [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }]
            if joins.is_empty() =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// Whether a plan means the same at any time: `now()` is a constant once a plan is optimized, and sub-queries are not expressions.
fn can_be_kept(plan: &LogicalPlan) -> Result<bool> {
    let is_passing = |expr: &Expr| match expr {
        Expr::ScalarFunction(function) => function.func.signature().volatility == Volatility::Stable,
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::SetComparison(_)
        | Expr::ScalarVariable(..) => true,
        _ => false,
    };
    let mut can_be_kept = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            can_be_kept = can_be_kept && !expr.exists(|expr| Ok(is_passing(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(can_be_kept)
}

/// A plan without branches, from its end to where rows come from.
struct Shape<'p> {
    change: Option<RowChange>,
    /// Projections, filters and so on, the last one first.
    nodes: Vec<&'p LogicalPlan>,
    scan: Option<&'p TableScan>,
    provider: Arc<dyn datafusion::catalog::TableProvider>,
}

impl<'p> Shape<'p> {
    fn of(plan: &'p LogicalPlan) -> Option<Self> {
        let (change, target, mut node) = match plan {
            LogicalPlan::Dml(dml) if dml.op != WriteOp::Insert(InsertOp::Append) => return None,
            LogicalPlan::Dml(dml) => {
                let provider = source_as_provider(&dml.target).ok()?;
                let change = provider.downcast_ref::<RowTableProvider>()?.only_change()?.clone();
                (Some(change), Some(provider), dml.input.as_ref())
            }
            other => (None, None, other),
        };
        let mut nodes = Vec::new();
        loop {
            match node {
                LogicalPlan::Projection(projection) => {
                    nodes.push(node);
                    node = &projection.input;
                }
                LogicalPlan::Filter(filter) => {
                    nodes.push(node);
                    node = &filter.input;
                }
                LogicalPlan::Sort(sort) if change.is_none() => {
                    nodes.push(node);
                    node = &sort.input;
                }
                LogicalPlan::Limit(limit) if change.is_none() => {
                    nodes.push(node);
                    node = &limit.input;
                }
                LogicalPlan::SubqueryAlias(alias) => node = &alias.input,
                LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
                    let provider = source_as_provider(&scan.source).ok()?;
                    return Some(Self { change, nodes, scan: Some(scan), provider });
                }
                LogicalPlan::Values(values) if values.values.len() == 1 => {
                    nodes.push(node);
                    return Some(Self { change, nodes, scan: None, provider: target? });
                }
                LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => {
                    return Some(Self { change, nodes, scan: None, provider: target? });
                }
                _ => return None,
            }
        }
    }

    /// None if no index finds its rows.
    fn statement(self, state: &SessionState, types: &[DataType]) -> Result<Option<ShortStatement>> {
        let Some(provider) = self.provider.downcast_ref::<RowTableProvider>() else { return Ok(None) };
        let source = match self.scan {
            None => ShortSource::One,
            Some(scan) => match self.lookup(provider, scan)? {
                // A change takes its rows when it is made, and cannot find out then that they are too many.
                Some(lookup) if self.change.is_none() || lookup.is_unique => {
                    ShortSource::Index(Box::new(lookup))
                }
                _ => return Ok(None),
            },
        };
        let mut steps = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.iter().rev() {
            steps.push(step(state, node, types, self.change.is_some())?);
        }
        let planned_by = provider.table().planned_by();
        Ok(Some(ShortStatement { planned_by, source, steps, change: self.change }))
    }

    /// The index that finds the rows of the scan, and which of their columns are read.
    fn lookup(&self, provider: &RowTableProvider, scan: &TableScan) -> Result<Option<KeyLookup>> {
        // Names of columns are those of the table below the first projection.
        let below = self.nodes.iter().rev().map_while(|node| match node {
            LogicalPlan::Filter(filter) => Some(&filter.predicate),
            _ => None,
        });
        let conditions: Vec<&Expr> = below.chain(&scan.filters).collect();
        let table = provider.table();
        let Some(key) = keys::Key::of(table, &conditions) else { return Ok(None) };
        let of_table = table.schema().fields().len();
        let all = || (0..of_table + usize::from(provider.has_row_ids())).collect();
        let projection: Vec<usize> = scan.projection.clone().unwrap_or_else(all);
        let row_ids_at = projection.iter().position(|column| *column == of_table);
        let columns = projection.into_iter().filter(|column| *column < of_table).collect();
        let schema = with_nulls(scan.projected_schema.as_arrow());
        Ok(Some(KeyLookup {
            index: key.index,
            equal: key.equal,
            lower: key.lower,
            upper: key.upper,
            is_unique: key.is_unique,
            columns,
            row_ids_at,
            schema,
        }))
    }
}

/// What a node does to rows.
fn step(state: &SessionState, node: &LogicalPlan, types: &[DataType], is_change: bool) -> Result<ShortStep> {
    let none = Arc::new(DFSchema::empty());
    let input = node.inputs().first().map_or(none, |input| Arc::clone(input.schema()));
    let physical = |expr: &Expr| -> Result<Arc<dyn PhysicalExpr>> {
        let expr = parameters::as_functions(expr.clone(), types)?;
        let context = PhysicalPlanningContext::default();
        Ok(create_physical_expr(&expr, &input, state.execution_props(), &context)?)
    };
    let project = |expressions: &[Expr]| -> Result<ShortStep> {
        let expressions = expressions.iter().map(physical).collect::<Result<Vec<_>>>()?;
        let schema = node.schema().inner();
        // The writer checks what may be null, and says which column is.
        let schema = if is_change { with_nulls(schema) } else { Arc::clone(schema) };
        Ok(ShortStep::Project(expressions, schema))
    };
    match node {
        LogicalPlan::Filter(filter) => Ok(ShortStep::Filter(physical(&filter.predicate)?)),
        LogicalPlan::Projection(projection) => project(&projection.expr),
        LogicalPlan::Sort(sort) => {
            let by = |by: &SortExpr| -> Result<PhysicalSortExpr> {
                let options = SortOptions { descending: !by.asc, nulls_first: by.nulls_first };
                Ok(PhysicalSortExpr::new(physical(&by.expr)?, options))
            };
            Ok(ShortStep::Sort(sort.expr.iter().map(by).collect::<Result<_>>()?, sort.fetch))
        }
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(skip), FetchType::Literal(fetch)) => Ok(ShortStep::Limit { skip, fetch }),
            _ => Err(Error::unsupported("a limit that is computed")),
        },
        LogicalPlan::Values(values) => match values.values.as_slice() {
            [row] => project(row),
            _ => Err(Error::bug("a short statement has one row")),
        },
        _ => Err(Error::bug("a short statement has another node")),
    }
}

fn with_nulls(schema: &Schema) -> SchemaRef {
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
}
