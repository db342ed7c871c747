//! What our answer to a query is worth.
//!
//! ```text
//!   the recorded answer ──┬─ ours is the same, and nothing was refused before ──► agrees
//!                         └─ else ──► DuckDB, live ─┬─ as ours ─────────────────► agrees
//!                                                   ├─ another answer ──────────► wrong
//!                                                   └─ none ─┬─ nothing refused ► wrong
//!                                                            └─ something ──────► undecided
//! ```
//!
//! Where SQL leaves open what the answer is (some rows of many, values in the order in which they come), answers
//! that differ no more than that are undecided.

use super::arbiter::Verdict;
use super::cells::{Row, Rows, shown};
use super::compare::{Order, same_collections, same_rows};
use super::outcome::Class;
use super::record::{Query, Recorded};
use super::{order, recorded, statement};

/// A class, why, and what DuckDB answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Judgement {
    pub class: Class,
    pub reason: String,
    pub duckdb: String,
}

impl Judgement {
    fn new(class: Class, reason: impl Into<String>) -> Self {
        Judgement { class, reason: reason.into(), duckdb: String::new() }
    }
}

/// Judges the rows that we answered to a query. `ask` gets whether DuckDB is to answer under settings like ours.
pub fn judge(
    ours: &Rows,
    query: &Query,
    was_refused: bool,
    mut ask: impl FnMut(bool) -> Option<Verdict>,
) -> Judgement {
    let order = Order::of(query.sort, order::keys(&query.sql, &ours.names));
    let as_recorded = recorded::agrees(ours, query, &order);
    if as_recorded == Some(true) && !was_refused {
        return Judgement::new(Class::Agrees, "");
    }
    let live = ask(false);
    let Some(Ok(theirs)) = &live else {
        let duckdb = match &live {
            Some(Err(error)) => format!("error: {error}"),
            _ => String::new(),
        };
        let judgement = match as_recorded {
            Some(true) | None => Judgement::new(Class::Agrees, ""),
            Some(false)
                if is_open_difference(ours, &query.sql, as_rows(&query.recorded, ours).as_deref()) =>
            {
                Judgement::new(Class::Undecided, "SQL leaves the answer open")
            }
            Some(false) if was_refused => Judgement::new(Class::Undecided, "something was refused before"),
            Some(false) => Judgement::new(Class::Wrong, "not as recorded"),
        };
        return Judgement { duckdb, ..judgement };
    };
    if same_rows(&ours.rows, theirs, &ours.kinds, &order) {
        return Judgement::new(Class::Agrees, "as DuckDB");
    }
    let duckdb = shown(theirs);
    if let Some(Ok(ours_way)) = ask(true)
        && same_rows(&ours.rows, &ours_way, &ours.kinds, &order)
    {
        return Judgement { duckdb, ..Judgement::new(Class::Agrees, "as DuckDB under settings like ours") };
    }
    let judgement = if is_open_difference(ours, &query.sql, Some(theirs)) {
        Judgement::new(Class::Undecided, "SQL leaves the answer open")
    } else if as_recorded == Some(true) {
        Judgement::new(Class::Undecided, "as recorded, but not as DuckDB after what was accepted")
    } else if same_rows(&ours.rows, theirs, &ours.kinds, &Order::Any) {
        Judgement::new(Class::Wrong, "the rows are in another order")
    } else {
        Judgement::new(Class::Wrong, "not as DuckDB")
    };
    Judgement { duckdb, ..judgement }
}

/// Recorded lines as rows of one cell, where nothing but their number and parts matters.
fn as_rows(recorded: &Recorded, ours: &Rows) -> Option<Vec<Row>> {
    match recorded {
        Recorded::Lines(lines) => {
            let columns = ours.kinds.len().max(1);
            let is_a_value_a_line = lines.len() == columns * ours.rows.len();
            let chunk = if is_a_value_a_line { columns } else { 1 };
            Some(lines.chunks(chunk).map(|chunk| vec![Some(chunk.join(","))]).collect())
        }
        _ => None,
    }
}

/// Whether answers may differ like this.
fn is_open_difference(ours: &Rows, sql: &str, theirs: Option<&[Row]>) -> bool {
    let Some(theirs) = theirs else { return statement::takes_some_rows(sql) };
    if ours.rows.len() != theirs.len() {
        return false;
    }
    statement::takes_some_rows(sql)
        || statement::depends_on_order(sql)
        || statement::collects(sql) && same_collections(&ours.rows, theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::cells::Kind;
    use crate::corpus::record::SortMode;

    fn rows(values: &[&str]) -> Vec<Row> {
        values.iter().map(|value| vec![Some((*value).to_owned())]).collect()
    }

    fn class(
        sql: &str,
        ours: &[&str],
        recorded: &[&str],
        was_refused: bool,
        live: Option<Verdict>,
    ) -> (Class, String) {
        let ours = Rows { kinds: vec![Kind::Exact], names: vec!["a".into()], rows: rows(ours) };
        let recorded = Recorded::Lines(recorded.iter().map(|line| (*line).to_owned()).collect());
        let query = Query {
            connection: String::new(),
            sql: sql.to_owned(),
            types: "I".to_owned(),
            sort: SortMode::None,
            label: None,
            recorded,
        };
        let judgement = judge(&ours, &query, was_refused, |_| live.clone());
        (judgement.class, judgement.reason)
    }

    #[test]
    fn recorded_answers_hold_until_something_is_refused() {
        let sql = "SELECT a FROM t ORDER BY a";
        assert_eq!(class(sql, &["1"], &["1"], false, None).0, Class::Agrees);
        assert_eq!(class(sql, &["1"], &["2"], false, None).0, Class::Wrong);
        assert_eq!(class(sql, &["1"], &["2"], true, None).0, Class::Undecided);
        assert_eq!(class(sql, &["1"], &["2"], true, Some(Err("no".into()))).0, Class::Undecided);
        assert_eq!(class(sql, &["1"], &["2"], true, Some(Ok(rows(&["1"])))).0, Class::Agrees);
        assert_eq!(class(sql, &["1"], &["2"], true, Some(Ok(rows(&["2"])))).0, Class::Wrong);
        assert_eq!(class(sql, &["1"], &["1"], true, Some(Ok(rows(&["2"])))).0, Class::Undecided);
    }

    #[test]
    fn orders_and_what_is_left_open() {
        let live = Some(Ok(rows(&["2", "1"])));
        let (class_of, reason) =
            class("SELECT a FROM t ORDER BY a DESC", &["1", "2"], &["2", "1"], false, live);
        assert_eq!((class_of, reason.as_str()), (Class::Wrong, "the rows are in another order"));
        let limited = "SELECT a FROM t LIMIT 1";
        assert_eq!(class(limited, &["1"], &["2"], false, Some(Ok(rows(&["2"])))).0, Class::Undecided);
        assert_eq!(class(limited, &["1"], &["2", "3"], false, None).0, Class::Wrong);
    }
}
