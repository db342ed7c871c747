//! Functions of lists.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, GenericListArray, OffsetSizeTrait,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::utils::list_ndims;
use datafusion::common::{DFSchema, Result, ScalarValue, TableReference, exec_err, internal_err, plan_err};
use datafusion::functions::unicode::expr_fn::substring;
use datafusion::functions_nested::concat::array_concat;
use datafusion::functions_nested::extract::array_element;
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit, when};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use nandina_functions::{bit_operation, huge_operation, interval_multiple, map_value, moment_of_sum};

use super::function::call;
use super::{mixed_texts, variants};

#[derive(Debug)]
pub(super) struct ListFunctions;

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

impl FunctionRewrite for ListFunctions {
    fn name(&self) -> &str {
        "list_functions"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        match expr {
            Expr::ScalarFunction(function) => of_function(function, type_of),
            other => Ok(Transformed::no(other)),
        }
    }
}

fn of_function(function: ScalarFunction, type_of: impl Fn(&Expr) -> DataType) -> Result<Transformed<Expr>> {
    let name = function.func.name().to_owned();
    match (name.as_str(), function.args.as_slice()) {
        ("character_length", [list]) if is_list(&type_of(list)) => {
            let length = ScalarFunction::new_udf(array_length_udf(), function.args);
            Ok(Transformed::yes(cast(Expr::ScalarFunction(length), DataType::Int64)))
        }
        ("character_length", [other]) if !is_text(&type_of(other)) => {
            plan_err!(
                "length counts the characters of a text or the elements of a list, not those of a {}",
                type_of(other)
            )
        }
        ("array_has_any" | "array_has_all", [left, right]) => {
            let any_is_null = left.clone().is_null().or(right.clone().is_null());
            let known = [left, right].map(|list| {
                let list = match type_of(list) {
                    DataType::FixedSizeList(field, _) => cast(list.clone(), DataType::List(field)),
                    _ => list.clone(),
                };
                match is_list(&type_of(&list)) && !is_without_nulls(&list) {
                    true => call("without_null_elements", without_null_elements, vec![list]),
                    false => list,
                }
            });
            let known = Expr::ScalarFunction(ScalarFunction::new_udf(function.func, known.into()));
            // Once more over the same function, when the plan is analyzed again, changes nothing but the time it takes.
            Ok(Transformed::yes(when(any_is_null, lit(ScalarValue::Boolean(None))).otherwise(known)?))
        }
        ("flatten", [lists]) => match type_of(lists) {
            DataType::List(field) if field.data_type().is_null() => {
                let of_lists = DataType::new_list(DataType::new_list(DataType::Null, true), true);
                let arguments = vec![cast(lists.clone(), of_lists)];
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function.func, arguments))))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(function))),
        },
        ("map", [keys, values]) if is_list(&type_of(keys)) && is_list(&type_of(values)) => {
            let arguments = vec![keys.clone(), values.clone()];
            let checked = vec![call("keys_of_map", of_equal_lengths, arguments), values.clone()];
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function.func, checked))))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(function))),
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => other.is_string() || other.is_null(),
    }
}

fn is_without_nulls(list: &Expr) -> bool {
    matches!(list, Expr::ScalarFunction(function) if function.func.name() == "without_null_elements")
}

/// Lists without those of their elements that are null: a null is equal to nothing.
fn without_null_elements(lists: &[ArrayRef]) -> Result<ArrayRef> {
    let [lists] = lists else { return internal_err!("the elements of {} lists", lists.len()) };
    match lists.data_type() {
        DataType::List(field) => elements_that_are(lists.as_list::<i32>(), field),
        DataType::LargeList(field) => elements_that_are(lists.as_list::<i64>(), field),
        other => internal_err!("elements are left out of a {other}"),
    }
}

fn elements_that_are<O: OffsetSizeTrait>(lists: &GenericListArray<O>, field: &FieldRef) -> Result<ArrayRef> {
    let Some(nulls) = lists.values().logical_nulls() else { return Ok(Arc::new(lists.clone())) };
    let mut lengths = Vec::with_capacity(lists.len());
    let mut kept = BooleanBufferBuilder::new(lists.values().len());
    kept.append_n(lists.values().len(), false);
    let offsets = lists.value_offsets();
    for (row, (begin, end)) in offsets.iter().zip(offsets.iter().skip(1)).enumerate() {
        let elements = begin.as_usize()..end.as_usize();
        let there = elements.filter(|&element| lists.is_valid(row) && nulls.is_valid(element));
        lengths.push(there.inspect(|&element| kept.set_bit(element, true)).count());
    }
    let values = filter(lists.values(), &BooleanArray::new(kept.finish(), None))?;
    let offsets: OffsetBuffer<O> = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?))
}

/// `||` of lists: null if one of them is, as of texts. DataFusion's forgets a null list, and appends a null without a type.
#[derive(Debug)]
pub(super) struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        // A parameter has no type yet.
        let type_of = |side: &Expr| side.get_type(schema).unwrap_or(DataType::Null);
        // The types of the first of many terms of a sum would be found out again for each of them.
        let is_sum = expr.op == BinaryOperator::Plus && !is_of_calendar(&type_of(&expr.right));
        if let Some(operator) = symbol(&expr.op).filter(|_| !is_sum) {
            let types = [type_of(&expr.left), type_of(&expr.right)];
            let sides = [(&expr.left, &types[0]), (&expr.right, &types[1])];
            let planned = huge_operation(operator, sides)
                .or_else(|| interval_multiple(operator, sides))
                .or_else(|| if operator == "+" { moment_of_sum(sides) } else { None })
                .or_else(|| bit_operation(operator, sides));
            if let Some(planned) = planned {
                let name = format!("{} {} {}", expr.left.schema_name(), expr.op, expr.right.schema_name());
                return Ok(PlannerResult::Planned(planned.alias(name)));
            }
        }
        let is_decimal = |side: &Expr| side.get_type(schema).is_ok_and(|of| of.is_decimal());
        if is_of_bits(&expr.op) && (is_decimal(&expr.left) || is_decimal(&expr.right)) {
            return plan_err!(
                "{} is there for integers of up to 64 bits; cast the numbers to BIGINT",
                expr.op
            );
        }
        if let Some(planned) = mixed_texts::operation(&expr.op, &expr.left, &expr.right, schema) {
            return Ok(PlannerResult::Planned(planned));
        }
        match expr.op {
            BinaryOperator::StringConcat => {}
            BinaryOperator::DuckIntegerDivide => return Ok(PlannerResult::Planned(quotient(expr, schema)?)),
            _ => return Ok(PlannerResult::Original(expr)),
        }
        let types = [expr.left.get_type(schema)?, expr.right.get_type(schema)?];
        let [left, right] = types.each_ref().map(is_list);
        let unknown = |data_type: &DataType| cast(lit(ScalarValue::Null), data_type.clone());
        let planned = match (left, right) {
            (true, false) if types[1].is_null() => unknown(&types[0]),
            (false, true) if types[0].is_null() => unknown(&types[1]),
            (true, true) if list_ndims(&types[0]) == list_ndims(&types[1]) => {
                let any_is_null = expr.left.clone().is_null().or(expr.right.clone().is_null());
                let both = array_concat(vec![expr.left, expr.right]);
                let name = both.schema_name().to_string();
                when(any_is_null, lit(ScalarValue::Null)).otherwise(both)?.alias(name)
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(planned))
    }

    /// Characters of texts. Values of maps by their keys: DataFusion takes other rows' where they are computed or have
    /// parts. And elements of `array_agg(DISTINCT …)`, of which DataFusion makes an `nth_value` that forgets the word, and those of
    /// `array_agg` whose number is no constant above 0, which `nth_value` refuses.
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        if let Some(part) = variants::part(&access, schema)? {
            return Ok(PlannerResult::Planned(part));
        }
        match access {
            RawFieldAccessExpr { expr, field_access: GetFieldAccess::ListIndex { key } }
                if is_text(&expr.get_type(schema)?) =>
            {
                Ok(PlannerResult::Planned(substring(expr, *key, lit(1_i64))))
            }
            RawFieldAccessExpr {
                expr: Expr::AggregateFunction(list),
                field_access: GetFieldAccess::ListIndex { key },
            } if list.func.name() == "array_agg" && (list.params.distinct || !is_positive(&key)) => {
                Ok(PlannerResult::Planned(array_element(Expr::AggregateFunction(list), *key)))
            }
            RawFieldAccessExpr { expr, field_access: GetFieldAccess::ListIndex { key } }
                if matches!(expr.get_type(schema), Ok(DataType::Map(..))) =>
            {
                Ok(PlannerResult::Planned(map_value(expr, *key)))
            }
            other => Ok(variants::place(other, schema)),
        }
    }

    fn plan_compound_identifier(
        &self,
        field: &Field,
        table: Option<&TableReference>,
        names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(match variants::path(field, table, names) {
            Some(part) => PlannerResult::Planned(part),
            None => PlannerResult::Original(Vec::new()),
        })
    }

    fn plan_array_literal(&self, elements: Vec<Expr>, schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(variants::list(elements, schema))
    }
}

/// `a // b`: of integers without its fraction, of other numbers as floating-point numbers.
fn quotient(expr: RawBinaryExpr, schema: &DFSchema) -> Result<Expr> {
    let name = format!("{} // {}", expr.left.schema_name(), expr.right.schema_name());
    let types = [expr.left.get_type(schema)?, expr.right.get_type(schema)?];
    if types.iter().any(|of| matches!(of, DataType::Decimal256(_, 0))) {
        return plan_err!("// is there for integers of up to 64 bits; cast the numbers to BIGINT");
    }
    let are_integers = types.iter().all(DataType::is_integer);
    let [left, right] = [expr.left, expr.right].map(|operand| match are_integers {
        true => operand,
        false => cast(operand, DataType::Float64),
    });
    Ok((left / right).alias(name))
}

/// Whether an operator takes bits of integers. DataFusion would cut decimals off to 64 of them.
fn is_of_bits(operator: &BinaryOperator) -> bool {
    matches!(
        operator,
        BinaryOperator::BitwiseAnd
            | BinaryOperator::BitwiseOr
            | BinaryOperator::BitwiseXor
            | BinaryOperator::PGBitwiseXor
            | BinaryOperator::PGBitwiseShiftLeft
            | BinaryOperator::PGBitwiseShiftRight
    )
}

/// Whether values of a type are dates or times of the day, of which sums are points in time.
fn is_of_calendar(of: &DataType) -> bool {
    of.is_nested() || matches!(of, DataType::Date32 | DataType::Time32(_) | DataType::Time64(_))
}

/// How an operator is written that takes bits, gives whole quotients, multiples of intervals, or points in time.
fn symbol(operator: &BinaryOperator) -> Option<&'static str> {
    Some(match operator {
        BinaryOperator::BitwiseAnd => "&",
        BinaryOperator::BitwiseOr => "|",
        BinaryOperator::BitwiseXor | BinaryOperator::PGBitwiseXor => "xor",
        BinaryOperator::PGBitwiseShiftLeft => "<<",
        BinaryOperator::PGBitwiseShiftRight => ">>",
        BinaryOperator::DuckIntegerDivide => "//",
        BinaryOperator::Plus => "+",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        _ => return None,
    })
}

fn is_positive(number: &Expr) -> bool {
    matches!(number, Expr::Literal(ScalarValue::Int64(Some(1..)), _))
}

/// The first of two lists, which have the same number of elements in every row.
fn of_equal_lengths(lists: &[ArrayRef]) -> Result<ArrayRef> {
    let [keys, values] = lists else { return internal_err!("a map is made of two lists") };
    let lengths =
        [keys, values].map(|lists| datafusion::arrow::compute::kernels::length::length(lists.as_ref()));
    let [keys_lengths, values_lengths] = lengths;
    let (keys_lengths, values_lengths) = (keys_lengths?, values_lengths?);
    for row in 0..keys.len() {
        let is_there = keys_lengths.is_valid(row) && values_lengths.is_valid(row);
        if is_there && keys_lengths.slice(row, 1).as_ref() != values_lengths.slice(row, 1).as_ref() {
            return exec_err!("a map has as many values as keys, which these lists do not");
        }
    }
    Ok(Arc::clone(keys))
}
