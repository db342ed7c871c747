//! The process or the machine ends in the middle of statements that change a database.

use std::path::Path;
use std::time::Duration;

use super::changes::{Change, State, acknowledged, expected, found, script};
use super::disk::Disk;
use super::{Trial, Verdict};
use crate::error::{BenchError, Result};
use crate::program::{Program, Running};
use crate::random::Random;

/// Ends of one database.
const ROUNDS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// SIGKILL at a random time.
pub(super) struct Killed;

impl Trial for Killed {
    fn name(&self) -> &'static str {
        "killed"
    }

    fn about(&self) -> &'static str {
        "SIGKILL while tables are created, extended, replaced, copied and dropped, four times for each database; the next \
         start finds every statement that was acknowledged, at most one more, all of it or none, and no temporary file"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let database = folder.join("db");
        rounds(program, folder, &database, random, |running| {
            running.signal(libc::SIGKILL)?;
            running.wait(PATIENCE).map(|ran| ran.out)
        })
    }
}

/// The file system ends at a random time.
pub(super) struct PowerLost;

impl Trial for PowerLost {
    fn name(&self) -> &'static str {
        "power lost"
    }

    fn about(&self) -> &'static str {
        "the same, but the file system (ext4 on a loop device) is shut down without writing what it holds (as xfstests' \
         *godown*), the process killed, and the file system mounted again, which replays its journal"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let disk = Disk::new(folder, "ext4", 1 << 30)?;
        rounds(program, folder, &disk.folder.join("db"), random, |running| {
            disk.lose_power()?;
            running.signal(libc::SIGKILL)?;
            let printed = running.wait(PATIENCE)?.out;
            disk.restart()?;
            Ok(printed)
        })
    }
}

/// Runs statements, lets `end` end them and tell what was printed, and compares what is found with what may be there.
fn rounds(
    program: &Program,
    folder: &Path,
    database: &Path,
    random: &mut Random,
    mut end: impl FnMut(Running) -> Result<String>,
) -> Result<Verdict> {
    let mut state = State::new();
    let mut was_ended = false;
    for _ in 0..ROUNDS {
        let mut states = vec![state.clone()];
        let mut changes = Vec::new();
        for _ in 0..random.between(4, 12) {
            let change = Change::random(random, &state);
            change.apply(&mut state);
            states.push(state.clone());
            changes.push(change);
        }
        let file = folder.join("changes.sql");
        std::fs::write(&file, script(&changes)).map_err(BenchError::file(&file))?;
        let mut command = program.command(folder);
        command.arg(database).args(["--format", "csv", "-f"]).arg(&file);
        let running = Running::start(&mut command, &folder.join("run"))?;
        let printed = match running.wait_until(Duration::from_millis(random.below(1500) as u64))? {
            Ok(running) => {
                was_ended = true;
                end(running)?
            }
            Err(ran) if ran.is_ok() && acknowledged(&ran.out) == changes.len() => ran.out,
            Err(ran) => {
                return Ok(Verdict::Broke(ran.describe("statements failed before anything happened")));
            }
        };
        let acknowledged = acknowledged(&printed);
        let holds = match found(program, folder, database)? {
            Ok(holds) => holds,
            Err(message) => return Ok(Verdict::Broke(message)),
        };
        let may_be: Vec<&State> = states.iter().skip(acknowledged).take(2).collect();
        match may_be.iter().find(|state| expected(state) == holds) {
            Some(held) => state = (*held).clone(),
            None => {
                let may_be: Vec<String> = may_be.into_iter().map(expected).collect();
                return Ok(Verdict::Broke(format!(
                    "after {acknowledged} acknowledged statements of {} the database holds\n{holds}in place of\n{}",
                    script(&changes),
                    may_be.join("or\n")
                )));
            }
        }
    }
    Ok(Verdict::Held(if was_ended { "whole" } else { "done before" }))
}
