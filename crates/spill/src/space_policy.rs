//! How temporary files get and give up their space.
//!
//! ```text
//!                  preallocation                                     discard
//!   new extent ◄── none        blocks come with the writes       ◄── none        kept until the space is closed
//!                  fallocate   reserved before the writes            immediate   given back at once
//!                  recycle     first freed ranges, their             deferred    given back when not wanted
//!                              blocks still there; else fallocate                for a while
//!                                                                    auto        as the device was measured
//! ```
//!
//! Kim and Lee, *Block Allocation Method for Efficiently Managing Temporary Files of Hash Joins on SSDs* (2022), find
//! joins 3 to 5 times as fast with the right two of these (`fallocate`, and TRIM of deleted files) as with the wrong
//! ones; recycling and deferring go beyond them. `docs/benchmarks/temp-files.md` compares all.
//!
//! Giving space back is hole punching, and removing a file. It is the file system that makes a TRIM command of it, if
//! it is mounted so (`discard`); without, the drive goes on keeping unneeded blocks until they are overwritten. A
//! recycled extent is overwritten soon, without a discard.

use std::fmt;
use std::str::FromStr;

use crate::error::{Result, SpillError};

/// Where the blocks of a new extent come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preallocation {
    /// From the file system, as the extent is written. That the disk is full is noticed only then.
    None,
    /// From the file system, reserved before the extent is written.
    Fallocate,
    /// From an extent that was freed, as far as there is one that has not been given back; else reserved.
    #[default]
    Recycle,
}

/// When the blocks of a freed extent are given back to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// When the space is closed. Until then they are used again, whatever the preallocation.
    None,
    /// Before the thread that frees it goes on. Nothing is left to be recycled.
    Immediate,
    /// In the background, in large ranges, when no space has been wanted for a while.
    Deferred,
    /// Immediate on a device that was measured to hear of it at next to no cost, deferred on others.
    #[default]
    Auto,
}

impl Preallocation {
    pub const ALL: [Self; 3] = [Self::None, Self::Fallocate, Self::Recycle];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fallocate => "fallocate",
            Self::Recycle => "recycle",
        }
    }
}

impl Discard {
    /// Those that do the same on every device.
    pub const ALL: [Self; 3] = [Self::None, Self::Immediate, Self::Deferred];

    const NAMED: [Self; 4] = [Self::Auto, Self::None, Self::Immediate, Self::Deferred];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Immediate => "immediate",
            Self::Deferred => "deferred",
            Self::Auto => "auto",
        }
    }
}

impl Discard {
    /// Whether freed ranges may wait to be given back.
    pub(crate) fn may_be_deferred(self) -> bool {
        matches!(self, Self::Deferred | Self::Auto)
    }
}

/// The one of `all` whose name `text` is.
pub(crate) fn named<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T> {
    let found = all.iter().copied().find(|&policy| name(policy).eq_ignore_ascii_case(text));
    let known = || all.iter().copied().map(&name).collect();
    found.ok_or_else(|| SpillError::UnknownPolicy { name: text.to_owned(), known: known() })
}

impl FromStr for Preallocation {
    type Err = SpillError;

    fn from_str(text: &str) -> Result<Self> {
        named(text, &Self::ALL, Self::name)
    }
}

impl FromStr for Discard {
    type Err = SpillError;

    fn from_str(text: &str) -> Result<Self> {
        named(text, &Self::NAMED, Self::name)
    }
}

impl fmt::Display for Preallocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in Preallocation::ALL {
            assert_eq!(policy.to_string().parse::<Preallocation>().unwrap(), policy);
        }
        for policy in Discard::NAMED {
            assert_eq!(policy.to_string().to_uppercase().parse::<Discard>().unwrap(), policy);
        }
        let message = "sometimes".parse::<Discard>().unwrap_err().to_string();
        assert_eq!(message, "'sometimes' is not one of auto, none, immediate, deferred");
    }
}
