//! What a user of Nandina holds: a [`Database`], its [`Session`]s, and the results of their statements.
//!
//! ```text
//!   Options ──► Database ──► Session ──sql(text)──► Query ── rows (RecordBatch stream)
//!               directory     settings                  ├── progress_meter()
//!               of tables     memory governor           └── profile()
//! ```
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use nandina::{Database, Options};
//!
//! let options = Options { memory_limit: Some(256 << 20), ..Options::default() };
//! let session = Database::in_memory(options)?.session()?;
//! let rows = session.sql("SELECT sum(x) FROM (VALUES (1), (2)) AS t(x)").await?.collect().await?;
//! assert_eq!(rows[0].num_rows(), 1);
//! # Ok::<(), nandina::Error>(())
//! # }).unwrap();
//! ```

pub mod byte_size;
mod calibrate;
mod cast_errors;
mod catalog;
mod database;
mod engine;
mod error;
mod error_place;
mod files;
mod media;
mod options;
mod planning;
pub mod process_memory;
mod profile;
mod progress;
mod query;
mod series;
mod session;
mod set_on_drop;
mod settings;
mod short_statements;
pub mod statement_text;
mod statements;
pub mod suggestion;
mod tables;
mod temporary_store;
pub mod tpch;
mod transactions;

pub use calibrate::{Calibrated, calibrate, calibration_estimate, device_facts, device_page};
pub use database::{Database, list_log};
pub use datafusion::common::ScalarValue;
pub use error::{Error, Result};
pub use error_place::Place;
pub use files::names::{expand as expand_files, looks_like_path};
pub use files::sinks::nested_as_text;
pub use nandina_exec::memory::ResidentBound;
pub use nandina_exec::scan::guard::is_guarded;
pub use nandina_plan::{JoinAlgorithm, SortAlgorithm};
pub use options::{IoBackend, MOST_THREADS, OpenDevice, Options, Settings, default_memory_limit};
pub use profile::{Operator, Profile, duration as format_duration, grouped as format_count};
pub use progress::{Progress, ProgressMeter};
pub use query::{Answer, Query};
pub use session::{Import, PreparedStatement, Session};
pub use settings::NAMES as SETTING_NAMES;
pub use statements::report::write_page;

/// The values of a column as people read them.
pub fn texts_of(column: &arrow::array::ArrayRef) -> Result<arrow::array::StringViewArray> {
    Ok(nandina_functions::texts_of(column)?)
}
