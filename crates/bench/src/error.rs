//! What can keep a measurement from being made.

use std::path::{Path, PathBuf};

pub type Result<T, E = BenchError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },

    #[error("cannot run {program}: {source}; {hint}")]
    Program { program: String, source: std::io::Error, hint: &'static str },

    #[error("{0}")]
    Setup(String),

    #[error("{} is not what this program writes: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },

    #[error("drawing {}: {message}", path.display())]
    Plot { path: PathBuf, message: String },

    #[error(transparent)]
    Device(#[from] nandina_device::Error),

    #[error(transparent)]
    Spill(#[from] nandina_spill::SpillError),

    #[error(transparent)]
    Page(#[from] nandina_pages::PageError),

    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
}

impl BenchError {
    /// For `map_err` after work on a file.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| BenchError::File { path, source }
    }
}
