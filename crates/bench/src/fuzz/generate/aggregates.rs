//! Aggregate functions: with DISTINCT, FILTER and an order of their own.

use super::{Generator, Scope};
use crate::fuzz::ast::Expr;
use crate::fuzz::types::{BIGINT, Family, INT, Type};

impl Generator {
    /// An aggregate over the rows of a scope.
    pub(super) fn aggregate(&mut self, scope: &Scope, depth: usize) -> Expr {
        let call = self.bare_aggregate(scope, depth);
        if !self.random.chance(15) {
            return call;
        }
        let condition = self.boolean(&Scope { outer: Vec::new(), ..scope.clone() }, 0);
        let Expr::Call { template, other, mut arguments, ty, kind } = call else { return call };
        let number = arguments.len();
        arguments.push(condition);
        let filtered = |template: String| format!("{template} FILTER (WHERE {{{number}}})");
        Expr::Call { template: filtered(template), other: other.map(filtered), arguments, ty, kind }
    }

    fn bare_aggregate(&mut self, scope: &Scope, depth: usize) -> Expr {
        match self.random.below(12) {
            0 => Expr::aggregate("count(*)", Vec::new(), BIGINT),
            1 | 2 => {
                let argument = self.any_expr(scope, depth.min(1));
                let template = if argument.ty().is_nested() || self.random.chance(50) {
                    "count({0})"
                } else {
                    "count(DISTINCT {0})"
                };
                Expr::aggregate(template, vec![argument], BIGINT)
            }
            3 | 4 => self.sum(scope),
            5 | 6 => {
                let families: Vec<Family> = scope.families().into_iter().filter(is_ordered).collect();
                let family = self.random.pick(&families).cloned().unwrap_or(Family::Number);
                self.extreme(&family, scope, depth)
            }
            7 => {
                let argument = self.small_integer(scope);
                let template = self.random.one_of([
                    "avg({0})",
                    "avg(DISTINCT {0})",
                    "stddev({0})",
                    "var_pop({0})",
                    "avg({0})",
                ]);
                Expr::aggregate(template, vec![argument], Type::Double)
            }
            8 => {
                let argument = self.boolean(scope, 0);
                let template = self.random.one_of(["bool_and({0})", "bool_or({0})"]);
                Expr::aggregate(template, vec![argument], Type::Boolean)
            }
            9 => {
                let argument = self.small_integer(scope);
                let template = self.random.one_of(["bit_and({0})", "bit_or({0})", "bit_xor({0})"]);
                Expr::aggregate(template, vec![argument], BIGINT)
            }
            10 => match self.leaf_that(scope, |ty| *ty == Type::Text) {
                Some(text) => Expr::aggregate("string_agg({0}, ',' ORDER BY {0})", vec![text], Type::Text),
                None => self.sum(scope),
            },
            _ => match self.leaf_that(scope, |ty| *ty == INT) {
                Some(number) => {
                    let list = Type::List(Box::new(INT));
                    let template = self.random.one_of([
                        "array_agg({0} ORDER BY {0} ASC NULLS LAST)",
                        "array_agg(DISTINCT {0} ORDER BY {0} DESC NULLS FIRST)",
                    ]);
                    Expr::aggregate(template, vec![number], list)
                }
                None => self.sum(scope),
            },
        }
    }

    fn sum(&mut self, scope: &Scope) -> Expr {
        let argument = self.leaf_that(scope, Type::adds_exactly).unwrap_or_else(|| Expr::literal("1", INT));
        let ty = if argument.ty().is_small_integer() { BIGINT } else { argument.ty() };
        let template = self.random.one_of(["sum({0})", "sum({0})", "sum({0})", "sum(DISTINCT {0})"]);
        Expr::aggregate(template, vec![argument], ty)
    }

    fn extreme(&mut self, family: &Family, scope: &Scope, depth: usize) -> Expr {
        let argument = self.expr(family, scope, depth.min(1));
        let ty = argument.ty();
        Expr::aggregate(self.random.one_of(["min({0})", "max({0})"]), vec![argument], ty)
    }

    /// An aggregate of a family, for queries of one value.
    pub(super) fn aggregate_of(&mut self, family: &Family, scope: &Scope) -> Expr {
        if *family == Family::Number && self.random.chance(60) {
            return match self.random.below(4) {
                0 => Expr::aggregate("count(*)", Vec::new(), BIGINT),
                1 => {
                    let argument = self.any_expr(scope, 0);
                    Expr::aggregate("count({0})", vec![argument], BIGINT)
                }
                _ => self.sum(scope),
            };
        }
        self.extreme(family, scope, 0)
    }
}

/// Whether there is a least and a greatest value.
fn is_ordered(family: &Family) -> bool {
    matches!(family, Family::Number | Family::Text | Family::Date | Family::Timestamp)
}
