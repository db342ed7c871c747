//! The statements that are measured.

use std::fmt;

use super::{GROUP_ROWS, RANGE_ROWS};
use crate::row_stores::KEY_BITS;

/// What a statement is, without its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Read,
    Group,
    Range,
    Groups,
    Update,
    Insert,
}

impl Form {
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Group, Self::Range, Self::Groups, Self::Update, Self::Insert];

    /// With `$1` and so on for values.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Read => "SELECT k, g, v FROM t WHERE k = $1",
            Self::Group => "SELECT k, g, v FROM t WHERE g = $1",
            Self::Range => "SELECT k, g, v FROM t WHERE k BETWEEN $1 AND $2",
            Self::Groups => "SELECT k, g, v FROM t WHERE g BETWEEN $1 AND $2",
            Self::Update => "UPDATE t SET v = $2 WHERE k = $1",
            Self::Insert => "INSERT INTO t VALUES ($1, $2, $3)",
        }
    }
}

/// A value of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    Number(i64),
    Text(String),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub struct Call {
    pub form: Form,
    /// In the order of their numbers.
    pub arguments: Vec<Argument>,
}

/// The key of a loaded row, by its place.
fn key(place: u64) -> Argument {
    Argument::Number((place << KEY_BITS) as i64)
}

impl Call {
    fn new(form: Form, arguments: impl IntoIterator<Item = Argument>) -> Self {
        Self { form, arguments: arguments.into_iter().collect() }
    }

    pub fn read(place: u64) -> Self {
        Self::new(Form::Read, [key(place)])
    }

    /// The rows of a secondary key.
    pub fn group(group: u64) -> Self {
        Self::new(Form::Group, [Argument::Number(group as i64)])
    }

    /// [`RANGE_ROWS`] loaded rows from this one on.
    pub fn range(place: u64) -> Self {
        Self::new(Form::Range, [key(place), key(place + RANGE_ROWS - 1)])
    }

    /// As many by their secondary keys.
    pub fn groups(group: u64) -> Self {
        let last = group + RANGE_ROWS / GROUP_ROWS - 1;
        Self::new(Form::Groups, [group, last].map(|group| Argument::Number(group as i64)))
    }

    pub fn update(place: u64, text: String) -> Self {
        Self::new(Form::Update, [key(place), Argument::Text(text)])
    }

    pub fn insert(key: u64, group: u64, text: String) -> Self {
        let numbers = [key, group].map(|number| Argument::Number(number as i64));
        Self::new(Form::Insert, numbers.into_iter().chain([Argument::Text(text)]))
    }

    /// As a text, with its values.
    pub fn text(&self) -> String {
        let mut text = self.form.sql().to_owned();
        for (number, argument) in self.arguments.iter().enumerate() {
            text = text.replace(&format!("${}", number + 1), &argument.to_string());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_values() {
        assert_eq!(Call::read(3).text(), "SELECT k, g, v FROM t WHERE k = 12884901888");
        assert_eq!(Call::groups(5).text(), "SELECT k, g, v FROM t WHERE g BETWEEN 5 AND 14");
        assert_eq!(Call::update(0, "x".into()).text(), "UPDATE t SET v = 'x' WHERE k = 0");
        assert_eq!(Call::insert(7, 1, "y".into()).text(), "INSERT INTO t VALUES (7, 1, 'y')");
    }
}
