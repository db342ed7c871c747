//! Names of tables and other objects, with the schema that they are in.
//!
//! ```text
//!   orders            table orders of schema main
//!   sales.orders      table orders of schema sales
//!   "a.b"             table a.b of schema main: what has dots or quotes stands in double quotes
//! ```
//!
//! The store tells objects apart by these texts; only what is made of them knows of schemas.

/// The schema of names without one. It is always there.
pub const MAIN: &str = "main";

/// The name of an object of a schema.
pub fn qualified(schema: &str, name: &str) -> String {
    match schema {
        MAIN => quoted(name),
        schema => format!("{}.{}", quoted(schema), quoted(name)),
    }
}

/// The schema and the bare name of an object.
pub fn parts(qualified: &str) -> (String, String) {
    let mut parts = vec![String::new()];
    let mut letters = qualified.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                push(&mut parts, '"');
            }
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(String::new()),
            letter => push(&mut parts, letter),
        }
    }
    let name = parts.pop().unwrap_or_default();
    (parts.pop().unwrap_or_else(|| MAIN.to_owned()), name)
}

fn push(parts: &mut [String], letter: char) {
    if let Some(last) = parts.last_mut() {
        last.push(letter);
    }
}

fn quoted(name: &str) -> String {
    match name.contains(['.', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for schema in ["main", "sales", "a.b", "a\"b", ""] {
            for name in ["orders", "x.y", "\"", "\"\".", "", "größe"] {
                let text = qualified(schema, name);
                assert_eq!(parts(&text), (schema.to_owned(), name.to_owned()), "{text}");
            }
        }
        assert_eq!(qualified("main", "orders"), "orders");
        assert_eq!(qualified("sales", "orders"), "sales.orders");
        assert_eq!(qualified("main", "a.b"), "\"a.b\"");
    }
}
