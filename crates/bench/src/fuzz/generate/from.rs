//! FROM: tables, queries and joins of them, as trees and as lists with conditions in WHERE.

use super::{Avoid, Generator, MOST_ROWS, Relation, Scope, Source};
use crate::fuzz::ast::{Condition, Expr, From, JoinKind};
use crate::fuzz::types::Type;

/// What a FROM comes to.
#[derive(Debug)]
pub(super) struct Joined {
    pub from: Vec<From>,
    /// Conditions that belong into WHERE.
    pub filter: Vec<Expr>,
    pub scope: Scope,
    pub rows: u64,
}

/// A part of FROM.
struct Tree {
    from: From,
    sources: Vec<Source>,
    /// Columns of USING and NATURAL, which need no alias: name, type, how many sources they stand for.
    merged: Vec<(String, Type, usize)>,
}

impl Generator {
    pub(super) fn from(&mut self, outer: &[Expr], most_sources: usize, depth: usize) -> Joined {
        let wanted = self.random.one_of([1, 1, 2, 2, 2, 3, 3, 4, 5, 6]).min(most_sources);
        let mut leaves: Vec<(From, Source)> = Vec::new();
        let mut rows = 1;
        for _ in 0..wanted {
            let (from, source) = self.source(&leaves, depth);
            if !leaves.is_empty() && rows * source.rows.max(1) > MOST_ROWS {
                continue;
            }
            rows *= source.rows.max(1);
            leaves.push((from, source));
        }
        let mut filter = Vec::new();
        let mut trees: Vec<Tree> = leaves
            .into_iter()
            .map(|(from, source)| Tree { from, sources: vec![source], merged: Vec::new() })
            .collect();
        if self.random.chance(30) {
            for at in 1..trees.len() {
                if let Some((before, [tree, ..])) = trees.split_at_checked(at)
                    && self.random.chance(85)
                {
                    let earlier: Vec<&Source> = before.iter().flat_map(|tree| &tree.sources).collect();
                    let later: Vec<&Source> = tree.sources.iter().collect();
                    filter.extend(self.join_terms(&earlier, &later, depth));
                }
            }
            self.random.shuffle(&mut trees);
            self.random.shuffle(&mut filter);
        } else if trees.len() > 3 && self.random.chance(20) {
            let second = trees.split_off(2);
            trees = [trees, second].into_iter().flat_map(|part| self.tree(part, depth)).collect();
        } else {
            trees = self.tree(trees, depth).into_iter().collect();
        }
        let sources: Vec<&Source> = trees.iter().flat_map(|tree| &tree.sources).collect();
        let mut scope = Scope { outer: outer.to_vec(), ..Scope::default() };
        scope.leaves = sources.iter().flat_map(|source| source.leaves()).collect();
        scope.outer.retain(|column| {
            // Hidden by an alias of this FROM.
            !matches!(column, Expr::Column { table: Some(table), .. } if sources.iter().any(|source| source.alias == *table))
        });
        scope.unique =
            sources.iter().map(|source| source.unique.clone()).collect::<Option<_>>().unwrap_or_default();
        for (name, ty, covered) in trees.iter().flat_map(|tree| &tree.merged) {
            let bearers =
                sources.iter().filter(|source| source.columns.iter().any(|(other, _)| other == name));
            if bearers.count() == *covered {
                let column = Expr::Column { table: None, name: name.clone(), ty: ty.clone() };
                scope.leaves.extend([column.clone(), column]);
            }
        }
        Joined { from: trees.into_iter().map(|tree| tree.from).collect(), filter, scope, rows }
    }

    /// A table under an alias or its own name, or a query.
    fn source(&mut self, taken: &[(From, Source)], depth: usize) -> (From, Source) {
        if depth > 1 && self.random.chance(18) {
            let alias = self.alias("q");
            let (query, columns, rows) = self.query(&[], None, depth - 2);
            let source = Source { alias: alias.clone(), columns, unique: None, rows };
            return (From::Query { query: Box::new(query), alias }, source);
        }
        let relation = self.random.pick(&self.relations).cloned().unwrap_or(Relation {
            name: "t1".to_owned(),
            columns: Vec::new(),
            rows: 1,
            has_row_number: false,
        });
        let is_taken = taken.iter().any(|(_, source)| source.alias == relation.name);
        if !is_taken && self.random.chance(25) {
            let source = Source::of(&relation, relation.name.clone());
            return (From::Table { name: relation.name.clone(), alias: relation.name }, source);
        }
        let alias = self.alias("a");
        if self.random.chance(10) {
            return self.narrow(&relation, alias);
        }
        (From::Table { name: relation.name.clone(), alias: alias.clone() }, Source::of(&relation, alias))
    }

    /// A query of a few columns of a table: what NATURAL and USING are mostly used on.
    fn narrow(&mut self, relation: &Relation, alias: String) -> (From, Source) {
        let mut columns = relation.columns.clone();
        self.random.shuffle(&mut columns);
        columns.truncate(self.random.between(1, 2));
        let inner = Source::of(relation, relation.name.clone());
        let items = columns.iter().map(|(name, ty)| crate::fuzz::ast::Item {
            expr: Expr::column(&inner.alias, name, ty),
            name: name.clone(),
        });
        let from = From::Table { name: relation.name.clone(), alias: relation.name.clone() };
        let mut select = crate::fuzz::ast::Select::of(items.collect(), vec![from]);
        select.distinct = self.random.chance(30);
        let query = Box::new(crate::fuzz::ast::Query::select(select));
        let source = Source { alias: alias.clone(), columns, unique: None, rows: relation.rows };
        (From::Query { query, alias }, source)
    }

    /// One tree of joins: mostly one source after the other, sometimes with joins on both sides.
    fn tree(&mut self, mut trees: Vec<Tree>, depth: usize) -> Option<Tree> {
        if trees.len() < 2 {
            return trees.pop();
        }
        let is_bushy = trees.len() > 2 && self.random.chance(20);
        let at = if is_bushy { self.random.between(1, trees.len() - 1) } else { trees.len() - 1 };
        let right = trees.split_off(at);
        let (left, right) = (self.tree(trees, depth)?, self.tree(right, depth)?);
        Some(self.join(left, right, depth))
    }

    fn join(&mut self, left: Tree, right: Tree, depth: usize) -> Tree {
        use JoinKind::{Cross, Full, Inner, Left, Right};
        let mut kind =
            self.random.one_of([Inner, Inner, Inner, Left, Left, Left, Right, Right, Full, Full, Cross]);
        let mut merged = Vec::new();
        let common = common_names(&left, &right);
        let condition = if kind == Cross {
            Condition::None
        } else if !common.is_empty() && self.random.chance(18) {
            if matches!(kind, Right | Full) && self.random.chance(80) {
                kind = self.random.one_of([Inner, Left]);
            }
            let is_natural = left.sources.len() == 1
                && right.sources.len() == 1
                && common.len() == shared_names(&left, &right)
                && common.len() <= 2;
            if is_natural && self.random.chance(50) {
                merged.extend(common.iter().map(|(name, ty)| (name.clone(), ty.clone(), 2)));
                Condition::Natural
            } else {
                let mut names = common;
                self.random.shuffle(&mut names);
                names.truncate(self.random.one_of([1, 1, 2]));
                let covered = |name: &str| {
                    let count = |tree: &Tree| {
                        tree.merged.iter().find(|(other, ..)| other == name).map_or(1, |found| found.2)
                    };
                    count(&left) + count(&right)
                };
                merged.extend(names.iter().map(|(name, ty)| (name.clone(), ty.clone(), covered(name))));
                Condition::Using(names.into_iter().map(|(name, _)| name).collect())
            }
        } else {
            let sides = [&left, &right].map(|tree| tree.sources.iter().collect::<Vec<_>>());
            let [earlier, later] = &sides;
            Condition::On(self.join_terms(earlier, later, depth))
        };
        let names: Vec<&String> = merged.iter().map(|(name, ..)| name).collect();
        let kept =
            left.merged.iter().chain(&right.merged).filter(|(name, ..)| !names.contains(&name)).cloned();
        let kept: Vec<_> = kept.collect();
        Tree {
            from: From::Join { kind, left: Box::new(left.from), right: Box::new(right.from), condition },
            sources: left.sources.into_iter().chain(right.sources).collect(),
            merged: merged.into_iter().chain(kept).collect(),
        }
    }

    /// The condition of a join: an equality as a rule, and what else may stand beside or in place of it.
    fn join_terms(&mut self, left: &[&Source], right: &[&Source], depth: usize) -> Vec<Expr> {
        let mut terms = Vec::new();
        for _ in 0..self.random.one_of([0, 1, 1, 1, 1, 1, 2, 2]) {
            terms.extend(self.key_pair(left, right));
        }
        if terms.is_empty() || self.random.chance(20) {
            let leaves = left.iter().chain(right).flat_map(|source| source.leaves()).collect();
            let scope = Scope { leaves, ..Scope::default() };
            terms.push(self.boolean(&scope, depth.min(1)));
        }
        terms
    }

    /// An equality of two columns, one of each side, preferably of one name.
    pub(super) fn key_pair(&mut self, left: &[&Source], right: &[&Source]) -> Option<Expr> {
        let ours: Vec<Expr> = left.iter().flat_map(|source| source.leaves()).collect();
        let theirs: Vec<Expr> = right.iter().flat_map(|source| source.leaves()).collect();
        self.equality(&ours, &theirs)
    }

    pub(super) fn equality(&mut self, ours: &[Expr], theirs: &[Expr]) -> Option<Expr> {
        for _ in 0..8 {
            let one = self.random.pick(ours)?.clone();
            let family = one.ty().family();
            let wants_same_name = self.random.chance(60);
            let partners: Vec<&Expr> = theirs
                .iter()
                .filter(|other| {
                    other.ty().family() == family && (!wants_same_name || name(other) == name(&one))
                })
                .collect();
            let Some(other) = self.random.pick(&partners).map(|other| (*other).clone()) else { continue };
            let template = self.random.one_of([
                "({0} = {1})",
                "({0} = {1})",
                "({0} = {1})",
                "({0} = {1})",
                "({1} = {0})",
                "({0} IS NOT DISTINCT FROM {1})",
            ]);
            let template = if self.avoids(Avoid::NullSafeKeys) { "({0} = {1})" } else { template };
            if one.ty().is_small_integer() && other.ty().is_small_integer() && self.random.chance(8) {
                let sum = self.random.one_of(["({0} + 1 = {1})", "({0} % 3 = {1} % 3)", "(abs({0}) = {1})"]);
                return Some(Expr::call(sum, vec![one, other], Type::Boolean));
            }
            return Some(Expr::call(template, vec![one, other], Type::Boolean));
        }
        None
    }
}

fn name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column { name, .. } => Some(name),
        _ => None,
    }
}

/// How many column names both sides have.
fn shared_names(left: &Tree, right: &Tree) -> usize {
    let names = |tree: &Tree| -> Vec<String> {
        tree.sources.iter().flat_map(|source| source.columns.iter().map(|(name, _)| name.clone())).collect()
    };
    let theirs = names(right);
    names(left).iter().filter(|name| theirs.contains(name)).count()
}

/// Names by which both sides can be joined: each has one column of that name, of types that compare.
fn common_names(left: &Tree, right: &Tree) -> Vec<(String, Type)> {
    let column = |tree: &Tree, wanted: &str| -> Option<Type> {
        let found = tree.sources.iter().flat_map(|source| &source.columns).filter(|(name, _)| name == wanted);
        let found: Vec<&(String, Type)> = found.collect();
        let covered = tree.merged.iter().find(|(name, ..)| name == wanted).map_or(1, |merged| merged.2);
        found.first().filter(|_| found.len() == covered).map(|(_, ty)| ty.clone())
    };
    let mut names: Vec<(String, Type)> = Vec::new();
    for (name, ty) in left.sources.iter().flat_map(|source| &source.columns) {
        let is_new = names.iter().all(|(other, _)| other != name);
        let fits = |tree: &Tree| column(tree, name).is_some_and(|other| other.family() == ty.family());
        if is_new && fits(left) && fits(right) {
            names.push((name.clone(), ty.clone()));
        }
    }
    names
}
