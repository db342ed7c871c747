//! Late materialisation: columns that nothing but the result needs are read when it is known which rows it has.
//!
//! ```text
//!   Sort: first 10                        Projection: columns as they were
//!     Join                                  LateFetch: payload of t, payload of u
//!       TableScan t: key, payload    ─►       Sort: first 10
//!       TableScan u: key, payload               Join
//!                                                 TableScan t: key, row ids of t
//!                                                 TableScan u: key, row ids of u
//! ```
//!
//! [`sorts`] and [`joins`] say where. [`origins`] says which columns of a plan come from a stored table as they are, and which
//! are used on the way; [`row_ids`] makes a plan hand out the ids of the rows that it is made of; [`cost`] says what reading
//! few pages at random takes, and what reading all pages of those columns, [`locality`] whether the rows of a key stand
//! together. Above joins the costs depend on what they spill: [`choice`] looks at the operators that were planned, and the
//! plan is made once more without the fetches that do not pay, and with sorts by row id below those that read fewer pages so.
//! Rows that no fetch is made for may have a sort write them once and fetch them itself ([`spooled`]).
//! [`explained`] has `EXPLAIN` show what was expected of the ways that were not chosen.
//! What is not wanted any more below a [`LateFetch`] is removed by DataFusion's rule, which goes over the plan once more.
//!
//! This is the last step before operators are chosen: no logical rule sees these nodes.

mod above;
mod algorithm;
mod choice;
mod cost;
mod explained;
mod joins;
mod locality;
mod node;
mod origins;
mod planner;
mod row_ids;
mod sorts;
mod spooled;

pub use algorithm::{JoinAlgorithm, SortAlgorithm};
pub(crate) use planner::{LateFetchPlanner, planned_late};
