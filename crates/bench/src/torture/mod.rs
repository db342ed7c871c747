//! Does it hold? The program as users run it, under what may happen to it.
//!
//! A [`Trial`] starts the program, does something to it or to its files, and looks from outside at what became of them:
//! [`ends`] kills it and takes the file system away, [`signals`] interrupts it, [`damage`] changes its files, [`inputs`]
//! gives it files and statements that nobody would write, [`places`] lets it write where it cannot, [`company`] runs many
//! at once, and [`memory`] looks how much of it is resident. [`run`] tries all of them in turn.

mod changes;
mod company;
mod damage;
mod disk;
mod ends;
mod inputs;
pub mod memory;
mod places;
mod signals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::program::Program;

use crate::error::{BenchError, Result};
use crate::random::Random;
use crate::table::Table;

/// What became of one attempt.
#[derive(Debug)]
pub enum Verdict {
    /// It held; in a word, how.
    Held(&'static str),
    /// It did not, with all that is known.
    Broke(String),
}

/// Something that may happen to the program.
trait Trial {
    fn name(&self) -> &'static str;

    /// What is done, and what must be so afterwards.
    fn about(&self) -> &'static str;

    /// Tries it once in `folder`, which is empty. An error means that it could not be tried.
    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict>;
}

/// What to try.
#[derive(Debug, Clone)]
pub struct Plan {
    pub program: Program,
    /// Scratch folder, on the device to be used.
    pub work: PathBuf,
    /// Attempts that broke are kept here.
    pub out: Option<PathBuf>,
    pub seed: u64,
    pub duration: Duration,
    /// Attempts of each trial at most.
    pub attempts: u64,
    /// Trials to run; all of none.
    pub only: Vec<String>,
}

/// Attempts of one trial.
#[derive(Debug, Default)]
struct Tally {
    about: &'static str,
    held: BTreeMap<&'static str, u64>,
    broke: Vec<u64>,
    /// Why it could not be tried.
    skipped: Option<String>,
}

/// Attempts of all trials.
#[derive(Debug)]
pub struct Report {
    tallies: Vec<(&'static str, Tally)>,
    elapsed: Duration,
}

/// Names of all trials.
pub fn names() -> Vec<&'static str> {
    trials().iter().map(|trial| trial.name()).collect()
}

fn trials() -> Vec<Box<dyn Trial>> {
    vec![
        Box::new(ends::Killed),
        Box::new(ends::PowerLost),
        Box::new(signals::Interrupted),
        Box::new(damage::Damaged::default()),
        Box::new(inputs::OddFiles::default()),
        Box::new(inputs::OddStatements::default()),
        Box::new(places::FullDisk),
        Box::new(places::Limited),
        Box::new(places::Vanished),
        Box::new(company::Together),
        Box::new(memory::Resident),
    ]
}

/// Tries everything in turn until the time is over.
pub fn run(plan: &Plan) -> Result<Report> {
    let start = Instant::now();
    let mut trials = trials();
    trials.retain(|trial| plan.only.is_empty() || plan.only.iter().any(|name| name == trial.name()));
    let empty = |trial: &dyn Trial| (trial.name(), Tally { about: trial.about(), ..Tally::default() });
    let mut tallies: Vec<_> = trials.iter().map(|trial| empty(trial.as_ref())).collect();
    for number in 0..plan.attempts {
        for (trial, (name, tally)) in trials.iter_mut().zip(&mut tallies) {
            let name: &str = name;
            if start.elapsed() >= plan.duration {
                return Ok(Report { tallies, elapsed: start.elapsed() });
            }
            if tally.skipped.is_some() {
                continue;
            }
            let seed = plan.seed + number;
            let folder = plan.work.join(name);
            make_empty(&folder)?;
            match trial.attempt(&plan.program, &folder, &mut Random::new(seed)) {
                Ok(Verdict::Held(how)) => *tally.held.entry(how).or_default() += 1,
                Ok(Verdict::Broke(message)) => {
                    eprintln!("{name}, seed {seed}: {message}\n");
                    tally.broke.push(seed);
                    keep(plan, name, seed, &folder, &message)?;
                }
                Err(error) => {
                    eprintln!("{name}, seed {seed}, cannot be tried: {error}\n");
                    tally.skipped = error.to_string().lines().next().map(str::to_owned);
                }
            }
        }
    }
    Ok(Report { tallies, elapsed: start.elapsed() })
}

fn make_empty(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BenchError::file(folder)(error)),
        _ => std::fs::create_dir_all(folder).map_err(BenchError::file(folder)),
    }
}

/// Files of a trial that broke are kept if they are no larger together.
const MOST_KEPT_BYTES: u64 = 64 << 20;

/// Keeps the files of an attempt that broke, and what is known of it.
fn keep(plan: &Plan, name: &str, seed: u64, folder: &Path, message: &str) -> Result<()> {
    let Some(out) = &plan.out else { return Ok(()) };
    let place = out.join(format!("{name}-{seed}"));
    make_empty(&place)?;
    let text = place.join("what.txt");
    std::fs::write(&text, message).map_err(BenchError::file(&text))?;
    // The seed makes large ones again, which would fill the disk in half an hour; and across file systems a folder cannot
    // be moved.
    if bytes_below(folder) <= MOST_KEPT_BYTES {
        let _ = std::fs::rename(folder, place.join("files"));
    }
    Ok(())
}

/// Bytes of the files in a folder, as far as it can be read.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

impl Report {
    pub fn broke(&self) -> usize {
        self.tallies.iter().map(|(_, tally)| tally.broke.len()).sum()
    }

    pub fn attempts(&self) -> u64 {
        let of = |tally: &Tally| tally.held.values().sum::<u64>() + tally.broke.len() as u64;
        self.tallies.iter().map(|(_, tally)| of(tally)).sum()
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new(2, ["trial", "what became of it", "tries", "broke"]);
        for (name, tally) in &self.tallies {
            let mut how: Vec<String> =
                tally.held.iter().map(|(how, times)| format!("{how} {times}")).collect();
            how.extend(tally.skipped.iter().map(|reason| format!("cannot be tried: {reason}")));
            let tries = tally.held.values().sum::<u64>() + tally.broke.len() as u64;
            table.row([(*name).to_owned(), how.join(", "), tries.to_string(), tally.broke.len().to_string()]);
        }
        table
    }

    /// A page's text: what each trial does, and the table.
    pub fn to_markdown(&self) -> String {
        let about = |(name, tally): &(&str, Tally)| format!("- *{name}*: {}\n", tally.about);
        let abouts: String = self.tallies.iter().map(about).collect();
        format!(
            "{abouts}\n{} tries in {:.0} minutes:\n\n{}",
            self.attempts(),
            self.elapsed.as_secs_f64() / 60.0,
            self.table().to_markdown()
        )
    }
}
