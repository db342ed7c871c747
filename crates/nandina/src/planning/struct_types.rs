//! Struct types in round brackets, which the parser knows in angle brackets only.
//!
//! ```text
//!   CREATE TABLE t (s STRUCT(a INT, b STRUCT(c TEXT))[])       ROW(a INT)
//!                   s STRUCT<a INT, b STRUCT<c TEXT> >[]       STRUCT<a INT>
//! ```
//!
//! The same words with brackets behind them are also a function, so that it matters where they stand: behind `::`, `AS` or a
//! name, or inside of another type.

use std::borrow::Cow;

use crate::statement_text::tokens;

/// The text with its struct types as the parser reads them.
pub(super) fn in_angle_brackets(text: &str) -> Cow<'_, str> {
    let has_word = tokens(text).any(|(_, token)| is_struct(token));
    if !has_word {
        return Cow::Borrowed(text);
    }
    let all: Vec<(usize, &str)> = tokens(text).collect();
    let at = |number: usize| all.get(number).map_or("", |(_, token)| *token);
    let mut written = String::with_capacity(text.len() + 8);
    let mut copied = 0;
    let mut open = Vec::new();
    for (number, &(begin, token)) in all.iter().enumerate() {
        match token {
            "(" => {
                let word = at(number.wrapping_sub(1));
                let before = at(number.wrapping_sub(2));
                let is_in_type = open.last().is_some_and(|bracket| *bracket != Bracket::Other);
                let behind = [at(number + 1), at(number + 2)];
                let bracket = bracket(before, word, behind, is_in_type);
                if bracket == Bracket::Struct {
                    let word_at = all.get(number - 1).map_or(begin, |(word_at, _)| *word_at);
                    written.push_str(text.get(copied..word_at).unwrap_or_default());
                    written.push_str("STRUCT<");
                    copied = begin + token.len();
                }
                open.push(bracket);
            }
            ")" if open.pop() == Some(Bracket::Struct) => {
                written.push_str(text.get(copied..begin).unwrap_or_default());
                // Two of them side by side would be an operator.
                written.push_str(if written.ends_with('>') { " >" } else { ">" });
                if at(number + 1) == "=" {
                    written.push(' ');
                }
                copied = begin + token.len();
            }
            _ => {}
        }
    }
    written.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(written)
}

/// What a round bracket opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Struct,
    /// The types of a map.
    Map,
    Other,
}

fn is_struct(word: &str) -> bool {
    word.eq_ignore_ascii_case("struct") || word.eq_ignore_ascii_case("row")
}

fn bracket(before: &str, word: &str, behind: [&str; 2], is_in_type: bool) -> Bracket {
    let is_cast = before == ":" || before.eq_ignore_ascii_case("as");
    let is_of_name = is_name(before) && is_field(behind);
    let is_type = is_cast || is_of_name || (is_in_type && matches!(before, "," | "("));
    match word {
        word if is_type && is_struct(word) => Bracket::Struct,
        word if is_type && word.eq_ignore_ascii_case("map") => Bracket::Map,
        _ if is_in_type && is_name(word) => Bracket::Map,
        _ => Bracket::Other,
    }
}

/// Whether two words are a name and a type.
fn is_field([name, data_type]: [&str; 2]) -> bool {
    const OPERATORS: [&str; 12] =
        ["as", "is", "and", "or", "not", "in", "like", "ilike", "between", "similar", "collate", "over"];
    let is_operator = OPERATORS.iter().any(|operator| data_type.eq_ignore_ascii_case(operator));
    is_word(name) && is_word(data_type) && !is_operator
}

/// Whether a word may be the name of a column, rather than one that begins an expression.
fn is_name(word: &str) -> bool {
    const BEGINNINGS: [&str; 20] = [
        "select", "where", "and", "or", "not", "on", "when", "then", "else", "in", "by", "having", "from",
        "distinct", "all", "case", "values", "between", "is", "join",
    ];
    is_word(word) && !BEGINNINGS.iter().any(|beginning| word.eq_ignore_ascii_case(beginning))
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_from_functions() {
        for (text, written) in [
            ("CREATE TABLE t (s STRUCT(a INT)[])", "CREATE TABLE t (s STRUCT<a INT>[])"),
            ("SELECT x::STRUCT(a DECIMAL(4, 1), b INT)", "SELECT x::STRUCT<a DECIMAL(4, 1), b INT>"),
            ("SELECT x::row(a STRUCT(b INT))=y", "SELECT x::STRUCT<a STRUCT<b INT> > =y"),
            ("CAST(x AS MAP(TEXT, STRUCT(a INT)))", "CAST(x AS MAP(TEXT, STRUCT<a INT>))"),
            ("CAST(x AS STRUCT(INT, TEXT))", "CAST(x AS STRUCT<INT, TEXT>)"),
            ("\"a b\" struct(\"c d\" int)", "\"a b\" STRUCT<\"c d\" int>"),
        ] {
            assert_eq!(in_angle_brackets(text), written);
        }
        for same in [
            "SELECT struct(a, b), row(1, 2)",
            "SELECT struct(case when a then b end)",
            "SELECT x WHERE struct(a IS NULL) = y",
            "VALUES (row(1), row(a AS b))",
            "SELECT 'x::STRUCT(a INT)' -- STRUCT(a INT)",
            "(a, b) IN (row(1, 2))",
            "struct",
            "((",
            "))",
        ] {
            assert_eq!(in_angle_brackets(same), same);
        }
    }
}
