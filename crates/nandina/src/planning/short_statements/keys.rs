//! Which index finds the rows of conditions, and by which values.

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, Operator};
use nandina_exec::rows::{Given, KeyValue};
use nandina_storage::{IndexDefinition, Table};

use super::parameters;

/// The part of an index in which the rows are.
pub(super) struct Key {
    pub index: usize,
    pub equal: Vec<KeyValue>,
    pub lower: Option<KeyValue>,
    pub upper: Option<KeyValue>,
    /// Whether there is one row at most.
    pub is_unique: bool,
}

/// A condition on a column of the table.
struct Condition {
    column: usize,
    comparison: Comparison,
    value: KeyValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    /// Bounds may be part of the range: rows are filtered once they are found.
    AtLeast,
    AtMost,
}

impl Key {
    /// The best one: a whole unique key, then as many columns as possible.
    pub fn of(table: &Table, conditions: &[&Expr]) -> Option<Self> {
        let schema = table.schema();
        let conditions: Vec<Condition> = conditions
            .iter()
            .flat_map(|condition| split_conjunction(condition))
            .flat_map(|condition| Condition::of(condition, schema))
            .collect();
        let found = table.indexes().filter_map(|(number, index)| Self::in_index(number, index, &conditions));
        found.max_by_key(|key| {
            let has_range = key.lower.is_some() && key.upper.is_some();
            (key.is_unique, key.equal.len(), has_range)
        })
    }

    fn in_index(index: usize, definition: &IndexDefinition, conditions: &[Condition]) -> Option<Self> {
        let find = |column: usize, comparison: Comparison| {
            let found = conditions
                .iter()
                .find(|condition| condition.column == column && condition.comparison == comparison);
            found.map(|condition| condition.value.clone())
        };
        let values = definition.columns.iter().map_while(|column| find(*column, Comparison::Equal));
        let equal: Vec<KeyValue> = values.collect();
        let is_unique = definition.is_unique && equal.len() == definition.columns.len();
        let next = definition.columns.get(equal.len());
        let bound = |comparison| next.and_then(|column| find(*column, comparison));
        let (lower, upper) = (bound(Comparison::AtLeast), bound(Comparison::AtMost));
        let finds = !equal.is_empty() || lower.is_some() || upper.is_some();
        finds.then_some(Self { index, equal, lower, upper, is_unique })
    }
}

impl Condition {
    /// Those of an expression; none if it is another one.
    fn of(expr: &Expr, schema: &Schema) -> Vec<Self> {
        let conditions = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (same, turned) = match op {
                    Operator::Eq => (Comparison::Equal, Comparison::Equal),
                    Operator::Gt | Operator::GtEq => (Comparison::AtLeast, Comparison::AtMost),
                    Operator::Lt | Operator::LtEq => (Comparison::AtMost, Comparison::AtLeast),
                    _ => return Vec::new(),
                };
                let found = Self::between(left, same, right, schema);
                vec![found.or_else(|| Self::between(right, turned, left, schema))]
            }
            Expr::Between(Between { expr, negated: false, low, high }) => vec![
                Self::between(expr, Comparison::AtLeast, low, schema),
                Self::between(expr, Comparison::AtMost, high, schema),
            ],
            _ => Vec::new(),
        };
        conditions.into_iter().flatten().collect()
    }

    fn between(column: &Expr, comparison: Comparison, value: &Expr, schema: &Schema) -> Option<Self> {
        let column = column_of(column, schema)?;
        let data_type = schema.fields().get(column)?.data_type().clone();
        Some(Self { column, comparison, value: KeyValue { data_type, given: given(value)? } })
    }
}

/// The column that an expression is, also as another type in which its values stay different and in the same order.
fn column_of(expr: &Expr, schema: &Schema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of(column.name()).ok(),
        Expr::Cast(Cast { expr, field }) => {
            let column = column_of(expr, schema)?;
            keeps_all(schema.fields().get(column)?.data_type(), field.data_type()).then_some(column)
        }
        _ => None,
    }
}

/// Whether different values stay different and in order as this other type.
fn keeps_all(from: &DataType, to: &DataType) -> bool {
    let digits = |data_type: &DataType| match data_type {
        DataType::Int8 | DataType::UInt8 => Some(3),
        DataType::Int16 | DataType::UInt16 => Some(5),
        DataType::Int32 | DataType::UInt32 => Some(10),
        DataType::Int64 => Some(19),
        DataType::UInt64 => Some(20),
        _ => None,
    };
    match (from, to) {
        (from, to) if from == to || from.is_string() && to.is_string() => true,
        (DataType::Decimal128(precision, scale), DataType::Decimal128(wider, more)) => {
            more >= scale && i16::from(*wider) - i16::from(*more) >= i16::from(*precision) - i16::from(*scale)
        }
        (from, DataType::Decimal128(precision, scale)) => {
            digits(from).is_some_and(|digits| i16::from(*precision) - i16::from(*scale) >= digits)
        }
        (from, to) => match (digits(from), digits(to)) {
            (Some(from_digits), Some(to_digits)) => {
                to_digits > from_digits && (to.is_signed_integer() || from.is_unsigned_integer())
            }
            _ => false,
        },
    }
}

/// A value that is known when the statement runs: a parameter or a literal, also as another type, which is that of the comparison alone.
fn given(expr: &Expr) -> Option<Given> {
    match expr {
        Expr::Placeholder(placeholder) => parameters::number(placeholder).map(Given::Parameter),
        Expr::Literal(value, _) => Some(Given::Literal(value.clone())),
        Expr::Cast(Cast { expr, field }) if matches!(expr.as_ref(), Expr::Placeholder(_)) => {
            let is_plain = field.data_type().is_numeric() || field.data_type().is_string();
            is_plain.then(|| given(expr)).flatten()
        }
        _ => None,
    }
}
