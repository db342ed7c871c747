//! Writes: bandwidth by size and depth, and for how long the device keeps it up.

use nandina_device::profile::{DeviceProfile, SustainedWrites, WriteModel};

use crate::error::Result;
use crate::html::{Html, Tag};
use crate::page::{figure, paragraph, section};
use crate::plot::{Axis, Mark, Place, Plot, Series, Unit};
use crate::quantity;
use crate::table::{folded, numbers, table};

/// More rows than these are not printed.
const LONG_TABLE: usize = 200;

pub(super) fn grid_section(profile: &DeviceProfile) -> Html {
    let writes = &profile.writes;
    let bytes = writes.smallest_full_write_bytes();
    let full = format!(
        "Writes at random places, submitted together and awaited as a whole. Full bandwidth takes {} in flight of {} \
         each (framed): the smallest size and depth within a tenth of the most that was measured.",
        quantity::counted(u64::from(writes.useful_depth(bytes)), "write"),
        quantity::bytes(bytes),
    );
    section(
        "writes",
        "What size and depth gain when writing",
        [paragraph(&full), heat_map(writes), scale(writes)],
    )
}

/// A table is the better heat map: its numbers stay text that can be read aloud, searched and copied.
fn heat_map(writes: &WriteModel) -> Html {
    let most = writes.full_bandwidth();
    let full_bytes = writes.smallest_full_write_bytes();
    let full_depth = writes.useful_depth(full_bytes);
    let heads = writes.depths.iter().map(|depth| Tag::new("th").attribute("scope", "col").text(depth));
    let row = |(bytes, rates): (&u32, &Vec<f64>)| {
        let cells = writes.depths.iter().zip(rates).map(|(depth, rate)| {
            let cell = Tag::new("td")
                .attribute("style", format!("--share:{:.1}", 100.0 * rate / most))
                .attribute("data-bytes-per-second", rate)
                .text(quantity::plain((rate / 1e6 * 1000.0).round() / 1000.0));
            let is_full = u64::from(*bytes) == full_bytes && *depth == full_depth;
            if is_full {
                cell.class("full").attribute("title", "the least that reaches the full bandwidth")
            } else {
                cell
            }
        });
        Tag::new("tr")
            .with(Tag::new("th").attribute("scope", "row").text(quantity::bytes(u64::from(*bytes))))
            .with_all(cells)
    };
    let table = Tag::new("table")
        .class("heat")
        .attribute("data-plot", "writes")
        .with(Tag::new("caption").text("MB/s by size of a write (down) and writes in flight (across)"))
        .with(
            Tag::new("thead").with(
                Tag::new("tr").with(Tag::new("th").attribute("scope", "col").text("Size")).with_all(heads),
            ),
        )
        .with(Tag::new("tbody").with_all(writes.write_bytes.iter().zip(&writes.bytes_per_second).map(row)));
    Tag::new("div")
        .class("box")
        .attribute("role", "region")
        .attribute("tabindex", "0")
        .attribute("aria-label", "Bandwidth of writes by size and depth")
        .with(table)
        .into()
}

fn scale(writes: &WriteModel) -> Html {
    Tag::new("div")
        .class("scale")
        .attribute("aria-hidden", "true")
        .with(Tag::new("b").text("0"))
        .with(Tag::new("span").class("ramp"))
        .with(Tag::new("b").text(quantity::rate(writes.full_bandwidth())))
        .into()
}

/// Only a full calibration writes for long enough to tell.
pub(super) fn sustained_section(profile: &DeviceProfile) -> Result<Option<Html>> {
    let Some(sustained) = profile.sustained.as_ref().filter(|found| !found.bytes_per_second.is_empty())
    else {
        return Ok(None);
    };
    let plot = sustained_plot(sustained);
    let said = plot.description.clone();
    let axes = "bandwidth over bytes written, in sequence";
    let figure = figure("across", "Writing on and on", axes, plot.across()?, "");
    Ok(Some(section(
        "sustained",
        "For how long it keeps writing",
        [paragraph(&said), figure.into(), folded_table(sustained)],
    )))
}

/// Bytes written at the end of every window, and its bandwidth.
fn windows(sustained: &SustainedWrites) -> Vec<(f64, f64)> {
    let end = |number: usize| (number as f64 + 1.0) * sustained.window_bytes as f64;
    sustained.bytes_per_second.iter().enumerate().map(|(number, rate)| (end(number), *rate)).collect()
}

fn sustained_plot(sustained: &SustainedWrites) -> Plot {
    let points = windows(sustained);
    let (burst, lasting) = (sustained.burst_bytes_per_second, sustained.sustained_bytes_per_second);
    let written = quantity::size(points.last().map_or(0.0, |point| point.0));
    let mut marks = vec![Mark { name: format!("burst {}", quantity::rate(burst)), at: Place::Height(burst) }];
    let description = match sustained.gave_out_after_bytes {
        Some(bytes) => {
            let name = format!("sustained {}", quantity::rate(lasting));
            marks.push(Mark { name, at: Place::Height(lasting) });
            let name = format!("gave out after {}", quantity::bytes(bytes));
            marks.push(Mark { name, at: Place::Width(bytes as f64) });
            format!(
                "It took {} at first, gave out after {}, and went on at {} ({} of it). {written} were written.",
                quantity::rate(burst),
                quantity::bytes(bytes),
                quantity::rate(lasting),
                quantity::percent(lasting / burst),
            )
        }
        None => format!(
            "It took {} and held on for all of the {written} that were written: if there is a cache that gives out, it is \
             larger.",
            quantity::rate(burst)
        ),
    };
    Plot {
        id: "sustained-writes".to_owned(),
        title: "Bandwidth of writing in sequence over bytes written".to_owned(),
        description,
        x: Axis::linear_to(Unit::Bytes, points.last().map_or(0.0, |point| point.0)),
        y: Axis::linear(Unit::BytesPerSecond, points.iter().map(|point| point.1).chain([burst, lasting])),
        series: vec![Series {
            name: "writes".to_owned(),
            colour: 0,
            points,
            end_label: String::new(),
            ringed: None,
            is_filled: true,
        }],
        marks,
    }
}

fn folded_table(sustained: &SustainedWrites) -> Html {
    let rows: Vec<Vec<String>> = windows(sustained)
        .into_iter()
        .map(|(bytes, rate)| vec![quantity::size(bytes), quantity::rate(rate)])
        .collect();
    let caption = format!("Bandwidth of every {} in sequence", quantity::bytes(sustained.window_bytes));
    let is_long = rows.len() > LONG_TABLE;
    folded(
        "Windows as a table",
        is_long,
        [table(&caption, &[numbers("Written"), numbers("Bandwidth")], rows)],
    )
}
