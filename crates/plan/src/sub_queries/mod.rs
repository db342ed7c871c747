//! Sub-queries in conditions, written so that DataFusion's joins for them answer right.

mod correlated_names;
mod outer_aggregates;
mod outer_columns;
mod three_valued_in;

pub use correlated_names::CorrelatedNames;
pub use outer_aggregates::ExistsOfAggregates;
pub(crate) use outer_aggregates::always_has_a_row;
pub(crate) use outer_columns::outer_columns;
pub use three_valued_in::ThreeValuedIn;
pub(crate) use three_valued_in::{as_seen_inside, compared_column, exists, in_as_exists};
