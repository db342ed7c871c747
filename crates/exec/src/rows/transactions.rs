//! Which transactions a statement is in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::{Result, exec_err};
use datafusion::execution::config::SessionConfig;
use nandina_device::FlowId;
use nandina_storage::{Durability, Mode, RowsKept, Savepoint, Snapshot, StorageError, Store, Transaction};
use parking_lot::{Mutex, RwLock};

use super::blocking;
use crate::scan::storage_error;

/// The transactions of a statement, or of several: one of each database that they use, begun when it is used first.
///
/// Those of several statements end with COMMIT or ROLLBACK, that of one ends with it.
#[derive(Debug)]
pub struct Transactions {
    kind: Kind,
    durability: Durability,
    /// A statement changes rows.
    is_writing: AtomicBool,
    /// A statement could not be rolled back: nothing goes on but ROLLBACK.
    is_broken: AtomicBool,
    begun: Mutex<Vec<Arc<SharedTransaction>>>,
    /// What keeps rows in their places that may be changed.
    kept: Mutex<Vec<(Store, RowsKept)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OfStatement,
    OfSession { is_read_only: bool },
}

/// A transaction that all parts of a statement use: many read at the same time, or one writes.
#[derive(Debug)]
pub struct SharedTransaction {
    /// None once it has ended.
    state: RwLock<Option<Transaction>>,
    snapshot: Snapshot,
    /// The statements of scans whose rows would be told twice if they were changed meanwhile.
    open_scans: Arc<Mutex<Vec<FlowId>>>,
}

/// A scan of notes of deleted rows on the one hand, and of what these rows have become on the other.
#[derive(Debug)]
pub struct OpenScan {
    statement: FlowId,
    among: Arc<Mutex<Vec<FlowId>>>,
}

impl Drop for OpenScan {
    fn drop(&mut self) {
        let mut open = self.among.lock();
        if let Some(at) = open.iter().position(|other| *other == self.statement) {
            open.swap_remove(at);
        }
    }
}

/// A moment that several transactions can be rolled back to.
#[derive(Debug, Clone)]
pub struct Savepoints(Vec<(Arc<SharedTransaction>, Option<Savepoint>)>);

impl Transactions {
    /// Those of one statement.
    pub fn of_statement(durability: Durability) -> Arc<Self> {
        Self::new(Kind::OfStatement, durability)
    }

    /// Those of the statements between BEGIN and its end.
    pub fn of_session(is_read_only: bool, durability: Durability) -> Arc<Self> {
        Self::new(Kind::OfSession { is_read_only }, durability)
    }

    fn new(kind: Kind, durability: Durability) -> Arc<Self> {
        let (is_writing, is_broken, begun, kept) = Default::default();
        Arc::new(Self { kind, durability, is_writing, is_broken, begun, kept })
    }

    /// Those that statements with this configuration are in; a plan that no session of ours has made is a statement of its own.
    pub fn of_config(config: &SessionConfig) -> Arc<Self> {
        config.get_extension::<Self>().unwrap_or_else(|| Self::of_statement(Durability::Full))
    }

    /// Whether rows may be changed.
    pub fn is_read_only(&self) -> bool {
        self.kind == Kind::OfSession { is_read_only: true }
    }

    pub fn are_of_session(&self) -> bool {
        self.kind != Kind::OfStatement
    }

    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Keeps rows of a database in their places until these end, as a statement may change some that it finds.
    pub fn keep_rows(&self, store: &Store) {
        if self.kept.lock().iter().any(|(kept, _)| kept.is(store)) {
            return;
        }
        let kept = blocking(|| store.keep_rows());
        self.kept.lock().push((store.clone(), kept));
    }

    /// That of a database.
    pub fn of(&self, store: &Store) -> Result<Arc<SharedTransaction>> {
        self.check_whole()?;
        let mut begun = self.begun.lock();
        if let Some(known) = begun.iter().find(|begun| begun.snapshot.is_of(store)) {
            return Ok(Arc::clone(known));
        }
        if self.kind == (Kind::OfSession { is_read_only: false }) {
            self.keep_rows(store);
        }
        let transaction = blocking(|| store.begin()).map_err(storage_error)?;
        let mut transaction = transaction;
        if store.mode() == Mode::Temporary && self.are_of_session() {
            // Tables may come into it from memory, and are seen then.
            blocking(|| transaction.begin_changes()).map_err(storage_error)?;
        }
        let snapshot = transaction.snapshot().clone();
        let transaction = Arc::new(SharedTransaction {
            state: RwLock::new(Some(transaction)),
            snapshot,
            open_scans: Arc::default(),
        });
        begun.push(Arc::clone(&transaction));
        Ok(transaction)
    }

    /// That of a database, for a statement that changes rows.
    pub fn to_write(&self, store: &Store) -> Result<Arc<SharedTransaction>> {
        if self.is_read_only() {
            return exec_err!("the transaction is READ ONLY: COMMIT it, and BEGIN one that changes rows");
        }
        let transaction = self.of(store)?;
        transaction.write(Transaction::begin_changes)?;
        let others = self.begun.lock();
        let mut others = others.iter().filter(|other| !Arc::ptr_eq(other, &transaction));
        if others.any(|other| other.has_written()) {
            return exec_err!(
                "a transaction changes rows of one database alone: COMMIT it before rows of another one are changed"
            );
        }
        Ok(transaction)
    }

    fn check_whole(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Acquire) {
            return exec_err!("the transaction has lost a part of what it did: ROLLBACK and begin again");
        }
        Ok(())
    }

    /// Begins a statement that changes rows; another one has to end first.
    pub fn begin_change(self: &Arc<Self>, own: FlowId) -> Result<ChangingStatement> {
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return exec_err!(
                "another statement of this transaction is changing rows: read its result to the end first"
            );
        }
        let mut statement = ChangingStatement { transactions: Arc::clone(self), before: None };
        self.check_no_scans(Some(own))?;
        statement.before = Some(self.savepoints());
        Ok(statement)
    }

    /// Refuses to change rows while another statement is reading some that it would see twice.
    pub fn check_no_scans(&self, own: Option<FlowId>) -> Result<()> {
        let is_read =
            |begun: &Arc<SharedTransaction>| begun.open_scans.lock().iter().any(|other| Some(*other) != own);
        if self.begun.lock().iter().any(is_read) {
            return exec_err!(
                "rows of a query of this transaction are still being read: read its result to the end, or drop it, before rows are changed"
            );
        }
        Ok(())
    }

    /// Refuses a moment at which a statement has changed a part of its rows.
    pub fn check_between_statements(&self) -> Result<()> {
        self.check_whole()?;
        if self.is_writing.load(Ordering::Acquire) {
            return exec_err!(
                "a statement of this transaction is changing rows: read its result to the end first"
            );
        }
        Ok(())
    }

    /// Makes durable what was done.
    pub fn commit(&self) -> Result<()> {
        self.check_between_statements()?;
        self.commit_all()
    }

    fn commit_all(&self) -> Result<()> {
        let begun = std::mem::take(&mut *self.begun.lock());
        for transaction in begun {
            let ended = transaction.state.write().take();
            if let Some(transaction) = ended {
                blocking(|| transaction.commit_as(self.durability)).map_err(storage_error)?;
            }
        }
        self.kept.lock().clear();
        Ok(())
    }

    /// Rolls back what was done.
    pub fn roll_back(&self) {
        for transaction in std::mem::take(&mut *self.begun.lock()) {
            let ended = transaction.state.write().take();
            blocking(|| drop(ended));
        }
        self.kept.lock().clear();
    }

    /// This moment, in all databases that have been used.
    pub fn savepoints(&self) -> Savepoints {
        let begun = self.begun.lock();
        let moment = |transaction: &Arc<SharedTransaction>| {
            let savepoint = transaction.state.read().as_ref().and_then(Transaction::savepoint);
            (Arc::clone(transaction), savepoint)
        };
        Savepoints(begun.iter().map(moment).collect())
    }

    /// Rolls back what was done since, in databases that have been used since, too.
    pub fn roll_back_to(&self, savepoints: &Savepoints) -> Result<()> {
        let begun: Vec<_> = self.begun.lock().clone();
        for transaction in begun {
            let known = savepoints.0.iter().find(|(other, _)| Arc::ptr_eq(other, &transaction));
            let savepoint = known.map_or(Some(Savepoint::default()), |(_, savepoint)| *savepoint);
            transaction.write(|transaction| transaction.roll_back_to(savepoint))?;
        }
        Ok(())
    }
}

/// A statement that changes rows, which is rolled back unless it ends.
#[derive(Debug)]
pub struct ChangingStatement {
    transactions: Arc<Transactions>,
    /// None once it has ended.
    before: Option<Savepoints>,
}

impl ChangingStatement {
    /// All rows are changed. The statement's own transactions are committed.
    pub fn end(mut self) -> Result<()> {
        if !self.transactions.are_of_session() {
            self.transactions.commit_all()?;
        }
        self.before = None;
        Ok(())
    }
}

impl Drop for ChangingStatement {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            if !self.transactions.are_of_session() {
                self.transactions.roll_back();
            } else if let Err(error) = self.transactions.roll_back_to(before) {
                log::error!("a statement could not be rolled back, and with it its transaction: {error}");
                self.transactions.is_broken.store(true, Ordering::Release);
                self.transactions.roll_back();
            }
        }
        self.transactions.is_writing.store(false, Ordering::Release);
    }
}

impl SharedTransaction {
    /// All tables as this transaction sees them.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Keeps rows from being changed by other statements as long as it is there.
    pub fn open_scan(&self, statement: FlowId) -> OpenScan {
        self.open_scans.lock().push(statement);
        OpenScan { statement, among: Arc::clone(&self.open_scans) }
    }

    fn has_written(&self) -> bool {
        let state = self.state.read();
        let savepoint = state.as_ref().and_then(Transaction::savepoint);
        savepoint.is_some_and(|savepoint| savepoint != Savepoint::default())
    }

    pub fn read<T>(&self, work: impl FnOnce(&Transaction) -> Result<T, StorageError>) -> Result<T> {
        blocking(|| match self.state.read().as_ref() {
            Some(transaction) => work(transaction).map_err(storage_error),
            None => has_ended(),
        })
    }

    pub fn write<T>(&self, work: impl FnOnce(&mut Transaction) -> Result<T, StorageError>) -> Result<T> {
        blocking(|| match self.state.write().as_mut() {
            Some(transaction) => work(transaction).map_err(storage_error),
            None => has_ended(),
        })
    }
}

fn has_ended<T>() -> Result<T> {
    exec_err!(
        "the transaction of this statement has ended: read the rows of a query before COMMIT or ROLLBACK"
    )
}
