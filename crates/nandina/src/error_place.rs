//! Where in a statement an error is, for people to look at.
//!
//! ```text
//!   error: there is no column 'pice'; did you mean 'price'?
//!   LINE 3: WHERE pice > 10
//!                 ^
//! ```
//!
//! Syntax errors know their place. Others name something in quotes, which is looked for among the words of the statement.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::Error;
use crate::planning::syntax::Sql;

/// A place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The number of the line, from 1.
    pub line: usize,
    /// The number of the character in the line, from 1.
    pub column: usize,
    text: String,
}

/// A longer line is shown in part.
const SHOWN_CHARACTERS: usize = 80;

impl Error {
    /// The place in the script that a statement is part of.
    pub fn place(&self, script: &str, statement: &str) -> Option<Place> {
        let found = match self {
            Error::Syntax { message } => written_place(message),
            Error::UnknownTable { name, .. } | Error::UnknownColumn { name, .. } => place_of(name, statement),
            Error::Query { message } | Error::Unsupported { message } => {
                place_of(message.split('\'').nth(1)?, statement)
            }
            _ => None,
        }?;
        let before = (statement.as_ptr() as usize)
            .checked_sub(script.as_ptr() as usize)
            .and_then(|start| script.get(..start))
            .unwrap_or_default();
        let (mut line, mut column) = (usize::try_from(found.line).ok()?, usize::try_from(found.column).ok()?);
        if line == 1 {
            column += before.rsplit('\n').next().unwrap_or_default().chars().count();
        }
        line += before.matches('\n').count();
        let script = if before.is_empty() { statement } else { script };
        let text = script.split('\n').nth(line.checked_sub(1)?)?.trim_end_matches('\r').to_owned();
        (1..=text.chars().count() + 1).contains(&column).then_some(Place { line, column, text })
    }
}

/// The place at the end of the parser's message.
fn written_place(message: &str) -> Option<Location> {
    let (line, column) = message.rsplit_once(" at line ")?.1.split_once(", column ")?;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    Some(Location { line: digits(line)?, column: digits(column)? })
}

/// The place of a name, `table.column` among them, or of a text.
fn place_of(name: &str, statement: &str) -> Option<Location> {
    let tokens = Tokenizer::new(&Sql::PLAIN, statement).tokenize_with_location().ok()?;
    let tokens: Vec<_> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let parts: Vec<&str> = name.split('.').collect();
    let whole = || tokens.iter().find(|token| is_named(token, name));
    let of_parts = || {
        let length = 2 * parts.len() - 1;
        let found = tokens.windows(length).find(|window| {
            window.iter().step_by(2).zip(&parts).all(|(token, part)| is_named(token, part))
                && window.iter().skip(1).step_by(2).all(|token| token.token == Token::Period)
        });
        found.and_then(|window| window.first())
    };
    let last = || tokens.iter().find(|token| parts.last().is_some_and(|part| is_named(token, part)));
    whole().or_else(of_parts).or_else(last).map(|token| token.span.start)
}

fn is_named(token: &TokenWithSpan, name: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        Token::SingleQuotedString(text) => text == name,
        _ => false,
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shown part ends a third behind the place.
        let end = self.column + SHOWN_CHARACTERS / 3;
        let skipped = end.saturating_sub(SHOWN_CHARACTERS).min(self.column - 1);
        let shown: String = self.text.chars().skip(skipped).take(SHOWN_CHARACTERS).collect();
        let (before, after) = (
            if skipped > 0 { "…" } else { "" },
            if self.text.chars().count() > skipped + SHOWN_CHARACTERS { "…" } else { "" },
        );
        let head = format!("LINE {}: {before}", self.line);
        // Tabs stay tabs, so that the caret is below its character.
        let gap: String = shown
            .chars()
            .take(self.column - 1 - skipped)
            .map(|character| if character == '\t' { '\t' } else { ' ' })
            .collect();
        write!(f, "{head}{shown}{after}\n{}{gap}^", " ".repeat(head.chars().count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(error: &Error, script: &str) -> String {
        let statement = crate::statement_text::statements(script).pop().unwrap();
        error.place(script, statement).map_or_else(String::new, |place| place.to_string())
    }

    fn column(name: &str) -> Error {
        Error::UnknownColumn { name: name.to_owned(), hint: String::new() }
    }

    #[test]
    fn names_are_pointed_at() {
        let script = "SELECT 1;\n  SELECT a,\n\tt.pice FROM t -- pice";
        assert_eq!(shown(&column("t.pice"), script), "LINE 3: \tt.pice FROM t -- pice\n        \t^");
        assert_eq!(shown(&column("A"), script), "LINE 2:   SELECT a,\n                 ^");
        assert_eq!(shown(&column("missing"), script), "");
    }

    #[test]
    fn places_in_a_later_statement_of_a_line() {
        let error = Error::Syntax { message: "expected x at line 1, column 8".to_owned() };
        assert_eq!(
            shown(&error, "SELECT 1; SELECT )"),
            "LINE 1: SELECT 1; SELECT )\n                         ^"
        );
        let error = Error::Syntax { message: "expected x at line 1, column 80".to_owned() };
        assert_eq!(shown(&error, "SELECT )"), "");
    }

    #[test]
    fn texts_and_functions_are_pointed_at() {
        let error = Error::Query { message: "'x y' cannot be cast to INTEGER".to_owned() };
        assert_eq!(shown(&error, "SELECT 'x y'::INT"), "LINE 1: SELECT 'x y'::INT\n               ^");
    }

    #[test]
    fn long_lines_are_shown_in_part() {
        let script = format!("SELECT {}, pice, {}", "a, ".repeat(100), "b, ".repeat(100));
        let shown = shown(&column("pice"), &script);
        let [line, caret] = shown.lines().collect::<Vec<_>>().try_into().unwrap();
        let at = caret.chars().count() - 1;
        assert_eq!(line.chars().skip(at).take(4).collect::<String>(), "pice");
        assert!(line.chars().count() < 100, "{line}");
    }
}
