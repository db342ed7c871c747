//! Expressions of one plan node under names of their own, by which the node above knows them.

use datafusion::common::Column;
use datafusion::common::alias::AliasGenerator;
use datafusion::logical_expr::Expr;

/// Expressions, each of them once.
pub struct NamedColumns<'a> {
    names: &'a AliasGenerator,
    prefix: &'static str,
    columns: Vec<(Expr, String)>,
}

impl<'a> NamedColumns<'a> {
    /// No expressions yet; names will begin with `prefix` and be unique in the query.
    pub fn new(names: &'a AliasGenerator, prefix: &'static str) -> Self {
        Self { names, prefix, columns: Vec::new() }
    }

    /// The column in which the value of `expr` is found above.
    pub fn add(&mut self, expr: Expr) -> Expr {
        let known = self.columns.iter().find(|(other, _)| other == &expr).map(|(_, name)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = self.names.next(self.prefix);
            self.columns.push((expr, name.clone()));
            name
        });
        Expr::Column(Column::from_name(name))
    }

    /// All expressions under their names.
    pub fn into_expressions(self) -> Vec<Expr> {
        self.columns.into_iter().map(|(expr, name)| expr.alias(name)).collect()
    }
}
