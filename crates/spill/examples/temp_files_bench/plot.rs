//! Join time by what is done with freed space: a panel per drive, a line per preallocation.

use std::path::Path;

use nandina_spill::{Discard, Preallocation};
use plotters::prelude::*;

use crate::Measured;
use crate::simulated::{Combination, Management};

const COLUMNS: usize = 2;
const PANEL: (u32, u32) = (540, 300);
const HEAD_HEIGHT: u32 = 60;
const INK: RGBColor = RGBColor(40, 40, 40);
/// Colours that also people who do not see red and green apart can tell from each other (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];
const CATEGORIES: [&str; 5] =
    ["file per partition", "same, TRIM", "immediate, TRIM", "deferred, TRIM", "kept"];

/// The combination of a line in a category; recycling has no file per partition.
fn combination(preallocation: Preallocation, category: usize) -> Option<Combination> {
    let fallocate = preallocation == Preallocation::Fallocate;
    let is_recycled = preallocation == Preallocation::Recycle;
    let management = match category {
        0 | 1 if is_recycled => return None,
        0 | 1 => Management::FilePerPartition { fallocate },
        2 => Management::Extents { preallocation, discard: Discard::Immediate },
        3 => Management::Extents { preallocation, discard: Discard::Deferred },
        _ => Management::Extents { preallocation, discard: Discard::None },
    };
    Some(Combination { management, is_mounted_with_discard: category > 0 })
}

pub fn draw(path: &Path, measured: &[Measured], drives: &[&str]) {
    let rows = drives.len().div_ceil(COLUMNS);
    let size = (PANEL.0 * COLUMNS as u32, HEAD_HEIGHT + PANEL.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    let title =
        "Seconds of three joins at once, by preallocation and discard; drives 80 % full of other data";
    head.draw(&Text::new(title, (14, 10), ("sans-serif", 18).into_font().color(&INK))).unwrap();
    for ((at, preallocation), colour) in Preallocation::ALL.iter().enumerate().zip(COLOURS) {
        let x = 16 + 130 * at as i32;
        head.draw(&Rectangle::new([(x, 43), (x + 18, 47)], colour.filled())).unwrap();
        let font = ("sans-serif", 13).into_font().color(&INK);
        head.draw(&Text::new(preallocation.name(), (x + 24, 38), font)).unwrap();
    }
    for (area, drive) in body.split_evenly((rows, COLUMNS)).iter().zip(drives) {
        let seconds = |wanted: Combination| {
            let is_it = |it: &&Measured| it.setting.drive == *drive && it.combination == wanted;
            measured.iter().find(is_it).expect("all combinations were run").outcome.seconds
        };
        let points = |preallocation: Preallocation| -> Vec<(f64, f64)> {
            let combinations = (0..CATEGORIES.len()).map(|at| (at, combination(preallocation, at)));
            combinations.filter_map(|(at, it)| Some((at as f64, seconds(it?)))).collect()
        };
        let most = Preallocation::ALL.into_iter().flat_map(points).map(|(_, y)| y).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(drive, ("sans-serif", 14))
            .margin(10)
            .margin_right(40)
            .x_label_area_size(30)
            .y_label_area_size(50)
            .build_cartesian_2d(-0.3..CATEGORIES.len() as f64 - 0.7, 0.0..most * 1.05)
            .unwrap();
        let label = |x: &f64| {
            let is_whole = (x - x.round()).abs() < 1e-6;
            let category = is_whole.then(|| CATEGORIES.get(x.round() as usize)).flatten();
            category.map_or_else(String::new, |name| (*name).to_owned())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(INK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .axis_style(INK.mix(0.6))
            .label_style(("sans-serif", 12))
            .x_labels(2 * CATEGORIES.len())
            .x_label_formatter(&label)
            .y_labels(6)
            .y_label_formatter(&|y: &f64| if most < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") })
            .draw()
            .unwrap();
        for (preallocation, colour) in Preallocation::ALL.into_iter().zip(COLOURS) {
            let points = points(preallocation);
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).unwrap();
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, colour.filled()))).unwrap();
        }
    }
    root.present().unwrap();
}
