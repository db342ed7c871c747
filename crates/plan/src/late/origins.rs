//! Where the columns of a plan come from.

use std::collections::BTreeSet;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, TableScan};
use nandina_exec::scan::NativeTableProvider;

/// The way from a plan down to one of its scans: which input at each node.
pub(super) type Way = Vec<usize>;

/// A column of a stored table that a plan passes on as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub way: Way,
    /// In the table.
    pub column: usize,
}

impl Origin {
    fn above(mut self, input: usize) -> Self {
        self.way.insert(0, input);
        self
    }
}

/// The stored column that column number `column` of `plan` is.
pub(super) fn origin(plan: &LogicalPlan, column: usize) -> Option<Origin> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let in_table = match &scan.projection {
                Some(projection) => *projection.get(column)?,
                None => column,
            };
            let columns = with_provider(scan, |provider| provider.table().schema().fields().len())?;
            // Behind the columns of the table there may be one of row ids.
            (in_table < columns).then(|| Origin { way: Way::new(), column: in_table })
        }
        LogicalPlan::Projection(projection) => {
            let below = plain_column(projection.expr.get(column)?)?;
            let below = projection.input.schema().maybe_index_of_column(below)?;
            origin(&projection.input, below).map(|origin| origin.above(0))
        }
        LogicalPlan::Join(join) => {
            let (input, below) = column_of_join(join, column)?;
            let side = if input == 0 { &join.left } else { &join.right };
            origin(side, below).map(|origin| origin.above(input))
        }
        _ => {
            let input = passed_input(plan)?;
            // The columns of windows stand behind those of the input.
            let is_passed = column < input.schema().fields().len();
            is_passed.then(|| origin(input, column))?.map(|origin| origin.above(0))
        }
    }
}

/// The only input of a node that emits columns of it first, each row at most once, and adds none.
pub(super) fn passed_input(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => Some(&alias.input),
        LogicalPlan::Filter(filter) => Some(&filter.input),
        LogicalPlan::Sort(sort) => Some(&sort.input),
        LogicalPlan::Limit(limit) => Some(&limit.input),
        LogicalPlan::Window(window) => Some(&window.input),
        _ => None,
    }
}

/// Which input a column of a join comes from, and its number there.
fn column_of_join(join: &Join, column: usize) -> Option<(usize, usize)> {
    let (left, right) = (join.left.schema().fields().len(), join.right.schema().fields().len());
    match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            let of_right = column.checked_sub(left);
            Some(of_right.map_or((0, column), |of_right| (1, of_right)))
        }
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (column < left).then_some((0, column))
        }
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (column < right).then_some((1, column))
        }
    }
}

/// The column that an expression only gives another name to.
pub(super) fn plain_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

/// What `look` says about the stored table that is scanned.
pub(super) fn with_provider<T>(scan: &TableScan, look: impl FnOnce(&NativeTableProvider) -> T) -> Option<T> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<NativeTableProvider>().map(look)
}

/// The stored columns that the nodes of `plan` compute with, as far as they can be origins: reading these later would read
/// them twice.
pub(super) fn used(plan: &LogicalPlan) -> Result<BTreeSet<Origin>> {
    let mut all = BTreeSet::new();
    collect_used(plan, &Way::new(), &mut all)?;
    Ok(all)
}

fn collect_used(plan: &LogicalPlan, way: &Way, all: &mut BTreeSet<Origin>) -> Result<()> {
    let inputs: Vec<&LogicalPlan> = match plan {
        LogicalPlan::TableScan(scan) => {
            let by_filters = scan.filters.iter().flat_map(Expr::column_refs);
            let schema = scan.source.schema();
            let columns = by_filters.filter_map(|column| schema.index_of(column.name()).ok());
            all.extend(columns.map(|column| Origin { way: way.clone(), column }));
            return Ok(());
        }
        LogicalPlan::Projection(projection) => vec![&projection.input],
        LogicalPlan::Join(join) => vec![&join.left, &join.right],
        _ => match passed_input(plan) {
            Some(input) => vec![input],
            // Nothing below is an origin.
            None => return Ok(()),
        },
    };
    plan.apply_expressions(|expression| {
        let is_passed = matches!(plan, LogicalPlan::Projection(_)) && plain_column(expression).is_some();
        if !is_passed {
            for column in expression.column_refs() {
                all.extend(origin_in(&inputs, column).map(|mut origin| {
                    origin.way.splice(0..0, way.iter().copied());
                    origin
                }));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for (number, input) in inputs.into_iter().enumerate() {
        let mut below = way.clone();
        below.push(number);
        collect_used(input, &below, all)?;
    }
    Ok(())
}

/// The stored column that a name means in the inputs of a node.
pub(super) fn origin_in(inputs: &[&LogicalPlan], column: &Column) -> Option<Origin> {
    inputs.iter().enumerate().find_map(|(number, input)| {
        let index = DFSchema::maybe_index_of_column(input.schema(), column)?;
        origin(input, index).map(|origin| origin.above(number))
    })
}
