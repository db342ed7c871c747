//! The page of a query: what it asked, what it took, and where time, memory and I/O went.
//!
//! ```text
//!   header      SQL; elapsed, rows, memory against its limit, bytes read and spilled
//!   plan        an operator per row, with bars                                       (plan_tree.rs)
//!   timeline    I/O, queue, memory, temporary space over time, one below the other   (timeline.rs)
//! ```

mod plan_tree;
mod timeline;

use crate::error::Result;
use crate::html::{Html, Tag};
use crate::page::{Page, facts, notice, section, tile, tiles};
use crate::quantity;
use crate::query_report::QueryReport;

/// Characters of the SQL that a title has room for.
const TITLE_CHARACTERS: usize = 60;

/// An executed query as a page.
pub fn query_page(report: &QueryReport) -> Result<Page> {
    let sections = [
        section("plan", "Where it went", plan_tree::content(&report.plan)),
        section("timeline", "Over time", timeline::content(report)?),
    ];
    let title = format!("{} – query profile", shortened(&report.sql, TITLE_CHARACTERS));
    Page::assemble(&title, header(report), sections, report)
}

fn header(report: &QueryReport) -> Html {
    let plan = &report.plan;
    let operators = plan.in_order().len() as u64;
    let started = if report.started_at > 0 { quantity::moment(report.started_at) } else { String::new() };
    let facts = facts([
        ("Started", started),
        ("Device", report.device.clone().unwrap_or_default()),
        ("Plan", quantity::counted(operators, "operator")),
    ]);
    Tag::new("header")
        .with(Tag::new("p").class("kicker").text("Nandina query profile"))
        .with(Tag::new("h1").text(format!("A query of {}", quantity::seconds(report.elapsed_seconds))))
        .with(
            Tag::new("pre")
                .attribute("tabindex", "0")
                .attribute("aria-label", "The query")
                .with(Tag::new("code").text(report.sql.trim())),
        )
        .with_all(report.notes.iter().map(|note| notice(note)))
        .with(headline(report))
        .with(facts)
        .into()
}

fn headline(report: &QueryReport) -> Html {
    let plan = &report.plan;
    let scanned = plan.total(|node| node.scanned_bytes);
    let spilled = plan.total(|node| node.spilled_bytes);
    let read_back = plan.total(|node| node.spill_read_bytes);
    let partitions = plan.total(|node| node.spilled_partitions);
    let pages = plan.total(|node| node.spilled_page_bytes);
    let mut spill_words = match (spilled, partitions) {
        (0, 0) => "nothing left memory".to_owned(),
        (_, 0) => "to temporary space".to_owned(),
        _ => format!("of {}", quantity::counted(partitions, "partition")),
    };
    if pages > spilled {
        spill_words.push_str(&format!(", {} before compression", quantity::bytes(pages)));
    }
    let read_words = match read_back {
        0 => "from tables and files".to_owned(),
        _ => format!("{} of it spilled before", quantity::bytes(read_back)),
    };
    tiles([
        tile("Elapsed", &quantity::seconds(report.elapsed_seconds), ""),
        rows_tile(report.result_rows),
        memory_tile(report),
        tile("Read", &quantity::bytes(scanned.saturating_add(read_back)), &read_words),
        tile("Spilled", &quantity::bytes(spilled), &spill_words),
    ])
}

/// More digits than there is room for in large type become a word.
fn rows_tile(rows: u64) -> Tag {
    match rows {
        0..1_000_000_000 => tile("Result", &quantity::count(rows), if rows == 1 { "row" } else { "rows" }),
        _ => {
            let billions = format!("{} billion", quantity::plain(rows as f64 / 1e9));
            tile("Result", &billions, &quantity::counted(rows, "row"))
        }
    }
}

/// The peak, and how much of the limit that is.
fn memory_tile(report: &QueryReport) -> Tag {
    let peak = quantity::bytes(report.peak_memory_bytes);
    if report.memory_limit_bytes == 0 {
        return tile("Peak memory", &peak, "there was no limit");
    }
    let share = report.peak_memory_bytes as f64 / report.memory_limit_bytes as f64;
    let words = format!(
        "{} of the limit of {}",
        quantity::percent(share),
        quantity::bytes(report.memory_limit_bytes)
    );
    let filled =
        Tag::new("span").attribute("style", format!("width:{:.2}%", (share * 100.0).clamp(0.0, 100.0)));
    let meter = Tag::new("div").class("bar meter s0").attribute("aria-hidden", "true").with(filled);
    tile("Peak memory", &peak, &words).with(Tag::new("dd").class("more").with(meter))
}

/// The beginning of a text on one line.
fn shortened(text: &str, most_characters: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most_characters {
        return line;
    }
    let kept: String = line.chars().take(most_characters.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_short_line() {
        assert_eq!(shortened("SELECT\n  1", 60), "SELECT 1");
        assert_eq!(shortened("ÄÖÜäöü", 4), "ÄÖÜ…");
        assert_eq!(shortened("", 4), "");
    }
}
