//! What can only be written out when the columns of tables are known, or values in them.
//!
//! ```text
//!   a NATURAL JOIN b                    a JOIN b USING (k): the columns that both have       [natural_joins]
//!   SELECT a AS b, b + 1 FROM t         SELECT a AS b, a + 1 FROM t, if t has no b          [aliases]
//!   SELECT min(COLUMNS(*)) FROM t       SELECT min(t.a) AS a, min(t.b) AS b FROM t           [star_columns]
//!   SELECT Name FROM t                  SELECT "Name" FROM t, if t has no name               [cases]
//!   PIVOT t ON y USING sum(x)           SELECT …, sum(x) FILTER (WHERE y = 1) AS "1" …       [pivots]
//!   SUMMARIZE t, (DESCRIBE t)           SELECT min(a), max(a), … FROM t                      [summaries]
//!   SELECT unnest(s) FROM t             SELECT s['a'] AS a, s['b'] AS b FROM t               [unnests]
//! ```
//!
//! Which columns a table has, only the planner knows: `SELECT * FROM …` is planned for it, with the common table
//! expressions of all queries around. A visitor stops where it needs to know something, is told, and begins anew; what
//! stands inside is written first.

mod aliases;
mod cases;
mod natural_joins;
mod pivots;
mod star_columns;
mod summaries;
pub(crate) mod unnests;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, JoinConstraint, ObjectNamePart, Query, Select, SetExpr, Statement as SqlStatement,
    TableFactor, TableWithJoins, Value, VisitorMut, With,
};

use crate::error::{Error, Result};
use crate::planning::trees::join_constraint;
use crate::planning::walk::{Walk, walk_relations};
use crate::planning::wrong_plans::{normalized, select_all_from, visit_queries};
use crate::planning::{output_names, syntax};
use crate::planning::{physical_plan, plan_of};

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
    unknown: Unknown,
}

/// What becomes of a place whose questions cannot be answered, as its tables name columns of a query around them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refused,
    /// It stays as it is, and is passed over from now on: DataFusion may find the columns.
    PassedOver,
    /// It is changed so that it asks no more.
    Settled,
}

/// In a box, as every step of a visitor has room for it on the stack.
type Stop = Box<Result<Asked>>;

/// What is done only for statements that cannot be planned otherwise, as it plans them, or their tables, again.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Further {
    /// The columns that `*` stands for.
    pub stars: bool,
    /// The capitals of names.
    pub cases: bool,
    /// Sub-queries in `FROM` may name columns of the tables before them.
    pub laterals: bool,
}

/// Writes all of them out in a statement.
pub(crate) async fn write_out(
    state: &SessionState,
    statement: &mut Statement,
    further: Further,
) -> Result<()> {
    let (mut answers, mut passed_over, mut is_unanswered, mut settled_places) = (None, 0, false, 0);
    loop {
        let mut visitor = Lookups {
            state,
            further,
            places: 0,
            settled_places,
            answers: answers.take(),
            passed_over,
            is_unanswered: std::mem::take(&mut is_unanswered),
            is_view: false,
            queries: Vec::new(),
        };
        let visited = visit_queries(statement, &mut visitor);
        settled_places = visitor.settled_places;
        match visited {
            ControlFlow::Continue(()) => return Ok(()),
            ControlFlow::Break(asked) => {
                let Asked { questions, unknown } = (*asked)?;
                let mut found = Vec::with_capacity(questions.len());
                let asked = questions.len();
                for question in questions {
                    match answer(state, question).await {
                        Ok(answer) => found.push(answer),
                        Err(error) if unknown == Unknown::Refused => return Err(error),
                        Err(_) => break,
                    }
                }
                match unknown {
                    _ if found.len() == asked => answers = Some(found),
                    Unknown::Settled => is_unanswered = true,
                    Unknown::PassedOver | Unknown::Refused => passed_over += 1,
                }
            }
        }
    }
}

async fn answer(state: &SessionState, question: Question) -> Result<Answer> {
    let (Question::Columns(query) | Question::Values(query)) = &question;
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))));
    // What stands inside is written already: nothing is left to be looked up in other ways.
    let plan = Box::pin(plan_of(state, statement, Further::default())).await?;
    match question {
        Question::Columns(_) => {
            let columns = plan.schema().iter().map(|(table, field)| Column {
                table: table.map(|table| table.table().to_owned()),
                name: output_names::without_mark(field.name()).to_owned(),
                data_type: field.data_type().clone(),
            });
            Ok(Answer::Columns(columns.collect()))
        }
        Question::Values(_) => {
            let plan = Box::pin(physical_plan(&Arc::new(state.clone()), plan)).await?;
            let mut values = Vec::new();
            for batch in collect(plan, state.task_ctx()).await? {
                let texts = nandina_functions::texts_of(batch.column(0))?;
                values.extend(texts.iter().flatten().map(str::to_owned));
            }
            Ok(Answer::Values(values))
        }
    }
}

/// Writes one place out, if it has been told what that needs, and stops at the next.
struct Lookups<'a> {
    state: &'a SessionState,
    further: Further,
    /// The places where capitals can be settled: how many the visitor has seen, and how many have been.
    places: usize,
    settled_places: usize,
    /// The answers to the questions of the first place.
    answers: Option<Vec<Answer>>,
    /// Places to pass over before.
    passed_over: usize,
    /// Whether the first place that is settled then could not be answered.
    is_unanswered: bool,
    /// Whether the statement makes a view.
    is_view: bool,
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
    /// Those that a query may name where the visitor is. One that is recursive, and named, stands for its first rows.
    fn visible(&self, query: &Query) -> Vec<Cte> {
        let around =
            self.coming.front().filter(|around| self.is_recursive && names(query, &around.alias.name));
        let first_rows = around.and_then(|around| match around.query.body.as_ref() {
            SetExpr::SetOperation { left, .. } if !names(left.as_ref(), &around.alias.name) => {
                let mut first_rows = around.clone();
                first_rows.query.body = left.clone();
                Some(first_rows)
            }
            _ => None,
        });
        self.known.iter().cloned().chain(first_rows).collect()
    }
}

impl VisitorMut for Lookups<'_> {
    type Break = Stop;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<Stop> {
        self.is_view |= matches!(statement, SqlStatement::CreateView(_));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        let with = query.with.as_ref();
        let coming = with.map(|with| with.cte_tables.clone()).unwrap_or_default();
        let is_recursive = with.is_some_and(|with| with.recursive);
        self.queries.push(Expressions { known: Vec::new(), coming: coming.into(), is_recursive });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by)
            && let Some(columns) = self.columns_for_cases(&select.from)?
        {
            cases::settle(order, &columns);
        }
        self.queries.pop();
        // Those of a query are visited before anything else of it.
        if let Some(around) = self.queries.last_mut()
            && let Some(mut left) = around.coming.pop_front()
        {
            left.query = Box::new(query.clone());
            around.known.push(left);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Stop> {
        if self.further.laterals {
            sub_queries_behind_tables(select).for_each(|lateral| *lateral = true);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Stop> {
        select.from.iter_mut().try_for_each(|tables| natural_joins::resolve(self, tables))?;
        if let Some(columns) = self.columns_for_cases(&select.from)? {
            cases::settle(select, &columns);
        }
        if aliases::has_some(select) {
            let from = &select.from;
            let columns = match from.is_empty() {
                true => Some(Vec::new()),
                false => self
                    .answers(|lookups| lookups.columns_of_tables(from), Unknown::Settled)?
                    .map(|mut answers| answers.remove(0).columns()),
            };
            match columns {
                Some(columns) => {
                    // A column whose capitals are others is meant rather than an output.
                    let as_written = columns.iter().map(|column| column.name.clone());
                    let small = columns.iter().map(|column| column.name.to_lowercase());
                    let columns = as_written.chain(small).collect();
                    broken_by(aliases::write_out(select, &columns, |function| self.is_volatile(function)))?;
                }
                None => aliases::leave(select),
            }
        }
        let question = match unnests::question(select) {
            Ok(question) => question,
            Err(error) => return ControlFlow::Break(Box::new(Err(error))),
        };
        if let Some(question) = question
            && let Some(mut answers) = self.answers(
                |lookups| Ok(vec![Question::Columns(lookups.scoped(question)?)]),
                Unknown::PassedOver,
            )?
        {
            broken_by(unnests::write_out(select, &answers.remove(0).columns()))?;
        }
        if self.further.stars
            && star_columns::has_star(select)
            && let Some(mut answers) =
                self.answers(|lookups| lookups.columns_of_tables(&select.from), Unknown::PassedOver)?
        {
            star_columns::write_stars_out(select, &answers.remove(0).columns());
        }
        if !star_columns::has_some(select) {
            return ControlFlow::Continue(());
        }
        match self.answers(|lookups| lookups.columns_of_tables(&select.from), Unknown::Refused)? {
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
                let Some(answers) =
                    self.answers(|lookups| lookups.questions_of_pivot(&pivot), Unknown::Refused)?
                else {
                    return ControlFlow::Continue(());
                };
                let is_aggregate = |name: &str| self.state.aggregate_functions().contains_key(name);
                pivot.written_out(answers, is_aggregate).map(Some)
            }
            Ok(None) => match summaries::Table::of(factor) {
                Ok(Some(table)) => {
                    let questions =
                        |lookups: &Self| Ok(vec![Question::Columns(lookups.scoped(table.source().clone())?)]);
                    let Some(mut answers) = self.answers(questions, Unknown::Refused)? else {
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
        unknown: Unknown,
    ) -> ControlFlow<Stop, Option<Vec<Answer>>> {
        match unknown {
            Unknown::PassedOver if self.passed_over > 0 => {
                self.passed_over -= 1;
                return ControlFlow::Continue(None);
            }
            Unknown::Settled if std::mem::take(&mut self.is_unanswered) => {
                return ControlFlow::Continue(None);
            }
            _ => {}
        }
        match self.answers.take() {
            Some(answers) => ControlFlow::Continue(Some(answers)),
            None => {
                let asked = questions(self).map(|questions| Asked { questions, unknown });
                ControlFlow::Break(Box::new(asked))
            }
        }
    }

    /// The columns of tables, for the capitals of names, at a place where those have not been settled.
    fn columns_for_cases(&mut self, tables: &[TableWithJoins]) -> ControlFlow<Stop, Option<Vec<Column>>> {
        if !self.further.cases || tables.is_empty() {
            return ControlFlow::Continue(None);
        }
        self.places += 1;
        if self.places <= self.settled_places {
            return ControlFlow::Continue(None);
        }
        let mut tables = tables.to_vec();
        tables.iter_mut().for_each(without_conditions);
        let answers = self.answers(|lookups| lookups.columns_of_tables(&tables), Unknown::Settled)?;
        self.settled_places += 1;
        ControlFlow::Continue(answers.map(|mut answers| answers.remove(0).columns()))
    }

    fn is_volatile(&self, function: &str) -> bool {
        let function = self.state.scalar_functions().get(function);
        function.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
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
        let values = pivot.queries_of_values()?;
        if self.is_view && !values.is_empty() {
            return Err(Error::unsupported(
                "the columns of a view do not change with its rows; say which values a PIVOT in a view has, ON x IN (…)",
            ));
        }
        for values in values {
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
            let cte_tables = around.visible(&query);
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

/// Joins without their conditions, whose names may not be settled yet.
fn without_conditions(tables: &mut TableWithJoins) {
    let TableWithJoins { relation, joins } = tables;
    for factor in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            without_conditions(table_with_joins);
        }
    }
    for join in joins {
        if let Some(constraint @ JoinConstraint::On(_)) = join_constraint(&mut join.join_operator) {
            *constraint = JoinConstraint::On(Expr::Value(Value::Boolean(true).with_empty_span()));
        }
    }
}

/// Whether a sub-query in `FROM`, which is not said to be lateral, could name columns of tables before it.
pub(crate) fn may_be_lateral(statement: &mut Statement) -> bool {
    struct Found;
    impl VisitorMut for Found {
        type Break = ();

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            let is_found = sub_queries_behind_tables(select).any(|lateral| !*lateral);
            if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    visit_queries(statement, &mut Found).is_break()
}

/// Whether they are lateral, of the sub-queries in `FROM` that stand behind another table.
fn sub_queries_behind_tables(select: &mut Select) -> impl Iterator<Item = &mut bool> {
    let tables = select.from.iter_mut().flat_map(|tables| {
        std::iter::once(&mut tables.relation).chain(tables.joins.iter_mut().map(|join| &mut join.relation))
    });
    tables.skip(1).filter_map(|table| match table {
        TableFactor::Derived { lateral, .. } => Some(lateral),
        _ => None,
    })
}

/// Whether a table of this name stands in a part of a statement.
fn names(part: &impl Walk, table: &Ident) -> bool {
    walk_relations(part, |name| match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] if normalized(name) == normalized(table) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
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
