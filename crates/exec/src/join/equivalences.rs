//! What is known to be constant or equal in the rows of a join.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::joins::utils::ColumnIndex;

/// `planned`, what DataFusion knows of the rows of a join with these output columns, without what does not hold for rows
/// that have nulls in the columns of a side: DataFusion takes what is constant in that side for constant in all of them.
pub fn without_padded_sides(
    planned: &EquivalenceProperties,
    join_type: JoinType,
    columns: &[ColumnIndex],
) -> Result<EquivalenceProperties> {
    let padded: &[JoinSide] = match join_type {
        JoinType::Left => &[JoinSide::Right],
        JoinType::Right => &[JoinSide::Left],
        JoinType::Full => &[JoinSide::Left, JoinSide::Right],
        _ => return Ok(planned.clone()),
    };
    let holds = |expression: &Arc<dyn PhysicalExpr>| {
        collect_columns(expression)
            .iter()
            .all(|column| columns.get(column.index()).is_some_and(|column| !padded.contains(&column.side)))
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
