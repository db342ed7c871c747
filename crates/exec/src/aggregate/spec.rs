//! Everything about an aggregation that is known before its first row.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, PhysicalGroupBy, aggregate_expressions, evaluate_group_by,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::GroupsAccumulatorAdapter;
use nandina_pages::PageSchema;

use super::bytes_min_max::BytesMinMax;
use super::key_sharing::KeySharing;
use crate::batch::compact_column;
use crate::error::pages_error;
use crate::keys::{KeyHasher, KeyLayout, KeyedRows, hashes_of};

/// The aggregation as the operator's parts see it.
///
/// Groups travel through the operator in *stored* form: the hash of the key, the key columns, which keys of different
/// grouping sets may share, then the state columns of every aggregate function. That is the form of the pages in memory
/// and on the device.
#[derive(Debug)]
pub struct AggregateSpec {
    group_by: PhysicalGroupBy,
    functions: Vec<AggregateFunction>,
    sharing: KeySharing,
    keys: KeyLayout,
    key_fields: Vec<FieldRef>,
    hasher: KeyHasher,
    /// The layout of stored groups.
    pub pages: Arc<PageSchema>,
    input: SchemaRef,
    pub schema: SchemaRef,
    /// Most rows in an output batch.
    pub batch_rows: usize,
    /// Whether all states have a fixed width, or are our own. Accumulators of others may do work for every group with every batch, which
    /// tables of many groups do not bear.
    pub grows_well: bool,
    /// Whether rows can become states without an accumulator. DataFusion's conversions rely on a single argument in
    /// functions that take more (`percentile_cont`), and know no order.
    pub converts_rows: bool,
    /// So many groups, whichever, are enough.
    pub limit: Option<usize>,
}

/// One aggregate function with its arguments.
#[derive(Debug)]
struct AggregateFunction {
    expression: Arc<AggregateFunctionExpr>,
    arguments: Vec<PhysicalExprRef>,
    filter: Option<PhysicalExprRef>,
    /// Its columns among the states.
    states: Range<usize>,
}

impl AggregateSpec {
    /// The aggregation that `planned`, a single-stage node, describes. Fails if a key or a state has a type that
    /// pages cannot hold.
    pub fn try_new(planned: &AggregateExec, schema: SchemaRef, batch_rows: usize) -> Result<Self> {
        let input = planned.input().schema();
        let group_by = planned.group_expr().clone();
        let group_schema = group_by.group_schema(&input)?;
        let key_types: Vec<&DataType> = group_schema.fields().iter().map(|field| field.data_type()).collect();
        let sharing = KeySharing::new(&key_types, group_by.groups());
        let keys = KeyLayout::try_new(sharing.columns().filter_map(|key| key_types.get(key).copied()))?;
        let key_fields: Vec<FieldRef> = keys.fields().collect();
        let mut fields = vec![Arc::new(Field::new("hash", DataType::UInt64, false))];
        fields.extend(key_fields.iter().cloned());
        let mut functions = Vec::new();
        let arguments = aggregate_expressions(planned.aggr_expr(), &AggregateMode::Single, 0)?;
        let (mut next_state, mut grows_well, mut converts_rows) = (0, true, true);
        let filters = planned.filter_expr().iter().cloned();
        for ((expression, arguments), filter) in planned.aggr_expr().iter().zip(arguments).zip(filters) {
            let states = expression.state_fields()?;
            let of_function = next_state..next_state + states.len();
            next_state = of_function.end;
            let mut has_fixed_states = true;
            for (state, number) in states.iter().zip(of_function.clone()) {
                let field = Field::new(format!("state {number}"), state.data_type().clone(), true);
                has_fixed_states &=
                    state.data_type().is_primitive() || state.data_type() == &DataType::Boolean;
                fields.push(Arc::new(field));
            }
            let is_vectorised = is_vectorised(expression) && has_fixed_states;
            grows_well &= is_vectorised || BytesMinMax::of(expression).is_some();
            converts_rows &= arguments.len() < 2;
            let expression = Arc::clone(expression);
            functions.push(AggregateFunction { expression, arguments, filter, states: of_function });
        }
        let pages = PageSchema::try_new(Arc::new(Schema::new(fields))).map_err(pages_error)?;
        let limit = planned.limit_options().filter(|options| options.descending().is_none());
        Ok(Self {
            group_by,
            functions,
            sharing,
            keys,
            key_fields,
            hasher: KeyHasher::new(0),
            pages,
            input,
            schema,
            batch_rows,
            grows_well,
            converts_rows,
            limit: limit.map(|options| options.limit()),
        })
    }

    /// How many keys every row has.
    pub fn grouping_sets(&self) -> usize {
        self.group_by.groups().len()
    }

    /// The stored types of the key columns.
    pub fn key_types(&self) -> impl Iterator<Item = &DataType> {
        self.key_fields.iter().map(|field| field.data_type())
    }

    /// The keys of groups as the output has them.
    pub fn restore_keys(&self, stored: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        // Parted first: the stored form is flat, so that nothing of another key's values is left within a null.
        let separated = self.sharing.separated(stored)?;
        let restored = separated.iter().enumerate();
        restored.map(|(key, values)| self.keys.restore(self.sharing.column(key), values)).collect()
    }

    /// Accumulators of all functions, without groups.
    pub fn accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        self.functions.iter().map(AggregateFunction::accumulator).collect()
    }

    /// The columns of each function among the states.
    pub fn state_columns(&self) -> impl Iterator<Item = Range<usize>> {
        self.functions.iter().map(|function| function.states.clone())
    }

    /// Evaluates keys, arguments and filters of an input batch.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<InputRows> {
        let sets = evaluate_group_by(&self.group_by, batch)?;
        let sets = sets.iter().enumerate();
        let sets = sets.map(|(set, keys)| self.keyed(set, keys)).collect::<Result<_>>()?;
        let rows = batch.num_rows();
        let evaluate = |expression: &PhysicalExprRef| expression.evaluate(batch)?.into_array(rows);
        let arguments = |function: &AggregateFunction| -> Result<Arguments> {
            let mut values = function.arguments.iter().map(evaluate).collect::<Result<Vec<_>>>()?;
            if function.keeps_arguments() {
                values = values.iter().map(compact_column).collect::<Result<_>>()?;
            }
            Ok(Arguments { values, filter: function.filter.as_ref().map(evaluate).transpose()? })
        };
        let arguments = self.functions.iter().map(arguments).collect::<Result<_>>()?;
        Ok(InputRows { rows, sets, arguments })
    }

    /// The input of an aggregation of no rows: a row for every grouping set without keys, of which no function gets to
    /// see anything. `None` if there is no such set.
    pub fn empty_sets(&self) -> Result<Option<InputRows>> {
        if !self.group_by.has_grouping_set() {
            return Ok(None);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        let groups = self.group_by.groups().iter();
        let keyless: Vec<bool> = groups.map(|nulls| nulls.iter().all(|&is_null| is_null)).collect();
        let mut sets = Vec::new();
        let all_keys = self.grouping_keys(&row)?;
        for (set, keys) in all_keys.iter().enumerate().filter(|(set, _)| keyless.get(*set) == Some(&true)) {
            sets.push(self.keyed(set, keys)?);
        }
        let nothing: ArrayRef = Arc::new(BooleanArray::from(vec![false]));
        let arguments = |function: &AggregateFunction| -> Result<Arguments> {
            let null = |argument: &PhysicalExprRef| Ok(new_null_array(&argument.data_type(&self.input)?, 1));
            let values = function.arguments.iter().map(null).collect::<Result<_>>()?;
            Ok(Arguments { values, filter: Some(Arc::clone(&nothing)) })
        };
        let arguments = self.functions.iter().map(arguments).collect::<Result<_>>()?;
        Ok((!sets.is_empty()).then_some(InputRows { rows: 1, sets, arguments }))
    }

    /// The keys of a row of nulls in every grouping set, without evaluating expressions that may not take nulls.
    fn grouping_keys(&self, row: &RecordBatch) -> Result<Vec<Vec<ArrayRef>>> {
        let nulls = self.group_by.null_expr().to_vec();
        let all_null = PhysicalGroupBy::new(
            nulls.clone(),
            nulls,
            self.group_by.groups().to_vec(),
            self.group_by.has_grouping_set(),
        );
        evaluate_group_by(&all_null, row)
    }

    /// The keys of a set in stored form, with their hashes.
    fn keyed(&self, set: usize, keys: &[ArrayRef]) -> Result<KeyedRows> {
        let keys = self.keys.store(&self.sharing.shared(set, keys))?;
        let rows = keys.first().map_or(0, |key| key.len());
        KeyedRows::hash(keys, rows, &self.hasher)
    }

    /// Groups in stored form.
    pub fn stored(&self, keyed: &KeyedRows, states: Vec<ArrayRef>) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::new(keyed.hashes.clone(), None))];
        columns.extend(keyed.keys.iter().cloned());
        columns.extend(states);
        Ok(RecordBatch::try_new(Arc::clone(self.pages.arrow()), columns)?)
    }

    /// Hashes, keys and states of groups in stored form.
    pub fn parts(&self, stored: &RecordBatch) -> Result<(KeyedRows, Vec<ArrayRef>)> {
        let (keys, states) = match stored.columns() {
            [_, rest @ ..] => rest.split_at_checked(self.key_fields.len()),
            [] => None,
        }
        .ok_or_else(|| DataFusionError::Internal("stored groups lack columns".to_owned()))?;
        let keyed = KeyedRows { hashes: hashes_of(stored).clone(), keys: keys.to_vec() };
        Ok((keyed, states.to_vec()))
    }
}

/// Whether a function has an accumulator of many groups. That of `bit_xor` takes values as often as they come, also where
/// only different ones are wanted.
fn is_vectorised(expression: &AggregateFunctionExpr) -> bool {
    let forgets_distinct = expression.is_distinct() && expression.fun().name() == "bit_xor";
    expression.groups_accumulator_supported() && !forgets_distinct
}

impl AggregateFunction {
    /// Whether its accumulator keeps the arrays that it is given. Those of a scan point into the pages that were read, and
    /// would keep all columns of these.
    fn keeps_arguments(&self) -> bool {
        self.expression.fun().name() == "array_agg"
    }

    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(own) = BytesMinMax::of(&self.expression) {
            return Ok(Box::new(own));
        }
        if is_vectorised(&self.expression) {
            return self.expression.create_groups_accumulator();
        }
        let expression = Arc::clone(&self.expression);
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || expression.create_accumulator())))
    }
}

/// An input batch, evaluated.
pub struct InputRows {
    pub rows: usize,
    /// The keys, once for every grouping set.
    pub sets: Vec<KeyedRows>,
    /// Per function.
    pub arguments: Vec<Arguments>,
}

/// What one function gets of a batch.
pub struct Arguments {
    pub values: Vec<ArrayRef>,
    pub filter: Option<ArrayRef>,
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, Int64Array};
    use datafusion::functions_aggregate::array_agg::array_agg_udaf;
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_plan::ExecutionPlan as _;
    use datafusion::physical_plan::aggregates::AggregateMode;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::expressions::col;

    use super::*;

    #[test]
    fn lists_do_not_keep_what_their_values_were_cut_from() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let batch = RecordBatch::try_from_iter([("k", Arc::clone(&numbers)), ("v", numbers)]).unwrap();
        let schema = batch.schema();
        let functions = [array_agg_udaf(), sum_udaf()].map(|function| {
            let builder = AggregateExprBuilder::new(function, vec![col("v", &schema).unwrap()]);
            Arc::new(builder.schema(Arc::clone(&schema)).alias("a").build().unwrap())
        });
        let planned = AggregateExec::try_new(
            AggregateMode::Single,
            PhysicalGroupBy::new_single(vec![(col("k", &schema).unwrap(), "k".to_owned())]),
            functions.to_vec(),
            vec![None, None],
            Arc::new(EmptyExec::new(Arc::clone(&schema))),
            Arc::clone(&schema),
        )
        .unwrap();
        let spec = AggregateSpec::try_new(&planned, planned.schema(), 1000).unwrap();
        let rows = spec.evaluate(&batch.slice(500, 10)).unwrap();
        let held = |at: usize| rows.arguments[at].values[0].get_buffer_memory_size();
        assert_eq!(rows.arguments[0].values[0].as_ref(), batch.column(1).slice(500, 10).as_ref());
        assert!(held(0) < 1000, "{}", held(0));
        assert!(held(1) > 100_000, "sums keep nothing, and need no copy");
    }
}
