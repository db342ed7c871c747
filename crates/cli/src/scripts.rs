//! SQL that is not typed: `-c`, `-f` and standard input.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::arguments::{Arguments, Format};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{Sink, format_of};
use crate::progress::Progress;
use crate::statement::{Presentation, Runner};

/// What `-c` and `-f` ask for, in the order of the command line.
pub struct Work(Vec<Script>);

enum Script {
    Text(String),
    File(PathBuf),
}

impl Work {
    pub fn in_order(arguments: &Arguments, matches: &ArgMatches) -> Self {
        let positions = |id: &str| -> Vec<usize> {
            let is_given = matches.try_contains_id(id).unwrap_or(false)
                && matches.value_source(id) == Some(ValueSource::CommandLine);
            if is_given { matches.indices_of(id).into_iter().flatten().collect() } else { Vec::new() }
        };
        let texts = positions("sql").into_iter().zip(arguments.sql.iter().cloned().map(Script::Text));
        let files = positions("file").into_iter().zip(arguments.file.iter().cloned().map(Script::File));
        let mut work: Vec<(usize, Script)> = texts.chain(files).collect();
        work.sort_by_key(|(position, _)| *position);
        Work(work.into_iter().map(|(_, script)| script).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Runs the scripts, or standard input when there are none. Stops at the first error.
pub async fn run(arguments: &Arguments, work: Work, interrupt: Interrupt) -> Result<()> {
    let database = engine::open(arguments.database.as_deref(), &arguments.engine)?;
    let format =
        arguments.format.or_else(|| format_of(arguments.output.as_deref()?)).unwrap_or(Format::Table);
    let sink = match &arguments.output {
        Some(path) => Sink::file(path)?,
        None => Sink::standard_output(),
    };
    if format == Format::Parquet && sink.is_terminal() {
        return Err(Failure::Usage("a terminal cannot show Parquet; add --output FILE".to_owned()));
    }
    let presentation = Presentation {
        format,
        rows: arguments.rows,
        shows_progress: Progress::is_possible() && !arguments.engine.no_progress,
        shows_timing: arguments.timing,
    };
    let mut runner = Runner::new(database.session()?, sink, interrupt, presentation);
    if work.is_empty() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::io("reading SQL from standard input", error))?;
        runner.run_script(&text).await?;
    }
    for script in work.0 {
        let text = match script {
            Script::Text(text) => text,
            Script::File(path) => fs::read_to_string(&path)
                .map_err(|error| Failure::io(format!("cannot read '{}'", path.display()), error))?,
        };
        runner.run_script(&text).await?;
    }
    runner.sink.finish()
}
