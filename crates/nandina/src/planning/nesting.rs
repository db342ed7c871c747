//! How deep a statement may be nested.
//!
//! Parentheses and sub-queries are limited by the parser (`datafusion.sql_parser.recursion_limit`). Chains of operators are
//! not: the parser reads them in a loop, and every term is one more level of the tree that all later steps recurse into.
//!
//! ```text
//!   a AND b AND c AND d        ((a AND b) AND c) AND d       as parsed
//!                              (a AND b) AND (c AND d)       as planned: both sides are equally deep
//!   1 + 2 + 3 + 4              ((1 + 2) + 3) + 4             at most 1,000 levels
//! ```
//!
//! 1,000 is also the limit of DuckDB and of SQLite. `AND` and `OR` are associative whatever their operands are, nulls
//! included, so that conditions which a program has put together may have tens of thousands of terms.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, SetExpr, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, Result};
use crate::planning::syntax::Sql;
use crate::planning::trees::take;
use crate::planning::wrong_plans::visit_queries;
use crate::profile::grouped;

/// Most levels of an expression.
const MOST_LEVELS: usize = 1000;
/// Most branches of a set operation.
const MOST_BRANCHES: usize = 5000;
/// Most operators on a path through a plan: that of a join of hundreds of tables.
const MOST_OPERATORS_DEEP: usize = 600;
/// Shorter chains of `AND` and `OR` stay as they were parsed.
const LONG_CHAIN: usize = 32;
/// Texts up to this size cannot have chains that are too deep for the stack of a planning thread.
const SHORT_TEXT_BYTES: usize = 64 << 10;
/// Most operators between two commas of a longer text, with those around the parentheses that they stand in.
const MOST_OPERATORS: usize = 100_000;

/// Refuses a text whose tree would be too deep to be parsed and dropped.
pub(crate) fn check_text(text: &str) -> Result<()> {
    if text.len() <= SHORT_TEXT_BYTES {
        return Ok(());
    }
    let tokens = Tokenizer::new(&Sql::PLAIN, text).tokenize();
    // What cannot be split into words is for the parser to complain about.
    let Ok(tokens) = tokens else { return Ok(()) };
    // Operators since the last comma, for each parenthesis that is open, and all of them together.
    let (mut around, mut here, mut all) = (Vec::new(), 0_usize, 0_usize);
    let mut set_operators = 0;
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                // Brackets may hold an index into the expression before them.
                here += usize::from(*token == Token::LBracket);
                all += usize::from(*token == Token::LBracket);
                around.push(here);
                here = 0;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                all -= here;
                here = around.pop().unwrap_or_default();
            }
            Token::Comma => {
                all -= here;
                here = 0;
            }
            _ if is_set_operator(token) => {
                set_operators += 1;
                if set_operators > MOST_OPERATORS {
                    return Err(too_deep(MOST_OPERATORS, "set operations"));
                }
            }
            _ if is_operator(token) => {
                here += 1;
                all += 1;
            }
            _ => {}
        }
        if all > MOST_OPERATORS {
            return Err(too_deep(MOST_OPERATORS, "operators behind one another"));
        }
    }
    Ok(())
}

/// Whether a word puts queries together, whose commas do not end the chain.
fn is_set_operator(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    matches!(word.keyword, Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS)
}

/// Whether a word may make the tree one level deeper.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::IN
                | Keyword::BETWEEN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::SIMILAR
                | Keyword::RLIKE
                | Keyword::REGEXP
                | Keyword::COLLATE
                | Keyword::AT
                | Keyword::DIV
                | Keyword::OVERLAPS
        ),
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Whitespace(_)
        | Token::SemiColon
        | Token::Period => false,
        _ => true,
    }
}

/// Makes long conditions shallow, and refuses statements that are nested too deeply all the same.
pub(crate) fn settle(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Nesting::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

/// Refuses a plan that is too deep for the stacks of a runtime's workers, on which operators call those below them.
pub(crate) fn check_plan(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut nodes = vec![(plan, 1)];
    while let Some((node, depth)) = nodes.pop() {
        if depth > MOST_OPERATORS_DEEP {
            let what = "operators above one another";
            return Err(too_deep(MOST_OPERATORS_DEEP, what));
        }
        nodes.extend(node.children().into_iter().map(|child| (child, depth + 1)));
    }
    Ok(())
}

#[derive(Default)]
struct Nesting {
    /// Expressions around the place where the visitor is.
    levels: usize,
}

impl VisitorMut for Nesting {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut branches = vec![query.body.as_ref()];
        let mut seen = 0;
        while let Some(branch) = branches.pop() {
            seen += 1;
            if let SetExpr::SetOperation { left, right, .. } = branch {
                branches.extend([left.as_ref(), right.as_ref()]);
            }
        }
        // As many operations as branches, but one.
        if seen >= 2 * MOST_BRANCHES {
            return ControlFlow::Break(too_deep(MOST_BRANCHES, "queries of one UNION, INTERSECT or EXCEPT"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        balance(expr);
        self.levels += 1;
        let accesses = match expr {
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.len(),
            _ => 0,
        };
        match self.levels + accesses {
            ..=MOST_LEVELS => ControlFlow::Continue(()),
            _ => ControlFlow::Break(too_deep(MOST_LEVELS, "levels of an expression")),
        }
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<Error> {
        self.levels -= 1;
        ControlFlow::Continue(())
    }
}

fn too_deep(most: usize, what: &str) -> Error {
    Error::unsupported(format!(
        "the statement is nested too deeply: at most {} {what} are supported; put values into a list for IN or into a \
         table, or compute it in several steps",
        grouped(most as u64)
    ))
}

/// Makes both sides of a long chain of `AND` or `OR` equally deep.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op: operator @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr else {
        return;
    };
    let operator = operator.clone();
    let mut terms = 1;
    let mut next = &*expr;
    while let Expr::BinaryOp { left, op, .. } = next
        && *op == operator
    {
        terms += 1;
        next = left.as_ref();
    }
    if terms < LONG_CHAIN {
        return;
    }
    let mut operands = Vec::with_capacity(terms);
    let mut rest = take(expr);
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == operator => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    *expr = balanced(&operator, operands);
}

/// A tree of the operands, which come from the last to the first.
fn balanced(operator: &BinaryOperator, mut operands: Vec<Expr>) -> Expr {
    match operands.len() {
        0 => unreachable!("a chain has terms, and each half of several has one"),
        1 => operands.remove(0),
        terms => {
            let left = operands.split_off(terms / 2);
            let [left, right] = [left, operands].map(|half| Box::new(balanced(operator, half)));
            Expr::BinaryOp { left, op: operator.clone(), right }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn settled(sql: &str) -> Result<String> {
        let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        settle(&mut statement)?;
        Ok(statement.to_string())
    }

    fn chain(term: &str, operator: &str, terms: usize) -> String {
        format!("SELECT {}", vec![term; terms].join(operator))
    }

    #[test]
    fn long_conditions_keep_their_terms_and_order() {
        let terms: Vec<String> = (0..999).map(|i| format!("x = {i}")).collect();
        for operator in [" OR ", " AND "] {
            let sql = format!("SELECT {}", terms.join(operator));
            assert_eq!(settled(&sql).unwrap(), sql);
        }
        assert!(settled(&chain("x", " OR ", 20_000)).is_ok());
    }

    #[test]
    fn chains_of_other_operators_are_limited() {
        assert!(settled(&chain("1", " + ", 999)).is_ok());
        let message = settled(&chain("1", " + ", 1500)).unwrap_err().to_string();
        assert!(message.contains("at most 1,000 levels of an expression"), "{message}");
        let message = settled(&chain("1", " UNION ALL SELECT ", 5001)).unwrap_err().to_string();
        assert!(message.contains("at most 5,000 queries"), "{message}");
        assert!(settled(&chain("1", " UNION ALL SELECT ", 5000)).is_ok());
        // Binds more tightly than what stands before.
        let sql = format!("SELECT 1 UNION {}", chain("1", " INTERSECT SELECT ", 5001));
        assert!(settled(&sql).is_err());
        assert!(settled(&format!("SELECT a{}", "[1]".repeat(1500))).is_err());
    }

    #[test]
    fn deep_plans_are_refused() {
        let leaf: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let plan = |depth: usize| {
            (1..depth).fold(Arc::clone(&leaf), |plan, _| Arc::new(CoalescePartitionsExec::new(plan)))
        };
        assert!(check_plan(&plan(600)).is_ok());
        let message = check_plan(&plan(601)).unwrap_err().to_string();
        assert!(message.contains("at most 600 operators"), "{message}");
    }

    #[test]
    fn long_texts_are_looked_at_before_they_are_parsed() {
        assert!(check_text(&chain("1", "+", 90_000)).is_ok());
        assert!(check_text(&chain("1", "+", 110_000)).is_err());
        assert!(check_text(&chain("1, 2", " UNION ALL SELECT ", 110_000)).is_err());
        assert!(check_text(&format!("SELECT a{}", "[1]".repeat(110_000))).is_err());
        assert!(check_text(&format!("SELECT a{}", " AT TIME ZONE 'UTC'".repeat(110_000))).is_err());
        assert!(check_text(&chain("(1, -2)", ", ", 110_000)).is_ok(), "rows are no chain");
        assert!(check_text(&format!("SELECT (({}))", "1+1),(".repeat(110_000))).is_ok());
    }
}
