//! Running the program, and what is wrong with any run whatever it was asked.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::system;

/// Words that no message may have: they are what a mistake of ours looks like from outside.
const MISTAKES: [&str; 5] =
    ["panicked", "please report", "Internal error", "RUST_BACKTRACE", "stack overflow"];

/// The program under test.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
}

impl Program {
    /// The program at `path`, or the one beside this one.
    pub fn beside(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .map(|this| this.with_file_name("nandina"))
                .map_err(|error| BenchError::Setup(format!("name the program with --program: {error}")))?,
        };
        Ok(Self { path: path.canonicalize().map_err(BenchError::file(&path))? })
    }

    /// The program, to be run in `folder`, which also gets what it says.
    pub fn command(&self, folder: &Path) -> Command {
        self.below_limits(folder, "")
    }

    /// The same below limits of the shell, as `ulimit -f 100;`.
    pub fn below_limits(&self, folder: &Path, limits: &str) -> Command {
        let mut command = if limits.is_empty() {
            Command::new(&self.path)
        } else {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{limits} exec \"$0\" \"$@\"")).arg(&self.path);
            shell
        };
        command.current_dir(folder).env_remove("NANDINA_MEMORY_LIMIT").env_remove("NANDINA_TEMP_DIR");
        command.env("XDG_CACHE_HOME", folder.join("cache")).stdin(Stdio::null());
        command
    }
}

/// A run that has not ended yet.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The most memory that has been seen to be resident.
    peak_bytes: u64,
    /// Bytes that it has had read from devices.
    device_read_bytes: u64,
    start: Instant,
    out: PathBuf,
    err: PathBuf,
    shown: String,
}

impl Running {
    /// Starts a command whose words go to files beside `name`.
    pub fn start(command: &mut Command, name: &Path) -> Result<Self> {
        let (out, err) = (name.with_extension("out"), name.with_extension("err"));
        let file = |path: &Path| File::create(path).map_err(BenchError::file(path));
        command.stdout(file(&out)?).stderr(file(&err)?);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let shown = words.collect::<Vec<_>>().join(" ");
        let start = Instant::now();
        let child = command.spawn().map_err(|source| BenchError::Program {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
            hint: "build it with `cargo build --release -p nandina-cli`, or name it with --program",
        })?;
        Ok(Self { child, peak_bytes: 0, device_read_bytes: 0, start, out, err, shown })
    }

    /// Waits at most `patience`; kills it then.
    pub fn wait(mut self, patience: Duration) -> Result<Ran> {
        let start = Instant::now();
        let mut was_given_up = false;
        loop {
            if let Some(status) = self.has_ended()? {
                return Ok(self.ran(status, was_given_up));
            }
            if !was_given_up && start.elapsed() > patience {
                was_given_up = true;
                self.signal(libc::SIGKILL)?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until `elapsed` since it was started, and says whether it still runs; the run if not.
    pub fn wait_until(mut self, elapsed: Duration) -> Result<std::result::Result<Self, Ran>> {
        while self.start.elapsed() < elapsed {
            if let Some(status) = self.has_ended()? {
                return Ok(Err(self.ran(status, false)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Ok(self))
    }

    pub fn signal(&self, signal: i32) -> Result<()> {
        system::signal(self.child.id(), signal).map_err(|source| self.failed(source))
    }

    /// Looks whether it has ended, and how much is resident and has been read until then. The system's own peak of a child
    /// that has ended (`ru_maxrss`) begins with what its parent had when it was started.
    fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        // What has ended tells nothing any more: what it told last stands.
        if let Some(peak_kb) = self.told("status", "VmHWM:") {
            self.peak_bytes = self.peak_bytes.max(peak_kb * 1024);
        }
        if let Some(read_bytes) = self.told("io", "read_bytes:") {
            self.device_read_bytes = self.device_read_bytes.max(read_bytes);
        }
        self.child.try_wait().map_err(|source| self.failed(source))
    }

    /// A number that the system tells of it, by the word in front; none when it has ended.
    fn told(&self, file: &str, word: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix(word))?.trim();
        number.trim_end_matches(" kB").parse().ok()
    }

    fn failed(&self, source: io::Error) -> BenchError {
        BenchError::Program {
            program: self.shown.clone(),
            source,
            hint: "it should be a child of this process",
        }
    }

    fn ran(&self, status: ExitStatus, was_given_up: bool) -> Ran {
        Ran {
            out: text(&self.out),
            err: text(&self.err),
            code: status.code(),
            signal: status.signal(),
            was_given_up,
            seconds: self.start.elapsed().as_secs_f64(),
            peak_bytes: self.peak_bytes,
            device_read_bytes: self.device_read_bytes,
            shown: self.shown.clone(),
        }
    }
}

/// Output may be cut inside a character, where a process was killed.
fn text(path: &Path) -> String {
    std::fs::read(path)
        .map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command to its end.
pub fn run(command: &mut Command, name: &Path, patience: Duration) -> Result<Ran> {
    Running::start(command, name)?.wait(patience)
}

/// A run that has ended.
#[derive(Debug, Clone)]
pub struct Ran {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub was_given_up: bool,
    pub seconds: f64,
    pub peak_bytes: u64,
    pub device_read_bytes: u64,
    shown: String,
}

impl Ran {
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// What is wrong with this run, if it was to end by itself: it must, with an answer or with an error in its own words.
    pub fn mistake(&self) -> Option<String> {
        if self.was_given_up {
            return Some(self.describe("did not end"));
        }
        if let Some(signal) = self.signal {
            return Some(self.describe(&format!("was ended by signal {signal}")));
        }
        if MISTAKES.iter().any(|word| self.err.contains(word)) {
            return Some(self.describe("failed by a mistake of its own"));
        }
        if !self.is_ok() && self.err.trim().is_empty() {
            return Some(self.describe("failed without a word"));
        }
        None
    }

    /// The run, for a report.
    pub fn describe(&self, what: &str) -> String {
        let cut = |text: &str| text.chars().take(2000).collect::<String>();
        let [shown, out, err] = [&self.shown, &self.out, &self.err].map(|text| cut(text));
        format!("{what}\n$ nandina {shown}\ncode {:?}, {:.1} s\n{out}\n{err}", self.code, self.seconds)
    }
}
