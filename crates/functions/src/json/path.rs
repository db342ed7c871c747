//! Places in JSON: `$.a.b[0]`, `$."a b"[*]`, `$..a`, `/a/b/0`, `a` and `0`.

use datafusion::common::{Result, exec_err};

use super::value::Json;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    /// From the beginning, or from the end where negative.
    Element(i64),
    /// A member of an object or an element of a list, as JSON pointers do not tell them apart.
    Either(String),
    AllMembers,
    AllElements,
    /// Members of this name, or all, at any depth.
    Anywhere(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path(Vec<Step>);

impl Path {
    /// The path that a text is; a text that is none is the name of a member.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix('$') {
            return match steps(rest) {
                Some(steps) => Ok(Path(steps)),
                None => {
                    exec_err!("'{text}' is not a path in JSON; write for example '$.name[0]' or '/name/0'")
                }
            };
        }
        Ok(Path(match text.strip_prefix('/') {
            Some(rest) => {
                rest.split('/').map(|step| Step::Either(step.replace("~1", "/").replace("~0", "~"))).collect()
            }
            None if text.is_empty() => Vec::new(),
            None => vec![Step::Member(text.to_owned())],
        }))
    }

    /// The whole.
    pub fn root() -> Self {
        Path(Vec::new())
    }

    pub fn element(place: i64) -> Self {
        Path(vec![Step::Element(place)])
    }

    /// Whether it may lead to several values.
    pub fn has_wildcard(&self) -> bool {
        let is_wild = |step: &Step| matches!(step, Step::AllMembers | Step::AllElements | Step::Anywhere(_));
        self.0.iter().any(is_wild)
    }

    /// The value that it leads to.
    pub fn find<'a>(&self, root: &'a Json) -> Option<&'a Json> {
        self.0.iter().try_fold(root, |value, step| match (step, value) {
            (Step::Member(name) | Step::Either(name), Json::Object(members)) => member(members, name),
            (Step::Either(name), Json::List(values)) => values.get(name.parse::<usize>().ok()?),
            (Step::Element(place), Json::List(values)) => values.get(in_list(*place, values.len())?),
            _ => None,
        })
    }

    /// The values that it leads to.
    pub fn find_all<'a>(&self, root: &'a Json) -> Vec<&'a Json> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                match (step, value) {
                    (Step::AllMembers, Json::Object(members)) => {
                        next.extend(members.iter().map(|(_, value)| value));
                    }
                    (Step::AllElements, Json::List(values)) => next.extend(values),
                    (Step::Anywhere(name), value) => anywhere(value, name.as_deref(), &mut next),
                    (Step::AllMembers | Step::AllElements, _) => {}
                    (step, value) => next.extend(Path(vec![step.clone()]).find(value)),
                }
            }
            found = next;
        }
        found
    }
}

fn member<'a>(members: &'a [(String, Json)], name: &str) -> Option<&'a Json> {
    members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn in_list(place: i64, length: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(place) => Some(place),
        Err(_) => length.checked_sub(usize::try_from(place.unsigned_abs()).ok()?),
    }
}

fn anywhere<'a>(value: &'a Json, name: Option<&str>, found: &mut Vec<&'a Json>) {
    match value {
        Json::Object(members) => {
            for (known, inner) in members {
                if name.is_none_or(|name| name == known) {
                    found.push(inner);
                }
                anywhere(inner, name, found);
            }
        }
        Json::List(values) => {
            for inner in values {
                if name.is_none() {
                    found.push(inner);
                }
                anywhere(inner, name, found);
            }
        }
        _ => {}
    }
}

/// The steps behind `$`; none if they are none.
fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('[') {
            let (inside, after) = split_bracket(behind)?;
            steps.push(match inside.trim() {
                "*" => Step::AllElements,
                // Behind the last one, where nothing is.
                "#" => Step::Element(i64::MAX),
                place if place.starts_with('"') || place.starts_with('\'') => Step::Member(quoted(place)?.0),
                place => Step::Element(place.strip_prefix('#').unwrap_or(place).parse().ok()?),
            });
            rest = after;
            continue;
        }
        let is_anywhere = rest.starts_with("..");
        let behind = rest.strip_prefix("..").or_else(|| rest.strip_prefix('.'))?;
        let (name, after) = if behind.starts_with('"') {
            let (name, after) = quoted(behind)?;
            (Some(name), after)
        } else {
            let end = behind.find(['.', '[']).unwrap_or(behind.len());
            let (name, after) = behind.split_at(end);
            ((name != "*").then(|| name.to_owned()), after)
        };
        if name.as_deref() == Some("") {
            return None;
        }
        steps.push(match (is_anywhere, name) {
            (true, name) => Step::Anywhere(name),
            (false, Some(name)) => Step::Member(name),
            (false, None) => Step::AllMembers,
        });
        rest = after;
    }
    Some(steps)
}

/// What is inside of a bracket, and what is behind it.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    if text.starts_with(['"', '\'']) {
        let (_, after) = quoted(text)?;
        let inside = text.get(..text.len() - after.len())?;
        return Some((inside, after.strip_prefix(']')?));
    }
    text.split_once(']')
}

/// A name in quotes, and what is behind them.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next()?;
    let mut name = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            letter if letter == quote => return Some((name, text.get(at + letter.len_utf8()..)?)),
            letter => name.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, path: &str) -> Vec<String> {
        let json = Json::parse(json).unwrap();
        Path::parse(path).unwrap().find_all(&json).iter().map(|value| value.to_text()).collect()
    }

    #[test]
    fn paths_lead_to_values() {
        let json = r#"{"a": [1, {"b c": null}, 3], "d": {"a": 4}, "": 5, "x/y": 6}"#;
        for (path, expected) in [
            ("$", r#"{"a":[1,{"b c":null},3],"d":{"a":4},"":5,"x/y":6}"#),
            ("$.a[0]", "1"),
            ("a", r#"[1,{"b c":null},3]"#),
            ("$.a[1].\"b c\"", "null"),
            ("$['a'][-1]", "3"),
            ("$.a[#-1]", "3"),
            ("/a/1/b c", "null"),
            ("/x~1y", "6"),
            ("$.d.a", "4"),
        ] {
            assert_eq!(found(json, path), [expected], "{path}");
        }
        for path in ["$.b", "$.a.b", "$.a[7]", "$.a[-4]", "/a/x", "$.d[0]"] {
            assert!(found(json, path).is_empty(), "{path}");
        }
        assert_eq!(found(json, "$.a[*]"), ["1", r#"{"b c":null}"#, "3"]);
        assert_eq!(found(json, "$.d.*"), ["4"]);
        assert_eq!(found(json, "$..a"), [r#"[1,{"b c":null},3]"#, "4"]);
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in ["$.", "$[", "$[x]", "$.\"a", "$a", "$.a..", "$[\"a\"x]"] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }
}
