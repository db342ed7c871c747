//! Forms that the parser cannot be taught, written as ones that it knows. Tokens keep their places, which errors point at.
//!
//! | written | read as |
//! |---|---|
//! | `a ** b` | `a ^ b` |
//! | `'a'` and `'b'` on the next line | `'ab'` |
//! | `WITH t AS [NOT] MATERIALIZED (…)` | `WITH t AS (…)` |
//! | `a ISNULL` | `a IS NULL` |
//! | `ORDER BY *` | `ORDER BY ALL` |
//! | `FROM t WHERE x` | `SELECT * FROM t WHERE x` |
//! | `a ASOF LEFT JOIN b ON x` | `a GLOBAL LEFT JOIN b ON x`, a word of ClickHouse that the tree keeps |
//! | `t PIVOT (… GROUP BY a, b)` | `t PIVOT (… DEFAULT ON NULL ((a, b)))`, words of Snowflake that the tree keeps |
//! | `LIMIT 10 %`, `USING SAMPLE 10` | calls of functions ([`amounts`]) |
//! | `OVER (ROWS … EXCLUDE TIES)` | a key of the partitions that [`exclusions`] writes |
//! | `rank(ORDER BY x)` | `rank(* ORDER BY x)` |
//! | `MERGE … USING (a)`, `THEN DO NOTHING`, `THEN INSERT *` | actions of columns that there are not ([`merges`]) |
//! | `l[-:2]`, `l[1:-:2]` | `l[[]:2]`, `l[1:[]:2]`: a bound that is left out |
//! | the type `DECIMAL()` | `DECIMAL` |
//! | the types `STRUCT(a INT)`, `MAP(INT, TEXT)` | `STRUCT<a INT>`, `MAP<INT, TEXT>` |

use std::collections::HashMap;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Whitespace, Word};

use super::amounts;
use super::calls::{self, Edit};
use super::exclusions;
use super::merges;

/// Words behind which an expression begins, and no type.
const BEFORE_EXPRESSIONS: [Keyword; 28] = [
    Keyword::ALL,
    Keyword::AND,
    Keyword::BETWEEN,
    Keyword::BY,
    Keyword::CASE,
    Keyword::DEFAULT,
    Keyword::DISTINCT,
    Keyword::ELSE,
    Keyword::FROM,
    Keyword::HAVING,
    Keyword::IF,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::LIMIT,
    Keyword::NOT,
    Keyword::OFFSET,
    Keyword::ON,
    Keyword::OR,
    Keyword::QUALIFY,
    Keyword::RETURNING,
    Keyword::SELECT,
    Keyword::THEN,
    Keyword::USING,
    Keyword::VALUES,
    Keyword::WHEN,
    Keyword::WHERE,
];

/// Rewrites the tokens of a statement.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = significant(tokens);
    let mut rewriting = Rewriting {
        tokens: &tokens,
        written: Vec::with_capacity(tokens.len()),
        open: vec![Bracket::default()],
        edits: HashMap::new(),
    };
    let mut at = 0;
    while at <= tokens.len() {
        at += rewriting.step(at);
    }
    rewriting.written
}

/// The tokens without what stands between them, and texts that go on in the next line as one.
fn significant(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut is_new_line = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }) => {
                is_new_line = true;
            }
            Token::Whitespace(_) => {}
            _ => {
                let starts_line = std::mem::take(&mut is_new_line);
                if let (true, Token::SingleQuotedString(more), Some(before)) =
                    (starts_line, &token.token, kept.last_mut())
                    && let Token::SingleQuotedString(text) = &mut before.token
                {
                    text.push_str(more);
                    continue;
                }
                kept.push(token);
            }
        }
    }
    kept
}

struct Rewriting<'a> {
    tokens: &'a [TokenWithSpan],
    written: Vec<TokenWithSpan>,
    /// The brackets that are open; the statement is the first one.
    open: Vec<Bracket>,
    /// What is to be written at places that are still to come.
    edits: HashMap<usize, Edit>,
}

/// What has been seen inside of a bracket that is open.
#[derive(Default)]
struct Bracket {
    /// Whether it holds the parts of a type, and ends with `>`.
    is_type: bool,
    /// Whether it holds a value and the type that it is cast to.
    is_cast: bool,
    /// Whether it is that of `t PIVOT (…)`, and `GROUP BY` has been read in it.
    is_pivot: bool,
    has_groups: bool,
    /// Whether the next bracket defines the columns of a table, and whether this one does.
    defines_table: bool,
    defines_columns: bool,
    has_insert: bool,
    /// Where the groups of the query in it have been written.
    groups_at: Option<usize>,
    has_select: bool,
    has_with: bool,
}

impl Rewriting<'_> {
    /// Writes what is read at a place; how many tokens it is.
    fn step(&mut self, at: usize) -> usize {
        if self.begins_statement(at)
            && let Some(edits) = calls::edits(self.tokens, at)
        {
            self.add(edits);
        }
        if let Some(Edit { written, replaced }) = self.edits.remove(&at) {
            let span = self.tokens.get(at).or(self.tokens.last()).map_or(Span::empty(), |token| token.span);
            written.into_iter().for_each(|token| self.write(token, span));
            if replaced > 0 {
                return replaced;
            }
        }
        let Some(token) = self.tokens.get(at) else { return 1 };
        match &token.token {
            Token::Mul if self.is_power(at) => {
                self.write(Token::Caret, token.span);
                return 2;
            }
            Token::Minus if self.is_bound_left_out(at) => {
                self.write(Token::LBracket, token.span);
                self.write(Token::RBracket, token.span);
                return 1;
            }
            Token::LParen => {
                let is_pivot = at.checked_sub(1).is_some_and(|before| self.is_word(before, Keyword::PIVOT));
                let defines_columns = std::mem::take(&mut self.innermost().defines_table);
                let is_cast = matches!(self.before(at), Some(Token::Word(word))
                    if matches!(word.keyword, Keyword::CAST | Keyword::TRY_CAST | Keyword::SAFE_CAST));
                self.open.push(Bracket { is_cast, is_pivot, defines_columns, ..Bracket::default() });
            }
            Token::RParen => {
                let closed = if self.open.len() > 1 { self.open.pop() } else { None };
                if closed.as_ref().is_some_and(|bracket| bracket.has_groups) {
                    self.write(Token::RParen, token.span);
                    self.write(Token::RParen, token.span);
                }
                if closed.is_some_and(|bracket| bracket.is_type) {
                    self.write(Token::Gt, token.span);
                    return 1;
                }
            }
            Token::SemiColon => self.open = vec![Bracket::default()],
            Token::Word(word) if word.quote_style.is_none() => {
                if let Some(length) = self.word(at, word) {
                    return length;
                }
            }
            _ => {}
        }
        self.written.push(token.clone());
        1
    }

    fn add(&mut self, edits: HashMap<usize, Edit>) {
        for (place, edit) in edits {
            let known = self.edits.entry(place).or_default();
            // What ends inside of another statement ends before it.
            known.written.splice(0..0, edit.written);
            known.replaced += edit.replaced;
        }
    }

    /// Writes what a word begins, if that is not the word alone.
    fn word(&mut self, at: usize, word: &Word) -> Option<usize> {
        let token = self.tokens.get(at)?;
        let span = token.span;
        match word.keyword {
            Keyword::WITH => self.innermost().has_with = true,
            Keyword::MERGE if self.is_word(at + 1, Keyword::INTO) => {
                self.add(merges::edits(self.tokens, at));
            }
            Keyword::SELECT | Keyword::VALUES => {
                self.innermost().has_select = true;
                self.innermost().groups_at = None;
            }
            Keyword::GROUP | Keyword::HAVING | Keyword::WINDOW | Keyword::QUALIFY
                if !self.innermost().is_pivot
                    && (word.keyword != Keyword::GROUP || self.is_word(at + 1, Keyword::BY)) =>
            {
                let here = self.written.len();
                self.innermost().groups_at.get_or_insert(here);
            }
            Keyword::LIMIT => {
                let (limit, length) = amounts::limit(self.tokens, at)?;
                limit.into_iter().for_each(|token| self.write(token, span));
                return Some(length);
            }
            Keyword::TABLESAMPLE => {
                let (sample, length) = amounts::sample(self.tokens, at + 1)?;
                self.written.push(token.clone());
                self.write(Token::LParen, span);
                sample.into_iter().for_each(|token| self.write(token, span));
                self.write(Token::RParen, span);
                return Some(1 + length);
            }
            Keyword::USING if self.is_word(at + 1, Keyword::SAMPLE) => {
                let (sample, length) = amounts::sample(self.tokens, at + 2)?;
                let end = self.written.len();
                let place = self.innermost().groups_at.unwrap_or(end);
                let words = ["CONNECT", "BY"].into_iter().map(Token::make_keyword);
                let clause = words.chain(sample).map(|token| TokenWithSpan::new(token, span));
                self.written.splice(place..place, clause.collect::<Vec<_>>());
                return Some(2 + length);
            }
            Keyword::INSERT => self.innermost().has_insert = true,
            Keyword::TABLE if at > 0 && self.is_word(0, Keyword::CREATE) && self.open.len() == 1 => {
                self.innermost().defines_table = true;
            }
            // Not `* EXCEPT (…)`, nor a type: `x::UNION(…)`.
            Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT
                if !matches!(self.before(at), Some(Token::Mul | Token::DoubleColon)) =>
            {
                self.innermost().has_select = false;
            }
            Keyword::FROM if self.is_query_without_select(at) => {
                self.write_word("SELECT", span);
                self.write(Token::Mul, span);
                self.innermost().has_select = true;
                self.innermost().groups_at = None;
            }
            Keyword::AS => {
                let negated = usize::from(self.is_word(at + 1, Keyword::NOT));
                if self.is_word(at + 1 + negated, Keyword::MATERIALIZED)
                    && self.token(at + 2 + negated) == Some(&Token::LParen)
                {
                    self.written.push(token.clone());
                    return Some(2 + negated);
                }
            }
            Keyword::BY
                if self.is_word(at.checked_sub(1)?, Keyword::ORDER)
                    && self.token(at + 1) == Some(&Token::Mul) =>
            {
                self.written.push(token.clone());
                self.write_word("ALL", span);
                return Some(2);
            }
            Keyword::GROUP if self.is_word(at + 1, Keyword::BY) && self.innermost().is_pivot => {
                self.innermost().has_groups = true;
                ["DEFAULT", "ON", "NULL"].into_iter().for_each(|word| self.write_word(word, span));
                self.write(Token::LParen, span);
                self.write(Token::LParen, span);
                return Some(2);
            }
            _ if word.value.eq_ignore_ascii_case("isnull") && self.is_behind_operand(at) => {
                ["IS", "NULL"].into_iter().for_each(|word| self.write_word(word, span));
                return Some(1);
            }
            Keyword::GLOBAL if self.is_join(at + 1) => {
                // The name of a table, as no join is global here.
                self.write(Token::make_word(&word.value.to_lowercase(), Some('"')), span);
                return Some(1);
            }
            Keyword::KEY | Keyword::INDEX if self.is_column_definition(at) => {
                self.write(Token::make_word(&word.value.to_lowercase(), Some('"')), span);
                return Some(1);
            }
            Keyword::EXCLUDE => {
                let (exclusion, length) = exclusions::exclusion(self.tokens, at)?;
                exclusions::put_into_partition(&mut self.written, exclusion);
                return Some(length);
            }
            Keyword::ORDER if self.is_order_alone(at) => {
                self.write(Token::Mul, span);
                return None;
            }
            // A type without its digits.
            Keyword::DECIMAL | Keyword::NUMERIC | Keyword::DEC
                if self.token(at + 1) == Some(&Token::LParen)
                    && self.token(at + 2) == Some(&Token::RParen) =>
            {
                self.written.push(token.clone());
                return Some(3);
            }
            Keyword::ASOF if self.is_join(at + 1) => {
                self.write_word("GLOBAL", span);
                return Some(1);
            }
            Keyword::STRUCT | Keyword::ROW | Keyword::MAP if self.is_type(at) => {
                self.write_word(if word.keyword == Keyword::MAP { "MAP" } else { "STRUCT" }, span);
                self.write(Token::Lt, span);
                self.open.push(Bracket { is_type: true, ..Bracket::default() });
                return Some(2);
            }
            _ => {}
        }
        None
    }

    /// Whether a statement may begin here that can also stand for a table.
    fn begins_statement(&self, at: usize) -> bool {
        let has_table = match self.token(at + 1) {
            Some(Token::Word(word)) => {
                word.quote_style.is_some()
                    || !matches!(
                        word.keyword,
                        Keyword::IS
                            | Keyword::IN
                            | Keyword::AND
                            | Keyword::OR
                            | Keyword::NOT
                            | Keyword::LIKE
                            | Keyword::BETWEEN
                            | Keyword::AS
                            | Keyword::COLLATE
                    )
            }
            Some(Token::LParen | Token::SingleQuotedString(_)) => true,
            _ => false,
        };
        let Some(bracket) = self.open.last() else { return false };
        let is_description = self.is_word(at, Keyword::DESCRIBE);
        has_table
            && match self.before(at) {
                // Its columns are described by a statement of its own, but in brackets.
                None | Some(Token::SemiColon) => !is_description,
                Some(Token::LParen) => true,
                Some(Token::RParen) => bracket.has_with && !bracket.has_select,
                Some(Token::Word(word)) => match word.keyword {
                    Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT
                    | Keyword::ALL
                    | Keyword::DESCRIBE => true,
                    Keyword::AS | Keyword::EXPLAIN | Keyword::ANALYZE => {
                        !is_description && !bracket.has_select
                    }
                    _ => word.value.eq_ignore_ascii_case("summarize"),
                },
                _ => false,
            }
    }

    /// Whether the order of a window function begins that has no arguments, as in `rank(ORDER BY x)`.
    fn is_order_alone(&self, at: usize) -> bool {
        let function = at.checked_sub(2).and_then(|function| self.token(function));
        self.is_word(at + 1, Keyword::BY)
            && self.before(at) == Some(&Token::LParen)
            && matches!(function, Some(Token::Word(word))
                if ["rank", "dense_rank", "percent_rank", "cume_dist", "row_number"]
                    .iter()
                    .any(|name| word.value.eq_ignore_ascii_case(name)))
    }

    /// Whether two stars stand side by side.
    fn is_power(&self, at: usize) -> bool {
        let (Some(star), Some(next)) = (self.tokens.get(at), self.tokens.get(at + 1)) else { return false };
        next.token == Token::Mul && next.span.start == star.span.end
    }

    /// Whether a minus stands alone in the place of a bound of a slice.
    fn is_bound_left_out(&self, at: usize) -> bool {
        matches!(self.before(at), Some(Token::LBracket | Token::Colon))
            && matches!(self.token(at + 1), Some(Token::Colon | Token::RBracket))
    }

    /// Whether a `FROM` begins a query in which no `SELECT` follows.
    fn is_query_without_select(&self, at: usize) -> bool {
        let Some(bracket) = self.open.last() else { return false };
        let begins = match self.before(at) {
            None => true,
            Some(Token::LParen) => {
                !at.checked_sub(2).is_some_and(|function| self.is_word(function, Keyword::TRIM))
            }
            Some(Token::RParen) => bracket.has_with || bracket.has_insert,
            Some(Token::Word(word)) => match word.keyword {
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::ALL => true,
                Keyword::NAME => at.checked_sub(2).is_some_and(|by| self.is_word(by, Keyword::BY)),
                Keyword::AS | Keyword::EXPLAIN | Keyword::ANALYZE | Keyword::DESCRIBE => true,
                _ => bracket.has_insert,
            },
            _ => false,
        };
        if bracket.has_select || !begins {
            return false;
        }
        let mut open = 0_usize;
        for token in self.tokens.iter().skip(at + 1) {
            match &token.token {
                Token::LParen => open += 1,
                Token::RParen if open == 0 => break,
                Token::RParen => open -= 1,
                Token::SemiColon => break,
                Token::Word(word) if open == 0 => match word.keyword {
                    Keyword::SELECT => return false,
                    Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => break,
                    _ => {}
                },
                _ => {}
            }
        }
        true
    }

    /// Whether an operand ends before a place, and no name or call goes on there.
    fn is_behind_operand(&self, at: usize) -> bool {
        let ends = match self.before(at) {
            Some(Token::Word(word)) => {
                word.quote_style.is_some()
                    || !BEFORE_EXPRESSIONS.contains(&word.keyword) && word.keyword != Keyword::AS
            }
            Some(Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_)) => true,
            _ => false,
        };
        ends && !matches!(self.token(at + 1), Some(Token::LParen | Token::Period))
    }

    /// Whether a column's name and type begin here, in the definition of a table.
    fn is_column_definition(&self, at: usize) -> bool {
        self.open.last().is_some_and(|bracket| bracket.defines_columns)
            && matches!(self.before(at), Some(Token::LParen | Token::Comma))
            && matches!(self.token(at + 1), Some(Token::Word(_) | Token::Comma | Token::RParen))
    }

    fn is_join(&self, at: usize) -> bool {
        [
            Keyword::JOIN,
            Keyword::INNER,
            Keyword::LEFT,
            Keyword::RIGHT,
            Keyword::FULL,
            Keyword::SEMI,
            Keyword::ANTI,
        ]
        .iter()
        .any(|&keyword| self.is_word(at, keyword))
    }

    /// Whether a word that is also a function's name is a type here.
    fn is_type(&self, at: usize) -> bool {
        let is_in_type = self.open.last().is_some_and(|bracket| bracket.is_type);
        self.token(at + 1) == Some(&Token::LParen)
            && match self.before(at) {
                Some(Token::DoubleColon) => true,
                Some(Token::LParen | Token::Comma) => is_in_type,
                Some(Token::Word(before))
                    if before.keyword == Keyword::AS && before.quote_style.is_none() =>
                {
                    let makes_type =
                        self.is_word(0, Keyword::CREATE) && (1..4).any(|at| self.is_word(at, Keyword::TYPE));
                    makes_type || self.open.last().is_some_and(|bracket| bracket.is_cast)
                }
                Some(Token::Word(before)) => {
                    before.quote_style.is_some() || !BEFORE_EXPRESSIONS.contains(&before.keyword)
                }
                _ => false,
            }
    }

    fn innermost(&mut self) -> &mut Bracket {
        match self.open.last_mut() {
            Some(bracket) => bracket,
            None => unreachable!("the statement is a bracket that is never closed"),
        }
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|token| &token.token)
    }

    fn before(&self, at: usize) -> Option<&Token> {
        self.token(at.checked_sub(1)?)
    }

    fn is_word(&self, at: usize, keyword: Keyword) -> bool {
        matches!(self.token(at), Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == keyword)
    }

    fn write(&mut self, token: Token, span: Span) {
        self.written.push(TokenWithSpan { token, span });
    }

    fn write_word(&mut self, word: &str, span: Span) {
        self.write(Token::make_keyword(word), span);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::planning::syntax::Sql;

    fn rewritten(text: &str) -> String {
        let tokens = Tokenizer::new(&Sql::PLAIN, text).tokenize_with_location().unwrap();
        rewrite(tokens).iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_that_are_keywords_elsewhere() {
        assert_eq!(
            rewritten("CREATE TABLE t(key INT, index TEXT)"),
            "CREATE TABLE t ( \"key\" INT , \"index\" TEXT )"
        );
        assert_eq!(
            rewritten("SELECT a ISNULL, isnull(a), f(a) isnull"),
            "SELECT a IS NULL , isnull ( a ) , f ( a ) IS NULL"
        );
        assert_eq!(rewritten("SELECT key, index FROM t"), "SELECT key , index FROM t");
        assert_eq!(rewritten("TABLE a GLOBAL JOIN b"), "TABLE a \"global\" JOIN b");
    }

    #[test]
    fn powers_and_texts() {
        assert_eq!(rewritten("SELECT a ** b, count(*)"), "SELECT a ^ b , count ( * )");
        assert_eq!(rewritten("SELECT 'a'\n 'b'"), "SELECT 'ab'");
        assert_eq!(rewritten("SELECT 'a' -- no\n'b'"), "SELECT 'ab'");
        assert_eq!(rewritten("SELECT 'a' 'b'"), "SELECT 'a' 'b'");
    }

    #[test]
    fn queries_without_select() {
        for (text, expected) in [
            ("FROM t", "SELECT * FROM t"),
            ("FROM t WHERE a", "SELECT * FROM t WHERE a"),
            ("FROM t SELECT a", "FROM t SELECT a"),
            ("(FROM t) UNION ALL FROM u", "( SELECT * FROM t ) UNION ALL SELECT * FROM u"),
            ("WITH x AS (FROM t) FROM x", "WITH x AS ( SELECT * FROM t ) SELECT * FROM x"),
            (
                "WITH x AS (TABLE t) SELECT * EXCEPT (a) FROM x",
                "WITH x AS ( TABLE t ) SELECT * EXCEPT ( a ) FROM x",
            ),
            ("INSERT INTO t (a) FROM u", "INSERT INTO t ( a ) SELECT * FROM u"),
            ("SELECT trim(FROM a)", "SELECT trim ( FROM a )"),
            ("SELECT extract(year FROM a) FROM t", "SELECT extract ( year FROM a ) FROM t"),
            ("SELECT trim(both f(x) FROM y)", "SELECT trim ( both f ( x ) FROM y )"),
            ("SELECT (1) FROM t", "SELECT ( 1 ) FROM t"),
            ("DELETE FROM t", "DELETE FROM t"),
            ("SELECT a IS DISTINCT FROM b", "SELECT a IS DISTINCT FROM b"),
        ] {
            assert_eq!(rewritten(text), expected);
        }
    }

    #[test]
    fn words_that_only_hint() {
        assert_eq!(
            rewritten("WITH t AS NOT MATERIALIZED (SELECT 1) TABLE t"),
            "WITH t AS ( SELECT 1 ) TABLE t"
        );
        assert_eq!(rewritten("SELECT 1 AS materialized"), "SELECT 1 AS materialized");
        assert_eq!(rewritten("SELECT 1 ORDER BY * DESC"), "SELECT 1 ORDER BY ALL DESC");
        assert_eq!(rewritten("FROM a ASOF LEFT JOIN b"), "SELECT * FROM a GLOBAL LEFT JOIN b");
        assert_eq!(rewritten("SELECT asof FROM t"), "SELECT asof FROM t");
    }

    #[test]
    fn statements_that_are_tables() {
        for (text, expected) in [
            (
                "PIVOT t ON a, b IN (1, 2) USING sum(x) AS s, count(*) GROUP BY g, h ORDER BY 1",
                "SELECT * FROM \"__pivot\" ( \"source\" := ( SELECT * FROM t ) , \"on\" := ( a ) , \"on\" := ( b IN ( 1 , 2 ) ) , \
                 \"using\" := ( sum ( x ) ) , \"called\" := ( s ) , \"using\" := ( count ( * ) ) , \"group\" := ( g ) , \
                 \"group\" := ( h ) ) ORDER BY 1",
            ),
            (
                "FROM (UNPIVOT (FROM t) ON a INTO NAME n VALUE v)",
                "SELECT * FROM ( SELECT * FROM \"__unpivot\" ( \"source\" := ( SELECT * FROM ( SELECT * FROM t ) ) , \
                 \"on\" := ( a ) , \"name\" := ( n ) , \"value\" := ( v ) ) )",
            ),
            (
                "SUMMARIZE SELECT 1 LIMIT 1",
                "SELECT * FROM \"__summarize\" ( \"source\" := ( SELECT 1 LIMIT 1 ) )",
            ),
            (
                "FROM (DESCRIBE t)",
                "SELECT * FROM ( SELECT * FROM \"__describe\" ( \"source\" := ( SELECT * FROM t ) ) )",
            ),
            ("SELECT pivot, summarize FROM describe", "SELECT pivot , summarize FROM describe"),
        ] {
            assert_eq!(rewritten(text), expected);
        }
    }

    #[test]
    fn clauses_of_merge() {
        for (text, expected) in [
            (
                "MERGE INTO t USING (SELECT 1 AS a) s USING (a) WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *",
                "MERGE INTO t USING ( SELECT 1 AS a ) s ON \"\u{1}using\" ( a ) WHEN MATCHED THEN UPDATE SET \"\u{1}do nothing\" \
                 = NULL WHEN NOT MATCHED THEN INSERT ( \"\u{1}by position\" ) ROW",
            ),
            (
                "MERGE INTO t USING s ON CASE WHEN matched THEN a END = b WHEN NOT MATCHED BY SOURCE AND c THEN ERROR 'x' || d \
                 WHEN NOT MATCHED THEN ERROR RETURNING *",
                "MERGE INTO t USING s ON CASE WHEN matched THEN a END = b WHEN NOT MATCHED BY SOURCE AND c THEN UPDATE SET \
                 \"\u{1}error\" = 'x' || d WHEN NOT MATCHED THEN INSERT ( \"\u{1}error\" ) ROW RETURNING *",
            ),
            (
                "MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND b THEN INSERT BY NAME * \
                 WHEN NOT MATCHED BY TARGET THEN INSERT DEFAULT VALUES",
                "MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET \"\u{1}by position\" = NULL WHEN NOT MATCHED AND b THEN \
                 INSERT ( \"\u{1}by name\" ) ROW WHEN NOT MATCHED BY TARGET THEN INSERT ( \"\u{1}defaults\" ) ROW",
            ),
            (
                "MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET b = DEFAULT WHEN NOT MATCHED THEN INSERT (b) VALUES (1)",
                "MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET b = DEFAULT WHEN NOT MATCHED THEN INSERT ( b ) VALUES ( 1 )",
            ),
        ] {
            assert_eq!(rewritten(text), expected);
        }
    }

    #[test]
    fn types_in_brackets() {
        for (text, expected) in [
            (
                "x::STRUCT(a INT, b MAP(INT, ROW(c INT)[]))",
                "x :: STRUCT < a INT , b MAP < INT , STRUCT < c INT > [ ] > >",
            ),
            (
                "CREATE TABLE t (m MAP(INT, DECIMAL(4, 2)))",
                "CREATE TABLE t ( m MAP < INT , DECIMAL ( 4 , 2 ) > )",
            ),
            ("SELECT map([1], [2]), row(a, b)", "SELECT map ( [ 1 ] , [ 2 ] ) , row ( a , b )"),
            ("SELECT DISTINCT struct(a)", "SELECT DISTINCT struct ( a )"),
        ] {
            assert_eq!(rewritten(text), expected);
        }
    }
}
