//! Late materialisation: columns of a stored table that are read by row id, once it is known which rows are wanted.
//!
//! ```text
//!  input ──► window of rows ──► ids, sorted ──► Table::fetch: each mini-page once, a deep queue ──► rows in the
//!            (grows: the first     │                                                                input's order
//!             row comes soon)      └── several windows at a time, each in a task of its own
//! ```
//!
//! Where the order of the result does not matter, the input is sorted by row id if that is expected to cost less than reading
//! pages again and again ([`RowOrder::OfTable`]). Where pages are read again and again against expectation, what is left of
//! the input is sorted (`sort`).
//!
//! Rows need not be those of a table: a sort may have written what it does not look at ([`sort`](crate::sort)), and fetches it
//! in the same way.
//!
//! What stands below carries a number of 8 bytes per row and table in place of the columns. An id that is null, of a row
//! that an outer join has added, gives null.

mod exec;
mod sort;
mod source;
mod stream;
mod window;

pub use exec::{FetchEstimate, FetchExec, FetchedTable, RowOrder};
pub(crate) use source::Source;
pub use stream::window_bytes;
pub(crate) use stream::{FetchMetrics, Fetching, fetched_in_order};
