//! Expressions that DataFusion takes for something else than people of DuckDB and Postgres mean by them.
//!
//! | expression | DataFusion | here |
//! |---|---|---|
//! | `CAST(6.67 AS INT)` | 6 | 7: [`rounding`] |
//! | `length([1, 2, 3])` | 9, of the text | 3: [`lists`] |
//! | `array_has_any(a, NULL)`, `array_has_all` | depends on the other rows of a batch | null |
//! | `map(k, v)` of lists of different lengths | pairs of other rows | an error |
//! | `CAST('[1, 2]' AS INT[])` | a list of one text | refused |
//! | `'aaa' SIMILAR TO 'a'` | true: a part is | false: [`similar`] |
//! | `CAST('11' AS TIME)`, `CAST('100' AS INTERVAL)` | 11 ns, 100 months | an error: [`times`] |
//! | `to_timestamp(1e17)` | the largest timestamp | an error |
//! | `(SELECT 1 FROM t)` | never null | null if there is no row: [`empty_scalars`] |
//!
//! They are rewritten before types are settled, and keep the names of their columns.

mod empty_scalars;
mod function;
mod lists;
mod rounding;
mod similar;
mod times;

use std::sync::Arc;

use datafusion::logical_expr::expr_rewriter::FunctionRewrite;

/// All of them.
pub fn meanings() -> Vec<Arc<dyn FunctionRewrite + Send + Sync>> {
    vec![
        Arc::new(rounding::RoundingCasts),
        Arc::new(lists::ListFunctions),
        Arc::new(similar::SimilarTo),
        Arc::new(times::Times),
        Arc::new(empty_scalars::EmptyScalars),
    ]
}
