//! Columns that `USING` and `NATURAL` make one of two.
//!
//! The column of `a LEFT JOIN b USING (k)` is the left table's: the right one's is null where a row has no match.
//! DataFusion's `SELECT *` takes that of the table whose name comes first in the alphabet. So `*` is written out:
//! `a.*, b.* EXCLUDE (k)`. In `WHERE` it does not know the column without a table's name, and in a sub-query takes that of the
//! query outside; so the name is added. In a right join the column is the right table's, in a full join the first of both
//! that is not null; these joins are written with `ON`:
//!
//! ```text
//!   SELECT k, * FROM a FULL JOIN b USING (k)
//!     ─►  SELECT coalesce(a.k, b.k) AS k, a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k) FROM a FULL JOIN b ON a.k = b.k
//! ```
//!
//! `NATURAL` has become `USING` before ([`lookups`](crate::planning::lookups)).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator,
    ObjectName, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitorMut,
    WildcardAdditionalOptions,
};

use super::normalized;
use crate::error::{Error, Result};
use crate::planning::forms::is_asof_alone;
use crate::planning::trees::{call, join_constraint};
use crate::planning::walk::WalkMut as _;

/// Whether a join shows rows of its right side that have no match.
fn keeps_right_rows(join: &Join) -> bool {
    use JoinOperator::{FullOuter, Right, RightOuter};
    matches!(join.join_operator, Right(_) | RightOuter(_) | FullOuter(_))
}

fn merges_and_keeps_right_rows(join: &Join) -> bool {
    keeps_right_rows(join) && matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_)))
}

/// What a join does with rows of the left side that have no match.
fn constraint_of_left_join(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => Some(constraint),
        _ => None,
    }
}

/// Takes the brackets off joins that come first: `(a JOIN b …) JOIN c …`.
pub(super) fn unbracket(select: &mut Select) {
    for group in &mut select.from {
        while let TableFactor::NestedJoin { table_with_joins, alias: None } = &group.relation
            && !is_asof_alone(table_with_joins)
        {
            let mut inside = table_with_joins.as_ref().clone();
            inside.joins.append(&mut group.joins);
            *group = inside;
        }
    }
}

/// Whether joins in brackets merge columns and show rows that only their right side has.
fn replaces_inside(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::NestedJoin { table_with_joins: inside, alias: None } => {
            let joined = inside.joins.iter();
            inside.joins.iter().any(merges_and_keeps_right_rows)
                || replaces_inside(&inside.relation)
                || joined.map(|join| &join.relation).any(replaces_inside)
        }
        _ => false,
    }
}

/// Writes `*` out where an outer join merges columns.
pub(super) fn write_out(select: &mut Select) -> Result<()> {
    let has_wildcard = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let joins = || select.from.iter().flat_map(|tables| &tables.joins);
    let merges = |join: &Join| matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_)));
    let replaces_columns = joins().any(merges_and_keeps_right_rows)
        || select.from.iter().map(|tables| &tables.relation).any(replaces_inside)
        || joins().any(|join| replaces_inside(&join.relation));
    let are_taken_right = !joins().any(merges) || select.from.iter().all(left_tables_come_first);
    if !has_wildcard || (are_taken_right && !replaces_columns) {
        return Ok(());
    }
    // Only the places of the columns differ then.
    let has_same_values =
        !replaces_columns && !joins().any(|join| merges(join) && constraint_of_left_join(join).is_some());
    let tables = all_tables(&select.from);
    let mut written = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match (&item, &tables) {
            (SelectItem::Wildcard(options), Some(tables)) if is_plain(options) => {
                written.extend(tables.iter().map(ShownTable::columns));
            }
            (SelectItem::Wildcard(_), _) if has_same_values => written.push(item),
            (SelectItem::Wildcard(_), _) => {
                return Err(Error::unsupported(
                    "* cannot be written out over this outer join with USING; name the columns, or write JOIN … ON a.k = b.k",
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
        let merges = matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_)));
        let is_last = !merges || before.iter().all(|other| *other < name);
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
    let others = results_of(select);
    let shows_all =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !select.projection.iter().any(shows_all) {
        select.projection.iter_mut().for_each(|item| keep_name(item, &owners, &others));
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
        select.selection.walk_mut(&mut in_where)?;
        select.distinct.walk_mut(&mut of_results)?;
        select.having.walk_mut(&mut behind_groups)?;
        select.qualify.walk_mut(&mut behind_groups)?;
        select.projection.walk_mut(&mut elsewhere)?;
        select.group_by.walk_mut(&mut elsewhere)
    };
    as_result(qualify_all())
}

/// A column that is computed of several keeps its name, unless a table's column of that name stands beside it.
fn keep_name(item: &mut SelectItem, owners: &Owners, others: &[String]) {
    if let SelectItem::UnnamedExpr(Expr::Identifier(column)) = item
        && let Some(Some(Merged(tables))) = owners.get(&normalized(column))
        && tables.len() > 1
        && !others.contains(&normalized(column))
    {
        *item = SelectItem::ExprWithAlias { expr: Expr::Identifier(column.clone()), alias: column.clone() };
    }
}

/// Does so in the conditions of joins, with what the joins before have merged.
fn qualify_conditions(from: &mut [TableWithJoins], surroundings: Surroundings) -> Result<()> {
    let passes_unknown = surroundings == Surroundings::Alone;
    for group in from {
        for joined in 0..group.joins.len() {
            let (before, rest) = group.joins.split_at_mut(joined);
            let mut owners = owners_in(&group.relation, before);
            let Some(join) = rest.first_mut() else { unreachable!("there are more joins than {joined}") };
            for (name, owner) in owners_inside(&join.relation) {
                owners.entry(name).or_insert(owner);
            }
            if owners.is_empty() {
                continue;
            }
            let mut qualifying = Qualifying { owners, passes_unknown, ..Qualifying::default() };
            as_result(join.join_operator.walk_mut(&mut qualifying))?;
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
    as_result(query.order_by.walk_mut(&mut Qualifying { owners, passes_unknown, ..Qualifying::default() }))
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

/// Merged columns by their names, each with the tables whose column it is; none where the text does not tell.
type Owners = HashMap<String, Option<Merged>>;

/// Tables the first of whose columns that is not null is the merged one.
#[derive(Clone)]
struct Merged(Vec<ObjectName>);

impl Merged {
    fn column(&self, column: &Ident) -> Expr {
        let mut columns = self.0.iter().map(|table| {
            let table = table.0.iter().filter_map(|part| part.as_ident().cloned());
            Expr::CompoundIdentifier(table.chain([column.clone()]).collect())
        });
        match (columns.next(), self.0.len()) {
            (Some(only), 1) => only,
            (first, _) => call("coalesce", first.into_iter().chain(columns)),
        }
    }
}

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
            let left = if joined == 0 { name_of(relation).map(|table| Merged(vec![table])) } else { None };
            for column in columns.iter().filter_map(|column| column.0.first()?.as_ident()) {
                let name = normalized(column);
                let right =
                    of_right.remove(&name).unwrap_or_else(|| Some(Merged(vec![name_of(&join.relation)?])));
                // What has been merged before is still what it was, but for rows that only the right side has.
                let before = owners.remove(&name).unwrap_or_else(|| left.clone());
                let owner = match &join.join_operator {
                    JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right,
                    JoinOperator::FullOuter(_) => before
                        .zip(right)
                        .map(|(Merged(left), Merged(right))| Merged(left.into_iter().chain(right).collect())),
                    _ if constraint_of_left_join(join).is_some() => before,
                    _ => before.or(right),
                };
                owners.insert(name, owner);
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
        *expr = owner.column(column);
        ControlFlow::Continue(())
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

/// A table of a FROM, as `*` shows it.
struct ShownTable {
    name: ObjectName,
    /// Columns that another table's stand for.
    excluded: Vec<ObjectName>,
    /// Columns that stand for those of other tables.
    replaced: Vec<(Ident, Merged)>,
}

impl ShownTable {
    fn columns(&self) -> SelectItem {
        let excluded =
            (!self.excluded.is_empty()).then(|| ExcludeSelectItem::Multiple(self.excluded.clone()));
        let replaced = self.replaced.iter().map(|(column, merged)| {
            let (expr, column_name) = (merged.column(column), column.clone());
            Box::new(ReplaceSelectElement { expr, column_name, as_keyword: true })
        });
        let replaced = ReplaceSelectItem { items: replaced.collect() };
        let options = WildcardAdditionalOptions {
            opt_exclude: excluded,
            opt_replace: (!replaced.items.is_empty()).then_some(replaced),
            ..WildcardAdditionalOptions::default()
        };
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(self.name.clone()), options)
    }
}

/// The tables of a FROM; none if one has no name, or its columns are not known from the text.
fn all_tables(from: &[TableWithJoins]) -> Option<Vec<ShownTable>> {
    let mut tables = Vec::new();
    for group in from {
        let owners = owners_in(&group.relation, &group.joins);
        let mut first =
            ShownTable { name: name_of(&group.relation)?, excluded: Vec::new(), replaced: Vec::new() };
        let mut others = Vec::new();
        for join in &group.joins {
            let merged = match constraint(&join.join_operator)? {
                JoinConstraint::Using(columns) => columns.clone(),
                JoinConstraint::On(_) | JoinConstraint::None => Vec::new(),
                JoinConstraint::Natural => return None,
            };
            for column in merged.iter().filter_map(|column| column.0.first()?.as_ident()) {
                let owner = owners.get(&normalized(column))?;
                let is_first = owner.as_ref().is_some_and(|Merged(tables)| *tables == [first.name.clone()]);
                let is_known =
                    first.replaced.iter().any(|(known, _)| normalized(known) == normalized(column));
                if keeps_right_rows(join) && !is_first && !is_known {
                    first.replaced.push((column.clone(), owner.clone()?));
                }
            }
            others.push(ShownTable {
                name: name_of(&join.relation)?,
                excluded: merged,
                replaced: Vec::new(),
            });
        }
        tables.push(first);
        tables.append(&mut others);
    }
    Some(tables)
}

/// Writes joins that merge columns with `ON`, where one of them shows rows that only its right side has: DataFusion compares
/// with the left table's column then.
pub(super) fn write_conditions(select: &mut Select) -> Result<()> {
    select.from.iter_mut().try_for_each(write_conditions_of)
}

/// Does so for one of the tables of `FROM`, or joins in brackets.
pub(super) fn write_conditions_of(group: &mut TableWithJoins) -> Result<()> {
    let is_natural = |join: &Join| matches!(constraint(&join.join_operator), Some(JoinConstraint::Natural));
    if group.joins.iter().any(|join| keeps_right_rows(join) && is_natural(join)) {
        return Err(Error::unsupported(
            "NATURAL RIGHT and FULL JOIN need tables that can be read by themselves; write JOIN … USING (k)",
        ));
    }
    if !group.joins.iter().any(merges_and_keeps_right_rows) {
        return Ok(());
    }
    let mut conditions = Vec::new();
    for (joined, join) in group.joins.iter().enumerate() {
        let (before, _) = group.joins.split_at(joined);
        let owners = owners_in(&group.relation, before);
        let of_right = owners_inside(&join.relation);
        let Some(JoinConstraint::Using(columns)) = constraint(&join.join_operator) else {
            conditions.push(None);
            continue;
        };
        let mut condition: Option<Expr> = None;
        for column in columns.iter().filter_map(|column| column.0.first()?.as_ident()) {
            let named = |table: &TableFactor| name_of(table).map(|table| Merged(vec![table]));
            let first = if joined == 0 { named(&group.relation) } else { None };
            let left = owners.get(&normalized(column)).cloned().unwrap_or(first);
            let right = of_right.get(&normalized(column)).cloned().unwrap_or_else(|| named(&join.relation));
            let (Some(left), Some(right)) = (left, right) else {
                return Err(Error::unsupported(format!(
                    "'{column}' is a column that USING merges of tables whose names the text does not tell; give them names, \
                     or write JOIN … ON a.{column} = b.{column}"
                )));
            };
            let equal = binary(left.column(column), BinaryOperator::Eq, right.column(column));
            condition = Some(match condition {
                Some(before) => binary(before, BinaryOperator::And, equal),
                None => equal,
            });
        }
        conditions.push(condition);
    }
    for (join, condition) in group.joins.iter_mut().zip(conditions) {
        if let (Some(condition), Some(constraint)) = (condition, join_constraint(&mut join.join_operator)) {
            *constraint = JoinConstraint::On(condition);
        }
    }
    Ok(())
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
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
