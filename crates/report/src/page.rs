//! The frame of every page: one file that needs nothing else and asks nobody.
//!
//! ```text
//!   <head>  viewport, a policy that forbids scripts and the network, the style sheet
//!   <body>  <main> header, sections </main>  footer
//!           <script type="application/json" id="data">   the figures behind all of it; data, never run
//! ```
//!
//! Invariant: the same input gives the same bytes. So a page holds no time but that of its measurement.

use serde::Serialize;

use crate::error::Result;
use crate::html::{Html, Tag};

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded and nothing runs, whatever a page should come to contain.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A page and the figures that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// One self-contained file.
    pub html: String,
    /// What the page shows; the page carries the same.
    pub json: String,
}

impl Page {
    pub(crate) fn assemble(
        title: &str,
        header: Html,
        sections: impl IntoIterator<Item = Html>,
        data: &impl Serialize,
    ) -> Result<Self> {
        let json = serde_json::to_string_pretty(data)?;
        let head = Tag::new("head")
            .with(Tag::new("meta").attribute("charset", "utf-8"))
            .with(meta("viewport", "width=device-width, initial-scale=1"))
            .with(meta("color-scheme", "light dark"))
            .with(
                Tag::new("meta")
                    .attribute("http-equiv", "Content-Security-Policy")
                    .attribute("content", POLICY),
            )
            .with(Tag::new("title").text(title))
            .with(Tag::new("style").with(Html::drawn(STYLE.to_owned())));
        let body = Tag::new("body")
            .with(Tag::new("main").with(header).with_all(sections))
            .with(Tag::new("footer").text(concat!(
                "Written by Nandina ",
                env!("CARGO_PKG_VERSION"),
                ". This file needs nothing else: it can be copied, sent and printed. The figures behind it are inside, as JSON."
            )))
            .with(
                Tag::new("script")
                    .attribute("type", "application/json")
                    .attribute("id", "data")
                    .with(Html::drawn(inside_a_script(&serde_json::to_string(data)?))),
            );
        let page = Html::from(Tag::new("html").attribute("lang", "en").with(head).with(body));
        Ok(Self { html: format!("<!DOCTYPE html>\n{}\n", page.as_str()), json })
    }
}

fn meta(name: &str, content: &str) -> Tag {
    Tag::new("meta").attribute("name", name).attribute("content", content)
}

/// JSON that no parser of HTML takes for the end of the script. `<` can only stand inside of strings, where it has a
/// second spelling.
fn inside_a_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A part of a page under a heading; its id is a place to link to.
pub(crate) fn section(id: &'static str, heading: &str, content: impl IntoIterator<Item = Html>) -> Html {
    let heading_id = format!("{id}-heading");
    Tag::new("section")
        .attribute("id", id)
        .attribute("aria-labelledby", &heading_id)
        .with(Tag::new("h2").attribute("id", &heading_id).text(heading))
        .with_all(content)
        .into()
}

pub(crate) fn paragraph(text: &str) -> Html {
    Tag::new("p").text(text).into()
}

/// Something that the reader has to know to read the figures right.
pub(crate) fn notice(text: &str) -> Html {
    Tag::new("p").class("notice").attribute("role", "note").text(text).into()
}

/// A figure in large type: what it is, the value, and what else there is to say.
pub(crate) fn tile(name: &str, value: &str, more: &str) -> Tag {
    let tile = Tag::new("div").class("tile").with(Tag::new("dt").text(name)).with(Tag::new("dd").text(value));
    if more.is_empty() { tile } else { tile.with(Tag::new("dd").class("more").text(more)) }
}

pub(crate) fn tiles(tiles: impl IntoIterator<Item = Tag>) -> Html {
    Tag::new("dl").class("tiles").with_all(tiles).into()
}

/// Names and values, one below the other. Those without a value are left out.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Html {
    let mut list = Tag::new("dl").class("facts");
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        list = list.with(Tag::new("dt").text(name)).with(Tag::new("dd").text(value));
    }
    list.into()
}

/// A plot with its heading, and what it does not show below.
pub(crate) fn figure(class: &'static str, heading: &str, axes: &str, drawing: Html, below: &str) -> Tag {
    let caption = Tag::new("figcaption")
        .with(Tag::new("strong").text(heading))
        .text(" ")
        .with(Tag::new("span").text(axes));
    let figure = Tag::new("figure").class(class).with(caption).with(drawing);
    if below.is_empty() { figure } else { figure.with(Tag::new("p").class("below").text(below)) }
}

/// Names of lines beside their colours.
pub(crate) fn legend<'a>(label: &str, names: impl IntoIterator<Item = (usize, &'a str)>) -> Html {
    let entry = |(colour, name): (usize, &str)| {
        let dashed = if colour >= crate::plot::COLOURS { " dashed" } else { "" };
        Tag::new("li")
            .class(format!("s{}{dashed}", colour % crate::plot::COLOURS))
            .with(Tag::new("span").attribute("aria-hidden", "true"))
            .text(name)
    };
    let list = Tag::new("ul").class("legend").attribute("aria-label", label);
    list.with_all(names.into_iter().map(entry)).into()
}
