//! JSON texts as trees, which keep the order of an object's members, and members of one name.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::encode::{write_float, write_text};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Boolean(bool),
    Negative(i64),
    Whole(u64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// What DuckDB calls such a value.
    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "NULL",
            Json::Boolean(_) => "BOOLEAN",
            Json::Negative(_) => "BIGINT",
            Json::Whole(_) => "UBIGINT",
            Json::Float(_) => "DOUBLE",
            Json::Text(_) => "VARCHAR",
            Json::List(_) => "ARRAY",
            Json::Object(_) => "OBJECT",
        }
    }

    pub fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Negative(value) => *out += &value.to_string(),
            Json::Whole(value) => *out += &value.to_string(),
            Json::Float(value) => write_float(*value, out),
            Json::Text(text) => write_text(text, out),
            Json::List(values) => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    value.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Texts without quotes, and no text for null.
    pub fn into_plain(self) -> Option<String> {
        match self {
            Json::Null => None,
            Json::Text(text) => Some(text),
            other => Some(other.to_text()),
        }
    }

    /// Written over several lines.
    pub fn write_pretty(&self, depth: usize, out: &mut String) {
        let line = |depth: usize, out: &mut String| {
            out.push('\n');
            out.push_str(&"    ".repeat(depth));
        };
        match self {
            Json::List(values) if !values.is_empty() => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    line(depth + 1, out);
                    value.write_pretty(depth + 1, out);
                }
                line(depth, out);
                out.push(']');
            }
            Json::Object(members) if !members.is_empty() => {
                out.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    line(depth + 1, out);
                    write_text(name, out);
                    out.push_str(": ");
                    value.write_pretty(depth + 1, out);
                }
                line(depth, out);
                out.push('}');
            }
            other => other.write(out),
        }
    }

    /// Whether all of `other` is in it.
    pub fn contains(&self, other: &Json) -> bool {
        self.has(other)
            || match self {
                Json::List(values) => values.iter().any(|value| value.contains(other)),
                Json::Object(members) => members.iter().any(|(_, value)| value.contains(other)),
                _ => false,
            }
    }

    fn has(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::List(own), Json::List(others)) => {
                others.iter().all(|other| own.iter().any(|value| value.has(other)))
            }
            (Json::Object(own), Json::Object(others)) => others
                .iter()
                .all(|(name, other)| own.iter().any(|(known, value)| known == name && value.has(other))),
            (own, other) => own == other,
        }
    }

    /// With the members of a patch, which removes those that it has as null.
    pub fn merge(self, patch: Json) -> Json {
        let Json::Object(changes) = patch else { return patch };
        let mut members = match self {
            Json::Object(members) => members,
            _ => Vec::new(),
        };
        for (name, change) in changes {
            let place = members.iter().position(|(known, _)| *known == name);
            let old =
                place.map(|place| members.get_mut(place).map(|(_, old)| std::mem::replace(old, Json::Null)));
            match (place, change) {
                (Some(place), Json::Null) => drop(members.remove(place)),
                (None, Json::Null) => {}
                (place, change) => {
                    let merged = old.flatten().unwrap_or(Json::Null).merge(change);
                    match place.and_then(|place| members.get_mut(place)) {
                        Some((_, value)) => *value = merged,
                        None => members.push((name, merged)),
                    }
                }
            }
        }
        Json::Object(members)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(if value < 0 { Json::Negative(value) } else { Json::Whole(value as u64) })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Whole(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Json::Object(object))
    }
}
