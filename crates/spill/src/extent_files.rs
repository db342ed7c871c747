//! The files that extents lie in: which ranges are in use, which hold unneeded blocks, which hold none.
//!
//! ```text
//!              ┌───── take ─────┐
//!   holes ─────┤                ├────► in use ───┬── put ──► freed ──┬── given back ──► holes
//!   reserved ──┤                │                │                   └── recycled ───► in use
//!   freed ─────┘                │                └── given back at once ─────────────► holes
//!   end of a file ── grow ──────┘                    nothing in use: the files are removed as a whole
//! ```
//!
//! Giving back can take long (0.2 s per GB where the file system waits for the drive to discard): no lock is held
//! meanwhile, and the range is in no set. When the policy defers it, a thread does it that lives while there is
//! something to give back. On a simulated device the thread that frees an extent does it, so that runs can be repeated.
//!
//! Invariants
//! - Every range below a file's end is in use, being given back, or in exactly one of its three sets.
//! - Only where nothing is in use are files removed, and none of their extents is allocated after that.
//! - A range is counted as used until it can be allocated again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nandina_device::{Device, Error, File, FileClass};
use parking_lot::Mutex;

use crate::ranges::Ranges;
use crate::space_policy::{Discard, Preallocation};

/// Files grow in steps of this when their space is reserved: writes inside a file's size need no journal entry each.
const GROWTH_BYTES: u64 = 64 << 20;
/// Size at which another file is begun.
const FILE_BYTES: u64 = 64 << 30;
/// Shorter ranges are not given back one by one in the background: below, a discard costs more than its bytes
/// (docs/benchmarks/temp-files.md), and a neighbour may still be freed.
const LEAST_DEFERRED_BYTES: u64 = 8 << 20;
/// More than this is given back without waiting, unless ranges are recycled.
const MOST_DEFERRED_BYTES: u64 = 256 << 20;

/// How space is reserved and given back. See [`crate::space_policy`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) preallocation: Preallocation,
    pub(crate) discard: Discard,
    /// How long space must not have been wanted before deferred discards begin.
    pub(crate) discard_after: Duration,
}

impl Policy {
    /// Whether freed ranges are allocated again as they are. Those left from an earlier policy always are.
    fn recycles(&self) -> bool {
        self.preallocation == Preallocation::Recycle || !self.discard.may_be_deferred()
    }
}

#[derive(Debug)]
pub(crate) struct ExtentFiles {
    device: Device,
    used_bytes: AtomicU64,
    state: Mutex<State>,
    /// Held while files are removed, so that a thread that closes the space finds its folder empty. Taken before
    /// `state`.
    removal: Mutex<()>,
}

#[derive(Debug)]
struct State {
    policy: Policy,
    files: Vec<TempFile>,
    files_so_far: u64,
    last_wanted: Instant,
    /// A thread looks after deferred discards.
    is_looked_after: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct TempFile {
    number: u64,
    file: File,
    /// Where blocks are reserved that have not been used yet.
    reserved: Ranges,
    /// Where blocks are that have been used and freed.
    freed: Ranges,
    /// Where no blocks are.
    holes: Ranges,
    end: u64,
}

/// A range in use.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) file: File,
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

fn name_of(number: u64) -> String {
    format!("extents-{number}")
}

impl ExtentFiles {
    pub(crate) fn new(device: Device, policy: Policy) -> Arc<Self> {
        let state = State {
            policy,
            files: Vec::new(),
            files_so_far: 0,
            last_wanted: device.now(),
            is_looked_after: false,
            is_closed: false,
        };
        let (used_bytes, state) = (AtomicU64::new(0), Mutex::new(state));
        Arc::new(Self { device, used_bytes, state, removal: Mutex::new(()) })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of unneeded blocks that have not been given back.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.state.lock().files.iter().map(|file| file.freed.bytes() + file.reserved.bytes()).sum()
    }

    /// Counts `bytes` as used if that stays within the quota; else says how many are in use.
    pub(crate) fn reserve(&self, bytes: u64, quota_bytes: u64) -> Result<(), u64> {
        let sum = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= quota_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).map(drop)
    }

    /// Takes such a reservation back.
    pub(crate) fn unreserve(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_policy(&self, preallocation: Preallocation, discard: Discard) {
        let mut state = self.state.lock();
        state.policy = Policy { preallocation, discard, ..state.policy };
    }

    /// Finds a place for bytes that are reserved. Kept blocks do not make the files larger than the quota, nor the
    /// disk full.
    pub(crate) fn place(&self, bytes: u64, quota_bytes: u64) -> Result<Placed, Error> {
        let mut state = self.state.lock();
        state.last_wanted = self.device.now();
        let freed: u64 = state.files.iter().map(|file| file.freed.bytes()).sum();
        let is_short = self.used_bytes().saturating_add(freed) > quota_bytes;
        if (is_short || state.policy.recycles())
            && let Some(recycled) = state.recycle(bytes)
        {
            return Ok(recycled);
        }
        match state.place_anew(bytes, &self.device) {
            Err(error) if error.is_no_space() => {
                if let Some(recycled) = state.recycle(bytes) {
                    return Ok(recycled);
                }
                state.give_back_all();
                state.place_anew(bytes, &self.device)
            }
            placed => placed,
        }
    }

    /// A range is not in use any more.
    pub(crate) fn free(self: &Arc<Self>, number: u64, offset: u64, bytes: u64) {
        let mut state = self.state.lock();
        let discard = self.discard_here(&state);
        if discard == Discard::Immediate
            && let Some(file) = state.file(number).map(|file| file.file.clone())
        {
            drop(state);
            give_back(&file, offset, bytes);
            state = self.state.lock();
            if let Some(file) = state.file(number) {
                file.holes.put(offset, bytes);
            }
        } else if let Some(file) = state.file(number) {
            file.freed.put(offset, bytes);
        }
        let is_last = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes;
        match discard {
            Discard::None => {}
            Discard::Immediate => {
                drop(state);
                if is_last {
                    self.remove_unused();
                }
            }
            Discard::Deferred if self.device.is_simulated() => {
                drop(state);
                self.discard_what_is_unwanted();
            }
            Discard::Deferred | Discard::Auto => self.have_looked_after(&mut state),
        }
    }

    /// What the policy means on this device.
    fn discard_here(&self, state: &State) -> Discard {
        match state.policy.discard {
            Discard::Auto if self.device.discards_cheaply() => Discard::Immediate,
            Discard::Auto => Discard::Deferred,
            chosen => chosen,
        }
    }

    /// Removes the files, if none of their extents is in use.
    fn remove_unused(&self) {
        let _removal = self.removal.lock();
        let mut state = self.state.lock();
        // A thread that has reserved bytes since then finds no file here, and begins a new one.
        let files = if self.used_bytes() == 0 { std::mem::take(&mut state.files) } else { Vec::new() };
        drop(state);
        self.remove(files);
    }

    /// Removes the files, even if extents are in use.
    pub(crate) fn close(&self) {
        let _removal = self.removal.lock();
        let mut state = self.state.lock();
        state.is_closed = true;
        let files = std::mem::take(&mut state.files);
        drop(state);
        self.remove(files);
    }

    fn remove(&self, files: Vec<TempFile>) {
        for TempFile { number, file, .. } in files {
            if let Err(error) = self.device.remove(&name_of(number)) {
                log::warn!("cannot remove {}: {error}", file.path().display());
            }
        }
    }

    fn have_looked_after(self: &Arc<Self>, state: &mut State) {
        if state.is_looked_after || state.is_closed {
            return;
        }
        let (files, interval) = (Arc::downgrade(self), state.policy.discard_after);
        let thread = std::thread::Builder::new().name("nandina-discard".into());
        match thread.spawn(move || look_after(&files, interval)) {
            Ok(_) => state.is_looked_after = true,
            Err(error) => log::warn!("freed temporary space is kept until the end: {error}"),
        }
    }

    /// Gives back blocks that have not been wanted for long enough. False when there is nothing left that may be wanted
    /// or given back later; then no thread looks after it any more.
    fn discard_what_is_unwanted(&self) -> bool {
        loop {
            let mut state = self.state.lock();
            let Policy { discard, discard_after, .. } = state.policy;
            let freed: u64 = state.files.iter().map(|file| file.freed.bytes()).sum();
            let is_empty = self.used_bytes() == 0;
            if !discard.may_be_deferred() || state.is_closed || (freed == 0 && !is_empty) {
                state.is_looked_after = false;
                return false;
            }
            let is_wanted = self.device.now().saturating_duration_since(state.last_wanted) < discard_after;
            if is_wanted && (state.policy.recycles() || freed < MOST_DEFERRED_BYTES) {
                return true;
            }
            if is_empty {
                state.is_looked_after = false;
                drop(state);
                self.remove_unused();
                return false;
            }
            let Some((number, file, offset, bytes)) = state.take_longest_freed() else { return true };
            drop(state);
            give_back(&file, offset, bytes);
            if let Some(file) = self.state.lock().file(number) {
                file.holes.put(offset, bytes);
            }
        }
    }
}

/// The thread that gives space back when none has been wanted for an interval.
fn look_after(files: &Weak<ExtentFiles>, interval: Duration) {
    loop {
        std::thread::sleep(interval);
        let goes_on = files.upgrade().is_some_and(|files| files.discard_what_is_unwanted());
        if !goes_on {
            return;
        }
    }
}

fn give_back(file: &File, offset: u64, bytes: u64) {
    // Where it cannot be given back, the blocks are used again by the range's next owner.
    if let Err(error) = file.punch_hole(offset, bytes) {
        log::warn!("cannot give space of {} back: {error}", file.path().display());
    }
}

impl State {
    fn file(&mut self, number: u64) -> Option<&mut TempFile> {
        self.files.iter_mut().find(|file| file.number == number)
    }

    fn recycle(&mut self, bytes: u64) -> Option<Placed> {
        self.files.iter_mut().find_map(|file| {
            let offset = file.freed.take(bytes)?;
            Some(file.placed(offset))
        })
    }

    /// A place that has not been used, or that was given back.
    fn place_anew(&mut self, bytes: u64, device: &Device) -> Result<Placed, Error> {
        let reserves = self.policy.preallocation != Preallocation::None;
        for file in &mut self.files {
            if let Some(offset) = file.reserved.take(bytes) {
                return Ok(file.placed(offset));
            }
            if let Some(offset) = file.holes.take(bytes) {
                if reserves && let Err(error) = file.file.allocate(offset, bytes) {
                    file.holes.put(offset, bytes);
                    return Err(error);
                }
                return Ok(file.placed(offset));
            }
        }
        if self.files.last().is_none_or(|file| file.end + bytes > FILE_BYTES) {
            self.begin_file(device)?;
        }
        let Some(file) = self.files.last_mut() else {
            return Err(Error::InvalidName { name: String::new() });
        };
        let offset = file.grow(bytes, reserves)?;
        Ok(file.placed(offset))
    }

    fn begin_file(&mut self, device: &Device) -> Result<(), Error> {
        let number = self.files_so_far;
        let file = device.create(&name_of(number), FileClass::Temp)?;
        self.files_so_far += 1;
        let [reserved, freed, holes] = Default::default();
        self.files.push(TempFile { number, file, reserved, freed, holes, end: 0 });
        Ok(())
    }

    fn take_longest_freed(&mut self) -> Option<(u64, File, u64, u64)> {
        let file = self.files.iter_mut().max_by_key(|file| file.freed.longest_bytes())?;
        if file.freed.longest_bytes() < LEAST_DEFERRED_BYTES {
            return None;
        }
        let (offset, bytes) = file.freed.take_longest()?;
        Some((file.number, file.file.clone(), offset, bytes))
    }

    /// Gives back everything that is not in use, holding the lock: the disk is full.
    fn give_back_all(&mut self) {
        for file in &mut self.files {
            while let Some((offset, bytes)) =
                file.freed.take_longest().or_else(|| file.reserved.take_longest())
            {
                give_back(&file.file, offset, bytes);
                file.holes.put(offset, bytes);
            }
        }
    }
}

impl TempFile {
    fn placed(&self, offset: u64) -> Placed {
        Placed { file: self.file.clone(), number: self.number, offset }
    }

    /// Adds bytes at the end, which may be reserved; returns where.
    fn grow(&mut self, bytes: u64, reserves: bool) -> Result<u64, Error> {
        let offset = self.end;
        let mut grown = bytes;
        if reserves {
            // A full step may be more than the disk has left; the bytes needed now may still fit.
            let step = bytes.next_multiple_of(GROWTH_BYTES);
            match self.file.allocate(offset, step) {
                Ok(()) => grown = step,
                Err(_) => self.file.allocate(offset, bytes)?,
            }
        }
        self.end += grown;
        self.reserved.put(offset + bytes, grown - bytes);
        Ok(offset)
    }
}
