//! The plan as a list, from the result to the scans, with bars.
//!
//! ```text
//!   SortExec            time ▇▇▁        memory ▇▇▇▇     spilled
//!   HashJoinExec        time ▇▇▇▇▇▇▨▨   memory ▇▇▇▇▇▇   spilled ▇▇▇▇▇▇
//!   │ FilterExec        input 1 of 2 of HashJoinExec
//!   │ DataSourceExec
//!   │ DataSourceExec    input 2 of 2
//! ```
//!
//! Only what has several inputs indents them: rows flow upwards along a chain. Bars are relative to the largest of their
//! kind, so that the longest ones say where to look. Nothing is nested in the markup, which browsers limit.

use crate::html::{Html, Tag};
use crate::page::paragraph;
use crate::quantity;
use crate::query_report::PlanNode;
use crate::table::{folded, numbers, table, words};

/// Colours of the bars.
const TIME: usize = 0;
const MEMORY: usize = 2;
const SPILL: usize = 1;

/// More operators than these are a long table.
const LONG_TABLE: usize = 200;

/// An operator on the page.
struct Row<'a> {
    level: usize,
    node: &'a PlanNode,
    /// `input 1 of 2 of HashJoinExec`.
    place: String,
}

/// The largest figures of the plan: what bars of full width stand for.
#[derive(Debug, Clone, Copy, Default)]
struct Largest {
    seconds: f64,
    memory_bytes: u64,
    spill_bytes: u64,
}

pub(super) fn content(plan: &PlanNode) -> Vec<Html> {
    let rows = rows(plan);
    let largest = rows.iter().fold(Largest::default(), |largest, row| Largest {
        seconds: largest.seconds.max(usable(row.node.compute_seconds) + usable(row.node.wait_seconds)),
        memory_bytes: largest.memory_bytes.max(row.node.peak_memory_bytes),
        spill_bytes: largest.spill_bytes.max(row.node.spilled_bytes),
    });
    let list = Tag::new("ol").class("plan").with_all(rows.iter().map(|row| operator(row, largest)));
    vec![
        paragraph(
            "The result is at the top; rows come from below. Times are summed over workers, and can be longer than the query \
             took. The striped part of a bar was spent waiting for I/O. A bar of full width is the largest of its kind.",
        ),
        list.into(),
        folded("Operators as a table", rows.len() > LONG_TABLE, [all_figures(&rows)]),
    ]
}

fn rows(plan: &PlanNode) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    // Places that forks have announced for their inputs; inputs of an input come before its next sibling.
    let mut places: Vec<String> = vec![String::new()];
    for (level, node) in plan.in_order() {
        let Some(place) = places.pop() else { unreachable!("each node but the first is an announced input") };
        let several = node.inputs.len();
        let of = |number: usize| {
            if several > 1 { format!("input {number} of {several} of {}", node.name) } else { String::new() }
        };
        places.extend((1..=several).rev().map(of));
        rows.push(Row { level, node, place });
    }
    rows
}

/// An invalid time counts as none.
fn usable(seconds: f64) -> f64 {
    if seconds.is_finite() && seconds > 0.0 { seconds } else { 0.0 }
}

fn operator(row: &Row<'_>, largest: Largest) -> Tag {
    let node = row.node;
    let name = if node.name.is_empty() { "(unnamed operator)" } else { &node.name };
    let mut what = Tag::new("div").with(Tag::new("span").class("name").text(name));
    if !row.place.is_empty() {
        what = what.text(" ").with(Tag::new("span").class("place").text(&row.place));
    }
    if !node.details.is_empty() {
        what =
            what.with(Tag::new("div").class("words").attribute("title", &node.details).text(&node.details));
    }
    what = what.with(Tag::new("div").class("more").text(counted(node)));
    let (compute, wait) = (usable(node.compute_seconds), usable(node.wait_seconds));
    let time = match wait {
        0.0 => quantity::seconds(compute),
        _ => format!("{} + {} wait", quantity::seconds(compute), quantity::seconds(wait)),
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let memory = share(node.peak_memory_bytes as f64, largest.memory_bytes as f64);
    let spill = share(node.spilled_bytes as f64, largest.spill_bytes as f64);
    Tag::new("li")
        .attribute("style", format!("--level:{}", row.level))
        .attribute("data-level", row.level)
        .with(what)
        .with(measure("time", &time, TIME, &[share(compute, largest.seconds), share(wait, largest.seconds)]))
        .with(measure("memory", &quantity::bytes(node.peak_memory_bytes), MEMORY, &[memory]))
        .with(measure("spilled", &quantity::bytes(node.spilled_bytes), SPILL, &[spill]))
}

/// A figure with its bar, made of one or more parts of the full width.
fn measure(label: &str, value: &str, colour: usize, shares: &[f64]) -> Tag {
    let is_nothing = shares.iter().all(|share| *share <= 0.0);
    let words = Tag::new("div").with(Tag::new("span").class("label").text(label)).text(" ");
    if is_nothing {
        return Tag::new("div").class("measure none").with(words.text(quantity::NOTHING));
    }
    let parts = shares.iter().filter(|share| **share > 0.0);
    let parts =
        parts.map(|share| Tag::new("span").attribute("style", format!("width:{:.2}%", share * 100.0)));
    // A wait alone is still a second part, which is the striped one.
    let lead =
        (shares.first() == Some(&0.0)).then(|| Tag::new("span").attribute("style", "width:0;min-width:0"));
    Tag::new("div")
        .class(format!("measure s{colour}"))
        .attribute("data-bar", label)
        .with(words.text(value))
        .with(Tag::new("div").class("bar").attribute("aria-hidden", "true").with(lead).with_all(parts))
}

/// The counters that have no bar and are not zero.
fn counted(node: &PlanNode) -> String {
    let mut facts = vec![quantity::counted(node.rows, "row")];
    let sizes = [("scanned", node.scanned_bytes), ("read back", node.spill_read_bytes)];
    let sizes = sizes.into_iter().filter(|(_, bytes)| *bytes > 0);
    facts.extend(sizes.map(|(what, bytes)| format!("{} {what}", quantity::bytes(bytes))));
    if node.spilled_partitions > 0 {
        facts.push(format!("{} spilled", quantity::counted(node.spilled_partitions, "partition")));
    }
    if node.spilled_page_bytes > node.spilled_bytes {
        facts.push(format!("{} before compression", quantity::bytes(node.spilled_page_bytes)));
    }
    if node.mean_queue_depth > 0.0 {
        facts.push(format!("{} requests in flight", quantity::plain(node.mean_queue_depth)));
    }
    facts.join(" · ")
}

fn all_figures(rows: &[Row<'_>]) -> Html {
    let columns = [
        words("Operator"),
        numbers("Rows"),
        numbers("Computed"),
        numbers("Waited"),
        numbers("Peak memory"),
        numbers("Spilled"),
        numbers("Read back"),
        numbers("Scanned"),
        numbers("Partitions"),
        numbers("In flight"),
        words("Details"),
    ];
    let cells = |row: &Row<'_>| {
        let node = row.node;
        vec![
            node.name.clone(),
            quantity::count(node.rows),
            quantity::seconds(node.compute_seconds),
            quantity::seconds(node.wait_seconds),
            quantity::bytes(node.peak_memory_bytes),
            quantity::bytes(node.spilled_bytes),
            quantity::bytes(node.spill_read_bytes),
            quantity::bytes(node.scanned_bytes),
            quantity::count(node.spilled_partitions),
            quantity::plain(node.mean_queue_depth),
            node.details.clone(),
        ]
    };
    table("What every operator counted, in the order of the plan", &columns, rows.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, inputs: Vec<PlanNode>) -> PlanNode {
        PlanNode { name: name.to_owned(), inputs, ..PlanNode::default() }
    }

    #[test]
    fn inputs_of_forks_say_whose_they_are() {
        let left = node("inner", vec![node("b", vec![]), node("c", vec![])]);
        let plan = node("outer", vec![node("filter", vec![left]), node("d", vec![])]);
        let places: Vec<(usize, &str, String)> =
            rows(&plan).into_iter().map(|row| (row.level, row.node.name.as_str(), row.place)).collect();
        let expected = [
            (0, "outer", ""),
            (1, "filter", "input 1 of 2 of outer"),
            (1, "inner", ""),
            (2, "b", "input 1 of 2 of inner"),
            (2, "c", "input 2 of 2 of inner"),
            (1, "d", "input 2 of 2 of outer"),
        ];
        assert_eq!(places, expected.map(|(level, name, place)| (level, name, place.to_owned())));
    }

    #[test]
    fn bars_are_relative_to_the_largest() {
        let slow = PlanNode { compute_seconds: 3.0, wait_seconds: 1.0, ..node("slow", vec![]) };
        let plan = PlanNode { wait_seconds: 1.0, compute_seconds: f64::NAN, ..node("top", vec![slow]) };
        let html: Html = content(&plan).into_iter().collect();
        for part in ["width:75.00%", "width:25.00%", "0 s + 1 s wait", "3 s + 1 s wait"] {
            assert!(html.as_str().contains(part), "{part}");
        }
    }
}
