//! Join time by what is done with freed space: a panel per drive, a line per preallocation.

use std::path::Path;

use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_spill::{Discard, Preallocation};

use crate::Measured;
use crate::simulated::{Combination, Management};

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
    let panel = |drive: &&str| {
        let seconds = |wanted: Combination| {
            let is_it = |it: &&Measured| it.setting.drive == *drive && it.combination == wanted;
            measured.iter().find(is_it).expect("all combinations were run").outcome.seconds
        };
        let line = |preallocation: Preallocation| {
            let places = 0..CATEGORIES.len();
            let values = places.map(|place| combination(preallocation, place).map(seconds));
            Series::new(preallocation.name(), values.collect())
        };
        Panel {
            title: (*drive).to_owned(),
            x_label: String::new(),
            y_label: "seconds".to_owned(),
            categories: CATEGORIES.map(str::to_owned).to_vec(),
            series: Preallocation::ALL.map(line).to_vec(),
            bound: None,
            is_logarithmic: false,
        }
    };
    let title =
        "Seconds of three joins at once, by preallocation and discard; drives 80 % full of other data";
    let panels: Vec<Panel> = drives.iter().map(panel).collect();
    write_svg(path, title, &panels, 2).unwrap();
}
