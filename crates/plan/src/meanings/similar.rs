//! `SIMILAR TO` as SQL has it: the pattern describes the whole text, with `%` and `_` as in `LIKE`, and `|`, `*`, `+`, `?`,
//! `{m,n}`, `()`, `[]` as in regular expressions.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err, not_impl_err, plan_err};
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};

use super::function::call;

#[derive(Debug)]
pub(super) struct SimilarTo;

impl FunctionRewrite for SimilarTo {
    fn name(&self) -> &str {
        "similar_to"
    }

    fn rewrite(&self, expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::SimilarTo(Like { negated, expr, pattern, escape_char, case_insensitive: _ }) = expr else {
            return Ok(Transformed::no(expr));
        };
        let pattern = match pattern.as_ref() {
            Expr::Literal(value, _) if value.is_null() => lit(ScalarValue::Utf8(None)),
            Expr::Literal(value, _) => match value.try_as_str() {
                Some(Some(pattern)) => lit(regular_expression(pattern, escape_char.unwrap_or('\\'))?),
                _ => return plan_err!("the pattern of SIMILAR TO is a text, not {value}"),
            },
            _ if escape_char.is_some_and(|escape| escape != '\\') => {
                return not_impl_err!(
                    "SIMILAR TO with an ESCAPE takes a constant pattern; regexp_like takes any"
                );
            }
            _ => call("pattern_of_similar", patterns_of_similar, vec![*pattern]),
        };
        let operator = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
        Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(expr, operator, Box::new(pattern)))))
    }
}

/// The regular expressions of patterns.
fn patterns_of_similar(patterns: &[ArrayRef]) -> Result<ArrayRef> {
    let [patterns] = patterns else { return internal_err!("a pattern of {} values", patterns.len()) };
    let texts = cast(patterns, &DataType::Utf8View)?;
    let written = texts.as_string_view().iter();
    let written = written.map(|pattern| pattern.map(|pattern| regular_expression(pattern, '\\')).transpose());
    Ok(cast(&written.collect::<Result<StringViewArray>>()?, patterns.data_type())?)
}

fn regular_expression(pattern: &str, escape: char) -> Result<String> {
    let mut written = String::from("^(?s:");
    let mut in_class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            escaping if escaping == escape => match characters.next() {
                Some(escaped) => written.push_str(&literal(escaped)),
                None => {
                    return plan_err!("the pattern '{pattern}' ends with the character that escapes others");
                }
            },
            '[' if !in_class => {
                in_class = true;
                written.push('[');
            }
            ']' if in_class => {
                in_class = false;
                written.push(']');
            }
            other if in_class => match other {
                '[' | '&' | '~' => written.push_str(&format!("\\{other}")),
                _ => written.push(other),
            },
            '%' => written.push_str(".*"),
            '_' => written.push('.'),
            '|' | '*' | '+' | '?' | '{' | '}' | '(' | ')' => written.push(character),
            other => written.push_str(&literal(other)),
        }
    }
    written.push_str(")$");
    Ok(written)
}

/// A character that stands for itself.
fn literal(character: char) -> String {
    match character.is_ascii_punctuation() {
        true => format!("\\{character}"),
        false => character.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_whole_texts() {
        let written = |pattern| regular_expression(pattern, '\\').unwrap();
        assert_eq!(written("a%"), "^(?s:a.*)$");
        assert_eq!(written("(a|b)_{2}"), "^(?s:(a|b).{2})$");
        assert_eq!(written("a.b\\%^$"), "^(?s:a\\.b\\%\\^\\$)$");
        assert_eq!(written("[a-c%_]+"), "^(?s:[a-c%_]+)$");
        assert!(regular_expression("a\\", '\\').is_err());
    }
}
