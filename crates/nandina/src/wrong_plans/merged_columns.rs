//! Columns that `USING` and `NATURAL` make one of two.
//!
//! The column of `a LEFT JOIN b USING (k)` is the left table's: the right one's is null where a row has no match.
//! DataFusion's `SELECT *` takes that of the table whose name comes first in the alphabet. So `*` is written out:
//! `a.*, b.* EXCLUDE (k)`. In `WHERE` it does not know the column without a table's name, or takes that of a query outside;
//! so the name is added. In a right or full join the names themselves would have to be replaced, which is refused.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use crate::error::{Error, Result};

/// What a join does with rows of the left side that have no match.
fn constraint_of_left_join(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => Some(constraint),
        _ => None,
    }
}

/// Writes `*` out where a left join merges columns.
pub(super) fn write_out(select: &mut Select) -> Result<()> {
    let left_joins =
        || select.from.iter().flat_map(|tables| &tables.joins).filter_map(constraint_of_left_join);
    let has_wildcard = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let merges = |constraint: &JoinConstraint| {
        matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    };
    if !has_wildcard || !left_joins().any(merges) {
        return Ok(());
    }
    if select.from.iter().all(left_tables_come_first) {
        return Ok(());
    }
    let is_natural = left_joins().any(|constraint| matches!(constraint, JoinConstraint::Natural));
    let tables = if is_natural { None } else { all_tables(&select.from) };
    let mut written = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match (&item, &tables) {
            (SelectItem::Wildcard(options), Some(tables)) if is_plain(options) => {
                written.extend(tables.iter().map(|(name, merged)| columns_of(name, merged)));
            }
            (SelectItem::Wildcard(_), _) => {
                return Err(Error::unsupported(
                    "* cannot be written out over this LEFT JOIN with NATURAL or USING; name the columns, or write \
                     LEFT JOIN … ON a.k = b.k",
                ));
            }
            _ => written.push(item),
        }
    }
    select.projection = written;
    Ok(())
}

/// Whether DataFusion takes the columns of the left tables, as their names come first.
fn left_tables_come_first(group: &TableWithJoins) -> bool {
    let Some(first) = name_of(&group.relation) else { return false };
    let mut before = vec![first.to_string()];
    group.joins.iter().all(|join| {
        let Some(name) = name_of(&join.relation).map(|name| name.to_string()) else { return false };
        let is_last = constraint_of_left_join(join).is_none() || before.iter().all(|other| *other < name);
        before.push(name);
        is_last
    })
}

/// Adds a table's name to columns that a join merges, where they stand in `WHERE` without one: that of the left table; or of
/// the right one, which has the same value in an inner join, where the left one is not known from the text.
pub(super) fn qualify(select: &mut Select) -> Result<()> {
    let [group] = select.from.as_slice() else { return Ok(()) };
    let Some(first) = name_of(&group.relation) else { return Ok(()) };
    let mut owners: HashMap<String, Option<ObjectName>> = HashMap::new();
    for (joined, join) in group.joins.iter().enumerate() {
        let Some(JoinConstraint::Using(columns)) = constraint(&join.join_operator) else { continue };
        let owner = match (joined, constraint_of_left_join(join)) {
            (0, _) => Some(first.clone()),
            (_, None) => name_of(&join.relation),
            (_, Some(_)) => None,
        };
        for column in columns {
            // What has been merged before is still what it was.
            owners.entry(column.to_string().to_lowercase()).or_insert_with(|| owner.clone());
        }
    }
    let Some(condition) = &mut select.selection else { return Ok(()) };
    match condition.visit(&mut Qualifying { owners, queries: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct Qualifying {
    /// Tables whose column a merged one is; none where the text does not tell.
    owners: HashMap<String, Option<ObjectName>>,
    /// Queries around an expression: a name in those inside may be one of their own.
    queries: usize,
}

impl VisitorMut for Qualifying {
    type Break = Error;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.queries == 0
            && let Expr::Identifier(column) = expr
            && let Some(owner) = self.owners.get(&column.to_string().to_lowercase())
        {
            let Some(owner) = owner else {
                return ControlFlow::Break(Error::unsupported(format!(
                    "'{column}' in WHERE is a column that a later LEFT JOIN … USING merges; write the name of its left \
                     table before it"
                )));
            };
            let table = owner.0.iter().filter_map(|part| part.as_ident().cloned());
            *expr = Expr::CompoundIdentifier(table.chain([column.clone()]).collect());
        }
        ControlFlow::Continue(())
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

/// The tables of a FROM by their names, each with the columns of it that another table's stand for; none if one has no
/// name, or its columns are not known from the text.
fn all_tables(from: &[TableWithJoins]) -> Option<Vec<(ObjectName, Vec<ObjectName>)>> {
    let mut tables = Vec::new();
    for group in from {
        tables.push((name_of(&group.relation)?, Vec::new()));
        for join in &group.joins {
            let merged = match constraint(&join.join_operator)? {
                JoinConstraint::Using(columns) => columns.clone(),
                JoinConstraint::On(_) | JoinConstraint::None => Vec::new(),
                JoinConstraint::Natural => return None,
            };
            tables.push((name_of(&join.relation)?, merged));
        }
    }
    Some(tables)
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::CrossJoin(constraint) => Some(constraint),
        _ => None,
    }
}

fn name_of(factor: &TableFactor) -> Option<ObjectName> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(ObjectName::from(vec![alias.name.clone()])),
        TableFactor::Table { name, args: None, .. } => Some(name.clone()),
        _ => None,
    }
}

fn columns_of(table: &ObjectName, merged: &[ObjectName]) -> SelectItem {
    let excluded = (!merged.is_empty()).then(|| ExcludeSelectItem::Multiple(merged.to_vec()));
    let options = WildcardAdditionalOptions { opt_exclude: excluded, ..WildcardAdditionalOptions::default() };
    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table.clone()), options)
}
