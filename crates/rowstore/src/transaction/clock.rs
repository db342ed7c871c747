//! Which transactions there are, and what each of them sees.
//!
//! Numbers of transactions and times of commits come from one count. A transaction sees what was committed, and is durable, when
//! it began: all commits up to its *snapshot*. Of a transaction that all snapshots see, nothing is remembered.

use std::collections::{BTreeMap, VecDeque};

use crate::error::Result;
use crate::store::PageStore;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLock};
use crate::undo::TransactionId;

/// Numbers that are taken at once: after a crash, so many are passed over at most.
const STEP: u64 = 1 << 16;

/// The time of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Clock {
    root: usize,
    next: AtomicU64,
    /// Numbers below it may be used.
    bound: AtomicU64,
    extending: Mutex<()>,
    /// Commits up to it are durable.
    now: AtomicU64,
    /// Transactions with a lower number are seen by all.
    settled: AtomicU64,
    states: RwLock<States>,
    snapshots: Mutex<BTreeMap<Time, usize>>,
    committing: Mutex<()>,
}

#[derive(Debug, Default)]
struct States {
    of: BTreeMap<TransactionId, State>,
    /// Those that are committed, in the order of their times.
    committed: VecDeque<(Time, TransactionId)>,
}

/// What became of a transaction that is not seen by all yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Active,
    Committed(Time),
}

impl Clock {
    /// Goes on behind all numbers that were used, the highest of which `root` bounds.
    pub fn open(store: &PageStore, root: usize) -> Result<Self> {
        let bound = store.root(root)?.max(1);
        Ok(Self {
            root,
            next: AtomicU64::new(bound + 1),
            bound: AtomicU64::new(bound),
            extending: Mutex::default(),
            now: AtomicU64::new(bound),
            settled: AtomicU64::new(bound + 1),
            states: RwLock::default(),
            snapshots: Mutex::default(),
            committing: Mutex::default(),
        })
    }

    /// A transaction that was not committed when the store was last used, and is not rolled back: nobody sees what it did.
    pub fn leave_unfinished(&self, id: TransactionId) {
        self.states.write().of.insert(id, State::Active);
        self.settled.fetch_min(id.0, Ordering::AcqRel);
    }

    /// Makes sure that numbers are left, which no lock may be held for.
    fn reserve(&self, store: &PageStore) -> Result<()> {
        let is_short = || self.next.load(Ordering::Relaxed) + STEP / 2 > self.bound.load(Ordering::Acquire);
        if !is_short() {
            return Ok(());
        }
        let _extending = self.extending.lock();
        if is_short() {
            let bound = self.next.load(Ordering::Relaxed) + STEP;
            // In the log before whatever has one of the numbers in it.
            let mut change = store.change();
            store.set_root(&mut change, self.root, bound)?;
            change.commit()?;
            self.bound.store(bound, Ordering::Release);
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number < self.bound.load(Ordering::Acquire), "more threads than numbers that were reserved");
        number
    }

    /// A number that no transaction has.
    pub fn number_of_none(&self, store: &PageStore) -> Result<TransactionId> {
        self.reserve(store)?;
        Ok(TransactionId(self.number()))
    }

    /// A number for a transaction that begins to change something.
    pub fn begin(&self, store: &PageStore) -> Result<TransactionId> {
        self.reserve(store)?;
        // With the lock, so that a transaction is known before one with a higher number is.
        let mut states = self.states.write();
        let id = TransactionId(self.number());
        states.of.insert(id, State::Active);
        Ok(id)
    }

    /// Begins to see what is committed now.
    pub fn take_snapshot(&self) -> Time {
        let mut snapshots = self.snapshots.lock();
        let now = Time(self.now.load(Ordering::Acquire));
        *snapshots.entry(now).or_default() += 1;
        now
    }

    pub fn drop_snapshot(&self, snapshot: Time) {
        let mut snapshots = self.snapshots.lock();
        let Some(count) = snapshots.get_mut(&snapshot) else { unreachable!("the snapshot was taken") };
        *count -= 1;
        if *count == 0 {
            snapshots.remove(&snapshot);
        }
    }

    /// All transactions that have changed something have lower numbers.
    pub fn next_number(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Whether one with a lower number has not ended, or is not seen yet by those that begin now.
    pub fn has_unseen(&self, next: u64) -> bool {
        let now = self.now.load(Ordering::Acquire);
        let is_unseen = |(id, state): (&TransactionId, &State)| match state {
            _ if id.0 >= next => false,
            State::Active => true,
            State::Committed(time) => time.0 > now,
        };
        self.states.read().of.iter().any(is_unseen)
    }

    /// All snapshots, those to come included, see commits up to it.
    pub fn horizon(&self) -> Time {
        let snapshots = self.snapshots.lock();
        let now = Time(self.now.load(Ordering::Acquire));
        snapshots.first_key_value().map_or(now, |(oldest, _)| *oldest)
    }

    /// Whether there is no transaction.
    pub fn is_idle(&self) -> bool {
        self.snapshots.lock().is_empty()
    }

    /// What became of a transaction; `None` if all see it.
    pub fn state(&self, id: TransactionId) -> Option<State> {
        if id.0 < self.settled.load(Ordering::Acquire) {
            return None;
        }
        self.states.read().of.get(&id).copied()
    }

    pub fn sees(&self, snapshot: Time, id: TransactionId) -> bool {
        match self.state(id) {
            None => true,
            Some(State::Active) => false,
            Some(State::Committed(time)) => time <= snapshot,
        }
    }

    /// Whether a transaction will never be rolled back.
    pub fn has_committed(&self, id: TransactionId) -> bool {
        self.state(id) != Some(State::Active)
    }

    /// A time for a commit. The lock is kept until the commit is in the log and known: so times are in the order of the log.
    pub fn commit_time(&self, store: &PageStore) -> Result<(Time, MutexGuard<'_, ()>)> {
        self.reserve(store)?;
        let lock = self.committing.lock();
        Ok((Time(self.number()), lock))
    }

    pub fn committed(&self, id: TransactionId, time: Time, _order: &MutexGuard<'_, ()>) {
        let mut states = self.states.write();
        states.of.insert(id, State::Committed(time));
        states.committed.push_back((time, id));
    }

    /// Commits up to this time are durable: transactions that begin from now on see them.
    pub fn advance(&self, to: Time) {
        self.now.fetch_max(to.0, Ordering::AcqRel);
        self.settle();
    }

    /// Nothing in the store has this number any more.
    pub fn forget(&self, id: TransactionId) {
        self.states.write().of.remove(&id);
    }

    fn settle(&self) {
        let horizon = self.horizon();
        if self.states.read().committed.front().is_none_or(|(time, _)| *time > horizon) {
            return;
        }
        let mut states = self.states.write();
        while let Some((_, id)) = states.committed.pop_front_if(|(time, _)| *time <= horizon) {
            states.of.remove(&id);
        }
        let next = states.of.first_key_value().map(|(id, _)| id.0);
        // One that begins later has a higher number than all that are known.
        if let Some(next) = next {
            self.settled.fetch_max(next, Ordering::AcqRel);
        }
    }
}
