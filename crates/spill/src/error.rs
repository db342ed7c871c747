//! What can go wrong with temporary space.

use std::sync::Arc;

pub type Result<T, E = SpillError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    #[error(
        "temporary space is used up: {label} needs {wanted_bytes} more bytes, {used_bytes} of the quota of \
         {quota_bytes} are in use; raise the quota (SET temp_quota) or the memory limit (SET memory_limit)"
    )]
    QuotaExceeded { label: String, wanted_bytes: u64, used_bytes: u64, quota_bytes: u64 },

    #[error(
        "no space left in the temporary folder {}: {label} needs {wanted_bytes} more bytes; free some space, \
         or choose a folder on another disk (SET temp_directory)",
        folder.display()
    )]
    DiskFull { label: String, folder: std::path::PathBuf, wanted_bytes: u64 },

    #[error(
        "{label} has written {extents} extents of temporary space, which is as many as it can number; raise the memory \
         limit (SET memory_limit), or sort whole rows (SET sort_algorithm = 'merge')"
    )]
    TooManyExtents { label: String, extents: usize },

    #[error("'{name}' is not one of {}", known.join(", "))]
    UnknownPolicy { name: String, known: Vec<&'static str> },

    #[error("temporary files in {}: {source}", folder.display())]
    Folder { folder: std::path::PathBuf, source: nandina_device::Error },

    #[error(transparent)]
    Io(#[from] nandina_device::Error),

    #[error("{}", of_page(.0))]
    Page(#[from] nandina_pages::PageError),

    /// A failure that several waited for.
    #[error(transparent)]
    Shared(#[from] Arc<SpillError>),

    #[error("{}", damaged("a group of compressed pages", reason))]
    Damaged { reason: String },

    #[error("a read of {pieces} spilled pages returned no data; this is a defect, please report it")]
    LostRead { pieces: usize },
}

fn of_page(error: &nandina_pages::PageError) -> String {
    match error {
        // Temporary files are read by the process that wrote them.
        nandina_pages::PageError::Version { page_number, found, .. } => {
            damaged("a page", format!("page {page_number} says that its format version is {found}"))
        }
        error if error.is_damage() => damaged("a page", error),
        error => error.to_string(),
    }
}

fn damaged(what: &str, reason: impl std::fmt::Display) -> String {
    format!(
        "{what} in temporary space is damaged ({reason}): the disk, or what leads to it, lost or changed what was \
         written; choose a folder on another disk (SET temp_directory)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_temporary_data_is_told_as_such() {
        let page = nandina_pages::PageError::HeaderChecksum { page_number: 7, found: 1, computed: 2 };
        let told = SpillError::from(page).to_string();
        assert!(told.starts_with("a page in temporary space is damaged (header of page 7"), "{told}");
        assert!(told.contains("SET temp_directory"), "{told}");
        let version = nandina_pages::PageError::Version { page_number: 7, found: 513, supported: 2 };
        let told = SpillError::from(version).to_string();
        assert!(told.starts_with("a page in temporary space is damaged (page 7 says"), "{told}");
        let long = nandina_pages::PageError::NoSuchColumn { column: 3, columns: 2 };
        assert_eq!(SpillError::from(long).to_string(), "column number 3 was asked for, the page has 2");
    }
}
