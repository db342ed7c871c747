//! The frame of every page: one file that needs nothing else and sends no requests.
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
use crate::quantity::kept_together;

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded and nothing runs, whatever a page should come to contain.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A page and the figures that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// One self-contained file.
    pub html: String,
    /// The data that the page shows; the page contains the same.
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
    Tag::new("p").text(kept_together(text)).into()
}

/// Something that the reader has to know to read the figures right.
pub(crate) fn notice(text: &str) -> Html {
    Tag::new("p").class("notice").attribute("role", "note").text(text).into()
}

/// A figure in large type: what it is, the value, and what else there is to say.
pub(crate) fn tile(name: &str, value: &str, more: &str) -> Tag {
    let tile = Tag::new("div").class("tile").with(Tag::new("dt").text(name)).with(Tag::new("dd").text(value));
    if more.is_empty() { tile } else { tile.with(Tag::new("dd").class("more").text(kept_together(more))) }
}

pub(crate) fn tiles(tiles: impl IntoIterator<Item = Tag>) -> Html {
    Tag::new("dl").class("tiles").with_all(tiles).into()
}

/// Names and values, one below the other. Those without a value are left out.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Html {
    let mut list = Tag::new("dl").class("facts");
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        list = list.with(Tag::new("dt").text(name)).with(Tag::new("dd").text(kept_together(&value)));
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
    if below.is_empty() {
        figure
    } else {
        figure.with(Tag::new("p").class("below").text(kept_together(below)))
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;

    /// A colour of the style sheet as red, green and blue light, from 0 to 1. The first block of variables is for light
    /// pages, the second one for dark ones.
    fn light_of(name: &str, is_dark: bool) -> [f64; 3] {
        let block =
            STYLE.split(":root {").nth(if is_dark { 2 } else { 1 }).unwrap().split('}').next().unwrap();
        let hex = block.split(&format!("--{name}: #")).nth(1).unwrap_or_else(|| panic!("no colour {name}"));
        [0, 2, 4].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// The contrast of WCAG 2, from 1 to 21.
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_have_contrast_by_day_and_by_night() {
        for is_dark in [false, true] {
            let of = |name: &str| light_of(name, is_dark);
            for (text, ground) in [
                ("ink", "page"),
                ("ink", "raised"),
                ("ink", "warn"),
                ("ink", "heat-low"),
                ("ink", "heat-high"),
                ("soft", "page"),
                ("soft", "raised"),
                ("accent", "page"),
            ] {
                let found = contrast(of(text), of(ground));
                assert!(found >= 4.5, "{text} on {ground}, dark {is_dark}: {found:.2}");
            }
            for line in ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "warn-line"] {
                let found = contrast(of(line), of("page"));
                assert!(found >= 3.0, "{line} on page, dark {is_dark}: {found:.2}");
            }
        }
    }

    /// What people see who lack the cones for red or for green: Viénot, Brettel and Mollon, "Digital video colourmaps for
    /// checking the legibility of displays by dichromats" (1999), then CIE L*a*b*, in which distances are those that are
    /// seen.
    fn seen_without(is_red: bool, [red, green, blue]: [f64; 3]) -> [f64; 3] {
        let both = if is_red { 0.11238 * red + 0.88762 * green } else { 0.29275 * red + 0.70725 * green };
        let blue = if is_red {
            0.00401 * red - 0.00401 * green + blue
        } else {
            -0.02234 * red + 0.02234 * green + blue
        };
        let x = (0.4124 * both + 0.3576 * both + 0.1805 * blue) / 0.9505;
        let y = 0.2126 * both + 0.7152 * both + 0.0722 * blue;
        let z = (0.0193 * both + 0.1192 * both + 0.9505 * blue) / 1.089;
        let [x, y, z] = [x, y, z].map(|t| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn lines_can_be_told_apart_without_red_or_green() {
        for (is_dark, is_red) in [(false, false), (false, true), (true, false), (true, true)] {
            let seen: Vec<[f64; 3]> =
                (0..7).map(|line| seen_without(is_red, light_of(&format!("s{line}"), is_dark))).collect();
            for (first, a) in seen.iter().enumerate() {
                for (second, b) in seen.iter().enumerate().skip(first + 1) {
                    let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(
                        apart > 10.0,
                        "s{first} and s{second}, dark {is_dark}, no red {is_red}: {apart:.1}"
                    );
                }
            }
        }
    }

    #[test]
    fn data_cannot_end_its_script() {
        let page = Page::assemble("t", Html::default(), [], &["</script><b>", "a<!--"]).unwrap();
        assert!(page.html.contains(r#"["\u003c/script>\u003cb>","a\u003c!--"]</script>"#));
        assert!(page.json.contains("</script><b>"));
    }

    #[test]
    fn plot_colours_are_those_of_the_style_sheet() {
        assert_eq!(STYLE.matches("{ --own: var(--s").count(), crate::plot::COLOURS);
    }
}
