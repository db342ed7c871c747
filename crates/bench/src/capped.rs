//! Runs this program again, as a process of its own below a hard cap of memory that counts the page cache.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::runner;

const CAPPED: &str = include_str!("../peers/capped.py");

/// What the capping program tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Usage {
    pub peak_rss: u64,
    pub status: i32,
}

/// Where the capping program is.
#[derive(Debug, Clone)]
pub struct Capping {
    work: PathBuf,
    /// Another one, with the same options and the same report.
    program: Option<PathBuf>,
}

fn said(error: impl ToString) -> BenchError {
    BenchError::Setup(error.to_string())
}

impl Capping {
    pub fn new(work: &Path, program: Option<&Path>) -> Result<Self> {
        std::fs::create_dir_all(work).map_err(BenchError::file(work))?;
        runner::write(&work.join("capped.py"), CAPPED)?;
        Ok(Self { work: work.to_owned(), program: program.map(Path::to_owned) })
    }

    /// Has a process do a task, which it gets behind `--task`, and reads what it prints; what it said instead if it did not end
    /// well. With what it used.
    pub fn attempt<T: DeserializeOwned>(
        &self,
        task: &impl Serialize,
        cap_bytes: u64,
    ) -> Result<(std::result::Result<T, String>, Usage)> {
        let path = self.work.join("usage.json");
        let this = std::env::current_exe().map_err(said)?;
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => {
                let mut command = Command::new("python3");
                command.arg(self.work.join("capped.py"));
                command
            }
        };
        let task = serde_json::to_string(task).map_err(said)?;
        command.args(["--memory", &cap_bytes.to_string(), "--timeout", "900", "--json"]).arg(&path);
        command.args([OsStr::new("--"), this.as_os_str(), OsStr::new("--task"), OsStr::new(&task)]);
        let output = command.stdin(Stdio::null()).output().map_err(|source| BenchError::Program {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
            hint: "it caps the memory of what is measured",
        })?;
        let usage: Usage = runner::read_json(&path)?
            .ok_or_else(|| BenchError::Setup("the capping program reported nothing".to_owned()))?;
        if usage.status != 0 {
            return Ok((Err(String::from_utf8_lossy(&output.stderr).into_owned()), usage));
        }
        Ok((Ok(serde_json::from_slice(&output.stdout).map_err(said)?), usage))
    }
}

/// In such a process: does the task, and prints what came of it.
pub fn answer<T: DeserializeOwned, O: Serialize>(
    task: &str,
    run: impl FnOnce(&T) -> Result<O>,
) -> Result<()> {
    let task: T = serde_json::from_str(task).map_err(said)?;
    println!("{}", serde_json::to_string(&run(&task)?).map_err(said)?);
    Ok(())
}
