//! The interactive shell: statements end with a semicolon, commands start with a backslash.

mod commands;
mod completion;
mod terminal_modes;

use std::fs;
use std::path::PathBuf;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::arguments::{Arguments, Format};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Sink;
use crate::progress::Progress;
use crate::say::{note, say};
use crate::statement::{Presentation, Runner};

use commands::Next;
use completion::ShellHelper;
use terminal_modes::TerminalModes;

const HISTORY_LINES: usize = 10_000;

/// Reads and runs until the user leaves.
pub async fn run(arguments: &Arguments, interrupt: Interrupt) -> Result<()> {
    let database = engine::open(arguments.database.as_deref(), &arguments.engine)?;
    let presentation = Presentation {
        format: arguments.format.unwrap_or(Format::Table),
        rows: arguments.rows,
        shows_progress: Progress::is_possible() && !arguments.engine.no_progress,
        shows_timing: arguments.timing,
    };
    let mut runner = Runner::new(database.session()?, Sink::standard_output(), interrupt, presentation);
    greet(&runner)?;
    let mut editor = editor()?;
    let history = history_file();
    if let Some(path) = &history {
        // The first start has no history yet.
        let _ = editor.load_history(path);
    }
    let mut interrupted_before = false;
    let modes = TerminalModes::now();
    while !runner.interrupt.is_terminated() {
        if let Some(helper) = editor.helper_mut() {
            helper.learn(&runner.session).await;
        }
        let typed = tokio::select! {
            typed = read_line(editor) => typed,
            () = runner.interrupt.terminated() => {
                // The line is still being typed, and with it goes what the history has new.
                modes.restore();
                return Ok(());
            }
        };
        let line;
        (editor, line) = typed?;
        match line {
            Ok(line) => {
                interrupted_before = false;
                if !line.trim().is_empty() {
                    // A history that cannot grow is no reason to stop.
                    let _ = editor.add_history_entry(line.trim());
                }
                if run_line(&mut runner, line.trim()).await? == Next::Leave {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) if interrupted_before => break,
            Err(ReadlineError::Interrupted) => {
                interrupted_before = true;
                say!("(Ctrl-C again, Ctrl-D or \\q leaves)")?;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::io("reading the terminal", std::io::Error::other(error))),
        }
    }
    if let Some(path) = &history {
        save_history(&mut editor, path);
    }
    Ok(())
}

type LineEditor = Editor<ShellHelper, FileHistory>;

/// Reads a line on a thread of its own: nothing ends reading but the user.
async fn read_line(mut editor: LineEditor) -> Result<(LineEditor, rustyline::Result<String>)> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let read = move || {
        let line = editor.readline("nandina> ");
        // The receiver is gone when the program ends.
        let _ = sender.send((editor, line));
    };
    let failure = |error| Failure::io("reading the terminal", error);
    std::thread::Builder::new().name("terminal".to_owned()).spawn(read).map_err(failure)?;
    receiver.await.map_err(|error| failure(std::io::Error::other(error)))
}

/// Runs a command or statements; their failures are reported and do not end the shell.
async fn run_line(runner: &mut Runner, line: &str) -> Result<Next> {
    // Presses at the prompt, and then those while this ran, are about something that is over.
    runner.interrupt.reset();
    let result = if line.starts_with('\\') {
        commands::run(runner, line).await
    } else if ["exit", "quit"].iter().any(|word| line.trim_end_matches(';').trim().eq_ignore_ascii_case(word))
    {
        Ok(Next::Leave)
    } else {
        runner.run_script(line).await.map(|()| Next::Prompt)
    };
    runner.interrupt.reset();
    match result {
        Err(Failure::OutputClosed) => Err(Failure::OutputClosed),
        Err(failure) => {
            runner.sink.writer().flush().map_err(crate::output::output_failure)?;
            failure.report();
            Ok(Next::Prompt)
        }
        Ok(next) => Ok(next),
    }
}

fn greet(runner: &Runner) -> Result<()> {
    let settings = runner.session.settings();
    say!(
        "Nandina {} · {} · memory limit {} · {} thread{}",
        env!("CARGO_PKG_VERSION"),
        match runner.session.database().directory() {
            Some(directory) => format!("database {}", directory.display()),
            None => "tables in memory".to_owned(),
        },
        nandina::byte_size::format(settings.memory_limit_bytes),
        settings.threads,
        if settings.threads == 1 { "" } else { "s" }
    )?;
    say!("SELECT … FROM 'file.parquet';   \\? for help   \\q leaves")
}

fn editor() -> Result<LineEditor> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(false)
        .history_ignore_dups(true)
        .and_then(|builder| builder.max_history_size(HISTORY_LINES))
        .map(rustyline::config::Builder::build);
    let editor = config.and_then(Editor::with_config);
    let mut editor =
        editor.map_err(|error| Failure::io("opening the terminal", std::io::Error::other(error)))?;
    editor.set_helper(Some(ShellHelper::default()));
    Ok(editor)
}

/// Where shells keep what they remember between runs (XDG base directories).
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("nandina").join("history"))
}

fn save_history(editor: &mut LineEditor, path: &PathBuf) {
    let folder_exists = path.parent().is_some_and(|folder| fs::create_dir_all(folder).is_ok());
    if !folder_exists || editor.save_history(path).is_err() {
        note!("note: the history could not be saved to '{}'", path.display());
    }
}
