//! Reads: what a page costs inside a band, and what more requests in flight gain.

use nandina_device::profile::{DeviceProfile, PageCosts, ProfileKind, ReadModel};
use serde::Serialize;

use crate::error::Result;
use crate::html::{Html, Tag};
use crate::page::{figure, legend, paragraph, section};
use crate::plot::{Axis, Plot, Series, Unit};
use crate::quantity;
use crate::table::{folded, numbers, table, words};

/// Reads of one size over the largest band, by depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ByDepth {
    pub(super) page_bytes: u32,
    /// The deepest queue that still made reads a fifth cheaper.
    pub(super) useful_depth: u32,
    pub(super) points: Vec<DepthPoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct DepthPoint {
    pub(super) depth: u32,
    pub(super) micros_per_page: f64,
    pub(super) reads_per_second: f64,
    pub(super) bytes_per_second: f64,
}

/// The measured points, without those that the stop rule filled in; with the point that ended the measurement.
pub(super) fn by_depth(model: &ReadModel) -> Vec<ByDepth> {
    let of_size = |costs: &PageCosts| {
        let measured = measured_rows(costs).filter_map(|(depth, row)| Some((depth, *row.last()?)));
        let points = measured.chain(costs.stopped_by.map(|stop| (stop.depth, stop.micros)));
        let point = |(depth, micros_per_page): (u32, f64)| DepthPoint {
            depth,
            micros_per_page,
            reads_per_second: 1e6 / micros_per_page,
            bytes_per_second: f64::from(costs.page_bytes) * 1e6 / micros_per_page,
        };
        ByDepth {
            page_bytes: costs.page_bytes,
            useful_depth: costs.useful_depth(),
            points: points.map(point).collect(),
        }
    };
    model.pages().iter().map(of_size).collect()
}

/// Depths and their costs by band, without the rows that the stop rule filled in.
fn measured_rows(costs: &PageCosts) -> impl Iterator<Item = (u32, &Vec<f64>)> {
    costs.depths.iter().copied().zip(&costs.micros).take(costs.measured_depths)
}

/// Depths of all page sizes: a depth has the same colour in every panel.
fn all_depths(model: &ReadModel) -> Vec<u32> {
    let mut depths: Vec<u32> =
        model.pages().iter().flat_map(|costs| measured_rows(costs).map(|(depth, _)| depth)).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// The bands of a page size in bytes.
fn band_bytes(costs: &PageCosts) -> Vec<f64> {
    costs.band_pages.iter().map(|pages| *pages as f64 * f64::from(costs.page_bytes)).collect()
}

pub(super) fn cost_section(profile: &DeviceProfile) -> Result<Html> {
    let depths = all_depths(&profile.reads);
    let panels: Result<Vec<Tag>> =
        profile.reads.pages().iter().map(|costs| cost_panel(profile.kind, costs, &depths)).collect();
    let names: Vec<String> = depths.iter().map(|depth| format!("depth {depth}")).collect();
    let tables = profile.reads.pages().iter().map(cost_table);
    Ok(section(
        "read-cost",
        "What reading a page costs",
        [
            paragraph(
                "The time of many random reads inside a band of the file, divided by their number. A band of one page is \
                 reading in sequence. The depth is how many requests are in flight; the lower a line, the cheaper the page.",
            ),
            legend("Colours of the depths", names.iter().enumerate().map(|(at, name)| (at, name.as_str()))),
            Tag::new("div").class("panels").with_all(panels?).into(),
            folded("Costs as tables", false, tables),
        ],
    ))
}

fn cost_panel(kind: ProfileKind, costs: &PageCosts, depths: &[u32]) -> Result<Tag> {
    let size = quantity::bytes(u64::from(costs.page_bytes));
    let bands = band_bytes(costs);
    let series: Vec<Series> = measured_rows(costs)
        .map(|(depth, row)| Series {
            name: format!("depth {depth}"),
            colour: depths.iter().position(|known| *known == depth).unwrap_or_default(),
            points: bands.iter().zip(row).map(|(band, micros)| (*band, micros * 1e-6)).collect(),
            end_label: depth.to_string(),
            ringed: None,
            is_filled: false,
        })
        .collect();
    let seconds: Vec<f64> = series.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect();
    let left_out = left_out(kind, costs);
    let plot = Plot {
        id: format!("read-cost-{}", costs.page_bytes),
        title: format!("Cost of reading a {size} page, by band and depth"),
        description: format!("{} {left_out}", extremes(costs)),
        x: Axis::logarithmic(Unit::Bytes, bands),
        y: Axis::logarithmic(Unit::Seconds, seconds),
        series,
        marks: Vec::new(),
    };
    Ok(figure(
        "panel",
        &format!("{size} pages"),
        "time per page over the size of the band",
        plot.panel()?,
        &left_out,
    ))
}

/// The panel in a sentence.
fn extremes(costs: &PageCosts) -> String {
    let of = |row: Option<(u32, &Vec<f64>)>| {
        row.and_then(|(depth, row)| Some((depth, quantity::micros(*row.last()?))))
            .unwrap_or((1, String::new()))
    };
    let ((first, alone), (last, together)) =
        (of(measured_rows(costs).next()), of(measured_rows(costs).last()));
    format!("Over the largest band a page costs {alone} at depth {first} and {together} at depth {last}.")
}

/// Why there is no line for the other depths.
fn left_out(kind: ProfileKind, costs: &PageCosts) -> String {
    let deepest = costs.useful_depth();
    match (costs.stopped_by, costs.measured_depths < costs.depths.len()) {
        (Some(stop), _) => format!(
            "Measured up to depth {deepest}: depth {} cost {} over the largest band, not a fifth less.",
            stop.depth,
            quantity::micros(stop.micros)
        ),
        (None, true) if kind == ProfileKind::Assumed => {
            format!("Assumed to gain nothing beyond depth {deepest}.")
        }
        (None, true) => format!("Measured up to depth {deepest}."),
        (None, false) => format!("Measured at all depths, up to {deepest}."),
    }
}

fn cost_table(costs: &PageCosts) -> Html {
    let heads = band_bytes(costs).into_iter().map(|bytes| numbers(format!("in {}", quantity::size(bytes))));
    let columns: Vec<_> = std::iter::once(numbers("Depth")).chain(heads).collect();
    let rows = costs.depths.iter().zip(&costs.micros).enumerate().map(|(number, (depth, row))| {
        let is_measured = number < costs.measured_depths;
        let last = costs.stopped_by.filter(|stop| stop.depth == *depth).map(|stop| stop.micros);
        let cells = row.iter().enumerate().map(|(column, micros)| match last {
            _ if is_measured => quantity::micros(*micros),
            Some(stop) if column + 1 == row.len() => quantity::micros(stop),
            _ => quantity::NOTHING.to_owned(),
        });
        std::iter::once(depth.to_string()).chain(cells).collect()
    });
    let size = quantity::bytes(u64::from(costs.page_bytes));
    table(&format!("Time per {size} page, by depth and band (–: not measured)"), &columns, rows)
}

pub(super) fn depth_section(profile: &DeviceProfile, by_depth: &[ByDepth]) -> Result<Html> {
    let bandwidth = depth_plot(
        "read-bandwidth",
        "Bandwidth of random reads, by depth and page size",
        Unit::BytesPerSecond,
        by_depth,
        |point| point.bytes_per_second,
    );
    let requests = depth_plot(
        "read-requests",
        "Random reads per second, by depth and page size",
        Unit::Number,
        by_depth,
        |point| point.reads_per_second,
    );
    let names: Vec<String> = by_depth
        .iter()
        .map(|reads| format!("{} pages", quantity::bytes(u64::from(reads.page_bytes))))
        .collect();
    let ring = "Ring: useful depth, the last one that made reads a fifth cheaper.";
    let panels = Tag::new("div")
        .class("panels")
        .with(figure("panel", "Bandwidth", "bytes per second over depth", bandwidth.panel()?, ring))
        .with(figure("panel", "Requests", "reads per second over depth", requests.panel()?, ring));
    let largest = profile.reads.pages().iter().flat_map(band_bytes).fold(0.0, f64::max);
    let reach = if profile.kind == ProfileKind::Assumed {
        "Random reads anywhere on the device.".to_owned()
    } else {
        format!("Random reads over the largest band ({}).", quantity::size(largest))
    };
    Ok(section(
        "read-depth",
        "What depth gains",
        [
            paragraph(&format!("{reach} Beyond the useful depth, requests only wait for each other.")),
            legend(
                "Colours of the page sizes",
                names.iter().enumerate().map(|(at, name)| (at, name.as_str())),
            ),
            panels.into(),
            folded("Reads by depth as a table", false, [depth_table(by_depth)]),
        ],
    ))
}

fn depth_plot(
    id: &str,
    title: &str,
    unit: Unit,
    by_depth: &[ByDepth],
    value: impl Fn(&DepthPoint) -> f64,
) -> Plot {
    let line = |(colour, reads): (usize, &ByDepth)| {
        let points: Vec<(f64, f64)> =
            reads.points.iter().map(|point| (f64::from(point.depth), value(point))).collect();
        Series {
            name: quantity::bytes(u64::from(reads.page_bytes)),
            colour,
            ringed: points.iter().copied().find(|(depth, _)| *depth == f64::from(reads.useful_depth)),
            points,
            end_label: String::new(),
            is_filled: false,
        }
    };
    let series: Vec<Series> = by_depth.iter().enumerate().map(line).collect();
    let points: Vec<(f64, f64)> = series.iter().flat_map(|line| line.points.iter().copied()).collect();
    let useful: Vec<String> = by_depth
        .iter()
        .map(|reads| format!("{} at {}", reads.useful_depth, quantity::bytes(u64::from(reads.page_bytes))))
        .collect();
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        description: format!("Useful depths by page size: {}.", useful.join(", ")),
        x: Axis::logarithmic(Unit::Depth, points.iter().map(|point| point.0)),
        y: Axis::logarithmic(unit, points.iter().map(|point| point.1)),
        series,
        marks: Vec::new(),
    }
}

fn depth_table(by_depth: &[ByDepth]) -> Html {
    let columns = ["Page", "Depth", "Time per page", "Reads/s", "Bandwidth"]
        .map(numbers)
        .into_iter()
        .chain([words("")]);
    let rows = by_depth.iter().flat_map(|reads| {
        reads.points.iter().map(|point| {
            let is_useful = point.depth == reads.useful_depth;
            vec![
                quantity::bytes(u64::from(reads.page_bytes)),
                point.depth.to_string(),
                quantity::micros(point.micros_per_page),
                quantity::plain(point.reads_per_second),
                quantity::rate(point.bytes_per_second),
                if is_useful { "useful depth" } else { "" }.to_owned(),
            ]
        })
    });
    table("Random reads over the largest band", &columns.collect::<Vec<_>>(), rows)
}
