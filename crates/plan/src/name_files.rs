//! Has errors of reading a file name the file.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::scan::NamingSource;

/// Wraps the sources of all scans of files, for which no rule may look any more.
#[derive(Debug)]
pub struct NameFiles;

impl PhysicalOptimizerRule for NameFiles {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let scan = node.downcast_ref::<DataSourceExec>();
            let config = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
            let Some(config) = config else { return Ok(Transformed::no(node)) };
            let source = Arc::new(NamingSource::over(Arc::clone(config.file_source())));
            let config = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
            Ok(Transformed::yes(DataSourceExec::from_data_source(config) as _))
        })
        .data()
    }

    fn name(&self) -> &str {
        "name_files"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
