//! Whether fetches above joins pay, once it is known what each join builds its hash table over.
//!
//! ```text
//!   FetchExec o                cost of a set of late tables:
//!     FetchExec l                what joins spill with the columns of the other tables in them
//!       HybridHashJoinExec     + reading all pages of the columns of the others
//!         orders                 + fetching the late ones, in the order of the probe side or in any
//!         lineitem
//! ```
//!
//! A scan that knows the keys of the build side reads the other columns of pages with matching rows only, late or not. Of all
//! sets of up to five tables, the cheapest is taken, or all that there are if that was asked for. A fetch that the plan does
//! better without, or that rows are better sorted for, makes it be planned once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes};
use nandina_exec::fetch::{FetchEstimate, FetchExec, RowOrder};
use nandina_exec::join::HybridHashJoinExec;
use nandina_exec::scan::PageReads;
use nandina_exec::spill::DestagePolicy;

use super::algorithm::{JoinAlgorithm, Named as _};
use super::cost::{FetchCost, FetchedRows};
use super::explained::Weighed;

/// Tables of which all sets are weighed; of more, each is weighed by itself.
const MOST_WEIGHED: usize = 5;
/// The share of memory that joins have.
const JOIN_SHARE: f64 = 0.7;
/// Fetches have to be cheaper by so much: estimates are estimates.
const WORTH_SHARE: f64 = 0.9;

/// Fetches that are made, by number.
pub(super) type Chosen = BTreeMap<usize, ChosenFetch>;

#[derive(Clone)]
pub(super) struct ChosenFetch {
    /// The order of its rows that costs least, where any will do.
    pub order: RowOrder,
    /// `None`: nothing is known of the rows.
    pub estimate: Option<FetchEstimate>,
}

/// The fetches in `plan` that save more than they cost, or all if the algorithm is one that always fetches; and what was
/// expected where there is none.
pub(super) fn chosen(
    plan: &Arc<dyn ExecutionPlan>,
    algorithm: JoinAlgorithm,
    memory_bytes: Option<usize>,
) -> (Chosen, Vec<Weighed>) {
    let (mut chosen, mut early) = (Chosen::new(), Vec::new());
    weigh(plan, algorithm, memory_bytes, &mut chosen, &mut early);
    (chosen, early)
}

fn weigh(
    plan: &Arc<dyn ExecutionPlan>,
    algorithm: JoinAlgorithm,
    memory_bytes: Option<usize>,
    chosen: &mut Chosen,
    early: &mut Vec<Weighed>,
) {
    let mut below = plan;
    if candidate(plan).is_some() {
        let fetches = Fetches::of(plan);
        let (late, reads) = match algorithm.is_late() {
            true => ((0..fetches.tables.len()).collect(), algorithm.page_reads()),
            false => (fetches.best_set(memory_bytes), JoinAlgorithm::Rare.page_reads()),
        };
        let estimate = fetches.estimate(&late, memory_bytes);
        let late = if algorithm.is_late() || fetches.pays(&late, memory_bytes) { late } else { Vec::new() };
        if late.is_empty() {
            early.extend(estimate.clone().map(|estimate| Weighed::join(fetches.joined, estimate)));
        }
        let in_turn = fetches.in_turn(&late, reads, memory_bytes);
        for &table in &late {
            let Some(Fetched { candidate, .. }) = fetches.tables.get(table) else {
                unreachable!("late tables are among those that could be fetched")
            };
            let order =
                in_turn.iter().find(|fetch| fetch.table == table).map_or(RowOrder::Any, |fetch| fetch.order);
            chosen.insert(*candidate, ChosenFetch { order, estimate: estimate.clone() });
        }
        below = fetches.joined;
    }
    for input in below.children() {
        weigh(input, algorithm, memory_bytes, chosen, early);
    }
}

fn candidate(plan: &Arc<dyn ExecutionPlan>) -> Option<(&FetchExec, usize)> {
    let fetch = plan.downcast_ref::<FetchExec>()?;
    Some((fetch, fetch.candidate()?))
}

/// Fetches one above the other, and the joins below them.
struct Fetches<'a> {
    tables: Vec<Fetched>,
    joined: &'a Arc<dyn ExecutionPlan>,
    /// Whether rows have to stay in the order in which the joins give them.
    keeps_order: bool,
    joins: Vec<Join>,
    /// Of the joins' result; infinite if nothing is known.
    rows: f64,
    /// Of a row of the joins' result.
    row_bytes: f64,
}

struct Fetched {
    candidate: usize,
    /// `None`: the table is too small to be worth it.
    cost: Option<FetchCost>,
    /// What its row ids are called in the joins' result.
    row_ids: String,
}

/// One of several fetches.
struct InTurn<'a> {
    table: usize,
    cost: &'a FetchCost,
    rows: FetchedRows,
    order: RowOrder,
}

/// A join with some of the tables on each side.
struct Join {
    build_rows: f64,
    probe_rows: f64,
    build_bytes: f64,
    probe_bytes: f64,
    build: Vec<usize>,
    probe: Vec<usize>,
    /// Whether rows of the probe side that match nothing are left out by its scans, which have the build side's keys.
    filters_probe: bool,
}

impl<'a> Fetches<'a> {
    fn of(top: &'a Arc<dyn ExecutionPlan>) -> Self {
        let (mut tables, mut joined, mut keeps_order) = (Vec::new(), top, false);
        loop {
            if let Some((fetch, candidate)) = candidate(joined) {
                keeps_order |= fetch.order() == RowOrder::Kept;
                tables.extend(fetch.tables().iter().map(|fetched| {
                    let columns: Vec<usize> = fetched.columns.iter().map(|(column, _)| *column).collect();
                    let row_ids = fetch.input().schema().field(fetched.row_ids).name().clone();
                    let cost = FetchCost::of(&fetched.table, &columns);
                    Fetched { candidate, cost, row_ids }
                }));
                joined = fetch.input();
            } else if let Some(projection) = joined.downcast_ref::<ProjectionExec>() {
                joined = projection.input();
            } else {
                break;
            }
        }
        // The lowest fetch is made first.
        tables.reverse();
        let names: Vec<&str> = tables.iter().map(|fetched| fetched.row_ids.as_str()).collect();
        let mut joins = Vec::new();
        collect_joins(joined, &names, &mut joins);
        let (rows, row_bytes) = (rows_of(joined), row_bytes(joined));
        Self { tables, joined, keeps_order, joins, rows, row_bytes }
    }

    /// What these tables late and what the other algorithms are expected to take.
    fn estimate(&self, late: &[usize], memory_bytes: Option<usize>) -> Option<FetchEstimate> {
        let millis = |tables: &[usize], algorithm: JoinAlgorithm| {
            let micros = self.cost(tables, algorithm, memory_bytes);
            (algorithm.name(), (micros / 1000.0).round() as u64)
        };
        let all = [
            millis(late, JoinAlgorithm::Rare),
            millis(&[], JoinAlgorithm::Hybrid),
            millis(&[], JoinAlgorithm::GracePax),
            millis(&[], JoinAlgorithm::GraceRows),
            millis(late, JoinAlgorithm::Digest),
        ];
        let is_known = self.is_known() && !late.is_empty();
        is_known.then(|| FetchEstimate { rows: self.rows as u64, millis: all.into() })
    }

    fn is_known(&self) -> bool {
        let sides = self.joins.iter().flat_map(|join| [join.build_bytes, join.probe_bytes]);
        sides.chain([self.rows]).all(f64::is_finite)
    }

    /// The rows that each of the late tables is fetched for, in the order of the fetches, and the order of them that is best.
    /// Tables that are too small to be worth it are left out.
    fn in_turn(&self, late: &[usize], reads: PageReads, memory_bytes: Option<usize>) -> Vec<InTurn<'_>> {
        let spills = self.spilled_parts(late, memory_bytes).any(|(_, part)| part > 0.0);
        let early = (0..self.tables.len()).filter(|table| !late.contains(table));
        let mut carried_bytes = self.row_bytes + self.width(early);
        let mut was_sorted = false;
        let mut in_turn = Vec::new();
        for (table, fetched) in self.tables.iter().enumerate().filter(|(table, _)| late.contains(table)) {
            let Some(cost) = &fetched.cost else { continue };
            let in_table_order = !self.builds(table) && !spills && !was_sorted;
            let keeps_order = self.keeps_order;
            let rows = FetchedRows { rows: self.rows, in_table_order, keeps_order, carried_bytes };
            let order = if self.is_known() { cost.order(&rows, reads, memory_bytes) } else { RowOrder::Any };
            was_sorted |= order == RowOrder::OfTable;
            carried_bytes += cost.row_bytes;
            in_turn.push(InTurn { table, cost, rows, order });
        }
        in_turn
    }

    /// Whether these tables late cost less than all of them early.
    fn pays(&self, late: &[usize], memory_bytes: Option<usize>) -> bool {
        let early = self.cost(&[], JoinAlgorithm::Hybrid, memory_bytes);
        !late.is_empty() && self.cost(late, JoinAlgorithm::Rare, memory_bytes) < early * WORTH_SHARE
    }

    /// The tables that are best read late, if any are: none where nothing is known, or none are worth it.
    fn best_set(&self, memory_bytes: Option<usize>) -> Vec<usize> {
        if !self.is_known() {
            return Vec::new();
        }
        let worth: Vec<usize> = (0..self.tables.len())
            .filter(|table| self.tables.get(*table).is_some_and(|fetched| fetched.cost.is_some()))
            .collect();
        let sets: Vec<Vec<usize>> = if worth.len() <= MOST_WEIGHED {
            let in_set = |set: u32, place: usize| set & (1 << place) != 0;
            let members = |set: u32| worth.iter().enumerate().filter(move |(place, _)| in_set(set, *place));
            (1..1u32 << worth.len()).map(|set| members(set).map(|(_, table)| *table).collect()).collect()
        } else {
            worth.iter().map(|table| vec![*table]).chain([worth.clone()]).collect()
        };
        let costs = sets.into_iter().map(|set| (self.cost(&set, JoinAlgorithm::Rare, memory_bytes), set));
        costs.min_by(|(one, _), (other, _)| one.total_cmp(other)).map_or_else(Vec::new, |(_, set)| set)
    }

    /// Stored bytes of the columns of these tables that could be fetched, of a row.
    fn width(&self, tables: impl Iterator<Item = usize>) -> f64 {
        tables.filter_map(|table| Some(self.tables.get(table)?.cost.as_ref()?.row_bytes)).sum()
    }

    /// Whether a join has the table on its build side.
    fn builds(&self, table: usize) -> bool {
        self.joins.iter().any(|join| join.build.contains(&table))
    }

    /// The bytes of each join's sides, and the part of its build side for which there is no memory.
    fn spilled_parts(&self, late: &[usize], memory_bytes: Option<usize>) -> impl Iterator<Item = (f64, f64)> {
        let memory = memory_bytes.map(|bytes| bytes as f64 * JOIN_SHARE / self.joins.len().max(1) as f64);
        self.joins.iter().map(move |join| {
            let early =
                |tables: &[usize]| self.width(tables.iter().copied().filter(|table| !late.contains(table)));
            let build = join.build_bytes + join.build_rows * early(&join.build);
            let probe = join.probe_bytes + join.probe_rows * early(&join.probe);
            let too_much = memory.map_or(0.0, |memory| (1.0 - memory / build.max(1.0)).max(0.0));
            (build + probe, too_much)
        })
    }

    /// Microseconds that these tables late and the others early cost, as far as it depends on that.
    fn cost(&self, late: &[usize], algorithm: JoinAlgorithm, memory_bytes: Option<usize>) -> f64 {
        let reads = algorithm.page_reads();
        let spills_all = algorithm.destage_policy() == DestagePolicy::All;
        let costs = || {
            let numbered = self.tables.iter().enumerate();
            numbered.filter_map(|(number, fetched)| fetched.cost.as_ref().map(|cost| (number, cost)))
        };
        let mut total = 0.0;
        for (bytes, part) in self.spilled_parts(late, memory_bytes) {
            let spilled = if spills_all && part > 0.0 { 1.0 } else { part };
            if let Some((_, cost)) = costs().next() {
                total += cost.spill_micros(spilled * bytes);
            }
        }
        for InTurn { cost, rows, .. } in self.in_turn(late, reads, memory_bytes) {
            total += cost.fetch_micros(&rows, reads, memory_bytes) + cost.key_scan_micros(reads);
        }
        for (number, cost) in costs().filter(|(number, _)| !late.contains(number)) {
            let mut probing = self.joins.iter().filter(|join| join.probe.contains(&number));
            let is_filtered = !self.builds(number) && probing.any(|join| join.filters_probe);
            let matching = cost.in_order_micros(self.rows, reads, memory_bytes);
            let few = if is_filtered { matching } else { f64::INFINITY };
            total += cost.scan_micros(reads).min(few) + cost.carry_micros(self.rows);
        }
        total
    }
}

/// The joins between `plan` and the tables whose row ids are called so.
fn collect_joins(plan: &Arc<dyn ExecutionPlan>, row_ids: &[&str], joins: &mut Vec<Join>) {
    let inputs = plan.children();
    let tables_of = |input: &Arc<dyn ExecutionPlan>| -> Vec<usize> {
        let schema = input.schema();
        let has = |name: &str| schema.fields().iter().any(|field| field.name() == name);
        row_ids.iter().enumerate().filter(|(_, name)| has(name)).map(|(number, _)| number).collect()
    };
    if let ([build, probe], Some(join)) = (inputs.as_slice(), plan.downcast_ref::<HybridHashJoinExec>()) {
        let (build_rows, mut probe_rows) = (rows_of(build), rows_of(probe));
        let filters_probe = matches!(join.join_type(), JoinType::Inner | JoinType::RightSemi);
        if filters_probe {
            probe_rows = probe_rows.min(rows_of(plan));
        }
        joins.push(Join {
            build_rows,
            probe_rows,
            build_bytes: build_rows * (row_bytes(build) + nandina_exec::join::TABLE_BYTES_PER_ROW as f64),
            probe_bytes: probe_rows * row_bytes(probe),
            build: tables_of(build),
            probe: tables_of(probe),
            filters_probe,
        });
    }
    for input in inputs {
        if !tables_of(input).is_empty() {
            collect_joins(input, row_ids, joins);
        }
    }
}

fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> f64 {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let rows = statistics.ok().and_then(|statistics| statistics.num_rows.get_value().copied());
    rows.map_or(f64::INFINITY, |rows| rows as f64)
}

fn row_bytes(plan: &Arc<dyn ExecutionPlan>) -> f64 {
    let schema = plan.schema();
    schema.fields().iter().map(|field| column_bytes(field.data_type(), TEXT_BYTES) as f64).sum()
}
