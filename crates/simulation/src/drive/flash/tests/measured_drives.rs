//! The presets against measurements of the real drives.
//!
//! Writes and reads of the first three: derived from Table 1 and the text of "Optimizing Hash Partitioning for Solid
//! State Drives" (libaio, direct I/O, drives in a good state). One command at a time unless told otherwise.

use super::*;

use CommandKind::{Read, Write};

const MICROSECOND: f64 = 1_000.0;

/// Microseconds per command.
fn micros_per_command(
    parameters: FlashParameters,
    kind: CommandKind,
    bytes: u64,
    depth: usize,
    random: bool,
) -> f64 {
    let mut drive = FlashDrive::new(parameters, 1);
    drive.fill();
    let count = (512 * MEBIBYTE / bytes).clamp(20, 40_000);
    let end = if random {
        let commands = at_random(&drive, kind, bytes, count, 7);
        run(&mut drive, 0, depth, commands)
    } else {
        let commands = sequential(&drive, kind, bytes, count);
        run(&mut drive, 0, depth, commands)
    };
    end as f64 / count as f64 / MICROSECOND
}

struct Measured {
    kind: CommandKind,
    bytes: u64,
    depth: usize,
    micros: f64,
    /// Share by which the model may differ.
    within: f64,
}

fn measured(kind: CommandKind, kibibytes: u64, depth: usize, micros: f64, within: f64) -> Measured {
    Measured { kind, bytes: kibibytes * KIBIBYTE, depth, micros, within }
}

fn at_rate(
    kind: CommandKind,
    kibibytes: u64,
    depth: usize,
    megabytes_per_second: f64,
    within: f64,
) -> Measured {
    let micros = (kibibytes * KIBIBYTE) as f64 / megabytes_per_second;
    measured(kind, kibibytes, depth, micros, within)
}

fn compare(parameters: &FlashParameters, measurements: &[Measured]) {
    let mut off = Vec::new();
    for &Measured { kind, bytes, depth, micros, within } in measurements {
        let modelled = micros_per_command(parameters.clone(), kind, bytes, depth, false);
        let difference = modelled / micros - 1.0;
        let line = format!(
            "{:<22} {kind:?} {:>6} KiB, depth {depth:>3}: {modelled:>9.1} µs, measured {micros:>9.1} ({:+.1} %)",
            parameters.name,
            bytes / KIBIBYTE,
            100.0 * difference
        );
        println!("{line}");
        if difference.abs() > within {
            off.push(line);
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn fusion_io_drive() {
    compare(
        &FlashParameters::fusion_io_drive(),
        &[
            measured(Write, 8, 1, 83.0, 0.05),
            measured(Write, 32, 1, 128.0, 0.05),
            measured(Write, 152, 1, 332.0, 0.05),
            measured(Write, 336, 1, 630.0, 0.05),
            at_rate(Write, 4, 64, 600.0, 0.05),
            at_rate(Write, 1024, 32, 600.0, 0.05),
            measured(Read, 208, 1, 361.0, 0.05),
            measured(Read, 856, 1, 1_250.0, 0.05),
            at_rate(Read, 13 * 1024, 1, 780.0, 0.05),
        ],
    );
}

#[test]
fn micron_p300() {
    compare(
        &FlashParameters::micron_p300(),
        &[
            // From 8 to 32 KiB it gained time at 234 MB/s, later at 265: one straight line does not meet both ends.
            measured(Write, 8, 1, 83.0, 0.10),
            measured(Write, 32, 1, 188.0, 0.05),
            measured(Write, 152, 1, 653.0, 0.05),
            measured(Write, 336, 1, 1_362.0, 0.05),
            measured(Write, 4, 32, 28.9, 0.05),
            at_rate(Write, 64, 32, 270.0, 0.05),
            at_rate(Write, 1024, 32, 270.0, 0.05),
            measured(Read, 208, 1, 660.0, 0.05),
            at_rate(Read, 1024, 32, 376.0, 0.05),
        ],
    );
}

/// Micron's data sheet of the P300 (rev. K, 2012), random 4 KiB at depth 32 without the write cache: 60,000 reads a
/// second, 45,200 writes when empty and 16,000 in steady state. The preset follows the paper's 35,000 for the second.
/// The third it only approaches: greedy choice over the whole die cleans better than that drive did.
#[test]
fn micron_p300_by_its_data_sheet() {
    let reads = micros_per_command(FlashParameters::micron_p300(), Read, 4 * KIBIBYTE, 32, true);
    let parameters = FlashParameters { write_buffer_bytes: 0, ..FlashParameters::micron_p300() };
    let mut drive = FlashDrive::new(parameters.with_capacity_bytes(4096 * MEBIBYTE), 1);
    let mut rate = |from: Nanos, count: u64, seed: u64| {
        let commands = at_random(&drive, Write, 4 * KIBIBYTE, count, seed);
        let end = run(&mut drive, from, 32, commands);
        (end, count as f64 * 1e9 / (end - from) as f64)
    };
    let (end, empty) = rate(0, 100_000, 1);
    let (end, _) = rate(end, 2_500_000, 2);
    let (_, steady) = rate(end, 300_000, 3);
    println!("P300 a second: {:.0} reads, {empty:.0} writes, steady {steady:.0}", 1e6 / reads);
    assert!((57_000.0..63_000.0).contains(&(1e6 / reads)), "{reads} µs");
    assert!((33_000.0..36_000.0).contains(&empty), "{empty}");
    assert!((16_000.0..28_500.0).contains(&steady), "{steady}");
}

#[test]
fn ocz_vertex3() {
    compare(
        &FlashParameters::ocz_vertex3_max_iops(),
        &[
            // As above: 424 MB/s from 8 to 32 KiB, 500 later.
            measured(Write, 8, 1, 57.0, 0.10),
            measured(Write, 32, 1, 115.0, 0.05),
            measured(Write, 152, 1, 356.0, 0.05),
            measured(Write, 336, 1, 735.0, 0.05),
            measured(Write, 4, 32, 15.4, 0.05),
            at_rate(Write, 1024, 32, 500.0, 0.05),
            measured(Read, 208, 1, 600.0, 0.08),
            measured(Read, 856, 1, 2_340.0, 0.08),
            at_rate(Read, 208, 32, 503.0, 0.05),
        ],
    );
}

#[test]
fn revo_drive_gains_from_depth_and_hardly_from_order() {
    let parameters = FlashParameters::revo_drive();
    let alone = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 1, true);
    let deep = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 32, true);
    let in_order = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 1, false);
    let most = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 128, true);
    println!(
        "RevoDrive random 4 KiB: {alone:.1} µs, depth 32 {deep:.2}, 128 {most:.2}; in order {in_order:.1}"
    );
    assert!((17.0..23.0).contains(&(alone / deep)), "{alone} µs alone, {deep} at depth 32");
    assert!(alone / in_order < 3.0 && in_order / alone < 3.0, "{alone} µs at random, {in_order} in order");
    assert!(
        (1_000.0 / 253.0..1_000.0 / 207.0).contains(&most),
        "{most} µs at depth 128, advertised 230,000 a second"
    );
    compare(
        &parameters,
        &[
            at_rate(Read, 1024, 32, 1_500.0, 0.05),
            at_rate(Write, 1024, 32, 1_300.0, 0.05),
            measured(Write, 4, 32, 1_000.0 / 140.0, 0.05),
        ],
    );
}

#[test]
fn sata_ssd_of_today() {
    let parameters = FlashParameters::sata_ssd();
    compare(
        &parameters,
        &[
            at_rate(Read, 1024, 32, 560.0, 0.05),
            at_rate(Write, 1024, 32, 530.0, 0.05),
            measured(Write, 4, 1, 1_000.0 / 36.0, 0.05),
            measured(Write, 4, 32, 1_000.0 / 88.0, 0.05),
        ],
    );
    let alone = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 1, true);
    let deep = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 32, true);
    println!("SATA random 4 KiB: {alone:.1} µs, depth 32 {deep:.2}");
    assert!((73.0..81.0).contains(&alone), "{alone}");
    assert!((9.8..10.7).contains(&deep), "{deep}");
}

#[test]
fn nvme_ssd_of_today() {
    let parameters = FlashParameters::nvme_ssd();
    compare(&parameters, &[at_rate(Read, 1024, 32, 3_500.0, 0.05), at_rate(Write, 1024, 32, 3_000.0, 0.05)]);
    let alone = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 1, true);
    let deep = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 128, true);
    let in_order = micros_per_command(parameters.clone(), Read, 4 * KIBIBYTE, 1, false);
    println!("NVMe random 4 KiB: {alone:.1} µs, depth 128 {deep:.2}; in order {in_order:.1}");
    assert!((80.0..90.0).contains(&alone), "{alone}");
    assert!((1_000.0 / 660.0..1_000.0 / 540.0).contains(&deep), "{deep}");
    assert!(in_order < alone / 2.0, "read ahead: {in_order}");
}

/// The fast part of an NVMe drive is used up, recovers while the drive rests, and is used up again.
#[test]
fn bursts_end_and_come_back() {
    let mut drive = FlashDrive::new(FlashParameters::nvme_ssd(), 1);
    let mut rate = |from: Nanos, mebibytes: u64| {
        let commands = sequential(&drive, Write, MEBIBYTE, mebibytes);
        let end = run(&mut drive, from, 8, commands);
        (end, (mebibytes * MEBIBYTE) as f64 / (end - from) as f64)
    };
    let (end, burst) = rate(0, 1000);
    let (end, _) = rate(end, 100);
    let (end, sustained) = rate(end, 1000);
    let (_, again) = rate(end + 1_100_000_000, 400);
    println!("GB/s: burst {burst:.2}, sustained {sustained:.2}, after a pause {again:.2}");
    assert!((2.85..3.05).contains(&burst) && (2.85..3.05).contains(&again), "{burst} {again}");
    assert!((1.2..1.7).contains(&sustained), "{sustained}");
}
