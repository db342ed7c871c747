//! `BEGIN`, `COMMIT` and what belongs to them, by their syntax.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Statement as SqlStatement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};

use super::wrong_plans::normalized;
use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionStatement {
    Begin { is_read_only: bool },
    Commit,
    Rollback,
    Savepoint { name: String },
    RollbackTo { name: String },
    Release { name: String },
}

/// The statement, if it is one of these.
pub(crate) fn of(statement: &Statement) -> Result<Option<TransactionStatement>> {
    let Statement::Statement(inner) = statement else { return Ok(None) };
    Ok(Some(match inner.as_ref() {
        SqlStatement::StartTransaction { modes, statements, .. } => {
            if !statements.is_empty() {
                return Err(Error::unsupported(
                    "BEGIN … END blocks are not supported; BEGIN begins a transaction",
                ));
            }
            let mut is_read_only = false;
            for mode in modes {
                match mode {
                    TransactionMode::AccessMode(mode) => {
                        is_read_only = *mode == TransactionAccessMode::ReadOnly
                    }
                    TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                        return Err(Error::unsupported(
                            "SERIALIZABLE is not supported: transactions see a snapshot (REPEATABLE READ), and of two that change \
                             the same row the second one fails",
                        ));
                    }
                    // What is asked for is kept, and more.
                    TransactionMode::IsolationLevel(_) => {}
                }
            }
            TransactionStatement::Begin { is_read_only }
        }
        SqlStatement::Commit { chain: false, .. } => TransactionStatement::Commit,
        SqlStatement::Rollback { chain: false, savepoint: None } => TransactionStatement::Rollback,
        SqlStatement::Rollback { chain: false, savepoint: Some(name) } => {
            TransactionStatement::RollbackTo { name: normalized(name) }
        }
        SqlStatement::Commit { .. } | SqlStatement::Rollback { .. } => {
            return Err(Error::unsupported("AND CHAIN is not supported; BEGIN begins the next transaction"));
        }
        SqlStatement::Savepoint { name } => TransactionStatement::Savepoint { name: normalized(name) },
        SqlStatement::ReleaseSavepoint { name } => TransactionStatement::Release { name: normalized(name) },
        _ => return Ok(None),
    }))
}
