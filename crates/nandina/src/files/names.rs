//! Which files a name stands for, and what their names say of them.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use crate::error::{Error, Result};
use crate::suggestion;

/// Formats that can be read, by extension.
const EXTENSIONS: [(&str, Format); 11] = [
    ("parquet", Format::Parquet),
    ("pq", Format::Parquet),
    ("csv", Format::Csv),
    ("tsv", Format::Csv),
    ("tbl", Format::Csv),
    ("json", Format::Json),
    ("ndjson", Format::Json),
    ("jsonl", Format::Json),
    ("arrow", Format::Arrow),
    ("feather", Format::Arrow),
    ("ipc", Format::Arrow),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Csv,
    Json,
    Arrow,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Parquet => "Parquet",
            Format::Csv => "CSV",
            Format::Json => "JSON",
            Format::Arrow => "Arrow IPC",
        }
    }

    /// The format of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "parquet" => Some(Format::Parquet),
            "csv" => Some(Format::Csv),
            "json" | "ndjson" => Some(Format::Json),
            "arrow" => Some(Format::Arrow),
            _ => None,
        }
    }

    /// What the name of a file says.
    pub(crate) fn of_name(file: &str) -> Option<Self> {
        kind_of(Path::new(file)).ok().map(|kind| kind.format)
    }

    /// The name that DataFusion has for it.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Arrow => "arrow",
        }
    }

    /// The format that a reader of DataFusion's is for, if it is one of these.
    pub(super) fn of_reader(reader: &dyn FileFormat) -> Option<Self> {
        match reader.get_ext().as_str() {
            "parquet" => Some(Format::Parquet),
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "arrow" => Some(Format::Arrow),
            _ => None,
        }
    }
}

/// What a path's extension says: `logs.csv.gz` is CSV, compressed by gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub format: Format,
    pub compression: FileCompressionType,
}

/// Whether a name stands for files rather than for a table.
pub fn looks_like_path(name: &str) -> bool {
    let has_known_extension = || kind_of(Path::new(name)).is_ok();
    name.contains('/') || name.starts_with('~') || is_pattern(name) || has_known_extension()
}

/// `~` and relative paths as absolute ones.
pub(crate) fn absolute_path(path: &str) -> Result<PathBuf> {
    let home =
        || std::env::var_os("HOME").map(PathBuf::from).ok_or_else(|| Error::file(path, "HOME is not set"));
    let path_buf = match path.strip_prefix('~') {
        Some("") => home()?,
        Some(rest) if rest.starts_with('/') => home()?.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path.strip_prefix("file://").unwrap_or(path)),
    };
    std::path::absolute(&path_buf).map_err(|error| Error::file(path, describe(&error)))
}

/// The files that `name` stands for, in order; at least one, all of which can be read.
pub fn expand(name: &str) -> Result<Vec<PathBuf>> {
    let path = absolute_path(name)?;
    let files = if path.is_dir() {
        known_files_below(&path, name)?
    } else if path.exists() || !is_pattern(name) {
        vec![path]
    } else {
        let files = matching(name)?;
        if files.is_empty() {
            return Err(Error::file(name, "no file matches this pattern"));
        }
        files
    };
    for file in &files {
        check_readable(file, name, files.len() > 1)?;
    }
    Ok(files)
}

/// The files that `name` stands for, if there are any.
pub(super) fn existing(name: &str) -> Result<Vec<PathBuf>> {
    let exists = match is_pattern(name) {
        true => !matching(name)?.is_empty(),
        false => absolute_path(name)?.exists(),
    };
    if exists { expand(name) } else { Ok(Vec::new()) }
}

/// The files that a pattern matches, in order.
pub(super) fn matching(name: &str) -> Result<Vec<PathBuf>> {
    let path = absolute_path(name)?;
    let pattern = path.to_str().ok_or_else(|| Error::file(name, "the name is not UTF-8"))?;
    // `**` alone stands for folders.
    let pattern = if pattern.ends_with("/**") { format!("{pattern}/*") } else { pattern.to_owned() };
    let found = glob::glob(&pattern).map_err(|error| Error::file(name, format!("not a pattern: {error}")))?;
    let unreadable = |error: glob::GlobError| Error::file(display(error.path()), describe(error.error()));
    let mut files = found.map(|path| path.map_err(unreadable)).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    Ok(files)
}

pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

pub(crate) fn display(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission to read it".to_owned(),
        _ => error.to_string(),
    }
}

fn check_readable(file: &Path, name: &str, is_one_of_many: bool) -> Result<()> {
    let shown = if is_one_of_many { display(file) } else { name.to_owned() };
    match File::open(file) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::file(shown, format!("no such file{}", similar_file(file))));
        }
        Err(error) => return Err(Error::file(shown, describe(&error))),
    }
    if std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
        return Err(Error::file(shown, "the file is empty"));
    }
    Ok(())
}

/// "; did you mean …?" with the nearest name in the same folder.
fn similar_file(missing: &Path) -> String {
    let (Some(folder), Some(name)) = (missing.parent(), missing.file_name().and_then(|name| name.to_str()))
    else {
        return String::new();
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return format!(" (there is no folder '{}')", folder.display());
    };
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    suggestion::phrase(name, names.iter().map(String::as_str))
}

/// The files of known formats in a folder and the folders below it, in the order of their names.
fn known_files_below(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    // Links may lead to a folder again.
    let mut seen = HashSet::new();
    while let Some(next) = folders.pop() {
        let real = next.canonicalize().map_err(|error| Error::file(display(&next), describe(&error)))?;
        if !seen.insert(real) {
            continue;
        }
        let entries =
            std::fs::read_dir(&next).map_err(|error| Error::file(display(&next), describe(&error)))?;
        for entry in entries {
            let path = entry.map_err(|error| Error::file(display(&next), describe(&error)))?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.is_dir() && !is_hidden {
                folders.push(path);
            } else if !is_hidden && kind_of(&path).is_ok() {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        return Err(Error::file(name, "the folder holds no Parquet, CSV, JSON or Arrow file"));
    }
    files.sort();
    Ok(files)
}

/// What the names of all files say, which is the same.
pub(super) fn common_kind(name: &str, files: &[PathBuf]) -> Result<Kind> {
    let mut common: Option<(Kind, &Path)> = None;
    for file in files {
        let shown = if files.len() == 1 { name.to_owned() } else { display(file) };
        let kind = kind_of(file).map_err(|message| Error::file(shown, message))?;
        match common {
            None => common = Some((kind, file)),
            Some((other, _)) if other == kind => {}
            Some((_, other_file)) => {
                return Err(Error::file(
                    name,
                    format!(
                        "a table is of one format, but '{}' and '{}' differ",
                        display(other_file),
                        display(file)
                    ),
                ));
            }
        }
    }
    common.map(|(kind, _)| kind).ok_or_else(|| Error::file(name, "no such file"))
}

/// The kind of files of a format that is known; their names tell how they are compressed, unless that is known, too.
pub(super) fn kind_as(format: Format, compression: Option<FileCompressionType>, files: &[PathBuf]) -> Kind {
    let is_text = matches!(format, Format::Csv | Format::Json);
    let named = || match files.first() {
        Some(first) if is_text => without_compression(&lower_name(first)).1,
        _ => FileCompressionType::UNCOMPRESSED,
    };
    Kind { format, compression: compression.unwrap_or_else(named) }
}

/// A way of compressing files by its name.
pub(crate) fn compression_named(name: &str) -> Option<FileCompressionType> {
    Some(match name.to_lowercase().as_str() {
        "none" | "uncompressed" => FileCompressionType::UNCOMPRESSED,
        "gzip" | "gz" => FileCompressionType::GZIP,
        "zstd" | "zst" => FileCompressionType::ZSTD,
        "bz2" | "bzip2" => FileCompressionType::BZIP2,
        "xz" => FileCompressionType::XZ,
        _ => return None,
    })
}

/// How a file of this name is compressed, if it is.
pub(crate) fn compression_of(file: &str) -> Option<&'static str> {
    match without_compression(&lower_name(Path::new(file))).1 {
        FileCompressionType::GZIP => Some("gzip"),
        FileCompressionType::ZSTD => Some("zstd"),
        FileCompressionType::BZIP2 => Some("bzip2"),
        FileCompressionType::XZ => Some("xz"),
        _ => None,
    }
}

fn lower_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// A file's name without the ending that tells how it is compressed.
fn without_compression(lower: &str) -> (&str, FileCompressionType) {
    let compressions = [
        (".gz", FileCompressionType::GZIP),
        (".bz2", FileCompressionType::BZIP2),
        (".xz", FileCompressionType::XZ),
        (".zst", FileCompressionType::ZSTD),
    ];
    let compressed =
        compressions.into_iter().find_map(|(ending, kind)| Some((lower.strip_suffix(ending)?, kind)));
    compressed.unwrap_or((lower, FileCompressionType::UNCOMPRESSED))
}

fn kind_of(path: &Path) -> Result<Kind, String> {
    let lower = lower_name(path);
    let (stem, compression) = without_compression(&lower);
    let extension = stem.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    let format = EXTENSIONS.iter().find(|(known, _)| *known == extension).map(|(_, format)| *format);
    match format {
        Some(format @ (Format::Parquet | Format::Arrow))
            if compression != FileCompressionType::UNCOMPRESSED =>
        {
            Err(format!("{} files are compressed inside; unpack it first", format.name()))
        }
        Some(format) => Ok(Kind { format, compression }),
        None => {
            Err("its format is not known; files that end in .parquet, .csv, .tsv, .json, .ndjson or .arrow \
                     can be read, text ones also compressed (.gz, .zst, .bz2, .xz)"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_not_paths() {
        for path in ["orders.parquet", "data/x", "~/a.csv", "*.csv", "a.ndjson.gz", "/x/y.PARQUET"] {
            assert!(looks_like_path(path), "{path}");
        }
        for name in ["orders", "public.orders", "my table", "a.b.c"] {
            assert!(!looks_like_path(name), "{name}");
        }
    }

    #[test]
    fn extensions_tell_format_and_compression() {
        let kind = kind_of(Path::new("a.CSV.gz")).unwrap();
        assert_eq!((kind.format, kind.compression), (Format::Csv, FileCompressionType::GZIP));
        assert!(kind_of(Path::new("a.parquet.gz")).unwrap_err().contains("compressed inside"));
        assert!(kind_of(Path::new("a.xlsx")).unwrap_err().contains("not known"));
    }

    #[test]
    fn a_missing_file_gets_the_nearest_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("orders.csv"), "a\n1\n").unwrap();
        let missing = folder.path().join("order.csv");
        let message = expand(missing.to_str().unwrap()).unwrap_err().to_string();
        assert!(message.contains("no such file; did you mean 'orders.csv'?"), "{message}");
    }

    #[test]
    fn patterns_expand_in_order_and_folders_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        for name in ["b.csv", "a.csv", "sub/c.csv", "notes.txt"] {
            std::fs::write(folder.path().join(name), "x\n1\n").unwrap();
        }
        let names = |pattern: &str| -> Vec<String> {
            let pattern = folder.path().join(pattern);
            let files = expand(pattern.to_str().unwrap()).unwrap();
            files.iter().map(|file| file.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names("*.csv"), ["a.csv", "b.csv"]);
        assert_eq!(names(""), ["a.csv", "b.csv", "sub/c.csv"]);
        let nothing = folder.path().join("*.json");
        assert!(expand(nothing.to_str().unwrap()).unwrap_err().to_string().contains("no file matches"));
    }
}
