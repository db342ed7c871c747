//! The rows of the outer query that a sub-query is computed for.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Projection};

/// The different values of the outer columns that a sub-query names: it is computed once for each row of them.
pub struct Domain {
    columns: Vec<Outer>,
    /// The outer query's rows.
    source: Arc<LogicalPlan>,
}

/// A column of the outer query, and its name within the sub-query.
struct Outer {
    column: Column,
    field: FieldRef,
    name: String,
}

impl Domain {
    /// Of those of the `outer` columns that `source` has; `number` tells its columns from those of other sub-queries.
    pub fn new(source: &Arc<LogicalPlan>, outer: &[(FieldRef, Column)], number: usize) -> Self {
        let mut columns: Vec<Outer> = Vec::new();
        for (field, column) in outer {
            let is_known = columns.iter().any(|known| known.column == *column);
            if !is_known && source.schema().has_column(column) {
                let name = format!("__outer_{number}_{}", columns.len());
                columns.push(Outer { column: column.clone(), field: Arc::clone(field), name });
            }
        }
        Self { columns, source: Arc::clone(source) }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn source(&self) -> &Arc<LogicalPlan> {
        &self.source
    }

    /// The same columns of another plan of the same rows.
    pub fn of(self, source: Arc<LogicalPlan>) -> Self {
        Self { source, ..self }
    }

    /// The columns of the outer query.
    pub fn outer_columns(&self) -> Vec<Expr> {
        self.columns.iter().map(|outer| Expr::Column(outer.column.clone())).collect()
    }

    /// Their names within the sub-query, with something behind them where they are needed twice.
    pub fn names(&self, suffix: &str) -> Vec<String> {
        self.columns.iter().map(|outer| format!("{}{suffix}", outer.name)).collect()
    }

    /// The columns within the sub-query.
    pub fn columns(&self) -> Vec<Expr> {
        self.names("").into_iter().map(by_name).collect()
    }

    /// The rows themselves, each once.
    pub fn rows(&self) -> Result<LogicalPlan> {
        let named =
            self.outer_columns().into_iter().zip(self.names("")).map(|(column, name)| column.alias(name));
        let projection = Projection::try_new(named.collect(), Arc::clone(&self.source))?;
        Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(LogicalPlan::Projection(projection)))))
    }

    /// Whether a plan names one of the columns.
    pub fn is_named_in(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        plan.apply(|part| {
            part.apply_expressions(|expression| {
                found |= self.is_named_by(expression)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// Whether an expression names one of the columns.
    pub fn is_named_by(&self, expression: &Expr) -> Result<bool> {
        expression.exists(|part| {
            Ok(matches!(part, Expr::OuterReferenceColumn(_, column) if self.place(column).is_some()))
        })
    }

    /// The place of an outer column.
    pub fn place(&self, column: &Column) -> Option<usize> {
        self.columns.iter().position(|outer| outer.column == *column)
    }

    /// The type of a column.
    pub fn field(&self, place: usize) -> &FieldRef {
        &self.columns[place].field
    }

    /// An expression with the columns under their names within the sub-query.
    pub fn named(&self, expression: Expr) -> Result<Expr> {
        let named = expression.transform(|part| match &part {
            Expr::OuterReferenceColumn(_, column) => match self.place(column) {
                Some(place) => Ok(Transformed::yes(by_name(self.columns[place].name.clone()))),
                None => Ok(Transformed::no(part)),
            },
            _ => Ok(Transformed::no(part)),
        });
        named.data()
    }
}

/// A column that belongs to no table.
pub fn by_name(name: String) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}
