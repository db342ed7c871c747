//! All that plans a session's queries, put together.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::registry::FunctionRegistry as _;
use nandina_exec::aggregate::{
    counted_xor, exact_average, exact_sum, joined_texts, list_of_values, maximum, minimum,
};

use nandina_functions::{OwnTypes, TypeNames};

use crate::settled_rules::settled_rules;
use crate::stop_planning::{stoppable_analyzer_rules, stoppable_optimizer_rules, stoppable_physical_rules};
use crate::{
    KeylessRelations, Planner, Relations, analyzer_rules, limit_markers, operator_planner, optimizer_rules,
    physical_optimizer_rules, replaced_column,
};

/// The state of a session that plans as Nandina does, from what it runs on and DataFusion's functions.
pub fn session_state(runs_on: SessionStateBuilder) -> Result<SessionState> {
    let mut builder = runs_on.with_default_features();
    // The first one that knows an operator plans it.
    builder.expr_planners().get_or_insert_default().insert(0, operator_planner());
    let own_types = builder.config().get_or_insert_default().get_extension::<OwnTypes>().unwrap_or_default();
    let mut state = builder
        .with_analyzer_rules(stoppable_analyzer_rules(analyzer_rules()))
        .with_optimizer_rules(settled_rules(stoppable_optimizer_rules(optimizer_rules())))
        .with_physical_optimizer_rules(stoppable_physical_rules(physical_optimizer_rules()))
        .with_query_planner(Arc::new(Planner))
        .with_type_planner(Arc::new(TypeNames(own_types)))
        .build();
    let options = state.config_mut().options_mut();
    // Rules make columns that are never null of ones that may be, and do not always tell.
    options.execution.skip_physical_aggregate_schema_check = true;
    // It reorders keys for DataFusion's own joins, and finds those of aggregations below by name.
    options.optimizer.top_down_join_key_reordering = false;
    // Limits, windows and lists take the rows of a sub-query in its order: `OrdersBelow`.
    options.sql_parser.enable_subquery_sort_elimination = false;
    state.register_udf(Arc::new(replaced_column()))?;
    for marker in limit_markers() {
        state.register_udf(Arc::new(marker))?;
    }
    let lists = [list_of_values(), joined_texts()];
    for function in
        [exact_sum(), exact_average(), minimum(), maximum(), counted_xor()].into_iter().chain(lists)
    {
        state.register_udaf(function)?;
    }
    state.register_relation_planner(Arc::new(Relations))?;
    state.register_relation_planner(Arc::new(KeylessRelations))?;
    Ok(state)
}
