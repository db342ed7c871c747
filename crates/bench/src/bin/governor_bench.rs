//! What does the queue-depth governor do for streams that share a device?
//!
//! 1 to 16 streams read 4 KiB at random places, each as if it was alone: that is the case the thesis on QDTT names (5.2,
//! four queries that each keep 32 requests outstanding). Once more with a reader of single pages and a sequential scan
//! beside them. Three ways:
//!
//! ```text
//!   naive, ungoverned   every stream keeps 32 requests outstanding, the device takes what comes, first come first served
//!   naive, governed     the same streams; the governor lets through what is useful, and chooses whose
//!   granting            streams keep as many outstanding as they are granted, asked for at every refill
//! ```
//!
//! On drive models in virtual time, and on the disk behind a directory in real time, where the three ways take turns.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin governor_bench -- --directory <on the disk>
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::StreamExt;
use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::{quantity, runner};
use nandina_device::calibration::Calibration;
use nandina_device::profile::DeviceProfile;
use nandina_device::{
    Batch, Device, DeviceOptions, File, FileClass, FlowId, IoAccount, IoStatistics, OpenMode, Priority,
    Request,
};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, Simulation, SimulationOptions};
use serde::Serialize;

const PAGE: usize = 4 << 10;
const SCAN_BYTES: usize = 256 << 10;
/// What every stream of the seed's naive case keeps outstanding.
const WINDOW: usize = 32;
/// The same for the sequential scan.
const SCAN_WINDOW: usize = 8;
const STREAMS: [usize; 5] = [1, 2, 4, 8, 16];
/// What depth does by itself: of one stream, ungoverned.
const DEPTHS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum Way {
    Ungoverned,
    Governed,
    Granting,
}

impl Way {
    const ALL: [Way; 3] = [Way::Ungoverned, Way::Governed, Way::Granting];

    fn name(self) -> &'static str {
        match self {
            Way::Ungoverned => "naive, ungoverned",
            Way::Governed => "naive, governed",
            Way::Granting => "granting",
        }
    }
}

/// Time streams that share a device, by who lets their requests through.
#[derive(Debug, Parser)]
#[command(name = "governor_bench")]
struct Arguments {
    /// On the disk to be measured, if one is.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Models of drives.
    #[arg(long, value_delimiter = ',', default_value = "nvme,p300,disk")]
    models: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a run on the disk.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// JSON file for the results.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Markdown file for the results.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// SVG file for the plot.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// A device to measure on, for one cell.
struct Bed {
    device: Device,
    file: File,
    bytes: u64,
    /// In virtual time: who moves it, and by how much at once.
    virtual_time: Option<(Simulation, Duration)>,
    warm_up: Duration,
    span: Duration,
}

/// Requests of one query, all outstanding ones in one window.
struct Reader {
    account: Arc<IoAccount>,
    window: Batch,
    kind: Kind,
    /// Fixed, or as granted.
    depth: Option<usize>,
    random: u64,
    next_offset: u64,
    submitted: HashMap<usize, Instant>,
    latencies: Vec<f64>,
    ended: u64,
    /// At the end of the warm-up.
    before: IoStatistics,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    Point,
    Scan,
}

impl Reader {
    fn new(bed: &Bed, kind: Kind, depth: Option<usize>, seed: u64) -> Self {
        let priority = if kind == Kind::Point { Priority::Point } else { Priority::Scan };
        let account = IoAccount::of_flow(FlowId::unique(), priority);
        Self {
            window: bed.device.batch(Some(&account)),
            account,
            kind,
            depth,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_offset: 0,
            submitted: HashMap::new(),
            latencies: Vec::new(),
            ended: 0,
            before: IoStatistics::default(),
        }
    }

    fn bytes(&self) -> usize {
        if self.kind == Kind::Scan { SCAN_BYTES } else { PAGE }
    }

    fn request(&mut self, bed: &Bed) -> (File, Request) {
        let bytes = self.bytes() as u64;
        let offset = if self.kind == Kind::Scan {
            self.next_offset = (self.next_offset + bytes) % bed.bytes;
            self.next_offset
        } else {
            // xorshift
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % (bed.bytes / bytes) * bytes
        };
        (bed.file.clone(), Request::read(offset, bed.device.buffer(bytes as usize)))
    }

    fn refill(&mut self, bed: &Bed) {
        loop {
            let depth =
                self.depth.unwrap_or_else(|| bed.device.granted_depth(self.account.flow(), self.bytes()));
            if self.submitted.len() >= depth {
                return;
            }
            // The first time all at once, later one for one that has ended.
            let missing = (depth - self.submitted.len()).min(WINDOW);
            let requests: Vec<_> = (0..missing).map(|_| self.request(bed)).collect();
            let now = bed.device.now();
            let indices = self.window.add(requests);
            self.submitted.extend(indices.map(|index| (index, now)));
        }
    }

    fn ended(&mut self, index: usize, now: Instant) {
        let submitted = self.submitted.remove(&index).unwrap();
        self.latencies.push((now - submitted).as_secs_f64() * 1e6);
        self.ended += 1;
    }
}

/// Moves time on until requests have ended, and answers each end.
fn wait(bed: &Bed, readers: &mut [Reader]) {
    let Some((simulation, step)) = &bed.virtual_time else {
        // One task for all streams: whoever drives the ring serves everybody.
        return futures::executor::block_on(std::future::poll_fn(|context| {
            let mut any = false;
            // Whoever was looked after last comes first, so that nobody is always answered last.
            readers.rotate_left(1);
            for reader in readers.iter_mut() {
                while let Poll::Ready(Some(ended)) = reader.window.poll_next_unpin(context) {
                    reader.ended(ended.unwrap().0, bed.device.now());
                    reader.refill(bed);
                    any = true;
                }
            }
            if any { Poll::Ready(()) } else { Poll::Pending }
        }));
    };
    simulation.pass(*step);
    for reader in readers.iter_mut() {
        while let Some(ended) = reader.window.try_next() {
            reader.ended(ended.unwrap().0, bed.device.now());
            reader.refill(bed);
        }
    }
}

/// What one cell measured.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    streams: usize,
    way: Way,
    /// With a reader of single pages and a sequential scan beside the streams.
    mixed: bool,
    /// Of the streams together.
    iops: f64,
    /// Σ² ÷ (n · Σ of squares) of the streams' requests: 1 if all had the same.
    jain: f64,
    /// Since submission, microseconds: 50 %, 99 %, largest; of the streams.
    submitted: [f64; 3],
    /// At the device: 50 % and 99 % inside the buckets of the counters, and the exact mean.
    at_device: [f64; 3],
    mean_outstanding: f64,
    /// In virtual time, where every cell has a device of its own.
    peak_outstanding: Option<u64>,
    /// Of the reader of single pages, since submission.
    point: Option<[f64; 3]>,
    point_iops: Option<f64>,
    scan_bytes_per_second: Option<f64>,
}

fn quantiles(latencies: &mut [f64]) -> [f64; 3] {
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (latencies.len() as f64 * share).ceil() as usize;
        latencies.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    [at(0.5), at(0.99), at(1.0)]
}

/// A share of the latencies in a histogram of powers of two, linear inside a bucket.
fn quantile_of(histogram: &[u64], share: f64) -> f64 {
    let wanted = histogram.iter().sum::<u64>() as f64 * share;
    let mut seen = 0.0;
    for (bucket, &count) in histogram.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && seen + count >= wanted {
            return 2f64.powi(bucket as i32) * (1.0 + (wanted - seen) / count);
        }
        seen += count;
    }
    f64::NAN
}

fn measure(bed: &Bed, streams: usize, way: Way, mixed: bool, seed: u64) -> Cell {
    measure_windows(bed, (streams, WINDOW), way, mixed, seed)
}

fn measure_windows(bed: &Bed, (streams, window): (usize, usize), way: Way, mixed: bool, seed: u64) -> Cell {
    let depth = |fixed: usize| (way != Way::Granting).then_some(fixed);
    let mut readers: Vec<Reader> = (0..streams)
        .map(|number| Reader::new(bed, Kind::Stream, depth(window), seed * 100 + number as u64 + 1))
        .collect();
    if mixed {
        readers.push(Reader::new(bed, Kind::Scan, depth(SCAN_WINDOW), seed));
        readers.push(Reader::new(bed, Kind::Point, Some(1), seed * 100 + 77));
    }
    for reader in &mut readers {
        reader.refill(bed);
    }
    let started = bed.device.now();
    while bed.device.now() - started < bed.warm_up {
        wait(bed, &mut readers);
    }
    for reader in &mut readers {
        reader.ended = 0;
        reader.latencies.clear();
        reader.before = reader.account.statistics();
    }
    let total_before = bed.device.counters().total();
    let measured = bed.device.now();
    while bed.device.now() - measured < bed.span {
        wait(bed, &mut readers);
    }
    let seconds = (bed.device.now() - measured).as_secs_f64();
    let total = bed.device.counters().total().since(&total_before);
    let of = |kind: Kind| readers.iter().filter(move |reader| reader.kind == kind);
    let per_second = |kind: Kind| of(kind).map(|reader| reader.ended as f64).sum::<f64>() / seconds;
    let counts: Vec<f64> = of(Kind::Stream).map(|reader| reader.ended as f64).collect();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    let mut histogram = vec![0u64; nandina_device::LATENCY_BUCKETS];
    let (mut depth_nanos, mut requests) = (0.0, 0.0);
    for reader in of(Kind::Stream) {
        let since = reader.account.statistics().since(&reader.before);
        histogram.iter_mut().zip(since.latency_histogram).for_each(|(sum, count)| *sum += count);
        depth_nanos += since.depth_integral_nanos as f64;
        requests += since.read_requests as f64;
    }
    let mut latencies: Vec<f64> = of(Kind::Stream).flat_map(|reader| reader.latencies.clone()).collect();
    let mut of_point: Vec<f64> = of(Kind::Point).flat_map(|reader| reader.latencies.clone()).collect();
    Cell {
        streams,
        way,
        mixed,
        iops: per_second(Kind::Stream),
        jain: counts.iter().sum::<f64>().powi(2) / (counts.len() as f64 * squares),
        submitted: quantiles(&mut latencies),
        at_device: [
            quantile_of(&histogram, 0.5),
            quantile_of(&histogram, 0.99),
            depth_nanos / requests / 1e3,
        ],
        mean_outstanding: total.mean_queue_depth(),
        peak_outstanding: bed.virtual_time.as_ref().map(|_| total.peak_in_flight),
        point: mixed.then(|| quantiles(&mut of_point)),
        point_iops: mixed.then(|| per_second(Kind::Point)),
        scan_bytes_per_second: mixed.then(|| per_second(Kind::Scan) * SCAN_BYTES as f64),
    }
}

/// Everything about one device.
#[derive(Serialize)]
struct Report {
    device: String,
    useful_depth_4k: u32,
    useful_depth_256k: u32,
    rounds: usize,
    /// One stream alone, ungoverned: how many it keeps outstanding, and what came of that.
    depths: Vec<(usize, Cell)>,
    cells: Vec<Cell>,
}

impl Report {
    fn cell(&self, streams: usize, way: Way, mixed: bool) -> &Cell {
        let is_it = |cell: &&Cell| cell.streams == streams && cell.way == way && cell.mixed == mixed;
        self.cells.iter().find(is_it).unwrap()
    }

    /// The most requests per second of streams alone in any cell.
    fn best(&self) -> f64 {
        self.cells.iter().filter(|cell| !cell.mixed).map(|cell| cell.iops).fold(0.0, f64::max)
    }
}

const FILE_NAME: &str = ".nandina-governor-bench";

/// A file of random bytes, written in sequence.
fn fill(device: &Device, bytes: u64) -> File {
    let file = device.create(FILE_NAME, FileClass::Table).unwrap();
    let mut buffer = device.buffer(1 << 20);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for word in buffer.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let contents = buffer.freeze();
    let mut window = device.batch(None);
    for offset in (0..bytes).step_by(1 << 20) {
        window.add(vec![(file.clone(), Request::write(offset, contents.clone()))]);
        while window.len() > 8 {
            window.next_blocking().unwrap().unwrap();
        }
    }
    window.wait().unwrap();
    file.sync().unwrap();
    file
}

/// A drive model that has been written to, in the state it is in after a while of rest.
fn model_bed(name: &str, way: Way, profile: Option<&DeviceProfile>) -> (Bed, Simulation) {
    let model =
        DriveModel::named(name).unwrap_or_else(|| panic!("{name} is none of {:?}", DriveModel::NAMES));
    let (step, span) = match model {
        DriveModel::Flash(_) => (Duration::from_nanos(500), Duration::from_millis(200)),
        _ => (Duration::from_micros(50), Duration::from_secs(60)),
    };
    let options = SimulationOptions {
        contents: Contents::Forgotten,
        governed: way != Way::Ungoverned,
        ..SimulationOptions::of(model)
    };
    let (device, simulation) = nandina_simulation::on_drive(options);
    simulation.fill_drive();
    let bytes = 256 << 20;
    let file = fill(&device, bytes);
    simulation.pass(Duration::from_secs(2));
    if let Some(profile) = profile {
        device.set_profile(profile.clone());
    }
    let virtual_time = Some((simulation.clone(), step));
    (Bed { device, file, bytes, virtual_time, warm_up: span / 4, span }, simulation)
}

fn on_model(name: &str) -> Report {
    let (bed, _) = model_bed(name, Way::Governed, None);
    let profile = Calibration::quick().run(&bed.device, &mut |_| true).unwrap();
    let mut cells = Vec::new();
    for mixed in [false, true] {
        for streams in STREAMS {
            for way in Way::ALL {
                let (bed, _) = model_bed(name, way, Some(&profile));
                cells.push(measure(&bed, streams, way, mixed, streams as u64));
            }
        }
    }
    let depths = DEPTHS.map(|depth| {
        let (bed, _) = model_bed(name, Way::Ungoverned, None);
        (depth, measure_windows(&bed, (1, depth), Way::Ungoverned, false, 1))
    });
    report(format!("simulated {name}"), &profile, 1, depths.to_vec(), cells)
}

fn report(
    name: String,
    profile: &DeviceProfile,
    rounds: usize,
    depths: Vec<(usize, Cell)>,
    cells: Vec<Cell>,
) -> Report {
    Report {
        device: name,
        useful_depth_4k: profile.reads.full_depth(PAGE as u64),
        useful_depth_256k: profile.reads.full_depth(SCAN_BYTES as u64),
        rounds,
        depths,
        cells,
    }
}

fn on_disk(directory: &std::path::Path, rounds: usize, seconds: f64) -> Report {
    let open = |governed| Device::open(directory, DeviceOptions { governed, ..Default::default() }).unwrap();
    let (governed, ungoverned) = (open(true), open(false));
    let bytes = 1u64 << 30;
    let file = fill(&governed, bytes);
    let other = ungoverned.open_file(FILE_NAME, FileClass::Table, OpenMode::Read).unwrap();
    governed.remove(FILE_NAME).unwrap();
    // On a busy machine calibrations of the same disk find anything from 4 to 32 useful: whatever disturbs them hides
    // what depth gains, and nothing makes it look better. The deepest of five is nearest to the disk.
    let calibrations = (0..5).map(|_| Calibration::quick().run(&governed, &mut |_| true).unwrap());
    let profile = calibrations.max_by_key(|profile| profile.reads.full_depth(PAGE as u64)).unwrap();
    governed.set_profile(profile.clone());
    ungoverned.set_profile(profile.clone());
    let bed = |way| {
        let (device, file) = if way == Way::Ungoverned { (&ungoverned, &other) } else { (&governed, &file) };
        let span = Duration::from_secs_f64(seconds);
        Bed { device: device.clone(), file: file.clone(), bytes, virtual_time: None, warm_up: span / 4, span }
    };
    let mut cells = Vec::new();
    for mixed in [false, true] {
        for streams in STREAMS {
            let mut trials: [Vec<Cell>; 3] = Default::default();
            for round in 0..rounds {
                for turn in 0..Way::ALL.len() {
                    // Who runs after whom changes from round to round.
                    let at = (round + turn) % Way::ALL.len();
                    let cell = measure(&bed(Way::ALL[at]), streams, Way::ALL[at], mixed, round as u64 + 1);
                    rest(&bed(Way::ALL[at]).device);
                    trials[at].push(cell);
                }
            }
            cells.extend(trials.iter().map(|trials| median_cell(trials)));
        }
    }
    let mut depths: Vec<Vec<Cell>> = vec![Vec::new(); DEPTHS.len()];
    for round in 0..rounds {
        for (trials, depth) in depths.iter_mut().zip(DEPTHS) {
            let way = Way::Ungoverned;
            trials.push(measure_windows(&bed(way), (1, depth), way, false, round as u64 + 1));
            rest(&ungoverned);
        }
    }
    let depths = DEPTHS.into_iter().zip(depths.iter().map(|trials| median_cell(trials))).collect();
    report("the real disk".to_owned(), &profile, rounds, depths, cells)
}

/// Waits for what a trial left outstanding.
fn rest(device: &Device) {
    while device.counters().total().in_flight > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Every figure the median of its own trials.
fn median_cell(trials: &[Cell]) -> Cell {
    let median = |of: &dyn Fn(&Cell) -> f64| quantity::median(trials.iter().map(of)).unwrap();
    let three = |of: fn(&Cell) -> [f64; 3]| [0, 1, 2].map(|at| median(&|cell| of(cell)[at]));
    let first = &trials[0];
    Cell {
        iops: median(&|cell| cell.iops),
        jain: median(&|cell| cell.jain),
        submitted: three(|cell| cell.submitted),
        at_device: three(|cell| cell.at_device),
        mean_outstanding: median(&|cell| cell.mean_outstanding),
        point: first.point.map(|_| three(|cell| cell.point.unwrap_or_default())),
        point_iops: first.point_iops.map(|_| median(&|cell| cell.point_iops.unwrap_or_default())),
        scan_bytes_per_second: first
            .scan_bytes_per_second
            .map(|_| median(&|cell| cell.scan_bytes_per_second.unwrap_or_default())),
        ..first.clone()
    }
}

fn micros(value: f64) -> String {
    if value >= 9_999.5 { format!("{:.1} ms", value / 1e3) } else { format!("{value:.0}") }
}

fn write_tables(report: &Report) -> String {
    let mut text = String::new();
    let best = report.best();
    writeln!(
        text,
        "### {}\n\nUseful depth of 4 KiB reads: {}, of 256 KiB reads: {}.\n",
        report.device, report.useful_depth_4k, report.useful_depth_256k
    )
    .unwrap();
    let row = |of: &dyn Fn(&Cell) -> String| {
        report.depths.iter().map(|(_, cell)| of(cell)).collect::<Vec<_>>().join(" | ")
    };
    let depths: Vec<String> = report.depths.iter().map(|(depth, _)| depth.to_string()).collect();
    writeln!(
        text,
        "One stream, ungoverned, by what it keeps outstanding:\n\n| outstanding | {} |\n|---|{}\n| IOPS | {} |\n\
         | p99 at the device | {} |\n",
        depths.join(" | "),
        "---:|".repeat(depths.len()),
        row(&|cell| format!("{:.0}", cell.iops)),
        row(&|cell| micros(cell.at_device[1]))
    )
    .unwrap();
    for mixed in [false, true] {
        let heads = if mixed {
            "| streams | way | IOPS | fairness | device p50 | p99 | mean | outstanding | point p50 | p99 | largest | points/s | scan MB/s |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        } else {
            "| streams | way | IOPS | of best | fairness | device p50 | p99 | mean | submitted p50 | p99 | largest | outstanding | peak |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        };
        text.push_str(if mixed {
            "With a point reader and a scan beside the streams:\n\n"
        } else {
            "Streams alone:\n\n"
        });
        text.push_str(heads);
        for cell in report.cells.iter().filter(|cell| cell.mixed == mixed) {
            write!(text, "| {} | {} | {:.0} |", cell.streams, cell.way.name(), cell.iops).unwrap();
            if !mixed {
                write!(text, " {:.3} |", cell.iops / best).unwrap();
            }
            let [p50, p99, mean] = cell.at_device.map(micros);
            write!(text, " {:.4} | {p50} | {p99} | {mean} |", cell.jain).unwrap();
            if let (Some(point), Some(rate), Some(scan)) =
                (cell.point, cell.point_iops, cell.scan_bytes_per_second)
            {
                let [p50, p99, most] = point.map(micros);
                writeln!(
                    text,
                    " {:.1} | {p50} | {p99} | {most} | {rate:.0} | {:.0} |",
                    cell.mean_outstanding,
                    scan / 1e6
                )
                .unwrap();
            } else {
                let [p50, p99, most] = cell.submitted.map(micros);
                let peak = cell.peak_outstanding.map_or("–".to_owned(), |peak| peak.to_string());
                writeln!(text, " {p50} | {p99} | {most} | {:.1} | {peak} |", cell.mean_outstanding).unwrap();
            }
        }
        text.push('\n');
    }
    text
}

fn main() {
    let arguments = Arguments::parse();
    let mut reports = Vec::new();
    if let Some(directory) = &arguments.directory {
        std::fs::create_dir_all(directory).unwrap();
        reports.push(on_disk(directory, arguments.rounds, arguments.seconds));
        println!("{}", write_tables(&reports[0]));
    }
    for name in arguments.models.iter().filter(|name| !name.is_empty()) {
        reports.push(on_model(name));
        println!("{}", write_tables(&reports[reports.len() - 1]));
    }
    if let Some(path) = &arguments.json {
        runner::write_json(path, &reports).unwrap();
    }
    if let Some(path) = &arguments.markdown {
        runner::write(path, reports.iter().map(write_tables).collect::<String>()).unwrap();
    }
    if let Some(path) = &arguments.svg {
        let title = "Streams of random 4 KiB reads that share a device, by their number";
        write_svg(path, title, &panels(&reports), 3).unwrap();
    }
}

/// A row of three panels for every device.
fn panels(reports: &[Report]) -> Vec<Panel> {
    let panel = |report: &Report, title: &str, is_logarithmic: bool, of: &dyn Fn(usize, Way) -> f64| {
        let line = |way: Way| Series::new(way.name(), STREAMS.map(|streams| Some(of(streams, way))).to_vec());
        Panel {
            title: format!("{}: {title}", report.device),
            x_label: "streams".to_owned(),
            y_label: String::new(),
            categories: STREAMS.map(|streams| streams.to_string()).to_vec(),
            series: Way::ALL.map(line).to_vec(),
            bound: None,
            is_logarithmic,
        }
    };
    let of_device = |report: &Report| {
        let best = report.best();
        [
            panel(report, "IOPS ÷ the best", false, &|streams, way| {
                report.cell(streams, way, false).iops / best
            }),
            panel(report, "p99 at the device, µs", true, &|streams, way| {
                report.cell(streams, way, false).at_device[1]
            }),
            panel(report, "p99 of point reads beside them, µs", true, &|streams, way| {
                report.cell(streams, way, true).point.unwrap_or_default()[1]
            }),
        ]
    };
    reports.iter().flat_map(of_device).collect()
}
