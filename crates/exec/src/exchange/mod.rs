//! Exchange: hands the rows of several input partitions over to several output partitions.
//!
//! ```text
//!   input 0 ─► split by hash, in turn or by range ─┐     ┌─► queue 0 ─► output 0
//!   input 1 ─► split …                            ─┼──►──┼─► queue 1 ─► output 1
//!   input n ─► split …                            ─┘     └─► queue m ─► output m
//!                                                             │  ▲
//!                        no memory left, or others want it:   ▼  │ when memory has been emptied
//!                                                      temporary space (spill files)
//! ```
//!
//! Inputs go on while some output has nothing to do. That one may be waiting for rows which come behind others for an
//! output that is not read yet, so queues have no bound; what memory does not hold goes to temporary space.
//!
//! The operator was described by Graefe, *Encapsulation of Parallelism in the Volcano Query Processing System*, SIGMOD
//! 1990. It takes the place of DataFusion's, which waits forever once two inputs have spilled for the same output
//! (apache/datafusion#24883).
//!
//! Invariants
//! - A row that was taken from an input is emitted once, unless its output was dropped. No order is kept.
//! - An output never waits for a certain row, only for any.
//! - An input that fails or panics ends all outputs with its error.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `producer` | one input: splitting it, and pausing |
//! | `queue` | the rows queued for one output |
//! | `output` | one output |

mod exec;
pub(crate) mod metrics;
pub(crate) mod output;
pub(crate) mod producer;
pub(crate) mod queue;

pub use exec::ExchangeExec;
