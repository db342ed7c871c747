//! Expressions that are numbers.

use super::{Generator, Scope};
use crate::fuzz::ast::Expr;
use crate::fuzz::types::{BIGINT, Family, INT, Type};

impl Generator {
    pub(super) fn number(&mut self, scope: &Scope, depth: usize) -> Expr {
        let depth = depth.saturating_sub(1);
        match self.random.below(10) {
            0..=2 => self.integer_arithmetic(scope),
            3 => self.double_arithmetic(scope),
            4 => self.decimal_arithmetic(scope),
            5 | 6 => {
                let text = self.expr(&Family::Text, scope, depth);
                match self.random.below(3) {
                    0 => Expr::call("CAST(length({0}) AS BIGINT)", vec![text], BIGINT),
                    1 => Expr::call("TRY_CAST({0} AS INTEGER)", vec![text], INT),
                    _ => Expr::call("CAST(strpos({0}, 'a') AS BIGINT)", vec![text], BIGINT),
                }
            }
            7 => {
                let date = self.expr(&Family::Date, scope, depth);
                let template = self.random.one_of([
                    "CAST(extract(year FROM {0}) AS INTEGER)",
                    "CAST(extract(month FROM {0}) AS INTEGER)",
                    "CAST(extract(day FROM {0}) AS INTEGER)",
                ]);
                Expr::call(template, vec![date], INT)
            }
            8 => self.part_of_nested(scope).unwrap_or_else(|| self.integer_arithmetic(scope)),
            _ => {
                let condition = self.boolean(scope, depth);
                Expr::call("(CASE WHEN {0} THEN 1 ELSE 0 END)", vec![condition], INT)
            }
        }
    }

    /// An integer that a few multiplications do not make too large.
    pub(super) fn small_integer(&mut self, scope: &Scope) -> Expr {
        let leaf = if self.random.chance(80) { self.leaf_that(scope, Type::is_small_integer) } else { None };
        leaf.unwrap_or_else(|| Expr::literal(self.random.one_of(["0", "1", "2", "3", "-1"]), INT))
    }

    fn integer_arithmetic(&mut self, scope: &Scope) -> Expr {
        let arguments = vec![self.small_integer(scope), self.small_integer(scope)];
        match self.random.below(6) {
            0 => Expr::call_as(
                "(CAST({0} AS BIGINT) / nullif({1}, 0))",
                "(CAST({0} AS BIGINT) // nullif({1}, 0))",
                arguments,
                BIGINT,
            ),
            1 => Expr::call("(CAST({0} AS BIGINT) % nullif({1}, 0))", arguments, BIGINT),
            2 => Expr::call("(- CAST({0} AS BIGINT))", arguments, BIGINT),
            _ => {
                let template = self.random.one_of([
                    "(CAST({0} AS BIGINT) + {1})",
                    "(CAST({0} AS BIGINT) - {1})",
                    "(CAST({0} AS BIGINT) * {1})",
                    "({0} + CAST({1} AS BIGINT))",
                ]);
                Expr::call(template, arguments, BIGINT)
            }
        }
    }

    fn double_arithmetic(&mut self, scope: &Scope) -> Expr {
        let Some(one) = self.leaf_that(scope, |ty| *ty == Type::Double) else {
            return self.integer_arithmetic(scope);
        };
        let other = self.small_integer(scope);
        let template =
            self.random.one_of(["({0} + {1})", "({0} * {1})", "({1} - {0})", "floor({0} + {1})", "abs({0})"]);
        Expr::call(template, vec![one, other], Type::Double)
    }

    fn decimal_arithmetic(&mut self, scope: &Scope) -> Expr {
        let small = |ty: &Type| matches!(ty, Type::Decimal { precision: 0..=10, .. });
        let Some(one) = self.leaf_that(scope, small) else { return self.integer_arithmetic(scope) };
        let other = self.leaf_that(scope, small).unwrap_or_else(|| one.clone());
        let template = self.random.one_of(["({0} + {1})", "({0} * {1})", "({0} - {1})", "abs({0})"]);
        Expr::call(template, vec![one, other], Type::Decimal { precision: 18, scale: 4 })
    }

    /// An element of a list, or a field of a struct.
    fn part_of_nested(&mut self, scope: &Scope) -> Option<Expr> {
        let is_fitting = |ty: &Type| match ty {
            Type::List(item) => **item == INT,
            Type::Struct(_) => true,
            _ => false,
        };
        let whole = self.leaf_that(scope, is_fitting)?;
        let template = match whole.ty() {
            Type::Struct(_) => "({0})['x']",
            _ => self.random.one_of(["({0})[1]", "({0})[2]"]),
        };
        Some(Expr::call(template, vec![whole], INT))
    }
}
