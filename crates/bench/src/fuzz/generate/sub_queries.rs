//! Queries inside of expressions: scalar ones, EXISTS, IN, ANY and ALL, correlated or not.

use super::{Avoid, Generator, Scope};
use crate::fuzz::ast::{Expr, Grouping, Item, Order, Query, Select};
use crate::fuzz::schema::ROW_NUMBER;
use crate::fuzz::types::{Family, INT, Type};

impl Generator {
    /// A condition with a sub-query, if there is something to compare.
    pub(super) fn query_condition(&mut self, scope: &Scope, depth: usize) -> Option<Expr> {
        if self.avoids(Avoid::InQueries) || self.random.chance(35) {
            let template = self.random.one_of(["EXISTS ({q})", "(NOT EXISTS ({q}))"]);
            let query = self.inner(None, scope, depth);
            return Some(Expr::Query {
                template: template.to_owned(),
                arguments: Vec::new(),
                query,
                ty: Type::Boolean,
            });
        }
        let families = scope.families();
        let family = self.random.pick(&families).cloned()?;
        let argument = self.expr(&family, scope, depth.min(1));
        let is_ordered = !matches!(family, Family::Nested(_));
        let template = if is_ordered && self.random.chance(30) {
            self.random.one_of([
                "({0} = ANY ({q}))",
                "({0} <> ALL ({q}))",
                "({0} > ANY ({q}))",
                "({0} >= ALL ({q}))",
                "({0} < ALL ({q}))",
                "({0} <> ANY ({q}))",
            ])
        } else {
            self.random.one_of([
                "({0} IN ({q}))",
                "({0} IN ({q}))",
                "({0} NOT IN ({q}))",
                "(NOT ({0} IN ({q})))",
            ])
        };
        let query = self.inner(Some(&family), scope, depth);
        Some(Expr::Query {
            template: template.to_owned(),
            arguments: vec![argument],
            query,
            ty: Type::Boolean,
        })
    }

    /// A query of one value.
    pub(super) fn scalar_query(&mut self, family: &Family, scope: &Scope, depth: usize) -> Option<Expr> {
        if matches!(family, Family::Nested(_) | Family::Binary | Family::Boolean) {
            return None;
        }
        let outer = visible(scope);
        let joined = self.from(&outer, 2, depth.min(1));
        let mut filter = joined.filter;
        filter.extend(self.correlation(&joined.scope));
        let expr = if self.random.chance(15) && !joined.scope.unique.is_empty() {
            // At most one row.
            for unique in &joined.scope.unique {
                let outer_number =
                    outer.iter().find(|column| is_row_number(column)).filter(|_| self.random.chance(50));
                let number = outer_number.cloned().unwrap_or_else(|| Expr::literal("2", INT));
                filter.push(Expr::call("({0} = {1})", vec![unique.clone(), number], Type::Boolean));
            }
            let leaves = Scope { outer: Vec::new(), ..joined.scope.clone() };
            self.leaf(family, &leaves)
        } else {
            let inner = Scope { outer: Vec::new(), ..joined.scope.clone() };
            self.aggregate_of(family, &inner)
        };
        if self.random.chance(25) {
            filter.push(self.boolean(&joined.scope, depth.min(1)));
        }
        let ty = expr.ty();
        let mut select = Select::of(vec![Item { expr, name: "v".to_owned() }], joined.from);
        select.filter = filter;
        let query = Box::new(Query::select(select));
        Some(Expr::Query { template: "({q})".to_owned(), arguments: Vec::new(), query, ty })
    }

    /// A query of any number of rows.
    fn inner(&mut self, family: Option<&Family>, scope: &Scope, depth: usize) -> Box<Query> {
        let outer = visible(scope);
        let joined = self.from(&outer, 2, depth.min(1));
        let uncorrelated = Scope { outer: Vec::new(), ..joined.scope.clone() };
        let item = match family {
            Some(family) => self.expr(family, &uncorrelated, depth.min(1)),
            None => Expr::literal("1", INT),
        };
        let mut select = Select::of(vec![Item { expr: item.clone(), name: "v".to_owned() }], joined.from);
        select.filter = joined.filter;
        select.filter.extend(self.correlation(&joined.scope));
        if self.random.chance(40) {
            select.filter.push(self.boolean(&joined.scope, depth));
        }
        let is_ordered = matches!(family, Some(family) if !matches!(family, Family::Nested(_)));
        let is_column = matches!(item, Expr::Column { .. });
        match self.random.below(10) {
            0 if is_column => {
                select.grouping = Grouping::Keys(vec![item]);
                let leaf = self.leaf(&Family::Number, &uncorrelated);
                let count = Expr::aggregate("count({0})", vec![leaf], super::super::types::BIGINT);
                let least = Expr::literal(self.random.one_of(["0", "1", "2"]), INT);
                select.having.push(Expr::call("({0} > {1})", vec![count, least], Type::Boolean));
            }
            1 if is_ordered => {
                if let Some(family) = family {
                    let aggregate = self.aggregate_of(family, &uncorrelated);
                    select.items = vec![Item { expr: aggregate, name: "v".to_owned() }];
                }
            }
            2 => select.distinct = true,
            3 if is_ordered => {
                let key = Expr::Column { table: None, name: "v".to_owned(), ty: item.ty() };
                let order =
                    Order { key, descending: self.random.chance(50), nulls_first: self.random.chance(50) };
                let mut query = Query::select(select);
                query.order = vec![order];
                query.limit = Some(self.random.below(4) as u64);
                return Box::new(query);
            }
            _ => {}
        }
        Box::new(Query::select(select))
    }

    /// A condition that looks at the query around, in most sub-queries.
    fn correlation(&mut self, scope: &Scope) -> Option<Expr> {
        if scope.outer.is_empty() || self.random.chance(40) {
            return None;
        }
        let mut term = self.equality(&scope.leaves, &scope.outer)?;
        if let Expr::Call { template, .. } = &mut term
            && self.random.chance(15)
            && !template.contains("abs")
            && !template.contains('%')
            && !template.contains('+')
        {
            let is_nested = matches!(&term, Expr::Call { arguments, .. } if arguments.iter().any(|one| one.ty().is_nested()));
            if !is_nested && let Expr::Call { template, .. } = &mut term {
                *template = self.random.one_of(["({0} < {1})", "({0} >= {1})", "({0} <> {1})"]).to_owned();
            }
        }
        Some(term)
    }
}

/// What a sub-query sees of the queries around it.
fn visible(scope: &Scope) -> Vec<Expr> {
    let columns = scope.leaves.iter().filter(|leaf| matches!(leaf, Expr::Column { table: Some(_), .. }));
    columns.chain(&scope.outer).cloned().collect()
}

fn is_row_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Column { name, .. } if name == ROW_NUMBER)
}
