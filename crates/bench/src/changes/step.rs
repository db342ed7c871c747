//! What both engines are told, one after the other.

use std::fmt;

/// Something that a session does, or that becomes of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub session: usize,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A statement of both.
    Statement(String),
    /// One that SQLite writes otherwise. The outcome is that of its first statement; where one fails, all are undone.
    Different { ours: String, sqlite: Vec<String> },
    /// One that SQLite has nothing for. It must succeed.
    Ours(String),
    /// The database is closed, with whatever transactions there are, and opened again.
    Reopen,
}

impl Step {
    /// What is counted.
    pub fn name(&self) -> &str {
        match &self.action {
            Action::Statement(text) | Action::Ours(text) | Action::Different { ours: text, .. } => {
                text.split_whitespace().next().unwrap_or_default()
            }
            Action::Reopen => "(reopened)",
        }
    }
}

/// A line or two of a script.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.session > 0 {
            write!(f, "/* session {} */ ", self.session)?;
        }
        match &self.action {
            Action::Statement(text) => write!(f, "{text};"),
            Action::Different { ours, sqlite } => write!(f, "{ours};\n-- SQLite: {}", sqlite.join("; ")),
            Action::Ours(text) => write!(f, "{text}; -- not in SQLite"),
            Action::Reopen => write!(f, "-- closed and opened again"),
        }
    }
}
