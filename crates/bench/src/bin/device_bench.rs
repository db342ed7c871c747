//! How close does the device crate come to `fio` on the same file?
//!
//! Runs both in alternation, so that what else happens on the machine hits both, and prints for each point the
//! medians and the median of the paired ratios, then the same as JSON.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin device_bench -- --directory <on the disk>
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use clap::Parser;
use futures::StreamExt;
use nandina_bench::quantity::median;
use nandina_bench::{fio, runner};
use nandina_device::{Backend, Batch, Device, DeviceOptions, File, FileClass, Request};
use serde_json::json;

const MIB: u64 = 1 << 20;
const FILE_NAME: &str = "device-bench.data";

/// Time requests beside fio.
#[derive(Debug, Parser)]
#[command(name = "device_bench")]
struct Arguments {
    /// On the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Size of the file.
    #[arg(long, default_value_t = 2)]
    gib: u64,
    /// Seconds of a run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seconds before they are counted.
    #[arg(long, default_value_t = 1.0)]
    ramp: f64,
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// One of read, write and random.
    #[arg(long)]
    only: Option<String>,
    /// Requests in flight.
    #[arg(long, value_delimiter = ',')]
    depths: Option<Vec<usize>>,
    /// JSON file for the results.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Markdown file for the results.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    SequentialRead,
    SequentialWrite,
    RandomRead,
}

impl Pattern {
    fn key(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "read",
            Pattern::SequentialWrite => "write",
            Pattern::RandomRead => "random",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "Sequential read, 1 MiB requests, MiB/s",
            Pattern::SequentialWrite => "Sequential write, 1 MiB requests, MiB/s",
            Pattern::RandomRead => "Random read, 4 KiB requests, IOPS",
        }
    }

    fn request_bytes(self) -> u64 {
        match self {
            Pattern::RandomRead => 4096,
            _ => MIB,
        }
    }

    fn depths(self) -> &'static [usize] {
        match self {
            Pattern::RandomRead => &[1, 2, 4, 8, 16, 32, 64, 128],
            _ => &[1, 2, 4, 8, 16, 32],
        }
    }

    fn fio_name(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "read",
            Pattern::SequentialWrite => "write",
            Pattern::RandomRead => "randread",
        }
    }
}

/// Requests of one pattern, one after the other.
struct Requests {
    pattern: Pattern,
    blocks: u64,
    next_block: u64,
    random: u64,
    device: Device,
    file: File,
    contents: Bytes,
}

impl Requests {
    fn new(pattern: Pattern, device: &Device, file: &File, contents: &Bytes) -> Self {
        let blocks = file.len().unwrap() / pattern.request_bytes();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let random = now.as_nanos() as u64 | 1;
        Self {
            pattern,
            blocks,
            next_block: 0,
            random,
            device: device.clone(),
            file: file.clone(),
            contents: contents.clone(),
        }
    }

    fn next(&mut self) -> (File, Request) {
        let block = match self.pattern {
            Pattern::RandomRead => {
                // xorshift
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random % self.blocks
            }
            _ => {
                self.next_block = (self.next_block + 1) % self.blocks;
                self.next_block
            }
        };
        let offset = block * self.pattern.request_bytes();
        let request = match self.pattern {
            Pattern::SequentialWrite => Request::write(offset, self.contents.clone()),
            _ => Request::read(offset, self.device.buffer(self.pattern.request_bytes() as usize)),
        };
        (self.file.clone(), request)
    }
}

/// Counts requests, from the end of the ramp on. Disks with a budget of bursts give more than they sustain for a
/// moment, and fio's start is a rest that the others do not get: what is done in the ramp counts for nobody.
struct Clock {
    started: Instant,
    ramp: f64,
    seconds: f64,
    measured_from: Option<Instant>,
    ended: u64,
}

impl Clock {
    fn start(ramp: f64, seconds: f64) -> Self {
        Self { started: Instant::now(), ramp, seconds, measured_from: None, ended: 0 }
    }

    /// Counts one request that has ended; whether to go on.
    fn tick(&mut self) -> bool {
        match self.measured_from {
            Some(from) => {
                self.ended += 1;
                from.elapsed().as_secs_f64() < self.seconds
            }
            None => {
                if self.started.elapsed().as_secs_f64() >= self.ramp {
                    self.measured_from = Some(Instant::now());
                }
                true
            }
        }
    }

    fn rate(&self) -> f64 {
        self.measured_from.map_or(f64::NAN, |from| self.ended as f64 / from.elapsed().as_secs_f64())
    }
}

/// Requests per second of one blocking thread that keeps `depth` requests in flight.
///
/// Every end is answered by one new request at once. Collecting several first and submitting them together saves system
/// calls but costs up to 17 % of the throughput at depths 8 to 64: the disk runs dry while the thread collects.
fn blocking(requests: &mut Requests, depth: usize, mut clock: Clock) -> f64 {
    if depth == 1 {
        return one_at_a_time(requests, clock);
    }
    let mut window = requests.device.batch(None);
    window.add((0..depth).map(|_| requests.next()).collect());
    while clock.tick() {
        window.next_blocking().unwrap().unwrap();
        window.add(vec![requests.next()]);
    }
    let rate = clock.rate();
    drain(window);
    rate
}

fn one_at_a_time(requests: &mut Requests, mut clock: Clock) -> f64 {
    while clock.tick() {
        match requests.next() {
            (file, Request::Read { offset, buffer }) => drop(file.read_blocking(offset, buffer).unwrap()),
            (file, Request::Write { offset, mut buffers }) => {
                file.write_blocking(offset, buffers.remove(0)).unwrap();
            }
        }
    }
    clock.rate()
}

/// The same by one async task.
fn asynchronous(requests: &mut Requests, depth: usize, mut clock: Clock) -> f64 {
    let mut window = requests.device.batch(None);
    window.add((0..depth).map(|_| requests.next()).collect());
    futures::executor::block_on(async {
        while clock.tick() {
            window.next().await.unwrap().unwrap();
            window.add(vec![requests.next()]);
        }
    });
    let rate = clock.rate();
    drain(window);
    rate
}

fn fio_job<'a>(
    pattern: Pattern,
    file: &'a Path,
    file_bytes: u64,
    depth: usize,
    arguments: &Arguments,
) -> fio::Job<'a> {
    fio::Job {
        file,
        pattern: pattern.fio_name(),
        file_bytes,
        request_bytes: pattern.request_bytes(),
        depth,
        ramp_seconds: arguments.ramp,
        seconds: arguments.seconds,
    }
}

fn drain(window: Batch) {
    window.wait().unwrap();
}

/// Random bytes, so that nothing below can take short cuts with zeros or repetition.
fn random_contents(device: &Device) -> Bytes {
    let mut buffer = device.buffer(MIB as usize);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for word in buffer.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buffer.freeze()
}

fn main() {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.directory).unwrap();
    let open = |backend| Device::open(&arguments.directory, DeviceOptions { backend, ..Default::default() });
    let ring = open(Backend::IoUring).unwrap();
    let pool = open(Backend::ThreadPool).unwrap();
    let bytes = arguments.gib << 30;

    let _ = ring.remove(FILE_NAME);
    let file = ring.create(FILE_NAME, FileClass::Other).unwrap();
    let contents = random_contents(&ring);
    file.allocate(0, bytes).unwrap();
    let mut fill = ring.batch(None);
    for offset in (0..bytes).step_by(MIB as usize) {
        fill.add(vec![(file.clone(), Request::write(offset, contents.clone()))]);
        while fill.len() > 16 {
            fill.next_blocking().unwrap().unwrap();
        }
    }
    fill.wait().unwrap();
    file.sync().unwrap();
    let pool_file = pool.open_file(FILE_NAME, FileClass::Other, nandina_device::OpenMode::ReadWrite).unwrap();
    let path = arguments.directory.join(FILE_NAME);

    let mut markdown = String::new();
    let mut json = Vec::new();
    for pattern in [Pattern::SequentialRead, Pattern::SequentialWrite, Pattern::RandomRead] {
        if arguments.only.as_deref().is_some_and(|only| only != pattern.key()) {
            continue;
        }
        let unit =
            if pattern == Pattern::RandomRead { 1.0 } else { pattern.request_bytes() as f64 / MIB as f64 };
        writeln!(markdown, "### {}\n", pattern.title()).unwrap();
        writeln!(
            markdown,
            "| depth | fio | blocking thread | ÷ fio | async task | ÷ fio | thread pool | ÷ fio |"
        )
        .unwrap();
        writeln!(markdown, "|---:|---:|---:|---:|---:|---:|---:|---:|").unwrap();
        println!(
            "{}\n{:>6} {:>10} {:>16} {:>16} {:>16}",
            pattern.title(),
            "depth",
            "fio",
            "blocking ÷",
            "async ÷",
            "pool ÷"
        );
        for &depth in arguments.depths.as_deref().unwrap_or(pattern.depths()) {
            let (ramp, seconds) = (arguments.ramp, arguments.seconds);
            let mut rates: [Vec<f64>; 4] = Default::default();
            for round in 0..arguments.rounds {
                let on_ring = &mut Requests::new(pattern, &ring, &file, &contents);
                let on_pool = &mut Requests::new(pattern, &pool, &pool_file, &contents);
                // Who runs after whom changes from round to round.
                for turn in 0..rates.len() {
                    let step =
                        if (round / rates.len()).is_multiple_of(2) { turn } else { rates.len() - 1 - turn };
                    let contestant = (round + step) % rates.len();
                    let rate = match contestant {
                        0 => fio_job(pattern, &path, bytes, depth, &arguments).run().unwrap_or(f64::NAN),
                        1 => blocking(on_ring, depth, Clock::start(ramp, seconds)),
                        2 => asynchronous(on_ring, depth, Clock::start(ramp, seconds)),
                        _ => blocking(on_pool, depth, Clock::start(ramp, seconds)),
                    };
                    rates[contestant].push(rate);
                }
            }
            let ratio =
                |of: usize| median(rates[of].iter().zip(&rates[0]).map(|(ours, fio)| ours / fio)).unwrap();
            let ratios = [ratio(1), ratio(2), ratio(3)];
            let medians: Vec<f64> =
                rates.iter().map(|rates| median(rates.iter().copied()).unwrap() * unit).collect();
            println!(
                "{depth:>6} {:>10.0} {:>10.0} {:>5.2} {:>10.0} {:>5.2} {:>10.0} {:>5.2}",
                medians[0], medians[1], ratios[0], medians[2], ratios[1], medians[3], ratios[2]
            );
            writeln!(
                markdown,
                "| {depth} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} | {:.0} | {:.2} |",
                medians[0], medians[1], ratios[0], medians[2], ratios[1], medians[3], ratios[2]
            )
            .unwrap();
            json.push(json!({
                "pattern": pattern.key(), "depth": depth, "fio": medians[0],
                "blocking": medians[1], "blocking_ratio": ratios[0],
                "async": medians[2], "async_ratio": ratios[1],
                "thread_pool": medians[3], "thread_pool_ratio": ratios[2],
            }));
        }
        markdown.push('\n');
    }
    ring.remove(FILE_NAME).unwrap();
    match &arguments.json {
        Some(path) => runner::write_json(path, &json).unwrap(),
        None => println!("{}", json!(json)),
    }
    if let Some(path) = &arguments.markdown {
        runner::write(path, &markdown).unwrap();
    }
}
