//! Functions that compute with every element of a list: `list_transform`, `list_filter`, `list_reduce`.
//!
//! ```text
//!   list_transform(l, lambda x, i: …)          a list of the results; i is the number of the element, from 1
//!   list_filter(l, lambda x, i: …)             the elements for which it is true
//!   list_reduce(l, lambda a, x, i: …[, a0])    a0, or the first element, put together with every other one
//! ```
//!
//! A lambda is evaluated for all elements of a batch at once; that of `list_reduce` for the n-th elements of all lists that
//! have as many, which come first when the lists are ordered by length.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, UInt32Array, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat, filter, take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::cast::{as_boolean_array, as_list_array};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature, HigherOrderUDF,
    HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda, Volatility,
};

use crate::function::list_of;
use crate::types::sql_type;

/// All functions of this file.
pub(crate) fn functions() -> [Arc<HigherOrderUDF>; 3] {
    let function = |name, aliases: &[&'static str], kind| {
        let signature = HigherOrderSignature::variadic_any(Volatility::Immutable);
        let function = OverElements { name, kind, signature };
        Arc::new(HigherOrderUDF::new_from_impl(function).with_aliases(aliases.iter().copied()))
    };
    [
        function(
            "array_transform",
            &["list_transform", "list_apply", "array_apply", "apply"],
            Kind::Transform,
        ),
        function("array_filter", &["list_filter", "filter"], Kind::Filter),
        function("list_reduce", &["array_reduce", "reduce"], Kind::Reduce),
    ]
}

/// The type of a list's elements.
fn element(list: &DataType) -> DataType {
    crate::function::element(list).cloned().unwrap_or(DataType::Null)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Transform,
    Filter,
    Reduce,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OverElements {
    name: &'static str,
    kind: Kind,
    signature: HigherOrderSignature,
}

/// The arguments of a function: a list, a lambda, and what `list_reduce` begins with.
struct Parts<'a, V, L> {
    list: &'a V,
    lambda: &'a L,
    initial: Option<&'a V>,
}

impl OverElements {
    fn parts<'a, V, L>(&self, arguments: &'a [ValueOrLambda<V, L>]) -> Result<Parts<'a, V, L>> {
        use ValueOrLambda::{Lambda, Value};
        match arguments {
            [Value(list), Lambda(lambda)] => Ok(Parts { list, lambda, initial: None }),
            [Value(list), Lambda(lambda), Value(initial)] if self.kind == Kind::Reduce => {
                Ok(Parts { list, lambda, initial: Some(initial) })
            }
            _ => plan_err!("write {}", self.usage()),
        }
    }

    fn usage(&self) -> String {
        match self.kind {
            Kind::Transform | Kind::Filter => format!("{}(list, lambda x: …)", self.name),
            Kind::Reduce => {
                format!("{}(list, lambda a, x: …), or with an initial value behind it", self.name)
            }
        }
    }

    /// The type of what `list_reduce` puts together.
    fn reduced(&self, types: &[&DataType]) -> Result<DataType> {
        let types: Vec<DataType> = types.iter().map(|&data_type| data_type.clone()).collect();
        let Some(common) = type_union_resolution(&types) else {
            let names: Vec<String> = types.iter().map(sql_type).collect();
            return plan_err!("{}: there is no type for all of {}", self.name, names.join(", "));
        };
        Ok(common)
    }
}

impl HigherOrderUDFImpl for OverElements {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [list, initial @ ..] = given else { return plan_err!("write {}", self.usage()) };
        if crate::function::element(list).is_none() && !list.is_null() {
            return plan_err!("{}: a {} is no list", self.name, sql_type(list));
        }
        let mut types = vec![list_of(element(list))];
        types.extend_from_slice(initial);
        Ok(types)
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let Parts { list, lambda, initial } = self.parts(fields)?;
        let of_element = element(list.data_type());
        let parameter = |data_type: DataType| Arc::new(Field::new("", data_type, true));
        let number = parameter(DataType::Int64);
        let each = parameter(of_element.clone());
        if self.kind != Kind::Reduce {
            return Ok(LambdaParametersProgress::Complete(vec![vec![each, number]]));
        }
        let first = initial.map_or(&of_element, |initial| initial.data_type());
        let begun = self.reduced(&[&of_element, first])?;
        let parameters = |accumulated| vec![parameter(accumulated), each, number];
        match lambda {
            // What it gives decides on the type of what it is given the next time.
            None => Ok(LambdaParametersProgress::Partial(vec![Some(parameters(begun))])),
            Some(given) => {
                let accumulated = self.reduced(&[&begun, given.data_type()])?;
                Ok(LambdaParametersProgress::Complete(vec![parameters(accumulated)]))
            }
        }
    }

    fn return_field_from_args(&self, given: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let Parts { list, lambda, initial } = self.parts(given.arg_fields)?;
        let of_element = element(list.data_type());
        let data_type = match self.kind {
            Kind::Transform => list_of(lambda.data_type().clone()),
            Kind::Filter => list.data_type().clone(),
            Kind::Reduce => {
                let first = initial.map_or(&of_element, |initial| initial.data_type());
                self.reduced(&[&of_element, first, lambda.data_type()])?
            }
        };
        Ok(Arc::new(Field::new("", data_type, true)))
    }

    fn invoke_with_args(&self, given: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let Parts { list, lambda, initial } = self.parts(&given.args)?;
        let lists = list.to_array(given.number_rows)?;
        let lists = match lists.data_type() {
            DataType::List(_) => lists,
            other => cast(&lists, &list_of(element(other)))?,
        };
        let lists = without_hidden_elements(as_list_array(&lists)?)?;
        let result = match self.kind {
            Kind::Transform => transform(&lists, lambda, given.return_type())?,
            Kind::Filter => keep(&lists, lambda)?,
            Kind::Reduce => {
                let initial = initial.map(|initial| initial.to_array(given.number_rows)).transpose()?;
                reduce(&lists, lambda, initial, given.return_type())?
            }
        };
        Ok(ColumnarValue::Array(result))
    }
}

/// Lists whose elements are those of the lists alone, one list after the other: none of a null, nor before the first one.
fn without_hidden_elements(lists: &ListArray) -> Result<ListArray> {
    let is_exact = lists.value_offsets().first() == Some(&0)
        && lists.value_offsets().last().is_some_and(|&end| end as usize == lists.values().len())
        && (0..lists.len()).all(|row| lists.is_valid(row) || lists.value_length(row) == 0);
    if is_exact {
        return Ok(lists.clone());
    }
    let rows = Int64Array::from_iter_values(0..lists.len() as i64);
    let taken = take(lists, &rows, None)?;
    let taken = as_list_array(&taken)?;
    let length = |row| if lists.is_valid(row) { taken.value_length(row) as usize } else { 0 };
    let offsets = OffsetBuffer::<i32>::from_lengths((0..taken.len()).map(length));
    let begins = taken.value_offsets().iter().map(|&begin| begin as u32);
    let elements = begins.zip(0..taken.len()).flat_map(|(begin, row)| begin..begin + length(row) as u32);
    let values = take(taken.values(), &UInt32Array::from_iter_values(elements), None)?;
    let DataType::List(field) = lists.data_type() else {
        return internal_err!("a list array has the type of one");
    };
    Ok(ListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?)
}

/// What a lambda gives for every element.
fn of_elements(lists: &ListArray, lambda: &LambdaArgument) -> Result<ArrayRef> {
    let values = lists.values();
    let numbers = || {
        let numbers = (0..lists.len()).flat_map(|row| 1..=i64::from(lists.value_length(row)));
        Ok(Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef)
    };
    let rows = || {
        let rows = (0..lists.len())
            .flat_map(|row| std::iter::repeat_n(row as u32, lists.value_length(row) as usize));
        UInt32Array::from_iter_values(rows)
    };
    let elements = || Ok(Arc::clone(values));
    lambda
        .evaluate(&[&elements, &numbers], |captured| Ok(take_arrays(captured, &rows(), None)?))?
        .into_array(values.len())
}

fn transform(lists: &ListArray, lambda: &LambdaArgument, data_type: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = data_type else { return internal_err!("lists are transformed to lists") };
    let values = cast(&of_elements(lists, lambda)?, field.data_type())?;
    let transformed =
        ListArray::try_new(Arc::clone(field), lists.offsets().clone(), values, lists.nulls().cloned())?;
    Ok(Arc::new(transformed))
}

fn keep(lists: &ListArray, lambda: &LambdaArgument) -> Result<ArrayRef> {
    let kept = cast(&of_elements(lists, lambda)?, &DataType::Boolean)?;
    let kept = as_boolean_array(&kept)?;
    let is_kept = |&element: &usize| kept.is_valid(element) && kept.value(element);
    let mut end = 0;
    let lengths = (0..lists.len()).map(|row| {
        let begin = end;
        end += lists.value_length(row) as usize;
        (begin..end).filter(is_kept).count()
    });
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let values = filter(lists.values(), kept)?;
    let DataType::List(field) = lists.data_type() else {
        return internal_err!("a list array has the type of one");
    };
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?))
}

fn reduce(
    lists: &ListArray,
    lambda: &LambdaArgument,
    initial: Option<ArrayRef>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let length = |row: u32| lists.value_length(row as usize) as usize;
    let mut order: Vec<u32> = (0..lists.len() as u32).filter(|&row| lists.is_valid(row as usize)).collect();
    order.sort_by_key(|&row| std::cmp::Reverse(length(row)));
    if initial.is_none() && order.last().is_some_and(|&row| length(row) == 0) {
        return exec_err!(
            "list_reduce: an empty list has no first element; give an initial value behind the lambda"
        );
    }
    // The n-th elements of the first lists in the order.
    let begin = |&row: &u32| lists.value_offsets().get(row as usize).map(|&begin| begin as u32);
    let begins: Vec<u32> = order.iter().filter_map(begin).collect();
    assert_eq!(begins.len(), order.len(), "every list has a beginning");
    let elements = |n: usize, rows: usize| {
        let places = begins.iter().take(rows).map(|begin| begin + n as u32);
        take(lists.values(), &UInt32Array::from_iter_values(places), None)
    };
    let rows = UInt32Array::from(order.clone());
    let (mut accumulated, mut n) = match initial {
        Some(initial) => (take(&initial, &rows, None)?, 0),
        None => (elements(0, order.len())?, 1),
    };
    accumulated = cast(&accumulated, data_type)?;
    let mut done = Vec::new();
    loop {
        let going_on = order.partition_point(|&row| length(row) > n);
        done.push(accumulated.slice(going_on, accumulated.len() - going_on));
        if going_on == 0 {
            break;
        }
        let before = accumulated.slice(0, going_on);
        let given = elements(n, going_on)?;
        let number: ArrayRef = Arc::new(Int64Array::from_value(n as i64 + 1, going_on));
        let rows = rows.slice(0, going_on);
        let result = lambda.evaluate(
            &[&|| Ok(Arc::clone(&before)), &|| Ok(Arc::clone(&given)), &|| Ok(Arc::clone(&number))],
            |captured| Ok(take_arrays(captured, &rows, None)?),
        )?;
        accumulated = cast(&result.into_array(going_on)?, data_type)?;
        n += 1;
    }
    // The shortest lists were done first. Behind all of them stands the result of a null.
    done.reverse();
    done.push(new_null_array(data_type, 1));
    let done = concat(&done.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
    let mut places = vec![order.len() as u32; lists.len()];
    for (place, &row) in order.iter().enumerate() {
        let Some(of_row) = places.get_mut(row as usize) else {
            unreachable!("the rows are those of the lists")
        };
        *of_row = place as u32;
    }
    Ok(take(&done, &UInt32Array::from(places), None)?)
}
