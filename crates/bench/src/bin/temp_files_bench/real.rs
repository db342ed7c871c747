//! The joins on a real directory. Combinations take turns, so that what else happens to the disk happens to all.

use std::fs;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use nandina_bench::quantity::median;
use nandina_bench::random::Random;
use nandina_device::{Device, DeviceOptions, File, FileClass, Request};
use nandina_spill::{Discard, Preallocation, TempOptions, TempSpace};

use crate::simulated::Management;
use crate::workload::{Space, Workload};

const MIB: usize = 1 << 20;
const INPUT_BYTES: usize = 512 * MIB;
/// Joins after each other in one space, as the statements of a session.
const STATEMENTS: u64 = 3;

/// One run, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Until the last join has its result.
    pub joins: f64,
    /// Closing the space after that.
    pub close: f64,
    /// What the system says of the disk: commands, bytes, and the time they were under way.
    pub discards: Discards,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Discards {
    pub commands: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// The runs of one combination.
pub struct Runs {
    pub management: Management,
    pub runs: Vec<Run>,
}

pub fn run(directory: &Path, workload: &Workload, rounds: usize) -> (Vec<Runs>, String) {
    fs::create_dir_all(directory).unwrap();
    let device = Device::open(directory, DeviceOptions::default()).unwrap();
    let contents = noise(&device);
    let input = input(&device, &contents);
    let paper = [false, true].map(|fallocate| Management::FilePerPartition { fallocate });
    let ours = Preallocation::ALL
        .into_iter()
        .flat_map(|preallocation| Discard::ALL.map(|discard| Management::Extents { preallocation, discard }));
    let runs = Vec::new;
    let mut all: Vec<Runs> =
        paper.into_iter().chain(ours).map(|management| Runs { management, runs: runs() }).collect();
    for round in 0..=rounds {
        for of_one in &mut all {
            let run = one(&device, of_one, workload, &input, &contents, round as u64);
            eprintln!("{:?} {run:?}", of_one.management);
            // The first round warms up.
            if round > 0 {
                of_one.runs.push(run);
            }
        }
    }
    device.remove("input").unwrap();
    (all, device.identity().describe())
}

fn one(device: &Device, of: &Runs, workload: &Workload, input: &File, contents: &Bytes, seed: u64) -> Run {
    let before = discards(device);
    let space = match of.management {
        Management::FilePerPartition { fallocate } => {
            Space::FilePerPartition { device: device.clone(), fallocate }
        }
        Management::Extents { preallocation, discard } => {
            let options = TempOptions { preallocation, discard, ..TempOptions::default() };
            Space::Extents(TempSpace::open(device.clone(), options).unwrap())
        }
    };
    let started = Instant::now();
    for statement in 0..STATEMENTS {
        workload.run(&space, input, contents, seed << 8 | statement);
    }
    let joins = started.elapsed().as_secs_f64();
    let started = Instant::now();
    drop(space);
    let close = started.elapsed().as_secs_f64();
    let after = discards(device);
    let discards = Discards {
        commands: after.commands - before.commands,
        bytes: after.bytes - before.bytes,
        seconds: after.seconds - before.seconds,
    };
    Run { joins, close, discards }
}

/// Bytes that no disk makes smaller.
fn noise(device: &Device) -> Bytes {
    let mut buffer = device.buffer(MIB);
    let mut random = Random::new(1);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.number().to_le_bytes());
    }
    buffer.freeze()
}

fn input(device: &Device, contents: &Bytes) -> File {
    let file = device.create("input", FileClass::Other).unwrap();
    for offset in (0..INPUT_BYTES).step_by(MIB) {
        file.submit(vec![Request::write(offset as u64, contents.clone())]).wait().unwrap();
    }
    file
}

/// Discards of the disk since the system started, by anybody; zeros where it does not say.
fn discards(device: &Device) -> Discards {
    let path = Path::new("/sys/block").join(device.identity().name).join("stat");
    let text = fs::read_to_string(path).unwrap_or_default();
    let figure = |at: usize| text.split_whitespace().nth(at).and_then(|word| word.parse::<u64>().ok());
    let figure = |at| figure(at).unwrap_or(0);
    Discards { commands: figure(11), bytes: figure(13) * 512, seconds: figure(14) as f64 / 1e3 }
}

/// What giving space back costs: files of one size, whose space is given back in pieces of one size.
pub struct GivingBack {
    pub piece_bytes: u64,
    pub seconds_per_gb: f64,
}

pub fn giving_back(directory: &Path, rounds: usize) -> (Vec<GivingBack>, Writing) {
    const FILE_BYTES: u64 = 512 << 20;
    let device = Device::open(directory, DeviceOptions::default()).unwrap();
    let contents = noise(&device);
    let write = |file: &File| {
        let started = Instant::now();
        for group in 0..FILE_BYTES / (16 * MIB as u64) {
            let offsets = (0..16).map(|at| (group * 16 + at) * MIB as u64);
            file.submit(offsets.map(|at| Request::write(at, contents.clone())).collect()).wait().unwrap();
        }
        started.elapsed().as_secs_f64()
    };
    let gb = FILE_BYTES as f64 / 1e9;
    let mut writing = [const { Vec::new() }; 3];
    let pieces = [64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20, FILE_BYTES];
    let mut seconds = pieces.map(|_| Vec::new());
    for _ in 0..rounds {
        for (&piece, seconds) in pieces.iter().zip(&mut seconds) {
            let file = device.create("file", FileClass::Temp).unwrap();
            writing[0].push(write(&file) / gb);
            file.truncate(0).unwrap();
            file.allocate(0, FILE_BYTES).unwrap();
            writing[1].push(write(&file) / gb);
            writing[2].push(write(&file) / gb);
            let started = Instant::now();
            // Every other one first: neighbours of a piece are in use when it goes, as in a join.
            let count = FILE_BYTES / piece;
            for at in (0..count).step_by(2).chain((1..count).step_by(2)) {
                file.punch_hole(at * piece, piece).unwrap();
            }
            seconds.push(started.elapsed().as_secs_f64() / gb);
            drop(file);
            device.remove("file").unwrap();
        }
    }
    let figures = pieces.into_iter().zip(seconds);
    let figures = figures.map(|(piece_bytes, seconds)| GivingBack {
        piece_bytes,
        seconds_per_gb: median(seconds).unwrap_or_default(),
    });
    let [new, reserved, again] = writing.map(|seconds| median(seconds).unwrap_or_default());
    (figures.collect(), Writing { new, reserved, again })
}

/// Seconds per GB of writing 1 MiB at a time, 16 at once.
pub struct Writing {
    /// Where there are no blocks.
    pub new: f64,
    /// Where blocks are reserved that were never written.
    pub reserved: f64,
    /// Where something was written before.
    pub again: f64,
}
