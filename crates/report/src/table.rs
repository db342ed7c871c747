//! Tables of the figures behind a plot, for readers who want the numbers.

use crate::html::{Html, Tag};

/// A column: its head, and whether it holds numbers, which are aligned at their last digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    head: String,
    is_number: bool,
}

pub(crate) fn numbers(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: true }
}

pub(crate) fn words(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: false }
}

/// A table in a box of its own to scroll in. The first cell of a row is its head.
pub(crate) fn table(caption: &str, columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> Html {
    let heads = columns.iter().map(|column| {
        let head = Tag::new("th").attribute("scope", "col");
        if column.is_number { head.class("number").text(&column.head) } else { head.text(&column.head) }
    });
    let row = |cells: Vec<String>| {
        let tags = cells.into_iter().zip(columns).enumerate().map(|(position, (cell, column))| {
            let tag = if position == 0 { Tag::new("th").attribute("scope", "row") } else { Tag::new("td") };
            tag.class(if column.is_number { "number" } else { "words" }).text(cell)
        });
        Tag::new("tr").with_all(tags)
    };
    let table = Tag::new("table")
        .with(Tag::new("caption").text(caption))
        .with(Tag::new("thead").with(Tag::new("tr").with_all(heads)))
        .with(Tag::new("tbody").with_all(rows.into_iter().map(row)));
    // What scrolls has to be reachable with keys.
    let label = format!("Table: {caption}");
    Tag::new("div")
        .class("box")
        .attribute("role", "region")
        .attribute("tabindex", "0")
        .attribute("aria-label", label)
        .with(table)
        .into()
}

/// Tables behind a line to click on. Long ones are not printed.
pub(crate) fn folded(summary: &str, is_long: bool, content: impl IntoIterator<Item = Html>) -> Html {
    let details = Tag::new("details").with(Tag::new("summary").text(summary)).with_all(content);
    if is_long { details.class("long").into() } else { details.into() }
}
