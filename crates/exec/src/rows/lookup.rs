//! Which rows conditions ask for by the keys of an index: those of the query, and those that joins send while it runs.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, InListExpr, Literal};
use datafusion::physical_expr::utils::split_conjunction as physical_conjunction;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use nandina_storage::{IndexDefinition, Table};

/// More values than this are not looked up one by one.
const MOST_VALUES: usize = 1000;

/// Keys to look up in an index, or what they begin with.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    /// Its number.
    pub index: usize,
    pub name: String,
    /// Values of its first columns, a row for each key.
    pub values: Vec<ArrayRef>,
    /// Whether each key has one row at most.
    pub is_unique: bool,
}

impl Lookup {
    /// The best one: whole unique keys, then as many columns as possible.
    pub fn of(table: &Table, indexes: &[(usize, IndexDefinition)], filters: &[Expr]) -> Result<Option<Self>> {
        let conditions = filters
            .iter()
            .flat_map(split_conjunction)
            .filter_map(|filter| values_of_column(filter, table.schema()));
        Self::best(table, indexes, &conditions.collect::<Vec<_>>())
    }

    /// The same of conditions on columns of the table that have become known while a query runs.
    pub fn of_known(
        table: &Table,
        indexes: &[(usize, IndexDefinition)],
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Option<Self>> {
        let mut conditions = Vec::new();
        for filter in filters {
            let known = snapshot_physical_expr(Arc::clone(filter))?;
            let listed = physical_conjunction(&known).into_iter();
            conditions.extend(listed.filter_map(|filter| listed_values(filter, table.schema())));
        }
        Self::best(table, indexes, &conditions)
    }

    fn best(
        table: &Table,
        indexes: &[(usize, IndexDefinition)],
        conditions: &[(usize, Vec<ScalarValue>)],
    ) -> Result<Option<Self>> {
        let mut best: Option<(Self, usize)> = None;
        for (number, index) in indexes {
            let Some(found) = Self::in_index(*number, index, conditions)? else { continue };
            let rank = found.values.len() + if found.is_unique { table.schema().fields().len() } else { 0 };
            if best.as_ref().is_none_or(|(_, other)| rank > *other) {
                best = Some((found, rank));
            }
        }
        Ok(best.map(|(lookup, _)| lookup))
    }

    fn in_index(
        number: usize,
        index: &IndexDefinition,
        conditions: &[(usize, Vec<ScalarValue>)],
    ) -> Result<Option<Self>> {
        let mut keys: Vec<Vec<ScalarValue>> = vec![Vec::new()];
        for column in &index.columns {
            let Some((_, values)) = conditions.iter().find(|(of, _)| of == column) else { break };
            if keys.len() * values.len() > MOST_VALUES {
                break;
            }
            let with = |key: &Vec<ScalarValue>| {
                let longer = |value: &ScalarValue| [key.as_slice(), std::slice::from_ref(value)].concat();
                values.iter().map(longer).collect::<Vec<_>>()
            };
            keys = keys.iter().flat_map(with).collect();
        }
        let columns = keys.first().map_or(0, Vec::len);
        if columns == 0 {
            return Ok(None);
        }
        let column = |at: usize| ScalarValue::iter_to_array(keys.iter().map(|key| key[at].clone()));
        let values = (0..columns).map(column).collect::<Result<_>>()?;
        let is_unique = index.is_unique && columns == index.columns.len();
        Ok(Some(Self { index: number, name: index.name.clone(), values, is_unique }))
    }

    pub fn keys(&self) -> usize {
        self.values.first().map_or(0, |values| values.len())
    }
}

/// The values of a list, as joins send it.
fn listed_values(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(usize, Vec<ScalarValue>)> {
    let list = filter.downcast_ref::<InListExpr>().filter(|list| !list.negated())?;
    let column = list.expr().downcast_ref::<Column>()?.index();
    let data_type = schema.fields().get(column)?.data_type();
    let literal =
        |value: &Arc<dyn PhysicalExpr>| value.downcast_ref::<Literal>().map(Literal::value).cloned();
    let values: Option<Vec<ScalarValue>> = list.list().iter().map(literal).collect();
    let values = values?.into_iter().filter(|value| !value.is_null()).map(|value| as_key(value, data_type));
    Some((column, values.collect::<Option<_>>()?))
}

/// The values that a condition leaves a column, in the column's own type: no other is compared with its keys.
fn values_of_column(filter: &Expr, schema: &Arc<Schema>) -> Option<(usize, Vec<ScalarValue>)> {
    let (column, values) = match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _))
                | (Expr::Literal(value, _), Expr::Column(column)) => (column, vec![value.clone()]),
                _ => return None,
            }
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            let literal = |value: &Expr| match value {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            };
            (column, list.iter().map(literal).collect::<Option<Vec<_>>>()?)
        }
        _ => return None,
    };
    let number = schema.index_of(column.name()).ok()?;
    let data_type = schema.field(number).data_type();
    // Nulls are equal to nothing.
    let values = values.into_iter().filter(|value| !value.is_null());
    let values: Option<Vec<_>> = values.map(|value| as_key(value, data_type)).collect();
    Some((number, values?))
}

fn as_key(value: ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    if value.data_type() == *data_type {
        return Some(value);
    }
    let are_texts = |one: &DataType| matches!(one, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if are_texts(&value.data_type()) && are_texts(data_type) { value.cast_to(data_type).ok() } else { None }
}
