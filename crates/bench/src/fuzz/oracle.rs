//! Is an answer right?
//!
//! ```text
//!   a query ──► nandina ─┬─ tiny      the same plan under a tiny limit
//!                        ├─ naive     hardly a plan at all
//!                        └─ DuckDB    where it knows the query
//!   a query and a condition ──► two queries that have the same rows (see `generate::partitions`)
//! ```

use super::ast::{Body, Query};
use super::cells::difference;
use super::duckdb::DuckDb;
use super::engines::{Answer, Configuration, Engines, Storage};
use super::generate::Partitioned;
use super::schema::Table;
use super::size::{Sizes, most_rows};
use super::types::Dialect;
use crate::error::Result;

/// What is tried.
#[derive(Debug, Clone, PartialEq)]
pub enum Case {
    Query(Query),
    Partitioned(Partitioned),
}

/// Which answers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Oracle {
    /// With the same plan in a megabyte.
    Tiny,
    /// With hardly a plan at all.
    Naive,
    /// With DuckDB.
    Duckdb,
    /// A condition's cases with the whole, and filters with outputs.
    Partitions,
}

/// In which way an answer is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// Another engine has other rows.
    Differs(Oracle),
    /// The naive plan has rows, and DuckDB has too if it was asked; ours has an error.
    Error,
    /// DuckDB has rows; ours and the naive plan have an error.
    Refused,
    Panic,
    Hang,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub kind: FailureKind,
    pub detail: String,
    /// The queries that were run, and what each engine said.
    pub answers: Vec<(String, Answer)>,
}

#[derive(Debug, Clone)]
pub enum Verdict {
    /// As many rows; whether DuckDB has them too.
    Right {
        rows: usize,
        is_known_to_duckdb: bool,
    },
    /// An error of ours; whether DuckDB answers.
    Refused {
        message: String,
        is_valid: bool,
    },
    /// The tiny limit is too small.
    RefusedAtLimit {
        message: String,
    },
    Wrong(Box<Failure>),
}

/// The engines, and which of them are asked.
pub struct Judge {
    pub engines: Engines,
    pub duckdb: Option<DuckDb>,
    pub oracles: Vec<Oracle>,
    /// Rows of the tables.
    pub sizes: Sizes,
    /// Whether a table has lists or structs.
    pub has_nested: bool,
}

/// The naive plan is not run where it has more pairs of rows than these.
const MOST_PAIRS: f64 = 3e4;
/// The same where tables have lists or structs: the texts in those have more buffers with every pair, in DataFusion's
/// joins, and time and memory grow with the square of the pairs.
const MOST_NESTED_PAIRS: f64 = 2e2;

impl FailureKind {
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Differs(Oracle::Tiny) => "tiny",
            FailureKind::Differs(Oracle::Naive) => "naive",
            FailureKind::Differs(Oracle::Duckdb) => "duckdb",
            FailureKind::Differs(Oracle::Partitions) => "partitions",
            FailureKind::Error => "error",
            FailureKind::Refused => "refused",
            FailureKind::Panic => "panic",
            FailureKind::Hang => "hang",
        }
    }
}

impl Case {
    /// The queries that are run.
    pub fn queries(&self) -> Vec<Query> {
        match self {
            Case::Query(query) => vec![query.clone()],
            Case::Partitioned(partitioned) => partitioned.pair().to_vec(),
        }
    }
}

impl Judge {
    pub async fn load(&mut self, tables: &[Table], storage: Storage) -> Result<()> {
        let size = |table: &Table| (table.name.clone(), table.rows.len() as f64);
        self.sizes = tables.iter().map(size).collect();
        self.has_nested = tables.iter().flat_map(|table| &table.columns).any(|(_, of)| of.is_nested());
        self.engines.load(tables, storage).await?;
        match &mut self.duckdb {
            Some(duckdb) => duckdb.load(tables),
            None => Ok(()),
        }
    }

    pub async fn judge(&mut self, case: &Case) -> Verdict {
        match case {
            Case::Query(query) => self.compare(query).await,
            Case::Partitioned(partitioned) => self.compare_pair(partitioned).await,
        }
    }

    async fn compare(&mut self, query: &Query) -> Verdict {
        let sql = query.sql(Dialect::Nandina);
        let ours = self.engines.answer(Configuration::Nandina, &sql).await;
        let most_pairs = if self.has_nested { MOST_NESTED_PAIRS } else { MOST_PAIRS };
        let naive = if self.oracles.contains(&Oracle::Naive) && most_rows(query, &self.sizes) < most_pairs {
            Some(self.engines.answer(Configuration::Naive, &sql).await)
        } else {
            None
        };
        let theirs = match &mut self.duckdb {
            Some(duckdb) if self.oracles.contains(&Oracle::Duckdb) => {
                duckdb.answer(&query.sql(Dialect::DuckDb))
            }
            _ => None,
        };
        let mut answers: Vec<(String, Answer)> = vec![("nandina".to_owned(), ours.clone())];
        answers.extend(naive.clone().map(|answer| ("naive".to_owned(), answer)));
        answers.extend(theirs.clone().map(|answer| ("duckdb".to_owned(), answer)));
        let wrong =
            |kind, detail: String, answers| Verdict::Wrong(Box::new(Failure { kind, detail, answers }));
        let rows = match ours {
            Answer::Panic(message) => return wrong(FailureKind::Panic, message, answers),
            Answer::Hang => return wrong(FailureKind::Hang, String::new(), answers),
            Answer::Error(message) => {
                let is_valid = matches!(theirs, Some(Answer::Rows(_)));
                let naive_answers = matches!(naive, Some(Answer::Rows(_)));
                let others_fail = matches!(theirs, Some(Answer::Error(_)));
                if naive_answers && !others_fail {
                    return wrong(FailureKind::Error, message, answers);
                }
                return Verdict::Refused { message, is_valid };
            }
            Answer::Rows(rows) => rows,
        };
        let is_ordered = is_ordered(query);
        if let Some(Answer::Rows(theirs)) = &theirs
            && let Some(detail) = difference(&rows, theirs, is_ordered)
        {
            return self.triage(FailureKind::Differs(Oracle::Duckdb), detail, answers, &sql).await;
        }
        if let Some(Answer::Rows(theirs)) = &naive
            && let Some(detail) = difference(&rows, theirs, is_ordered)
        {
            return self.triage(FailureKind::Differs(Oracle::Naive), detail, answers, &sql).await;
        }
        if self.oracles.contains(&Oracle::Tiny) {
            let tiny = self.engines.answer(Configuration::Tiny, &sql).await;
            answers.push(("tiny".to_owned(), tiny.clone()));
            match tiny {
                Answer::Panic(message) => return wrong(FailureKind::Panic, message, answers),
                Answer::Hang => return wrong(FailureKind::Hang, String::new(), answers),
                Answer::Error(message) => return Verdict::RefusedAtLimit { message },
                Answer::Rows(theirs) => {
                    if let Some(detail) = difference(&theirs, &rows, is_ordered) {
                        return self.triage(FailureKind::Differs(Oracle::Tiny), detail, answers, &sql).await;
                    }
                }
            }
        }
        Verdict::Right { rows: rows.len(), is_known_to_duckdb: matches!(theirs, Some(Answer::Rows(_))) }
    }

    async fn compare_pair(&mut self, partitioned: &Partitioned) -> Verdict {
        let mut answers = Vec::new();
        for (name, query) in ["whole", "parts"].iter().zip(partitioned.pair()) {
            let answer = self.engines.answer(Configuration::Nandina, &query.sql(Dialect::Nandina)).await;
            answers.push(((*name).to_owned(), answer));
        }
        let wrong =
            |kind, detail: String, answers| Verdict::Wrong(Box::new(Failure { kind, detail, answers }));
        for (_, answer) in &answers {
            match answer {
                Answer::Panic(message) => return wrong(FailureKind::Panic, message.clone(), answers),
                Answer::Hang => return wrong(FailureKind::Hang, String::new(), answers),
                Answer::Error(message) => {
                    return Verdict::Refused { message: message.clone(), is_valid: false };
                }
                Answer::Rows(_) => {}
            }
        }
        match answers.as_slice() {
            [(_, Answer::Rows(whole)), (_, Answer::Rows(parts))] => match difference(parts, whole, false) {
                Some(detail) => wrong(FailureKind::Differs(Oracle::Partitions), detail, answers),
                None => Verdict::Right { rows: whole.len(), is_known_to_duckdb: false },
            },
            _ => Verdict::Right { rows: 0, is_known_to_duckdb: false },
        }
    }

    /// A failure, and what the others say, which tells whose it is.
    async fn triage(
        &self,
        kind: FailureKind,
        detail: String,
        mut answers: Vec<(String, Answer)>,
        sql: &str,
    ) -> Verdict {
        for configuration in [Configuration::Naive, Configuration::Tiny, Configuration::DataFusion] {
            if answers.iter().all(|(name, _)| name != configuration.name()) {
                answers
                    .push((configuration.name().to_owned(), self.engines.answer(configuration, sql).await));
            }
        }
        Verdict::Wrong(Box::new(Failure { kind, detail, answers }))
    }
}

/// Whether a query says in which order all of its rows come.
fn is_ordered(query: &Query) -> bool {
    fn columns(query: &Query) -> usize {
        match &query.body {
            Body::Select(select) => select.items.len(),
            Body::Set { left, .. } => columns(left),
        }
    }
    !query.order.is_empty() && query.order.len() == columns(query)
}
