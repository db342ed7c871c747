//! Values of a frame's rows, and places in it.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Float64Array, Int64Array, new_null_array};
use arrow::compute::interleave;
use datafusion::common::cast::as_int64_array;
use datafusion::common::{Result, exec_err};

use super::sorted::{Order, SortedFrame};
use super::{FrameFunction, Partition, WindowCall};

/// The function of the frame of every row.
pub(super) fn evaluate(call: &WindowCall, partition: &Partition) -> Result<ArrayRef> {
    let count = partition.place(partition.rows);
    let order = Order::new(&partition.order, &call.order, count)?;
    let mut frame = SortedFrame::new(&order);
    let rows = 0..partition.rows;
    match call.function {
        FrameFunction::PercentRank | FrameFunction::CumeDist => {
            let share = |row: usize| {
                frame.move_to(partition.frame(row));
                let key = order.key(partition.place(row));
                match call.function {
                    FrameFunction::CumeDist => share(frame.keys_up_to(key), frame.len()),
                    _ => share(frame.keys_before(key), frame.len().saturating_sub(1)),
                }
            };
            Ok(Arc::new(Float64Array::from_iter_values(rows.map(share))))
        }
        FrameFunction::RowNumber | FrameFunction::Rank | FrameFunction::DenseRank => {
            let number = |row: usize| {
                frame.move_to(partition.frame(row));
                let place = partition.place(row);
                let before = match call.function {
                    FrameFunction::RowNumber => frame.rows_before(order.place(place)),
                    FrameFunction::Rank => frame.keys_before(order.key(place)),
                    _ => frame.different_keys(frame.keys_before(order.key(place))),
                };
                before as i64 + 1
            };
            Ok(Arc::new(Int64Array::from_iter_values(rows.map(number))))
        }
        FrameFunction::Ntile => {
            let buckets = numbers(partition, 0)?;
            let mut results = Vec::with_capacity(partition.rows);
            for row in rows {
                frame.move_to(partition.frame(row));
                let before = frame.rows_before(order.place(partition.place(row)));
                results.push(
                    match buckets.and_then(|buckets| (!buckets.is_null(row)).then(|| buckets.value(row))) {
                        Some(buckets) if buckets < 1 => {
                            return exec_err!("ntile needs 1 bucket or more, and not {buckets}");
                        }
                        Some(buckets) if frame.len() > 0 => Some(bucket(before, frame.len(), buckets)),
                        _ => None,
                    },
                );
            }
            Ok(Arc::new(Int64Array::from(results)))
        }
        _ => chosen(call, partition, &order, &mut frame),
    }
}

fn share(part: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Which of so many buckets a row falls into; the first ones have a row more if not all can have as many.
fn bucket(before: usize, rows: usize, buckets: i64) -> i64 {
    let (before, rows) = (before as i64, rows as i64);
    let (least, larger) = (rows / buckets, rows % buckets);
    let in_larger = larger * (least + 1);
    if before < in_larger {
        return before / (least + 1) + 1;
    }
    larger + (before - in_larger) / least.max(1) + 1
}

fn numbers(partition: &Partition, argument: usize) -> Result<Option<&Int64Array>> {
    partition.arguments.get(argument).map(|numbers| as_int64_array(numbers)).transpose()
}

/// The values of rows that are looked for, or others.
fn chosen(
    call: &WindowCall,
    partition: &Partition,
    order: &Order,
    frame: &mut SortedFrame,
) -> Result<ArrayRef> {
    let Some(values) = partition.arguments.first() else { return exec_err!("{} of what?", call.function) };
    let nothing = new_null_array(values.data_type(), 1);
    let other = partition.arguments.get(2).unwrap_or(&nothing);
    let numbers = numbers(partition, 1)?;
    let no_values = values.logical_nulls();
    let counts =
        |row: &usize| !call.ignores_nulls || no_values.as_ref().is_none_or(|none| none.is_valid(*row));
    let mut places = Vec::with_capacity(partition.rows);
    for row in 0..partition.rows {
        let number = match numbers {
            Some(numbers) if numbers.is_null(row) => {
                places.push((1, 0));
                continue;
            }
            Some(numbers) => numbers.value(row),
            None => 1,
        };
        let default = if partition.arguments.len() > 2 { (2, row) } else { (1, 0) };
        let found = match call.function {
            FrameFunction::Lead | FrameFunction::Lag => {
                let forwards = if matches!(call.function, FrameFunction::Lead) {
                    number
                } else {
                    number.saturating_neg()
                };
                if call.order.is_empty() {
                    shifted(0..partition.rows, row, forwards, counts)
                } else {
                    frame.move_to(partition.frame(row));
                    let from = frame.rows_before(order.place(row));
                    let counts = |place: &usize| frame.row(*place).is_some_and(|row| counts(&row));
                    shifted(0..frame.len(), from, forwards, counts).and_then(|place| frame.row(place))
                }
            }
            _ => {
                frame.move_to(partition.frame(row));
                let mut rows = frame.rows().filter(counts);
                match call.function {
                    FrameFunction::FirstValue => rows.next(),
                    FrameFunction::LastValue => rows.next_back(),
                    // A negative number is that of no row.
                    _ => match usize::try_from(number.unsigned_abs()).ok().and_then(|n| n.checked_sub(1)) {
                        Some(place) if number > 0 => rows.nth(place),
                        Some(_) | None => None,
                    },
                }
            }
        };
        places.push(found.map_or(default, |row| (0, row)));
    }
    Ok(interleave(&[values.as_ref(), nothing.as_ref(), other.as_ref()], &places)?)
}

/// Where a walk of so many steps ends, of which only some places count.
fn shifted(
    places: std::ops::Range<usize>,
    from: usize,
    steps: i64,
    counts: impl Fn(&usize) -> bool,
) -> Option<usize> {
    let far = usize::try_from(steps.unsigned_abs()).ok()?;
    match far.checked_sub(1) {
        None => Some(from).filter(|from| places.contains(from)),
        Some(nth) if steps > 0 => (from + 1..places.end).filter(counts).nth(nth),
        Some(nth) => (places.start..from.min(places.end)).rev().filter(counts).nth(nth),
    }
}
