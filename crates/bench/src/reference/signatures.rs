//! What a function takes and gives: it is asked, with arguments of many types.
//!
//! A function has one form for each number of arguments. Of each argument the form has the types that the function
//! computes with: a number that becomes a text on its way does not count.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion::logical_expr::function::WindowUDFFieldArgs;
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::{AggregateUDF, ReturnFieldArgs, ScalarUDF, WindowUDF};
use nandina_functions::sql_type;

/// A function as it is asked: the fields of its arguments to the types of those that it computes with, and its own.
type Ask<'a> = &'a dyn Fn(&[FieldRef]) -> Option<Call>;

#[derive(Debug, Clone, PartialEq)]
struct Call {
    arguments: Vec<DataType>,
    returned: DataType,
}

/// Arguments beyond these are tried with what fits the ones before, or with all arguments of one type.
const MOST_TRIED_TOGETHER: usize = 3;
/// A function that takes so many takes any number.
const ANY_NUMBER: usize = 7;
/// Of the calls that fit, those that are varied, and made longer.
const CALLS_VARIED: usize = 40;

/// The forms of a function, as `name(BIGINT[, VARCHAR]) → DOUBLE`; none where it wants more than types.
pub(super) fn of_scalar(name: &str, function: &ScalarUDF) -> Vec<String> {
    forms(name, &|fields| {
        let fields = coerced(fields, function)?;
        let scalar_arguments = vec![None; fields.len()];
        let asked = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalar_arguments };
        Some(call(&fields, &function.return_field_from_args(asked).ok()?))
    })
}

pub(super) fn of_aggregate(name: &str, function: &AggregateUDF) -> Vec<String> {
    forms(name, &|fields| {
        let fields = coerced(fields, function)?;
        Some(call(&fields, &function.return_field(&fields).ok()?))
    })
}

pub(super) fn of_window(name: &str, function: &WindowUDF) -> Vec<String> {
    forms(name, &|fields| {
        let fields = coerced(fields, function)?;
        Some(call(&fields, &function.field(WindowUDFFieldArgs::new(&fields, name)).ok()?))
    })
}

fn coerced<F: UDFCoercionExt>(fields: &[FieldRef], function: &F) -> Option<Vec<FieldRef>> {
    fields_with_udf(fields, function).ok()
}

fn call(arguments: &[FieldRef], returned: &FieldRef) -> Call {
    let arguments = arguments.iter().map(|field| field.data_type().clone()).collect();
    Call { arguments, returned: returned.data_type().clone() }
}

/// The types of arguments that are tried.
fn tried() -> Vec<DataType> {
    let list = |of| DataType::new_list(of, true);
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8View, false),
        Field::new("value", DataType::Int64, true),
    ]);
    vec![
        DataType::Int64,
        DataType::Float64,
        DataType::Utf8View,
        DataType::Boolean,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Interval(IntervalUnit::MonthDayNano),
        list(DataType::Int64),
        DataType::Decimal128(18, 3),
        DataType::Binary,
        DataType::Date32,
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        list(DataType::Utf8View),
        DataType::Struct(Fields::from(vec![Field::new("a", DataType::Int64, true)])),
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false),
    ]
}

/// As many of the tried types are tried in every combination of three.
const FEW: usize = 7;

/// A call that fits, and the types that it was made with.
struct Fit {
    given: Vec<DataType>,
    call: Call,
}

fn forms(name: &str, ask: Ask<'_>) -> Vec<String> {
    let tried = tried();
    let fit = |given: Vec<DataType>| {
        let fields: Vec<FieldRef> =
            given.iter().map(|given| Arc::new(Field::new("x", given.clone(), true))).collect();
        // Functions take for granted that the planner has counted their arguments.
        let call = catch_unwind(AssertUnwindSafe(|| ask(&fields))).ok().flatten()?;
        Some(Fit { given, call })
    };
    let mut forms = Vec::new();
    let mut longest = Vec::new();
    for count in 0..=ANY_NUMBER {
        let fits: Vec<_> = match count {
            0..MOST_TRIED_TOGETHER => combinations(&tried, count).into_iter().filter_map(fit).collect(),
            MOST_TRIED_TOGETHER => {
                let few = tried.get(..FEW).unwrap_or(&tried);
                let fits: Vec<_> = combinations(few, count).into_iter().filter_map(fit).collect();
                let varied = varied(&fits, &tried);
                fits.into_iter().chain(varied.into_iter().filter_map(fit)).collect()
            }
            _ => {
                let alike = tried.iter().map(|of| vec![of.clone(); count]);
                longer(&longest, &tried).into_iter().chain(alike).filter_map(fit).collect()
            }
        };
        if !fits.is_empty() {
            forms.push(Form::of(&fits));
        }
        longest = fits;
    }
    texts(name, forms)
}

fn combinations(types: &[DataType], count: usize) -> Vec<Vec<DataType>> {
    (0..count).fold(vec![Vec::new()], |before, _| {
        let longer = |call: &Vec<DataType>| {
            let call = call.clone();
            types.iter().map(move |last| call.iter().chain([last]).cloned().collect())
        };
        before.iter().flat_map(longer).collect()
    })
}

/// Calls with another type at one place.
fn varied(fits: &[Fit], types: &[DataType]) -> Vec<Vec<DataType>> {
    let mut calls = Vec::new();
    for fit in fits.iter().take(CALLS_VARIED) {
        for place in 0..fit.given.len() {
            for other in types {
                let mut given = fit.given.clone();
                if let Some(given) = given.get_mut(place) {
                    other.clone_into(given);
                }
                calls.push(given);
            }
        }
    }
    calls
}

/// Calls with one argument more.
fn longer(fits: &[Fit], types: &[DataType]) -> Vec<Vec<DataType>> {
    let with = |fit: &Fit| {
        let given = fit.given.clone();
        types.iter().map(move |last| given.iter().chain([last]).cloned().collect())
    };
    fits.iter().take(CALLS_VARIED).flat_map(with).collect()
}

#[derive(Debug, PartialEq)]
struct Form {
    arguments: Vec<String>,
    returned: String,
}

impl Form {
    fn of(fits: &[Fit]) -> Self {
        let count = fits.first().map_or(0, |fit| fit.call.arguments.len());
        let at = |place: usize| {
            let types = fits.iter().filter_map(|fit| fit.call.arguments.get(place));
            one_of(types.map(named).collect())
        };
        let mut arguments: Vec<_> = (0..count).map(at).collect();
        // Lists of two types have been tried; their elements are of any.
        if arguments.iter().any(|argument| argument == "ANY[]") {
            let is_element = |argument: &&mut String| *argument == "NUMBER/VARCHAR";
            arguments.iter_mut().filter(is_element).for_each(|argument| "ANY".clone_into(argument));
        }
        Form { arguments, returned: returned(fits, count) }
    }
}

/// What is returned, in terms of the arguments where it goes with them.
fn returned(fits: &[Fit], count: usize) -> String {
    let types: BTreeSet<_> = fits.iter().map(|fit| named(&fit.call.returned)).collect();
    if types.len() == 1 {
        return types.into_iter().collect();
    }
    let always = |is: &dyn Fn(&Call) -> bool| fits.iter().all(|fit| is(&fit.call));
    for place in 0..count {
        let which = if count == 1 { String::new() } else { format!(" {}", place + 1) };
        if always(&|call| call.arguments.get(place) == Some(&call.returned)) {
            return format!("the type of argument{which}");
        }
        if always(&|call| call.arguments.get(place).and_then(element) == Some(&call.returned)) {
            return format!("an element of argument{which}");
        }
        if always(&|call| element(&call.returned).is_some_and(|of| call.arguments.get(place) == Some(of))) {
            return format!("a list of argument{which}");
        }
    }
    one_of(types)
}

fn element(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(field) | DataType::FixedSizeList(field, _) => Some(field.data_type()),
        _ => None,
    }
}

/// The name of a type, without what only one call has of it.
fn named(data_type: &DataType) -> String {
    let name = sql_type(data_type);
    match data_type {
        DataType::Decimal128(..) | DataType::Decimal256(..) => "DECIMAL".to_owned(),
        DataType::Struct(_) => "STRUCT".to_owned(),
        DataType::Map(..) => "MAP".to_owned(),
        DataType::Null => "NULL".to_owned(),
        // Lists of lists and structs are lists.
        DataType::List(field) if field.data_type().is_nested() => "ANY[]".to_owned(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".to_owned(),
        _ => name,
    }
}

fn one_of(mut types: BTreeSet<String>) -> String {
    // Those that are tried with everything stand for all: some that cannot be compared, or put in order, are left out.
    let has_all_of_few = || tried().iter().take(FEW).all(|few| types.contains(&named(few)));
    if has_all_of_few() {
        return "ANY".to_owned();
    }
    if types.contains("BIGINT[]") && types.contains("VARCHAR[]") {
        types.retain(|name| !name.ends_with("[]"));
        types.insert("ANY[]".to_owned());
    }
    let numbers = ["BIGINT", "DECIMAL", "DOUBLE"];
    if numbers.iter().all(|number| types.contains(*number)) {
        types.retain(|name| !numbers.contains(&name.as_str()));
        types.insert("NUMBER".to_owned());
    }
    types.into_iter().collect::<Vec<_>>().join("/")
}

/// Forms as they are written, those together that differ in arguments which may be left out.
fn texts(name: &str, mut forms: Vec<Form>) -> Vec<String> {
    let takes_any_number = forms.last().is_some_and(|form| form.arguments.len() == ANY_NUMBER);
    if takes_any_number {
        forms.retain(|form| form.arguments.len() <= MOST_TRIED_TOGETHER);
    }
    // Some accept having no arguments, and then have no type.
    forms.retain(|form| form.returned != "NULL");
    let mut written: Vec<(Form, String)> = Vec::new();
    for form in forms {
        if let Some((before, text)) = written.last_mut()
            && before.returned == form.returned
            && form.arguments.len() == before.arguments.len() + 1
            && form.arguments.starts_with(&before.arguments)
            && let Some(last) = form.arguments.get(before.arguments.len())
        {
            let comma = if before.arguments.is_empty() { "" } else { ", " };
            *text += &format!("[{comma}{last}]");
            *before = form;
            continue;
        }
        let text = form.arguments.join(", ");
        written.push((form, text));
    }
    let last = written.len().saturating_sub(1);
    let written = written.into_iter().enumerate();
    let one = |(at, (form, text)): (usize, (Form, String))| {
        let more = if takes_any_number && at == last { ", …" } else { "" };
        format!("{name}({text}{more}) → {}", form.returned)
    };
    written.map(one).collect()
}
