//! Writes to folders named after the values of some columns (`day=2026-01-01/`), one value after the other.
//!
//! ```text
//!  input ─► sort: partition columns, then the input's own order ─► runs of one value ─► a file ─► closed
//!                                                                                  ├──► a file ─► closed
//!                                                                                  └──► …
//! ```
//!
//! DataFusion's sinks keep a file open for every value they have seen until the input ends, each with what its format
//! buffers: a row group of Parquet, megabytes of CSV. Here the rows come sorted by the partition columns, and each run
//! of one value is a write of its own to DataFusion's sink, which opens one file for it. Any number of values takes the
//! memory of one, and the sort spills.
//!
//! Rows are always sorted. Whether a few open files would have been cheaper is known only when all values have been
//! seen, and sorting also gives each value one file, in the input's order. An input that comes sorted by the partition
//! columns is not sorted again.
//!
//! | file | subject |
//! |---|---|
//! | `order` | what rows have to be sorted by |
//! | `runs` | the rows of one value |
//! | `sink` | a write for each of them |

mod order;
mod runs;
mod sink;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::physical_plan::ExecutionPlanProperties;

pub use self::order::{sorting_columns, within_value};
pub use self::sink::{ByValueSink, ValueWriter};

/// The write that `planned` describes, by one value of `columns` after the other. `None` if DataFusion's sink is to be
/// used as it is: it names no folders after these columns, or will say itself why it cannot.
///
/// Within a value, rows are in the order that `planned` requires, or else in that of its input. To be called before
/// orders are enforced. A `writer` names the folders itself, after values of any type.
pub fn by_value(
    planned: &DataSinkExec,
    columns: &[String],
    writer: Option<Arc<dyn ValueWriter>>,
) -> Result<Option<DataSinkExec>> {
    let (input, schema) = (planned.input(), planned.input().schema());
    let known = |column: &String| {
        let at = schema.index_of(column).ok()?;
        (writer.is_some() || names_folders(schema.field(at).data_type())).then_some(at)
    };
    let Some(columns) = columns.iter().map(known).collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let Some(order) = order::by_value(&columns, &schema, order::within_value(planned)) else {
        return Ok(None);
    };
    let is_own_order = match planned.sort_order() {
        Some(required) => input.equivalence_properties().ordering_satisfy_requirement(required.clone())?,
        None => true,
    };
    let hidden = if is_own_order { order::below_projection(input, &columns)? } else { None };
    let input = hidden.unwrap_or_else(|| Arc::clone(input));
    let sink = sink::ByValueSink::new(planned.clone(), columns, writer);
    Ok(Some(DataSinkExec::new(input, Arc::new(sink), Some(order))))
}

/// Whether DataFusion's sinks can write a value of this type as the name of a folder.
fn names_folders(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean | DataType::Date32 | DataType::Date64 => true,
        DataType::Dictionary(_, values) => **values == DataType::Utf8,
        other => other.is_integer() || other.is_floating() || other.is_string(),
    }
}
