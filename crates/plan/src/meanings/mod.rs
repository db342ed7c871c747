//! Expressions that DataFusion takes for something else than people of DuckDB and Postgres mean by them.
//!
//! | expression | DataFusion | here |
//! |---|---|---|
//! | `length([1, 2, 3])` | 9, of the text | 3: [`lists`] |
//! | `array_has_any(a, NULL)`, `array_has_all` | depends on the other rows of a batch | null |
//! | `array_has_any([NULL], [NULL])` | true: a null is found | false |
//! | `a \|\| NULL` of lists | `a`, or a null appended | null |
//! | `ifnull(a, b)` | of the type of `a` | of the type of both: `coalesce` |
//! | `substring('hello', -2)` | the whole text | `lo`: [`substrings`] |
//! | `1e-20::DOUBLE > 0::DECIMAL`, `coalesce(d, 1e-20)` | false, 0: of decimals | true, a small number: [`numbers`] |
//! | `map(k, v)` of lists of different lengths | pairs of other rows | an error |
//! | `true = 'yes'`, `2 = true`, `[1] = '[1]'` | refused | the text is cast to what it is compared with: [`mixed_texts`] |
//! | `v.a`, `v[1]`, `v = 1` of a `VARIANT` | refused | its parts, a `VARIANT` of 1: [`variants`] |
//! | `'aaa' SIMILAR TO 'a'` | true: a part is | false: [`similar`] |
//! | `to_timestamp(1e17)` | the largest timestamp | an error: [`times`] |
//! | `(SELECT 1 FROM t)` | never null | null if there is no row: [`empty_scalars`] |
//!
//! They are rewritten before types are resolved, and keep the names of their columns.

mod empty_scalars;
mod function;
mod lists;
mod mixed_texts;
pub(crate) mod numbers;
mod replaced_column;
mod similar;
mod substrings;
mod times;
pub(crate) mod variants;

use std::sync::Arc;

use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;

pub(crate) use function::{call, call_giving, call_shown_as_argument};
pub use replaced_column::{REPLACED_COLUMN, replaced_column};

/// What gives a meaning to operators before any planner of DataFusion's.
pub fn operator_planner() -> Arc<dyn ExprPlanner> {
    Arc::new(lists::Operators)
}

/// The rule that applies all of them, before types are resolved.
pub fn meanings() -> ApplyFunctionRewrites {
    ApplyFunctionRewrites::new(vec![
        Arc::new(mixed_texts::MixedTexts),
        Arc::new(lists::ListFunctions),
        Arc::new(similar::SimilarTo),
        Arc::new(times::Times),
        Arc::new(empty_scalars::EmptyScalars),
        Arc::new(numbers::MixedTypes),
        Arc::new(substrings::Substrings),
    ])
}
