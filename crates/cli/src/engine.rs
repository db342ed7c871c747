//! From command-line options to an open database.

use std::path::Path;

use nandina::{Database, OpenDevice, Options, byte_size, process_memory, suggestion};

use crate::arguments::EngineArguments;
use crate::failure::{Failure, Result};
use crate::resident;

/// Names that are read as commands, for the suggestion when a database of a similar name does not exist.
const COMMANDS: [&str; 5] = ["import", "tpch", "calibrate", "demo", "help"];

/// The options that the arguments ask for.
pub fn options(arguments: &EngineArguments) -> Result<Options> {
    let amount = |option: &str, text: &Option<String>, whole: u64| {
        let parse = |text: &String| byte_size::parse(text, whole);
        text.as_ref().map(parse).transpose().map_err(|message| Failure::Usage(format!("{option}: {message}")))
    };
    Ok(Options {
        memory_limit: amount("--memory-limit", &arguments.memory_limit, process_memory::usable_bytes())?,
        temp_directory: arguments.temp_dir.clone(),
        temp_quota: amount("--temp-quota", &arguments.temp_quota, 0)?,
        threads: arguments.threads,
        io_backend: arguments
            .io_backend
            .parse()
            .map_err(|error: nandina::Error| Failure::Usage(error.to_string()))?,
        batch_size: None,
        open_device: arguments.drive.as_deref().map_or_else(|| Ok(OpenDevice::default()), paced)?,
        resident: Some(resident::bound()),
        read_only: arguments.read_only,
        ..Options::default()
    })
}

/// Devices that take as long as a model of a drive.
#[cfg(feature = "drive-models")]
fn paced(name: &str) -> Result<OpenDevice> {
    use nandina_simulation::PacedDrive;
    use nandina_simulation::drive::DriveModel;

    let model = DriveModel::named(name).ok_or_else(|| {
        let known = DriveModel::NAMES;
        let hint = suggestion::nearest(name, known).map(|near| format!("; did you mean '{near}'?"));
        let hint = hint.unwrap_or_else(|| format!("; there are {}", known.join(", ")));
        Failure::Usage(format!("--drive: there is no model '{name}'{hint}"))
    })?;
    let drive = PacedDrive { model, seed: 1, discard: true };
    Ok(OpenDevice::with(move |directory, options| drive.open(directory, options)))
}

#[cfg(not(feature = "drive-models"))]
fn paced(_name: &str) -> Result<OpenDevice> {
    Err(Failure::Usage("--drive: this program was built without `drive-models`".to_owned()))
}

/// Opens the database in `directory`, or one in memory.
pub fn open(directory: Option<&Path>, arguments: &EngineArguments) -> Result<Database> {
    let options = options(arguments)?;
    let Some(directory) = directory else { return Ok(Database::in_memory(options)?) };
    refuse_mistyped_command(directory)?;
    Ok(Database::open(directory, options)?)
}

/// A mistyped command reads as the folder of a new database, which the user does not want to be made.
fn refuse_mistyped_command(directory: &Path) -> Result<()> {
    let Some(name) = directory.to_str() else { return Ok(()) };
    if directory.exists() || name.contains('/') {
        return Ok(());
    }
    match suggestion::nearest(name, COMMANDS) {
        Some(command) => Err(Failure::Usage(format!(
            "there is no command '{name}'; did you mean '{command}'? (for a new database of that name write ./{name})"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_commands_are_not_databases() {
        let message = refuse_mistyped_command(Path::new("demoo")).unwrap_err().to_string();
        assert!(message.contains("did you mean 'demo'?"), "{message}");
        assert!(refuse_mistyped_command(Path::new("./demoo")).is_ok());
        assert!(refuse_mistyped_command(Path::new("shop")).is_ok());
    }
}
