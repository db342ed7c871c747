//! `nandina backup` and `nandina log`: a database as it is.

use nandina::{Database, Options};

use crate::arguments::{BackupArguments, LogArguments};
use crate::engine;
use crate::failure::Result;
use crate::say::{note, say};

/// Copies a database into an empty folder.
pub async fn run(arguments: &BackupArguments) -> Result<()> {
    let options = engine::options(&arguments.engine)?;
    let (from, to) = (&arguments.database, &arguments.directory);
    let database = Database::open_existing(from, options)?;
    let target = to.display().to_string().replace('\'', "''");
    database.session()?.run(&format!("VACUUM INTO '{target}'")).await?;
    note!("{} is a copy of {}", to.display(), from.display());
    Ok(())
}

/// Prints the log of a database, a line for each change.
pub fn list_log(arguments: &LogArguments) -> Result<()> {
    let options: Options = engine::options(&arguments.engine)?;
    say!("{:<16} {:>7}  changes", "address", "bytes")?;
    let mut failed = Ok(());
    nandina::list_log(&arguments.database, &options, |line| {
        if failed.is_ok() {
            failed = say!("{line}");
        }
    })?;
    failed
}
