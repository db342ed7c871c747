//! Commands end once, times grow, the queue is never too deep, tables agree, runs repeat, nothing gets stuck.

use proptest::prelude::*;

use super::*;

use CommandKind::{Flush, Read, Trim, Write};

fn small(buffered: bool, protected: bool, queued_trim: bool) -> FlashParameters {
    FlashParameters {
        channels: 2,
        dies_per_channel: 2,
        flash_page_bytes: 16 * KIBIBYTE,
        pages_per_block: 8,
        over_provisioning: 0.1,
        write_buffer_bytes: if buffered { 256 * KIBIBYTE } else { 0 },
        power_loss_protection: protected,
        trim_is_queued: queued_trim,
        queue_depth: 8,
        controllers: 2,
        half_duplex: buffered,
        ..FlashParameters::nvme_ssd().with_capacity_bytes(32 * MEBIBYTE)
    }
}

/// Submits all commands at their times and checks the promises about each of them.
fn checked_run(drive: &mut FlashDrive, commands: &[(Nanos, CommandKind, u64, u64)]) -> Vec<Ended> {
    let mut ended = Vec::new();
    let mut now = 0;
    for (tag, &(pause, kind, address, bytes)) in commands.iter().enumerate() {
        now += pause;
        while let Some(at) = drive.next_event().filter(|&at| at <= now) {
            drive.advance(at, &mut ended);
            assert!(drive.queued_commands() <= drive.parameters().queue_depth);
        }
        drive.submit(now, Command { tag: tag as u64, kind, address, bytes });
        assert!(drive.queued_commands() <= drive.parameters().queue_depth);
    }
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut ended);
        assert!(drive.queued_commands() <= drive.parameters().queue_depth);
    }
    assert!(ended.is_sorted_by_key(|ended| ended.at), "completions in the order of their times");
    let mut tags: Vec<u64> = ended.iter().map(|ended| ended.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..commands.len() as u64).collect::<Vec<_>>(), "each command ends once");
    let mut submitted = 0;
    let starts: Vec<Nanos> = commands
        .iter()
        .map(|(pause, ..)| {
            submitted += pause;
            submitted
        })
        .collect();
    assert!(ended.iter().all(|ended| ended.at >= starts[ended.tag as usize]), "none ends before it began");
    assert_eq!(drive.queued_commands(), 0);
    assert!(drive.buffer.is_empty() && drive.waiting.is_empty() && drive.incoming.is_empty());
    drive.ftl.check();
    ended
}

fn any_command() -> impl Strategy<Value = (Nanos, CommandKind, u64, u64)> {
    let kind = prop_oneof![5 => Just(Write), 3 => Just(Read), 1 => Just(Flush), 1 => Just(Trim)];
    let sectors = prop_oneof![3 => 1_u64..=4, 1 => 1_u64..=512];
    let pause = prop_oneof![3 => 0_u64..20_000, 1 => 0_u64..3_000_000];
    (pause, kind, 0_u64..8192 - 512, sectors).prop_map(|(pause, kind, sector, sectors)| match kind {
        Flush => (pause, kind, 0, 0),
        _ => (pause, kind, sector * 4096, sectors * 4096),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_command_ends_once_and_the_tables_agree(
        commands in prop::collection::vec(any_command(), 1..300),
        (buffered, protected, queued_trim, filled) in any::<(bool, bool, bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let mut runs = (0..2).map(|_| {
            let mut drive = FlashDrive::new(small(buffered, protected, queued_trim), seed);
            if filled {
                drive.fill();
            }
            let ended = checked_run(&mut drive, &commands);
            (ended, drive.figures())
        });
        prop_assert_eq!(runs.next(), runs.next(), "the same run again");
    }
}

#[test]
fn trimmed_sectors_leave_the_buffer() {
    let mut drive = FlashDrive::new(small(true, false, false), 0);
    // The trim comes while the rest of the write still waits for room.
    checked_run(&mut drive, &[(0, Write, 1_761_280, 282_624), (0, Trim, 172_032, 1_871_872)]);
}

#[test]
fn what_is_mapped_is_what_was_written_and_not_trimmed() {
    let mut drive = FlashDrive::new(small(true, false, true), 3);
    let mut random = Random(11);
    let mut written = vec![false; 8192];
    let mut commands = Vec::new();
    for _ in 0..3000 {
        let (kind, sectors) = if random.below(4) == 0 { (Trim, 64) } else { (Write, 1 + random.below(40)) };
        let first = random.below(8192 - 64);
        written[first as usize..(first + sectors) as usize].fill(kind == Write);
        commands.push((kind, first * 4096, sectors * 4096));
    }
    // One at a time: the order of commands that are outstanding together is the drive's choice.
    let now = run(&mut drive, 0, 1, commands);
    rest(&mut drive, now);
    drive.ftl.check();
    let mapped: Vec<bool> = (0..8192).map(|sector| drive.ftl.lookup(sector).is_some()).collect();
    assert_eq!(mapped, written);
}

/// Random overwrites of a full drive with no more spare than the least, from pages of one sector to large ones.
#[test]
fn a_full_drive_never_gets_stuck() {
    for (page, pages_per_block, buffer) in [(4, 4, 1), (16, 4, 64), (64, 2, 1), (4, 64, 0), (32, 16, 0)] {
        let mut drive = FlashDrive::new(
            FlashParameters {
                channels: 2,
                dies_per_channel: 3,
                flash_page_bytes: page * KIBIBYTE,
                pages_per_block,
                over_provisioning: 0.0,
                write_buffer_bytes: buffer * KIBIBYTE,
                ..FlashParameters::nvme_ssd().with_capacity_bytes(24 * MEBIBYTE)
            },
            1,
        );
        drive.fill();
        let sectors = drive.capacity_bytes() / 4096;
        assert_eq!(drive.ftl.mapped_sectors() as u64, sectors);
        let mut random = Random(3);
        let commands: Vec<_> = (0..4 * sectors)
            .map(|number| {
                // A quarter of the drive takes most writes, so that dies fill unevenly; some writes are large.
                let narrow = if number % 3 == 0 { sectors } else { sectors / 4 };
                let length = if number % 50 == 0 { 40 } else { 1 };
                (Write, random.below(narrow - length) * 4096, length * 4096)
            })
            .collect();
        let now = run(&mut drive, 0, 32, commands);
        rest(&mut drive, now);
        drive.ftl.check();
        assert_eq!(drive.ftl.mapped_sectors() as u64, sectors);
        assert!(drive.figures().erases > 0 && drive.figures().most_erases_of_a_block < 400);
    }
}

#[test]
fn random_overwrites_of_a_full_drive_are_slow() {
    let mut drive = FlashDrive::new(FlashParameters::sata_ssd().with_capacity_bytes(2048 * MEBIBYTE), 1);
    drive.fill();
    let sectors = drive.capacity_bytes() / 4096;
    let commands = at_random(&drive, Write, 4096, sectors / 20, 1);
    let fresh = run(&mut drive, 0, 32, commands);
    let commands = at_random(&drive, Write, 4096, sectors, 2);
    let worn_in = run(&mut drive, fresh, 32, commands);
    let commands = at_random(&drive, Write, 4096, sectors / 20, 3);
    let end = run(&mut drive, worn_in, 32, commands);
    let slower = (end - worn_in) as f64 / fresh as f64;
    println!("random writes of a full drive take {slower:.2} times as long as those of a fresh one");
    assert!(slower > 1.5, "{slower}");
}

#[test]
fn a_flush_waits_for_the_buffer_unless_it_outlasts_a_loss_of_power() {
    let time_of_flush = |protected: bool| {
        let parameters = FlashParameters { power_loss_protection: protected, ..FlashParameters::sata_ssd() };
        let mut drive = FlashDrive::new(parameters, 1);
        let written = run(&mut drive, 0, 1, [(Write, 0, 4096)]);
        run(&mut drive, written, 1, [(Flush, 0, 0)]) - written
    };
    assert!(time_of_flush(true) < 30_000, "{}", time_of_flush(true));
    assert!((700_000..800_000).contains(&time_of_flush(false)), "{}", time_of_flush(false));
}

#[test]
fn sectors_without_data_touch_no_flash() {
    let mut drive = FlashDrive::new(FlashParameters::sata_ssd(), 1);
    let blank = run(&mut drive, 0, 1, [(Read, 0, 4096)]);
    assert!(blank < 30_000, "{blank}");
    let written = run(&mut drive, blank, 1, [(Write, 0, 4096)]);
    let from_buffer = run(&mut drive, written, 1, [(Read, 0, 4096)]);
    assert!(from_buffer - written < 30_000);
    let resting = rest(&mut drive, from_buffer);
    let from_flash = run(&mut drive, resting, 1, [(Read, 0, 4096)]);
    assert!(from_flash - resting > 60_000);
}

#[test]
fn a_trim_that_cannot_be_queued_waits_and_is_waited_for() {
    let parameters = FlashParameters::micron_p300();
    let trim_nanos = parameters.trim_command_nanos + parameters.trim_nanos_per_gibibyte;
    let mut drive = FlashDrive::new(parameters, 1);
    drive.fill();
    let gibibyte = 1024 * MEBIBYTE;
    let commands = [(0, Read, 0, MEBIBYTE), (0, Trim, gibibyte, gibibyte), (0, Read, 0, 4096)];
    let ended = checked_run(&mut drive, &commands);
    let tags: Vec<u64> = ended.iter().map(|ended| ended.tag).collect();
    assert_eq!(tags, [0, 1, 2]);
    let at = |tag: usize| ended[tag].at;
    assert!((at(1) - at(0)).abs_diff(trim_nanos) < 100_000);
    assert!(at(2) > at(1));
    assert_eq!(drive.figures().trim_nanos, trim_nanos);
    assert_eq!(drive.figures().bytes_trimmed, gibibyte);
}

#[test]
fn small_writes_are_packed_and_rewritten_ones_superseded() {
    let mut drive = FlashDrive::new(small(true, true, true), 1);
    let commands = sequential(&drive, Write, 4096, 64);
    let now = run(&mut drive, 0, 8, commands);
    let now = rest(&mut drive, now);
    assert_eq!(drive.figures().flash_bytes_written, 64 * 4096);
    // Three that wait for a fourth, written again and again, are one page in the end.
    let now = run(&mut drive, now, 1, (0..30).map(|number| (Write, number % 3 * 4096, 4096)));
    rest(&mut drive, now);
    assert_eq!(drive.figures().flash_bytes_written, 64 * 4096 + 4 * 4096);
}
