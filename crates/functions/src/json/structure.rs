//! Which types JSON values have: `json_structure('{"a": [1]}')` is `{"a":["UBIGINT"]}`.

use super::value::Json;

/// The structure of a value, as JSON with the names of types.
pub(super) fn of(json: &Json) -> Json {
    match json {
        Json::List(values) => {
            let common = values.iter().map(of).reduce(common);
            Json::List(vec![common.unwrap_or_else(|| named("NULL"))])
        }
        Json::Object(members) if members.is_empty() => named("JSON"),
        Json::Object(members) => {
            let fields = members.iter().map(|(name, value)| (name.clone(), of(value)));
            let mut all = Vec::new();
            fields.for_each(|(name, of)| add(&mut all, name, of));
            Json::Object(all)
        }
        value => named(value.type_name()),
    }
}

fn named(name: &str) -> Json {
    Json::Text(name.to_owned())
}

fn add(fields: &mut Vec<(String, Json)>, name: String, of: Json) {
    match fields.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = common(std::mem::replace(known, Json::Null), of),
        None => fields.push((name, of)),
    }
}

/// The structure of values of two structures.
fn common(one: Json, other: Json) -> Json {
    match (one, other) {
        (one, other) if one == other => one,
        (Json::Text(null), known) | (known, Json::Text(null)) if null == "NULL" => known,
        (Json::List(one), Json::List(other)) => {
            Json::List(one.into_iter().chain(other).reduce(common).into_iter().collect())
        }
        (Json::Object(mut fields), Json::Object(others)) => {
            others.into_iter().for_each(|(name, of)| add(&mut fields, name, of));
            Json::Object(fields)
        }
        (Json::Text(one), Json::Text(other)) => {
            let is_number = |name: &str| matches!(name, "UBIGINT" | "BIGINT" | "HUGEINT" | "DOUBLE");
            named(match () {
                () if !is_number(&one) || !is_number(&other) => "JSON",
                () if one == "DOUBLE" || other == "DOUBLE" => "DOUBLE",
                () => "HUGEINT",
            })
        }
        _ => named("JSON"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_those_of_all_values() {
        for (json, expected) in [
            ("[]", r#"["NULL"]"#),
            ("{}", r#""JSON""#),
            ("[1, -1]", r#"["HUGEINT"]"#),
            ("[1, null, 1.5]", r#"["DOUBLE"]"#),
            ("[[1], [true]]", r#"[["JSON"]]"#),
            (r#"[{"a": 1}, {"b": "x"}]"#, r#"[{"a":"UBIGINT","b":"VARCHAR"}]"#),
            (r#"[{"a": 1}, 2]"#, r#"["JSON"]"#),
        ] {
            assert_eq!(of(&Json::parse(json).unwrap()).to_text(), expected, "{json}");
        }
    }
}
