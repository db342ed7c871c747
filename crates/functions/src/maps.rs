//! `m[key]` of a map: the value that the first equal key has, null without one.
//!
//! DataFusion's `get_field` compares keys that are computed, or have parts, with other rows'.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::function::{arguments, invoke};
use crate::types::sql_type;

/// The value of a key.
pub fn map_value(map: Expr, key: Expr) -> Expr {
    let function = ScalarUDF::from(MapValue { signature: Signature::user_defined(Volatility::Immutable) });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![map, key]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MapValue {
    signature: Signature,
}

/// The types of keys and values.
fn parts(map: &DataType) -> Option<(&DataType, &DataType)> {
    let DataType::Map(entries, _) = map else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    match fields.as_ref() {
        [key, value] => Some((key.data_type(), value.data_type())),
        _ => None,
    }
}

impl ScalarUDFImpl for MapValue {
    fn name(&self) -> &str {
        "map_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [map, _] = given else { return plan_err!("a value of a map has one key") };
        match parts(map) {
            Some((key, _)) => Ok(vec![map.clone(), key.clone()]),
            None => plan_err!("a {} has no values by keys", sql_type(map)),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first().and_then(parts) {
            Some((_, value)) => Ok(value.clone()),
            None => internal_err!("the value of a key of no map"),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |given, _| {
            let [maps, wanted] = arguments(given)?;
            values(maps, wanted)
        })
    }
}

fn values(maps: &ArrayRef, wanted: &ArrayRef) -> Result<ArrayRef> {
    let maps = maps.as_map();
    let compare = make_comparator(maps.keys(), wanted, SortOptions::default())?;
    let nulls = wanted.logical_nulls();
    let places = maps.value_offsets().windows(2).enumerate().map(|(row, ends)| {
        let &[begin, end] = ends else { return None };
        let is_known = maps.is_valid(row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let mut entries = if is_known { begin as u32..end as u32 } else { 0..0 };
        entries.find(|&entry| compare(entry as usize, row).is_eq())
    });
    let places: UInt32Array = places.collect();
    Ok(take(maps.values(), &places, None)?)
}
