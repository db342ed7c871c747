//! The same join as DataFusion plans it and as ours.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{Column, binary, col, lit};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, collect};
use nandina_exec::join::HybridHashJoinExec;

use super::tables::Table;
use super::{Engine, plain};

pub const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// A condition on pairs beyond equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    None,
    /// Compares columns of both sides; null where either is null.
    BothSides,
    /// Compares the row numbers of both sides: as selective as the probe side is small.
    RowNumbers,
    /// Looks at the probe side alone.
    ProbeSide,
    NeverTrue,
}

/// A join whose rows are right.
pub struct Checked {
    /// The plan, for its metrics.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Most memory that was reserved at once.
    pub peak_bytes: usize,
}

/// A join of two tables by all of their key columns.
#[derive(Clone, Debug)]
pub struct Join {
    pub join_type: JoinType,
    pub build: Table,
    pub probe: Table,
    pub residual: Residual,
    pub null_equality: NullEquality,
    pub null_aware: bool,
    /// The build key is an expression: `k0 + 1`.
    pub computed_key: bool,
    pub projection: Option<Vec<usize>>,
}

impl Join {
    pub fn new(join_type: JoinType, build: Table, probe: Table) -> Self {
        Self {
            join_type,
            build,
            probe,
            residual: Residual::None,
            null_equality: NullEquality::NullEqualsNothing,
            null_aware: false,
            computed_key: false,
            projection: None,
        }
    }

    /// Number of output columns before projection.
    pub fn width(&self) -> usize {
        let (_, columns) = build_join_schema(&self.build.schema, &self.probe.schema, &self.join_type);
        columns.len()
    }

    /// Output columns that are neither keys nor texts.
    pub fn narrow_columns(&self) -> Vec<usize> {
        let (schema, _) = build_join_schema(&self.build.schema, &self.probe.schema, &self.join_type);
        let narrow = |name: &str| name.ends_with("id") || name.ends_with("number") || name == "mark";
        (0..schema.fields().len()).filter(|&index| narrow(schema.field(index).name())).collect()
    }

    fn on(&self) -> JoinOn {
        let key = |table: &Table, number: usize| -> PhysicalExprRef {
            col(table.schema.field(number).name(), &table.schema).expect("a key column")
        };
        (0..self.build.keys)
            .map(|number| {
                let mut build = key(&self.build, number);
                if self.computed_key && number == 0 {
                    build = binary(build, Operator::Plus, lit(1_i64), &self.build.schema).expect("a sum");
                }
                (build, key(&self.probe, number))
            })
            .collect()
    }

    fn filter(&self) -> Option<JoinFilter> {
        if self.residual == Residual::None {
            return None;
        }
        let column = |table: &Table, side, index: usize| {
            let field: Field = table.schema.field(index).clone();
            (ColumnIndex { index, side }, field)
        };
        let columns = [
            column(&self.build, JoinSide::Left, self.build.number_column()),
            column(&self.probe, JoinSide::Right, self.probe.number_column()),
            column(&self.build, JoinSide::Left, self.build.id_column()),
            column(&self.probe, JoinSide::Right, self.probe.id_column()),
        ];
        let (indices, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        let of = |number: usize| Arc::new(Column::new(&names[number], number)) as PhysicalExprRef;
        let expression = match self.residual {
            Residual::None => return None,
            Residual::BothSides => binary(of(0), Operator::Lt, of(1), &schema),
            Residual::RowNumbers => binary(of(2), Operator::Lt, of(3), &schema),
            Residual::ProbeSide => binary(of(1), Operator::Gt, lit(40_i32), &schema),
            Residual::NeverTrue => binary(of(2), Operator::Lt, lit(-1_i64), &schema),
        };
        Some(JoinFilter::new(expression.expect("a condition"), indices, schema))
    }

    fn hash_join(&self, build_partitions: usize, probe_partitions: usize) -> HashJoinExec {
        self.hash_join_of(self.build.scan(build_partitions), self.probe.scan(probe_partitions))
    }

    fn hash_join_of(&self, build: Arc<dyn ExecutionPlan>, probe: Arc<dyn ExecutionPlan>) -> HashJoinExec {
        HashJoinExec::try_new(
            build,
            probe,
            self.on(),
            self.filter(),
            &self.join_type,
            self.projection.clone(),
            PartitionMode::CollectLeft,
            self.null_equality,
            self.null_aware,
        )
        .expect("a hash join")
    }

    /// What DataFusion's own join gives without a limit.
    pub async fn right_rows(&self) -> Vec<RecordBatch> {
        let context = plain();
        collect(Arc::new(self.hash_join(1, 1)), context.task_ctx()).await.expect("DataFusion's rows")
    }

    /// Our join over scans of so many partitions.
    pub fn plan(&self, partitions: usize) -> Arc<dyn ExecutionPlan> {
        let planned = self.hash_join(partitions, partitions);
        Arc::new(HybridHashJoinExec::try_new(&planned).expect("our join"))
    }

    /// Our join over other inputs of the same schemas.
    pub fn plan_of(
        &self,
        build: Arc<dyn ExecutionPlan>,
        probe: Arc<dyn ExecutionPlan>,
    ) -> Arc<dyn ExecutionPlan> {
        let planned = self.hash_join_of(build, probe);
        Arc::new(HybridHashJoinExec::try_new(&planned).expect("our join"))
    }

    /// Runs our join in a new engine and compares its rows with DataFusion's.
    pub async fn check(
        &self,
        limit_bytes: Option<usize>,
        partitions: usize,
    ) -> std::result::Result<Checked, String> {
        let right = self.right_rows().await;
        self.check_against(&right, limit_bytes, partitions).await
    }

    /// As [`Join::check`], with DataFusion's rows at hand.
    pub async fn check_against(
        &self,
        right: &[RecordBatch],
        limit_bytes: Option<usize>,
        partitions: usize,
    ) -> std::result::Result<Checked, String> {
        let engine = Engine::new(limit_bytes, partitions);
        let plan = self.plan(partitions);
        let what = format!(
            "{} join of {} and {} rows, residual {:?}, {:?}, null-aware {}, limit {limit_bytes:?}, \
             {partitions} partitions",
            self.join_type,
            self.build.rows(),
            self.probe.rows(),
            self.residual,
            self.null_equality,
            self.null_aware
        );
        let ours: Result<Vec<RecordBatch>> = engine.collect(&plan).await;
        let ours = ours.map_err(|error| format!("{what}: {error}"))?;
        super::rows::same_rows(&ours, right).map_err(|difference| format!("{what}: {difference}"))?;
        engine.assert_clean(&what).await;
        Ok(Checked { plan, peak_bytes: engine.governor.peak_bytes() })
    }
}
