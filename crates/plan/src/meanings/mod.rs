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

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::{FunctionRewrite, NamePreserver};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::AnalyzerRule;

use crate::nodes::{has_only_columns, input_schema};

pub(crate) use function::{call, call_giving, call_shown_as_argument};
pub use replaced_column::{REPLACED_COLUMN, replaced_column};

/// What gives a meaning to operators before any planner of DataFusion's.
pub fn operator_planner() -> Arc<dyn ExprPlanner> {
    Arc::new(lists::Operators)
}

/// Applies all of them, before types are resolved.
pub struct Meanings {
    rewrites: Vec<Arc<dyn FunctionRewrite + Send + Sync>>,
}

impl Default for Meanings {
    fn default() -> Self {
        Self {
            rewrites: vec![
                Arc::new(mixed_texts::MixedTexts),
                Arc::new(lists::ListFunctions),
                Arc::new(similar::SimilarTo),
                Arc::new(times::Times),
                Arc::new(empty_scalars::EmptyScalars),
                Arc::new(numbers::MixedTypes),
                Arc::new(substrings::Substrings),
            ],
        }
    }
}

impl fmt::Debug for Meanings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanings")
    }
}

impl AnalyzerRule for Meanings {
    fn name(&self) -> &str {
        "meanings"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            // Columns mean what they always do.
            if has_only_columns(&node)? {
                return Ok(Transformed::no(node));
            }
            let (schema, names) = (input_schema(&node)?, NamePreserver::new(&node));
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let meant = expression.transform_up(|part| {
                    self.rewrites.iter().try_fold(Transformed::no(part), |part, rewrite| {
                        part.transform_data(|part| rewrite.rewrite(part, &schema, config))
                    })
                })?;
                Ok(meant.update_data(|expression| name.restore(expression)))
            })
        })
        .data()
    }
}
