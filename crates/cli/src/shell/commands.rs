//! The shell's own commands, which start with a backslash.

use std::fs;

use nandina::suggestion;

use crate::failure::{Failure, Result};
use crate::output::output_failure;
use crate::statement::Runner;

/// Name and description of every command.
pub const COMMANDS: [(&str, &str); 6] = [
    ("\\d", "list the tables; \\d NAME describes a table or file"),
    ("\\i", "run the SQL in a file: \\i FILE"),
    ("\\timing", "switch the time of each statement on or off"),
    ("\\rows", "rows that a table shows at most: \\rows 100, 0 for all"),
    ("\\q", "leave"),
    ("\\?", "this help"),
];

/// What the shell does after a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Prompt,
    Leave,
}

/// Runs one command.
pub async fn run(runner: &mut Runner, line: &str) -> Result<Next> {
    let line = line.trim_end_matches(';').trim();
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim().trim_matches('\'');
    match name {
        "\\q" => return Ok(Next::Leave),
        "\\?" => print(runner, &help())?,
        "\\d" if argument.is_empty() => runner.run("SHOW TABLES").await?,
        "\\d" => {
            runner.run(&format!("DESCRIBE \"{}\"", argument.trim_matches('"').replace('"', "\"\""))).await?
        }
        "\\timing" => {
            runner.presentation.shows_timing = !runner.presentation.shows_timing;
            let state = if runner.presentation.shows_timing { "on" } else { "off" };
            print(runner, &format!("Timing is {state}.\n"))?;
        }
        "\\rows" => match argument.parse() {
            Ok(rows) => runner.presentation.rows = rows,
            Err(_) => return Err(Failure::Usage("write \\rows NUMBER".to_owned())),
        },
        "\\i" if argument.is_empty() => return Err(Failure::Usage("write \\i FILE".to_owned())),
        "\\i" => {
            let text = fs::read_to_string(argument)
                .map_err(|error| Failure::io(format!("cannot read '{argument}'"), error))?;
            runner.run_script(&text).await?;
        }
        _ => {
            let nearest = suggestion::nearest(name, COMMANDS.iter().map(|(command, _)| *command));
            let hint = nearest
                .map_or_else(|| "\\? lists them".to_owned(), |command| format!("did you mean {command}?"));
            return Err(Failure::Usage(format!("there is no command {name}; {hint}")));
        }
    }
    Ok(Next::Prompt)
}

fn print(runner: &mut Runner, text: &str) -> Result<()> {
    let out = runner.sink.writer();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output_failure)
}

fn help() -> String {
    let mut text = String::from("Statements end with a semicolon and may span lines.\n\n");
    for (name, description) in COMMANDS {
        text.push_str(&format!("  {name:<9} {description}\n"));
    }
    text.push_str("\nFiles are tables: SELECT * FROM 'data/*.parquet';\nSettings: ");
    let names: Vec<&str> = nandina::SETTING_NAMES.iter().map(|(name, _)| *name).collect();
    text.push_str(&names.join(", "));
    text.push_str(" (SET name = 'value'; SHOW name; SHOW ALL)\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_command_and_setting() {
        let help = help();
        assert!(COMMANDS.iter().all(|(name, _)| help.contains(name)));
        assert!(nandina::SETTING_NAMES.iter().all(|(name, _)| help.contains(name)));
    }
}
