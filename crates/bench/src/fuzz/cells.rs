//! Values of results in one form, whichever engine they come from, and how two results differ.

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value as Json;

/// How far numbers may lie apart of which one is floating-point: sums in another order, averages of decimals.
const TOLERANCE: f64 = 2e-6;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Boolean(bool),
    Number {
        text: String,
        value: f64,
        is_float: bool,
    },
    /// Texts, points in time, bytes.
    Text(String),
    /// Lists, and structs by position.
    List(Vec<Cell>),
}

pub type Row = Vec<Cell>;

impl Cell {
    fn exact(text: &str) -> Self {
        let text = match text.split_once('.') {
            Some((whole, fraction)) => match fraction.trim_end_matches('0') {
                "" => whole.to_owned(),
                fraction => format!("{whole}.{fraction}"),
            },
            None => text.to_owned(),
        };
        let text = if text == "-0" { "0".to_owned() } else { text };
        Cell::Number { value: text.parse().unwrap_or(f64::NAN), text, is_float: false }
    }

    fn float(value: f64) -> Self {
        // The sign of a zero depends on the order of additions.
        let value = value + 0.0;
        Cell::Number { text: value.to_string(), value, is_float: true }
    }

    fn moment(text: &str) -> Self {
        // Arrow writes years of five digits with a sign.
        let text = text.trim_start_matches('+');
        let text = match text.split_once('.') {
            Some((whole, fraction)) => match fraction.trim_end_matches('0') {
                "" => whole.to_owned(),
                fraction => format!("{whole}.{fraction}"),
            },
            None => text.to_owned(),
        };
        Cell::Text(text)
    }

    /// As the peer program writes it: numbers, moments and bytes are objects of one entry.
    fn of_json(json: &Json) -> Self {
        let entry = |name: &str| json.get(name).and_then(Json::as_str);
        match json {
            Json::Null => Cell::Null,
            Json::Bool(value) => Cell::Boolean(*value),
            Json::String(text) => Cell::Text(text.clone()),
            Json::Array(items) => Cell::List(items.iter().map(Cell::of_json).collect()),
            _ => match (entry("n"), entry("f"), entry("t")) {
                (Some(number), _, _) => Cell::exact(number),
                (_, Some(number), _) => Cell::float(number.parse().unwrap_or(f64::NAN)),
                (_, _, Some(moment)) => Cell::moment(moment),
                _ => Cell::Text(json.to_string()),
            },
        }
    }

    /// For putting rows into an order in which equal ones meet.
    fn rank(&self) -> String {
        match self {
            Cell::Null => "~".to_owned(),
            Cell::Boolean(value) => value.to_string(),
            Cell::Number { value, .. } => format!("{value:+.3e}"),
            Cell::Text(text) => text.clone(),
            Cell::List(items) => items.iter().map(Cell::rank).collect::<Vec<_>>().join("|"),
        }
    }

    fn is_same(&self, other: &Cell) -> bool {
        match (self, other) {
            (
                Cell::Number { text, value, is_float },
                Cell::Number { text: other_text, value: other_value, is_float: other_is_float },
            ) => {
                text == other_text
                    || (*is_float || *other_is_float) && (value - other_value).abs() <= TOLERANCE * value.abs().max(1.0)
                    || value.is_nan() && other_value.is_nan()
                    || value == other_value && value.is_infinite()
                    // Averages of decimals have a few more digits than those.
                    || text.contains('.') && other_text.contains('.') && (value - other_value).abs() <= TOLERANCE
            }
            (Cell::List(ours), Cell::List(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(one, other)| one.is_same(other))
            }
            _ => self == other,
        }
    }

    fn shown(&self) -> String {
        match self {
            Cell::Null => "NULL".to_owned(),
            Cell::Boolean(value) => value.to_string(),
            Cell::Number { text, .. } => text.clone(),
            Cell::Text(text) => format!("'{text}'"),
            Cell::List(items) => {
                format!("[{}]", items.iter().map(Cell::shown).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The rows of a result of ours.
pub fn rows_of_batches(batches: &[RecordBatch]) -> Result<Vec<Row>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(cells).collect::<Result<Vec<_>, _>>()?;
        let row = |row: usize| columns.iter().filter_map(|column| column.get(row).cloned()).collect();
        rows.extend((0..batch.num_rows()).map(row));
    }
    Ok(rows)
}

/// The rows of a result that the peer program wrote.
pub fn rows_of_json(rows: &[Json]) -> Vec<Row> {
    let row = |row: &Json| row.as_array().into_iter().flatten().map(Cell::of_json).collect();
    rows.iter().map(row).collect()
}

fn cells(column: &ArrayRef) -> Result<Vec<Cell>, ArrowError> {
    let or_null = |row: usize, cell: Cell| if column.is_null(row) { Cell::Null } else { cell };
    match column.data_type() {
        DataType::Null => return Ok(vec![Cell::Null; column.len()]),
        DataType::Dictionary(_, values) => return cells(&cast(column, values)?),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::ListView(item) => {
            return cells(&cast(column, &DataType::List(item.clone()))?);
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            return (0..column.len())
                .map(|row| {
                    if lists.is_null(row) {
                        Ok(Cell::Null)
                    } else {
                        Ok(Cell::List(cells(&lists.value(row))?))
                    }
                })
                .collect();
        }
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter().map(cells).collect::<Result<Vec<_>, _>>()?;
            let value =
                |row: usize| Cell::List(fields.iter().filter_map(|field| field.get(row).cloned()).collect());
            return Ok((0..column.len()).map(|row| or_null(row, value(row))).collect());
        }
        DataType::Boolean => {
            let values = column.as_boolean();
            return Ok(values.iter().map(|value| value.map_or(Cell::Null, Cell::Boolean)).collect());
        }
        other if other.is_floating() => {
            let doubles = cast(column, &DataType::Float64)?;
            let doubles = doubles.as_primitive::<Float64Type>();
            return Ok(doubles.iter().map(|value| value.map_or(Cell::Null, Cell::float)).collect());
        }
        _ => {}
    }
    let (is_number, is_moment) = (column.data_type().is_numeric(), column.data_type().is_temporal());
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    (0..column.len())
        .map(|row| {
            if column.is_null(row) {
                return Ok(Cell::Null);
            }
            let text = formatter.value(row).try_to_string()?;
            Ok(match (is_number, is_moment) {
                (true, _) => Cell::exact(&text),
                (_, true) => Cell::moment(&text),
                _ => Cell::Text(text),
            })
        })
        .collect()
}

/// How two results differ, if they do.
pub fn difference(ours: &[Row], theirs: &[Row], is_ordered: bool) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} rows in place of {}", ours.len(), theirs.len()));
    }
    if ours.iter().zip(theirs).all(|(one, other)| is_same(one, other)) {
        return None;
    }
    let mut rest: Vec<&Row> = sorted(theirs);
    let unmatched: Vec<&Row> = sorted(ours)
        .into_iter()
        .filter(|row| match rest.iter().position(|other| is_same(row, other)) {
            Some(at) => {
                rest.remove(at);
                false
            }
            None => true,
        })
        .collect();
    match (unmatched.first(), rest.first()) {
        (Some(one), Some(other)) => {
            Some(format!("{} rows differ: {} in place of {}", unmatched.len(), shown(one), shown(other)))
        }
        _ if is_ordered => Some("the rows are in another order".to_owned()),
        _ => None,
    }
}

fn is_same(one: &Row, other: &Row) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same(other))
}

fn sorted(rows: &[Row]) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_cached_key(|row| row.iter().map(Cell::rank).collect::<Vec<_>>());
    sorted
}

/// One row as text.
pub fn shown(row: &Row) -> String {
    format!("({})", row.iter().map(Cell::shown).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_exactly_as_their_types_are() {
        assert!(Cell::exact("1.50").is_same(&Cell::exact("1.5")));
        assert!(!Cell::exact("9007199254740993").is_same(&Cell::exact("9007199254740992")));
        assert!(Cell::exact("2").is_same(&Cell::float(2.0000000001)));
        assert!(Cell::float(f64::NAN).is_same(&Cell::float(f64::NAN)));
        assert!(!Cell::Null.is_same(&Cell::exact("0")));
    }

    #[test]
    fn order_counts_where_it_is_told() {
        let rows = |numbers: [&str; 2]| numbers.map(|number| vec![Cell::exact(number)]).to_vec();
        assert_eq!(difference(&rows(["1", "2"]), &rows(["2", "1"]), false), None);
        assert!(difference(&rows(["1", "2"]), &rows(["2", "1"]), true).is_some());
        let message = difference(&rows(["1", "2"]), &rows(["3", "1"]), false).unwrap();
        assert_eq!(message, "1 rows differ: (2) in place of (3)");
    }
}
