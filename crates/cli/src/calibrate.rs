//! `nandina calibrate`: measures the device behind a folder, and shows what it found.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nandina::{
    Calibrated, Options, byte_size, calibrate, calibration_estimate, device_facts, format_duration,
};

use crate::arguments::CalibrateArguments;
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::say::{note, say};

pub async fn run(arguments: &CalibrateArguments, interrupt: Interrupt) -> Result<()> {
    let directory = arguments.directory.clone();
    let options = engine::options(&arguments.engine)?;
    let shows_progress = Progress::is_possible() && !arguments.engine.no_progress;
    if arguments.full {
        let estimate = calibration_estimate(&directory, &options, true)?;
        note!(
            "measuring {} takes about {} and writes up to {} (a file of {} while it lasts)",
            directory.display(),
            format_duration(Duration::from_secs_f64(estimate.seconds)),
            byte_size::format(estimate.bytes_written),
            byte_size::format(estimate.scratch_bytes)
        );
    }
    let found = measure(directory, options, arguments.full, shows_progress, &interrupt).await?;
    if let Some(page) = &arguments.report {
        let drawn = nandina::device_page(&found.profile)?;
        let [page, data] = nandina::write_page(&drawn, page)?;
        note!("report: {} ({} holds its figures)", page.display(), data.display());
    }
    if arguments.json {
        let json = serde_json::to_string_pretty(&found.profile)
            .map_err(|error| Failure::io("writing JSON", error.into()))?;
        say!("{json}")?;
    } else {
        let facts = device_facts(&found.profile);
        let width = facts.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        for (what, value) in &facts {
            say!("{what:<width$}  {value}")?;
        }
        say!("{:<width$}  {}", "kept in", found.kept_in.display())?;
    }
    Ok(())
}

/// Measures on a thread of its own, with a bar, until done or cancelled.
async fn measure(
    directory: PathBuf,
    options: Options,
    full: bool,
    shows_progress: bool,
    interrupt: &Interrupt,
) -> Result<Calibrated> {
    let bar = Progress::share(shows_progress);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, shown) = (Arc::clone(&stop), bar.clone());
    let mut work = tokio::task::spawn_blocking(move || {
        calibrate(&directory, &options, full, &mut |progress| {
            Progress::set_share(&shown, progress.share, progress.stage);
            !stopped.load(Ordering::Relaxed)
        })
    });
    let outcome = tokio::select! {
        biased;
        () = interrupt.pressed() => {
            stop.store(true, Ordering::Relaxed);
            // Its scratch file is gone when it returns.
            let _ = (&mut work).await;
            Err(Failure::Cancelled)
        }
        outcome = &mut work => match outcome {
            Ok(outcome) => outcome.map_err(Failure::from),
            Err(_) => Err(Failure::Query(nandina::Error::Query { message: "the measurement stopped".to_owned() })),
        },
    };
    bar.finish_and_clear();
    outcome
}
