//! Conditions, in three-valued logic.

use super::{Generator, Scope};
use crate::fuzz::ast::Expr;
use crate::fuzz::types::{Family, Type};

impl Generator {
    /// A condition.
    pub(super) fn boolean(&mut self, scope: &Scope, depth: usize) -> Expr {
        if depth > 0 {
            if self.random.chance(20)
                && let Some(query) = self.query_condition(scope, depth - 1)
            {
                return query;
            }
            if self.random.chance(40) {
                return self.connective(scope, depth - 1);
            }
        }
        match self.random.below(10) {
            0..=4 => self.comparison(scope, depth),
            5 => {
                let one = self.any_expr(scope, depth.saturating_sub(1));
                let template = self.random.one_of(["({0} IS NULL)", "({0} IS NOT NULL)"]);
                Expr::call(template, vec![one], Type::Boolean)
            }
            6 => self.range(scope, depth),
            7 => self.list(scope, depth),
            8 => {
                let one = self.expr(&Family::Text, scope, depth.saturating_sub(1));
                let template = self.random.one_of([
                    "({0} LIKE 'a%')",
                    "({0} NOT LIKE '%b%')",
                    "({0} LIKE '_')",
                    "({0} LIKE '%')",
                    "({0} ILIKE 'A%')",
                    "({0} LIKE 'a text%')",
                    "starts_with({0}, 'a')",
                ]);
                Expr::call(template, vec![one], Type::Boolean)
            }
            _ => {
                let one = self.leaf(&Family::Boolean, scope);
                let template =
                    self.random.one_of(["({0})", "(NOT {0})", "({0} IS TRUE)", "({0} IS NOT FALSE)"]);
                Expr::call(template, vec![one], Type::Boolean)
            }
        }
    }

    fn connective(&mut self, scope: &Scope, depth: usize) -> Expr {
        let one = self.boolean(scope, depth);
        let template = self.random.one_of([
            "({0} AND {1})",
            "({0} OR {1})",
            "({0} OR {1})",
            "(NOT {0})",
            "({0} IS NULL)",
            "({0} IS NOT TRUE)",
            "(CASE WHEN {0} THEN {1} ELSE FALSE END)",
            "({0} = {1})",
            "coalesce({0}, {1})",
        ]);
        let mut arguments = vec![one];
        if template.contains("{1}") {
            arguments.push(self.boolean(scope, depth));
        }
        Expr::call(template, arguments, Type::Boolean)
    }

    fn comparison(&mut self, scope: &Scope, depth: usize) -> Expr {
        let families = scope.families();
        let family = self.random.pick(&families).cloned().unwrap_or(Family::Number);
        let depth = depth.saturating_sub(1);
        let one = self.expr(&family, scope, depth);
        let other =
            if self.random.chance(50) { self.literal(&family) } else { self.expr(&family, scope, depth) };
        let template = if matches!(family, Family::Nested(_)) {
            self.random.one_of(["({0} = {1})", "({0} <> {1})", "({0} IS DISTINCT FROM {1})"])
        } else {
            self.random.one_of([
                "({0} = {1})",
                "({0} = {1})",
                "({0} <> {1})",
                "({0} < {1})",
                "({0} <= {1})",
                "({0} > {1})",
                "({0} >= {1})",
                "({0} IS DISTINCT FROM {1})",
                "({0} IS NOT DISTINCT FROM {1})",
            ])
        };
        Expr::call(template, vec![one, other], Type::Boolean)
    }

    fn ordered_family(&mut self, scope: &Scope) -> Family {
        let families: Vec<Family> =
            scope.families().into_iter().filter(|family| !matches!(family, Family::Nested(_))).collect();
        self.random.pick(&families).cloned().unwrap_or(Family::Number)
    }

    fn range(&mut self, scope: &Scope, depth: usize) -> Expr {
        let family = self.ordered_family(scope);
        let one = self.expr(&family, scope, depth.saturating_sub(1));
        let arguments = vec![one, self.leaf(&family, scope), self.literal(&family)];
        let template = self.random.one_of([
            "({0} BETWEEN {1} AND {2})",
            "({0} NOT BETWEEN {1} AND {2})",
            "({0} BETWEEN {2} AND {1})",
        ]);
        Expr::call(template, arguments, Type::Boolean)
    }

    fn list(&mut self, scope: &Scope, depth: usize) -> Expr {
        let family = self.ordered_family(scope);
        let mut arguments = vec![self.expr(&family, scope, depth.saturating_sub(1))];
        let count = self.random.one_of([1, 2, 3, 5]);
        for _ in 0..count {
            arguments.push(if self.random.chance(90) {
                self.literal(&family)
            } else {
                self.leaf(&family, scope)
            });
        }
        let items: Vec<String> = (1..=count).map(|number| format!("{{{number}}}")).collect();
        let operator = self.random.one_of(["IN", "NOT IN"]);
        Expr::call(format!("({{0}} {operator} ({}))", items.join(", ")), arguments, Type::Boolean)
    }
}
