//! The model against published figures of flash drives, and against its own promises.

mod amplification;
mod measured_drives;
mod promises;

use super::{FlashDrive, FlashParameters};
use crate::drive::{Command, CommandKind, Drive, Ended, Nanos};

pub(super) const KIBIBYTE: u64 = 1 << 10;
pub(super) const MEBIBYTE: u64 = 1 << 20;

/// A small generator, so that the tests do not depend on a library's generator (Marsaglia, "Xorshift RNGs").
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Keeps `depth` commands outstanding until there are no more, from `now` on; says when the last one ended.
pub(super) fn run(
    drive: &mut FlashDrive,
    now: Nanos,
    depth: usize,
    commands: impl IntoIterator<Item = (CommandKind, u64, u64)>,
) -> Nanos {
    let mut commands = commands.into_iter();
    let mut ended: Vec<Ended> = Vec::new();
    let (mut now, mut outstanding) = (now, 0);
    loop {
        while outstanding < depth
            && let Some((kind, address, bytes)) = commands.next()
        {
            drive.submit(now, Command { tag: 0, kind, address, bytes });
            outstanding += 1;
        }
        if outstanding == 0 {
            return now;
        }
        now = drive.next_event().unwrap();
        ended.clear();
        drive.advance(now, &mut ended);
        outstanding -= ended.len();
    }
}

/// Lets the drive work until it rests.
pub(super) fn rest(drive: &mut FlashDrive, mut now: Nanos) -> Nanos {
    while let Some(at) = drive.next_event() {
        now = at;
        drive.advance(at, &mut Vec::new());
    }
    now
}

/// `count` commands of `bytes` each, one after the other from the start of the drive on and around.
pub(super) fn sequential(
    drive: &FlashDrive,
    kind: CommandKind,
    bytes: u64,
    count: u64,
) -> impl Iterator<Item = (CommandKind, u64, u64)> + use<> {
    let places = drive.capacity_bytes() / bytes;
    (0..count).map(move |number| (kind, number % places * bytes, bytes))
}

/// `count` commands of `bytes` each, anywhere.
pub(super) fn at_random(
    drive: &FlashDrive,
    kind: CommandKind,
    bytes: u64,
    count: u64,
    seed: u64,
) -> impl Iterator<Item = (CommandKind, u64, u64)> + use<> {
    let (places, mut random) = (drive.capacity_bytes() / bytes, Random(seed));
    (0..count).map(move |_| (kind, random.below(places) * bytes, bytes))
}
