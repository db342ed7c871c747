//! What can go wrong when a page is made.

pub type Result<T, E = ReportError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "the profile of {device} has incomplete tables, so there is nothing to draw; calibrate the device again"
    )]
    UnsoundProfile { device: String },

    #[error("the plot “{plot}” could not be drawn: {message}")]
    Plot { plot: String, message: String },

    #[error("the figures behind the page could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
