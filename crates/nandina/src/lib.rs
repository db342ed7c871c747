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

mod arrow_files;
pub mod byte_size;
mod calibrate;
mod cast_errors;
mod copy_from;
mod copy_to;
mod csv_files;
mod database;
mod engine;
mod error;
mod file_alias;
mod file_sinks;
mod files;
mod json_files;
mod media;
mod native;
mod nesting;
mod options;
mod parquet_files;
mod partitioned_files;
mod planning;
pub mod process_memory;
mod profile;
mod progress;
mod query;
mod report;
mod session;
mod settings;
mod snapshots;
pub mod statement_text;
pub mod suggestion;
mod tables;
mod text_scan;
pub mod tpch;
mod wide_files;
mod wrong_plans;

pub use calibrate::{Calibrated, calibrate, calibration_estimate, device_facts, device_page};
pub use database::Database;
pub use error::{Error, Result};
pub use file_sinks::nested_as_text;
pub use files::{expand as expand_files, looks_like_path};
pub use nandina_exec::memory::ResidentBound;
pub use nandina_exec::scan::guard::is_guarded;
pub use options::{IoBackend, MOST_THREADS, OpenDevice, Options, Settings, default_memory_limit};
pub use profile::{Operator, Profile, duration as format_duration, grouped as format_count};
pub use progress::{Progress, ProgressMeter};
pub use query::{Answer, Query};
pub use report::write_page;
pub use session::{Import, Session};
pub use settings::NAMES as SETTING_NAMES;
