//! Files that are being written have another name until they are whole.

use std::fs;
use std::path::{Path, PathBuf};

use datafusion::logical_expr::dml::CopyTo;

use crate::error::{Error, Result};

/// What stands before the name of a file while this process writes it.
fn provisional_prefix() -> String {
    format!(".unfinished-{}-", std::process::id())
}

/// Whether a file gets another name once it is whole.
pub(crate) fn is_provisional(path: &Path) -> bool {
    final_name(path).is_some()
}

/// The path that a file will have once it is whole.
pub(crate) fn final_path(path: &Path) -> PathBuf {
    final_name(path).map_or_else(|| path.to_owned(), |name| path.with_file_name(name))
}

fn final_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix(&provisional_prefix())
}

/// A file that is being written; removed unless it is finished.
pub(crate) struct Provisional {
    pub provisional: PathBuf,
    target: PathBuf,
}

impl Provisional {
    /// None when a folder of files is written: its name ends with `/`, has no extension, or it is partitioned.
    pub(crate) fn of(copy: &CopyTo) -> Result<Option<Self>> {
        let target = PathBuf::from(&copy.output_url);
        if copy.output_url.ends_with('/') || copy.output_url.contains("://") || !copy.partition_by.is_empty()
        {
            return Ok(None);
        }
        // The extension stays: DataFusion decides by it whether to write one file, unless that is said.
        let is_one = copy.options.get("single_file_output").is_some_and(|is_one| is_one == "true");
        let name = target.file_name().filter(|_| is_one || target.extension().is_some());
        let name = name.and_then(|name| name.to_str());
        let name = name.map(|name| format!("{}{name}", provisional_prefix()));
        // Behind a link, the file that it leads to is replaced.
        let target = fs::canonicalize(&target).unwrap_or(target);
        if fs::metadata(&target).is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
            let message = "it is not a regular file, which COPY would replace; the program writes results to anything \
                           with -o";
            return Err(Error::file(&copy.output_url, message));
        }
        Ok(name.map(|name| Provisional { provisional: target.with_file_name(name), target }))
    }

    /// A file in a folder that is written.
    pub(crate) fn at(target: &Path) -> Result<Self> {
        let name = target.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::file(target.display().to_string(), "the name is not UTF-8"))?;
        let provisional = target.with_file_name(format!("{}{name}", provisional_prefix()));
        Ok(Provisional { provisional, target: target.to_owned() })
    }

    /// The file gets its name, without waiting until it is on the device: it is one of many.
    pub(crate) fn take_place(self) -> Result<()> {
        let fail = |error: std::io::Error| Error::file(self.target.display().to_string(), error.to_string());
        fs::rename(&self.provisional, &self.target).map_err(fail)
    }

    /// Where the file is going to be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn finish(self) -> Result<()> {
        let fail = |error: std::io::Error| Error::file(self.target.display().to_string(), error.to_string());
        if !self.provisional.exists() {
            // A result without rows writes nothing in some formats; then nothing takes the target's place.
            return Ok(());
        }
        fs::File::open(&self.provisional).and_then(|file| file.sync_all()).map_err(fail)?;
        fs::rename(&self.provisional, &self.target).map_err(fail)
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        // Absent after success.
        let _ = fs::remove_file(&self.provisional);
    }
}
