//! The transaction that a session has begun.

use std::sync::Arc;

use nandina_exec::rows::{Savepoints, Transactions};
use nandina_storage::Durability;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::planning::transaction_statement::TransactionStatement;

/// What is said where rows are to be changed all the same.
pub(crate) const READ_ONLY: &str = "the transaction is READ ONLY: COMMIT it, and BEGIN one that changes rows";

/// None, unless BEGIN has begun one.
#[derive(Debug, Default)]
pub(crate) struct OpenTransaction(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    transactions: Arc<Transactions>,
    /// In the order in which they were made. Of two with one name the later one is meant.
    savepoints: Vec<(String, Savepoints)>,
}

impl OpenTransaction {
    /// What the next statement is in: the transaction that is open, or one of its own.
    pub(crate) fn of_statement(&self, durability: Durability) -> Arc<Transactions> {
        self.current().unwrap_or_else(|| Transactions::of_statement(durability))
    }

    /// The transaction that is open.
    pub(crate) fn current(&self) -> Option<Arc<Transactions>> {
        self.0.lock().as_ref().map(|open| Arc::clone(&open.transactions))
    }

    /// Refuses what cannot be rolled back.
    pub(crate) fn refuse(&self, what: &str) -> Result<()> {
        match *self.0.lock() {
            Some(_) => Err(Error::unsupported(format!(
                "{what} cannot be part of a transaction yet, as it could not be rolled back: COMMIT or ROLLBACK first"
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn run(&self, statement: TransactionStatement, durability: Durability) -> Result<()> {
        let mut open = self.0.lock();
        let none = || Error::unsupported("there is no transaction; BEGIN begins one");
        match statement {
            TransactionStatement::Begin { .. } if open.is_some() => {
                return Err(Error::unsupported(
                    "there is a transaction already; SAVEPOINT name is for parts of one",
                ));
            }
            TransactionStatement::Begin { is_read_only } => {
                let transactions = Transactions::of_session(is_read_only, durability);
                *open = Some(Open { transactions, savepoints: Vec::new() });
            }
            TransactionStatement::Commit => {
                open.as_ref().ok_or_else(none)?.transactions.check_between_statements()?;
                open.take().ok_or_else(none)?.transactions.commit()?;
            }
            TransactionStatement::Rollback => open.take().ok_or_else(none)?.transactions.roll_back(),
            TransactionStatement::Savepoint { name } => {
                let open = open.as_mut().ok_or_else(none)?;
                open.transactions.check_between_statements()?;
                let savepoints = open.transactions.savepoints();
                open.savepoints.push((name, savepoints));
            }
            TransactionStatement::RollbackTo { name } => {
                let open = open.as_mut().ok_or_else(none)?;
                open.transactions.check_between_statements()?;
                open.transactions.check_no_scans(None)?;
                let at = open.find(&name)?;
                // It stays, those behind it are gone.
                open.savepoints.truncate(at + 1);
                if let Some((_, savepoints)) = open.savepoints.last() {
                    open.transactions.roll_back_to(savepoints)?;
                }
            }
            TransactionStatement::Release { name } => {
                let open = open.as_mut().ok_or_else(none)?;
                let at = open.find(&name)?;
                open.savepoints.truncate(at);
            }
        }
        Ok(())
    }
}

impl Open {
    fn find(&self, name: &str) -> Result<usize> {
        let at = self.savepoints.iter().rposition(|(other, _)| other == name);
        at.ok_or_else(|| Error::unsupported(format!("there is no savepoint '{name}' in this transaction")))
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if let Some(open) = self.0.lock().take() {
            open.transactions.roll_back();
        }
    }
}
