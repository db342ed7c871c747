//! Aggregate functions, for the states of many groups at once.
//!
//! ```text
//!   Aggregate (a name, its arguments, a Shape) ──► States of one of five kinds ──► Grouped: many groups
//!                                                   folds      a few numbers    └─► Single: one, also in windows
//!                                                   counts     values and how often each is there
//!                                                   decimals   a sum and a number of values
//!                                                   extremes   the least or greatest key and what stands beside it
//!                                                   bits       a string of bits
//! ```
//!
//! States merge in any order to the same result, but for the last digits of floating-point numbers: what is
//! undecided in SQL (which of several modes, which of several rows with the least key) is the least value here.

mod bins;
mod bits;
mod continuous;
mod counts;
mod decimals;
mod extremes;
mod folds;

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::cast::as_float64_array;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::binary::type_union_coercion;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use crate::aggregates::bits::Operation;
use crate::aggregates::counts::{Counts, Finish};
use crate::aggregates::extremes::Extremes;
use crate::aggregates::folds::{FOLDS, Fold, Folds};
use crate::casts::bits::is_bit;
use crate::function::{Kind, element, list_of};
use crate::types::sql_type;

/// All of them, of which some are for other types what functions of the same name are.
pub(crate) fn functions(registry: &dyn FunctionRegistry) -> Result<Vec<Arc<AggregateUDF>>> {
    let folds = FOLDS.iter().map(|fold| (fold.names, Shape::Fold(fold)));
    let others: [(&'static [&'static str], Shape); 15] = [
        (&["mode"], Shape::Mode),
        (&["histogram"], Shape::Histogram),
        (&["entropy"], Shape::Entropy),
        (&["mad"], Shape::Deviation),
        (&["quantile_disc", "quantile"], Shape::Quantile),
        (&["median"], Shape::Median),
        (&["quantile_cont"], Shape::Continuous),
        (&["decimal_average"], Shape::DecimalAverage),
        (&["arg_min", "argmin", "min_by"], Shape::Extreme { greatest: false, with_nulls: false }),
        (&["arg_max", "argmax", "max_by"], Shape::Extreme { greatest: true, with_nulls: false }),
        (&["arg_min_null"], Shape::Extreme { greatest: false, with_nulls: true }),
        (&["arg_max_null"], Shape::Extreme { greatest: true, with_nulls: true }),
        (&["bit_and"], Shape::Bits(Operation::And)),
        (&["bit_or"], Shape::Bits(Operation::Or)),
        (&["bit_xor"], Shape::Bits(Operation::Xor)),
    ];
    let functions = folds.chain(others).map(|(names, shape)| {
        let function = Aggregate::new(names, shape);
        let of_integers = match shape {
            Shape::Bits(_) => Some(registry.udaf(function.name)?),
            _ => None,
        };
        Ok(Arc::new(AggregateUDF::from(Aggregate { of_integers, ..function })))
    });
    functions.collect()
}

/// What a function keeps of its input.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Fold(&'static Fold),
    Mode,
    Histogram,
    Entropy,
    Deviation,
    Quantile,
    /// As the quantile of one half.
    Median,
    Continuous,
    DecimalAverage,
    Extreme {
        greatest: bool,
        with_nulls: bool,
    },
    Bits(Operation),
}

#[derive(Debug)]
struct Aggregate {
    name: &'static str,
    aliases: Vec<String>,
    shape: Shape,
    /// What has been there under this name, for integers.
    of_integers: Option<Arc<AggregateUDF>>,
    signature: Signature,
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Aggregate {}

impl Hash for Aggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Aggregate {
    fn new(names: &'static [&'static str], shape: Shape) -> Self {
        let aliases = names.iter().skip(1).map(|&name| name.to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        Aggregate {
            name: names.first().copied().unwrap_or_default(),
            aliases,
            shape,
            of_integers: None,
            signature,
        }
    }

    /// Values and counts are kept also of numbers that are folded, where equal ones count once.
    fn keeps_values(&self, is_distinct: bool) -> bool {
        match self.shape {
            Shape::Fold(_) => is_distinct,
            Shape::Extreme { .. } | Shape::DecimalAverage | Shape::Bits(_) => false,
            _ => true,
        }
    }

    /// The function of the same name, which computes it for numbers of up to 64 bits.
    fn of_numbers(&self, first: Option<&DataType>, second: Option<&DataType>) -> Option<Arc<AggregateUDF>> {
        let is_number = first.is_some_and(|of| of.is_numeric() && !matches!(of, DataType::Decimal256(..)));
        let is_list = second.is_some_and(|of| element(of).is_some());
        match self.shape {
            Shape::Median if is_number => Some(median_udaf()),
            Shape::Continuous if is_number && !is_list => Some(percentile_cont_udaf()),
            Shape::Bits(_) if !first.is_some_and(is_bit) => self.of_integers.clone(),
            _ => None,
        }
    }

    fn of_numbers_in(&self, fields: &[FieldRef]) -> Option<Arc<AggregateUDF>> {
        let of = |number: usize| fields.get(number).map(|field| field.data_type());
        self.of_numbers(of(0), of(1))
    }

    fn states(&self, call: &AccumulatorArgs) -> Result<Box<dyn States>> {
        let Some(first) = call.expr_fields.first() else {
            return exec_err!("{} takes an argument", self.name);
        };
        let first = first.data_type();
        let counted = |finish: Finish| -> Result<Box<dyn States>> {
            Ok(Box::new(Counts::new(first, finish, call.is_distinct)?))
        };
        match self.shape {
            Shape::Bits(Operation::Xor) if call.is_distinct => {
                exec_err!("bit_xor(DISTINCT …) is there for integers, and not for strings of bits")
            }
            Shape::Bits(operation) => Ok(Box::new(bits::Bits::new(operation))),
            Shape::Fold(fold) if call.is_distinct => counted(Finish::Fold(fold)),
            Shape::Fold(fold) => Ok(Box::new(Folds::new(fold))),
            Shape::Mode => counted(Finish::Mode),
            Shape::Histogram if call.exprs.len() == 2 => Ok(Box::new(bins::Bins::new(first)?)),
            Shape::Histogram => counted(Finish::Histogram),
            Shape::Entropy => counted(Finish::Entropy),
            Shape::Deviation => counted(Finish::Deviation),
            Shape::Quantile => {
                let (fractions, is_list) = fractions(call)?;
                counted(Finish::Quantile { fractions, is_list })
            }
            Shape::Median | Shape::Continuous => {
                let (fractions, is_list) = match self.shape {
                    Shape::Median => (vec![0.5], false),
                    _ => fractions(call)?,
                };
                counted(match continuous::is_interpolated(first) {
                    true => Finish::Continuous { fractions, is_list },
                    false => Finish::Quantile { fractions, is_list },
                })
            }
            Shape::DecimalAverage => Ok(Box::new(decimals::Averages::new(first)?)),
            Shape::Extreme { greatest, with_nulls } => {
                let Some(key) = call.expr_fields.get(1) else {
                    return exec_err!("{} takes two arguments", self.name);
                };
                Ok(Box::new(Extremes::new(first, key.data_type(), greatest, with_nulls)?))
            }
        }
    }
}

/// The fractions that a quantile is asked for, and whether as a list.
fn fractions(call: &AccumulatorArgs) -> Result<(Vec<f64>, bool)> {
    let Some(argument) = call.exprs.get(1) else { return exec_err!("quantile takes a fraction") };
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let no_columns = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    let Ok(value) = argument.evaluate(&no_columns).and_then(|value| value.into_array(1)) else {
        return exec_err!("the fraction of a quantile must be a constant");
    };
    let (values, is_list) = match value.as_list_opt::<i32>() {
        Some(list) => (list.value(0), true),
        None => (value, false),
    };
    let values = cast(&values, &DataType::Float64)?;
    let values = as_float64_array(&values)?.iter().map(|fraction| match fraction {
        Some(fraction @ -1.0..=1.0) => Ok(fraction),
        _ => exec_err!("the fraction of a quantile must be a number between -1 and 1"),
    });
    Ok((values.collect::<Result<_>>()?, is_list))
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(function) = self.of_numbers(given.first(), given.get(1)) {
            let field = |given: &DataType| Arc::new(Field::new("argument", given.clone(), true));
            let fields = fields_with_udf(&given.iter().map(field).collect::<Vec<_>>(), function.as_ref())?;
            return Ok(fields.iter().map(|field| field.data_type().clone()).collect());
        }
        let accepted = match (self.shape, given) {
            (Shape::Histogram, [value, bounds]) => match element(bounds) {
                Some(DataType::Null) => Some(vec![value.clone(), list_of(value.clone())]),
                Some(bound) => {
                    type_union_coercion(value, bound).map(|both| vec![both.clone(), list_of(both)])
                }
                None => None,
            },
            (Shape::Median | Shape::Continuous, [DataType::Interval(_), ..]) => None,
            (Shape::Median, [value]) => Some(vec![continuous::kept_as(value)]),
            (Shape::Deviation, [value]) if continuous::is_interpolated(&continuous::kept_as(value)) => {
                Some(vec![continuous::kept_as(value)])
            }
            (Shape::Continuous, [value, fraction]) => match element(fraction) {
                Some(_) => Some(vec![continuous::kept_as(value), list_of(DataType::Float64)]),
                None => {
                    Kind::Float.accept(fraction).map(|fraction| vec![continuous::kept_as(value), fraction])
                }
            },
            (
                Shape::DecimalAverage,
                [
                    DataType::Decimal32(precision, scale)
                    | DataType::Decimal64(precision, scale)
                    | DataType::Decimal128(precision, scale),
                ],
            ) => Some(vec![DataType::Decimal128(*precision, *scale)]),
            (Shape::Fold(Fold { of_booleans: true, .. }), [value]) => {
                Kind::Boolean.accept(value).map(|value| vec![value])
            }
            (Shape::Fold(_) | Shape::Deviation, [value]) => {
                Kind::Float.accept(value).map(|value| vec![value])
            }
            (Shape::Mode | Shape::Histogram | Shape::Entropy | Shape::Bits(_), [_])
            | (Shape::Extreme { .. }, [_, _]) => Some(given.to_vec()),
            (Shape::Quantile, [value, fraction]) => match element(fraction) {
                Some(_) => Some(vec![value.clone(), list_of(DataType::Float64)]),
                None => Kind::Float.accept(fraction).map(|fraction| vec![value.clone(), fraction]),
            },
            _ => None,
        };
        let Some(types) = accepted else {
            let given: Vec<_> = given.iter().map(sql_type).collect();
            let usage = match self.shape {
                Shape::Fold(Fold { of_booleans: true, .. }) => "BOOLEAN",
                Shape::Fold(_) | Shape::Deviation => "DOUBLE",
                Shape::Quantile | Shape::Continuous => "ANY, fraction or list of fractions",
                Shape::Histogram => "ANY, list of bounds",
                Shape::DecimalAverage => "DECIMAL",
                Shape::Extreme { .. } => "value, key",
                _ => "ANY",
            };
            return plan_err!("{0}({1}) does not exist; write {0}({usage})", self.name, given.join(", "));
        };
        // Encodings of a column are no part of what its values are.
        Ok(types.iter().map(|data_type| Kind::Any.accept(data_type).unwrap_or(DataType::Null)).collect())
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let Some(first) = given.first() else { return plan_err!("{} takes an argument", self.name) };
        if let Some(function) = self.of_numbers(given.first(), given.get(1)) {
            return function.return_type(given);
        }
        Ok(match self.shape {
            Shape::Fold(Fold { of_booleans: true, .. }) => DataType::Int64,
            Shape::Fold(_) | Shape::Entropy => DataType::Float64,
            Shape::Deviation => continuous::distance_type(first),
            Shape::Histogram => counts::histogram_type(first),
            Shape::Quantile | Shape::Continuous
                if given.get(1).is_some_and(|fraction| element(fraction).is_some()) =>
            {
                list_of(first.clone())
            }
            Shape::Mode
            | Shape::Quantile
            | Shape::Median
            | Shape::Continuous
            | Shape::DecimalAverage
            | Shape::Bits(_)
            | Shape::Extreme { .. } => first.clone(),
        })
    }

    fn state_fields(&self, call: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if let Some(function) = self.of_numbers_in(call.input_fields) {
            return function.state_fields(call);
        }
        let field = |number: usize, data_type: DataType| {
            Arc::new(Field::new(format!("{}[{number}]", call.name), data_type, true))
        };
        let argument = |number: usize| match call.input_fields.get(number) {
            Some(field) => Ok(field.data_type().clone()),
            None => plan_err!("{} lacks an argument", self.name),
        };
        if let (Shape::Histogram, [_, bounds]) = (self.shape, call.input_fields) {
            let bounds = bounds.data_type().clone();
            return Ok(vec![
                field(0, bounds),
                field(1, list_of(DataType::UInt64)),
                field(2, DataType::UInt64),
            ]);
        }
        if self.keeps_values(call.is_distinct) {
            return Ok(vec![field(0, list_of(argument(0)?)), field(1, list_of(DataType::UInt64))]);
        }
        Ok(match self.shape {
            Shape::Fold(fold) => (0..fold.fields).map(|number| field(number, DataType::Float64)).collect(),
            Shape::DecimalAverage => {
                let scale = if let DataType::Decimal128(_, scale) = argument(0)? { scale } else { 0 };
                vec![field(0, DataType::Decimal128(38, scale)), field(1, DataType::Int64)]
            }
            Shape::Bits(_) => vec![field(0, argument(0)?)],
            _ => vec![field(0, argument(0)?), field(1, argument(1)?), field(2, DataType::Boolean)],
        })
    }

    fn accumulator(&self, call: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if let Some(function) = self.of_numbers_in(call.expr_fields) {
            return function.accumulator(call);
        }
        let mut states = self.states(&call)?;
        states.grow(1);
        Ok(Box::new(Single(states)))
    }

    fn groups_accumulator_supported(&self, call: AccumulatorArgs) -> bool {
        self.of_numbers_in(call.expr_fields)
            .is_none_or(|function| function.groups_accumulator_supported(call))
    }

    fn create_sliding_accumulator(&self, call: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.of_numbers_in(call.expr_fields) {
            Some(function) => function.create_sliding_accumulator(call),
            None => self.accumulator(call),
        }
    }

    fn create_groups_accumulator(&self, call: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(function) = self.of_numbers_in(call.expr_fields) {
            return function.create_groups_accumulator(call);
        }
        Ok(Box::new(Grouped(self.states(&call)?)))
    }
}

/// The states of groups, numbered from 0.
trait States: Send + Sync + Debug {
    /// No groups, of the same function.
    fn empty(&self) -> Box<dyn States>;

    /// Has states for so many groups, at least.
    fn grow(&mut self, groups: usize);

    /// Takes rows in: a group for each, or none where it does not count.
    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()>;

    /// Takes states in that [`States::states`] gave.
    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()>;

    /// Takes the first groups, or all, away.
    fn split(&mut self, emit: EmitTo) -> Box<dyn States>;

    fn states(&self) -> Result<Vec<ArrayRef>>;

    fn results(&self) -> Result<ArrayRef>;

    /// Bytes that are allocated.
    fn size(&self) -> usize;
}

/// States of the groups of an aggregation.
#[derive(Debug)]
struct Grouped(Box<dyn States>);

/// The groups of rows, without those that a filter leaves out.
fn counted<'a>(
    groups: &'a [usize],
    filter: Option<&'a BooleanArray>,
) -> impl Iterator<Item = Option<usize>> + 'a {
    groups.iter().enumerate().map(move |(row, &group)| match filter {
        Some(filter) if filter.is_null(row) || !filter.value(row) => None,
        _ => Some(group),
    })
}

impl GroupsAccumulator for Grouped {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.grow(total_num_groups);
        self.0.update(values, &mut counted(group_indices, filter))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.split(emit_to).results()
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.split(emit_to).states()
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.grow(total_num_groups);
        self.0.merge(values, &mut counted(group_indices, None))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |values| values.len());
        let mut states = self.0.empty();
        states.grow(rows);
        let groups: Vec<usize> = (0..rows).collect();
        states.update(values, &mut counted(&groups, filter))?;
        states.states()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// The state of all rows, which stays as it is when it is looked at.
#[derive(Debug)]
struct Single(Box<dyn States>);

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, &mut std::iter::repeat(Some(0)))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.results()?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.states()?.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, &mut std::iter::repeat(Some(0)))
    }
}

/// A group's state; there is one as groups have been grown to.
fn state_of<T>(states: &mut [T], group: usize) -> Result<&mut T> {
    match states.get_mut(group) {
        Some(state) => Ok(state),
        None => exec_err!("group {group} has no state"),
    }
}
