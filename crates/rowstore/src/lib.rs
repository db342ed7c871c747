//! Where changes live: pages that are changed in place, and the log that makes changes last.
//!
//! ```text
//!   Change ──► log                      first what is changed, as ranges of bytes of pages,
//!     └──────► pool ──► tier ──► page file      then the pages themselves, in memory; they are written back later
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`log`] | records in the order in which they happened, on the device before anybody is told that they have |
//! | [`page`] | what all pages have in front of their content |
//! | `read_only` | a store to be read as it is, also where its log is damaged |
//! | [`shape`] | whether a page that was read can be one of its kind |
//! | [`change`] | changes of several pages that happen together or not at all |
//! | [`pool`] | the pages in memory |
//! | [`tier`] | the place of a second-level cache |
//! | [`page_file`] | the pages on the device |
//! | [`space`] | which pages are used |
//! | [`store`] | pages and log together: opening, recovery, checkpoints |
//! | [`heap`] | tables of rows |
//! | [`tree`] | B+trees |
//! | [`undo`] | rows as they were |
//! | [`listing`] | the log, for people |
//! | [`transaction`] | what is seen by whom; commit and rollback |

pub mod change;
mod error;
pub mod heap;
pub mod listing;
pub mod log;
pub mod page;
pub mod page_file;
pub mod pool;
mod read_only;
pub mod shape;
pub mod space;
pub mod store;
mod sync;
pub mod tier;
pub mod transaction;
pub mod tree;
pub mod undo;

pub use error::{Error, Result};
pub use store::{PageStore, StoreOptions};
pub use transaction::{RowStore, Transaction};
