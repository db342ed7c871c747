//! A statement reads all native tables as they are at one time, when it starts.
//!
//! ```text
//!   CREATE VIEW v AS SELECT … FROM t     plan with snapshot 1 of t
//!   INSERT INTO t …                      snapshot 2
//!   SELECT … FROM v JOIN t JOIN s        plan with snapshots 1 and 2 ─► all read snapshot 2
//! ```
//!
//! A look-up makes a provider of one snapshot (`native`). Another one of the same statement may see what has been
//! committed in between, and views and prepared statements are plans that were made earlier. So the snapshots of all
//! tables of a database are exchanged for those of one state before a statement is optimized.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, TableScan, TableSource};
use datafusion::optimizer::AnalyzerRule;
use nandina_exec::rows::{RowTableProvider, SharedTransaction, Transactions};
use nandina_exec::scan::NativeTableProvider;
use nandina_storage::{Snapshot, Store};

use crate::error::Error;
use crate::transactions::OpenTransaction;

#[derive(Debug)]
pub(crate) struct NewestSnapshots(pub Arc<OpenTransaction>);

impl AnalyzerRule for NewestSnapshots {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut newest = Newest { transaction: self.0.current(), databases: Vec::new() };
        let exchanged = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(mut scan) => match newest.source(&scan)? {
                Some(source) => {
                    scan.source = source;
                    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
                }
                None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            },
            other => Ok(Transformed::no(other)),
        });
        exchanged.data()
    }

    fn name(&self) -> &str {
        "newest_snapshots"
    }
}

/// The states of databases that a statement sees.
struct Newest {
    /// Sees what it saw first.
    transaction: Option<Arc<Transactions>>,
    databases: Vec<State>,
}

struct State {
    snapshot: Snapshot,
    /// What it is of, if it is one of several statements.
    transaction: Option<Arc<SharedTransaction>>,
    sources: HashMap<String, Arc<dyn TableSource>>,
}

impl Newest {
    /// The state of a database.
    fn of(&mut self, store: &Store) -> Result<&mut State> {
        let known = self.databases.iter().position(|state| state.snapshot.is_of(store));
        let at = match known {
            Some(at) => at,
            None => {
                let transaction =
                    self.transaction.as_ref().map(|transactions| transactions.of(store)).transpose()?;
                let snapshot = match &transaction {
                    Some(transaction) => transaction.snapshot().clone(),
                    None => store.snapshot(),
                };
                self.databases.push(State { snapshot, transaction, sources: HashMap::new() });
                self.databases.len() - 1
            }
        };
        #[allow(clippy::indexing_slicing, reason = "it was found or put there")]
        Ok(&mut self.databases[at])
    }

    /// The table of a scan in that state; none if it is not one of a database in a directory.
    fn source(&mut self, scan: &TableScan) -> Result<Option<Arc<dyn TableSource>>> {
        let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
        let native = provider.downcast_ref::<NativeTableProvider>().map(NativeTableProvider::table);
        let rows = provider.downcast_ref::<RowTableProvider>();
        let Some(table) = native.or(rows.map(RowTableProvider::table)) else { return Ok(None) };
        let (name, store) = (table.name(), table.store());
        let State { snapshot, transaction, sources } = self.of(store)?;
        let table = || match &*transaction {
            Some(transaction) => transaction.read(|transaction| transaction.table(name)),
            None => snapshot.table(name).map_err(|error| DataFusionError::from(Error::from(error))),
        };
        let source = match (sources.get(name), rows.is_some_and(RowTableProvider::has_row_ids)) {
            (Some(source), false) => Arc::clone(source),
            (_, true) => provider_as_source(Arc::new(RowTableProvider::new(table()?).with_row_ids())),
            (None, false) => {
                let table = table()?;
                let source = match table.has_changeable_rows() {
                    true => provider_as_source(Arc::new(RowTableProvider::new(table))),
                    false => provider_as_source(Arc::new(NativeTableProvider::new(table))),
                };
                sources.insert(name.to_owned(), Arc::clone(&source));
                source
            }
        };
        if source.schema() != scan.source.schema() {
            return Err(Error::Query {
                message: format!(
                    "table '{name}' has other columns than when the view or statement was made; make it again"
                ),
            }
            .into());
        }
        Ok(Some(source))
    }
}
