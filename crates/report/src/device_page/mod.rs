//! The page of a device: what it is, what follows for I/O, and the curves behind that.
//!
//! ```text
//!   header      device, when, how, how noisy, caveats; the figures that people compare drives by
//!   sizes       what storage and spill use, a sentence each
//!   reads       cost of a page over the band, a panel per page size; what depth gains     (reads.rs)
//!   writes      size × depth; writing on and on                                           (writes.rs)
//! ```

mod reads;
mod writes;

use nandina_device::profile::{DeviceProfile, IoSizes, ProfileKind};
use serde::Serialize;

use crate::error::{ReportError, Result};
use crate::html::{Html, Tag};
use crate::page::{Page, facts, notice, paragraph, section, tile, tiles};
use crate::quantity;
use crate::table::{numbers, table, words};

/// The figures of the page: the profile, and those calculated from it.
#[derive(Debug, Serialize)]
struct DeviceData<'a> {
    profile: &'a DeviceProfile,
    sizes: Sizes,
    /// By page size, ascending.
    reads_by_depth: &'a [reads::ByDepth],
    full_write_bytes: u64,
    full_write_depth: u32,
}

#[derive(Debug, Serialize)]
struct Sizes {
    gap_bytes: usize,
    read_bytes: usize,
    read_depth: usize,
    small_read_depth: usize,
    write_bytes: usize,
    write_depth: usize,
    page_bytes: usize,
}

/// A measured device as a page. A profile whose tables are incomplete is refused; one that is too noisy to be used is
/// shown, with a warning.
pub fn device_page(profile: &DeviceProfile) -> Result<Page> {
    if !profile.reads.is_sound() || !profile.writes.is_sound() {
        return Err(ReportError::UnsoundProfile { device: profile.device.describe() });
    }
    let sizes = profile.sizes();
    let by_depth = reads::by_depth(&profile.reads);
    let full_write_bytes = profile.writes.smallest_full_write_bytes();
    let data = DeviceData {
        profile,
        sizes: Sizes {
            gap_bytes: sizes.gap_bytes,
            read_bytes: sizes.read_bytes,
            read_depth: sizes.read_depth,
            small_read_depth: sizes.small_read_depth,
            write_bytes: sizes.write_bytes,
            write_depth: sizes.write_depth,
            page_bytes: sizes.page_bytes,
        },
        reads_by_depth: &by_depth,
        full_write_bytes,
        full_write_depth: profile.writes.useful_depth(full_write_bytes),
    };
    let mut sections = vec![
        sizes_section(sizes),
        reads::cost_section(profile)?,
        reads::depth_section(profile, &by_depth)?,
        writes::grid_section(profile),
    ];
    sections.extend(writes::sustained_section(profile)?);
    let title = format!("{} – device profile", profile.device.describe());
    Page::assemble(&title, header(profile, &by_depth), sections, &data)
}

fn header(profile: &DeviceProfile, by_depth: &[reads::ByDepth]) -> Html {
    let kind = match profile.kind {
        ProfileKind::Assumed => "Assumed, not measured: figures of an NVMe drive of the middling sort",
        ProfileKind::Quick => "Quick calibration: every point measured once, few sizes, a small file",
        ProfileKind::Full => "Full calibration: every point measured three times",
    };
    let is_measured = profile.kind != ProfileKind::Assumed;
    let when = if is_measured { quantity::moment(profile.measured_at) } else { String::new() };
    let device = &profile.device;
    let path = if profile.direct { "past the page cache" } else { "through the page cache" };
    let how = if profile.backend.is_empty() { String::new() } else { format!("{}, {path}", profile.backend) };
    let took =
        format!("{}, {} written", quantity::seconds(profile.seconds), quantity::bytes(profile.bytes_written));
    let turns = device.rotational.map(|turns| if turns { "yes" } else { "no" }.to_owned());
    let facts = facts([
        ("Profile", kind.to_owned()),
        ("Measured", when),
        ("How", how),
        ("It took", if is_measured { took } else { String::new() }),
        ("Noise", noise(profile)),
        ("Size", if device.bytes > 0 { quantity::bytes(device.bytes) } else { String::new() }),
        ("Serial number", device.serial.clone()),
        ("Rotating", turns.unwrap_or_default()),
    ]);
    Tag::new("header")
        .with(Tag::new("p").class("kicker").text("Nandina device profile"))
        .with(Tag::new("h1").text(device.describe()))
        .with_all(caveats(profile).iter().map(|caveat| notice(caveat)))
        .with(headline(profile, by_depth))
        .with(facts)
        .into()
}

/// What makes the figures other than they seem.
fn caveats(profile: &DeviceProfile) -> Vec<String> {
    let mut caveats = Vec::new();
    if profile.kind == ProfileKind::Assumed {
        caveats.push(
            "This device was not measured. What follows is what Nandina assumes of an unknown one."
                .to_owned(),
        );
    }
    // What it says is about figures that were measured.
    if profile.kind != ProfileKind::Assumed
        && let Some(caveat) = profile.device.caveat()
    {
        caveats.push(format!("Caveat: {caveat}."));
    }
    if let Some(reason) = profile.nonsense() {
        caveats.push(format!("These figures cannot be relied on: {reason}."));
    }
    if profile.kind != ProfileKind::Assumed && !profile.direct {
        caveats.push("Requests went through the page cache: part of what was measured is memory.".to_owned());
    }
    if profile.cut_short {
        caveats.push(
            "Time ran out before every point was measured; the others were extended from their neighbours."
                .to_owned(),
        );
    }
    caveats
}

fn noise(profile: &DeviceProfile) -> String {
    let noise = &profile.noise;
    if noise.repeated_points == 0 {
        return String::new();
    }
    format!(
        "repeats of a point lay {} apart in the middle, {} at worst ({} repeated)",
        quantity::percent(noise.median_spread),
        quantity::percent(noise.worst_spread),
        quantity::counted(noise.repeated_points as u64, "point"),
    )
}

fn headline(profile: &DeviceProfile, by_depth: &[reads::ByDepth]) -> Html {
    let mut shown = vec![
        tile("Reads", &quantity::rate(profile.reads.full_bandwidth()), "at random, at best"),
        tile("Writes", &quantity::rate(profile.writes.full_bandwidth()), "at random places, at best"),
    ];
    if let Some(smallest) = by_depth.first() {
        let page = quantity::bytes(u64::from(smallest.page_bytes));
        let alone = smallest.points.first().map_or(f64::NAN, |point| point.micros_per_page);
        let most = smallest.points.iter().map(|point| point.reads_per_second).fold(0.0, f64::max);
        shown.push(tile(&format!("One {page} read"), &quantity::micros(alone), "alone, anywhere"));
        shown.push(tile(
            &format!("{page} reads"),
            &format!("{}/s", quantity::plain(most)),
            "at the best depth",
        ));
    }
    if let Some(sustained) = &profile.sustained {
        let rate = quantity::rate(sustained.sustained_bytes_per_second);
        let after = match sustained.gave_out_after_bytes {
            Some(bytes) => format!("after {}", quantity::bytes(bytes)),
            None => "no fall was seen".to_owned(),
        };
        shown.push(tile("Sustained writes", &rate, &after));
    }
    tiles(shown)
}

fn sizes_section(sizes: IoSizes) -> Html {
    let of = |bytes: usize| quantity::bytes(bytes as u64);
    let rows = [
        ("Read", of(sizes.read_bytes), "The smallest read that reaches the full bandwidth."),
        (
            "Reads in flight",
            sizes.read_depth.to_string(),
            "Most reads of that size that are worth having outstanding.",
        ),
        (
            "4 KiB reads in flight",
            sizes.small_read_depth.to_string(),
            "Most small reads that are worth having outstanding, as lookups by row make them.",
        ),
        ("Gap", of(sizes.gap_bytes), "Reading fewer bytes along than these costs less than another request."),
        (
            "Table page",
            of(sizes.page_bytes),
            "Pages of this size make skipping one column of sixteen pay: what is skipped is worth a request.",
        ),
        (
            "Write",
            of(sizes.write_bytes),
            "The smallest write that reaches the full bandwidth: the partitioner gathers so much per partition.",
        ),
        ("Writes in flight", sizes.write_depth.to_string(), "The fewest writes of that size that it takes."),
    ];
    let rows = rows.map(|(name, value, meaning)| vec![name.to_owned(), value, meaning.to_owned()]);
    let columns = [words("What"), numbers("Chosen"), words("Meaning")];
    section(
        "sizes",
        "What follows from it",
        [
            paragraph("Nandina reads and writes tables and temporary files on this device in these sizes."),
            table("Sizes and depths that follow from the curves below", &columns, rows),
        ],
    )
}
