//! Expressions of one plan node under names of their own, by which the node above knows them.

use datafusion::common::Column;
use datafusion::logical_expr::Expr;

/// Expressions, each of them once.
pub struct NamedColumns {
    prefix: &'static str,
    expressions: Vec<Expr>,
}

impl NamedColumns {
    /// No expressions yet. Names are `prefix` and a number: the same in equal aggregations, which may be
    /// [computed once](crate::spools) then. They are not visible outside the two levels.
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, expressions: Vec::new() }
    }

    /// The column in which the value of `expr` is found above.
    pub fn add(&mut self, expr: Expr) -> Expr {
        let number = self.expressions.iter().position(|known| known == &expr).unwrap_or_else(|| {
            self.expressions.push(expr);
            self.expressions.len() - 1
        });
        Expr::Column(Column::from_name(self.name(number)))
    }

    /// All expressions under their names.
    pub fn into_expressions(mut self) -> Vec<Expr> {
        let expressions = std::mem::take(&mut self.expressions).into_iter().enumerate();
        expressions.map(|(number, expr)| expr.alias(self.name(number))).collect()
    }

    fn name(&self, number: usize) -> String {
        format!("{}_{}", self.prefix, number + 1)
    }
}
