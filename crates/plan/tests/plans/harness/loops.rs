//! A join without equality keys, as DataFusion plans it, as ours, and as two loops in the test.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use datafusion::common::{JoinSide, JoinType};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{Column, binary, case, cast, lit};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::{ExecutionPlan, collect};
use nandina_exec::join::BlockNestedLoopJoinExec;

use super::rows::same_rows;
use super::tables::Table;
use super::{Engine, plain};

/// A condition on pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// `b_number < p_number`: null where either is.
    Less,
    /// `(b_id + p_id) % n = 3`: one pair in n.
    OneIn(i64),
    /// The same, and `b_text <> p_text`: looks at wide columns of both sides, so that all join types keep them.
    WideOneIn(i64),
    /// `b_text < p_text`.
    Text,
    /// `CASE WHEN b_number > 50 THEN p_number < 20 ELSE b_id > p_id END`.
    Case,
    /// Looks at one side alone.
    BuildSide,
    ProbeSide,
    /// `b_id < -1`.
    Never,
    /// A constant.
    Constant(bool),
}

pub const CONDITIONS: [Condition; 10] = [
    Condition::None,
    Condition::Less,
    Condition::OneIn(61),
    Condition::WideOneIn(37),
    Condition::Text,
    Condition::Case,
    Condition::BuildSide,
    Condition::ProbeSide,
    Condition::Never,
    Condition::Constant(true),
];

/// What a condition looks at in one row: row number, small number, text.
type Seen = (i64, Option<i32>, Option<String>);

impl Condition {
    /// Whether a pair is accepted, worked out by hand.
    pub fn holds(self, build: &Seen, probe: &Seen) -> bool {
        match self {
            Self::None => true,
            Self::Less => build.1.zip(probe.1).is_some_and(|(build, probe)| build < probe),
            Self::OneIn(n) => (build.0 + probe.0) % n == 3,
            Self::WideOneIn(n) => {
                let texts = build.2.as_ref().zip(probe.2.as_ref());
                (build.0 + probe.0) % n == 3 && texts.is_some_and(|(build, probe)| build != probe)
            }
            Self::Text => {
                let texts = build.2.as_ref().zip(probe.2.as_ref());
                texts.is_some_and(|(build, probe)| build < probe)
            }
            Self::Case if build.1.is_some_and(|number| number > 50) => {
                probe.1.is_some_and(|number| number < 20)
            }
            Self::Case => build.0 > probe.0,
            Self::BuildSide => build.1.is_some_and(|number| number > 60),
            Self::ProbeSide => probe.1.is_some_and(|number| number > 60),
            Self::Never => false,
            Self::Constant(truth) => truth,
        }
    }

    fn filter(self, build: &Table, probe: &Table) -> Option<JoinFilter> {
        let column = |table: &Table, side, index: usize| {
            let field: Field = table.schema.field(index).clone();
            (ColumnIndex { index, side }, field)
        };
        let of_build = |index| column(build, JoinSide::Left, index);
        let of_probe = |index| column(probe, JoinSide::Right, index);
        let numbers = (build.number_column(), probe.number_column());
        let ids = (build.id_column(), probe.id_column());
        let columns = match self {
            Self::None | Self::Constant(_) => vec![],
            Self::Less => vec![of_build(numbers.0), of_probe(numbers.1)],
            Self::OneIn(_) => vec![of_build(ids.0), of_probe(ids.1)],
            Self::WideOneIn(_) => {
                vec![of_build(ids.0), of_probe(ids.1), of_build(numbers.0 + 1), of_probe(numbers.1 + 1)]
            }
            Self::Text => vec![of_build(numbers.0 + 1), of_probe(numbers.1 + 1)],
            Self::Case => vec![of_build(numbers.0), of_build(ids.0), of_probe(numbers.1), of_probe(ids.1)],
            Self::BuildSide => vec![of_build(numbers.0)],
            Self::ProbeSide => vec![of_probe(numbers.1)],
            Self::Never => vec![of_build(ids.0)],
        };
        let (indices, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        let of = |number: usize| Arc::new(Column::new(&names[number], number)) as PhysicalExprRef;
        let compared = |left: PhysicalExprRef, operator, right: PhysicalExprRef| {
            binary(left, operator, right, &schema).expect("a comparison")
        };
        let expression = match self {
            Self::None => return None,
            Self::Constant(truth) => lit(truth),
            Self::Less | Self::Text => compared(of(0), Operator::Lt, of(1)),
            Self::OneIn(n) | Self::WideOneIn(n) => {
                let sum = compared(of(0), Operator::Plus, of(1));
                let one_in = compared(compared(sum, Operator::Modulo, lit(n)), Operator::Eq, lit(3_i64));
                match self {
                    Self::WideOneIn(_) => {
                        compared(one_in, Operator::And, compared(of(2), Operator::NotEq, of(3)))
                    }
                    _ => one_in,
                }
            }
            Self::Case => {
                let large = compared(of(0), Operator::Gt, lit(50_i32));
                let small = compared(of(2), Operator::Lt, lit(20_i32));
                let otherwise = compared(of(1), Operator::Gt, of(3));
                case(None, vec![(large, small)], Some(otherwise)).expect("a case")
            }
            Self::BuildSide | Self::ProbeSide => {
                let wide = cast(of(0), &schema, DataType::Int64).expect("a cast");
                compared(wide, Operator::Gt, lit(60_i64))
            }
            Self::Never => compared(of(0), Operator::Lt, lit(-1_i64)),
        };
        Some(JoinFilter::new(expression, indices, schema))
    }
}

/// A join of two tables on a condition.
#[derive(Clone, Debug)]
pub struct LoopJoin {
    pub join_type: JoinType,
    pub build: Table,
    pub probe: Table,
    pub condition: Condition,
    pub projection: Option<Vec<usize>>,
}

/// A join whose rows are right.
pub struct CheckedLoop {
    /// The plan, for its metrics.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Most memory that was reserved at once.
    pub peak_bytes: usize,
}

impl LoopJoin {
    pub fn new(join_type: JoinType, condition: Condition, build: &Table, probe: &Table) -> Self {
        Self { join_type, build: build.clone(), probe: probe.clone(), condition, projection: None }
    }

    /// Number of output columns before projection.
    pub fn width(&self) -> usize {
        build_join_schema(&self.build.schema, &self.probe.schema, &self.join_type).1.len()
    }

    /// The planner's node over these inputs.
    pub fn planned_over(
        &self,
        build: Arc<dyn ExecutionPlan>,
        probe: Arc<dyn ExecutionPlan>,
    ) -> NestedLoopJoinExec {
        let filter = self.condition.filter(&self.build, &self.probe);
        NestedLoopJoinExec::try_new(build, probe, filter, &self.join_type, self.projection.clone())
            .expect("a nested loop join")
    }

    /// What DataFusion's own join gives without a limit.
    pub async fn right_rows(&self) -> Vec<RecordBatch> {
        let planned = self.planned_over(self.build.scan(1), self.probe.scan(1));
        collect(Arc::new(planned), plain().task_ctx()).await.expect("DataFusion's rows")
    }

    /// Our join over scans of so many partitions.
    pub fn plan(&self, partitions: usize) -> Arc<dyn ExecutionPlan> {
        self.plan_of(self.build.scan(partitions), self.probe.scan(partitions))
    }

    /// Our join over other inputs of the same schemas.
    pub fn plan_of(
        &self,
        build: Arc<dyn ExecutionPlan>,
        probe: Arc<dyn ExecutionPlan>,
    ) -> Arc<dyn ExecutionPlan> {
        let planned = self.planned_over(build, probe);
        Arc::new(BlockNestedLoopJoinExec::try_new(&planned).expect("our join"))
    }

    /// Runs our join in a new engine and compares its rows with DataFusion's.
    pub async fn check(&self, limit_bytes: Option<usize>, partitions: usize) -> Result<CheckedLoop, String> {
        let right = self.right_rows().await;
        self.check_against(&right, limit_bytes, partitions).await
    }

    /// As [`LoopJoin::check`], with DataFusion's rows at hand.
    pub async fn check_against(
        &self,
        right: &[RecordBatch],
        limit_bytes: Option<usize>,
        partitions: usize,
    ) -> Result<CheckedLoop, String> {
        let engine = Engine::new(limit_bytes, partitions);
        let plan = self.plan(partitions);
        let what = format!(
            "{} join of {} and {} rows, {:?}, limit {limit_bytes:?}, {partitions} partitions",
            self.join_type,
            self.build.rows(),
            self.probe.rows(),
            self.condition,
        );
        let ours = engine.collect(&plan).await.map_err(|error| format!("{what}: {error}"))?;
        same_rows(&ours, right).map_err(|difference| format!("{what}: {difference}"))?;
        let largest = ours.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
        if largest > super::BATCH_ROWS {
            return Err(format!("{what}: a batch of {largest} rows"));
        }
        engine.assert_clean(&what).await;
        Ok(CheckedLoop { plan, peak_bytes: engine.governor.peak_bytes() })
    }

    /// The row numbers of every output row, worked out by two loops: build, probe, mark.
    pub fn model(&self) -> Vec<(Option<i64>, Option<i64>, Option<bool>)> {
        let (build, probe) = (seen(&self.build), seen(&self.probe));
        let mut build_matched = vec![false; build.len()];
        let mut probe_matched = vec![false; probe.len()];
        let mut pairs = Vec::new();
        for (build_row, build_matched) in build.iter().zip(&mut build_matched) {
            for (probe_row, probe_matched) in probe.iter().zip(&mut probe_matched) {
                if self.condition.holds(build_row, probe_row) {
                    pairs.push((Some(build_row.0), Some(probe_row.0), None));
                    *build_matched = true;
                    *probe_matched = true;
                }
            }
        }
        let builds = || build.iter().map(|row| row.0).zip(build_matched.iter().copied());
        let probes = || probe.iter().map(|row| row.0).zip(probe_matched.iter().copied());
        let lone_builds = builds().filter(|row| !row.1).map(|row| (Some(row.0), None, None));
        let lone_probes = probes().filter(|row| !row.1).map(|row| (None, Some(row.0), None));
        let met_builds = builds().filter(|row| row.1).map(|row| (Some(row.0), None, None));
        let met_probes = probes().filter(|row| row.1).map(|row| (None, Some(row.0), None));
        let mut rows: Vec<_> = match self.join_type {
            JoinType::Inner => pairs,
            JoinType::Left => pairs.into_iter().chain(lone_builds).collect(),
            JoinType::Right => pairs.into_iter().chain(lone_probes).collect(),
            JoinType::Full => pairs.into_iter().chain(lone_builds).chain(lone_probes).collect(),
            JoinType::LeftSemi => met_builds.collect(),
            JoinType::RightSemi => met_probes.collect(),
            JoinType::LeftAnti => lone_builds.collect(),
            JoinType::RightAnti => lone_probes.collect(),
            JoinType::LeftMark => builds().map(|row| (Some(row.0), None, Some(row.1))).collect(),
            JoinType::RightMark => probes().map(|row| (None, Some(row.0), Some(row.1))).collect(),
        };
        rows.sort_unstable();
        rows
    }

    /// The same of our rows, of all columns.
    pub fn numbers_of(&self, batches: &[RecordBatch]) -> Vec<(Option<i64>, Option<i64>, Option<bool>)> {
        let mut rows = Vec::new();
        for batch in batches {
            let integers = |name: &str| {
                let index = batch.schema().index_of(name).ok()?;
                Some(batch.column(index).as_primitive::<Int64Type>().clone())
            };
            let (build, probe) = (integers("b_id"), integers("p_id"));
            let marks = batch.column_by_name("mark").map(|marks| marks.as_boolean().clone());
            rows.extend((0..batch.num_rows()).map(|row| {
                let value = |column: &Option<arrow::array::Int64Array>| {
                    column.as_ref().filter(|column| column.is_valid(row)).map(|column| column.value(row))
                };
                (value(&build), value(&probe), marks.as_ref().map(|marks| marks.value(row)))
            }));
        }
        rows.sort_unstable();
        rows
    }
}

/// What conditions look at, row by row.
fn seen(table: &Table) -> Vec<Seen> {
    let mut rows = Vec::new();
    for batch in &table.batches {
        let ids = batch.column(table.id_column()).as_primitive::<Int64Type>();
        let numbers = batch.column(table.number_column()).as_primitive::<Int32Type>();
        let texts = batch.column(table.number_column() + 1).as_string_view();
        rows.extend((0..batch.num_rows()).map(|row| {
            let number = numbers.is_valid(row).then(|| numbers.value(row));
            (ids.value(row), number, texts.is_valid(row).then(|| texts.value(row).to_owned()))
        }));
    }
    rows
}
