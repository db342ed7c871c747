//! Window functions. What depends on the order of equal rows gets an order in which none are.

use super::{Avoid, Generator, Scope};
use crate::fuzz::ast::{Expr, Order, Over, Window};
use crate::fuzz::types::{BIGINT, Family, INT, Type};

impl Generator {
    /// A window function over the rows of a scope; windows that it names are added to `named`.
    pub(super) fn window_function(&mut self, scope: &Scope, named: &mut Vec<(String, Window)>) -> Expr {
        let scope = &Scope { outer: Vec::new(), ..scope.clone() };
        let has_total_order = !scope.unique.is_empty();
        let kind = self.random.below(10);
        let (function, needs_total, may_have_frame) = match kind {
            0..=2 if has_total_order => (self.positional(scope), true, false),
            3 | 4 => {
                let name = self.random.one_of(["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]);
                let ty =
                    if name.contains("percent") || name.contains("cume") { Type::Double } else { BIGINT };
                (Expr::aggregate(name, Vec::new(), ty), false, false)
            }
            _ => (self.framed(scope), false, true),
        };
        let frame = if may_have_frame && self.random.chance(50) { self.frame(has_total_order) } else { None };
        let needs_total = needs_total || frame.is_some_and(|frame| frame.starts_with("ROWS"));
        let mut window = Window {
            base: None,
            partition: self.window_keys(scope, &[0, 1, 1, 2]),
            order: Vec::new(),
            frame: frame.map(str::to_owned),
        };
        let is_by_value = frame.is_some_and(|frame| frame.contains("RANGE BETWEEN 1"));
        if is_by_value {
            let key = self.small_integer(scope);
            let key = Expr::call("CAST({0} AS BIGINT)", vec![key], BIGINT);
            window.order.push(self.ordered(key));
        } else if needs_total || frame.is_some() || kind == 3 || kind == 4 || self.random.chance(50) {
            for key in self.window_keys(scope, &[0, 1, 1, 2]) {
                let order = self.ordered(key);
                window.order.push(order);
            }
            if needs_total {
                window.order.extend(scope.unique.clone().into_iter().map(|key| Order {
                    key,
                    descending: false,
                    nulls_first: false,
                }));
            }
            if window.order.is_empty() {
                let key = self.small_key(scope);
                let order = self.ordered(key);
                window.order.push(order);
            }
        }
        let over = self.named(window, named);
        Expr::Window { function: Box::new(function), over }
    }

    /// Inline, by a name, or as what a named window is gone on from.
    fn named(&mut self, window: Window, named: &mut Vec<(String, Window)>) -> Over {
        if !self.random.chance(30) {
            return Over::Inline(window);
        }
        let name = format!("w{}", named.len() + 1);
        if self.avoids(Avoid::NamedWindows) || self.random.chance(60) {
            named.push((name.clone(), window));
            return Over::Name(name);
        }
        let base = Window { base: None, partition: window.partition, order: Vec::new(), frame: None };
        named.push((name.clone(), base));
        Over::Inline(Window {
            base: Some(name),
            partition: Vec::new(),
            order: window.order,
            frame: window.frame,
        })
    }

    fn window_keys(&mut self, scope: &Scope, counts: &[usize]) -> Vec<Expr> {
        let count = self.random.pick(counts).copied().unwrap_or(1);
        (0..count).map(|_| self.small_key(scope)).collect()
    }

    /// Something that rows are partitioned or ordered by: a column that can be ordered.
    fn small_key(&mut self, scope: &Scope) -> Expr {
        let key = self.leaf_that(scope, |ty| !ty.is_nested());
        key.unwrap_or_else(|| Expr::call("({0} + 0)", vec![Expr::literal("1", INT)], BIGINT))
    }

    fn ordered(&mut self, key: Expr) -> Order {
        Order { key, descending: self.random.chance(40), nulls_first: self.random.chance(50) }
    }

    /// A function of a row's position.
    fn positional(&mut self, scope: &Scope) -> Expr {
        let families: Vec<Family> =
            scope.families().into_iter().filter(|family| !matches!(family, Family::Nested(_))).collect();
        let family = self.random.pick(&families).cloned().unwrap_or(Family::Number);
        let argument = self.leaf(&family, scope);
        let ty = argument.ty();
        let aggregate = |template: &str, arguments, ty| Expr::aggregate(template, arguments, ty);
        match self.random.below(7) {
            0 | 1 => aggregate("row_number()", Vec::new(), BIGINT),
            2 => aggregate(self.random.one_of(["ntile(3)", "ntile(2)"]), Vec::new(), BIGINT),
            3 => {
                let template = self
                    .random
                    .one_of([("{f}({0}) IGNORE NULLS", "{f}({0} IGNORE NULLS)"), ("{f}({0})", "{f}({0})")]);
                let function = self.random.one_of(["lag", "lead", "first_value", "last_value"]);
                let [ours, theirs] =
                    [template.0, template.1].map(|template| template.replace("{f}", function));
                Expr::Call {
                    template: ours,
                    other: Some(theirs),
                    arguments: vec![argument],
                    ty,
                    kind: crate::fuzz::ast::CallKind::Aggregate,
                }
            }
            _ => {
                let template = self.random.one_of([
                    "lag({0})",
                    "lead({0})",
                    "lag({0}, 2)",
                    "lead({0}, 2)",
                    "first_value({0})",
                    "last_value({0})",
                    "nth_value({0}, 2)",
                ]);
                aggregate(template, vec![argument], ty)
            }
        }
    }

    /// An aggregate of the rows of a frame.
    fn framed(&mut self, scope: &Scope) -> Expr {
        match self.random.below(5) {
            0 => Expr::aggregate("count(*)", Vec::new(), BIGINT),
            1 => {
                let argument = self.any_expr(scope, 0);
                Expr::aggregate("count({0})", vec![argument], BIGINT)
            }
            2 => {
                let argument = self.small_integer(scope);
                Expr::aggregate("avg({0})", vec![argument], Type::Double)
            }
            3 => {
                let argument =
                    self.leaf_that(scope, Type::adds_exactly).unwrap_or_else(|| Expr::literal("1", INT));
                let ty = argument.ty();
                Expr::aggregate("sum({0})", vec![argument], ty)
            }
            _ => {
                let argument = self.small_key(scope);
                let ty = argument.ty();
                if ty == Type::Boolean || ty == Type::Binary || ty == Type::Time {
                    return Expr::aggregate("count({0})", vec![argument], BIGINT);
                }
                Expr::aggregate(self.random.one_of(["min({0})", "max({0})"]), vec![argument], ty)
            }
        }
    }

    fn frame(&mut self, has_total_order: bool) -> Option<&'static str> {
        const OF_VALUES: [&str; 6] = [
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
            "GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING",
        ];
        const OF_ROWS: [&str; 5] = [
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            "ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING",
            "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
        ];
        if has_total_order && self.random.chance(50) {
            Some(self.random.one_of(OF_ROWS))
        } else {
            Some(self.random.one_of(OF_VALUES))
        }
    }
}
