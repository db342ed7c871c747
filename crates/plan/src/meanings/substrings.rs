//! Parts of texts, counted from the end where the position is negative, as in DuckDB and SQLite: `substring('hello', -2)` is
//! `lo`. A negative length is of the characters before the position.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::function::call;

#[derive(Debug)]
pub(super) struct Substrings;

impl FunctionRewrite for Substrings {
    fn name(&self) -> &str {
        "substrings"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
            return Ok(Transformed::no(expr));
        };
        let is_of_text = |text: &Expr| text.get_type(schema).is_ok_and(|data_type| data_type.is_string());
        let is_whole = |number: &Expr| number.get_type(schema).is_ok_and(|data_type| data_type.is_integer());
        Ok(match args.as_slice() {
            [text, numbers @ ..]
                if func.name() == "substr"
                    && is_of_text(text)
                    && numbers.iter().all(is_whole)
                    && !numbers.iter().all(is_positive) =>
            {
                Transformed::yes(call("substring_from_end", substrings, args))
            }
            _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
        })
    }
}

/// Whether a position or length is known not to be negative.
fn is_positive(number: &Expr) -> bool {
    matches!(number, Expr::Literal(ScalarValue::Int64(Some(0..)), _))
}

fn substrings(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (texts, positions, lengths) = match arguments {
        [texts, positions] => (texts, positions, None),
        [texts, positions, lengths] => (texts, positions, Some(lengths)),
        _ => return internal_err!("a substring of {} arguments", arguments.len()),
    };
    let plain = cast(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let positions = cast(positions, &DataType::Int64)?;
    let positions = positions.as_primitive::<Int64Type>();
    let lengths = lengths.map(|lengths| cast(lengths, &DataType::Int64)).transpose()?;
    let lengths = lengths.as_ref().map(|lengths| lengths.as_primitive::<Int64Type>());
    let parts: StringArray = plain
        .iter()
        .zip(positions)
        .enumerate()
        .map(|(row, (text, position))| {
            let length = match lengths {
                Some(lengths) => lengths.is_valid(row).then(|| lengths.value(row))?,
                None => i64::MAX,
            };
            Some(substring(text?, position?, length))
        })
        .collect();
    Ok(cast(&parts, texts.data_type())?)
}

/// The characters of a text from a position on, the first of which is 1 and the last -1.
fn substring(text: &str, position: i64, length: i64) -> &str {
    let begin = match position {
        ..0 => position.saturating_add_unsigned(text.chars().count() as u64).saturating_add(1),
        from_begin => from_begin,
    };
    let (begin, end) = match length {
        ..0 => (begin.saturating_add(length), begin),
        forward => (begin, begin.saturating_add(forward)),
    };
    // Of characters, the first of which is 1 here, too.
    let at = |character: i64| {
        // What lies before the text begins with it.
        let before = character.max(1) as usize - 1;
        text.char_indices().nth(before).map_or(text.len(), |(at, _)| at)
    };
    text.get(at(begin)..at(end.max(begin))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substrings_are_duckdbs() {
        for (position, length, part) in [
            (0, i64::MAX, "hällo"),
            (0, 2, "h"),
            (0, -2, ""),
            (-1, 4, "o"),
            (-1, -2, "ll"),
            (-2, i64::MAX, "lo"),
            (-2, 2, "lo"),
            (-2, -2, "äl"),
            (-5, 2, "hä"),
            (-7, 2, ""),
            (-7, 4, "hä"),
            (-7, i64::MAX, "hällo"),
            (3, -2, "hä"),
            (6, -2, "lo"),
            (6, 2, ""),
            (9, 2, ""),
            (i64::MIN, i64::MAX, "häll"),
            (i64::MIN, i64::MIN, ""),
            (i64::MAX, i64::MIN, "hällo"),
        ] {
            assert_eq!(substring("hällo", position, length), part, "{position}, {length}");
        }
    }
}
