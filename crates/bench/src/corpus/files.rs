//! The files of corpora, and where each is counted.

use std::path::Path;

use super::children::CorpusFile;
use crate::error::{BenchError, Result};

/// How the names of test files end; DuckDB's slow ones end otherwise and are named one by one.
const EXTENSIONS: [&str; 2] = ["test", "slt"];

/// All test files below the folders and files that are given, sorted. They are counted by the folder that was given
/// and the one below it.
pub fn find(places: &[std::path::PathBuf]) -> Result<Vec<CorpusFile>> {
    let mut files = Vec::new();
    for place in places {
        let place = std::path::absolute(place).map_err(BenchError::file(place))?;
        let base = if place.is_dir() { place.as_path() } else { place.parent().unwrap_or(&place) };
        let root = base.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let before = files.len();
        collect(&place, base, &root, &mut files)?;
        if let Some(found) = files.get_mut(before..) {
            found.sort_by(|left, right| left.name.cmp(&right.name));
        }
    }
    if files.is_empty() {
        return Err(BenchError::Setup("there are no test files: name folders with *.test files".to_owned()));
    }
    Ok(files)
}

fn collect(place: &Path, base: &Path, root: &str, files: &mut Vec<CorpusFile>) -> Result<()> {
    if place.is_dir() {
        for entry in std::fs::read_dir(place).map_err(BenchError::file(place))? {
            let path = entry.map_err(BenchError::file(place))?.path();
            let is_test = path.extension().is_some_and(|is| EXTENSIONS.iter().any(|known| is == *known));
            if path.is_dir() || is_test {
                collect(&path, base, root, files)?;
            }
        }
        return Ok(());
    }
    let below = place.strip_prefix(base).unwrap_or(place);
    let folder = match below.components().next() {
        Some(first) if below.components().count() > 1 => {
            format!("{root}/{}", first.as_os_str().to_string_lossy())
        }
        _ => root.to_owned(),
    };
    let name = format!("{root}/{}", below.display());
    files.push(CorpusFile { path: place.to_path_buf(), name, folder });
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_are_counted_by_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("corpus");
        std::fs::create_dir_all(root.join("joins/inner")).unwrap();
        for name in ["joins/inner/a.test", "b.test", "b.txt"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let files = super::find(&[root]).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.folder.as_str())).collect();
        assert_eq!(found, [("corpus/b.test", "corpus"), ("corpus/joins/inner/a.test", "corpus/joins")]);
    }
}
