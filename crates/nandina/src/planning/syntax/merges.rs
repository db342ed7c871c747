//! Clauses of `MERGE` that the parser does not know, written as ones that it knows, with names that no column has.
//!
//! | written | read as |
//! |---|---|
//! | `USING s USING (a, b) WHEN …` | `USING s ON using(a, b) WHEN …` |
//! | `WHEN MATCHED THEN DO NOTHING` | `… THEN UPDATE SET do_nothing = NULL` |
//! | `WHEN MATCHED THEN UPDATE`, `UPDATE SET *`, `UPDATE BY POSITION` | `… THEN UPDATE SET by_position = NULL` |
//! | `WHEN MATCHED THEN UPDATE BY NAME` | `… THEN UPDATE SET by_name = NULL` |
//! | `WHEN MATCHED THEN ERROR 'text'` | `… THEN UPDATE SET error = 'text'` |
//! | `WHEN NOT MATCHED THEN DO NOTHING` | `… THEN INSERT (do_nothing) ROW` |
//! | `WHEN NOT MATCHED THEN INSERT`, `INSERT *`, `INSERT BY POSITION` | `… THEN INSERT (by_position) ROW` |
//! | `WHEN NOT MATCHED THEN INSERT BY NAME` | `… THEN INSERT (by_name) ROW` |
//! | `WHEN NOT MATCHED THEN INSERT DEFAULT VALUES` | `… THEN INSERT (defaults) ROW` |
//! | `WHEN NOT MATCHED THEN ERROR 'text'` | `… THEN INSERT (error) ROW WHERE 'text'` |
//!
//! Rows that are not matched by the source are changed as those that match are.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    MergeAction, MergeInsertExpr, MergeInsertKind, MergeUpdateExpr, ObjectName,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::calls::{Edit, outside};
use crate::error::{Error, Result};

/// The function that stands for `USING (…)`.
const USING: &str = "\u{1}using";

/// What a clause does that the parser does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    DoNothing,
    /// With the expression for its message, if one is written.
    Error,
    /// All columns of the source go into those of the same names.
    ByName,
    /// All columns of the source go into those at the same places.
    ByPosition,
    /// A row of defaults is inserted.
    Defaults,
}

impl Form {
    const ALL: [Self; 5] = [Form::DoNothing, Form::Error, Form::ByName, Form::ByPosition, Form::Defaults];

    /// What stands for it in the place of a column.
    fn name(self) -> &'static str {
        match self {
            Form::DoNothing => "\u{1}do nothing",
            Form::Error => "\u{1}error",
            Form::ByName => "\u{1}by name",
            Form::ByPosition => "\u{1}by position",
            Form::Defaults => "\u{1}defaults",
        }
    }

    fn of_name(name: &ObjectName) -> Option<Self> {
        let name = name.0.last()?.as_ident()?;
        Self::ALL.into_iter().find(|form| form.name() == name.value)
    }

    /// The form that an action stands for, and the expression behind it.
    pub(crate) fn of(action: &MergeAction) -> Option<(Self, Option<&Expr>)> {
        match action {
            MergeAction::Insert(MergeInsertExpr {
                columns,
                kind: MergeInsertKind::Row,
                insert_predicate,
                ..
            }) => match columns.as_slice() {
                [name] => Some((Self::of_name(name)?, insert_predicate.as_ref())),
                _ => None,
            },
            MergeAction::Update(MergeUpdateExpr {
                assignments,
                update_predicate: None,
                delete_predicate: None,
                ..
            }) => match assignments.as_slice() {
                [Assignment { target: AssignmentTarget::ColumnName(name), value }] => {
                    Some((Self::of_name(name)?, Some(value)))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The columns of `USING (…)` that a condition stands for; none if it is one of `ON`.
pub(crate) fn using_columns(on: &Expr) -> Result<Vec<Ident>> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = on else {
        return Ok(Vec::new());
    };
    let function = name.0.last().and_then(|part| part.as_ident());
    if function.is_none_or(|function| function.value != USING) {
        return Ok(Vec::new());
    }
    let column = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(column))) => Some(column.clone()),
        _ => None,
    };
    let columns: Option<Vec<Ident>> = list.args.iter().map(column).collect();
    columns.filter(|columns| !columns.is_empty()).ok_or_else(|| {
        Error::unsupported("MERGE … USING (…): name columns that both tables have, or write ON condition")
    })
}

/// The edits for the `MERGE` at a place, by their places.
pub(super) fn edits(tokens: &[TokenWithSpan], at: usize) -> HashMap<usize, Edit> {
    let mut writer = Writer { tokens, edits: HashMap::new() };
    writer.statement(at);
    writer.edits
}

struct Writer<'a> {
    tokens: &'a [TokenWithSpan],
    edits: HashMap<usize, Edit>,
}

impl Writer<'_> {
    fn statement(&mut self, begin: usize) {
        let tokens = self.tokens;
        // How many `CASE` are open, whose `WHEN` and `THEN` are none of the statement.
        let mut cases = 0_usize;
        let (mut usings, mut has_clauses) = (0, false);
        // Whether the clause whose condition is being read is about rows to be inserted.
        let mut inserts = None;
        for (at, token) in outside(tokens, begin + 1) {
            let Token::Word(word) = token else { continue };
            if word.quote_style.is_some() || self.token_before(at) == Some(&Token::Period) {
                continue;
            }
            match word.keyword {
                Keyword::CASE => cases += 1,
                Keyword::END => cases = cases.saturating_sub(1),
                _ if cases > 0 => {}
                Keyword::USING if !has_clauses => {
                    usings += 1;
                    if usings == 2 && self.token(at + 1) == Some(&Token::LParen) {
                        let on = [Token::make_keyword("ON"), Token::make_word(USING, Some('"'))];
                        self.replace(at, 1, on);
                    }
                }
                Keyword::WHEN => {
                    let negated = usize::from(self.is(at + 1, "not"));
                    let matched = at + 1 + negated;
                    if self.is(matched, "matched") {
                        has_clauses = true;
                        let by_source = self.is(matched + 1, "by") && self.is(matched + 2, "source");
                        inserts = Some(negated == 1 && !by_source);
                    }
                }
                Keyword::THEN => {
                    if let Some(inserts) = inserts.take() {
                        self.action(at + 1, inserts);
                    }
                }
                _ => {}
            }
        }
    }

    /// Writes the action of a clause, if it is one that the parser does not know.
    fn action(&mut self, at: usize, inserts: bool) {
        let verb = if inserts { "insert" } else { "update" };
        let found = if self.is(at, "do") && self.is(at + 1, "nothing") && self.ends(at + 2) {
            Some((Form::DoNothing, 2))
        } else if self.is(at, "error") {
            Some((Form::Error, 1))
        } else if self.is(at, verb) {
            self.all_columns(at + 1, inserts).map(|(form, length)| (form, 1 + length))
        } else {
            None
        };
        let Some((form, length)) = found else { return };
        let has_expression = form == Form::Error && !self.ends(at + length);
        let name = Token::make_word(form.name(), Some('"'));
        let keyword = Token::make_keyword;
        let (mut written, value) = match inserts {
            true => {
                let row = vec![keyword("INSERT"), Token::LParen, name, Token::RParen, keyword("ROW")];
                (row, has_expression.then(|| keyword("WHERE")))
            }
            false => {
                let assignment = vec![keyword("UPDATE"), keyword("SET"), name, Token::Eq];
                (assignment, (!has_expression).then(|| keyword("NULL")))
            }
        };
        written.extend(value);
        self.replace(at, length, written);
    }

    /// What is behind `INSERT` or `UPDATE` where it takes all columns of the source, or defaults: how, and how many tokens say so.
    fn all_columns(&self, at: usize, inserts: bool) -> Option<(Form, usize)> {
        let is_by = |order: &str| self.is(at, "by") && self.is(at + 1, order);
        let (form, words) = if is_by("name") {
            (Form::ByName, 2)
        } else if is_by("position") {
            (Form::ByPosition, 2)
        } else if inserts && self.is(at, "default") && self.is(at + 1, "values") {
            (Form::Defaults, 2)
        } else if !inserts && self.is(at, "set") && self.is_star(at + 1) {
            (Form::ByPosition, 2)
        } else {
            (Form::ByPosition, 0)
        };
        let has_star = inserts && form != Form::Defaults && self.is_star(at + words);
        let length = words + usize::from(has_star);
        self.ends(at + length).then_some((form, length))
    }

    /// Whether an action ends before a place.
    fn ends(&self, at: usize) -> bool {
        match self.token(at) {
            None | Some(Token::SemiColon | Token::RParen | Token::EOF) => true,
            Some(Token::Word(word)) => {
                word.quote_style.is_none() && matches!(word.keyword, Keyword::WHEN | Keyword::RETURNING)
            }
            _ => false,
        }
    }

    fn is_star(&self, at: usize) -> bool {
        self.token(at) == Some(&Token::Mul)
    }

    fn is(&self, at: usize, name: &str) -> bool {
        matches!(self.token(at), Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name))
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|token| &token.token)
    }

    fn token_before(&self, at: usize) -> Option<&Token> {
        self.token(at.checked_sub(1)?)
    }

    fn replace(&mut self, at: usize, replaced: usize, written: impl IntoIterator<Item = Token>) {
        self.edits.insert(at, Edit { written: written.into_iter().collect(), replaced });
    }
}
