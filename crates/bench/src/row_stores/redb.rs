//! redb: one writer at a time, pages copied when they are changed.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase as _, TableDefinition};

use super::{KeyedRow, ROW_BYTES, Rows, Session};
use crate::error::{BenchError, Result};

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

pub struct Redb {
    database: Database,
    is_durable: bool,
}

fn failed(error: impl Into<redb::Error>) -> BenchError {
    BenchError::Setup(format!("redb: {}", error.into()))
}

impl Redb {
    pub fn open(folder: &Path, cache_bytes: u64, is_durable: bool) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes as usize);
        let database = builder.create(folder.join("rows.redb")).map_err(failed)?;
        let store = Self { database, is_durable };
        store.write(|_| Ok(()))?;
        Ok(store)
    }

    fn write(&self, work: impl FnOnce(&mut redb::Table<'_, u64, &'static [u8]>) -> Result<()>) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        let durability = if self.is_durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(failed)?;
        {
            let mut table = transaction.open_table(ROWS).map_err(failed)?;
            work(&mut table)?;
        }
        transaction.commit().map_err(failed)
    }
}

impl Rows for Redb {
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut RedbSession(self))
    }

    fn settle(&self) -> Result<()> {
        // A durable commit makes those before it durable.
        let transaction = self.database.begin_write().map_err(failed)?;
        transaction.commit().map_err(failed)
    }
}

struct RedbSession<'s>(&'s Redb);

impl Session for RedbSession<'_> {
    fn read(&mut self, key: u64) -> Result<Option<usize>> {
        let transaction = self.0.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(ROWS).map_err(failed)?;
        let row = table.get(key).map_err(failed)?;
        Ok(row.map(|row| row.value().len()))
    }

    fn range(&mut self, from: u64, rows: usize) -> Result<usize> {
        let transaction = self.0.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(ROWS).map_err(failed)?;
        let mut count = 0;
        for row in table.range(from..).map_err(failed)?.take(rows) {
            count += usize::from(row.map_err(failed)?.1.value().len() == ROW_BYTES);
        }
        Ok(count)
    }

    fn update(&mut self, key: u64, row: &[u8]) -> Result<()> {
        self.0.write(|table| match table.insert(key, row).map_err(failed)? {
            Some(_) => Ok(()),
            None => Err(BenchError::Setup(format!("redb has no row of key {key}"))),
        })
    }

    fn insert(&mut self, rows: &[KeyedRow]) -> Result<()> {
        self.0.write(|table| {
            for (key, row) in rows {
                if table.insert(*key, &row[..]).map_err(failed)?.is_some() {
                    return Err(BenchError::Setup(format!("redb has a row of key {key} already")));
                }
            }
            Ok(())
        })
    }
}
