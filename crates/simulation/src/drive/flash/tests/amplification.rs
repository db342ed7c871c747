//! Write amplification against its closed form.
//!
//! Under uniformly random writes and cleaning in order of age, or greedily with large blocks,
//! A = α / (α + W(−α·e^−α)); see the module documentation of `ftl` for the sources.

use super::*;

use CommandKind::{Trim, Write};

/// Programmed per written sector at `spare` = physical / logical − 1.
fn closed_form(spare: f64) -> f64 {
    let alpha = 1.0 + spare;
    let argument = -alpha * (-alpha).exp();
    // Lambert's W, principal branch, for an argument from −1/e to 0: there w·e^w grows from w = −1 to w = 0.
    let (mut low, mut high) = (-1.0_f64, 0.0_f64);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if middle * middle.exp() < argument { low = middle } else { high = middle }
    }
    alpha / (alpha + low)
}

/// A drive of few dies with many blocks each, whose times hardly matter.
fn parameters(spare: f64) -> FlashParameters {
    FlashParameters {
        channels: 2,
        dies_per_channel: 1,
        flash_page_bytes: 16 * KIBIBYTE,
        pages_per_block: 128,
        capacity_bytes: 1024 * MEBIBYTE,
        over_provisioning: spare,
        read_nanos: 50_000,
        program_nanos: 500_000,
        erase_nanos: 1_000_000,
        channel_bytes_per_second: 500_000_000,
        host_write_bytes_per_second: 500_000_000,
        host_read_bytes_per_second: 500_000_000,
        write_buffer_bytes: MEBIBYTE,
        queue_depth: 32,
        read_command_nanos: 1_000,
        write_command_nanos: 1_000,
        ..FlashParameters::fusion_io_drive()
    }
}

/// Of the spare that a drive has for `live_sectors`, what is left when the one free block of each die that cleaning
/// keeps, and the empty half of the frontier it moves sectors to, hold nothing.
fn effective_spare(drive: &FlashDrive, live_sectors: f64) -> f64 {
    let geometry = drive.ftl.geometry();
    let block = f64::from(geometry.pages_per_block * geometry.sectors_per_page);
    let blocks = f64::from(geometry.dies) * (f64::from(geometry.blocks_per_die) - 1.5);
    blocks * block / live_sectors - 1.0
}

/// Amplification of the commands, once those of `warm_up` have passed.
fn amplification(
    drive: &mut FlashDrive,
    now: Nanos,
    warm_up: impl Iterator<Item = (CommandKind, u64, u64)>,
    commands: impl Iterator<Item = (CommandKind, u64, u64)>,
) -> f64 {
    let now = run(drive, now, 32, warm_up);
    let before = drive.figures();
    run(drive, now, 32, commands);
    let after = drive.figures();
    drive.ftl.check();
    (after.flash_bytes_written - before.flash_bytes_written) as f64
        / (after.bytes_written - before.bytes_written) as f64
}

#[test]
fn random_overwrites_cost_what_the_closed_form_says() {
    // As in the abstract of Xiang and Kurkoski: 2.36 for 0.3.
    assert!((closed_form(0.3) - 2.36).abs() < 0.005);
    for (spare, unlike) in [(0.07, 7.8), (0.15, 4.0), (0.28, 2.5), (0.5, 1.7)] {
        assert!((closed_form(spare) / unlike - 1.0).abs() < 0.06, "{spare}: {}", closed_form(spare));
        let mut drive = FlashDrive::new(parameters(spare), 1);
        drive.fill();
        let sectors = drive.capacity_bytes() / 4096;
        let warm_up = at_random(&drive, Write, 4096, 3 * sectors, 5);
        let commands = at_random(&drive, Write, 4096, sectors, 6);
        let modelled = amplification(&mut drive, 0, warm_up, commands);
        let expected = closed_form(effective_spare(&drive, sectors as f64));
        println!(
            "spare {spare:.2}: {modelled:.3}, closed form {expected:.3} ({:+.1} %), of the whole spare {:.3}",
            100.0 * (modelled / expected - 1.0),
            closed_form(spare)
        );
        // The form is the limit for large blocks. With 128 sectors to a block instead of these 512 the model is 5.8 %
        // below it at a spare of 0.07 (greedy choice gains from blocks that differ by chance), with 1,024 0.7 %.
        assert!((modelled / expected - 1.0).abs() < 0.04, "{spare}: {modelled}, not {expected}");
    }
}

#[test]
fn sequential_overwrites_move_nothing() {
    let mut drive = FlashDrive::new(parameters(0.07), 1);
    drive.fill();
    let sectors = drive.capacity_bytes() / 4096;
    let warm_up = sequential(&drive, Write, 4096, 2 * sectors);
    let commands = sequential(&drive, Write, 4096, sectors);
    let modelled = amplification(&mut drive, 0, warm_up, commands);
    println!("sequential: {modelled:.3}");
    assert!((1.0..1.02).contains(&modelled), "{modelled}");
}

#[test]
fn nothing_is_moved_while_a_trimmed_drive_has_spare() {
    let mut drive = FlashDrive::new(parameters(0.07), 1);
    drive.fill();
    let capacity = drive.capacity_bytes();
    let now = run(&mut drive, 0, 1, [(Trim, 0, capacity)]);
    assert_eq!(drive.ftl.mapped_sectors(), 0);
    let first = at_random(&drive, Write, 4096, capacity / 4096, 5);
    let fresh = amplification(&mut drive, now, std::iter::empty(), first);
    println!("after a trim of everything: {fresh:.3}");
    assert!((0.99..1.01).contains(&fresh), "{fresh}");
}

#[test]
fn trimming_half_the_drive_helps_as_more_spare_does() {
    let mut drive = FlashDrive::new(parameters(0.07), 1);
    drive.fill();
    let capacity = drive.capacity_bytes();
    let now = run(&mut drive, 0, 1, [(Trim, capacity / 2, capacity / 2)]);
    let half = capacity / 4096 / 2;
    assert_eq!(drive.ftl.mapped_sectors() as u64, half);
    let mut random = Random(9);
    let mut in_half = |count: u64| {
        let addresses: Vec<u64> = (0..count).map(|_| random.below(half) * 4096).collect();
        addresses.into_iter().map(|address| (Write, address, 4096))
    };
    let (warm_up, commands) = (in_half(4 * half), in_half(2 * half));
    let modelled = amplification(&mut drive, now, warm_up, commands);
    let expected = closed_form(effective_spare(&drive, half as f64));
    println!("half trimmed: {modelled:.3}, closed form {expected:.3}");
    assert!((modelled / expected - 1.0).abs() < 0.04, "{modelled}, not {expected}");
}
