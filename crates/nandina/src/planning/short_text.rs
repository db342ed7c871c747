//! The text of a short statement, with parameters in the place of its values.
//!
//! ```text
//!   SELECT name FROM t WHERE k = 17 AND s = 'it''s'
//!   ─►  SELECT name FROM t WHERE k = $1 AND s = $2       17, "it's"
//! ```
//!
//! Texts that differ in their values alone become the same, so that what was found out about one holds for all. Whether a value may be
//! a parameter where it stands is for [`short_statements`](super::short_statements) to say.

use std::sync::Arc;

use datafusion::common::ScalarValue;

use crate::statement_text;

/// Longer texts are planned: `INSERT` of many rows among them.
const MOST_TOKENS: usize = 500;
/// More digits may need a type that depends on them.
const MOST_DIGITS: usize = 17;
/// What such statements begin with.
const BEGINNINGS: [&str; 4] = ["select", "insert", "update", "delete"];
/// Words behind which a minus belongs to the number that follows.
const WORDS_BEFORE_VALUES: [&str; 16] = [
    "and",
    "between",
    "by",
    "else",
    "in",
    "is",
    "like",
    "not",
    "or",
    "returning",
    "select",
    "set",
    "then",
    "values",
    "when",
    "where",
];
/// Words behind which a number stays in the text.
const LIMITS: [&str; 2] = ["limit", "offset"];
/// Words that make something else of a text behind them.
const TYPES: [&str; 5] = ["date", "interval", "time", "timestamp", "timestamptz"];

/// A text and the values that stood in it.
#[derive(Debug, PartialEq)]
pub(crate) struct ShortText {
    pub text: Arc<str>,
    pub values: Vec<ScalarValue>,
}

/// The text of a statement that may be a short one.
pub(crate) fn of(text: &str) -> Option<ShortText> {
    let word = text.split(|c: char| !c.is_ascii_alphabetic()).next()?;
    if !BEGINNINGS.iter().any(|begin| begin.eq_ignore_ascii_case(word)) {
        return None;
    }
    with_parameters(text)
}

/// The name of a prepared statement and the values that it is executed with.
pub(crate) fn of_execute(text: &str) -> Option<(String, Vec<ScalarValue>)> {
    let word = text.get(.."execute".len()).filter(|word| word.eq_ignore_ascii_case("execute"))?;
    let short = with_parameters(text)?;
    let rest = short.text.get(word.len()..)?.strip_prefix(char::is_whitespace)?.trim();
    let (name, arguments) = match rest.split_once('(') {
        Some((name, arguments)) => (name, arguments.strip_suffix(')')?),
        None => (rest, ""),
    };
    let name = name.trim();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let expected = (1..=short.values.len()).map(|number| format!("${number}"));
    let are_values = match arguments.trim() {
        "" => short.values.is_empty(),
        arguments => arguments.split(',').map(str::trim).eq(expected),
    };
    (is_name && are_values).then(|| (name.to_lowercase(), short.values))
}

/// The text with parameters in the place of its values; `None` if it has some that are none by themselves.
fn with_parameters(text: &str) -> Option<ShortText> {
    let tokens: Vec<(usize, &str)> = statement_text::tokens(text).take(MOST_TOKENS + 1).collect();
    if tokens.len() > MOST_TOKENS {
        return None;
    }
    let (mut short, mut copied, mut values) = (String::with_capacity(text.len()), 0, Vec::new());
    let mut at = 0;
    while let Some((begin, token)) = tokens.get(at).copied() {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at)).copied();
        let touches = |end: usize| before.is_some_and(|(begin, token)| begin + token.len() == end);
        let (value, count, from) = match token.as_bytes().first()? {
            b'$' | b'?' | b':' | b'@' | b'[' | b'{' => return None,
            // A limit is part of what is planned.
            _ if before.is_some_and(|(_, word)| is_one_of(&LIMITS, word)) => {
                at += 1;
                continue;
            }
            b'\'' if touches(begin) && before.is_some_and(|(_, word)| is_word(word)) => return None,
            b'\'' if before.is_some_and(|(_, word)| is_one_of(&TYPES, word)) => return None,
            b'\'' => {
                let (value, count) = text_at(&tokens, at)?;
                (value, count, begin)
            }
            b'0'..=b'9' => {
                if before.is_some_and(|(_, other)| other == ".") {
                    return None;
                }
                let (digits, count) = number_at(&tokens, at)?;
                let sign = sign_before(&tokens, at);
                let digits = if sign.is_some() { format!("-{digits}") } else { digits };
                (number(&digits)?, count, sign.unwrap_or(begin))
            }
            _ => {
                at += 1;
                continue;
            }
        };
        values.push(value);
        short.push_str(text.get(copied..from)?);
        short.push_str(&format!("${}", values.len()));
        at += count;
        let (last, end) = tokens.get(at - 1)?;
        copied = last + end.len();
    }
    short.push_str(text.get(copied..)?);
    Some(ShortText { text: short.into(), values })
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"')
}

fn is_one_of(words: &[&str], token: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(token))
}

/// A text, and how many tokens it is: one for each part between doubled quotes.
fn text_at(tokens: &[(usize, &str)], at: usize) -> Option<(ScalarValue, usize)> {
    let (mut value, mut count, mut end) = (String::new(), 0, None);
    for (begin, token) in tokens.get(at..)? {
        if !token.starts_with('\'') || end.is_some_and(|end| end != *begin) {
            break;
        }
        if count > 0 {
            value.push('\'');
        }
        value.push_str(token.strip_prefix('\'')?.strip_suffix('\'').filter(|_| token.len() > 1)?);
        end = Some(begin + token.len());
        count += 1;
    }
    Some((ScalarValue::Utf8(Some(value)), count))
}

/// The digits of a number without an exponent, and how many tokens it is.
fn number_at(tokens: &[(usize, &str)], at: usize) -> Option<(String, usize)> {
    let are_digits = |token: &str| token.bytes().all(|byte| byte.is_ascii_digit());
    let (begin, whole) = tokens.get(at).copied().filter(|(_, token)| are_digits(token))?;
    let end = begin + whole.len();
    match tokens.get(at + 1).copied() {
        Some((point, ".")) if point == end => {
            let fraction = tokens.get(at + 2).copied();
            let (_, fraction) = fraction.filter(|(begin, token)| *begin == end + 1 && are_digits(token))?;
            Some((format!("{whole}.{fraction}"), 3))
        }
        _ => Some((whole.to_owned(), 1)),
    }
}

/// Where the minus of a number is.
fn sign_before(tokens: &[(usize, &str)], at: usize) -> Option<usize> {
    let (sign, _) = tokens.get(at.checked_sub(1)?).copied().filter(|(_, token)| *token == "-")?;
    let (_, before) = tokens.get(at.checked_sub(2)?).copied()?;
    let ends_a_value = is_word(before) && !is_one_of(&WORDS_BEFORE_VALUES, before)
        || before.starts_with([')', ']', '\'', '"', '-', '+', '.']);
    (!ends_a_value).then_some(sign)
}

/// The value that a plan would have for a number: one with a point is a floating-point number.
fn number(digits: &str) -> Option<ScalarValue> {
    let Some((whole, fraction)) = digits.split_once('.') else {
        return digits.parse().ok().map(|number| ScalarValue::Int64(Some(number)));
    };
    if whole.trim_start_matches('-').len() + fraction.len() > MOST_DIGITS {
        return None;
    }
    digits.parse().ok().map(|number| ScalarValue::Float64(Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> Option<(String, Vec<String>)> {
        let short = of(text)?;
        Some((short.text.to_string(), short.values.iter().map(|value| format!("{value:?}")).collect()))
    }

    #[test]
    fn values_become_parameters() {
        let (text, values) = short("SELECT a FROM t WHERE k = 17 AND s='it''s' -- 3\n").unwrap();
        assert_eq!(text, "SELECT a FROM t WHERE k = $1 AND s=$2 -- 3\n");
        assert_eq!(values, ["Int64(17)", "Utf8(\"it's\")"]);
        let (text, values) = short("insert into t1 values(-5, - 0.50, '', a-1, 2 -3)").unwrap();
        assert_eq!(text, "insert into t1 values($1, $2, $3, a-$4, $5 -$6)");
        let expected = ["Int64(-5)", "Float64(-0.5)", "Utf8(\"\")", "Int64(1)", "Int64(2)", "Int64(3)"];
        assert_eq!(values, expected);
    }

    #[test]
    fn arguments_of_execute_are_values() {
        let (name, values) = of_execute("EXECUTE Get_1 (1, 'x,)', -2)").unwrap();
        assert_eq!((name.as_str(), values.len()), ("get_1", 3));
        assert_eq!(of_execute("execute p"), Some(("p".to_owned(), Vec::new())));
        assert_eq!(of_execute("EXECUTE p(1 + 2)"), None);
        assert_eq!(of_execute("EXECUTE p(a := 1)"), None);
        assert_eq!(of_execute("EXECUTE \"P\"(1)"), None);
    }

    #[test]
    fn what_is_no_value_by_itself_is_left_to_plans() {
        for text in [
            "CREATE TABLE t (a INTEGER)",
            "SELECT E'a\\n'",
            "SELECT DATE '2020-01-01'",
            "SELECT 1e5",
            "SELECT 1.",
            "SELECT 0x1F",
            "SELECT $1",
            "SELECT ?",
            "SELECT 'open",
            "SELECT a::INTEGER FROM t",
            "SELECT 123456789012345678901234567890",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
