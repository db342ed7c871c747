//! The tables of the page.

use std::fmt::Write as _;

use nandina_bench::quantity::{self, median};
use nandina_spill::{Discard, Preallocation};

use crate::Measured;
use crate::real::{GivingBack, Runs, Writing};
use crate::simulated::{Combination, Management, Setting};
use crate::workload::Workload;

/// Preallocation and discard, as cells of a table.
fn name(management: Management) -> String {
    match management {
        Management::FilePerPartition { fallocate: false } => {
            "file per partition: none | at removal".to_owned()
        }
        Management::FilePerPartition { fallocate: true } => {
            "file per partition: fallocate | at removal".to_owned()
        }
        Management::Extents { preallocation, discard } => format!("{preallocation} | {discard}"),
    }
}

/// A combination, as the head of a column.
fn head(Combination { management, is_mounted_with_discard }: Combination) -> String {
    let name = name(management).replace(" | at removal", "").replace("file per partition: ", "file, ");
    let name = name.replace(" | ", ", ");
    if is_mounted_with_discard { format!("{name}, TRIM") } else { name }
}

fn same_setting(one: &Setting, other: &Setting) -> bool {
    let key = |it: &Setting| (it.drive, it.full_percent, it.workload.partitions, it.workload.joins_at_once);
    key(one) == key(other)
}

/// The combinations of one setting after the other.
fn by_setting(measured: &[Measured]) -> Vec<&[Measured]> {
    measured.chunk_by(|one, other| same_setting(&one.setting, &other.setting)).collect()
}

/// The compared combinations for all settings, then all combinations for the first ones.
pub fn simulated(measured: &[Measured], in_full: usize) -> String {
    let mut page = String::new();
    let settings = by_setting(measured);
    writeln!(page, "## Simulated drives, all settings\n").unwrap();
    writeln!(
        page,
        "Seconds of a round of joins. *file*: a file per partition, removed when it has been read, as in the paper. \
         *TRIM*: the file system is mounted with `discard`. *worst ÷ best*: of the paper's four; *÷ ours*: the worst \
         of these beside our default, recycle and deferred, on the same mount.\n"
    )
    .unwrap();
    write!(page, "| drive | full | partitions | joins at once |").unwrap();
    Combination::compared().for_each(|combination| write!(page, " {} |", head(combination)).unwrap());
    writeln!(page, " worst ÷ best | ÷ ours |").unwrap();
    writeln!(page, "|---|---:|---:|---:|{}", "---:|".repeat(10)).unwrap();
    for of_setting in &settings {
        let setting = of_setting[0].setting;
        let seconds_of = |combination: Combination| {
            let found = of_setting.iter().find(|it| it.combination == combination);
            found.expect("all compared combinations were run").outcome.seconds
        };
        let ours = |is_mounted_with_discard| {
            let policies = (Preallocation::Recycle, Discard::Deferred);
            let management = Management::Extents { preallocation: policies.0, discard: policies.1 };
            seconds_of(Combination { management, is_mounted_with_discard })
        };
        let paper: Vec<Combination> = Combination::compared().take(4).collect();
        let best = paper.iter().map(|&it| seconds_of(it)).fold(f64::MAX, f64::min);
        let worst = paper.iter().copied().max_by(|&a, &b| seconds_of(a).total_cmp(&seconds_of(b)));
        let worst = worst.expect("four combinations");
        write!(
            page,
            "| {} | {} % | {} | {} |",
            setting.drive, setting.full_percent, setting.workload.partitions, setting.workload.joins_at_once
        )
        .unwrap();
        Combination::compared().for_each(|it| write!(page, " {:.2} |", seconds_of(it)).unwrap());
        let against_ours = seconds_of(worst) / ours(worst.is_mounted_with_discard);
        writeln!(page, " {:.2} | {against_ours:.2} |", seconds_of(worst) / best).unwrap();
    }
    writeln!(page, "\n## Simulated drives, all combinations\n").unwrap();
    settings.into_iter().take(in_full).for_each(|of_setting| all_combinations(&mut page, of_setting));
    page
}

fn all_combinations(page: &mut String, of_setting: &[Measured]) {
    let setting = of_setting[0].setting;
    let workload = setting.workload;
    writeln!(
        page,
        "### {}\n\n{} % full of other data, {} partitions, {} joins at once of {} MiB each.\n",
        setting.drive,
        setting.full_percent,
        workload.partitions,
        workload.joins_at_once,
        workload.join_bytes >> 20
    )
    .unwrap();
    writeln!(
        page,
        "| preallocation | discard | TRIM | seconds | ÷ best | write amplification | erases | TRIM commands | \
         seconds in TRIM | MiB per TRIM | KiB per write |"
    )
    .unwrap();
    writeln!(page, "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|").unwrap();
    let best = of_setting.iter().map(|it| it.outcome.seconds).fold(f64::MAX, f64::min);
    for Measured { combination, outcome, .. } in of_setting {
        let per_trim = if outcome.trims > 0.0 { outcome.trimmed_mib / outcome.trims } else { 0.0 };
        writeln!(
            page,
            "| {} | {} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {per_trim:.2} | {:.0} |",
            name(combination.management),
            if combination.is_mounted_with_discard { "yes" } else { "no" },
            outcome.seconds,
            outcome.seconds / best,
            outcome.write_amplification,
            outcome.erases,
            outcome.trims,
            outcome.trim_seconds,
            outcome.written_mib * 1024.0 / outcome.writes,
        )
        .unwrap();
    }
    writeln!(page).unwrap();
}

pub fn real(
    runs: &[Runs],
    device: &str,
    workload: &Workload,
    giving_back: &[GivingBack],
    writing: &Writing,
) -> String {
    let mut page = String::new();
    let rounds = runs[0].runs.len();
    writeln!(
        page,
        "## A real disk\n\n{device}. Three rounds of {} joins at once, {} partitions, {} MiB each; medians of {rounds} \
         runs that took turns. *beside the first* is the median of the ratios of runs that followed each \
         other.\n",
        workload.joins_at_once,
        workload.partitions,
        workload.join_bytes >> 20
    )
    .unwrap();
    writeln!(
        page,
        "| preallocation | discard | joins (s) | closing (s) | together (s) | beside the first | discards | \
         MiB discarded | seconds in discards |"
    )
    .unwrap();
    writeln!(page, "|---|---|---:|---:|---:|---:|---:|---:|---:|").unwrap();
    let base = |it: &&Runs| it.management == Management::FilePerPartition { fallocate: false };
    let base = &runs.iter().find(base).expect("all combinations were run").runs;
    for Runs { management, runs } in runs {
        let of = |figure: fn(&crate::real::Run) -> f64| median(runs.iter().map(figure)).unwrap_or_default();
        let ratios =
            runs.iter().zip(base).map(|(run, base)| (run.joins + run.close) / (base.joins + base.close));
        writeln!(
            page,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} |",
            name(*management),
            of(|run| run.joins),
            of(|run| run.close),
            of(|run| run.joins + run.close),
            median(ratios).unwrap_or_default(),
            of(|run| run.discards.commands as f64),
            of(|run| run.discards.bytes as f64 / 1048576.0),
            of(|run| run.discards.seconds),
        )
        .unwrap();
    }
    writeln!(page, "\n### What giving space back costs\n").unwrap();
    writeln!(page, "Hole punching in a file of 512 MiB, every other piece first.\n").unwrap();
    writeln!(page, "| piece | seconds per GB |\n|---:|---:|").unwrap();
    for GivingBack { piece_bytes, seconds_per_gb } in giving_back {
        let piece = quantity::bytes(*piece_bytes);
        writeln!(page, "| {piece} | {seconds_per_gb:.2} |").unwrap();
    }
    writeln!(
        page,
        "\nWriting by 1 MiB, 16 at once, takes {:.2} s per GB where there are no blocks, {:.2} where they are reserved, \
         and {:.2} where something was written before.",
        writing.new, writing.reserved, writing.again
    )
    .unwrap();
    page
}
