//! Statements that are tables, as calls of functions that the parser can read.
//!
//! ```text
//!   PIVOT t ON a, b USING sum(x) AS s GROUP BY g
//!     ─►  SELECT * FROM __pivot(source := (SELECT * FROM t), on := (a), on := (b), using := (sum(x)), called := (s),
//!                               group := (g))
//!   UNPIVOT t ON a, b INTO NAME n VALUE v
//!     ─►  SELECT * FROM __unpivot(source := (SELECT * FROM t), on := (a), on := (b), name := (n), value := (v))
//!   SUMMARIZE t    ─►  SELECT * FROM __summarize(source := (SELECT * FROM t))
//!   (DESCRIBE t)   ─►  (SELECT * FROM __describe(source := (SELECT * FROM t)))
//! ```
//!
//! [`lookups`](crate::planning::lookups) replaces the calls, when it knows the columns of `t`.

use std::collections::HashMap;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

pub(crate) const PIVOT: &str = "__pivot";
pub(crate) const UNPIVOT: &str = "__unpivot";
pub(crate) const SUMMARIZE: &str = "__summarize";
pub(crate) const DESCRIBE: &str = "__describe";

/// What is written at a place, and how many tokens that replaces.
#[derive(Debug, Default, Clone)]
pub(super) struct Edit {
    pub written: Vec<Token>,
    pub replaced: usize,
}

/// The edits that make a call of a statement which begins at a place, by the places; none if no such one does.
pub(super) fn edits(tokens: &[TokenWithSpan], at: usize) -> Option<HashMap<usize, Edit>> {
    let word = word(tokens.get(at)?)?;
    let (name, is_plain) = match word.value.to_ascii_lowercase().as_str() {
        "pivot" | "pivot_wider" => (PIVOT, false),
        "unpivot" | "pivot_longer" => (UNPIVOT, false),
        "summarize" => (SUMMARIZE, true),
        "describe" => (DESCRIBE, true),
        _ => return None,
    };
    let mut writer = Writer { edits: HashMap::new(), tokens };
    let end = writer.end(at);
    if end == at + 1 {
        return None;
    }
    let is_query = is_plain && begins_query(tokens.get(at + 1)?);
    let mut head = vec![
        Token::make_keyword("SELECT"),
        Token::Mul,
        Token::make_keyword("FROM"),
        Token::make_word(name, Some('"')),
        Token::LParen,
    ];
    head.extend(argument("source"));
    if !is_query {
        head.extend([Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")]);
    }
    writer.write(at, 1, head);
    if !is_plain {
        writer.clauses(at + 1, end)?;
    }
    writer.write(end, 0, vec![Token::RParen, Token::RParen]);
    Some(writer.edits)
}

/// The beginning of an argument, whose end is a bracket.
fn argument(name: &str) -> [Token; 3] {
    [Token::make_word(name, Some('"')), Token::Assignment, Token::LParen]
}

fn word(token: &TokenWithSpan) -> Option<&Word> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    }
}

fn begins_query(token: &TokenWithSpan) -> bool {
    word(token).is_some_and(|word| {
        let is_table =
            ["pivot", "unpivot", "summarize"].iter().any(|name| word.value.eq_ignore_ascii_case(name));
        is_table
            || matches!(
                word.keyword,
                Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::FROM | Keyword::TABLE
            )
    })
}

/// The places from one on that stand in no further bracket, up to the end of the bracket or statement around them.
pub(super) fn outside(tokens: &[TokenWithSpan], from: usize) -> impl Iterator<Item = (usize, &Token)> {
    let mut open = 0_usize;
    tokens
        .iter()
        .enumerate()
        .skip(from)
        .map_while(move |(at, token)| {
            match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => open += 1,
                Token::RParen | Token::RBracket | Token::RBrace => {
                    open = open.checked_sub(1)?;
                    return Some(None);
                }
                Token::SemiColon if open == 0 => return None,
                token if open == 0 => return Some(Some((at, token))),
                _ => {}
            }
            Some(None)
        })
        .flatten()
}

struct Writer<'a> {
    edits: HashMap<usize, Edit>,
    tokens: &'a [TokenWithSpan],
}

impl Writer<'_> {
    fn write(&mut self, at: usize, replaced: usize, written: Vec<Token>) {
        let edit = self.edits.entry(at).or_default();
        edit.written.extend(written);
        edit.replaced += replaced;
    }

    /// Where a statement ends that begins at a place: with the bracket around it, or where what orders its rows begins.
    fn end(&self, at: usize) -> usize {
        let bracket = || {
            let mut open = 0_usize;
            self.tokens.iter().enumerate().skip(at).find(|(_, token)| match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => {
                    open += 1;
                    false
                }
                Token::RParen | Token::RBracket | Token::RBrace if open == 0 => true,
                Token::RParen | Token::RBracket | Token::RBrace => {
                    open -= 1;
                    false
                }
                Token::SemiColon => open == 0,
                _ => false,
            })
        };
        let is_summary = self.tokens.get(at + 1).is_some_and(begins_query);
        let behind = outside(self.tokens, at).find(|(_, token)| match token {
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::ORDER | Keyword::LIMIT | Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => {
                    !is_summary
                }
                _ => false,
            },
            _ => false,
        });
        let ends = [behind.map(|(at, _)| at), bracket().map(|(at, _)| at)];
        ends.into_iter().flatten().min().unwrap_or(self.tokens.len())
    }

    /// Writes the clauses of `PIVOT` and `UNPIVOT` behind the table.
    fn clauses(&mut self, from: usize, end: usize) -> Option<()> {
        let marks: Vec<(usize, Mark)> = {
            let mut marks = Vec::new();
            let mut places = outside(self.tokens, from).take_while(|(at, _)| *at < end).peekable();
            while let Some((at, token)) = places.next() {
                let Some(mark) = Mark::of(token, places.peek().map(|(_, token)| *token)) else { continue };
                marks.push((at, mark));
            }
            marks
        };
        let mut clause = "";
        for (at, mark) in marks {
            match mark {
                Mark::Clause { name, words } => {
                    clause = name;
                    self.next(at, words, name);
                }
                Mark::Comma if matches!(clause, "on" | "using" | "group" | "value") => {
                    self.next(at, 1, clause)
                }
                Mark::Alias if matches!(clause, "on" | "using") => self.next(at, 1, "called"),
                Mark::Comma | Mark::Alias => {}
            }
        }
        Some(())
    }

    /// Ends an argument, and begins one with this name in the place of some words.
    fn next(&mut self, at: usize, words: usize, name: &str) {
        let mut written = vec![Token::RParen, Token::Comma];
        written.extend(argument(name));
        self.write(at, words, written);
    }
}

enum Mark {
    Clause { name: &'static str, words: usize },
    Comma,
    Alias,
}

impl Mark {
    fn of(token: &Token, next: Option<&Token>) -> Option<Self> {
        let is = |token: Option<&Token>, keyword| matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == keyword);
        let clause = |name, words| Some(Mark::Clause { name, words });
        match token {
            Token::Comma => Some(Mark::Comma),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::ON => clause("on", 1),
                Keyword::USING => clause("using", 1),
                Keyword::GROUP if is(next, Keyword::BY) => clause("group", 2),
                Keyword::INTO if is(next, Keyword::NAME) => clause("name", 2),
                Keyword::VALUE => clause("value", 1),
                Keyword::AS => Some(Mark::Alias),
                _ => None,
            },
            _ => None,
        }
    }
}
