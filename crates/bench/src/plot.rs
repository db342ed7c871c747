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

use std::path::Path;

use nandina_report::plot::{Axis, DRAWN, INK, Unit};
use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
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
const BOUND_INK: RGBColor = RGBColor(130, 130, 130);

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
    DRAWN.iter().cycle().nth(at).copied().unwrap_or(INK)
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
    let names_of_places = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(at) => panel.categories.get(*at).cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let x_axis = (0..panel.categories.len().saturating_sub(1)).into_segmented();
    let y_axis = values_axis(panel);
    let top = y_axis.high;
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
        .x_labels(2 * panel.categories.len())
        .x_label_formatter(&names_of_places)
        .x_desc(&panel.x_label)
        .y_desc(&panel.y_label)
        .draw()
        .map_err(said)?;
    if let Some(bound) = panel.bound {
        let line = vec![(SegmentValue::Exact(0), bound), (SegmentValue::Last, bound)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, BOUND_INK.stroke_width(1))).map_err(said)?;
    }
    for series in &panel.series {
        let ink = colour(names, &series.name);
        for run in runs(&series.values) {
            let markers: Vec<_> =
                run.iter().cloned().map(|point| Circle::new(point, 3, ink.filled())).collect();
            chart.draw_series(LineSeries::new(run, ink.stroke_width(2))).map_err(said)?;
            chart.draw_series(markers).map_err(said)?;
        }
        let at = names.iter().position(|name| *name == series.name).unwrap_or(0) as i32;
        let crosses = series.failed.iter().map(|&category| {
            // Several failures at one place stand below each other.
            EmptyElement::at((SegmentValue::CenterOf(category), top))
                + Cross::new((0, 8 + 10 * at), 4, ink.stroke_width(2))
        });
        chart.draw_series(crosses).map_err(said)?;
    }
    Ok(())
}

/// Uninterrupted pieces of a line.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(SegmentValue<usize>, f64)>> {
    let point = |(at, value): (usize, &Option<f64>)| value.map(|value| (SegmentValue::CenterOf(at), value));
    let points: Vec<Option<_>> = values.iter().enumerate().map(point).collect();
    points
        .split(Option::is_none)
        .map(|run| run.iter().flatten().cloned().collect())
        .filter(|run: &Vec<_>| !run.is_empty())
        .collect()
}

/// With room for marks of failures above the highest value.
fn values_axis(panel: &Panel) -> Axis {
    let values = panel.series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let values: Vec<f64> = values.chain(panel.bound).filter(|value| value.is_finite()).collect();
    let high = values.iter().copied().fold(0.0, f64::max);
    match panel.is_logarithmic {
        true => Axis::logarithmic(Unit::Number, values.into_iter().chain([high * 1.6])),
        false => Axis::linear(Unit::Number, [high * 1.07]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_where_nothing_was_measured() {
        let values = [Some(1.0), Some(2.0), None, Some(4.0)];
        let runs: Vec<Vec<f64>> =
            runs(&values).into_iter().map(|run| run.into_iter().map(|point| point.1).collect()).collect();
        assert_eq!(runs, vec![vec![1.0, 2.0], vec![4.0]]);
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
