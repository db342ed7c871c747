//! `EXPLAIN ANALYZE (REPORT 'out.html') query`: what a query did, as a page.
//!
//! While the query runs, a thread looks at the counters of the devices, at the memory governor and at temporary space
//! a few dozen times a second. What operators did is read from the executed plan, as for the text.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use datafusion::execution::memory_pool::MemoryPool as _;
use nandina_exec::memory::MemoryGovernor;
use nandina_report::{PlanNode, QueryReport, Sample, query_page};
use nandina_spill::TempSpace;

use crate::error::{Error, Result};
use crate::files::names;
use crate::media::Media;
use crate::profile::{Operator, Profile};

/// Time between looks at first; it doubles whenever there are too many of them for a plot.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);
const MOST_SAMPLES: usize = 600;

/// A page that a statement asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportPage {
    pub query: String,
    pub path: PathBuf,
}

impl ReportPage {
    /// The statement that is to be executed for it.
    pub(crate) fn statement(&self) -> String {
        format!("EXPLAIN ANALYZE {}", self.query)
    }
}

/// The page that a statement asks for, if it does.
pub(crate) fn parse(text: &str) -> Result<Option<ReportPage>> {
    let Some(rest) = after_words(text, &["EXPLAIN", "ANALYZE"]) else { return Ok(None) };
    let Some(options) = rest.trim_start().strip_prefix('(') else { return Ok(None) };
    let Some(value) = after_words(options, &["REPORT"]) else { return Ok(None) };
    let not_understood =
        || Error::Syntax { message: "write EXPLAIN ANALYZE (REPORT 'out.html') SELECT …".to_owned() };
    let value = value.trim_start().strip_prefix('\'').ok_or_else(not_understood)?;
    let (name, rest) = value.split_once('\'').ok_or_else(not_understood)?;
    let query = rest.trim_start().strip_prefix(')').ok_or_else(not_understood)?;
    if name.is_empty() || query.trim().is_empty() {
        return Err(not_understood());
    }
    let path = names::absolute_path(name)?;
    if path.is_dir() {
        return Err(Error::file(name, "is a folder; the report is a file such as 'out.html'"));
    }
    Ok(Some(ReportPage { query: query.trim().to_owned(), path }))
}

/// What comes after words, whatever their case.
fn after_words<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    let mut rest = text;
    for word in words {
        rest = rest.trim_start();
        let found = rest.get(..word.len())?;
        let behind = rest.get(word.len()..)?;
        let is_whole = behind.chars().next().is_none_or(|next| !next.is_alphanumeric() && next != '_');
        if !found.eq_ignore_ascii_case(word) || !is_whole {
            return None;
        }
        rest = behind;
    }
    Some(rest)
}

/// What is sampled while a query runs.
pub(crate) struct Watched {
    pub page: ReportPage,
    pub media: Arc<Media>,
    pub governor: Arc<MemoryGovernor>,
    pub temp_space: Arc<TempSpace>,
    pub memory_limit_bytes: u64,
}

impl Watched {
    /// Of all devices together, also those that the query was the first to use.
    fn traffic(&self) -> Traffic {
        let figures = self.media.devices().into_iter().map(|device| device.counters().total());
        figures.fold(Traffic::default(), |sum, figures| Traffic {
            read: sum.read + figures.bytes_read,
            written: sum.written + figures.bytes_written,
            depth_nanos: sum.depth_nanos + figures.depth_integral_nanos,
        })
    }

    fn device(&self) -> String {
        self.temp_space.device().identity().describe()
    }
}

/// Looks at a running query until it is asked for what it saw.
pub(crate) struct Watch {
    watched: Arc<Watched>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<Sample>>>,
    started: Instant,
    started_at: u64,
}

impl Watch {
    pub(crate) fn start(watched: Watched) -> Self {
        let (stop, stopped) = channel();
        let started = Instant::now();
        let watched = Arc::new(watched);
        let look = {
            let watched = Arc::clone(&watched);
            move || look(&watched, started, &stopped)
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
        let started_at = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        Watch { watched, stop: Some(stop), thread: thread.ok(), started, started_at }
    }

    /// The query is over: writes what it did. Returns the names of the page and of its data.
    pub(crate) fn end(mut self, profile: &Profile) -> Result<[PathBuf; 2]> {
        let elapsed_seconds = self.started.elapsed().as_secs_f64();
        drop(self.stop.take());
        let timeline = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let report = QueryReport {
            sql: self.watched.page.query.clone(),
            started_at: self.started_at,
            elapsed_seconds,
            memory_limit_bytes: self.watched.memory_limit_bytes,
            peak_memory_bytes: timeline.iter().map(|sample| sample.memory_bytes).max().unwrap_or(0),
            result_rows: profile.root.rows,
            plan: node(&profile.root),
            timeline,
            device: Some(self.watched.device()),
            notes: vec![
                "Bandwidth and queue depth are those of the devices, with whatever else used them; memory is what \
                 operators and scans have reserved."
                    .to_owned(),
            ],
        };
        let page = query_page(&report).map_err(|error| Error::Query { message: error.to_string() })?;
        write_page(&page, &self.watched.page.path)
    }
}

/// Takes samples until the sender of the stop signal is gone.
fn look(watched: &Watched, started: Instant, stopped: &Receiver<()>) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut interval = FIRST_INTERVAL;
    let mut before = watched.traffic();
    let mut at = started;
    loop {
        let is_over = stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
        let (now, traffic) = (Instant::now(), watched.traffic());
        samples.push(traffic.sample(&before, now - at, now - started, watched));
        (before, at) = (traffic, now);
        if is_over {
            return samples;
        }
        if samples.len() >= MOST_SAMPLES {
            samples = halved(&samples);
            interval *= 2;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Its thread ends by itself.
        drop(self.stop.take());
    }
}

/// Counters of all devices together.
#[derive(Default)]
struct Traffic {
    read: u64,
    written: u64,
    depth_nanos: u128,
}

impl Traffic {
    fn sample(&self, before: &Self, interval: Duration, since_start: Duration, watched: &Watched) -> Sample {
        let seconds = interval.as_secs_f64().max(1e-6);
        Sample {
            seconds: since_start.as_secs_f64(),
            read_bytes_per_second: self.read.saturating_sub(before.read) as f64 / seconds,
            write_bytes_per_second: self.written.saturating_sub(before.written) as f64 / seconds,
            queue_depth: self.depth_nanos.saturating_sub(before.depth_nanos) as f64 / (seconds * 1e9),
            memory_bytes: watched.governor.reserved() as u64,
            temp_bytes: watched.temp_space.used_bytes(),
        }
    }
}

/// Every two samples as one: means of rates, the larger of amounts.
fn halved(samples: &[Sample]) -> Vec<Sample> {
    let join = |pair: &[Sample]| match pair {
        [first, second] => Sample {
            seconds: second.seconds,
            read_bytes_per_second: (first.read_bytes_per_second + second.read_bytes_per_second) / 2.0,
            write_bytes_per_second: (first.write_bytes_per_second + second.write_bytes_per_second) / 2.0,
            queue_depth: (first.queue_depth + second.queue_depth) / 2.0,
            memory_bytes: first.memory_bytes.max(second.memory_bytes),
            temp_bytes: first.temp_bytes.max(second.temp_bytes),
        },
        rest => rest.first().copied().unwrap_or_default(),
    };
    samples.chunks(2).map(join).collect()
}

fn node(operator: &Operator) -> PlanNode {
    let (name, details) = operator.description.split_once(':').unwrap_or((&operator.description, ""));
    PlanNode {
        name: name.trim().to_owned(),
        details: details.trim().to_owned(),
        rows: operator.rows,
        compute_seconds: operator.compute.as_secs_f64(),
        wait_seconds: (operator.wait + operator.spill).as_secs_f64(),
        peak_memory_bytes: operator.peak_memory_bytes,
        spilled_bytes: operator.spilled_bytes,
        spill_read_bytes: operator.spill_read_bytes,
        spilled_page_bytes: operator.spilled_page_bytes,
        scanned_bytes: operator.scanned_bytes,
        spilled_partitions: operator.spilled_partitions,
        mean_queue_depth: operator.mean_queue_depth,
        inputs: operator.inputs.iter().map(node).collect(),
    }
}

/// Writes a page to `path`, and its JSON to the file of the same name that ends in `.json`.
pub fn write_page(page: &nandina_report::Page, path: &Path) -> Result<[PathBuf; 2]> {
    let beside = path.with_extension("json");
    if beside == path {
        return Err(Error::file(
            path.display().to_string(),
            "is the name of the data; call the page '….html'",
        ));
    }
    for (file, text) in [(path, &page.html), (&beside, &page.json)] {
        std::fs::write(file, text)
            .map_err(|error| Error::file(file.display().to_string(), error.to_string()))?;
    }
    Ok([path.to_path_buf(), beside])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_asked_for_in_the_statement() {
        let parsed = parse("explain  analyze (report 'a b.html')  SELECT 1").unwrap().unwrap();
        assert_eq!(parsed.statement(), "EXPLAIN ANALYZE SELECT 1");
        assert!(parsed.path.ends_with("a b.html"));
        for other in
            ["EXPLAIN ANALYZE SELECT (1)", "EXPLAIN ANALYZE (SELECT 1)", "EXPLAIN SELECT 1", "SELECT 1", ""]
        {
            assert_eq!(parse(other).unwrap(), None, "{other}");
        }
        for wrong in [
            "EXPLAIN ANALYZE (REPORT x) SELECT 1",
            "EXPLAIN ANALYZE (REPORT 'x.html')",
            "EXPLAIN ANALYZE (REPORT '') SELECT 1",
        ] {
            assert!(parse(wrong).unwrap_err().to_string().contains("REPORT 'out.html'"), "{wrong}");
        }
    }

    #[test]
    fn halving_keeps_means_and_peaks() {
        let sample = |seconds: f64, rate: f64, memory_bytes: u64| Sample {
            seconds,
            read_bytes_per_second: rate,
            memory_bytes,
            ..Sample::default()
        };
        let halved = halved(&[sample(1.0, 10.0, 7), sample(2.0, 30.0, 5), sample(3.0, 8.0, 1)]);
        assert_eq!(halved, [sample(2.0, 20.0, 7), sample(3.0, 8.0, 1)]);
    }
}
