//! Splitting SQL text into statements, without parsing it.
//!
//! A shell must know whether the text typed so far is complete, and a script is run statement by statement so
//! that the statements before a faulty one take effect. Only quoting and comments matter for that:
//!
//! ```text
//!   SELECT ';' ; -- one; two     'text with '' inside'  "name"  $tag$ text $tag$  /* nested /* too */ */
//!           ^ no      ^ no
//! ```

/// Statements of a text, without their semicolons, and what follows the last semicolon.
#[derive(Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// Complete statements, trimmed; empty ones are left out.
    pub complete: Vec<&'a str>,
    /// Text after the last semicolon, trimmed. Comments alone count as nothing.
    pub rest: &'a str,
}

/// Splits at the semicolons that end statements.
pub fn split(text: &str) -> Split<'_> {
    let mut complete = Vec::new();
    let mut start = 0;
    let mut at = 0;
    let mut has_content = false;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first == ';' {
            if has_content {
                complete.push(text[start..at].trim());
            }
            start = at + 1;
            has_content = false;
            at += 1;
            continue;
        }
        let comment = comment_length(rest);
        if comment > 0 {
            at += comment;
            continue;
        }
        has_content |= !first.is_whitespace();
        at += quoted_length(rest).unwrap_or(first.len_utf8());
    }
    let rest = if has_content { text[start..].trim() } else { "" };
    Split { complete, rest }
}

/// All statements, the last of which need not end with a semicolon.
pub fn statements(text: &str) -> Vec<&str> {
    let Split { mut complete, rest } = split(text);
    if !rest.is_empty() {
        complete.push(rest);
    }
    complete
}

/// The text from its first character that is not part of a comment.
pub(crate) fn without_leading_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let length @ 1.. = comment_length(rest) {
        rest = rest[length..].trim_start();
    }
    rest
}

/// The words, quoted texts and other characters of a text, and where each begins; comments and white space are left out.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let (length, is_token) = match (comment_length(rest), quoted_length(rest)) {
                (0, None) => (word_length(rest), !rest.starts_with(char::is_whitespace)),
                (0, Some(quoted)) => (quoted, true),
                (comment, _) => (comment, false),
            };
            let (token, _) = rest.split_at(length.min(rest.len()));
            let begin = at;
            at += token.len();
            if is_token {
                return Some((begin, token));
            }
        }
    })
}

/// Bytes of the name or number that `text` starts with, or of its first character.
fn word_length(text: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let word = text.find(|c| !is_part(c)).unwrap_or(text.len());
    word.max(text.chars().next().map_or(1, char::len_utf8))
}

/// Bytes of the comment that `text` starts with; zero when it starts with something else.
fn comment_length(text: &str) -> usize {
    if text.starts_with("--") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Bytes of the quoted text that `text` starts with (to the end when it is not closed).
fn quoted_length(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if matches!(first, '\'' | '"' | '`') {
        // A doubled quote closes and reopens, which comes to the same thing here.
        let inner = text.get(1..)?;
        return Some(inner.find(first).map_or(text.len(), |end| end + 2));
    }
    if first == '$' {
        let inner = text.get(1..)?;
        let tag_length = inner.find('$')?;
        let tag = text.get(..tag_length + 2)?;
        let is_tag = inner
            .get(..tag_length)?
            .chars()
            .enumerate()
            .all(|(position, c)| c == '_' || c.is_alphabetic() || (position > 0 && c.is_numeric()));
        if !is_tag {
            return None;
        }
        let body = text.get(tag.len()..)?;
        return Some(body.find(tag).map_or(text.len(), |end| tag.len() + end + tag.len()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_split() {
        let text = "SELECT ';', \"a;b\", $x$;$x$ -- no; \n /* ; /* ; */ ; */ FROM t; SELECT 2";
        let found = split(text);
        assert_eq!(found.complete.len(), 1);
        assert!(found.complete[0].ends_with("FROM t"));
        assert_eq!(found.rest, "SELECT 2");
    }

    #[test]
    fn empty_statements_and_comments_are_nothing() {
        assert_eq!(split(" ; ;; -- nothing\n"), Split { complete: vec![], rest: "" });
        assert_eq!(statements("SELECT 1;\n-- done\n"), vec!["SELECT 1"]);
    }

    #[test]
    fn open_quotes_are_incomplete() {
        assert_eq!(split("SELECT 'a;").rest, "SELECT 'a;");
        assert_eq!(split("SELECT 1 /* ;").rest, "SELECT 1 /* ;");
        assert_eq!(split("SELECT 'it''s; ok'; x").complete, vec!["SELECT 'it''s; ok'"]);
    }

    #[test]
    fn leading_comments_are_skipped() {
        assert_eq!(without_leading_comments(" -- a\n /* b */ SET x -- c"), "SET x -- c");
        assert_eq!(without_leading_comments("/* open"), "");
    }

    #[test]
    fn parameters_are_not_dollar_quotes() {
        assert_eq!(statements("SELECT $1; SELECT $2"), vec!["SELECT $1", "SELECT $2"]);
    }

    #[test]
    fn tokens_know_their_place() {
        let text = "a.b1 ('it''s' /* no */ -- no\n, \"x y\")";
        let found: Vec<&str> = tokens(text).map(|(_, token)| token).collect();
        assert_eq!(found, ["a", ".", "b1", "(", "'it'", "'s'", ",", "\"x y\"", ")"]);
        assert!(tokens(text).all(|(begin, token)| text[begin..].starts_with(token)));
    }

    #[test]
    fn characters_of_several_bytes_are_passed_over() {
        assert_eq!(statements("SELECT 'ä', é; /* ☃ */ x"), vec!["SELECT 'ä', é", "/* ☃ */ x"]);
    }

    proptest::proptest! {
        /// Whatever is typed, nothing is lost or invented: the pieces stand in the text in this order.
        #[test]
        fn pieces_are_parts_of_the_text(text in "[a;'\"`$\\-/* \nä☃x]{0,40}") {
            let found = split(&text);
            let mut rest = text.as_str();
            for piece in found.complete.iter().copied().chain([found.rest]) {
                let at = rest.find(piece);
                proptest::prop_assert!(at.is_some(), "{piece:?} is not in {rest:?}");
                rest = &rest[at.unwrap_or_default() + piece.len()..];
            }
            proptest::prop_assert!(found.complete.iter().all(|piece| !piece.is_empty()));
            // Splitting complete statements again finds the same.
            for piece in &found.complete {
                proptest::prop_assert_eq!(statements(piece), vec![*piece]);
            }
        }
    }
}
