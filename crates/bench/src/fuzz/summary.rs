//! What was tried, and what came of it.

use std::collections::BTreeMap;

use super::oracle::Verdict;
use crate::table::Table;

/// What a query has, and how its text tells.
const FEATURES: [(&str, &[&str]); 30] = [
    ("inner join", &[" JOIN ", " ON "]),
    ("left join", &[" LEFT JOIN "]),
    ("right join", &[" RIGHT JOIN "]),
    ("full join", &[" FULL JOIN "]),
    ("cross join", &[" CROSS JOIN "]),
    ("using", &[" USING ("]),
    ("natural", &["NATURAL "]),
    ("null-safe equality", &["IS NOT DISTINCT FROM"]),
    ("exists", &["EXISTS (SELECT"]),
    ("not exists", &["NOT EXISTS (SELECT"]),
    ("in (query)", &[" IN (SELECT"]),
    ("not in (query)", &["NOT IN (SELECT"]),
    ("any", &["ANY (SELECT"]),
    ("all", &["ALL (SELECT"]),
    ("group by", &["GROUP BY"]),
    ("rollup", &["ROLLUP ("]),
    ("cube", &["CUBE ("]),
    ("grouping sets", &["GROUPING SETS"]),
    ("having", &["HAVING"]),
    ("distinct aggregate", &["(DISTINCT "]),
    ("filter", &["FILTER (WHERE"]),
    ("window", &[" OVER "]),
    ("named window", &[" WINDOW "]),
    ("frame", &[" BETWEEN ", " OVER "]),
    ("union", &[") UNION"]),
    ("intersect, except", &[") INTERSECT", ") EXCEPT"]),
    ("distinct", &["SELECT DISTINCT"]),
    ("limit", &[" LIMIT "]),
    ("with", &["WITH "]),
    ("struct, list", &["{'x'", "[]", "\"tags\"", "\"info\"", "\"items\""]),
];

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    queries: usize,
    right: usize,
    known_to_duckdb: usize,
    refused: usize,
    wrong: usize,
}

/// Counts of verdicts.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    all: Count,
    features: BTreeMap<&'static str, Count>,
    /// Reason to how often, and the first query.
    refusals: BTreeMap<String, (usize, String)>,
    limit_refusals: BTreeMap<String, (usize, String)>,
    pub failures: BTreeMap<&'static str, usize>,
}

impl Summary {
    pub fn add(&mut self, sql: &str, verdict: &Verdict) {
        let has = |marks: &[&str]| match marks {
            [" JOIN ", rest @ ..] | [" BETWEEN ", rest @ ..] => {
                marks.iter().chain(rest).all(|mark| sql.contains(mark))
            }
            _ => marks.iter().any(|mark| sql.contains(mark)),
        };
        let present = FEATURES.iter().filter(|(_, marks)| has(marks)).map(|(name, _)| *name);
        for count in present.map(Some).chain([None]) {
            let count = match count {
                Some(name) => self.features.entry(name).or_default(),
                None => &mut self.all,
            };
            count.queries += 1;
            match verdict {
                Verdict::Right { is_known_to_duckdb, .. } => {
                    count.right += 1;
                    count.known_to_duckdb += usize::from(*is_known_to_duckdb);
                }
                Verdict::Refused { .. } | Verdict::RefusedAtLimit { .. } => count.refused += 1,
                Verdict::Wrong(_) => count.wrong += 1,
            }
        }
        match verdict {
            Verdict::Refused { message, is_valid } => {
                let prefix =
                    if *is_valid { "" } else { "(DuckDB does not answer either, or was not asked) " };
                let reason = format!("{prefix}{}", reason(message));
                self.refusals.entry(reason).or_insert_with(|| (0, sql.to_owned())).0 += 1;
            }
            Verdict::RefusedAtLimit { message } => {
                self.limit_refusals.entry(reason(message)).or_insert_with(|| (0, sql.to_owned())).0 += 1;
            }
            Verdict::Wrong(failure) => *self.failures.entry(failure.kind.name()).or_default() += 1,
            Verdict::Right { .. } => {}
        }
    }

    /// Whether a valid query has been refused for this reason once.
    pub fn is_new(&self, message: &str) -> bool {
        self.refusals.get(&reason(message)).is_some_and(|(count, _)| *count == 1)
    }

    pub fn wrong(&self) -> usize {
        self.all.wrong
    }

    pub fn queries(&self) -> usize {
        self.all.queries
    }

    /// Queries that were answered, and rightly.
    pub fn right(&self) -> usize {
        self.all.right
    }

    /// Tables for a terminal.
    pub fn render(&self) -> String {
        let mut table = Table::new(1, ["feature", "queries", "right", "also in DuckDB", "refused", "wrong"]);
        let mut row = |name: &str, count: &Count| {
            let counts = [count.queries, count.right, count.known_to_duckdb, count.refused, count.wrong];
            table.row(std::iter::once(name.to_owned()).chain(counts.map(|count| count.to_string())));
        };
        row("all", &self.all);
        for (name, _) in FEATURES {
            row(name, self.features.get(name).unwrap_or(&Count::default()));
        }
        let mut text = table.to_text();
        for (title, reasons) in
            [("refused", &self.refusals), ("refused at the tiny limit", &self.limit_refusals)]
        {
            let mut sorted: Vec<_> = reasons.iter().collect();
            sorted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
            text += &format!("\n{title}:\n");
            for (reason, (count, sql)) in sorted {
                text += &format!("{count:>6}  {reason}\n        e.g. {sql}\n");
            }
        }
        text
    }
}

/// A message without what differs from query to query.
pub fn reason(message: &str) -> String {
    let mut reason = String::new();
    for letter in message.chars().take(160) {
        match letter {
            '0'..='9' if reason.ends_with('#') => {}
            '0'..='9' => reason.push('#'),
            '\n' => reason.push(' '),
            other => reason.push(other),
        }
    }
    // Lists of columns.
    match reason.split_once("Valid fields") {
        Some((before, _)) => before.to_owned(),
        None => reason,
    }
}
