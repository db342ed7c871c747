//! `EXPLAIN` and `EXPLAIN ANALYZE`: plans as text, and what their operators did.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Analyze, LogicalPlan, WriteOp};

use super::report::{Watch, Watched};
use super::{copy_to, start, start_plan};
use crate::error::{Error, Result};
use crate::files::sources;
use crate::planning;
use crate::profile::Profile;
use crate::query::{Answer, Query};
use nandina_plan::metered;

/// Runs the query to its end, drops its rows and returns what its operators did; draws it too if a page is asked
/// for.
pub(crate) async fn analyze(
    state: &Arc<SessionState>,
    analyze: &Analyze,
    watched: Option<Watched>,
) -> Result<Query> {
    let (plan, file) = match &*analyze.input {
        LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)) => {
            return Err(planning::cannot_change(dml.table_name.table()));
        }
        LogicalPlan::Copy(copy) => copy_to::planned(state, copy.clone()).await?,
        other => (planning::physical_plan(state, other.clone()).await?, None),
    };
    let verbose = analyze.verbose;
    sources::know_before(state, &plan).await;
    let plan = metered(plan)?;
    let query = start(state, Arc::clone(&plan), Answer::Rows)?;
    let executed = Arc::clone(&plan);
    let work = async move {
        let watch = watched.map(Watch::start);
        query.drain().await?;
        if let Some(file) = file {
            file.finish()?;
        }
        let profile = Profile::of(&executed);
        let mut text = profile.render(verbose);
        if let Some(watch) = watch {
            let [page, data] = watch.end(&profile)?;
            text += &format!("report: {} ({} holds its figures)\n", page.display(), data.display());
        }
        text_lines(&text)
    };
    Ok(Query::working(Answer::Text, text_schema(), Some(plan), work))
}

/// The plans of a query as text.
pub(crate) async fn plans(state: &Arc<SessionState>, plan: LogicalPlan) -> Result<Query> {
    let batches = start_plan(state, plan, Answer::Text).await?.collect().await?;
    let mut text = String::new();
    for batch in &batches {
        for name in ["plan_type", "plan"] {
            if batch.column_by_name(name).is_none() {
                return Err(Error::unsupported("this form of EXPLAIN is not supported"));
            }
        }
        let column = |name: &str| -> Result<StringArray> {
            let values = batch
                .column_by_name(name)
                .map(|values| arrow::compute::cast(values, &arrow::datatypes::DataType::Utf8));
            let values = values.transpose()?;
            let strings = values.as_ref().and_then(|values| values.as_any().downcast_ref::<StringArray>());
            Ok(strings.cloned().unwrap_or_else(|| StringArray::new_null(batch.num_rows())))
        };
        let (kinds, plans) = (column("plan_type")?, column("plan")?);
        for (kind, plan) in kinds.iter().zip(plans.iter()) {
            text.push_str(&kind.unwrap_or_default().replace('_', " "));
            text.push_str(":\n");
            for line in plan.unwrap_or_default().trim_end().lines() {
                text.push_str("  ");
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Query::finished(Answer::Text, text_lines(&text)?)
}

/// The schema of [`Answer::Text`].
fn text_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
}

/// The rows of [`Answer::Text`].
fn text_lines(text: &str) -> Result<RecordBatch> {
    let lines: ArrayRef = Arc::new(StringArray::from(text.lines().collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(text_schema(), vec![lines])?)
}
