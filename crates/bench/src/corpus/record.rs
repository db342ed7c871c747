//! What a corpus file asks for, record by record.

/// Where a record stands, and on which conditions it is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Line of the file in which it starts.
    pub line: usize,
    pub task: Task,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    Statement(Statement),
    Query(Query),
    /// From here on another database, or the same one opened again.
    Open(Open),
    /// Sessions are forgotten, the database stays open.
    Reconnect,
    /// Is not run; says why.
    Skip {
        reason: String,
        sql: String,
    },
    /// Nothing behind it is run; says why if it is not the file's wish.
    End(Option<String>),
}

/// What is expected of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    Success,
    Error,
    Either,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub expectation: Expectation,
    /// The label of a session; empty for the first.
    pub connection: String,
    pub sql: String,
    /// What the error is to say.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub connection: String,
    pub sql: String,
    /// A letter for each column: `I`, `R` and `T` in SQLite's files, of no importance in DuckDB's.
    pub types: String,
    pub sort: SortMode,
    /// Queries with the same label have the same answer.
    pub label: Option<String>,
    pub recorded: Recorded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortMode {
    /// In the order of the query, if it has one.
    None,
    Rows,
    Values,
}

/// The answer that a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// None at all.
    Nothing,
    /// Rows whose values are separated by tabs, or a value in each line.
    Lines(Vec<String>),
    /// How many values there are, and the MD5 of them all, each with a line feed behind it.
    Hash { values: usize, digest: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// A new database, or the one that was made at this path before.
    Path { path: String, is_read_only: bool },
    /// A new one that nobody looks for again.
    Fresh,
    /// The one that is open.
    Again,
}
