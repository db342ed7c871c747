//! A session as the runner sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nandina::{Answer, Database, Error, Profile, Session};
use nandina_exec::memory::MemoryGovernor;
use parking_lot::Mutex;
use sqllogictest::{AsyncDB, DBOutput};

use crate::cells::{self, ColumnKind};

/// How long cancelled workers may take to end: far more than they need.
pub const LONGEST_END: Duration = Duration::from_secs(20);

/// What the sessions of a file used; outlives them.
#[derive(Clone, Default)]
pub struct Account(Arc<Mutex<Used>>);

#[derive(Default)]
struct Used {
    governors: Vec<Arc<MemoryGovernor>>,
    spilled_bytes: u64,
}

impl Account {
    /// Bytes that are reserved now.
    pub fn reserved_bytes(&self) -> usize {
        self.0.lock().governors.iter().map(|governor| governor.used_bytes()).sum()
    }

    /// Bytes that all statements together wrote to temporary space.
    pub fn spilled_bytes(&self) -> u64 {
        self.0.lock().spilled_bytes
    }
}

pub struct Connection {
    session: Session,
    account: Account,
}

impl Connection {
    pub fn open(database: &Database, account: &Account) -> Result<Self, Error> {
        let session = database.session()?;
        account.0.lock().governors.push(session.governor());
        Ok(Connection { session, account: account.clone() })
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Error;
    type ColumnType = ColumnKind;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<ColumnKind>, Error> {
        let answered = self.answer(sql).await;
        self.memory_is_returned().await;
        answered
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "nandina"
    }
}

impl Connection {
    async fn answer(&self, sql: &str) -> Result<DBOutput<ColumnKind>, Error> {
        let query = self.session.sql(sql).await?;
        let (answer, schema, plan) = (query.answer(), query.schema(), query.plan());
        let batches = query.collect().await?;
        let spilled_bytes = plan.map_or(0, |plan| Profile::of(&plan).spilled_bytes());
        self.account.0.lock().spilled_bytes += spilled_bytes;
        let rows = batches.iter().map(cells::rows).collect::<Result<Vec<_>, _>>()?.concat();
        Ok(match answer {
            Answer::Nothing => DBOutput::StatementComplete(0),
            Answer::RowsWritten => {
                let counts = rows.iter().flatten().filter_map(|count| count.parse::<u64>().ok());
                DBOutput::StatementComplete(counts.sum())
            }
            Answer::Rows | Answer::Text => DBOutput::Rows { types: cells::kinds(&schema), rows },
        })
    }

    /// Waits until a statement has given its memory back, so that the next one has all of it: workers that are
    /// cancelled, at a LIMIT or an error, end a little later than the statement. Tables in memory keep theirs.
    async fn memory_is_returned(&self) {
        let start = Instant::now();
        let governor = self.session.governor();
        while self.session.database().directory().is_some() && governor.used_bytes() > 0 {
            assert!(start.elapsed() < LONGEST_END, "{} bytes are still reserved", governor.used_bytes());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
