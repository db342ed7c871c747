//! Regular expressions: what matches, the parts that do, and the parts between.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, ListBuilder, StringViewArray, StringViewBuilder,
    StructArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::cast::{as_int64_array, as_string_view_array};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use regex::{Regex, RegexBuilder};

use crate::function::Kind::{Integer, Text};
use crate::function::{Kernel, Kind, arguments, invoke, list_of};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["regexp_matches"], &[&[Text, Text], &[Text, Text, Text]], boolean, |given, _| {
        matches(given, false)
    }),
    Kernel::new(&["regexp_full_match"], &[&[Text, Text], &[Text, Text, Text]], boolean, |given, _| {
        matches(given, true)
    }),
    Kernel::new(
        &["regexp_extract_all"],
        &[&[Text, Text], &[Text, Text, Integer], &[Text, Text, Integer, Text]],
        texts,
        extract_all,
    ),
    Kernel::new(
        &["string_split_regex", "str_split_regex", "regexp_split_to_array"],
        &[&[Text, Text], &[Text, Text, Text]],
        texts,
        split,
    ),
    Kernel::new(
        &["regexp_escape"],
        &[&[Text]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [texts] = arguments(given)?;
            let escaped = as_string_view_array(texts)?.iter().map(|text| text.map(escape));
            Ok(Arc::new(escaped.collect::<StringViewArray>()))
        },
    ),
];

fn boolean(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

fn texts(_: &[DataType]) -> Result<DataType> {
    Ok(list_of(DataType::Utf8View))
}

/// Patterns that have been compiled, by text and options.
#[derive(Default)]
struct Patterns<'a>(HashMap<(&'a str, Option<&'a str>, bool), Regex>);

impl<'a> Patterns<'a> {
    fn get(&mut self, pattern: &'a str, options: Option<&'a str>, whole: bool) -> Result<&Regex> {
        Ok(match self.0.entry((pattern, options, whole)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(entry) => entry.insert(compile(pattern, options.unwrap_or_default(), whole)?),
        })
    }
}

fn compile(pattern: &str, options: &str, whole: bool) -> Result<Regex> {
    let is_literal = options.contains('l');
    let source = if is_literal { regex::escape(pattern) } else { pattern.to_owned() };
    let mut builder = match whole {
        true => RegexBuilder::new(&format!(r"\A(?:{source})\z")),
        false => RegexBuilder::new(&source),
    };
    for option in options.chars() {
        match option {
            'i' => builder.case_insensitive(true),
            'c' => builder.case_insensitive(false),
            's' => builder.dot_matches_new_line(true),
            'm' | 'n' | 'p' => builder.multi_line(true).dot_matches_new_line(false),
            'l' | 'g' => &mut builder,
            _ => {
                return exec_err!(
                    "there is no option '{option}' of regular expressions; there are c, i, l, m, n, p, s and g"
                );
            }
        };
    }
    builder.build().map_err(|error| exec_datafusion_err!("'{pattern}' is not a regular expression: {error}"))
}

/// The values of an optional argument of texts.
fn optional(given: &[ArrayRef], position: usize) -> Result<Option<&StringViewArray>> {
    given.get(position).map(|options| as_string_view_array(options)).transpose()
}

fn at(options: Option<&StringViewArray>, row: usize) -> Option<&str> {
    options.filter(|options| options.is_valid(row)).map(|options| options.value(row))
}

fn matches(given: &[ArrayRef], whole: bool) -> Result<ArrayRef> {
    let [texts, patterns] = arguments(given)?;
    let options = optional(given, 2)?;
    let mut compiled = Patterns::default();
    let rows = as_string_view_array(texts)?.iter().zip(as_string_view_array(patterns)?.iter());
    let answers = rows.enumerate().map(|(row, (text, pattern))| {
        let Some((text, pattern)) = text.zip(pattern) else { return Ok(None) };
        Ok(Some(compiled.get(pattern, at(options, row), whole)?.is_match(text)))
    });
    Ok(Arc::new(answers.collect::<Result<BooleanArray>>()?))
}

fn extract_all(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [texts, patterns] = arguments(given)?;
    let groups = given.get(2).map(|groups| as_int64_array(groups)).transpose()?;
    let options = optional(given, 3)?;
    let mut compiled = Patterns::default();
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    let rows = as_string_view_array(texts)?.iter().zip(as_string_view_array(patterns)?.iter());
    for (row, (text, pattern)) in rows.enumerate() {
        let group = match groups {
            Some(groups) if groups.is_null(row) => None,
            Some(groups) => Some(groups.value(row)),
            None => Some(0),
        };
        let (Some((text, pattern)), Some(group)) = (text.zip(pattern), group) else {
            lists.append_null();
            continue;
        };
        let pattern = compiled.get(pattern, at(options, row), false)?;
        let mut from = 0;
        // Unlike Rust's iterators, DuckDB finds nothing at the end of something, too.
        while let Some(found) = text.get(from..).and_then(|_| pattern.captures_at(text, from)) {
            // Of a text in which nothing is found nobody asks for a group.
            let group = group_number(pattern, group)?;
            lists.values().append_option(found.get(group).map(|part| part.as_str()));
            let Some(whole) = found.get(0) else { break };
            let step =
                || text.get(whole.end()..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            from = whole.end() + if whole.is_empty() { step() } else { 0 };
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

fn group_number(pattern: &Regex, group: i64) -> Result<usize> {
    match usize::try_from(group) {
        Ok(group) if group < pattern.captures_len() => Ok(group),
        _ => exec_err!(
            "'{}' has no group {group}: it has {}",
            pattern.as_str(),
            pattern.captures_len().saturating_sub(1)
        ),
    }
}

fn split(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [texts, patterns] = arguments(given)?;
    let options = optional(given, 2)?;
    let mut compiled = Patterns::default();
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    let rows = as_string_view_array(texts)?.iter().zip(as_string_view_array(patterns)?.iter());
    for (row, (text, pattern)) in rows.enumerate() {
        match (text, pattern) {
            (None, _) => lists.append_null(),
            (Some(text), None) => lists.append_value([Some(text)]),
            (Some(text), Some("")) if !text.is_empty() => {
                for letter in text.chars() {
                    lists.values().append_value(letter.encode_utf8(&mut [0; 4]));
                }
                lists.append(true);
            }
            (Some(text), Some(pattern)) => {
                lists.append_value(compiled.get(pattern, at(options, row), false)?.split(text).map(Some));
            }
        }
    }
    Ok(Arc::new(lists.finish()))
}

/// A pattern that matches this text alone.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        let is_plain = letter == '_' || letter.is_ascii_alphanumeric() || !letter.is_ascii();
        if !is_plain {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// `regexp_extract(text, pattern [, group or names [, options]])`: the first match, one of its groups, or a struct of
/// its groups by the names that are given. Nothing is found as an empty text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegexpExtract {
    signature: Signature,
}

impl RegexpExtract {
    pub(crate) fn new() -> Self {
        RegexpExtract { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for RegexpExtract {
    fn name(&self) -> &str {
        "regexp_extract"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let third = match given.get(2) {
            Some(DataType::Null) | None => Kind::Integer,
            Some(third) if third.is_integer() => Kind::Integer,
            Some(_) => Kind::Texts,
        };
        let kinds = [Kind::Text, Kind::Text, third, Kind::Text];
        let types: Option<Vec<_>> = given.iter().zip(kinds).map(|(given, kind)| kind.accept(given)).collect();
        match types.filter(|_| (2..=4).contains(&given.len())) {
            Some(types) => Ok(types),
            None => {
                let given: Vec<_> = given.iter().map(sql_type).collect();
                plan_err!(
                    "regexp_extract({}) does not exist; write regexp_extract(text, pattern), with the number of a \
                     group or a list of names, and options",
                    given.join(", ")
                )
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, call: ReturnFieldArgs) -> Result<FieldRef> {
        let is_list = call.arg_fields.get(2).is_some_and(|field| field.data_type().is_list());
        let returned = match call.scalar_arguments.get(2) {
            _ if !is_list => DataType::Utf8View,
            Some(Some(ScalarValue::List(names))) => {
                let names =
                    names.values().as_string_view_opt().map(|names| names.iter().collect::<Option<Vec<_>>>());
                let Some(Some(names)) = names else {
                    return plan_err!("the names of groups must not be null");
                };
                DataType::Struct(
                    names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect(),
                )
            }
            _ => return plan_err!("the names of groups must be constants"),
        };
        Ok(Arc::new(Field::new(self.name(), returned, true)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |given, returned| match returned {
            DataType::Struct(names) => extract_named(given, names),
            _ => extract(given),
        })
    }
}

fn extract(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [texts, patterns] = arguments(given)?;
    let groups = given.get(2).map(|groups| as_int64_array(groups)).transpose()?;
    let options = optional(given, 3)?;
    let mut compiled = Patterns::default();
    let mut parts = StringViewBuilder::with_capacity(texts.len());
    let rows = as_string_view_array(texts)?.iter().zip(as_string_view_array(patterns)?.iter());
    for (row, (text, pattern)) in rows.enumerate() {
        let Some((text, pattern)) = text.zip(pattern) else {
            parts.append_null();
            continue;
        };
        let pattern = compiled.get(pattern, at(options, row), false)?;
        let group = match groups {
            Some(groups) if groups.is_null(row) => None,
            Some(groups) => usize::try_from(groups.value(row)).ok(),
            None => Some(0),
        };
        let found = match group {
            Some(0) => pattern.find(text),
            Some(group) => pattern.captures(text).and_then(|found| found.get(group)),
            None => None,
        };
        parts.append_value(found.map_or("", |part| part.as_str()));
    }
    Ok(Arc::new(parts.finish()))
}

fn extract_named(given: &[ArrayRef], names: &Fields) -> Result<ArrayRef> {
    let [texts, patterns] = arguments(given)?;
    let options = optional(given, 3)?;
    let mut compiled = Patterns::default();
    let mut columns: Vec<_> = names.iter().map(|_| StringViewBuilder::with_capacity(texts.len())).collect();
    let rows = as_string_view_array(texts)?.iter().zip(as_string_view_array(patterns)?.iter());
    for (row, (text, pattern)) in rows.enumerate() {
        let found = match text.zip(pattern) {
            Some((text, pattern)) => {
                let pattern = compiled.get(pattern, at(options, row), false)?;
                group_number(pattern, names.len() as i64)?;
                pattern.captures(text)
            }
            None => None,
        };
        for (column, group) in columns.iter_mut().zip(1..) {
            let part = found.as_ref().and_then(|found| found.get(group)).map_or("", |part| part.as_str());
            column.append_option((text.is_some() && pattern.is_some()).then_some(part));
        }
    }
    let columns = columns.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef).collect();
    Ok(Arc::new(StructArray::try_new(names.clone(), columns, None)?))
}
