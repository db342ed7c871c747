//! Measuring a device on request, and showing its profile: `CALIBRATE` and `SHOW DEVICE`.
//!
//! ```sql
//! CALIBRATE;                 -- seconds, at most 256 MiB written: the device that temporary files go to
//! CALIBRATE FULL '/data';    -- a minute or more and gigabytes: the device behind a folder
//! SHOW DEVICE;               SHOW DEVICE '/data';
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nandina_device::calibration::{Calibration, Estimate, Progress as CalibrationProgress};
use nandina_device::profile::{DeviceProfile, ProfileKind};
use nandina_device::{Device, DeviceOptions};

use crate::byte_size;
use crate::engine::device_options;
use crate::error::{Error, Result};
use crate::media;
use crate::options::{Options, Settings};
use crate::profile::duration;

/// A statement about a device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Calibrate { full: bool, directory: Option<String> },
    Show { directory: Option<String> },
}

/// Recognises `CALIBRATE [FULL] ['folder']` and `SHOW DEVICE ['folder']`.
pub(crate) fn parse(text: &str) -> Result<Option<Statement>> {
    let mut rest = text.trim();
    let mut word = |expected: &str| {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let found = rest.get(..end).is_some_and(|word| word.eq_ignore_ascii_case(expected));
        if found {
            rest = rest.get(end..).unwrap_or_default().trim_start();
        }
        found
    };
    let is_show = word("SHOW");
    let is_about_device = if is_show { word("DEVICE") } else { word("CALIBRATE") };
    if !is_about_device {
        return Ok(None);
    }
    let full = !is_show && word("FULL");
    let quoted =
        rest.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).map(|text| text.replace("''", "'"));
    if quoted.is_none() && !rest.is_empty() {
        let form = if is_show { "SHOW DEVICE ['folder']" } else { "CALIBRATE [FULL] ['folder']" };
        return Err(Error::Syntax { message: format!("'{rest}' is not understood here; write {form}") });
    }
    let directory = quoted.filter(|text| !text.is_empty());
    Ok(Some(if is_show { Statement::Show { directory } } else { Statement::Calibrate { full, directory } }))
}

/// What a calibration found.
#[derive(Debug, Clone)]
pub struct Calibrated {
    pub profile: DeviceProfile,
    /// Where the profile is kept, for the next session.
    pub kept_in: PathBuf,
}

fn calibration(full: bool) -> Calibration {
    if full { Calibration::full() } else { Calibration::quick() }
}

/// As deep as a profile reaches, which is deeper than sessions go.
const DEPTH: usize = 512;

fn open(directory: &Path, options: &Options) -> Result<Device> {
    let settings = Settings::resolve(options, None)?;
    let options = DeviceOptions { max_depth: DEPTH, ..device_options(&settings) };
    settings.open_device.open(directory, &options).map_err(|error| failed(&error))
}

fn failed(error: &nandina_device::Error) -> Error {
    Error::Resources { message: error.to_string() }
}

/// What calibrating the device behind a folder is going to take, at most.
pub fn calibration_estimate(directory: &Path, options: &Options, full: bool) -> Result<Estimate> {
    calibration(full).estimate(&open(directory, options)?).map_err(|error| failed(&error))
}

/// Measures the device behind a folder and keeps the profile for later sessions. Of the options those count that say
/// how devices are reached. `progress` says whether to go on.
pub fn calibrate(
    directory: &Path,
    options: &Options,
    full: bool,
    progress: &mut dyn FnMut(CalibrationProgress) -> bool,
) -> Result<Calibrated> {
    calibrate_with(&open(directory, options)?, None, full, progress)
}

/// The same for a device that is open, on which the profile takes effect.
pub(crate) fn calibrate_with(
    device: &Device,
    database: Option<&Path>,
    full: bool,
    progress: &mut dyn FnMut(CalibrationProgress) -> bool,
) -> Result<Calibrated> {
    let profile = calibration(full).run(device, progress).map_err(|error| failed(&error))?;
    let kept_in = media::profile_store(database).save(&profile).map_err(|error| failed(&error))?;
    Ok(Calibrated { profile, kept_in })
}

/// The profile of a device, as a page.
pub fn device_page(profile: &DeviceProfile) -> Result<nandina_report::Page> {
    nandina_report::device_page(profile).map_err(|error| Error::Query { message: error.to_string() })
}

/// A profile in words: what, and how much.
pub fn device_facts(profile: &DeviceProfile) -> Vec<(String, String)> {
    let sizes = profile.sizes();
    let bytes = |bytes: usize| byte_size::format(bytes as u64);
    let rate = |rate: f64| format!("{}/s", byte_size::format(rate as u64));
    let micros = |micros: f64| duration(Duration::from_secs_f64(micros / 1e6));
    let reads = &profile.reads;
    let small_depth = reads.full_depth(4096);
    let mut facts: Vec<(&str, String)> = vec![("device", profile.device.describe())];
    let mut measured = match profile.kind {
        ProfileKind::Assumed => {
            "nothing: these are figures of an NVMe drive; CALIBRATE measures yours".to_owned()
        }
        ProfileKind::Quick | ProfileKind::Full => {
            let kind = if profile.kind == ProfileKind::Full { "full" } else { "quick" };
            let age = SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(0, |now| now.as_secs().saturating_sub(profile.measured_at));
            format!(
                "{kind}, {} ago, in {}, {} written",
                duration(Duration::from_secs(age)),
                duration(Duration::from_secs_f64(profile.seconds)),
                byte_size::format(profile.bytes_written)
            )
        }
    };
    if profile.cut_short {
        measured.push_str("; some points extended from their neighbours, as time was short");
    }
    facts.push(("measured", measured));
    facts.extend(profile.device.caveat().map(|caveat| ("note", caveat.to_owned())));
    if !profile.direct {
        facts.push((
            "note",
            "the file system has no direct I/O: reads may come from the page cache".to_owned(),
        ));
    }
    facts.push(("read 4 KiB, one at a time", micros(reads.dtt_micros(4096, u64::MAX))));
    facts.push((
        "read 4 KiB, deep",
        format!("{:.0} a second at depth {small_depth}", 1e6 / reads.best_micros(4096)),
    ));
    facts.push((
        "read bandwidth",
        format!(
            "{} in sequence, {} at random",
            rate(reads.sequential_bandwidth()),
            rate(reads.full_bandwidth())
        ),
    ));
    facts.push(("write bandwidth", rate(profile.writes.full_bandwidth())));
    if let Some(sustained) = &profile.sustained {
        facts.push((
            "sustained writes",
            match sustained.gave_out_after_bytes {
                Some(after) => format!(
                    "{}, then {} from {} on",
                    rate(sustained.burst_bytes_per_second),
                    rate(sustained.sustained_bytes_per_second),
                    byte_size::format(after)
                ),
                None => {
                    format!("{} as long as it was written to", rate(sustained.sustained_bytes_per_second))
                }
            },
        ));
    }
    if let Some(costs) = &profile.discards {
        let told = if costs.told { "the drive is told" } else { "the drive is not told" };
        facts.push(("giving 1 MiB back", format!("{}; {told}", micros(costs.micros_per_piece))));
    }
    if profile.noise.repeated_points > 0 {
        facts.push((
            "noise",
            format!(
                "{:.0} % between repeats (median), {:.0} % at worst",
                profile.noise.median_spread * 100.0,
                profile.noise.worst_spread * 100.0
            ),
        ));
    }
    facts.extend([
        ("reads of scans", format!("{}, {} at once", bytes(sizes.read_bytes), sizes.read_depth)),
        ("gap that is read too", bytes(sizes.gap_bytes)),
        ("small reads at once", sizes.small_read_depth.to_string()),
        ("writes when spilling", format!("{}, {} at once", bytes(sizes.write_bytes), sizes.write_depth)),
        ("pages of new tables", bytes(sizes.page_bytes)),
    ]);
    facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use nandina_device::profile::DeviceIdentity;

    #[test]
    fn statements_are_recognised() {
        let calibrate = |full, directory: Option<&str>| {
            Some(Statement::Calibrate { full, directory: directory.map(str::to_owned) })
        };
        assert_eq!(parse("calibrate").unwrap(), calibrate(false, None));
        assert_eq!(parse("CALIBRATE  full").unwrap(), calibrate(true, None));
        assert_eq!(parse("CALIBRATE FULL '/a b/it''s'").unwrap(), calibrate(true, Some("/a b/it's")));
        assert_eq!(parse("Show Device").unwrap(), Some(Statement::Show { directory: None }));
        assert_eq!(
            parse("SHOW DEVICE '/x'").unwrap(),
            Some(Statement::Show { directory: Some("/x".to_owned()) })
        );
        assert_eq!(parse("SHOW TABLES").unwrap(), None);
        assert_eq!(parse("SELECT 1").unwrap(), None);
        assert_eq!(parse("CALIBRATED").unwrap(), None);
        assert!(parse("CALIBRATE fully").unwrap_err().to_string().contains("CALIBRATE [FULL] ['folder']"));
        assert!(parse("SHOW DEVICE /x").unwrap_err().to_string().contains("SHOW DEVICE ['folder']"));
    }

    #[test]
    fn an_assumed_device_says_so() {
        let facts = device_facts(&DeviceProfile::assumed(DeviceIdentity::default()));
        let of = |name: &str| facts.iter().find(|(what, _)| what == name).map(|(_, value)| value.as_str());
        assert!(of("measured").unwrap().contains("CALIBRATE measures yours"));
        assert_eq!(of("pages of new tables"), Some("256 KiB"));
    }
}
