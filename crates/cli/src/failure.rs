//! Why the program stops, and with which exit code.

use std::io;
use std::process::ExitCode;

use crate::say::note;

/// What ends a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A statement or its data.
    #[error(transparent)]
    Query(#[from] nandina::Error),
    /// The same, where the place in its script is known.
    #[error("{error}\n{place}")]
    At { error: nandina::Error, place: nandina::Place },
    /// A file or stream of the program's own.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// The user pressed Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// The reader of the output has left (`nandina … | head`).
    #[error("output closed")]
    OutputClosed,
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Io { what: what.into(), source }
    }

    /// With the place in the script that the statement is part of, where it can be told.
    pub fn at_place(self, script: &str, statement: &str) -> Self {
        match self {
            Failure::Query(error) => match error.place(script, statement) {
                Some(place) => Failure::At { error, place },
                None => Failure::Query(error),
            },
            other => other,
        }
    }

    /// 1: query or data, 2: usage, 130: Ctrl-C (128 + SIGINT, as shells report it).
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Query(_) | Failure::At { .. } | Failure::Io { .. } => ExitCode::from(1),
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Cancelled => ExitCode::from(130),
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }

    /// On standard error, with the place in the script if it is known.
    pub fn report(&self) {
        match self {
            Failure::OutputClosed => {}
            Failure::Cancelled => note!("cancelled"),
            other => note!("error: {other}"),
        }
    }
}
