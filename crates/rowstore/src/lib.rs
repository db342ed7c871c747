//! Where changes live: the log that makes them last.
//!
//! | module | subject |
//! |---|---|
//! | [`log`] | records in the order in which they happened, on the device before anybody is told that they have |

mod error;
pub mod log;

pub use error::{Error, Result};
