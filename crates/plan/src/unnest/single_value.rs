//! The value of a sub-query that must not have more than one row.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

/// `single_value(x)`: the value of the only row, null where there is none.
pub fn single_value(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        Arc::new(AggregateUDF::from(SingleValue { signature: Signature::any(1, Volatility::Immutable) }))
    });
    FUNCTION.call(vec![value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [only] => Ok(only.clone()),
            _ => exec_err!("a single value is of one column, not of {}", types.len()),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let rows = format_state_name(arguments.name, "rows");
        let value =
            arguments.return_field.as_ref().clone().with_name(format_state_name(arguments.name, "value"));
        let rows = datafusion::arrow::datatypes::Field::new(rows, DataType::UInt64, false);
        Ok(vec![Arc::new(value.with_nullable(true)), Arc::new(rows)])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Only { value: ScalarValue::try_from(arguments.return_type())?, rows: 0 }))
    }
}

#[derive(Debug)]
struct Only {
    value: ScalarValue,
    rows: u64,
}

impl Only {
    fn add(&mut self, values: &ArrayRef, row: usize, rows: u64) -> Result<()> {
        if rows > 0 {
            self.value = ScalarValue::try_from_array(values, row)?;
            self.rows += rows;
        }
        if self.rows > 1 {
            return exec_err!(
                "a sub-query that is used as a value has more than one row; add LIMIT 1, an aggregate, or a condition that one \
                 row meets"
            );
        }
        Ok(())
    }
}

impl Accumulator for Only {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values[0].len() {
            0 => Ok(()),
            rows => self.add(&values[0], 0, rows as u64),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        use datafusion::arrow::array::AsArray as _;
        let rows = states[1].as_primitive::<datafusion::arrow::datatypes::UInt64Type>();
        (0..rows.len()).try_for_each(|row| self.add(&states[0], row, rows.value(row)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::from(self.rows)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }
}
