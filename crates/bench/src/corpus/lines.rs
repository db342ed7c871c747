//! The lines of a corpus file with its loops unrolled and its variables filled in.
//!
//! DuckDB's files repeat what stands between `loop` or `foreach` and `endloop`, and write `{name}` or `${name}` where
//! a value belongs, be it in a statement, an answer or another loop's head. So this is done to lines, before anything
//! is understood of them:
//!
//! ```text
//!   foreach type <integral> varchar            statement ok
//!   statement ok                       ──►     CREATE TABLE t (c tinyint)
//!   CREATE TABLE t (c {type})                  statement ok
//!   endloop                                    CREATE TABLE t (c smallint)   …
//! ```
//!
//! A `concurrentloop` becomes a plain one: its rounds run one after the other.

use std::collections::BTreeMap;

/// A file that comes to more lines than this is refused: a loop of loops would fill the memory.
const MOST_LINES: usize = 400_000;

/// A line, with its number in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// What stands for a name in braces.
pub type Variables = BTreeMap<String, String>;

/// Unrolls the loops of a text. The error says which line cannot be understood.
pub fn unroll(text: &str, variables: &Variables) -> Result<Vec<Line>, String> {
    let lines: Vec<Line> = text
        .lines()
        .enumerate()
        .map(|(index, text)| Line { number: index + 1, text: text.trim_end_matches('\r').to_owned() })
        .collect();
    let mut unrolled = Vec::new();
    let mut variables = variables.clone();
    unroll_into(&lines, &mut variables, &mut unrolled)?;
    Ok(unrolled)
}

fn unroll_into(lines: &[Line], variables: &mut Variables, unrolled: &mut Vec<Line>) -> Result<(), String> {
    let mut rest = lines;
    // Directives stand at the start of a file or behind an empty line, a comment or another directive; what looks like
    // one inside a statement is none.
    let mut is_in_record = false;
    while let Some((line, behind)) = rest.split_first() {
        rest = behind;
        let text = substitute(&line.text, variables);
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        match first {
            "loop" | "foreach" | "concurrentloop" | "concurrentforeach" if !is_in_record => {
                let rounds = rounds(&text).map_err(|error| format!("line {}: {error}", line.number))?;
                let length =
                    loop_length(rest).ok_or_else(|| format!("line {}: the loop has no end", line.number))?;
                let (body, after) = rest.split_at(length);
                for round in rounds {
                    let mut inner = variables.clone();
                    inner.extend(round);
                    unroll_into(body, &mut inner, unrolled)?;
                    unrolled.push(Line { number: line.number, text: String::new() });
                }
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            "onlyif" | "skipif" if !is_in_record => {
                if let Some(holds) = loop_condition(text.split_once(char::is_whitespace), variables) {
                    if holds != (first == "onlyif") {
                        unrolled.push(Line { number: line.number, text: "skipif nandina".to_owned() });
                    }
                    continue;
                }
            }
            "set" if !is_in_record && words.next() == Some("variable") => {
                if let (Some(name), Some(value)) = (words.next(), words.next()) {
                    variables.insert(name.to_owned(), value.to_owned());
                }
                continue;
            }
            "test-env" if !is_in_record => {
                if let Some(name) = words.next() {
                    variables.insert(name.to_owned(), words.collect::<Vec<_>>().join(" "));
                }
                continue;
            }
            "statement" | "query" => is_in_record = true,
            "" => is_in_record = false,
            _ => {}
        }
        if unrolled.len() >= MOST_LINES {
            return Err(format!("its loops come to more than {MOST_LINES} lines"));
        }
        unrolled.push(Line { number: line.number, text });
    }
    Ok(())
}

/// How many lines there are up to the `endloop` that belongs to the loop before them.
fn loop_length(lines: &[Line]) -> Option<usize> {
    let mut depth = 0;
    for (index, line) in lines.iter().enumerate() {
        match line.text.split_whitespace().next() {
            Some("loop" | "foreach" | "concurrentloop" | "concurrentforeach") => depth += 1,
            Some("endloop") if depth == 0 => return Some(index),
            Some("endloop") => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The variables of every round.
fn rounds(head: &str) -> Result<Vec<Vec<(String, String)>>, String> {
    let words = words(head);
    let (Some(kind), Some(name)) = (words.first(), words.get(1)) else {
        return Err("the loop has no variable".to_owned());
    };
    if kind == "loop" || kind == "concurrentloop" {
        let bound = |index: usize| words.get(index).and_then(|word| word.parse::<i64>().ok());
        let (Some(start), Some(end)) = (bound(2), bound(3)) else {
            return Err(format!("'{head}' has no bounds"));
        };
        return Ok((start..end).map(|value| vec![(name.clone(), value.to_string())]).collect());
    }
    let mut values: Vec<String> = Vec::new();
    for word in words.iter().skip(2) {
        if let Some(without) = word.strip_prefix('!') {
            let without = group(without).unwrap_or_else(|| vec![without.to_owned()]);
            values.retain(|value| !without.contains(value));
        } else {
            values.extend(group(word).unwrap_or_else(|| vec![word.clone()]));
        }
    }
    // Several names at once take values that are joined by commas as well.
    let names: Vec<&str> = name.split(',').collect();
    let round = |value: String| match names.as_slice() {
        [_] => Ok(vec![(name.clone(), value)]),
        names => {
            let parts: Vec<&str> = value.split(',').collect();
            if parts.len() != names.len() {
                return Err(format!("'{value}' has not {} parts", names.len()));
            }
            Ok(names.iter().zip(parts).map(|(name, part)| ((*name).to_owned(), part.to_owned())).collect())
        }
    };
    values.into_iter().map(round).collect()
}

/// Words, of which those in double quotes may have spaces inside and keep their quotes away.
fn words(head: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    for letter in head.chars() {
        match letter {
            '"' => (is_quoted, is_word) = (!is_quoted, true),
            letter if letter.is_whitespace() && !is_quoted => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            letter => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

const SIGNED: [&str; 5] = ["tinyint", "smallint", "integer", "bigint", "hugeint"];
const UNSIGNED: [&str; 5] = ["utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"];
const FLOATING: [&str; 2] = ["float", "double"];
const OTHER_TYPES: [&str; 3] = ["bool", "interval", "varchar"];
const COMPRESSIONS: [&str; 8] =
    ["none", "uncompressed", "rle", "bitpacking", "dictionary", "fsst", "alp", "alprd"];

/// The values that a name in angle brackets stands for.
fn group(word: &str) -> Option<Vec<String>> {
    let name = word.strip_prefix('<')?.strip_suffix('>')?;
    let parts: &[&[&str]] = match name {
        "signed" => &[&SIGNED],
        "unsigned" => &[&UNSIGNED],
        "integral" => &[&SIGNED, &UNSIGNED],
        "numeric" => &[&SIGNED, &UNSIGNED, &FLOATING],
        "alltypes" => &[&SIGNED, &UNSIGNED, &FLOATING, &OTHER_TYPES],
        "compression" => &[&COMPRESSIONS],
        _ => return None,
    };
    Some(parts.concat().into_iter().map(str::to_owned).collect())
}

/// Whether `name=value` or `name<>value` holds, if the name is a loop's variable.
fn loop_condition(split: Option<(&str, &str)>, variables: &Variables) -> Option<bool> {
    let condition: String = split?.1.split_whitespace().collect();
    for (operator, wanted) in [("<>", false), ("!=", false), ("=", true)] {
        if let Some((name, value)) = condition.split_once(operator) {
            return variables.get(name).map(|actual| (actual == value) == wanted);
        }
    }
    None
}

/// A line with the values of variables in place of `{name}` and `${name}`. Other braces stay as they are.
pub fn substitute(line: &str, variables: &Variables) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        let value = from.find('}').and_then(|close| {
            let name = from.get(1..close)?;
            Some((variables.get(name)?, from.get(close + 1..)?))
        });
        match value {
            Some((value, behind)) => {
                text.push_str(before.strip_suffix('$').unwrap_or(before));
                text.push_str(value);
                rest = behind;
            }
            None => {
                text.push_str(before);
                text.push('{');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    text.push_str(rest);
    match variables.get("TEST_DIR") {
        Some(folder) => text.replace("__TEST_DIR__", folder),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str) -> Vec<String> {
        let lines = unroll(file, &Variables::from([("TEST_DIR".into(), "/t".into())])).unwrap();
        lines.into_iter().map(|line| line.text).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn loops_nest() {
        let file = "loop i 0 2\nforeach t a \"b c\"\nquery I\nselect ${i} {t} {x}\n\nendloop\nendloop\n";
        let selects: Vec<String> = texts(file).into_iter().filter(|text| text != "query I").collect();
        assert_eq!(selects, ["select 0 a {x}", "select 0 b c {x}", "select 1 a {x}", "select 1 b c {x}"]);
    }

    #[test]
    fn groups_and_exceptions() {
        assert_eq!(
            texts("foreach t <signed> !hugeint x\n{t}\nendloop"),
            ["tinyint", "smallint", "integer", "bigint", "x"]
        );
        assert_eq!(texts("foreach a,b 1,2 3,4\n{b}{a}\nendloop"), ["21", "43"]);
    }

    #[test]
    fn conditions_on_loops_are_decided() {
        let file = "foreach t a b\nonlyif t=a\nstatement ok\nselect '{t}'\n\nendloop\nskipif sqlite\n";
        let expected =
            ["statement ok", "select 'a'", "skipif nandina", "statement ok", "select 'b'", "skipif sqlite"];
        assert_eq!(texts(file), expected);
    }

    #[test]
    fn folders_and_variables() {
        assert_eq!(texts("set variable sf 0.1\nload {TEST_DIR}/a__TEST_DIR__ {sf}"), ["load /t/a/t 0.1"]);
    }

    #[test]
    fn what_has_no_end_is_an_error() {
        assert!(unroll("\nloop i 0 3\nx", &Variables::new()).unwrap_err().contains("line 2"));
        assert!(unroll("loop i 0\nendloop", &Variables::new()).is_err());
    }

    #[test]
    fn statements_may_look_like_loops() {
        assert_eq!(texts("statement ok\nloop the loop\n\nx"), ["statement ok", "loop the loop", "x"]);
    }
}
