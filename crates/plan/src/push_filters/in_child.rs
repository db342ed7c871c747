//! Maps the output columns of an operator to expressions over the columns of one of its inputs.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::filter_pushdown::{PushedDown, PushedDownPredicate};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use nandina_exec::aggregate::HashAggregateExec;
use nandina_exec::exchange::ExchangeExec;
use nandina_exec::join::HybridHashJoinExec;
use nandina_exec::sort::ExternalSortExec;

/// What an operator's output is in one of its inputs.
pub(super) enum InChild {
    /// Filters of the output may not be moved there.
    Nothing,
    /// Filters on these columns may.
    Columns(Columns),
    /// The operator is not known here.
    Unknown,
}

/// For each column of an output, the expression over an input that has the same value in every row.
pub(super) struct Columns(Vec<Option<Arc<dyn PhysicalExpr>>>);

impl Columns {
    /// A filter of the output as one of the input; none if it looks at what the input does not have.
    pub fn translate(&self, filter: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let mut has_all = true;
        let translated = Arc::clone(filter).transform_down(|part| {
            let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
            let Some(known) = self.0.get(column.index()) else {
                return internal_err!("a filter looks at column {column}, and there are {}", self.0.len());
            };
            Ok(match known {
                // What it is replaced by has columns of the input, which are not to be replaced.
                Some(there) => Transformed::new(Arc::clone(there), true, TreeNodeRecursion::Jump),
                None => {
                    has_all = false;
                    Transformed::new(part, false, TreeNodeRecursion::Stop)
                }
            })
        })?;
        Ok(has_all.then_some(translated.data))
    }
}

/// What the output of `node` is in its input number `child`.
pub(super) fn in_child(node: &Arc<dyn ExecutionPlan>, child: usize) -> Result<InChild> {
    let Some(input) = node.children().get(child).map(|input| Arc::clone(input)) else {
        return internal_err!("{} has no input {child}", node.name());
    };
    let planned = as_planned(node);
    if planned.fetch().is_some() {
        // The filter would come before the limit.
        return Ok(InChild::Nothing);
    }
    Ok(if let Some(projection) = planned.downcast_ref::<ProjectionExec>() {
        let expressions = projection.expr().iter();
        InChild::Columns(Columns(expressions.map(|projected| Some(Arc::clone(&projected.expr))).collect()))
    } else if let Some(aggregate) = planned.downcast_ref::<AggregateExec>() {
        below_aggregation(aggregate)
    } else if let Some(join) = planned.downcast_ref::<HashJoinExec>() {
        below_join(join, if child == 0 { JoinSide::Left } else { JoinSide::Right })
    } else if let Some(filter) = planned.downcast_ref::<FilterExec>() {
        match filter.projection() {
            None => same_columns(&input),
            Some(projection) => {
                InChild::Columns(Columns(projection.iter().map(|&at| column(&input, at)).collect()))
            }
        }
    } else if passes_rows_on(planned) {
        same_columns(&input)
    } else {
        InChild::Unknown
    })
}

/// The node of DataFusion's that `node` stands for, or itself.
fn as_planned(node: &Arc<dyn ExecutionPlan>) -> &dyn ExecutionPlan {
    if let Some(join) = node.downcast_ref::<HybridHashJoinExec>() {
        join.planned()
    } else if let Some(aggregate) = node.downcast_ref::<HashAggregateExec>() {
        aggregate.planned()
    } else if let Some(sort) = node.downcast_ref::<ExternalSortExec>() {
        sort.planned()
    } else if let Some(exchange) = node.downcast_ref::<ExchangeExec>() {
        exchange.planned()
    } else {
        node.as_ref()
    }
}

/// Whether `node` forwards the rows of its inputs unchanged.
fn passes_rows_on(node: &dyn ExecutionPlan) -> bool {
    node.is::<SortExec>()
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<BufferExec>()
        || node.is::<UnionExec>()
        || node.is::<InterleaveExec>()
}

/// Column number `at` of `input`, by the name that it has there.
fn column(input: &Arc<dyn ExecutionPlan>, at: usize) -> Option<Arc<dyn PhysicalExpr>> {
    Some(Arc::new(Column::new(input.schema().field(at).name(), at)))
}

fn same_columns(input: &Arc<dyn ExecutionPlan>) -> InChild {
    InChild::Columns(Columns((0..input.schema().fields().len()).map(|at| column(input, at)).collect()))
}

/// Filters on keys that every grouping set has decide which groups there are, not what is in them.
fn below_aggregation(aggregate: &AggregateExec) -> InChild {
    let keys = aggregate.group_expr();
    let sets = keys.groups();
    let has_set_without_keys = sets.iter().any(|missing| missing.iter().all(|&is_missing| is_missing));
    if keys.is_true_no_grouping() || has_set_without_keys || aggregate.limit_options().is_some() {
        // A row comes out even where none goes in, or groups were counted.
        return InChild::Nothing;
    }
    let in_all = |key: usize| sets.iter().all(|missing| !missing[key]);
    let keys = keys.expr().iter().enumerate().map(|(at, (key, _))| in_all(at).then(|| Arc::clone(key)));
    let mut columns: Vec<_> = keys.collect();
    columns.resize(aggregate.schema().fields().len(), None);
    InChild::Columns(Columns(columns))
}

/// A filter on the columns of one side is pushed to that side, unless it is the null-supplying side of an outer join.
fn below_join(join: &HashJoinExec, side: JoinSide) -> InChild {
    let kept = match join.join_type {
        JoinType::Inner => true,
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => side == JoinSide::Left,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => side == JoinSide::Right,
        JoinType::LeftSemi | JoinType::RightSemi => true,
        JoinType::Full => false,
    };
    if !kept {
        return InChild::Nothing;
    }
    let input = if side == JoinSide::Left { &join.left } else { &join.right };
    let (_, all) = build_join_schema(&join.left.schema(), &join.right.schema(), &join.join_type);
    let chosen = match join.projection.as_deref() {
        None => all,
        Some(projection) => projection.iter().map(|&at| all[at].clone()).collect(),
    };
    let columns = chosen.iter().map(|output| match output.side {
        of if of == side => column(input, output.index),
        // Rows of a semi join have an equal key on the other side.
        JoinSide::Left if join.join_type == JoinType::LeftSemi => key_of_other_side(join, output.index, side),
        JoinSide::Right if join.join_type == JoinType::RightSemi => {
            key_of_other_side(join, output.index, side)
        }
        _ => None,
    });
    InChild::Columns(Columns(columns.collect()))
}

/// The key on `side` that is equal to column `at` of the other one.
fn key_of_other_side(join: &HashJoinExec, at: usize, side: JoinSide) -> Option<Arc<dyn PhysicalExpr>> {
    join.on.iter().find_map(|(left, right)| {
        let (given_out, there) = if side == JoinSide::Right { (left, right) } else { (right, left) };
        let column = given_out.downcast_ref::<Column>()?;
        let output = if side == JoinSide::Right { join.left.schema() } else { join.right.schema() };
        let input = if side == JoinSide::Right { join.right.schema() } else { join.left.schema() };
        let data_type = output.field(column.index()).data_type();
        // Equal floating-point numbers and nested values need not compare alike with a third one: 0.0 and -0.0.
        let is_alike = !data_type.is_floating() && !data_type.is_nested();
        (column.index() == at && is_alike && there.data_type(&input).ok().as_ref() == Some(data_type))
            .then(|| Arc::clone(there))
    })
}

/// What an unknown operator says that `filter` is in its input, if there is but one column that it can mean by a name.
pub(super) fn unambiguous(
    said: &PushedDownPredicate,
    filter: &Arc<dyn PhysicalExpr>,
    node: &Arc<dyn ExecutionPlan>,
    child: &Arc<dyn ExecutionPlan>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let occurs_once = |plan: &Arc<dyn ExecutionPlan>, column: &Column| {
        plan.schema().fields().iter().filter(|field| field.name() == column.name()).count() == 1
    };
    let is_clear = collect_columns(filter).iter().all(|column| occurs_once(node, column))
        && collect_columns(&said.predicate).iter().all(|column| occurs_once(child, column));
    (matches!(said.discriminant, PushedDown::Yes) && is_clear).then(|| Arc::clone(&said.predicate))
}

/// A filter with a projection, which takes over what cannot be moved by the names of columns, as one below the other.
pub(super) fn without_projection(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    let (Some(projection), None) = (filter.projection(), filter.fetch()) else { return Ok(None) };
    let input = filter.input().schema();
    let projected = projection.iter().map(|&at| {
        let name = input.field(at).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, at)), alias: name.clone() }
    });
    let projected: Vec<_> = projected.collect();
    let alone = FilterExecBuilder::from(filter).apply_projection(None)?.build()?;
    Ok(Some(Arc::new(ProjectionExec::try_new(projected, Arc::new(alone))?)))
}
