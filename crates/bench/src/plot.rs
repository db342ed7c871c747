//! Line plots as SVG: panels side by side, one line per contender, one legend for all.
//!
//! ```text
//!   title
//!   ■ one   ■ other                      legend
//!   ┌ panel ─────────┐ ┌ panel ─────────┐
//!   │  log or linear │ │                │
//!   │  ×      failed │ │                │  marks at the upper edge: no result there
//!   └─64─128─256─────┘ └────────────────┘  categories, evenly spaced
//! ```

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;

use crate::error::{BenchError, Result};

/// One contender in one panel.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// One value per category; `None`: not measured, and the line is interrupted.
    pub values: Vec<Option<f64>>,
    /// Categories at which the contender failed.
    pub failed: Vec<usize>,
}

impl Series {
    pub fn new(name: impl Into<String>, values: Vec<Option<f64>>) -> Self {
        Self { name: name.into(), values, failed: Vec::new() }
    }
}

#[derive(Debug, Clone)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub categories: Vec<String>,
    pub series: Vec<Series>,
    /// A horizontal line, for a bound that nothing can pass.
    pub bound: Option<f64>,
    pub is_logarithmic: bool,
}

const PANEL_WIDTH: u32 = 460;
const PANEL_HEIGHT: u32 = 330;
const HEAD_HEIGHT: u32 = 70;
const INK: RGBColor = RGBColor(40, 40, 40);
const BOUND_INK: RGBColor = RGBColor(130, 130, 130);

/// Colours that also people who do not see red and green apart can tell from each other (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Draws the panels, `columns` in a row. A name has the same colour in all of them.
pub fn write_svg(path: &Path, title: &str, panels: &[Panel], columns: usize) -> Result<()> {
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let size = (PANEL_WIDTH * columns as u32, HEAD_HEIGHT + PANEL_HEIGHT * rows as u32);
    let failed = |message: String| BenchError::Plot { path: path.to_path_buf(), message };
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    let names = names(panels);
    draw_head(&head, title, &names).map_err(&failed)?;
    for (area, panel) in body.split_evenly((rows, columns)).iter().zip(panels) {
        draw_panel(area, panel, &names).map_err(&failed)?;
    }
    root.present().map_err(|error| failed(error.to_string()))
}

/// Names of all series, in order of their first appearance.
fn names(panels: &[Panel]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&series.name) {
            names.push(series.name.clone());
        }
    }
    names
}

fn colour(names: &[String], name: &str) -> RGBColor {
    let at = names.iter().position(|known| known == name).unwrap_or(0);
    COLOURS.iter().cycle().nth(at).copied().unwrap_or(INK)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw_head(area: &Area<'_>, title: &str, names: &[String]) -> Result<(), String> {
    let said = |error: DrawingAreaErrorKind<_>| format!("{error:?}");
    area.draw(&Text::new(title.to_owned(), (14, 12), ("sans-serif", 18).into_font().color(&INK)))
        .map_err(said)?;
    let mut x = 16;
    for name in names {
        let ink = colour(names, name);
        area.draw(&Rectangle::new([(x, 46), (x + 18, 50)], ink.filled())).map_err(said)?;
        area.draw(&Text::new(name.clone(), (x + 24, 41), ("sans-serif", 13).into_font().color(&INK)))
            .map_err(said)?;
        x += 44 + 8 * name.chars().count() as i32;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel, names: &[String]) -> Result<(), String> {
    let said = |error: DrawingAreaErrorKind<_>| format!("{error:?}");
    let (x_axis, y_axis) = (Axis::of_categories(&panel.categories), Axis::of_values(panel));
    let (left, right, top) = (x_axis.low, x_axis.high, y_axis.high);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(10)
        .margin_right(16)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(x_axis, y_axis)
        .map_err(said)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .axis_style(INK.mix(0.6))
        .label_style(("sans-serif", 12))
        .x_desc(&panel.x_label)
        .y_desc(&panel.y_label)
        .draw()
        .map_err(said)?;
    if let Some(bound) = panel.bound {
        let line = vec![(left, bound), (right, bound)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, BOUND_INK.stroke_width(1))).map_err(said)?;
    }
    for series in &panel.series {
        let ink = colour(names, &series.name);
        for run in runs(&series.values) {
            let markers: Vec<_> = run.iter().map(|&point| Circle::new(point, 3, ink.filled())).collect();
            chart.draw_series(LineSeries::new(run, ink.stroke_width(2))).map_err(said)?;
            chart.draw_series(markers).map_err(said)?;
        }
        let at = names.iter().position(|name| *name == series.name).unwrap_or(0) as i32;
        let crosses = series.failed.iter().map(|&category| {
            // Several failures at one place stand below each other.
            EmptyElement::at((category as f64, top)) + Cross::new((0, 8 + 10 * at), 4, ink.stroke_width(2))
        });
        chart.draw_series(crosses).map_err(said)?;
    }
    Ok(())
}

/// An axis with labels at chosen places.
#[derive(Clone)]
struct Axis {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    labels: Vec<(f64, String)>,
}

impl Axis {
    fn of_categories(categories: &[String]) -> Self {
        let labels: Vec<_> =
            categories.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
        Self { low: -0.3, high: labels.len().saturating_sub(1) as f64 + 0.3, is_logarithmic: false, labels }
    }

    fn of_values(panel: &Panel) -> Self {
        let (low, high) = bounds(panel);
        let ticks = ticks(low, high, panel.is_logarithmic);
        let labels = ticks.into_iter().map(|tick| (tick, tick_label(tick))).collect();
        Self { low, high, is_logarithmic: panel.is_logarithmic, labels }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let scaled = |value: f64| if self.is_logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let share = if high > low { (scaled(*value) - low) / (high - low) } else { 0.5 };
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.labels.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.labels.iter().find(|(at, _)| at == value).map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// Uninterrupted pieces of a line.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
    let points = values.iter().enumerate().map(|(at, value)| value.map(|value| (at as f64, value)));
    let points: Vec<Option<(f64, f64)>> = points.collect();
    points
        .split(Option::is_none)
        .map(|run| run.iter().flatten().copied().collect())
        .filter(|run: &Vec<_>| !run.is_empty())
        .collect()
}

/// Lower and upper end of the vertical axis.
fn bounds(panel: &Panel) -> (f64, f64) {
    let values = panel.series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let values: Vec<f64> =
        values.chain(panel.bound).filter(|value| value.is_finite() && *value > 0.0).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    match (values.is_empty(), panel.is_logarithmic) {
        (true, _) => (1.0, 10.0),
        // Room for marks of failures above the highest value.
        (false, true) => (low / 1.3, high * 2.0),
        (false, false) => (0.0, high * 1.2),
    }
}

/// Places of labels: 1, 2 and 5 times powers of ten, or about five even steps.
fn ticks(low: f64, high: f64, is_logarithmic: bool) -> Vec<f64> {
    let decade = |value: f64| value.max(f64::MIN_POSITIVE).log10().floor() as i32;
    if is_logarithmic {
        let steps = (decade(low)..=decade(high))
            .flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        return steps.filter(|tick| (low..=high).contains(tick)).collect();
    }
    let rough = (high - low) / 5.0;
    let unit = 10f64.powi(decade(rough));
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * unit)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    (0..).map(|number| low + f64::from(number) * step).take_while(|tick| *tick <= high).collect()
}

fn tick_label(value: f64) -> String {
    if value >= 1.0 || value == 0.0 {
        format!("{}", (value * 100.0).round() / 100.0)
    } else {
        format!("{value:.3}").trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.8, 30.0, true), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(0.0, 12.0, false), [0.0, 5.0, 10.0]);
        assert_eq!(
            (tick_label(0.05), tick_label(20.0), tick_label(2.5)),
            ("0.05".into(), "20".into(), "2.5".into())
        );
    }

    #[test]
    fn lines_break_where_nothing_was_measured() {
        let values = [Some(1.0), Some(2.0), None, Some(4.0)];
        assert_eq!(runs(&values), vec![vec![(0.0, 1.0), (1.0, 2.0)], vec![(3.0, 4.0)]]);
    }

    #[test]
    fn a_plot_names_its_lines_and_categories() {
        let folder = std::env::temp_dir().join(format!("nandina-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("plot.svg");
        let mut failing = Series::new("other engine", vec![Some(3.0), None]);
        failing.failed.push(1);
        let panel = Panel {
            title: "A panel".into(),
            x_label: "memory".into(),
            y_label: "seconds".into(),
            categories: vec!["64 MB".into(), "128 MB".into()],
            series: vec![Series::new("one engine", vec![Some(1.0), Some(2.0)]), failing],
            bound: Some(0.5),
            is_logarithmic: true,
        };
        let linear = Panel { is_logarithmic: false, ..panel.clone() };
        write_svg(&path, "A plot", &[panel, linear], 2).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["A plot", "A panel", "one engine", "other engine", "64 MB", "128 MB", "seconds"] {
            assert!(svg.contains(text), "{text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
