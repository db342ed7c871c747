//! Which aggregate functions can be computed in two levels, and how.
//!
//! ```text
//!   over distinct values              f(DISTINCT x)  ──►  f(x)
//!   of all rows   sum, min, max, …    f(x)           ──►  f of every group's f(x)
//!                 count               count(x)       ──►  sum of counts, 0 if there are none
//!                 avg of numbers      avg(x)         ──►  sum of sums / sum of counts
//! ```

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, cast, lit, when};
use nandina_exec::aggregate::exact_sum;

use super::named_columns::NamedColumns;

/// Functions that may be given distinct values: they ignore nulls, and have the same type over a column of them.
const OVER_DISTINCT: [&str; 5] = ["count", "sum", "avg", "median", "bit_xor"];
/// Functions to which it makes no difference how often a value comes.
const IDEMPOTENT: [&str; 6] = ["min", "max", "bool_and", "bool_or", "bit_and", "bit_or"];
/// Functions that complete what they have begun themselves, beside those.
const COMPLETED_BY_ITSELF: [&str; 2] = ["sum", "bit_xor"];

/// An aggregate function as it is computed in two levels.
pub enum Function {
    /// Of the different values of `argument`, which is null where a row does not count.
    OfDistinct {
        function: Arc<AggregateUDF>,
        argument: Expr,
        is_filtered: bool,
    },
    OfAll(OfAllRows),
}

/// A function of all rows.
pub struct OfAllRows {
    function: AggregateFunction,
    completion: Completion,
}

#[derive(Clone, Copy)]
enum Completion {
    ByItself,
    Count,
    Average,
}

/// A function that the lower level computes, and the one that completes it.
pub struct Part {
    begun: AggregateFunction,
    pub completed_by: Arc<AggregateUDF>,
}

/// The function under an alias, if this is one.
pub fn unaliased(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        Expr::AggregateFunction(function) => Some(function),
        _ => None,
    }
}

/// `function` of `arguments`, of the rows that pass `filter`.
pub fn call(function: &Arc<AggregateUDF>, arguments: Vec<Expr>, filter: Option<Expr>) -> Expr {
    let filter = filter.map(Box::new);
    let function =
        AggregateFunction::new_udf(Arc::clone(function), arguments, false, filter, Vec::new(), None);
    Expr::AggregateFunction(function)
}

impl Function {
    /// The function that `expr` calls over rows of `schema`; `None` if it is none that can be computed in two levels.
    pub fn of(expr: &Expr, schema: &DFSchema) -> Result<Option<Self>> {
        let Some(function) = unaliased(expr) else { return Ok(None) };
        let params = &function.params;
        if !params.order_by.is_empty() || params.null_treatment.is_some() {
            return Ok(None);
        }
        let name = function.func.name();
        if !params.distinct || IDEMPOTENT.contains(&name) {
            return Ok(OfAllRows::of(function, schema)?.map(Self::OfAll));
        }
        let [argument] = params.args.as_slice() else { return Ok(None) };
        if !OVER_DISTINCT.contains(&name) {
            return Ok(None);
        }
        let argument = match &params.filter {
            Some(filter) => when(Expr::clone(filter), argument.clone()).end()?,
            None => argument.clone(),
        };
        Ok(Some(Self::OfDistinct {
            function: Arc::clone(&function.func),
            argument,
            is_filtered: params.filter.is_some(),
        }))
    }

    /// The argument whose different values are wanted.
    pub fn distinct_argument(&self) -> Option<&Expr> {
        match self {
            Self::OfDistinct { argument, .. } => Some(argument),
            Self::OfAll(_) => None,
        }
    }
}

impl OfAllRows {
    fn of(function: &AggregateFunction, schema: &DFSchema) -> Result<Option<Self>> {
        let name = function.func.name();
        let completion = match (name, function.params.args.as_slice()) {
            ("count", _) => Completion::Count,
            ("avg", [argument]) if argument.get_type(schema)?.is_numeric() => Completion::Average,
            (_, [_]) if COMPLETED_BY_ITSELF.contains(&name) || IDEMPOTENT.contains(&name) => {
                Completion::ByItself
            }
            _ => return Ok(None),
        };
        let mut function = function.clone();
        function.params.distinct = false;
        Ok(Some(Self { function, completion }))
    }

    /// The result, made of parts that `complete` has had completed.
    pub fn completed(&self, mut complete: impl FnMut(Part) -> Result<Expr>) -> Result<Expr> {
        let part = |function: &Arc<AggregateUDF>, completed_by: &Arc<AggregateUDF>| Part {
            begun: AggregateFunction { func: Arc::clone(function), params: self.function.params.clone() },
            completed_by: Arc::clone(completed_by),
        };
        let own = &self.function.func;
        Ok(match self.completion {
            Completion::ByItself => complete(part(own, own))?,
            Completion::Count => coalesce(vec![complete(part(own, &sum_udaf()))?, lit(0_i64)]),
            Completion::Average => {
                let sum = complete(part(&exact_sum(), &exact_sum()))?;
                let count = complete(part(&count_udaf(), &sum_udaf()))?;
                cast(sum, DataType::Float64) / cast(count, DataType::Float64)
            }
        })
    }
}

impl Part {
    /// The function of the lower level, whose arguments and filter are computed below that.
    pub fn begun_over(&self, input: &mut NamedColumns) -> Result<Expr> {
        let AggregateFunctionParams { args, filter, .. } = self.begun.params.clone();
        let filter = filter.map(|filter| *filter);
        let args = args.into_iter().map(|argument| {
            Ok(match (&filter, argument) {
                // `count(*)` counts ones.
                (_, argument @ Expr::Literal(..)) => argument,
                // The argument may fail for other rows, which would be null: all functions pass nulls over.
                (Some(filter), argument) if !matches!(argument, Expr::Column(_)) => {
                    input.add(when(filter.clone(), argument).end()?)
                }
                (_, argument) => input.add(argument),
            })
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        Ok(call(&self.begun.func, args, filter.map(|filter| input.add(filter))))
    }
}
