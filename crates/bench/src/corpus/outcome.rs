//! What came of a record.

use serde::{Deserialize, Serialize};

/// From the harmless to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// We do what the file expects, or what DuckDB does after the same statements.
    Agrees,
    /// Not run.
    Skipped,
    /// We gave an error where an answer was expected.
    Refused,
    /// We answered where an error was expected, and DuckDB does so too after what we accepted so far; without it:
    /// something was refused before.
    Excused,
    /// We answered where an error was expected.
    Answered,
    /// Nobody can tell.
    Undecided,
    Hang,
    Panic,
    Wrong,
}

impl Class {
    pub const ALL: [Class; 9] = [
        Class::Agrees,
        Class::Refused,
        Class::Wrong,
        Class::Panic,
        Class::Hang,
        Class::Answered,
        Class::Excused,
        Class::Undecided,
        Class::Skipped,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::Agrees => "agrees",
            Class::Skipped => "skipped",
            Class::Refused => "refused",
            Class::Excused => "excused",
            Class::Answered => "answered",
            Class::Undecided => "undecided",
            Class::Hang => "hang",
            Class::Panic => "panic",
            Class::Wrong => "wrong",
        }
    }

    /// What makes a run fail.
    pub fn is_failure(self) -> bool {
        matches!(self, Class::Wrong | Class::Panic | Class::Hang)
    }

    /// What is written down one by one.
    pub fn is_detail(self) -> bool {
        self.is_failure() || matches!(self, Class::Undecided | Class::Answered)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Which record of the unrolled file it is.
    pub record: usize,
    pub line: usize,
    pub class: Class,
    /// The error's first line, or why it is what it is.
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sql: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub got: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub duckdb: String,
    /// Stands for the rows that were answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<u64>,
    /// Whether SQL leaves open which rows these are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

impl Outcome {
    pub fn new(record: usize, line: usize, class: Class, reason: impl Into<String>) -> Self {
        Outcome {
            record,
            line,
            class,
            reason: reason.into(),
            sql: String::new(),
            expected: String::new(),
            got: String::new(),
            duckdb: String::new(),
            fingerprint: None,
            is_open: false,
        }
    }
}

/// What the process that runs a file writes, a line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A record is being run.
    Began {
        record: usize,
        line: usize,
        sql: String,
    },
    Ended(Box<Outcome>),
    /// The file is through.
    Done,
}
