//! A plot: axes, lines of points, marks. Drawn by `plotters` as SVG, dressed for the page.
//!
//! ```text
//!   <svg viewBox data-x0 … data-log data-left …>      axis ranges and pixel box: a pixel can be turned into a value
//!     <title> <desc>                                   what people who do not see it hear
//!     <g class="axes">    grid, labels                ┐
//!     <g class="series s0" data-series="depth 1">     ├ one drawing by plotters each, all of the same size
//!     <g class="mark">    a limit, with its name      ┘
//! ```
//!
//! Plotters writes colours as presentation attributes, which any CSS rule overrides: every layer is a group with a class,
//! and the style sheet gives the class its colour, one for light pages and one for dark ones. Lengths are half CSS
//! pixels, so that whole numbers, which plotters writes, are fine enough.
//!
//! Invariants: a point of a series is a vertex of its `polyline`s or the centre of a `circle`; the
//! centre of the pixel is less than half a pixel from the value's place. Nothing else in a series group has either.

mod axis;
mod draw;

use plotters::style::RGBColor;

pub use self::axis::{Axis, Unit};
use crate::error::Result;
use crate::html::{Html, Tag};

/// A line of points. Those that the axes have no place for are left out.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Which of the page's colours; beyond the last one they begin again, dashed.
    pub(crate) colour: usize,
    pub(crate) points: Vec<(f64, f64)>,
    /// Written behind the last point.
    pub(crate) end_label: String,
    /// A point to put a ring around.
    pub(crate) ringed: Option<(f64, f64)>,
    /// Whether the area below is tinted.
    pub(crate) is_filled: bool,
}

/// A line across the plot.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) at: Place,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// Horizontal, at a value of the vertical axis.
    Height(f64),
    /// Vertical, at a value of the horizontal one.
    Width(f64),
}

#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// Unique on its page.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) marks: Vec<Mark>,
}

/// Colours of series in the style sheet.
pub const COLOURS: usize = 7;

/// Okabe and Ito's colours, which also people who do not see red and green apart can tell from each other: for drawings
/// without the style sheet.
pub const DRAWN: [RGBColor; COLOURS] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
pub const INK: RGBColor = RGBColor(40, 40, 40);

/// More points than this are a line without dots.
const MOST_DOTS: usize = 48;

/// Sizes in half CSS pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    class: &'static str,
    width: i32,
    height: i32,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    text: i32,
}

/// One of several beside each other, or one below the other on a phone.
pub(crate) const PANEL: Frame =
    Frame { class: "panel", width: 800, height: 540, left: 132, right: 92, top: 24, bottom: 68, text: 26 };
/// Across a desktop's page, or paper.
const WIDE: Frame =
    Frame { class: "wide", width: 2200, height: 380, left: 170, right: 90, top: 24, bottom: 64, text: 25 };
/// The same across a phone's.
const NARROW: Frame =
    Frame { class: "narrow", width: 720, height: 400, left: 142, right: 46, top: 24, bottom: 64, text: 26 };

impl Plot {
    /// One drawing for all widths.
    pub(crate) fn panel(&self) -> Result<Html> {
        self.draw(PANEL)
    }

    /// Two drawings of the same, of which the style sheet shows the one that fits: text that shrinks with a wide drawing
    /// cannot be read on a phone.
    pub(crate) fn across(&self) -> Result<Html> {
        Ok(Html::from_iter([self.draw(WIDE)?, self.draw(NARROW)?]))
    }

    fn draw(&self, frame: Frame) -> Result<Html> {
        let title_id = format!("{}-{}-title", self.id, frame.class);
        let description_id = format!("{}-{}-desc", self.id, frame.class);
        let log = match (self.x.is_logarithmic, self.y.is_logarithmic) {
            (true, true) => "xy",
            (true, false) => "x",
            (false, true) => "y",
            (false, false) => "",
        };
        let mut svg = Tag::new("svg")
            .attribute("xmlns", "http://www.w3.org/2000/svg")
            .attribute("viewBox", format!("0 0 {} {}", frame.width, frame.height))
            .class(format!("plot {}", frame.class))
            .attribute("role", "img")
            .attribute("aria-label", &self.title)
            .attribute("aria-describedby", &description_id)
            .attribute("data-plot", &self.id)
            .attribute("data-x0", self.x.low)
            .attribute("data-x1", self.x.high)
            .attribute("data-y0", self.y.low)
            .attribute("data-y1", self.y.high)
            .attribute("data-log", log)
            .attribute("data-left", frame.left)
            .attribute("data-right", frame.width - frame.right)
            .attribute("data-top", frame.top)
            .attribute("data-bottom", frame.height - frame.bottom)
            .with(Tag::new("title").attribute("id", title_id).text(&self.title))
            .with(Tag::new("desc").attribute("id", description_id).text(&self.description))
            .with(Tag::new("g").class("axes").with(self.layer(frame, |layer| self.draw_axes(layer, frame))?));
        for series in self.series.iter().filter(|series| series.is_filled) {
            let area = self.layer(frame, |layer| self.draw_area(layer, frame, series))?;
            svg = svg.with(Tag::new("g").class(format!("area s{}", series.colour % COLOURS)).with(area));
        }
        for mark in &self.marks {
            let (value, axis) = match mark.at {
                Place::Height(value) => (value, "y"),
                Place::Width(value) => (value, "x"),
            };
            let line = self.layer(frame, |layer| self.draw_mark(layer, frame, mark))?;
            let group = Tag::new("g").class("mark").attribute("data-mark", &mark.name);
            svg = svg.with(group.attribute("data-axis", axis).attribute("data-value", value).with(line));
        }
        let labels = self.end_label_heights(frame);
        for (series, label_height) in self.series.iter().zip(labels) {
            let line = self.layer(frame, |layer| self.draw_series(layer, frame, series))?;
            let dashed = if series.colour >= COLOURS { " dashed" } else { "" };
            let class = series.colour % COLOURS;
            let group = Tag::new("g").class(format!("series s{class}{dashed}"));
            svg = svg.with(group.attribute("data-series", &series.name).with(line));
            let extras = self.layer(frame, |layer| self.draw_extras(layer, frame, series, label_height))?;
            if !extras.as_str().trim().is_empty() {
                svg = svg.with(Tag::new("g").class(format!("extras s{class}")).with(extras));
            }
        }
        Ok(svg.into())
    }
}
