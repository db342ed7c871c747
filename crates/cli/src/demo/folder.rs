//! The folder that a demo writes to, which is gone however the demo ends.

use std::fs;
use std::path::{Path, PathBuf};

use nandina::Options;

use crate::failure::{Failure, Result};
use crate::say::note;

const FOLDER_PREFIX: &str = "nandina-demo-";

/// A folder of this process; removed with all in it when dropped.
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    /// In `parent`, or where temporary files belong. Folders that killed demos left there are removed first.
    pub fn create(parent: Option<&Path>) -> Result<Self> {
        let parent = match parent {
            Some(parent) => std::path::absolute(parent).map_err(|error| Failure::io("--temp-dir", error))?,
            None => nandina::Settings::resolve(&Options::default(), None)?.temp_directory,
        };
        remove_abandoned(&parent);
        let path = parent.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| Failure::io(format!("cannot create '{}'", path.display()), error))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            note!("note: '{}' could not be removed: {error}", self.path.display());
        }
    }
}

/// Removes folders of demos whose process is gone (it was killed).
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another user's cannot be removed; it is not ours to.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_removed_by_their_owner_or_the_next_demo() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this number: the kernel's largest is 4194304.
        let abandoned = parent.path().join(format!("{FOLDER_PREFIX}4294967295"));
        fs::create_dir(&abandoned).unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        assert!(!abandoned.exists() && folder.path.exists());
        drop(folder);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
