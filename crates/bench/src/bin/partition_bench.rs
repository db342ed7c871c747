//! Hash partitioning by writing algorithm, partitions and memory. See [`nandina_bench::partition`].
//!
//! Writes `partitioning.json`, `partitioning.md` and two plots.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::partition::device_grid::megabytes;
use nandina_bench::partition::report::Experiment;
use nandina_bench::partition::trial::{Computing, TrialOptions};
use nandina_bench::partition::{
    Algorithm, DeviceGrid, GraceAllocation, Measured, RingShape, Setting, Study, Unit, Workbench,
};
use nandina_bench::{BenchError, Result, quantity, runner};
use nandina_device::{Device, DeviceOptions};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, SimulationOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time hash partitioning: classic, N-Hash and overlapped N-Hash.
#[derive(Debug, Parser)]
#[command(name = "partition_bench")]
struct Arguments {
    /// TPC-H scale factor of ORDERS.
    #[arg(long, default_value_t = 10.0)]
    scale: f64,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A grid of a few settings, and a coarse one of the device.
    #[arg(long)]
    quick: bool,
    /// Measure only settings that the JSON file does not have yet.
    #[arg(long)]
    only_missing: bool,
    /// Measure nothing; write tables and plots from the JSON file.
    #[arg(long)]
    report_only: bool,
    /// A trial that took longer than this many seconds is not repeated.
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
    /// Read all partitions back after each trial, outside its time, and check them.
    #[arg(long)]
    verify: bool,
    /// Sub-buffer of blocked writes, e.g. 64KB [default: the smallest I/O that reaches the device's bandwidth].
    #[arg(long, value_parser = quantity::parse_bytes)]
    sub_buffer: Option<u64>,
    /// The Grace join's fudge factor F.
    #[arg(long, default_value_t = 1.2)]
    fudge: f64,
    /// Folder for the results.
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// A drive model instead of the disk, in virtual time: iodrive, p300, vertex3, nvme, disk and so on.
    #[arg(long)]
    device: Option<String>,
    /// Folder for the input and the partitions, on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-partition-bench")]
    work: PathBuf,
}

const INPUT_BUFFER_BYTES: usize = 4 << 20;

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    for folder in [&arguments.out, &arguments.work] {
        std::fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    }
    if arguments.report_only {
        let earlier = Study::load(&arguments.out)?;
        let none = || BenchError::Setup(format!("no earlier results in '{}'", arguments.out.display()));
        return earlier.ok_or_else(none)?.write(&arguments.out);
    }
    // Rings of this size come and go; a system that partitions would keep them, too.
    let options =
        DeviceOptions { retained_buffer_bytes: 512 << 20, max_depth: 512, ..DeviceOptions::default() };
    let (device, computing) = match &arguments.device {
        None => (Device::open(&arguments.work, options)?, None),
        Some(name) => {
            let model = DriveModel::named(name).ok_or_else(|| {
                let names = DriveModel::NAMES.join(", ");
                BenchError::Setup(format!("there is no model '{name}'; there are {names}"))
            })?;
            let simulated =
                SimulationOptions { contents: Contents::Volatile, ..SimulationOptions::of(model) };
            let (device, simulation) = nandina_simulation::on_drive(simulated);
            simulation.fill_drive();
            (device, Some(Computing::of_the_paper(simulation)))
        }
    };
    let bench = Workbench::open(&device, arguments.scale, computing)?;
    let mut study = study(arguments, &device, &bench)?;
    println!("{}", study.grid.table().to_text());
    println!(
        "sustained write bandwidth {} MB/s; ORDERS {}; sub-buffers of {}\n",
        megabytes(study.grid.sustained_bytes_per_second),
        quantity::bytes(bench.input.bytes()),
        quantity::bytes(study.blocked_bytes as u64)
    );
    println!(
        "         algorithm    B  memory     ring     sub  total    CPU  read write    reqs  depth  gain bound"
    );
    for setting in settings(arguments, bench.input.bytes()) {
        if arguments.only_missing && study.has(&setting) {
            continue;
        }
        let measured = measure(arguments, &bench, &setting, &mut study)?;
        measured.iter().for_each(|measured| println!("{}", study.line(measured)));
        study.put(&setting, measured);
        study.save(&arguments.out)?;
    }
    study.write(&arguments.out)
}

/// An earlier study to continue, or a new one with the device measured.
fn study(arguments: &Arguments, device: &Device, bench: &Workbench) -> Result<Study> {
    if arguments.only_missing
        && let Some(earlier) = Study::load(&arguments.out)?
    {
        if earlier.scale == arguments.scale {
            return Ok(earlier);
        }
        let scale = earlier.scale;
        return Err(BenchError::Setup(format!(
            "the results there are at scale {scale}: choose another folder"
        )));
    }
    let (grid, _) = DeviceGrid::measure(device, arguments.quick)?;
    let quick = if arguments.quick { " --quick" } else { "" };
    Ok(Study {
        machine: Machine::this(&arguments.work),
        command: format!(
            "cargo run --release -p nandina-bench --bin partition_bench -- --scale {} --runs {}{quick}",
            arguments.scale, arguments.runs
        ),
        scale: arguments.scale,
        input_bytes: bench.input.bytes(),
        blocked_bytes: arguments
            .sub_buffer
            .map_or_else(|| grid.smallest_sufficient_bytes(), |bytes| bytes as usize),
        grid,
        fudge: arguments.fudge,
        measured: Vec::new(),
        skipped: Vec::new(),
    })
}

/// All settings, in the order in which they are measured.
fn settings(arguments: &Arguments, input_bytes: u64) -> Vec<Setting> {
    let (counts, memories, grace): (&[usize], &[u64], &[u64]) = if arguments.quick {
        (&[8, 128, 512], &[4, 32, 128], &[5, 20, 100])
    } else {
        (&[2, 8, 32, 128, 512], &[4, 8, 16, 32, 64, 128, 256, 452], &[5, 10, 20, 30, 50, 100, 200])
    };
    let mut settings = Vec::new();
    for unit in Unit::ALL {
        for &megabytes in grace {
            let memory_bytes = megabytes << 20;
            let allocation = GraceAllocation::of(input_bytes, memory_bytes, arguments.fudge);
            settings.push(Setting {
                experiment: Experiment::Grace,
                unit,
                partitions: allocation.partitions,
                memory_bytes,
                output_bytes: allocation.output_bytes,
                input_bytes: allocation.input_bytes,
            });
        }
        for &partitions in counts {
            for &megabytes in memories {
                let memory_bytes = megabytes << 20;
                settings.push(Setting {
                    experiment: Experiment::Fixed,
                    unit,
                    partitions,
                    memory_bytes,
                    output_bytes: memory_bytes as usize / partitions,
                    input_bytes: INPUT_BUFFER_BYTES,
                });
            }
        }
    }
    settings
}

/// One setting: the algorithms take turns, so that what disturbs the machine for a while disturbs all.
fn measure(
    arguments: &Arguments,
    bench: &Workbench,
    setting: &Setting,
    study: &mut Study,
) -> Result<Vec<Measured>> {
    let mut contenders: Vec<(Algorithm, Measured)> = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().filter(|it| it.writes(setting.unit)) {
        let name = algorithm.name().to_owned();
        match RingShape::of(algorithm, setting.unit, setting.output_bytes, study.blocked_bytes) {
            Some(ring) => contenders.push((
                algorithm,
                Measured { setting: *setting, algorithm: name, ring, trials: Vec::new(), speed_up: None },
            )),
            None => study.skip(format!(
                "{name}, {} writes, {} partitions in {}: {} per partition is less than its sub-buffers of 4 KB need",
                setting.unit.name(),
                setting.partitions,
                quantity::bytes(setting.memory_bytes),
                quantity::bytes(setting.output_bytes as u64),
            )),
        }
    }
    // With page-sized writes the classic algorithm has one page per partition, whatever the memory: settings
    // that differ in nothing are measured once.
    let mut reused = Vec::new();
    for (at, (_, contender)) in contenders.iter_mut().enumerate() {
        if let Some(same) = study.measured.iter().find(|earlier| contender.is_same_work(earlier)) {
            contender.trials.clone_from(&same.trials);
            reused.push(at);
        }
    }
    for round in 0..arguments.runs.max(1) {
        for (at, (algorithm, contender)) in contenders.iter_mut().enumerate() {
            let is_slow = contender.trials.iter().any(|trial| trial.elapsed_s > arguments.patience);
            if reused.contains(&at) || (round > 0 && is_slow) {
                continue;
            }
            contender.trials.push(bench.run(&TrialOptions {
                algorithm: *algorithm,
                unit: setting.unit,
                partitions: setting.partitions,
                ring: contender.ring,
                input_buffer_bytes: setting.input_bytes,
                verify: arguments.verify,
            })?);
        }
    }
    let mut measured: Vec<Measured> = contenders.into_iter().map(|(_, measured)| measured).collect();
    let classic = measured.iter().find(|measured| measured.algorithm == Algorithm::Classic.name());
    if let Some(classic) = classic.cloned() {
        for contender in &mut measured {
            contender.speed_up = contender.speed_up_over(&classic, reused.is_empty());
        }
    }
    Ok(measured)
}
