//! Numbers of different types, and values that stand in for nulls.
//!
//! Comparisons of a floating-point number with a decimal are of floating-point numbers, as in Postgres and DuckDB.
//! DataFusion's are of decimals, which have no place for small numbers, and none for NaN and the infinities. That is left
//! where a constant is compared with a column of decimals, as both write it as a decimal. `ifnull(a, b)`
//! is of a type that holds both, as `coalesce` is; DataFusion's is of the first one's.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, cast};

use crate::typed_operators::compares;

#[derive(Debug)]
pub(super) struct MixedTypes;

impl FunctionRewrite for MixedTypes {
    fn name(&self) -> &str {
        "mixed_types"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        let settle = |operands: &mut [&mut Expr]| {
            let types: Vec<DataType> = operands.iter().map(|operand| type_of(operand)).collect();
            let any = |is_such: fn(&DataType) -> bool, has_columns: bool| {
                let mut operands = operands.iter().zip(&types);
                operands.any(|(operand, of)| is_such(of) && (!has_columns || operand.any_column_refs()))
            };
            let (floats, decimals) = (DataType::is_floating, DataType::is_decimal);
            let is_mixed = any(floats, false) && any(decimals, false);
            // A constant that a column of decimals is compared with, as 0.06 + 0.01, is meant as a decimal; and the column as
            // it stands is what statistics and filters of scans know.
            let is_mixed = is_mixed && (any(floats, true) || !any(decimals, true));
            if is_mixed {
                for (operand, data_type) in operands.iter_mut().zip(&types) {
                    if data_type.is_decimal() {
                        let decimal = std::mem::take(*operand);
                        **operand = cast(decimal, DataType::Float64);
                    }
                }
            }
            is_mixed
        };
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let is_new = settle(&mut [&mut left, &mut right]);
                Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_new)
            }
            Expr::Between(mut between) => {
                let Between { expr, low, high, .. } = &mut between;
                let is_new = settle(&mut [expr, low, high]);
                Transformed::new_transformed(Expr::Between(between), is_new)
            }
            Expr::InList(mut list) => {
                let InList { expr, list: values, .. } = &mut list;
                let mut operands: Vec<&mut Expr> = vec![expr];
                operands.extend(values);
                let is_new = settle(&mut operands);
                Transformed::new_transformed(Expr::InList(list), is_new)
            }
            Expr::ScalarFunction(function) if function.func.name() == "nvl" => {
                Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(coalesce(), function.args)))
            }
            other => Transformed::no(other),
        })
    }
}
