//! What does a measurement look like?
//!
//! ```text
//!   DeviceProfile ──► device_page ─┐
//!                                  ├──► Page { html, json }      one file each, readable in any browser, on a phone,
//!   QueryReport   ──► query_page ──┘                             on paper, by day and by night
//! ```
//!
//! A page is one self-contained file: no network, no scripts, no fonts of its own. What it plots it also holds as
//! tables and as JSON, so that a figure can be read, copied and checked: pixels of a plot turn back into the values of
//! the JSON (see `plot`).
//!
//! Pages only show. What the figures mean for sizes and depths of I/O is decided in `nandina-device`; what an operator
//! counts, in the engine.
//!
//! Invariants: the same input gives the same bytes; text from outside never becomes markup; no input makes a page
//! fail but a profile with incomplete tables.

mod device_page;
mod error;
mod html;
mod page;
pub mod plot;
pub mod quantity;
mod query_page;
mod query_report;
mod table;

pub use device_page::device_page;
pub use error::{ReportError, Result};
pub use page::Page;
pub use query_page::query_page;
pub use query_report::{PlanNode, QueryReport, Sample};
