//! What the program says beside results. Where standard output and errors go may be full, or gone.

use std::fmt::Arguments;
use std::io::Write as _;

use crate::failure::{Failure, Result};

/// A line on standard output, as `println!`, which fails where that panics.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// A line on standard error, as `eprintln!`. That it cannot be written there has nowhere to be told.
macro_rules! note {
    ($($text:tt)*) => { $crate::say::note_line(format_args!($($text)*)) };
}

pub(crate) use {note, say};

pub fn line(text: Arguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("writing to standard output", error))
}

pub fn note_line(text: Arguments) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
