//! Where results go: standard output, or a file that takes its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use crate::arguments::Format;
use crate::failure::{Failure, Result};

/// The destination of all results of a run.
pub struct Sink {
    writer: Box<dyn Write + Send>,
    file: Option<Unfinished>,
    is_terminal: bool,
}

/// A file under a provisional name; removed unless it is finished.
struct Unfinished {
    provisional: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // Nothing more can be done about a file that cannot be removed.
            let _ = fs::remove_file(&self.provisional);
        }
    }
}

impl Sink {
    pub fn standard_output() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        Sink { writer: Box::new(BufWriter::new(out)), file: None, is_terminal }
    }

    /// A file, or whatever else has the name: a device, a pipe.
    pub fn file(path: &Path) -> Result<Self> {
        let fail = |error| Failure::io(format!("cannot write '{}'", path.display()), error);
        // Behind a link, the file that it leads to is replaced.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if fs::metadata(path).is_ok_and(|existing| !existing.is_file()) {
            let other = File::options().write(true).open(path).map_err(fail)?;
            return Ok(Sink { writer: Box::new(BufWriter::new(other)), file: None, is_terminal: false });
        }
        let (provisional, file) = provisional_file(path).map_err(fail)?;
        let file_entry = Unfinished { provisional, path: path.clone(), is_finished: false };
        Ok(Sink { writer: Box::new(BufWriter::new(file)), file: Some(file_entry), is_terminal: false })
    }

    /// Whether a person looks at it.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub fn writer(&mut self) -> &mut (dyn Write + Send) {
        self.writer.as_mut()
    }

    /// Makes everything visible that was written.
    pub fn finish(mut self) -> Result<()> {
        self.writer.flush().map_err(super::output_failure)?;
        if let Some(file) = &mut self.file {
            fs::rename(&file.provisional, &file.path)
                .map_err(|error| Failure::io(format!("cannot write '{}'", file.path.display()), error))?;
            file.is_finished = true;
        }
        Ok(())
    }
}

/// A new file beside `path`, under a name that is not taken.
fn provisional_file(path: &Path) -> io::Result<(PathBuf, File)> {
    for number in 0_u64.. {
        let mut name = path.file_name().map(std::ffi::OsStr::to_os_string).unwrap_or_default();
        name.push(format!(".unfinished-{}-{number}", std::process::id()));
        let provisional = path.with_file_name(name);
        match File::create_new(&provisional) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (provisional, file)),
        }
    }
    unreachable!("there are more names than files")
}

/// The format that a file's name asks for.
pub fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => Some(Format::Csv),
        "json" | "ndjson" | "jsonl" => Some(Format::Json),
        "parquet" | "pq" => Some(Format::Parquet),
        "txt" => Some(Format::Table),
        _ => None,
    }
}
