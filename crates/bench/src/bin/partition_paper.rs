//! The partitioning experiments of *Optimizing Hash Partitioning for Solid State Drives* (Shin, Roh, Jung, Park, SAC
//! 2016) again, on models of its three drives in virtual time: Figure 4 (fixed partitions), Table 1 (Grace join), and
//! Figure 6 (page-sized writes), each beside what the paper has.
//!
//! Writes `partitioning-paper.md`. The models are fitted to single writes and reads of the paper's Table 1 and to its
//! bandwidths, not to any time of a partitioning.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a program that is watched")]

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Parser;
use nandina_bench::partition::trial::{Computing, TrialOptions};
use nandina_bench::partition::{Algorithm, GraceAllocation, RingShape, Trial, Unit, Workbench};
use nandina_bench::runner;
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, SimulationOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "partition_paper")]
struct Arguments {
    /// TPC-H scale factor of ORDERS; the paper's is 10.
    #[arg(long, default_value_t = 10.0)]
    scale: f64,
    /// The file to write.
    #[arg(long, default_value = "docs/benchmarks/partitioning-paper.md")]
    out: PathBuf,
}

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;
/// The paper's sub-buffer.
const SUB_BUFFER_BYTES: usize = 8 * KIB;

/// A row of Table 1: memory in MB; total, read and write seconds of N-Hash; the same of the original.
type Row = (u64, [f64; 3], [f64; 3]);

struct Paper {
    model: &'static str,
    name: &'static str,
    table_1: [Row; 7],
    /// Largest speed-ups of Figures 4 and 6.
    blocked_gain: f64,
    page_sized_gain: f64,
}

const PAPER: [Paper; 3] = [
    Paper {
        model: "iodrive",
        name: "Fusion-io ioDrive",
        table_1: [
            (5, [7.98, 3.05, 3.51], [27.56, 3.16, 21.85]),
            (10, [7.4, 2.95, 3.21], [13.58, 3.05, 8.38]),
            (20, [9.09, 3.72, 3.21], [11.61, 4.94, 4.56]),
            (30, [7.96, 3.3, 3.24], [9.17, 3.65, 3.91]),
            (50, [7.85, 3.3, 3.26], [8.75, 3.55, 3.89]),
            (100, [7.51, 3.16, 3.41], [7.48, 3.04, 3.59]),
            (200, [7.38, 2.8, 3.54], [7.29, 2.82, 3.48]),
        ],
        blocked_gain: 3.55,
        page_sized_gain: 2.36,
    },
    Paper {
        model: "p300",
        name: "Micron p300",
        table_1: [
            (5, [23.3, 5.99, 15.43], [30.24, 6.09, 21.75]),
            (10, [17.46, 5.87, 9.8], [20.65, 5.84, 12.32]),
            (20, [17.7, 6.8, 8.43], [18.54, 7.22, 8.97]),
            (30, [15.44, 5.89, 7.97], [16.57, 6.24, 8.46]),
            (50, [15.16, 5.82, 8.03], [15.39, 5.96, 7.97]),
            (100, [14.57, 5.8, 7.66], [14.56, 5.83, 7.62]),
            (200, [14.89, 5.72, 8.04], [14.71, 5.68, 7.95]),
        ],
        blocked_gain: 1.31,
        page_sized_gain: 1.68,
    },
    Paper {
        model: "vertex3",
        name: "OCZ Vertex 3 Max IOPS",
        table_1: [
            (5, [15.93, 5.59, 8.25], [22.76, 5.52, 15.05]),
            (10, [11.72, 5.02, 4.98], [15.18, 5.29, 7.56]),
            (20, [13.11, 6.18, 4.62], [15.43, 8.3, 4.89]),
            (30, [11.56, 5.39, 4.67], [12.49, 6.15, 4.57]),
            (50, [11.08, 4.98, 4.87], [11.62, 5.21, 5.05]),
            (100, [10.35, 4.53, 4.81], [10.99, 4.59, 5.38]),
            (200, [10.59, 4.35, 5.06], [10.71, 4.25, 5.42]),
        ],
        blocked_gain: 1.50,
        page_sized_gain: 1.59,
    },
];

const PAPER_SCALE: f64 = 10.0;

fn main() {
    let arguments = Arguments::parse();
    let mut page = format!(
        "# The N-Hash paper's experiments on models of its drives\n\n\
         `cargo run --release -p nandina-bench --bin partition_paper -- --scale {}`\n\n\
         ORDERS by O_CUSTKEY, one thread, in virtual time: reads and writes take what the models say, computing takes \
         95 ns a row (what Table 1 leaves beside reading and writing). The models are fitted to times of single writes \
         and reads and to bandwidths, not to any partitioning. *Overlapped* is Nandina's variant, which goes on filling \
         while writes are under way.\n",
        arguments.scale
    );
    if arguments.scale != PAPER_SCALE {
        writeln!(
            page,
            "\nThis page was made at scale {}: multiply the model's seconds by {} to compare them with the paper's, which \
             are of scale {PAPER_SCALE}. Partitions and buffers are those of the paper.",
            arguments.scale,
            PAPER_SCALE / arguments.scale
        )
        .unwrap();
    }
    for paper in &PAPER {
        eprintln!("{}", paper.name);
        let model = DriveModel::named(paper.model).unwrap();
        let options = SimulationOptions { contents: Contents::Volatile, ..SimulationOptions::of(model) };
        let (device, simulation) = nandina_simulation::on_drive(options);
        simulation.fill_drive();
        let computing = Some(Computing::of_the_paper(simulation));
        let bench = Workbench::open(&device, arguments.scale, computing).unwrap();
        write!(page, "\n## {}\n", paper.name).unwrap();
        table_1(paper, &bench, &mut page);
        figures(paper, &bench, &mut page);
        runner::write(&arguments.out, &page).unwrap();
    }
    println!("{page}");
}

fn run(
    bench: &Workbench,
    algorithm: Algorithm,
    unit: Unit,
    partitions: usize,
    output_bytes: usize,
    input_buffer_bytes: usize,
) -> Option<Trial> {
    let ring = RingShape::of(algorithm, unit, output_bytes, SUB_BUFFER_BYTES)?;
    let options = TrialOptions { algorithm, unit, partitions, ring, input_buffer_bytes, verify: false };
    Some(bench.run(&options).unwrap())
}

fn table_1(paper: &Paper, bench: &Workbench, page: &mut String) {
    page.push_str(
        "\nTable 1: memory by the formulas of the Grace join; seconds in all, and per phase; *paper* beside *model*.\n\n\
         | memory | B | N-Hash, paper | model | of it writes, paper | model | original, paper | model | of it writes, paper | model | speed-up, paper | model | overlapped, model |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (megabytes, theirs, original) in paper.table_1 {
        // The relation that makes the paper's formulas give the paper's partitions.
        let allocation = GraceAllocation::of(2_701_000_000, megabytes * MIB, 1.0);
        let GraceAllocation { partitions, output_bytes, input_bytes } = allocation;
        let of = |algorithm| run(bench, algorithm, Unit::Blocked, partitions, output_bytes, input_bytes);
        let (n_hash, classic) = (of(Algorithm::NHash), of(Algorithm::Classic).unwrap());
        let overlapped = of(Algorithm::OverlappedNHash);
        let seconds = |trial: &Option<Trial>, figure: fn(&Trial) -> f64| {
            trial.as_ref().map_or("–".to_owned(), |trial| format!("{:.2}", figure(trial)))
        };
        let gain = n_hash.as_ref().map_or(f64::NAN, |n_hash| classic.elapsed_s / n_hash.elapsed_s);
        writeln!(
            page,
            "| {megabytes} MB | {partitions} | {:.2} | {} | {:.2} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {gain:.2} | {} |",
            theirs[0],
            seconds(&n_hash, |trial| trial.elapsed_s),
            theirs[2],
            seconds(&n_hash, |trial| trial.write_s),
            original[0],
            classic.elapsed_s,
            original[2],
            classic.write_s,
            original[0] / theirs[0],
            seconds(&overlapped, |trial| trial.elapsed_s),
        )
        .unwrap();
    }
}

/// Speed-ups of N-Hash over the original by partitions and memory.
fn figures(paper: &Paper, bench: &Workbench, page: &mut String) {
    for (unit, figure, memories, most) in [
        (Unit::Blocked, "Figure 4, blocked writes", [8, 32, 128, 452], paper.blocked_gain),
        (Unit::PageSized, "Figure 6, page-sized writes", [4, 16, 56, 112], paper.page_sized_gain),
    ] {
        write!(page, "\n{figure}: N-Hash's seconds and its speed-up over the original; input buffer 4 MB.\n\n| partitions |").unwrap();
        for megabytes in memories {
            write!(page, " {megabytes} MB |").unwrap();
        }
        page.push_str("\n|--:|--:|--:|--:|--:|\n");
        let mut best = 0.0f64;
        for partitions in [32, 128, 512] {
            write!(page, "| {partitions} |").unwrap();
            for megabytes in memories {
                let output_bytes = (megabytes * MIB) as usize / partitions;
                let of = |algorithm| run(bench, algorithm, unit, partitions, output_bytes, 4 << 20);
                match (of(Algorithm::NHash), of(Algorithm::Classic)) {
                    (Some(n_hash), Some(classic)) => {
                        let gain = classic.elapsed_s / n_hash.elapsed_s;
                        best = best.max(gain);
                        write!(page, " {:.1} s, {gain:.2} × |", n_hash.elapsed_s).unwrap();
                    }
                    _ => page.push_str(" too little memory |"),
                }
            }
            page.push('\n');
        }
        writeln!(page, "\nLargest speed-up: {best:.2} (paper: up to {most:.2}).").unwrap();
    }
}
