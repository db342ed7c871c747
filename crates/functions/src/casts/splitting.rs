//! Texts of lists, structs and maps, taken apart into the texts of their parts.
//!
//! ```text
//!   [1, 'a, b', [2, 3], NULL]     {name: Ann, 'last name': "O'Neill"}     (Ann, 3)     {k1=1, k2=[2]}
//!    ^  ^       ^       ^ null     key   part
//! ```
//!
//! Quotes of both kinds hold what is between them together, and `\` there stands before a character that is meant as
//! itself; elsewhere it does so before a quote alone. Brackets hold together as well: what is in them is taken apart later, as the text of a part.

use std::borrow::Cow;

/// A part: none where it is the word `NULL`.
pub(super) type Part<'a> = Option<Cow<'a, str>>;

/// The elements of `[a, b]`.
pub(super) fn list(text: &str) -> Option<Vec<Part<'_>>> {
    let inside = between(text, '[', ']')?;
    if inside.is_empty() {
        return Some(Vec::new());
    }
    let mut rest = Some(inside);
    let mut parts = Vec::new();
    while let Some(from) = rest {
        let (raw, behind) = piece(from, b',')?;
        parts.push(part(raw));
        rest = behind;
    }
    Some(parts)
}

/// The fields of a struct.
pub(super) enum Fields<'a> {
    /// `{a: 1, b: 2}`
    Named(Vec<(Cow<'a, str>, Part<'a>)>),
    /// `(1, 2)`
    Positional(Vec<Part<'a>>),
}

pub(super) fn fields(text: &str) -> Option<Fields<'_>> {
    if let Some(inside) = between(text, '(', ')') {
        let mut rest = Some(inside);
        let mut parts = Vec::new();
        while let Some(from) = rest.filter(|from| !from.is_empty()) {
            let (raw, behind) = piece(from, b',')?;
            parts.push(part(raw));
            rest = behind.map(str::trim_ascii);
        }
        return Some(Fields::Positional(parts));
    }
    let pairs = pairs(text, b':')?;
    let named = pairs.into_iter().map(|(key, value)| {
        let key = unquoted(key);
        (!key.is_empty()).then(|| (key, part(value)))
    });
    named.collect::<Option<_>>().map(Fields::Named)
}

/// The keys and values of `{k1=1, k2=2}`; a key is never null.
pub(super) fn entries(text: &str) -> Option<Vec<(Cow<'_, str>, Part<'_>)>> {
    pairs(text, b'=')?.into_iter().map(|(key, value)| Some((part(key)?, part(value)))).collect()
}

/// The keys and values in curly brackets, as they are written.
fn pairs(text: &str, separator: u8) -> Option<Vec<(&str, &str)>> {
    let inside = between(text, '{', '}')?;
    if inside.is_empty() {
        return Some(Vec::new());
    }
    let mut rest = Some(inside);
    let mut pairs = Vec::new();
    while let Some(from) = rest {
        let (key, value) = piece(from, separator)?;
        let (value, behind) = piece(value?, b',')?;
        pairs.push((key, value));
        rest = behind;
    }
    Some(pairs)
}

fn between(text: &str, open: char, close: char) -> Option<&str> {
    Some(text.trim_ascii().strip_prefix(open)?.strip_suffix(close)?.trim_ascii())
}

/// What stands before a separator that nothing holds together, and what stands behind it, if there is one.
fn piece(text: &str, separator: u8) -> Option<(&str, Option<&str>)> {
    let mut closing = Vec::new();
    let mut quote = None;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (None, b'\\') if is_quote(text.as_bytes().get(at + 1)) => {
                bytes.next();
            }
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, byte) if byte == separator && closing.is_empty() => {
                return Some((text.get(..at)?.trim_ascii(), text.get(at + 1..)));
            }
            // The name of a field is all that stands before its colon.
            (None, _) if separator == b':' => {}
            (None, b'[') => closing.push(b']'),
            (None, b'{') => closing.push(b'}'),
            (None, b'(') => closing.push(b')'),
            (None, b')') if closing.last() != Some(&byte) => {}
            (None, b']' | b'}' | b')') if closing.pop() != Some(byte) => return None,
            _ => {}
        }
    }
    (quote.is_none() && closing.is_empty()).then_some((text.trim_ascii(), None))
}

fn is_quote(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b'\'' | b'"'))
}

fn part(raw: &str) -> Part<'_> {
    (!raw.eq_ignore_ascii_case("null")).then(|| unquoted(raw))
}

/// A part without its quotes; those inside of brackets are for the parts of the part.
fn unquoted(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['\'', '"']) || raw.starts_with(['[', '{', '(']) {
        return Cow::Borrowed(raw);
    }
    let mut plain = String::with_capacity(raw.len());
    let mut quote = None;
    let mut letters = raw.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => plain.extend(letters.next()),
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '\\') if letters.peek().is_some_and(|next| matches!(next, '\'' | '"')) => {
                plain.extend(letters.next())
            }
            (_, letter) => plain.push(letter),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(parts: Option<Vec<Part<'_>>>) -> String {
        let show = |part: Part<'_>| part.map_or("null".to_owned(), |part| format!("<{part}>"));
        parts.map_or("none".to_owned(), |parts| parts.into_iter().map(show).collect())
    }

    #[test]
    fn lists_are_taken_apart() {
        for (text, parts) in [
            ("[]", ""),
            (" [ ] ", ""),
            ("[ a b , c ]", "<a b><c>"),
            ("[,]", "<><>"),
            ("[a,]", "<a><>"),
            (r#"["a, b", 'c']"#, "<a, b><c>"),
            (r#"[NULL, null, "NULL"]"#, "nullnull<NULL>"),
            ("[[a,b],{c}]", "<[a,b]><{c}>"),
            (r#"[['a]'], "]"]"#, "<['a]']><]>"),
            (r"['a\'b', \a]", r"<a'b><\a>"),
            (r#"["a" b]"#, "<a b>"),
            ("[a'b]", "none"),
            ("[a]]", "none"),
            ("[[a}]", "none"),
            ("[a", "none"),
            ("a", "none"),
            ("['é\\é']", "<éé>"),
            (r"[\'a\', b)]", "<'a'><b)>"),
        ] {
            assert_eq!(shown(list(text)), parts, "{text}");
        }
    }

    #[test]
    fn keys_and_values_are_taken_apart() {
        let entries = entries("{a=1, 'b=c'=[2, 3], d==x}").unwrap();
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        assert_eq!(entries, [("a", Some("1")), ("b=c", Some("[2, 3]")), ("d", Some("=x"))]);
        assert!(super::entries("{NULL=1}").is_none());
        assert!(super::entries("{a: 1}").is_none());
        assert!(matches!(fields("{a: 1, b: c:d}"), Some(Fields::Named(named)) if named.len() == 2));
        assert!(matches!(fields("(1,)"), Some(Fields::Positional(parts)) if parts.len() == 1));
        assert!(matches!(fields("{user(name: 1}"), Some(Fields::Named(named)) if named.len() == 1));
        assert!(fields("{: 1}").is_none());
        assert!(fields("{a: 1,}").is_none());
    }
}
