//! What can only be written out when the columns of tables are known, or values in them.
//!
//! ```text
//!   a NATURAL JOIN b                    a JOIN b USING (k): the columns that both have       [natural_joins]
//!   SELECT a AS b, b + 1 FROM t         SELECT a AS b, a + 1 FROM t, if t has no b          [aliases]
//!   SELECT min(COLUMNS(*)) FROM t       SELECT min(t.a) AS a, min(t.b) AS b FROM t           [star_columns]
//!   PIVOT t ON y USING sum(x)           SELECT …, sum(x) FILTER (WHERE y = 1) AS "1" …       [pivots]
//!   SUMMARIZE t, (DESCRIBE t)           SELECT min(a), max(a), … FROM t                      [summaries]
//! ```
//!
//! Which columns a table has, only the planner knows: `SELECT * FROM …` is planned for it, with the common table
//! expressions of all queries around. A visitor stops where it needs to know something, is told, and begins anew; what
//! stands inside is written first.

mod aliases;
mod natural_joins;
mod pivots;
mod star_columns;
mod summaries;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::AsArray as _;
use arrow::datatypes::DataType;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, Ident, Query, Select, SetExpr, Statement as SqlStatement, TableFactor, TableWithJoins, VisitorMut,
    With,
};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::wrong_plans::{select_all_from, visit_queries};
use crate::planning::{logical_plan, physical_plan};

/// A column of a table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// What it is qualified with.
    pub table: Option<String>,
    pub name: String,
    pub data_type: DataType,
}

impl Column {
    /// Its name, quoted.
    pub fn ident(&self) -> Ident {
        Ident::with_quote('"', &self.name)
    }
}

/// What has to be known before something can be written.
enum Question {
    /// The columns of a query.
    Columns(Query),
    /// The texts that a query of one column gives.
    Values(Query),
}

enum Answer {
    Columns(Vec<Column>),
    Values(Vec<String>),
}

impl Answer {
    fn columns(self) -> Vec<Column> {
        match self {
            Answer::Columns(columns) => columns,
            Answer::Values(_) => unreachable!("columns were asked for"),
        }
    }

    fn values(self) -> Vec<String> {
        match self {
            Answer::Values(values) => values,
            Answer::Columns(_) => unreachable!("values were asked for"),
        }
    }
}

/// The questions of one place.
struct Asked {
    questions: Vec<Question>,
    /// Whether DataFusion may find what cannot be answered: columns of tables that name those of a query around them.
    may_stay: bool,
}

/// In a box, as every step of a visitor has room for it on the stack.
type Stop = Box<Result<Asked>>;

/// Writes all of them out in a statement.
pub(crate) async fn write_out(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let (mut answers, mut passed_over) = (None, 0);
    loop {
        let mut visitor = Lookups { state, answers: answers.take(), passed_over, queries: Vec::new() };
        match visit_queries(statement, &mut visitor) {
            ControlFlow::Continue(()) => return Ok(()),
            ControlFlow::Break(asked) => {
                let Asked { questions, may_stay } = (*asked)?;
                let mut found = Vec::with_capacity(questions.len());
                let asked = questions.len();
                for question in questions {
                    match answer(state, question).await {
                        Ok(answer) => found.push(answer),
                        Err(_) if may_stay => break,
                        Err(error) => return Err(error),
                    }
                }
                match found.len() == asked {
                    true => answers = Some(found),
                    false => passed_over += 1,
                }
            }
        }
    }
}

async fn answer(state: &SessionState, question: Question) -> Result<Answer> {
    let (Question::Columns(query) | Question::Values(query)) = &question;
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))));
    let plan = Box::pin(logical_plan(state, statement)).await?;
    match question {
        Question::Columns(_) => {
            let columns = plan.schema().iter().map(|(table, field)| Column {
                table: table.map(|table| table.table().to_owned()),
                name: field.name().clone(),
                data_type: field.data_type().clone(),
            });
            Ok(Answer::Columns(columns.collect()))
        }
        Question::Values(_) => {
            let plan = Box::pin(physical_plan(&Arc::new(state.clone()), plan)).await?;
            let mut values = Vec::new();
            for batch in collect(plan, state.task_ctx()).await? {
                let texts = arrow::compute::cast(batch.column(0), &DataType::Utf8View)?;
                values.extend(texts.as_string_view().iter().flatten().map(str::to_owned));
            }
            Ok(Answer::Values(values))
        }
    }
}

/// Writes one place out, if it has been told what that needs, and stops at the next.
struct Lookups<'a> {
    state: &'a SessionState,
    /// The answers to the questions of the first place.
    answers: Option<Vec<Answer>>,
    /// Places to pass over before.
    passed_over: usize,
    /// The queries around the place where the visitor is, from the outermost.
    queries: Vec<Expressions>,
}

/// Common table expressions of a query.
struct Expressions {
    known: Vec<Cte>,
    /// Those that the visitor has not left yet, the first of which it may be in.
    coming: VecDeque<Cte>,
    is_recursive: bool,
}

impl Expressions {
    /// Those that can be named where the visitor is. One that is recursive stands for its first rows.
    fn visible(&self) -> impl Iterator<Item = Cte> {
        let mut around = self.coming.front().filter(|_| self.is_recursive).cloned();
        if let Some(expression) = &mut around
            && let SetExpr::SetOperation { left, .. } = expression.query.body.as_ref()
        {
            let first_rows = left.clone();
            expression.query.body = first_rows;
        }
        self.known.iter().cloned().chain(around)
    }
}

impl VisitorMut for Lookups<'_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        let with = query.with.as_ref();
        let coming = with.map(|with| with.cte_tables.clone()).unwrap_or_default();
        let is_recursive = with.is_some_and(|with| with.recursive);
        self.queries.push(Expressions { known: Vec::new(), coming: coming.into(), is_recursive });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Stop> {
        self.queries.pop();
        // Those of a query are visited before anything else of it.
        if let Some(around) = self.queries.last_mut()
            && let Some(left) = around.coming.pop_front()
        {
            around.known.push(left);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Stop> {
        select.from.iter_mut().try_for_each(|tables| natural_joins::resolve(self, tables))?;
        if aliases::has_some(select) {
            let from = &select.from;
            let columns = match from.is_empty() {
                true => Some(Vec::new()),
                false => self
                    .answers(|lookups| lookups.columns_of_tables(from), true)?
                    .map(|mut answers| answers.remove(0).columns()),
            };
            if let Some(columns) = columns {
                aliases::write_out(select, &columns.into_iter().map(|column| column.name).collect());
            }
        }
        if !star_columns::has_some(select) {
            return ControlFlow::Continue(());
        }
        match self.answers(|lookups| lookups.columns_of_tables(&select.from), false)? {
            Some(mut answers) => broken_by(star_columns::write_out(select, &answers.remove(0).columns())),
            None => ControlFlow::Continue(()),
        }
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Stop> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            return natural_joins::resolve(self, table_with_joins);
        }
        let rotated = match pivots::Pivot::of(factor) {
            Ok(Some(pivot)) => {
                let Some(answers) = self.answers(|lookups| lookups.questions_of_pivot(&pivot), false)? else {
                    return ControlFlow::Continue(());
                };
                let is_aggregate = |name: &str| self.state.aggregate_functions().contains_key(name);
                pivot.written_out(answers, is_aggregate).map(Some)
            }
            Ok(None) => match summaries::Table::of(factor) {
                Ok(Some(table)) => {
                    let questions =
                        |lookups: &Self| Ok(vec![Question::Columns(lookups.scoped(table.source().clone())?)]);
                    let Some(mut answers) = self.answers(questions, false)? else {
                        return ControlFlow::Continue(());
                    };
                    table.written_out(&answers.remove(0).columns()).map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match rotated {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(query)) => {
                let alias = match factor {
                    TableFactor::Table { alias, .. }
                    | TableFactor::Pivot { alias, .. }
                    | TableFactor::Unpivot { alias, .. } => alias.take(),
                    _ => None,
                };
                *factor =
                    TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(Err(error))),
        }
    }
}

impl Lookups<'_> {
    /// The answers to the questions of a place, or a stop to ask them; nothing if the place is to be passed over.
    fn answers(
        &mut self,
        questions: impl FnOnce(&Self) -> Result<Vec<Question>>,
        may_stay: bool,
    ) -> ControlFlow<Stop, Option<Vec<Answer>>> {
        if may_stay && self.passed_over > 0 {
            self.passed_over -= 1;
            return ControlFlow::Continue(None);
        }
        match self.answers.take() {
            Some(answers) => ControlFlow::Continue(Some(answers)),
            None => {
                let asked = questions(self).map(|questions| Asked { questions, may_stay });
                ControlFlow::Break(Box::new(asked))
            }
        }
    }

    fn columns_of_tables(&self, tables: &[TableWithJoins]) -> Result<Vec<Question>> {
        let mut query = syntax::query("SELECT *")?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.from = tables.to_vec();
        }
        Ok(vec![Question::Columns(self.scoped(query)?)])
    }

    fn questions_of_pivot(&self, pivot: &pivots::Pivot) -> Result<Vec<Question>> {
        let mut questions = vec![Question::Columns(self.scoped(pivot.source.clone())?)];
        for values in pivot.queries_of_values()? {
            questions.push(Question::Values(self.scoped(values)?));
        }
        Ok(questions)
    }

    /// All columns of tables.
    fn all_of(&self, tables: TableWithJoins) -> Result<Question> {
        Ok(Question::Columns(self.scoped(select_all_from(tables)?)?))
    }

    /// A query with the common table expressions of all queries around it.
    fn scoped(&self, mut query: Query) -> Result<Query> {
        for around in self.queries.iter().rev() {
            let cte_tables: Vec<Cte> = around.visible().collect();
            if cte_tables.is_empty() {
                continue;
            }
            let with_token = AttachedToken::empty();
            let with = With { with_token, recursive: around.is_recursive, cte_tables };
            if query.with.is_some() {
                let mut outer = syntax::query("SELECT 1")?;
                outer.body = Box::new(SetExpr::Query(Box::new(query)));
                query = outer;
            }
            query.with = Some(with);
        }
        Ok(query)
    }
}

fn broken_by(result: Result<()>) -> ControlFlow<Stop> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(Err(error))),
    }
}

/// A query from a text that selects from `(SELECT 1) AS source`, which `source` takes the place of.
fn over(text: &str, source: Query) -> Result<Query> {
    let mut query = syntax::query(text)?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::bug("a query over a source is one SELECT"));
    };
    match select.from.first_mut().map(|tables| &mut tables.relation) {
        Some(TableFactor::Derived { subquery, .. }) => **subquery = source,
        _ => return Err(Error::bug("a query over a source selects from it")),
    }
    Ok(query)
}
