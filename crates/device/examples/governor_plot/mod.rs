//! Panels side by side, three in a row; one line per way of sharing, one legend for all.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

pub struct Panel {
    pub title: String,
    pub categories: Vec<String>,
    /// One value per category.
    pub lines: Vec<(&'static str, Vec<f64>)>,
    pub is_logarithmic: bool,
}

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (440, 280);
const HEAD_HEIGHT: u32 = 60;
const INK: RGBColor = RGBColor(40, 40, 40);
/// Colours that also people who do not see red and green apart can tell from each other (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];

pub fn draw(path: &Path, panels: &[Panel]) {
    let rows = panels.len().div_ceil(COLUMNS);
    let size = (PANEL.0 * COLUMNS as u32, HEAD_HEIGHT + PANEL.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    let title = "Streams of random 4 KiB reads that share a device, by their number";
    head.draw(&Text::new(title, (14, 10), ("sans-serif", 18).into_font().color(&INK))).unwrap();
    let names = panels.first().map(|panel| panel.lines.clone()).unwrap_or_default();
    let mut x = 16;
    for ((name, _), colour) in names.iter().zip(COLOURS) {
        head.draw(&Rectangle::new([(x, 43), (x + 18, 47)], colour.filled())).unwrap();
        head.draw(&Text::new(*name, (x + 24, 38), ("sans-serif", 13).into_font().color(&INK))).unwrap();
        x += 44 + 8 * name.chars().count() as i32;
    }
    for (area, panel) in body.split_evenly((rows, COLUMNS)).iter().zip(panels) {
        draw_panel(area, panel);
    }
    root.present().unwrap();
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) {
    let values = panel.lines.iter().flat_map(|(_, values)| values.iter().copied());
    let (least, most) =
        values.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    let columns = -0.3..panel.categories.len() as f64 - 0.7;
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(&panel.title, ("sans-serif", 14))
        .margin(10)
        .margin_right(16)
        .x_label_area_size(30)
        .y_label_area_size(60);
    // The two kinds of axes have different types; what is drawn on them is the same.
    macro_rules! draw_on {
        ($rows:expr) => {{
            let mut chart = builder.build_cartesian_2d(columns, $rows).unwrap();
            let label = |x: &f64| {
                let is_whole = (x - x.round()).abs() < 1e-6;
                let category = is_whole.then(|| panel.categories.get(x.round() as usize)).flatten();
                category.cloned().unwrap_or_default()
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .bold_line_style(INK.mix(0.15))
                .light_line_style(TRANSPARENT)
                .axis_style(INK.mix(0.6))
                .label_style(("sans-serif", 12))
                .x_labels(2 * panel.categories.len())
                .x_label_formatter(&label)
                .y_labels(6)
                .y_label_formatter(&|y: &f64| if *y < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") })
                .draw()
                .unwrap();
            for ((_, values), colour) in panel.lines.iter().zip(COLOURS) {
                let points: Vec<(f64, f64)> =
                    values.iter().enumerate().map(|(at, &value)| (at as f64, value)).collect();
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).unwrap();
                let marks = points.into_iter().map(|at| Circle::new(at, 3, colour.filled()));
                chart.draw_series(marks).unwrap();
            }
        }};
    }
    if panel.is_logarithmic {
        // Whole powers of ten: there are always two labels.
        let decades = 10f64.powf(least.log10().floor())..10f64.powf(most.log10().ceil());
        draw_on!(decades.log_scale());
    } else {
        draw_on!(0.0..most * 1.05);
    }
}
