//! Columns that `USING` and `NATURAL` make one of two.
//!
//! The column of `a LEFT JOIN b USING (k)` is the left table's: the right one's is null where a row has no match.
//! DataFusion's `SELECT *` takes that of the table whose name comes first in the alphabet. So `*` is written out:
//! `a.*, b.* EXCLUDE (k)`. In `WHERE` it does not know the column without a table's name, and in a sub-query takes that of the
//! query outside; so the name is added. In a right or full join the names themselves would have to be replaced, which is
//! refused. `NATURAL` has become `USING` before ([`natural_joins`](super::natural_joins)).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, GroupByExpr, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use super::normalized;
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
    let merges = |constraint: &JoinConstraint| matches!(constraint, JoinConstraint::Using(_));
    if !has_wildcard || !left_joins().any(merges) {
        return Ok(());
    }
    if select.from.iter().all(left_tables_come_first) {
        return Ok(());
    }
    let tables = all_tables(&select.from);
    let mut written = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match (&item, &tables) {
            (SelectItem::Wildcard(options), Some(tables)) if is_plain(options) => {
                written.extend(tables.iter().map(|(name, merged)| columns_of(name, merged)));
            }
            (SelectItem::Wildcard(_), _) => {
                return Err(Error::unsupported(
                    "* cannot be written out over this LEFT JOIN with USING; name the columns, or write LEFT JOIN … ON a.k = b.k",
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

/// The query around a select, as far as name resolution needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// No query whose columns it could name.
    Alone,
    /// Another query: a name that DataFusion does not find in a sub-query is looked up there.
    SubQuery,
}

/// Adds a table's name to columns that a join merges, where they stand without one: that of the left table; or of the right
/// one, which has the same value in an inner join, where the left one is not known from the text.
pub(super) fn qualify(select: &mut Select, surroundings: Surroundings) -> Result<()> {
    qualify_conditions(&mut select.from, surroundings)?;
    let owners = owners_of(select);
    if owners.is_empty() {
        return Ok(());
    }
    let passes_unknown = surroundings == Surroundings::Alone;
    // Names of results come before those of columns where columns could only be those of groups, or of the output.
    let mut of_groups = owners.clone();
    results_of(select).iter().filter(|name| !is_grouped_by(select, name)).for_each(|name| {
        of_groups.remove(name);
    });
    let mut behind_groups = Qualifying { owners: of_groups, passes_unknown, ..Qualifying::default() };
    let mut of_results =
        Qualifying { owners: without_results(select), passes_unknown, ..Qualifying::default() };
    let mut in_where = Qualifying { owners: owners.clone(), ..Qualifying::default() };
    let mut elsewhere = Qualifying { owners, passes_unknown, ..Qualifying::default() };
    let mut qualify_all = || {
        select.selection.visit(&mut in_where)?;
        select.distinct.visit(&mut of_results)?;
        select.having.visit(&mut behind_groups)?;
        select.qualify.visit(&mut behind_groups)?;
        select.projection.visit(&mut elsewhere)?;
        select.group_by.visit(&mut elsewhere)
    };
    as_result(qualify_all())
}

/// Does so in the conditions of joins, with what the joins before have merged.
fn qualify_conditions(from: &mut [TableWithJoins], surroundings: Surroundings) -> Result<()> {
    let passes_unknown = surroundings == Surroundings::Alone;
    for group in from {
        for joined in 1..group.joins.len() {
            let (before, rest) = group.joins.split_at_mut(joined);
            let owners = owners_in(&group.relation, before);
            let Some(join) = rest.first_mut() else { unreachable!("there are more joins than {joined}") };
            if owners.is_empty() {
                continue;
            }
            let mut qualifying = Qualifying { owners, passes_unknown, ..Qualifying::default() };
            as_result(join.join_operator.visit(&mut qualifying))?;
        }
    }
    Ok(())
}

/// Does so in the `ORDER BY` of a query, but for the names of its results.
pub(super) fn qualify_order(query: &mut Query, surroundings: Surroundings) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    let shows_all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    if shows_all && surroundings == Surroundings::Alone {
        return Ok(());
    }
    let owners = without_results(select);
    let passes_unknown = surroundings == Surroundings::Alone;
    as_result(query.order_by.visit(&mut Qualifying { owners, passes_unknown, ..Qualifying::default() }))
}

/// The merged columns of a select but for those whose names its results have, unless a result is the column.
fn without_results(select: &Select) -> Owners {
    let mut owners = owners_of(select);
    for name in results_of(select) {
        owners.remove(&name);
    }
    let shows_other_tables = |item: &SelectItem| matches!(item, SelectItem::QualifiedWildcard(..));
    if select.projection.iter().any(shows_other_tables) {
        owners.clear();
    }
    owners
}

/// The names of results that are not those of columns without a table's name.
fn results_of(select: &Select) -> Vec<String> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normalized(alias)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().map(normalized),
        _ => None,
    };
    select.projection.iter().filter_map(name).collect()
}

fn is_grouped_by(select: &Select, name: &str) -> bool {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return true };
    let is_column = |key: &Expr| matches!(key, Expr::Identifier(column) if normalized(column) == *name);
    keys.iter().any(|key| match key {
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
            sets.iter().flatten().any(is_column)
        }
        key => is_column(key),
    })
}

fn as_result(flow: ControlFlow<Error>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

/// Merged columns by their names, each with the table whose column it is; none where the text does not tell.
type Owners = HashMap<String, Option<ObjectName>>;

fn owners_of(select: &Select) -> Owners {
    let mut owners = Owners::new();
    for (name, owner) in select.from.iter().flat_map(|group| owners_in(&group.relation, &group.joins)) {
        owners.entry(name).or_insert(owner);
    }
    owners
}

fn owners_in(relation: &TableFactor, joins: &[Join]) -> Owners {
    let mut owners = owners_inside(relation);
    for (joined, join) in joins.iter().enumerate() {
        let mut of_right = owners_inside(&join.relation);
        if let Some(JoinConstraint::Using(columns)) = constraint(&join.join_operator) {
            let left = if joined == 0 { name_of(relation) } else { None };
            for column in columns.iter().filter_map(|column| column.0.first()?.as_ident()) {
                let name = normalized(column);
                let right = of_right.remove(&name).unwrap_or_else(|| name_of(&join.relation));
                let owner = match constraint_of_left_join(join) {
                    None => left.clone().or(right),
                    Some(_) => left.clone(),
                };
                // What has been merged before is still what it was.
                owners.entry(name).or_insert(owner);
            }
        }
        for (name, owner) in of_right {
            owners.entry(name).or_insert(owner);
        }
    }
    owners
}

fn owners_inside(factor: &TableFactor) -> Owners {
    match factor {
        TableFactor::NestedJoin { table_with_joins: inside, alias: None } => {
            owners_in(&inside.relation, &inside.joins)
        }
        _ => Owners::new(),
    }
}

#[derive(Default)]
struct Qualifying {
    owners: Owners,
    /// A column whose table is not known from the text stays as it is.
    passes_unknown: bool,
    /// Parameters of the lambdas around an expression.
    hidden: Vec<String>,
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

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Lambda(lambda) = expr {
            self.hidden.extend(lambda.params.iter().map(|parameter| normalized(&parameter.name)));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Lambda(lambda) = expr {
            self.hidden.truncate(self.hidden.len() - lambda.params.len());
        }
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        let Expr::Identifier(column) = expr else { return ControlFlow::Continue(()) };
        let name = normalized(column);
        let Some(owner) = self.owners.get(&name).filter(|_| !self.hidden.contains(&name)) else {
            return ControlFlow::Continue(());
        };
        let Some(owner) = owner else {
            if self.passes_unknown {
                return ControlFlow::Continue(());
            }
            return ControlFlow::Break(Error::unsupported(format!(
                "'{column}' is a column that USING merges of several tables; write the name of its left table before it"
            )));
        };
        let table = owner.0.iter().filter_map(|part| part.as_ident().cloned());
        *expr = Expr::CompoundIdentifier(table.chain([column.clone()]).collect());
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
