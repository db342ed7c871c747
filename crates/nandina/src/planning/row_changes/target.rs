//! The table whose rows a statement changes.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result as DataFusionResult, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr as PlannedExpr, LogicalPlan, LogicalPlanBuilder, cast, ident};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Assignment, AssignmentTarget, Expr, Ident, ObjectName, Query, SelectItem, TableFactor,
    VisitorMut,
};
use nandina_exec::rows::{ROW_ID, RowTableProvider, Transactions};
use nandina_storage::Table;

use crate::catalog::names::{Names, Place};
use crate::error::{Error, Result};
use crate::planning::insertion::is_default;
use crate::planning::walk::WalkMut as _;
use crate::planning::wrong_plans::normalized;
use crate::planning::{cannot_change, catalog_statement, checks, identities, new_parser, sequence_names};
use crate::suggestion;
use crate::transactions::READ_ONLY;

/// The column that says what `MERGE` does to a row.
pub(super) const ACTION: &str = "action";

pub(super) struct Target {
    pub place: Place,
    /// What the statement calls it.
    pub alias: Ident,
    pub table: Table,
}

impl Target {
    pub async fn of(state: &SessionState, names: &Arc<Names>, factor: &TableFactor) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return Err(Error::unsupported("rows are changed of a table that has a name"));
        };
        Self::named(state, names, name, alias.as_ref().map(|alias| alias.name.clone())).await
    }

    pub async fn named(
        state: &SessionState,
        names: &Arc<Names>,
        name: &ObjectName,
        alias: Option<Ident>,
    ) -> Result<Self> {
        let reference = catalog_statement::reference(name).map_err(Error::from_parser)?;
        let unknown = || Error::UnknownTable { name: reference.to_string(), hint: String::new() };
        let place = names.find(&reference).ok_or_else(unknown)?;
        if place.kind().is_none() {
            return Err(unknown());
        }
        let config = state.config();
        let transactions = Transactions::of_config(config);
        if transactions.is_read_only() {
            return Err(Error::unsupported(READ_ONLY));
        }
        let table = place.tables.make_changeable(&place, &transactions).await?;
        let table = table.ok_or_else(|| cannot_change(&place.name))?;
        if table.schema().fields().iter().any(|field| field.name() == ROW_ID) {
            return Err(Error::unsupported(format!(
                "rows of '{}' cannot be changed, as it has a column called '{ROW_ID}'",
                place.name
            )));
        }
        let alias = alias.unwrap_or_else(|| Ident::with_quote('"', &place.name));
        Ok(Self { place, alias, table })
    }

    pub fn reference(&self) -> TableReference {
        let Place { database, schema, name, .. } = &self.place;
        TableReference::full(database.as_str(), schema.as_str(), name.as_str())
    }

    /// A table function that has its rows, with their ids.
    pub fn rows_to_change(&self) -> String {
        format!("{FUNCTION}() AS {}", self.alias)
    }

    /// A column of it.
    pub fn own(&self, column: &str) -> Expr {
        Expr::CompoundIdentifier(vec![self.alias.clone(), Ident::with_quote('"', column)])
    }

    pub fn fields(&self) -> &[Arc<Field>] {
        self.table.schema().fields()
    }

    /// The name of a column that it has.
    pub fn name_of(&self, column: usize) -> &str {
        match self.fields().get(column) {
            Some(field) => field.name(),
            None => unreachable!("a column that was found is there"),
        }
    }

    /// The number of a column.
    pub fn column(&self, column: &str) -> Result<usize> {
        let fields = self.fields();
        let exact = fields.iter().position(|field| field.name() == column);
        let found =
            exact.or_else(|| fields.iter().position(|field| field.name().eq_ignore_ascii_case(column)));
        found.ok_or_else(|| {
            let hint = suggestion::phrase(column, fields.iter().map(|field| field.name().as_str()));
            Error::UnknownColumn { name: format!("{}.{column}", self.place.name), hint }
        })
    }

    /// What a statement sets columns to, for each column.
    pub fn assigned(&self, state: &SessionState, assignments: &[Assignment]) -> Result<Vec<Option<Expr>>> {
        let mut values: Vec<Option<Expr>> = vec![None; self.fields().len()];
        let mut assign = |name: &ObjectName, value: &Expr| -> Result<()> {
            let parts = catalog_statement::parts(name);
            let column = match parts.as_slice() {
                [column] => column.clone(),
                [table, column] if *table == normalized(&self.alias) => column.clone(),
                _ => {
                    return Err(Error::unsupported(format!(
                        "UPDATE … SET {name}: name a column of the table that is changed"
                    )));
                }
            };
            let at = self.column(&column)?;
            let value = if is_default(value) {
                self.default(state, at)?
            } else {
                identities::check_update(&self.place.tables.rules(&self.place), self.name_of(at))?;
                value.clone()
            };
            match values.get_mut(at) {
                Some(Some(_)) => Err(Error::unsupported(format!("UPDATE sets column '{column}' twice"))),
                Some(place) => {
                    *place = Some(value);
                    Ok(())
                }
                None => Err(Error::bug("a column that was found is not there")),
            }
        };
        for assignment in assignments {
            match (&assignment.target, &assignment.value) {
                (AssignmentTarget::ColumnName(name), value) => assign(name, value)?,
                (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
                    for (name, value) in names.iter().zip(values) {
                        assign(name, value)?;
                    }
                }
                (AssignmentTarget::Tuple(_), value) => {
                    return Err(Error::unsupported(format!(
                        "UPDATE … SET (…) = {value}: write as many values in brackets as columns"
                    )));
                }
            }
        }
        Ok(values)
    }

    /// What each column is to hold.
    pub fn values(&self, state: &SessionState, assignments: &[Assignment]) -> Result<Vec<SelectItem>> {
        let assigned = self.assigned(state, assignments)?;
        let named = assigned.into_iter().zip(self.fields()).enumerate();
        let item =
            |(number, (value, field)): (usize, (Option<Expr>, &Arc<Field>))| SelectItem::ExprWithAlias {
                expr: value.unwrap_or_else(|| self.own(field.name())),
                alias: Ident::with_quote('"', value_name(number)),
            };
        Ok(named.map(item).collect())
    }

    pub fn default(&self, state: &SessionState, column: usize) -> Result<Expr> {
        let rules = self.place.tables.rules(&self.place);
        let expression = rules.default_of(self.name_of(column)).unwrap_or("NULL").to_owned();
        let mut default = new_parser(state, &expression)?.parse_expr().map_err(Error::from_parser)?;
        if let Some(names) = state.config().get_extension::<Names>() {
            sequence_names::complete_default(&names, &self.place, &mut default);
        }
        Ok(default)
    }

    /// Rows with the columns of the table, of its types, behind `others`.
    pub fn columns(&self, rows: LogicalPlan, others: Vec<PlannedExpr>) -> Result<LogicalPlan> {
        let of_column = |(number, field): (usize, &Arc<Field>)| -> PlannedExpr {
            cast(ident(value_name(number)), field.data_type().clone()).alias(field.name())
        };
        let columns = others.into_iter().chain(self.fields().iter().enumerate().map(of_column));
        Ok(LogicalPlanBuilder::from(rows).project(columns.collect::<Vec<_>>())?.build()?)
    }

    /// Rows that have values in the columns that are `NOT NULL`.
    pub fn without_nulls(&self, state: &SessionState, rows: LogicalPlan) -> Result<LogicalPlan> {
        let mut fields = self.fields().iter().filter(|field| !field.is_nullable());
        fields.try_fold(rows, |rows, field| checks::not_null(state, rows, field.name(), &self.place.name))
    }

    /// Rows that keep what the table asks for.
    pub fn checked(&self, state: &SessionState, rows: LogicalPlan) -> Result<LogicalPlan> {
        let checks = self.place.tables.rules(&self.place).checks;
        checks.iter().try_fold(rows, |rows, check| checks::checked(state, rows, check, &self.place.name))
    }
}

/// The id of a row, for [`Target::columns`].
pub(super) fn row_id() -> PlannedExpr {
    ident(ROW_ID)
}

/// What `MERGE` does to a row, for [`Target::columns`].
pub(super) fn action() -> PlannedExpr {
    cast(ident(ACTION), DataType::Int8).alias(ACTION)
}

/// Apart from the names of columns, which values may hide.
pub(super) fn value_name(number: usize) -> String {
    format!("value {number}")
}

pub(super) const FUNCTION: &str = "rows_to_change";

/// `rows_to_change()`: the rows of the table that the statement changes, with their ids.
#[derive(Debug)]
pub(super) struct RowsToChange(pub Table);

impl TableFunctionImpl for RowsToChange {
    fn call_with_args(&self, _: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        Ok(Arc::new(RowTableProvider::new(self.0.clone()).with_row_ids()))
    }
}

/// An expression in which columns without a table, of which `is_own` says so, are those of this one.
pub(super) fn with_table(mut expr: Expr, table: &Ident, is_own: impl Fn(&Ident) -> bool) -> Expr {
    struct Names<'t, F> {
        table: &'t Ident,
        is_own: F,
        /// Queries that the expression is inside of, whose tables may have these columns, and lambdas, whose parameters may.
        inside: usize,
    }
    impl<F: Fn(&Ident) -> bool> VisitorMut for Names<'_, F> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.inside += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.inside -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.inside += usize::from(matches!(expr, Expr::Lambda(_)));
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.inside -= usize::from(matches!(expr, Expr::Lambda(_)));
            if let Expr::Identifier(name) = expr
                && self.inside == 0
                && (self.is_own)(name)
            {
                *expr = Expr::CompoundIdentifier(vec![self.table.clone(), name.clone()]);
            }
            without_table_in_path(expr, self.table);
            ControlFlow::Continue(())
        }
    }
    let _ = expr.walk_mut(&mut Names { table, is_own, inside: 0 });
    expr
}

/// Leaves the table away again where a path with a subscript, as `t.a.b[1]`, has it by itself (`t`), and before members (`a` and `b`): the
/// tree has each of them as an expression.
fn without_table_in_path(expr: &mut Expr, table: &Ident) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let begins_with_table = matches!(access_chain.first(), Some(AccessExpr::Dot(_)))
        && matches!(root.as_ref(), Expr::CompoundIdentifier(path)
            if path.last().is_some_and(|name| normalized(name) == normalized(table)));
    let members = access_chain.iter_mut().filter_map(|access| match access {
        AccessExpr::Dot(member) => Some(member),
        AccessExpr::Subscript(_) => None,
    });
    for part in members.chain(begins_with_table.then_some(root.as_mut())) {
        if let Expr::CompoundIdentifier(path) = &*part
            && let [first, name] = path.as_slice()
            && first == table
        {
            let name = name.clone();
            *part = Expr::Identifier(name);
        }
    }
}
