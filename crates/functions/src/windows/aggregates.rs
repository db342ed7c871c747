//! Aggregates of frames.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, UInt64Array, new_empty_array};
use arrow::compute::take;
use arrow::datatypes::{FieldRef, Schema};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};

use super::sorted::{Order, SortedFrame};
use super::{Partition, WindowCall};

/// The aggregate of the frame of every row.
pub(super) fn evaluate(
    call: &WindowCall,
    function: &Arc<AggregateUDF>,
    (expressions, fields): (&[Arc<dyn PhysicalExpr>], &[FieldRef]),
    partition: &Partition,
) -> Result<ArrayRef> {
    let schema = Schema::new(fields.to_vec());
    // The rest of what an argument is computed from is not known here.
    let seen = |(number, expression): (usize, &Arc<dyn PhysicalExpr>)| -> Arc<dyn PhysicalExpr> {
        match expression.is::<Literal>() {
            true => Arc::clone(expression),
            false => Arc::new(Column::new(fields[number].name(), number)),
        }
    };
    let seen: Vec<_> = expressions.iter().enumerate().map(seen).collect();
    let return_field = function.return_field(fields)?;
    let begin = || {
        function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&return_field),
            schema: &schema,
            ignore_nulls: call.ignores_nulls,
            order_bys: &[],
            is_reversed: false,
            name: function.name(),
            is_distinct: false,
            exprs: &seen,
            expr_fields: fields,
        })
    };
    let results = match call.order.is_empty() && !call.is_distinct {
        true => in_order(partition, begin)?,
        false => sorted(call, partition, begin)?,
    };
    match results.is_empty() {
        true => Ok(new_empty_array(return_field.data_type())),
        false => ScalarValue::iter_to_array(results),
    }
}

/// A frame, and the accumulator that has its rows.
type Aggregated = (Vec<Range<usize>>, Box<dyn Accumulator>);

type Begin<'a> = &'a dyn Fn() -> Result<Box<dyn Accumulator>>;

/// Of frames whose rows come as they are. One that only grows goes on with what there is.
fn in_order(
    partition: &Partition,
    begin: impl Fn() -> Result<Box<dyn Accumulator>>,
) -> Result<Vec<ScalarValue>> {
    let mut results: Vec<ScalarValue> = Vec::with_capacity(partition.rows);
    let mut last: Option<Aggregated> = None;
    for row in 0..partition.rows {
        let frame = partition.frame(row);
        let (mut accumulator, added): (_, Vec<Range<usize>>) = match (last.take(), frame.as_slice()) {
            (Some((before, accumulator)), _) if before == frame => {
                results.extend(results.last().cloned());
                last = Some((before, accumulator));
                continue;
            }
            (Some((before, accumulator)), [range]) if matches!(before.as_slice(), [old] if old.start == range.start && old.end < range.end) =>
            {
                let done = before.last().map_or(range.start, |old| old.end);
                (accumulator, std::iter::once(done..range.end).collect())
            }
            _ => (begin()?, frame.clone()),
        };
        for range in added {
            let slice = |values: &ArrayRef| values.slice(range.start, range.len());
            accumulator.update_batch(&partition.arguments.iter().map(slice).collect::<Vec<_>>())?;
        }
        results.push(accumulator.evaluate()?);
        last = Some((frame, accumulator));
    }
    Ok(results)
}

/// Of frames that are sorted, or of which every value counts once.
fn sorted(
    call: &WindowCall,
    partition: &Partition,
    begin: impl Fn() -> Result<Box<dyn Accumulator>>,
) -> Result<Vec<ScalarValue>> {
    let begin: Begin = &begin;
    let count = partition.place(partition.rows);
    let order = Order::new(&partition.order, &call.order, count)?;
    let numbers = if call.is_distinct { numbered(&partition.arguments)? } else { Vec::new() };
    let mut seen = vec![usize::MAX; numbers.len()];
    let mut frame = SortedFrame::new(&order);
    let mut results: Vec<ScalarValue> = Vec::with_capacity(partition.rows);
    let mut before = None;
    for row in 0..partition.rows {
        let ranges = partition.frame(row);
        if before.as_ref() == Some(&ranges) {
            results.extend(results.last().cloned());
            continue;
        }
        frame.move_to(ranges.clone());
        before = Some(ranges);
        let is_new = |place: &usize| match numbers.get(*place) {
            Some(number) => std::mem::replace(&mut seen[*number], row) != row,
            None => true,
        };
        let places = UInt64Array::from_iter_values(frame.rows().filter(is_new).map(|row| row as u64));
        let mut accumulator = begin()?;
        let chosen = partition.arguments.iter().map(|values| Ok(take(values, &places, None)?));
        accumulator.update_batch(&chosen.collect::<Result<Vec<_>>>()?)?;
        results.push(accumulator.evaluate()?);
    }
    Ok(results)
}

/// Numbers rows so that equal ones have the same.
fn numbered(arguments: &[ArrayRef]) -> Result<Vec<usize>> {
    let fields = arguments.iter().map(|argument| SortField::new(argument.data_type().clone()));
    let rows = RowConverter::new(fields.collect())?.convert_columns(arguments)?;
    let mut known = HashMap::new();
    Ok(rows
        .iter()
        .map(|row| {
            let next = known.len();
            *known.entry(row.data().to_vec()).or_insert(next)
        })
        .collect())
}
