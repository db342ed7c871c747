//! Expressions of any type: leaves, literals, and what works for all of them; texts and points in time.

use super::{Generator, Scope};
use crate::fuzz::ast::Expr;
use crate::fuzz::types::{BIGINT, Family, INT, Rarities, Type, random_value};

impl Generator {
    /// An expression of a family. At depth 0 it is a leaf or a literal.
    pub(super) fn expr(&mut self, family: &Family, scope: &Scope, depth: usize) -> Expr {
        if depth == 0 || self.random.chance(45) {
            return self.leaf(family, scope);
        }
        if self.random.chance(20) {
            return self.choice(family, scope, depth - 1);
        }
        if self.random.chance(7)
            && let Some(query) = self.scalar_query(family, scope, depth - 1)
        {
            return query;
        }
        match family {
            Family::Boolean => self.boolean(scope, depth),
            Family::Number => self.number(scope, depth),
            Family::Text => self.text(scope, depth - 1),
            Family::Date => self.date(scope, depth - 1),
            Family::Timestamp => self.timestamp(scope, depth - 1),
            Family::Binary | Family::Time | Family::Nested(_) => self.leaf(family, scope),
        }
    }

    /// An expression of some family that the scope has leaves of.
    pub(super) fn any_expr(&mut self, scope: &Scope, depth: usize) -> Expr {
        let families = scope.families();
        let family = self.random.pick(&families).cloned().unwrap_or(Family::Number);
        self.expr(&family, scope, depth)
    }

    pub(super) fn leaf(&mut self, family: &Family, scope: &Scope) -> Expr {
        if !scope.outer.is_empty() && self.random.chance(8) {
            let outer: Vec<&Expr> = scope.outer.iter().filter(|leaf| leaf.ty().family() == *family).collect();
            if let Some(leaf) = self.random.pick(&outer) {
                return (*leaf).clone();
            }
        }
        let leaves: Vec<&Expr> = scope.leaves.iter().filter(|leaf| leaf.ty().family() == *family).collect();
        match self.random.pick(&leaves) {
            Some(leaf) if !self.random.chance(12) => (*leaf).clone(),
            _ => self.literal(family),
        }
    }

    /// A leaf whose type is one of some.
    pub(super) fn leaf_that(&mut self, scope: &Scope, fits: impl Fn(&Type) -> bool) -> Option<Expr> {
        let leaves: Vec<&Expr> = scope.leaves.iter().filter(|leaf| fits(&leaf.ty())).collect();
        self.random.pick(&leaves).map(|leaf| (*leaf).clone())
    }

    pub(super) fn literal(&mut self, family: &Family) -> Expr {
        let ty = match family {
            Family::Boolean => Type::Boolean,
            Family::Number => {
                let decimal = Type::Decimal { precision: 6, scale: 2 };
                self.random.one_of([INT, INT, INT, BIGINT, Type::Double, decimal].each_ref()).clone()
            }
            Family::Text => Type::Text,
            Family::Binary => Type::Binary,
            Family::Date => Type::Date,
            Family::Time => Type::Time,
            Family::Timestamp => Type::Timestamp,
            Family::Nested(ty) => ty.clone(),
        };
        let rare = Rarities { nulls: 8, ..Rarities::default() };
        Expr::Literal { value: random_value(&mut self.random, &ty, &rare), ty }
    }

    /// CASE, COALESCE and the like.
    fn choice(&mut self, family: &Family, scope: &Scope, depth: usize) -> Expr {
        let (one, other) = (self.expr(family, scope, depth), self.expr(family, scope, depth));
        let ty = if *family == Family::Number { wider(&one.ty(), &other.ty()) } else { one.ty() };
        let is_nested = matches!(family, Family::Nested(_));
        match self.random.below(if is_nested { 3 } else { 6 }) {
            0 => {
                let condition = self.boolean(scope, depth);
                Expr::call("(CASE WHEN {0} THEN {1} ELSE {2} END)", vec![condition, one, other], ty)
            }
            1 => {
                let condition = self.boolean(scope, depth);
                Expr::call("(CASE WHEN {0} THEN {1} END)", vec![condition, one], ty)
            }
            2 => Expr::call("coalesce({0}, {1})", vec![one, other], ty),
            3 => Expr::call("nullif({0}, {1})", vec![one, other], ty),
            4 => {
                let (when, then) = (self.literal(family), self.literal(family));
                Expr::call("(CASE {0} WHEN {1} THEN {2} ELSE {3} END)", vec![one, when, then, other], ty)
            }
            _ => {
                let template = self.random.one_of(["greatest({0}, {1})", "least({0}, {1})"]);
                Expr::call(template, vec![one, other], ty)
            }
        }
    }

    fn text(&mut self, scope: &Scope, depth: usize) -> Expr {
        let one = self.expr(&Family::Text, scope, depth);
        match self.random.below(8) {
            0 | 1 => {
                let other = self.expr(&Family::Text, scope, depth);
                let template =
                    self.random.one_of(["({0} || {1})", "concat({0}, {1})", "concat({0}, '-', {1})"]);
                Expr::call(template, vec![one, other], Type::Text)
            }
            2 => match self.leaf_that(scope, Type::is_small_integer) {
                Some(number) => Expr::call("CAST({0} AS VARCHAR)", vec![number], Type::Text),
                None => one,
            },
            _ => {
                let template = self.random.one_of([
                    "upper({0})",
                    "lower({0})",
                    "substr({0}, 1, 2)",
                    "trim({0})",
                    "replace({0}, 'a', 'bb')",
                    "reverse({0})",
                    "left({0}, 3)",
                ]);
                Expr::call(template, vec![one], Type::Text)
            }
        }
    }

    fn date(&mut self, scope: &Scope, depth: usize) -> Expr {
        if self.random.chance(40)
            && let Some(point) = self.leaf_that(scope, |ty| *ty == Type::Timestamp)
        {
            return Expr::call("CAST({0} AS DATE)", vec![point], Type::Date);
        }
        let date = self.expr(&Family::Date, scope, depth);
        let template = self.random.one_of([
            "CAST({0} + INTERVAL '1 day' AS DATE)",
            "CAST({0} - INTERVAL '1 month' AS DATE)",
            "CAST(date_trunc('month', {0}) AS DATE)",
        ]);
        Expr::call(template, vec![date], Type::Date)
    }

    fn timestamp(&mut self, scope: &Scope, depth: usize) -> Expr {
        let point = self.expr(&Family::Timestamp, scope, depth);
        let template = self.random.one_of([
            "({0} + INTERVAL '1 hour')",
            "({0} - INTERVAL '1 month')",
            "date_trunc('day', {0})",
            "date_trunc('hour', {0})",
        ]);
        Expr::call(template, vec![point], Type::Timestamp)
    }
}

/// A type that both fit in, as far as that matters here: whether values add exactly, and are small.
pub(super) fn wider(one: &Type, other: &Type) -> Type {
    match (one, other) {
        _ if one == other => one.clone(),
        _ if one.is_small_integer() && other.is_small_integer() => INT,
        (Type::Integer { .. }, Type::Integer { .. }) => BIGINT,
        _ => Type::Double,
    }
}
