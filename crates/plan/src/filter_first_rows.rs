//! Puts a filter below the sorts of windows of which only the first rows are wanted.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions_window::rank::{dense_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{Operator, WindowUDF};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use nandina_exec::window::{PartitionedTopKFilterExec, RankedBy};

/// More rows than this per partition are not looked out for.
const MOST_ROWS: u64 = 256;

/// Where a filter wants rows whose `row_number()` or `rank()` is at most `k`, puts a [`PartitionedTopKFilterExec`] below the
/// sort and the exchange of that window: what it drops is neither moved nor sorted. All else stays as it is.
///
/// ```text
///   FilterExec: rn <= 2                  FilterExec: rn <= 2
///     ProjectionExec                       ProjectionExec
///       BoundedWindowAggExec                 BoundedWindowAggExec
///         SortExec                 ─►          SortExec
///           RepartitionExec                      RepartitionExec
///             input                                PartitionedTopKFilterExec
///                                                    input
/// ```
#[derive(Debug)]
pub struct FilterFirstRows;

impl PhysicalOptimizerRule for FilterFirstRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let place = |node: Arc<dyn ExecutionPlan>| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            Ok(match below_window(filter)? {
                Some(input) => Transformed::yes(replace_children_if_necessary(node, vec![input])?),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(place).data()
    }

    fn name(&self) -> &str {
        "filter_first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of `filter` with a filter of first rows in it, if one fits.
fn below_window(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (above, node) = descend(Arc::clone(filter.input()), keeps_rows);
    let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else { return Ok(None) };
    // Other functions would see that rows are missing, unless these come behind the current one.
    let ranks: Option<Vec<Ranking>> =
        window.window_expr().iter().map(|function| Ranking::of(function.as_ref())).collect();
    let Some(ranks) = ranks else { return Ok(None) };
    let width = window.input().schema().fields().len();
    let limits = ranks.iter().enumerate().filter_map(|(number, rank)| {
        let column = above.iter().rev().try_fold(width + number, |column, node| place_above(node, column))?;
        Some((rank.filtered()?, most_of(filter.predicate(), column)?))
    });
    let Some((ranked_by, k)) = limits.min_by_key(|(_, k)| *k) else { return Ok(None) };
    let Some(function) = window.window_expr().first().filter(|_| k <= MOST_ROWS) else { return Ok(None) };
    let (sorts, input) =
        descend(Arc::clone(window.input()), |node| keeps_rows(node) && !node.is::<ProjectionExec>());
    if !sorts.iter().any(|node| node.is::<SortExec>()) {
        return Ok(None);
    }
    let (partition_by, order_by) = (function.partition_by().to_vec(), function.order_by().to_vec());
    let is_fixed = |key: &PhysicalExprRef| !is_volatile(key);
    if !partition_by.iter().all(is_fixed) || !order_by.iter().all(|by| is_fixed(&by.expr)) {
        return Ok(None);
    }
    let k = usize::try_from(k).unwrap_or(usize::MAX);
    let Some(first_rows) = PartitionedTopKFilterExec::try_new(input, partition_by, order_by, ranked_by, k)?
    else {
        return Ok(None);
    };
    let below = rebuild(sorts, Arc::new(first_rows))?;
    rebuild(above, replace_children_if_necessary(Arc::clone(&node), vec![below])?).map(Some)
}

/// The nodes from `node` down to the first that is not `passed`, and that one.
fn descend(
    mut node: Arc<dyn ExecutionPlan>,
    passed: impl Fn(&dyn ExecutionPlan) -> bool,
) -> (Vec<Arc<dyn ExecutionPlan>>, Arc<dyn ExecutionPlan>) {
    let mut above = Vec::new();
    while passed(node.as_ref())
        && let [input] = node.children().as_slice()
    {
        let input = Arc::clone(input);
        above.push(std::mem::replace(&mut node, input));
    }
    (above, node)
}

/// Whether a node emits its input rows, and no other row depends on whether one is there.
fn keeps_rows(node: &dyn ExecutionPlan) -> bool {
    let moves = node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<SortExec>();
    moves && node.fetch().is_none()
}

/// Where the column that a node has from its input stands in its output.
fn place_above(node: &Arc<dyn ExecutionPlan>, column: usize) -> Option<usize> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Some(column) };
    let is_it = |expr: &PhysicalExprRef| expr.downcast_ref::<Column>().is_some_and(|it| it.index() == column);
    projection.expr().iter().position(|expr| is_it(&expr.expr))
}

fn rebuild(
    above: Vec<Arc<dyn ExecutionPlan>>,
    node: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    above.into_iter().rev().try_fold(node, |node, above| replace_children_if_necessary(above, vec![node]))
}

/// Functions of how many rows come before.
#[derive(Clone, Copy)]
enum Ranking {
    RowNumber,
    Rank,
    /// Rows behind many others may have a small one.
    DenseRank,
}

impl Ranking {
    fn of(function: &dyn WindowExpr) -> Option<Self> {
        let standard = function.as_any().downcast_ref::<StandardWindowExpr>()?;
        let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
        // Users may have functions of the same names.
        let is = |ours: &Arc<WindowUDF>| **function.fun() == **ours;
        if is(&row_number_udwf()) {
            Some(Self::RowNumber)
        } else if is(&rank_udwf()) {
            Some(Self::Rank)
        } else if is(&dense_rank_udwf()) {
            Some(Self::DenseRank)
        } else {
            None
        }
    }

    fn filtered(self) -> Option<RankedBy> {
        match self {
            Self::RowNumber => Some(RankedBy::RowNumber),
            Self::Rank => Some(RankedBy::Rank),
            Self::DenseRank => None,
        }
    }
}

/// The most that a column can be where `predicate` is true. `None` if it does not say.
fn most_of(predicate: &PhysicalExprRef, column: usize) -> Option<u64> {
    let is_column =
        |expr: &PhysicalExprRef| expr.downcast_ref::<Column>().is_some_and(|it| it.index() == column);
    if let Some(list) = predicate.downcast_ref::<InListExpr>() {
        let is_it = is_column(list.expr()) && !list.negated();
        return is_it.then(|| list.list().iter().map(number).collect::<Option<Vec<_>>>())??.into_iter().max();
    }
    let binary = predicate.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (binary.left(), binary.right());
    match binary.op() {
        Operator::And => match (most_of(left, column), most_of(right, column)) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        },
        Operator::Or => Some(most_of(left, column)?.max(most_of(right, column)?)),
        operator => {
            let (operator, literal) = match (is_column(left), is_column(right)) {
                (true, false) => (*operator, number(right)?),
                (false, true) => (operator.swap()?, number(left)?),
                _ => return None,
            };
            match operator {
                Operator::Eq | Operator::LtEq => Some(literal),
                Operator::Lt => literal.checked_sub(1),
                _ => None,
            }
        }
    }
}

fn number(literal: &PhysicalExprRef) -> Option<u64> {
    match literal.downcast_ref::<Literal>()?.value() {
        ScalarValue::UInt64(value) => *value,
        ScalarValue::Int64(value) => u64::try_from((*value)?).ok(),
        _ => None,
    }
}
