//! A statement reads native tables as they are when it starts, and each of them in one state only.
//!
//! ```text
//!   CREATE VIEW v AS SELECT … FROM t     plan with snapshot 1 of t
//!   INSERT INTO t …                      snapshot 2
//!   SELECT … FROM v JOIN t               plan with snapshots 1 and 2 ─► both read snapshot 2
//! ```
//!
//! A look-up makes a provider of one snapshot (`native`). Views and prepared statements are plans that were made
//! earlier, so their snapshots are exchanged before a statement is optimized.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, TableScan, TableSource};
use datafusion::optimizer::AnalyzerRule;
use nandina_exec::scan::NativeTableProvider;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct NewestSnapshots;

impl AnalyzerRule for NewestSnapshots {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut newest = HashMap::new();
        let exchanged = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(mut scan) => match newest_source(&scan, &mut newest)? {
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

/// The newest snapshot of a scan's table; none if it is not a native one.
fn newest_source(
    scan: &TableScan,
    newest: &mut HashMap<String, Arc<dyn TableSource>>,
) -> Result<Option<Arc<dyn TableSource>>> {
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(native) = provider.downcast_ref::<NativeTableProvider>() else { return Ok(None) };
    let name = native.table().name();
    let source = match newest.get(name) {
        Some(source) => Arc::clone(source),
        None => {
            let table =
                native.table().refreshed().map_err(|error| DataFusionError::from(Error::from(error)))?;
            let source = provider_as_source(Arc::new(NativeTableProvider::new(table)));
            newest.insert(name.to_owned(), Arc::clone(&source));
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
