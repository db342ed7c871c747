//! Parts of a query that are equal are computed once.
//!
//! ```text
//!   logical plan ─► [common] parts that are equal but for their columns [fuse] become Spool nodes
//!       ─► DataFusion's planner and all rules, for each of them
//!       ─► [share] the first of equal spools computes, the others read
//! ```
//!
//! A common table expression that is used twice stands in the plan twice, as do views and subqueries of the same text.
//! Equality is decided on logical plans, which can be compared; they are compared after DataFusion has optimised
//! them, so that only parts that would do the same work are put together. Every copy is then planned by itself, in the
//! same way: a spool asks nothing of its input and passes nothing down to it. The last rule leaves one of the copies.
//!
//! What would not have the same rows each time, as `random()` and `LIMIT` make, is computed once because it has to be:
//! [`volatile`] puts spools into the plan of a statement before any rule has seen it.

mod common;
mod fuse;
mod node;
mod planner;
mod share;
mod volatile;

pub(crate) use node::Spool;
pub use planner::Planner;
pub use share::ShareSpools;
pub(crate) use share::replace_operators;
pub use volatile::spool_volatile_expressions;
pub(crate) use volatile::{is_volatile, next_spool_number};
