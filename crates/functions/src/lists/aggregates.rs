//! Aggregate functions over the elements of each list: `list_aggregate(l, 'sum')`, `list_median(l)`.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, new_empty_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::cast::as_list_array;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{Column, Literal};

use super::ranges;
use crate::function::{Kind, element, invoke};
use crate::types::sql_type;

/// The functions that have a name of their own with `list_` before it.
pub(crate) const NAMED: [&str; 26] = [
    "any_value",
    "approx_count_distinct",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "count",
    "entropy",
    "histogram",
    "kurtosis",
    "kurtosis_pop",
    "mad",
    "max",
    "median",
    "min",
    "mode",
    "product",
    "sem",
    "skewness",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
];

/// Aggregate functions by name.
pub(crate) type Functions = Arc<HashMap<String, Arc<AggregateUDF>>>;

#[derive(Debug)]
pub(crate) struct ListAggregate {
    name: String,
    aliases: Vec<String>,
    /// The function, or none where the second argument names it.
    function: Option<Arc<AggregateUDF>>,
    functions: Functions,
    signature: Signature,
}

impl PartialEq for ListAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ListAggregate {}

impl Hash for ListAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ListAggregate {
    /// `list_aggregate`, whose second argument names the function.
    pub(crate) fn any(functions: Functions) -> Self {
        let aliases = ["list_aggr", "array_aggregate", "array_aggr", "aggregate"].map(str::to_owned).to_vec();
        let signature = Signature::user_defined(Volatility::Immutable);
        ListAggregate { name: "list_aggregate".to_owned(), aliases, function: None, functions, signature }
    }

    /// `list_median` and the like.
    pub(crate) fn named(name: &str, function: Arc<AggregateUDF>) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = vec![format!("array_{name}")];
        ListAggregate {
            name: format!("list_{name}"),
            aliases,
            function: Some(function),
            functions: Functions::default(),
            signature,
        }
    }

    /// How many arguments come before those of the aggregate function.
    fn leading(&self) -> usize {
        if self.function.is_some() { 1 } else { 2 }
    }

    fn function(&self, name: Option<&ScalarValue>) -> Result<&Arc<AggregateUDF>> {
        if let Some(function) = &self.function {
            return Ok(function);
        }
        let Some(Some(name)) = name.and_then(ScalarValue::try_as_str) else {
            return plan_err!("{}: the name of the aggregate function must be a constant", self.name);
        };
        match self.functions.get(&name.to_lowercase()) {
            Some(function) => Ok(function),
            None => plan_err!("{}: there is no aggregate function '{name}'", self.name),
        }
    }
}

/// The arguments of the aggregate function, as it wants them: an element, and what else it was given.
fn fields(function: &AggregateUDF, list: &DataType, rest: &[FieldRef]) -> Result<Vec<FieldRef>> {
    let Some(element) = element(list) else {
        return plan_err!("{} is no list", sql_type(list));
    };
    let element = Arc::new(Field::new("element", element.clone(), true));
    fields_with_udf(&std::iter::once(element).chain(rest.iter().cloned()).collect::<Vec<_>>(), function)
}

impl ScalarUDFImpl for ListAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        // The name stays as it is: a cast would hide that it is a constant.
        let kinds = std::iter::once(Kind::List).chain(std::iter::repeat(Kind::Any));
        let types: Option<Vec<_>> = given.iter().zip(kinds).map(|(given, kind)| kind.accept(given)).collect();
        match types.filter(|_| given.len() >= self.leading()) {
            Some(types) => Ok(types),
            None => {
                let name = if self.function.is_some() { "" } else { ", name of an aggregate function" };
                plan_err!("{} does not exist for these arguments; write {0}(list{name})", self.name)
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its arguments", self.name)
    }

    fn return_field_from_args(&self, call: ReturnFieldArgs) -> Result<FieldRef> {
        let function = self.function(call.scalar_arguments.get(1).copied().flatten())?;
        let Some(list) = call.arg_fields.first() else { return plan_err!("{} takes a list", self.name) };
        let rest = call.arg_fields.get(self.leading()..).unwrap_or_default();
        let returned = function.return_field(&fields(function, list.data_type(), rest)?)?;
        Ok(Arc::new(Field::new(&self.name, returned.data_type().clone(), true)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match call.args.get(1) {
            Some(ColumnarValue::Scalar(name)) => Some(name),
            _ => None,
        };
        let function = Arc::clone(self.function(name)?);
        let Some(list) = call.arg_fields.first() else { return plan_err!("{} takes a list", self.name) };
        let rest = call.arg_fields.get(self.leading()..).unwrap_or_default();
        let fields = fields(&function, list.data_type(), rest)?;
        let mut columns: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("element", 0))];
        let mut constants = Vec::new();
        for (value, field) in call.args.iter().skip(self.leading()).zip(fields.iter().skip(1)) {
            let ColumnarValue::Scalar(value) = value else {
                return plan_err!("{}: further arguments must be constants", self.name);
            };
            let value = value.cast_to(field.data_type())?;
            columns.push(Arc::new(Literal::new(value.clone())));
            constants.push(value);
        }
        let schema = Schema::new(fields.first().cloned().into_iter().collect::<Vec<_>>());
        let aggregate = AggregateExprBuilder::new(function, columns)
            .schema(Arc::new(schema))
            .alias(self.name.clone())
            .build()?;
        let element = fields.first().map_or(DataType::Null, |field| field.data_type().clone());
        invoke(&call, |given, returned| {
            let Some(lists) = given.first() else { return plan_err!("{} takes a list", self.name) };
            let lists = as_list_array(lists)?;
            let elements = cast(lists.values(), &element)?;
            let results = ranges(lists).map(|range| {
                let Some(range) = range else { return ScalarValue::try_from(returned) };
                let mut accumulator = aggregate.create_accumulator()?;
                let mut values: Vec<ArrayRef> = vec![elements.slice(range.start, range.len())];
                for constant in &constants {
                    values.push(constant.to_array_of_size(range.len())?);
                }
                accumulator.update_batch(&values)?;
                accumulator.evaluate()
            });
            let results = results.collect::<Result<Vec<_>>>()?;
            match results.is_empty() {
                true => Ok(new_empty_array(returned)),
                false => ScalarValue::iter_to_array(results),
            }
        })
    }
}
