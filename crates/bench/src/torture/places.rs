//! Places that are full, forbidden, or gone.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::changes::{Change, State, expected, found, names_below};
use super::disk::Disk;
use super::{Trial, Verdict};
use crate::error::{BenchError, Result};
use crate::program::{Program, Ran, Running, run};
use crate::random::Random;

const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the table that every trial here begins with.
fn set_up(program: &Program, folder: &Path, database: &Path) -> Result<State> {
    let change = Change::Create("a", 1..1000);
    let mut command = program.command(folder);
    let made = run(command.arg(database).args(["-c", &change.sql()]), &folder.join("make"), PATIENCE)?;
    if !made.is_ok() {
        return Err(BenchError::Setup(made.describe("cannot make a table")));
    }
    let mut state = State::new();
    change.apply(&mut state);
    Ok(state)
}

/// Something that writes more than it may, and what it changes in the database.
fn hungry(random: &mut Random) -> (String, Option<Change>) {
    let many = 1..1_500_001;
    let rows = "SELECT value AS i, md5(value::TEXT) AS s FROM generate_series(1, 1500000) AS series(value)";
    let change = match random.below(6) {
        0 => Change::Create("b", many),
        1 => Change::Insert("a", many),
        2 => Change::Replace("a", many),
        3 => return (format!("COPY ({rows}) TO 'copy.parquet'"), None),
        4 => return (format!("SELECT count(*) FROM (SELECT s, i FROM ({rows}) ORDER BY s OFFSET 5)"), None),
        _ => return (format!("SELECT count(*) FROM ({rows}) x JOIN ({rows}) y ON x.s = y.s"), None),
    };
    (change.sql(), Some(change))
}

/// What must be so after a statement: the state after it if it succeeded; otherwise the state before, nothing left behind,
/// and room to drop tables.
fn judge(
    program: &Program,
    folder: &Path,
    database: &Path,
    ran: &Ran,
    mut state: State,
    change: Option<Change>,
) -> Result<Verdict> {
    if let Some(mistake) = ran.mistake() {
        return Ok(Verdict::Broke(mistake));
    }
    if let Some(change) = change.filter(|_| ran.is_ok()) {
        change.apply(&mut state);
    }
    match found(program, folder, database)? {
        Ok(holds) if holds == expected(&state) => {}
        Ok(holds) => return Ok(Verdict::Broke(ran.describe(&format!("the database holds {holds}")))),
        Err(message) => return Ok(Verdict::Broke(ran.describe(&message))),
    }
    if ran.is_ok() {
        return Ok(Verdict::Held("had room"));
    }
    let left: Vec<String> = names_below(folder)
        .into_iter()
        .filter(|name| name.contains("unfinished") || name.contains("copy."))
        .collect();
    if !left.is_empty() {
        return Ok(Verdict::Broke(ran.describe(&format!("{} is left", left.join(", ")))));
    }
    let mut drop = program.command(folder);
    let dropped = run(drop.arg(database).args(["-c", "DROP TABLE a"]), &folder.join("drop"), PATIENCE)?;
    Ok(match dropped.is_ok() {
        true => Verdict::Held("refused"),
        false => Verdict::Broke(dropped.describe("the table cannot be dropped")),
    })
}

/// A disk that becomes full.
pub(super) struct FullDisk;

impl Trial for FullDisk {
    fn name(&self) -> &'static str {
        "full disk"
    }

    fn about(&self) -> &'static str {
        "statements that write 60 MB and more where 20 to 80 MB are free, which another file may fill further while they run; \
         they succeed or fail with an error, the database is as before, opens, and its table can be dropped"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let disk = Disk::new(folder, "ext4", (random.between(40, 100) as u64) << 20)?;
        let database = disk.folder.join("db");
        let state = set_up(program, folder, &database)?;
        let limit = random.one_of(["8MB", "32MB"]);
        let (statement, change) = hungry(random);
        let mut command = program.command(folder);
        command.current_dir(&disk.folder).arg(&database).args(["--memory-limit", limit, "-c", &statement]);
        let running = Running::start(&mut command, &folder.join("run"))?;
        let filler = disk.folder.join("filler");
        let ran = match running.wait_until(Duration::from_millis(random.below(1500) as u64))? {
            Ok(running) => {
                if random.chance(50) {
                    fill(&filler);
                }
                running.wait(PATIENCE)?
            }
            Err(ran) => ran,
        };
        judge(program, folder, &database, &ran, state, change)
    }
}

/// Writes until nothing fits any more.
fn fill(file: &Path) {
    let Ok(mut file) = std::fs::File::create(file) else { return };
    while file.write_all(&[1; 1 << 16]).is_ok() {}
}

/// What `ulimit` and settings forbid.
pub(super) struct Limited;

impl Trial for Limited {
    fn name(&self) -> &'static str {
        "limited"
    }

    fn about(&self) -> &'static str {
        "the same statements below `ulimit -f` (size of a file), `-n` (open files), `-u` (threads, where it holds), a quota \
         of temporary files, memory limits from 1 KB and up to 64 workers"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let database = folder.join("db");
        let state = set_up(program, folder, &database)?;
        let limits = match random.below(4) {
            0 => format!("ulimit -f {};", random.one_of([8, 100, 5_000, 50_000])),
            1 => format!("ulimit -n {};", random.between(3, 80)),
            2 => format!("ulimit -u {};", random.between(1, 40)),
            _ => String::new(),
        };
        let mut command = program.below_limits(folder, &limits);
        command
            .arg(&database)
            .args(["--memory-limit", random.one_of(["1KB", "1MB", "8MB", "32MB", "200MB"])]);
        if random.chance(30) {
            command.args(["--temp-quota", random.one_of(["1KB", "1MB", "20MB", "1GB"])]);
        }
        if random.chance(30) {
            command.args(["--threads", random.one_of(["1", "3", "16", "64"])]);
        }
        let (statement, change) = hungry(random);
        let ran = run(command.args(["-c", &statement]), &folder.join("run"), PATIENCE)?;
        judge(program, folder, &database, &ran, state, change)
    }
}

/// Files and folders that are removed while they are used.
pub(super) struct Vanished;

impl Trial for Vanished {
    fn name(&self) -> &'static str {
        "vanished"
    }

    fn about(&self) -> &'static str {
        "the folder for temporary files, the database, or the file that is read is removed in the middle of the same \
         statements; they end with rows or an error"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let (database, temp) = (folder.join("db"), folder.join("temp"));
        std::fs::create_dir_all(&temp).map_err(BenchError::file(&temp))?;
        set_up(program, folder, &database)?;
        let input = "COPY (SELECT value AS i, md5(value::TEXT) AS s FROM generate_series(1, 1000000) AS series(value)) TO 'in.csv'";
        let made = run(program.command(folder).args(["-c", input]), &folder.join("make"), PATIENCE)?;
        if !made.is_ok() {
            return Err(BenchError::Setup(made.describe("cannot make a file")));
        }
        let statement = match random.below(3) {
            0 => "SELECT count(*) FROM (SELECT * FROM 'in.csv' ORDER BY s OFFSET 5)".to_owned(),
            1 => "INSERT INTO a SELECT * FROM 'in.csv'".to_owned(),
            _ => hungry(random).0,
        };
        let mut command = program.command(folder);
        command.arg(&database).args(["--memory-limit", "16MB", "-c", &statement]);
        let mut command = match random.chance(50) {
            true => {
                command.arg("--temp-dir").arg(&temp);
                command
            }
            false => command,
        };
        let running = Running::start(&mut command, &folder.join("run"))?;
        let ran = match running.wait_until(Duration::from_millis(random.below(700) as u64))? {
            Ok(running) => {
                // What is being written to may refuse to go; then less vanishes.
                let _ = match random.below(3) {
                    0 => std::fs::remove_dir_all(&temp),
                    1 => std::fs::remove_dir_all(&database),
                    _ => std::fs::remove_file(folder.join("in.csv")),
                };
                running.wait(PATIENCE)?
            }
            Err(ran) => ran,
        };
        Ok(match ran.mistake() {
            Some(mistake) => Verdict::Broke(mistake),
            None => Verdict::Held(if ran.is_ok() { "rows" } else { "refused" }),
        })
    }
}
