//! `array_agg` and `string_agg` with `ORDER BY`.
//!
//! Where an aggregation has two orders, one of which is the other backwards, DataFusion sorts its input once and turns one
//! of the functions around: it is told to be reversed, and puts its values in the other order at the end. With `DISTINCT`,
//! which sorts its values itself, it does not. And `string_agg` asks for sorted input, though it sorts what it gets, so that
//! two of different orders are refused.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_expr::PhysicalSortExpr;

/// `array_agg`, in place of DataFusion's.
pub fn list_of_values() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(OrderedList(array_agg_udaf())))
}

/// `string_agg`, in place of DataFusion's.
pub fn joined_texts() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(OrderedList(string_agg_udaf())))
}

/// DataFusion's function.
#[derive(PartialEq, Eq, Hash)]
struct OrderedList(Arc<AggregateUDF>);

impl fmt::Debug for OrderedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrderedList({})", self.0.name())
    }
}

impl AggregateUDFImpl for OrderedList {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !(arguments.is_distinct && arguments.is_reversed) {
            return self.0.accumulator(arguments);
        }
        let turned = |order: &PhysicalSortExpr| PhysicalSortExpr { options: !order.options, ..order.clone() };
        let as_written: Vec<PhysicalSortExpr> = arguments.order_bys.iter().map(turned).collect();
        self.0.accumulator(AccumulatorArgs { order_bys: &as_written, is_reversed: false, ..arguments })
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_sorted: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let sorted = AggregateUDF::clone(&self.0).with_beneficial_ordering(is_sorted)?;
        // `string_agg` sorts its values again.
        Ok(Some(sorted.map_or(self, |sorted| Arc::new(OrderedList(Arc::new(sorted))))))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.0.inner().reverse_expr() {
            ReversedUDAF::Reversed(reversed) => {
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(OrderedList(reversed))))
            }
            other => other,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.default_value(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}
