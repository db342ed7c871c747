//! Plans that hand out the ids of the rows that they are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, SubqueryAlias, TableScan, TableScanBuilder};

use super::origins::{Way, with_provider};

/// What columns of row ids are called, with a number behind: no column of a plan may be called so.
const NAME: &str = "row_id:";

/// Whether columns of row ids would be told apart from all others in `plan`.
pub(super) fn can_be_named(plan: &LogicalPlan) -> Result<bool> {
    let mut is_free = true;
    plan.apply(|node| {
        is_free &= !node.schema().fields().iter().any(|field| field.name().starts_with(NAME));
        Ok(if is_free { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_free)
}

/// `plan` with a column of row ids for each scan that `ways` lead to, and what these columns are called in its output.
pub(super) fn with_row_ids(plan: &LogicalPlan, ways: &[Way]) -> Result<(LogicalPlan, BTreeMap<Way, Column>)> {
    let numbered = ways.iter().enumerate().map(|(number, way)| (way.clone(), format!("{NAME}{number}")));
    add(plan, &numbered.collect())
}

fn add(plan: &LogicalPlan, names: &BTreeMap<Way, String>) -> Result<(LogicalPlan, BTreeMap<Way, Column>)> {
    if let LogicalPlan::TableScan(scan) = plan {
        let Some(name) = names.get(&Way::new()) else { return internal_err!("no way leads to a scan") };
        let scan = scan_with_row_ids(scan, name)?;
        let column = Column::new(Some(scan.table_name.clone()), name.as_str());
        return Ok((LogicalPlan::TableScan(scan), BTreeMap::from([(Way::new(), column)])));
    }
    let mut columns = BTreeMap::new();
    let mut inputs = Vec::new();
    for (number, input) in plan.inputs().into_iter().enumerate() {
        let below: BTreeMap<Way, String> = names
            .iter()
            .filter_map(|(way, name)| {
                let (first, rest) = way.split_first()?;
                (*first == number).then(|| (rest.to_vec(), name.clone()))
            })
            .collect();
        if below.is_empty() {
            inputs.push(input.clone());
            continue;
        }
        let (input, of_input) = add(input, &below)?;
        inputs.push(input);
        columns.extend(of_input.into_iter().map(|(mut way, column)| {
            way.insert(0, number);
            (way, column)
        }));
    }
    let plan = match (plan, inputs.as_slice()) {
        (LogicalPlan::Projection(projection), [input]) => {
            let ids = columns.values().cloned().map(Expr::Column);
            let expressions = projection.expr.iter().cloned().chain(ids).collect();
            LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input.clone()))?)
        }
        (LogicalPlan::SubqueryAlias(alias), [input]) => {
            for column in columns.values_mut() {
                column.relation = Some(alias.alias.clone());
            }
            let alias = SubqueryAlias::try_new(Arc::new(input.clone()), alias.alias.clone())?;
            LogicalPlan::SubqueryAlias(alias)
        }
        _ => plan.with_new_exprs(plan.expressions(), inputs)?,
    };
    Ok((plan, columns))
}

fn scan_with_row_ids(scan: &TableScan, name: &str) -> Result<TableScan> {
    let Some(provider) = with_provider(scan, |provider| provider.with_row_ids(name)) else {
        return internal_err!("only stored tables have row ids");
    };
    let row_ids = scan.source.schema().fields().len();
    let mut projection = scan.projection.clone().unwrap_or_else(|| (0..row_ids).collect());
    projection.push(row_ids);
    TableScanBuilder::new(scan.table_name.clone(), provider_as_source(Arc::new(provider)))
        .with_projection(Some(projection))
        .with_filters(scan.filters.clone())
        .with_fetch(scan.fetch)
        .build()
}
