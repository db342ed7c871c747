//! Constants and equivalence classes of operators that add nulls: outer joins and grouping sets.
//!
//! DataFusion takes expressions that are constant or equal in an input to be so in the output, too, and leaves out of
//! an `ORDER BY` what it need not sort by. Rows without a match in an outer join, and those of a grouping set without a
//! key, have nulls there.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use datafusion::physical_plan::joins::utils::ColumnIndex;

/// The sides of a join whose columns are null in rows without a match.
pub fn padded_sides(join_type: JoinType) -> &'static [JoinSide] {
    match join_type {
        JoinType::Left => &[JoinSide::Right],
        JoinType::Right => &[JoinSide::Left],
        JoinType::Full => &[JoinSide::Left, JoinSide::Right],
        _ => &[],
    }
}

/// The equivalences that hold for the rows of a join with these output columns.
pub fn without_padded_sides(
    planned: &EquivalenceProperties,
    join_type: JoinType,
    columns: &[ColumnIndex],
) -> Result<EquivalenceProperties> {
    let padded = padded_sides(join_type);
    if padded.is_empty() {
        return Ok(planned.clone());
    }
    known_of(planned, |column| columns.get(column).is_some_and(|column| !padded.contains(&column.side)))
}

/// The equivalences that hold for the rows of an aggregation by these keys.
pub fn without_missing_keys(
    planned: &EquivalenceProperties,
    keys: &PhysicalGroupBy,
) -> Result<EquivalenceProperties> {
    let sets = keys.groups();
    if sets.iter().flatten().all(|&is_missing| !is_missing) {
        return Ok(planned.clone());
    }
    known_of(planned, |column| sets.iter().all(|missing| missing.get(column) == Some(&false)))
}

/// What `planned` says about expressions of columns that never have nulls of the operator's own.
fn known_of(
    planned: &EquivalenceProperties,
    is_never_padded: impl Fn(usize) -> bool,
) -> Result<EquivalenceProperties> {
    let holds = |expression: &Arc<dyn PhysicalExpr>| {
        collect_columns(expression).iter().all(|column| is_never_padded(column.index()))
    };
    let mut known = EquivalenceProperties::new(Arc::clone(planned.schema()));
    for equal in planned.eq_group().iter() {
        let mut equal = equal.iter().filter(|expression| holds(expression));
        let Some(first) = equal.next() else { continue };
        for other in equal {
            known.add_equal_conditions(Arc::clone(first), Arc::clone(other))?;
        }
    }
    known.add_constants(planned.constants().into_iter().filter(|constant| holds(&constant.expr)))?;
    Ok(known)
}
