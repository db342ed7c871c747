//! The join's filter with one row of one side held fixed.
//!
//! ```text
//!   a.x < b.y AND a.z + b.z % 7 = 3         one row of a, many of b:   5 < y AND 9 + z % 7 = 3
//!                                                                      └ set before every evaluation
//! ```
//!
//! The columns of the fixed row become [`Held`] expressions, which give whatever value they were last set to. So a
//! filter is rewritten twice per worker, not once per row, and the kernels take their paths for scalars.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_empty_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{Column, LambdaExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use parking_lot::Mutex;

use crate::join::spec::{OutputColumn, ResidualFilter, SideOf};

/// A filter in both directions. One worker uses it at a time: evaluation changes its state.
#[derive(Debug)]
pub struct PairFilter {
    /// One build row, many probe rows.
    pub one_build: OneAgainstMany,
    /// One probe row, many build rows.
    pub one_probe: OneAgainstMany,
    /// Stored columns of each side that the filter looks at, in the order in which both directions take them.
    pub build_columns: Vec<usize>,
    pub probe_columns: Vec<usize>,
}

impl PairFilter {
    /// `filter`, rewritten.
    pub fn new(filter: &ResidualFilter) -> Result<Self> {
        let columns = |wanted: SideOf| {
            let of_side = |column: &OutputColumn| match *column {
                OutputColumn::Of(side, index) if side == wanted => Some(index),
                _ => None,
            };
            filter.columns.iter().filter_map(of_side).collect()
        };
        Ok(Self {
            one_build: OneAgainstMany::new(filter, SideOf::Build)?,
            one_probe: OneAgainstMany::new(filter, SideOf::Probe)?,
            build_columns: columns(SideOf::Build),
            probe_columns: columns(SideOf::Probe),
        })
    }
}

/// The filter for one row of one side and many of the other.
#[derive(Debug)]
pub struct OneAgainstMany {
    expression: PhysicalExprRef,
    /// The values of the one row, in the order of its side's columns.
    held: Vec<Arc<Held>>,
    /// The columns of the many rows.
    many: SchemaRef,
    /// Set if the expression cannot be rewritten: where each column of the filter comes from.
    spread: Option<Spread>,
}

/// How to lay out the columns as the filter was planned for them.
#[derive(Debug)]
struct Spread {
    schema: SchemaRef,
    columns: Vec<Place>,
}

/// Where a column of the filter comes from.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Column of the one row.
    One(usize),
    /// Column of the many rows.
    Many(usize),
}

impl OneAgainstMany {
    fn new(filter: &ResidualFilter, one: SideOf) -> Result<Self> {
        let (mut held, mut many, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (field, column) in filter.schema.fields().iter().zip(&filter.columns) {
            match *column {
                OutputColumn::Of(side, _) if side == one => {
                    places.push(Place::One(held.len()));
                    held.push(Arc::new(Held::new(field)?));
                }
                _ => {
                    places.push(Place::Many(many.len()));
                    many.push(Arc::clone(field));
                }
            }
        }
        // Parameters of lambda expressions are found by their position behind the columns, which must stay what it was.
        let expression = Arc::clone(&filter.expression);
        let spread = expression
            .exists(|node| Ok(node.is::<LambdaExpr>()))?
            .then(|| Spread { schema: Arc::clone(&filter.schema), columns: places.clone() });
        let place = |node: PhysicalExprRef| {
            let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
            let replaced: PhysicalExprRef = match places.get(column.index()) {
                Some(&Place::One(index)) => match held.get(index) {
                    Some(held) => Arc::clone(held) as _,
                    None => return Ok(Transformed::no(node)),
                },
                Some(&Place::Many(index)) => Arc::new(Column::new(column.name(), index)),
                None => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(replaced))
        };
        let expression = if spread.is_some() { expression } else { expression.transform_up(place).data()? };
        Ok(Self { expression, held, many: Arc::new(Schema::new(many)), spread })
    }

    /// The many rows as [`OneAgainstMany::matches`] takes them.
    pub fn many(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        batch_of(&self.many, columns, rows)
    }

    /// Which of the `many` rows the filter accepts together with row `row` of `one`; `None` if it accepts none.
    pub fn matches(&self, one: &[ArrayRef], row: usize, many: &RecordBatch) -> Result<Option<BooleanBuffer>> {
        let verdict = match &self.spread {
            Some(spread) => self.expression.evaluate(&spread.batch(one, row, many)?)?,
            None => {
                for (held, column) in self.held.iter().zip(one) {
                    held.set(ScalarValue::try_from_array(column, row)?);
                }
                self.expression.evaluate(many)?
            }
        };
        let array = match verdict {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => {
                return Ok(Some(BooleanBuffer::new_set(many.num_rows())));
            }
            ColumnarValue::Scalar(ScalarValue::Boolean(_) | ScalarValue::Null) => return Ok(None),
            verdict => verdict.into_array(many.num_rows())?,
        };
        Ok(accepted(as_boolean_array(&array)?))
    }
}

/// The rows of a verdict that are true: null is not.
fn accepted(verdict: &BooleanArray) -> Option<BooleanBuffer> {
    let accepted = match verdict.nulls() {
        Some(nulls) if nulls.null_count() > 0 => verdict.values() & nulls.inner(),
        _ => verdict.values().clone(),
    };
    accepted.has_true().then_some(accepted)
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl Spread {
    /// All columns of the filter, those of the one row repeated.
    fn batch(&self, one: &[ArrayRef], row: usize, many: &RecordBatch) -> Result<RecordBatch> {
        let rows = many.num_rows();
        let same = UInt32Array::from_value(row as u32, rows);
        let column = |place: &Place| match *place {
            Place::One(index) => match one.get(index) {
                Some(column) => Ok(take(column, &same, None)?),
                None => Ok(new_empty_array(&DataType::Null)),
            },
            Place::Many(index) => Ok(Arc::clone(many.column(index))),
        };
        batch_of(&self.schema, self.columns.iter().map(column).collect::<Result<_>>()?, rows)
    }
}

/// An expression whose value is set from outside.
#[derive(Debug)]
struct Held {
    field: FieldRef,
    value: Mutex<ScalarValue>,
}

impl Held {
    fn new(field: &FieldRef) -> Result<Self> {
        Ok(Self {
            field: Arc::clone(field),
            value: Mutex::new(ScalarValue::try_new_null(field.data_type())?),
        })
    }

    fn set(&self, value: ScalarValue) {
        *self.value.lock() = value;
    }
}

/// Two are the same only if setting one sets the other.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Held {}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held {}", self.field.name())
    }
}

impl PhysicalExpr for Held {
    fn return_field(&self, _input_schema: &Schema) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn data_type(&self, _input_schema: &Schema) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn nullable(&self, _input_schema: &Schema) -> Result<bool> {
        Ok(self.field.is_nullable())
    }

    fn evaluate(&self, _batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.lock().clone()))
    }

    fn children(&self) -> Vec<&PhysicalExprRef> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<PhysicalExprRef>) -> Result<PhysicalExprRef> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field.name())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Field;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::BinaryExpr;

    use super::*;

    /// `x < y`, x of the build side and y of the probe side.
    fn less() -> ResidualFilter {
        let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int64, true));
        let column = |name: &str, index| Arc::new(Column::new(name, index)) as PhysicalExprRef;
        ResidualFilter {
            expression: Arc::new(BinaryExpr::new(column("x", 0), Operator::Lt, column("y", 1))),
            schema: Arc::new(Schema::new(fields.to_vec())),
            columns: vec![OutputColumn::Of(SideOf::Build, 0), OutputColumn::Of(SideOf::Probe, 0)],
        }
    }

    fn numbers(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn a_filter_that_cannot_be_rewritten_accepts_the_same_pairs() {
        let filter = less();
        let one = [numbers(&[Some(3), None, Some(9)])];
        for (side, expected) in [(SideOf::Build, vec![2, 3]), (SideOf::Probe, vec![0])] {
            let rewritten = OneAgainstMany::new(&filter, side).unwrap();
            let places = match side {
                SideOf::Build => vec![Place::One(0), Place::Many(0)],
                SideOf::Probe => vec![Place::Many(0), Place::One(0)],
            };
            let as_planned = OneAgainstMany {
                expression: Arc::clone(&filter.expression),
                spread: Some(Spread { schema: Arc::clone(&filter.schema), columns: places }),
                ..OneAgainstMany::new(&filter, side).unwrap()
            };
            for filter in [rewritten, as_planned] {
                let many = numbers(&[Some(2), None, Some(4), Some(9)]);
                let many = filter.many(vec![many], 4).unwrap();
                let accepted = filter.matches(&one, 0, &many).unwrap().unwrap();
                assert_eq!(accepted.set_indices().collect::<Vec<_>>(), expected, "{side:?}");
                assert!(filter.matches(&one, 1, &many).unwrap().is_none(), "null compares with nothing");
            }
        }
    }
}
