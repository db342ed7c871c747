//! Queries that can be checked without another engine.
//!
//! - **Ternary logic partitioning** (Rigger and Su, OOPSLA 2020): a condition is true, false or unknown for each row, so that
//!   three queries with the three cases have together the rows of the query without the condition.
//! - **Non-optimizing reference** (Rigger and Su, ESEC/FSE 2020): as many rows pass `WHERE p` as there are rows whose `p`,
//!   among the outputs, where no filter can be made of it, is true.

use super::{Generator, Scope};
use crate::fuzz::ast::{Body, Expr, From, Item, Query, Select, SetOperator};
use crate::fuzz::types::{BIGINT, INT, Type};

/// Which queries a condition is tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `SELECT …`
    Rows,
    /// `SELECT DISTINCT …`
    Distinct,
    /// `SELECT count(x), sum(x), min(x), max(x)`
    Aggregates,
    /// Groups, and the condition in HAVING.
    Groups,
    /// Counting what passes.
    Counts,
}

/// A query and a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Partitioned {
    pub shape: Shape,
    /// Without the condition.
    pub select: Select,
    pub condition: Expr,
}

impl Generator {
    pub fn partitioned(&mut self) -> Partitioned {
        let shape = self.random.one_of([
            Shape::Rows,
            Shape::Rows,
            Shape::Distinct,
            Shape::Aggregates,
            Shape::Groups,
            Shape::Counts,
            Shape::Counts,
        ]);
        let joined = self.from(&[], 4, 2);
        let mut select = Select::of(Vec::new(), joined.from);
        select.filter = joined.filter;
        if self.random.chance(30) {
            let term = self.boolean(&joined.scope, 1);
            select.filter.push(term);
        }
        let mut scope = joined.scope;
        match shape {
            Shape::Rows | Shape::Distinct => {
                for number in 1..=self.random.between(1, 3) {
                    let expr = self.any_expr(&scope, 1);
                    select.items.push(Item { expr, name: format!("o{number}") });
                }
                select.distinct = shape == Shape::Distinct;
            }
            Shape::Aggregates => {
                let expr =
                    self.leaf_that(&scope, Type::adds_exactly).unwrap_or_else(|| Expr::literal("1", INT));
                select.items.push(Item { expr, name: "x".to_owned() });
            }
            Shape::Groups => {
                let keys: Vec<Expr> =
                    (0..self.random.between(1, 2)).filter_map(|_| self.leaf_that(&scope, |_| true)).collect();
                let aggregates: Vec<Expr> = (0..2).map(|_| self.aggregate(&scope, 0)).collect();
                scope =
                    Scope { leaves: keys.iter().chain(&aggregates).cloned().collect(), ..Scope::default() };
                let outputs = scope.leaves.iter().enumerate();
                select.items = outputs
                    .map(|(number, expr)| Item { expr: expr.clone(), name: format!("o{number}") })
                    .collect();
                select.grouping = crate::fuzz::ast::Grouping::Keys(keys);
            }
            Shape::Counts => {}
        }
        let condition = self.boolean(&scope, 3);
        Partitioned { shape, select, condition }
    }
}

impl Partitioned {
    /// Two queries with the same rows.
    pub fn pair(&self) -> [Query; 2] {
        let condition = &self.condition;
        let cases = ["({0})", "(NOT {0})", "({0} IS NULL)"]
            .map(|template| Expr::call(template, vec![condition.clone()], Type::Boolean));
        let filtered = |case: Expr| {
            let mut select = self.select.clone();
            match self.shape {
                Shape::Groups => select.having.push(case),
                _ => select.filter.push(case),
            }
            Query::select(select)
        };
        match self.shape {
            Shape::Rows | Shape::Groups => {
                [Query::select(self.select.clone()), united(cases.map(filtered), true)]
            }
            Shape::Distinct => [Query::select(self.select.clone()), united(cases.map(filtered), false)],
            Shape::Aggregates => {
                [Query::select(self.select.clone()), united(cases.map(filtered), true)].map(aggregated)
            }
            Shape::Counts => self.counts(),
        }
    }

    fn counts(&self) -> [Query; 2] {
        let count = Expr::aggregate("count(*)", Vec::new(), BIGINT);
        let passes = Expr::call("(CASE WHEN {0} THEN 1 ELSE 0 END)", vec![self.condition.clone()], INT);
        let sum = Expr::aggregate("coalesce(sum({0}), 0)", vec![passes], BIGINT);
        [(count, true), (sum, false)].map(|(expr, is_filtered)| {
            let mut select = self.select.clone();
            select.items = vec![Item { expr, name: "n".to_owned() }];
            if is_filtered {
                select.filter.push(self.condition.clone());
            }
            Query::select(select)
        })
    }
}

fn united(parts: [Query; 3], all: bool) -> Query {
    let union = |left, right| {
        let body =
            Body::Set { operator: SetOperator::Union, all, left: Box::new(left), right: Box::new(right) };
        Query { with: Vec::new(), body, order: Vec::new(), limit: None, offset: None }
    };
    let [one, two, three] = parts;
    union(union(one, two), three)
}

/// The aggregates of the one column of a query.
fn aggregated(query: Query) -> Query {
    let column = Expr::column("p", "x", &BIGINT);
    let items = ["count({0})", "sum({0})", "min({0})", "max({0})", "count(DISTINCT {0})"];
    let items = items.iter().enumerate().map(|(number, template)| Item {
        expr: Expr::aggregate(*template, vec![column.clone()], BIGINT),
        name: format!("o{number}"),
    });
    let from = vec![From::Query { query: Box::new(query), alias: "p".to_owned() }];
    Query::select(Select::of(items.collect(), from))
}
