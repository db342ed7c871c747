//! Changed rows go back into segments by themselves: a thread of each database that is open for writing does what `VACUUM` does.
//!
//! ```text
//!   a table's heap is long, has been left alone, or is not empty for some time  ─┐
//!   a table has many small segments, and has been left alone                     ├─► vacuum in the background
//!   transactions that change rows, or may do that                               ─┘   ─► later
//! ```
//!
//! Readers keep the state that they have. The thread ends before the database is closed, and gives up what it is doing; but rows that
//! few `INSERT`s have added since do not wait for the next time: without them other processes can read all tables side by side.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nandina_device::{FlowId, IoAccount, Priority, block_on};
use nandina_storage::{StorageError, Store, VacuumWork, WriteOptions};
use parking_lot::{Condvar, Mutex};

/// How often tables are looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// A table that has not been changed for so long has been left alone.
const LEFT_ALONE: Duration = Duration::from_secs(2);
/// Rows do not stay in the heap of a table much longer than this, however often it is changed.
const LONGEST_STAY: Duration = Duration::from_secs(30);
/// A heap of this length slows down those who read a table. It is a few ten thousand rows.
const LONG_HEAP_BYTES: u64 = 8 << 20;
/// So many files are worth putting together.
const MANY_SEGMENTS: usize = 8;
/// After a try that gave way to others, and after one that failed: each further one waits twice as long, up to the last.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Closing a database takes no longer because of them.
const LONGEST_END: Duration = Duration::from_secs(1);
/// Bytes in flight, for reading and for writing: no statement waits for it, and no session accounts for it.
const WINDOW_BYTES: usize = 1 << 20;

/// The thread, which ends with this.
pub(super) struct BackgroundVacuum {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Nothing is to be done for now.
    is_off: AtomicBool,
    /// The database is being closed. With either of them what is being done is given up.
    is_closing: AtomicBool,
    /// Held while `is_closing` is looked at, or changed.
    waiting: Mutex<()>,
    closing: Condvar,
}

impl BackgroundVacuum {
    /// That of a database. Without the thread all goes on, more slowly.
    pub(super) fn of(store: Store) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nandina-vacuum".to_owned());
        match thread.spawn(move || Looking::at(&store, &of_thread).run()) {
            Ok(thread) => Some(Self { shared, thread: Some(thread) }),
            Err(error) => {
                log::warn!("changed rows go back into segments with VACUUM only: {error}");
                None
            }
        }
    }

    pub(super) fn set_on(&self, is_on: bool) {
        self.shared.is_off.store(!is_on, Ordering::Relaxed);
    }
}

impl Drop for BackgroundVacuum {
    fn drop(&mut self) {
        let waiting = self.shared.waiting.lock();
        self.shared.is_closing.store(true, Ordering::Relaxed);
        drop(waiting);
        self.shared.closing.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that puts changed rows into segments has panicked");
        }
    }
}

impl Shared {
    /// Waits until tables are looked at next; whether they are.
    fn wait(&self) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.is_closing() {
            self.closing.wait_for(&mut waiting, BETWEEN_LOOKS);
        }
        !self.is_closing()
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }
}

/// What the thread knows of tables.
struct Looking<'s> {
    store: &'s Store,
    shared: &'s Shared,
    tables: HashMap<String, Known>,
}

/// A table that could be in fewer segments.
#[derive(Debug)]
struct Known {
    work: VacuumWork,
    /// When it was seen first, and changed last.
    first: Instant,
    last: Instant,
    not_before: Instant,
    wait: Duration,
    /// It is as it was left.
    is_done: bool,
}

impl Known {
    fn new(work: VacuumWork, now: Instant) -> Self {
        Self { work, first: now, last: now, not_before: now, wait: SHORTEST_WAIT, is_done: false }
    }

    fn see(&mut self, work: VacuumWork, now: Instant) {
        if work == self.work {
            return;
        }
        if self.is_done {
            *self = Self::new(work, now);
        }
        (self.work, self.last) = (work, now);
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_worth_it = self.work.heap.is_some() || self.work.small_segments >= MANY_SEGMENTS;
        if self.is_done || !is_worth_it || now < self.not_before {
            return false;
        }
        let stay = now.duration_since(self.first);
        now.duration_since(self.last) >= LEFT_ALONE
            || self.work.heap.is_some() && (stay >= LONGEST_STAY || self.work.heap_bytes >= LONG_HEAP_BYTES)
    }

    fn try_later(&mut self, now: Instant) {
        self.not_before = now + self.wait;
        self.wait = (2 * self.wait).min(LONGEST_WAIT);
    }
}

impl<'s> Looking<'s> {
    fn at(store: &'s Store, shared: &'s Shared) -> Self {
        Self { store, shared, tables: HashMap::new() }
    }

    fn run(mut self) {
        while self.shared.wait() {
            if self.shared.is_off() {
                continue;
            }
            let names = self.store.table_names();
            self.tables.retain(|name, _| names.contains(name));
            for name in names {
                self.look_at(name);
            }
        }
        if !self.shared.is_off() {
            self.look_last();
        }
    }

    fn look_at(&mut self, name: String) {
        let now = Instant::now();
        // One that has been dropped since, or whose rows cannot be read, says so where it is used.
        let Ok(Some(work)) = self.store.vacuum_work(&name) else {
            self.tables.remove(&name);
            return;
        };
        let known = self.tables.entry(name.clone()).or_insert_with(|| Known::new(work, now));
        known.see(work, now);
        let shared = self.shared;
        let must_stop = || shared.is_off() || shared.is_closing();
        if must_stop() || !known.is_due(now) {
            return;
        }
        match vacuum(self.store, &name, &must_stop) {
            Ok(true) => match self.store.vacuum_work(&name) {
                Ok(Some(work)) => {
                    // Rows that have come meanwhile are for another time.
                    *known = Known::new(work, Instant::now());
                    known.is_done = work.heap_bytes == 0;
                }
                _ => drop(self.tables.remove(&name)),
            },
            Ok(false) => known.try_later(Instant::now()),
            Err(error) => {
                log::warn!("changed rows of table {name:?} are not in segments yet: {error}");
                known.wait = LONGEST_WAIT;
                known.try_later(Instant::now());
            }
        }
    }

    /// Rows that were added since tables have been looked at, unless there is more to be done for them.
    fn look_last(&self) {
        let end = Instant::now() + LONGEST_END;
        let must_stop = || self.shared.is_off() || Instant::now() > end;
        for name in self.store.table_names() {
            let Ok(Some(work)) = self.store.vacuum_work(&name) else { continue };
            if work.heap.is_none() || work.has_deleted || work.heap_bytes > LONG_HEAP_BYTES || must_stop() {
                continue;
            }
            if let Err(error) = vacuum(self.store, &name, &must_stop) {
                log::warn!("rows of table {name:?} wait for the next time to be put into segments: {error}");
            }
        }
    }
}

fn vacuum(store: &Store, name: &str, must_stop: &(dyn Fn() -> bool + Sync)) -> Result<bool, StorageError> {
    let account = IoAccount::of_flow(FlowId::unique(), Priority::Background);
    let options = WriteOptions { window_bytes: Some(WINDOW_BYTES), account: Some(account) };
    block_on(store.vacuum_in_background(name, options, must_stop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(changes: u64, heap_bytes: u64) -> VacuumWork {
        VacuumWork {
            heap: Some((1, changes)),
            heap_bytes,
            has_deleted: false,
            segments: 1,
            small_segments: 1,
        }
    }

    #[test]
    fn a_table_is_due_when_it_is_left_alone_or_long_or_old() {
        let begin = Instant::now();
        let after = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        let mut known = Known::new(work(1, 8192), begin);
        assert!(!known.is_due(after(1.9)) && known.is_due(after(2.0)));
        for second in 1..30 {
            known.see(work(1 + second, 8192), after(second as f64));
            assert!(!known.is_due(after(second as f64)), "{second}");
        }
        assert!(known.is_due(after(30.0)));
        known.try_later(after(30.0));
        assert!(!known.is_due(after(30.4)) && known.is_due(after(30.5)));
        known.is_done = true;
        assert!(!known.is_due(after(100.0)));
        known.see(work(31, LONG_HEAP_BYTES), after(100.0));
        assert!(known.is_due(after(100.0)));
        let few = VacuumWork { heap: None, small_segments: MANY_SEGMENTS - 1, ..work(0, 0) };
        assert!(!Known::new(few, begin).is_due(after(100.0)));
        let many = VacuumWork { small_segments: MANY_SEGMENTS, ..few };
        let known = Known::new(many, begin);
        assert!(!known.is_due(after(1.0)) && known.is_due(after(2.0)));
    }
}
