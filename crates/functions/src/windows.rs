//! Calls of window functions that DataFusion does not have: with `ORDER BY` among the arguments, `EXCLUDE`, frames whose
//! bounds are computed or end before they start, and aggregates over sliding frames from which nothing can be taken
//! back.
//!
//! ```text
//!   list(x ORDER BY y) FILTER (WHERE f) OVER (PARTITION BY p ORDER BY k RANGE BETWEEN a PRECEDING AND … EXCLUDE TIES)
//!     └─► call(x, y, f, k, k - a) OVER (PARTITION BY p ORDER BY k)
//! ```
//!
//! All that a call depends on is an argument of one window function, made for the call; it gets a partition at once, and
//! works out the frame of every row ([`frames`]). Aggregates are computed anew where a frame does not only grow; frames in
//! another order are kept sorted while they move ([`sorted`]).
#![allow(clippy::indexing_slicing, reason = "arguments, rows and groups are numbered here")]

mod aggregates;
mod fill;
mod frames;
mod sorted;
mod values;

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::{SortOptions, filter, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::binary::{comparison_coercion, type_union_coercion};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

use frames::Frames;

/// One call: what it computes, and what its arguments are for, in this order: those of the function, the keys of its own
/// order, the filter, the keys of the window's order, the bounds of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowCall {
    pub function: FrameFunction,
    pub arguments: usize,
    pub order: Vec<SortOptions>,
    pub is_filtered: bool,
    pub is_distinct: bool,
    pub ignores_nulls: bool,
    pub frame: Frame,
}

/// What is computed of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FrameFunction {
    Aggregate(Arc<AggregateUDF>),
    FirstValue,
    LastValue,
    NthValue,
    Lead,
    Lag,
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    /// Takes the window's order if the call has none.
    Fill,
}

/// Which rows a function sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    pub units: FrameUnits,
    pub start: FrameBound,
    pub end: FrameBound,
    pub exclusion: Exclusion,
    /// The window's order, as far as the frame depends on it.
    pub keys: Vec<SortOptions>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameUnits {
    Rows,
    Range,
    Groups,
}

/// Where a frame begins or ends. Distances are arguments of the call: of a `RANGE` the key at that distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameBound {
    /// With the partition.
    Unbounded,
    CurrentRow,
    Preceding,
    Following,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exclusion {
    Nothing,
    CurrentRow,
    Group,
    Ties,
}

impl FrameBound {
    fn has_distance(self) -> bool {
        matches!(self, FrameBound::Preceding | FrameBound::Following)
    }
}

impl fmt::Display for FrameFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            FrameFunction::Aggregate(function) => function.name(),
            FrameFunction::FirstValue => "first_value",
            FrameFunction::LastValue => "last_value",
            FrameFunction::NthValue => "nth_value",
            FrameFunction::Lead => "lead",
            FrameFunction::Lag => "lag",
            FrameFunction::RowNumber => "row_number",
            FrameFunction::Rank => "rank",
            FrameFunction::DenseRank => "dense_rank",
            FrameFunction::PercentRank => "percent_rank",
            FrameFunction::CumeDist => "cume_dist",
            FrameFunction::Ntile => "ntile",
            FrameFunction::Fill => "fill",
        })
    }
}

impl fmt::Display for WindowCall {
    /// The name of the call's function, which no other call has.
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let keys = |keys: &[SortOptions]| keys.iter().map(|key| format!(" {key}")).collect::<String>();
        write!(formatter, "{} of {}", self.function, self.arguments)?;
        for (is_so, word) in [
            (self.is_distinct, " DISTINCT"),
            (self.ignores_nulls, " IGNORE NULLS"),
            (self.is_filtered, " FILTER"),
        ] {
            formatter.write_str(if is_so { word } else { "" })?;
        }
        if !self.order.is_empty() {
            write!(formatter, " ORDER BY{}", keys(&self.order))?;
        }
        let Frame { units, start, end, exclusion, keys: by } = &self.frame;
        write!(formatter, " over {units:?} {start:?} {end:?} without {exclusion:?} by{}", keys(by))
    }
}

/// Where the arguments of a call stand.
struct Places {
    arguments: usize,
    order: usize,
    filter: usize,
    keys: usize,
    start: usize,
    end: usize,
}

impl WindowCall {
    /// The function of this call.
    pub fn into_function(self) -> Arc<WindowUDF> {
        let name = self.to_string();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(WindowUDF::from(Call { call: Arc::new(self), name, signature }))
    }

    /// Where each kind of arguments ends.
    fn places(&self) -> Places {
        let order = self.arguments + self.order.len();
        let filter = order + usize::from(self.is_filtered);
        let keys = filter + self.frame.keys.len();
        let start = keys + usize::from(self.frame.start.has_distance());
        let end = start + usize::from(self.frame.end.has_distance());
        Places { arguments: self.arguments, order, filter, keys, start, end }
    }

    fn coerced(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let places = self.places();
        if given.len() != places.end {
            return plan_err!("{} cannot have these arguments", self.function);
        }
        let mut types = given.to_vec();
        let own = &given[..places.arguments];
        types.splice(..places.arguments, self.function.coerced(own)?);
        if self.function == FrameFunction::Fill {
            let [value, key] = &types[..places.order] else {
                return plan_err!("fill needs an ORDER BY of one key");
            };
            fill::check(value, "values")?;
            fill::check(key, "the keys of its order")?;
        }
        types[places.order..places.filter].fill(DataType::Boolean);
        if self.frame.units != FrameUnits::Range {
            types[places.keys..].fill(DataType::Int64);
        } else if places.end > places.keys {
            let mut key = types[places.filter].clone();
            for bound in &types[places.keys..] {
                let Some(both) = comparison_coercion(&key, bound) else {
                    return plan_err!(
                        "a RANGE cannot be of {} before or after {}",
                        crate::sql_type(bound),
                        crate::sql_type(&key)
                    );
                };
                key = both;
            }
            types[places.filter] = key.clone();
            types[places.keys..].fill(key);
        }
        Ok(types)
    }
}

impl FrameFunction {
    fn coerced(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let fits = |wanted: std::ops::RangeInclusive<usize>| match wanted.contains(&given.len()) {
            true => Ok(()),
            false => plan_err!(
                "{self} takes {} to {} arguments, and there are {}",
                wanted.start(),
                wanted.end(),
                given.len()
            ),
        };
        let mut types = given.to_vec();
        match self {
            FrameFunction::Aggregate(function) => {
                let field = |given: &DataType| Arc::new(Field::new("argument", given.clone(), true));
                let fields: Vec<FieldRef> = given.iter().map(field).collect();
                let fields = fields_with_udf(&fields, function.as_ref())?;
                types = fields.iter().map(|field| field.data_type().clone()).collect();
            }
            FrameFunction::FirstValue | FrameFunction::LastValue => fits(1..=1)?,
            FrameFunction::NthValue => fits(2..=2)?,
            FrameFunction::Lead | FrameFunction::Lag => fits(1..=3)?,
            FrameFunction::Ntile | FrameFunction::Fill => fits(1..=1)?,
            _ => fits(0..=0)?,
        }
        match (self, types.as_mut_slice()) {
            (FrameFunction::Ntile, [count]) => *count = DataType::Int64,
            (FrameFunction::NthValue, [_, count]) => *count = DataType::Int64,
            (FrameFunction::Lead | FrameFunction::Lag, [value, distance, default @ ..]) => {
                *distance = DataType::Int64;
                if let [default] = default {
                    let Some(both) = type_union_coercion(value, default) else {
                        return plan_err!(
                            "{self} of {} cannot be {} elsewhere",
                            crate::sql_type(value),
                            crate::sql_type(default)
                        );
                    };
                    (*value, *default) = (both.clone(), both);
                }
            }
            _ => {}
        }
        Ok(types)
    }

    fn returned(&self, arguments: &[FieldRef]) -> Result<DataType> {
        Ok(match self {
            FrameFunction::Aggregate(function) => function.return_field(arguments)?.data_type().clone(),
            FrameFunction::PercentRank | FrameFunction::CumeDist => DataType::Float64,
            FrameFunction::RowNumber
            | FrameFunction::Rank
            | FrameFunction::DenseRank
            | FrameFunction::Ntile => DataType::Int64,
            _ => arguments.first().map_or(DataType::Null, |value| value.data_type().clone()),
        })
    }
}

#[derive(Debug)]
struct Call {
    call: Arc<WindowCall>,
    name: String,
    signature: Signature,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.call == other.call
    }
}

impl Eq for Call {}

impl std::hash::Hash for Call {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.call.hash(state);
    }
}

impl WindowUDFImpl for Call {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.call.coerced(given)
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        let own = arguments.input_fields().get(..self.call.arguments).unwrap_or_default();
        Ok(Arc::new(Field::new(arguments.name(), self.call.function.returned(own)?, true)))
    }

    fn partition_evaluator(&self, arguments: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let own = self.call.arguments;
        Ok(Box::new(Evaluator {
            call: Arc::clone(&self.call),
            expressions: arguments.input_exprs().iter().take(own).cloned().collect(),
            fields: arguments.input_fields().iter().take(own).cloned().collect(),
        }))
    }
}

#[derive(Debug)]
struct Evaluator {
    call: Arc<WindowCall>,
    /// The arguments of the function itself: aggregates look for constants among them.
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<FieldRef>,
}

/// The rows of a partition, without those that a filter drops.
struct Partition {
    arguments: Vec<ArrayRef>,
    order: Vec<ArrayRef>,
    frames: Frames,
    /// Where each row stands among those that are left, or would stand.
    places: Option<Vec<usize>>,
    rows: usize,
}

impl Partition {
    fn place(&self, row: usize) -> usize {
        self.places.as_ref().map_or(row, |places| places[row])
    }

    /// The rows of a frame: ranges that follow each other.
    fn frame(&self, row: usize) -> Vec<std::ops::Range<usize>> {
        let ranges = self.frames.of(row);
        let places = ranges.map(|range| self.place(range.start)..self.place(range.end));
        places.filter(|range| !range.is_empty()).collect()
    }
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let (call, places) = (&self.call, self.call.places());
        if values.len() < places.end {
            return exec_err!("{} lacks arguments", call.function);
        }
        let bound = |start: usize, end: usize| values[start..end].first();
        let frames = Frames::new(
            &call.frame,
            rows,
            &values[places.filter..places.keys],
            [bound(places.keys, places.start), bound(places.start, places.end)],
        )?;
        let mut partition = Partition {
            arguments: values[..places.arguments].to_vec(),
            order: values[places.arguments..places.order].to_vec(),
            frames,
            places: None,
            rows,
        };
        if let [is_kept] = &values[places.order..places.filter] {
            let is_kept = is_kept.as_boolean();
            let is_kept =
                if is_kept.null_count() > 0 { prep_null_mask_filter(is_kept) } else { is_kept.clone() };
            let all = partition.arguments.iter_mut().chain(&mut partition.order);
            for column in all {
                *column = filter(column, &is_kept)?;
            }
            let mut kept = 0;
            let mut counted = Vec::with_capacity(rows + 1);
            counted.push(0);
            counted.extend(is_kept.values().iter().map(|is_kept| {
                kept += usize::from(is_kept);
                kept
            }));
            partition.places = Some(counted);
        }
        match &call.function {
            FrameFunction::Aggregate(function) => {
                aggregates::evaluate(call, function, (&self.expressions, &self.fields), &partition)
            }
            FrameFunction::Fill => fill::evaluate(call, &partition),
            _ => values::evaluate(call, &partition),
        }
    }
}
