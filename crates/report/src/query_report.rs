//! The record of an executed query: the input of its page.

use serde::{Deserialize, Serialize};

/// One executed query.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueryReport {
    pub sql: String,
    /// Seconds since 1970; 0: not known.
    pub started_at: u64,
    pub elapsed_seconds: f64,
    /// 0: there was no limit.
    pub memory_limit_bytes: u64,
    pub peak_memory_bytes: u64,
    pub result_rows: u64,
    pub plan: PlanNode,
    /// In the order of time; empty, if the query was not watched or was over before the first look.
    pub timeline: Vec<Sample>,
    /// The device that tables and temporary files were on, in words.
    pub device: Option<String>,
    /// Sentences that the reader should know.
    pub notes: Vec<String>,
}

/// An operator of the plan and what it did, over all its partitions. Zero means: not counted, or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanNode {
    /// Short, such as `HashJoinExec`.
    pub name: String,
    /// The rest of its description: keys, files, predicates.
    pub details: String,
    pub rows: u64,
    /// Time the operator computed itself, summed over its workers.
    pub compute_seconds: f64,
    /// Time it waited for temporary space or for the device, summed over its workers.
    pub wait_seconds: f64,
    pub peak_memory_bytes: u64,
    /// Bytes written to temporary space, and read back from it.
    pub spilled_bytes: u64,
    pub spill_read_bytes: u64,
    /// Bytes of the pages that were written, before any were compressed.
    pub spilled_page_bytes: u64,
    /// Bytes read from tables or files.
    pub scanned_bytes: u64,
    pub spilled_partitions: u64,
    /// Requests in flight on average while any was.
    pub mean_queue_depth: f64,
    /// Where its rows come from; none for a scan.
    pub inputs: Vec<PlanNode>,
}

/// A look at the running query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Since the query's start.
    pub seconds: f64,
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
    /// Requests in flight.
    pub queue_depth: f64,
    pub memory_bytes: u64,
    /// Size of the temporary files.
    pub temp_bytes: u64,
}

impl PlanNode {
    /// The operators from the result down, each before its inputs, with the number of forks above it.
    ///
    /// A chain of operators, each the only input of the one above, stays at one level: plans are long chains with few
    /// forks, and a level for each operator would push the lower ones out of the page.
    pub(crate) fn in_order(&self) -> Vec<(usize, &PlanNode)> {
        let mut listed = Vec::new();
        // Not recursive: the depth of a plan is unbounded.
        let mut open = vec![(0, self)];
        while let Some((level, node)) = open.pop() {
            listed.push((level, node));
            let below = level + usize::from(node.inputs.len() > 1);
            open.extend(node.inputs.iter().rev().map(|input| (below, input)));
        }
        listed
    }

    /// A figure of all operators together.
    pub(crate) fn total(&self, figure: impl Fn(&PlanNode) -> u64) -> u64 {
        self.in_order().into_iter().fold(0, |total, (_, node)| total.saturating_add(figure(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, spilled_bytes: u64, inputs: Vec<PlanNode>) -> PlanNode {
        PlanNode { name: name.to_owned(), spilled_bytes, inputs, ..PlanNode::default() }
    }

    #[test]
    fn only_forks_indent() {
        let plan = node(
            "sort",
            1,
            vec![node(
                "join",
                2,
                vec![node("filter", 0, vec![node("scan a", 0, vec![])]), node("scan b", 4, vec![])],
            )],
        );
        let listed: Vec<(usize, &str)> =
            plan.in_order().iter().map(|(level, node)| (*level, node.name.as_str())).collect();
        assert_eq!(listed, [(0, "sort"), (0, "join"), (1, "filter"), (1, "scan a"), (1, "scan b")]);
        assert_eq!(plan.total(|node| node.spilled_bytes), 7);
        assert_eq!(
            node("x", u64::MAX, vec![node("y", 1, vec![])]).total(|node| node.spilled_bytes),
            u64::MAX
        );
    }

    #[test]
    fn a_report_survives_json() {
        let report = QueryReport {
            sql: "SELECT '<script>'".to_owned(),
            plan: node("scan", 3, vec![]),
            timeline: vec![Sample { seconds: 0.25, queue_depth: 31.5, ..Sample::default() }],
            ..QueryReport::default()
        };
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<QueryReport>(&json).unwrap(), report);
        assert_eq!(serde_json::from_str::<QueryReport>("{}").unwrap(), QueryReport::default());
    }
}
