use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

fn assert_within(value: f64, target: f64, share: f64, what: &str) {
    assert!((value / target - 1.0).abs() <= share, "{what}: {value} is not within {share} of {target}");
}

fn disk() -> HardDisk {
    HardDisk::new(DiskParameters::disk_7200_rpm(), 7)
}

fn command(tag: u64, kind: CommandKind, address: u64, bytes: u64) -> Command {
    Command { tag, kind, address, bytes }
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 11) * u128::from(limit)) >> 53) as u64
    }
}

/// Lets the disk work until everything has ended.
fn finish(disk: &mut HardDisk) -> Vec<Ended> {
    let mut ended = Vec::new();
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut ended);
    }
    ended
}

/// Executes ranges with `depth` of them outstanding; returns the time per range, and every latency.
fn carry_out(
    disk: &mut HardDisk,
    kind: CommandKind,
    depth: usize,
    ranges: impl IntoIterator<Item = (u64, u64)>,
) -> (f64, Vec<Nanos>) {
    let begun_at = disk.now;
    let mut ranges = ranges.into_iter();
    let (mut now, mut submitted, mut latencies, mut ended) = (begun_at, Vec::new(), Vec::new(), Vec::new());
    let mut outstanding = 0;
    loop {
        while outstanding < depth
            && let Some((address, bytes)) = ranges.next()
        {
            disk.submit(now, command(submitted.len() as u64, kind, address, bytes));
            submitted.push(now);
            outstanding += 1;
        }
        if outstanding == 0 {
            break;
        }
        now = disk.next_event().expect("commands are outstanding");
        disk.advance(now, &mut ended);
        for Ended { at, tag } in ended.drain(..) {
            latencies.push(at - submitted[tag as usize]);
            outstanding -= 1;
        }
    }
    ((now - begun_at) as f64 / submitted.len() as f64, latencies)
}

fn random_pages(disk: &HardDisk, count: u64, seed: u64) -> Vec<(u64, u64)> {
    let (mut random, pages) = (Random(seed), disk.capacity_bytes() / PAGE);
    (0..count).map(|_| (random.below(pages) * PAGE, PAGE)).collect()
}

fn random_page_nanos(depth: usize) -> f64 {
    let mut disk = disk();
    let pages = random_pages(&disk, 6000, 11);
    carry_out(&mut disk, CommandKind::Read, depth, pages).0
}

/// As calibration for QDTT does: bands one after another, the pages of each in random order. Where the band is
/// larger than `count` pages, only so many of them.
fn band_nanos(band_pages: u64, count: u64) -> f64 {
    let mut disk = disk();
    let mut random = Random(band_pages);
    let mut ranges = Vec::new();
    let mut band = 0;
    while (ranges.len() as u64) < count {
        let wanted = band_pages.min(count);
        if band_pages <= count {
            let mut pages: Vec<u64> = (0..band_pages).collect();
            for index in (1..pages.len()).rev() {
                pages.swap(index, random.below(index as u64 + 1) as usize);
            }
            ranges.extend(pages.iter().map(|page| ((band * band_pages + page) * PAGE, PAGE)));
        } else {
            ranges.extend((0..wanted).map(|_| (random.below(band_pages) * PAGE, PAGE)));
        }
        band += 1;
    }
    carry_out(&mut disk, CommandKind::Read, 1, ranges).0
}

#[test]
fn sequential_large_reads_reach_the_sustained_rate() {
    let parameters = DiskParameters::disk_7200_rpm();
    let last = parameters.capacity_bytes / (64 << 20) * (64 << 20) - (512 << 20);
    for depth in [1, 4] {
        for (first, rate) in [(0, 130e6), (last, 65e6)] {
            let ranges = (0..256).map(|number| (first + number * (1 << 20), 1 << 20));
            let (nanos, _) = carry_out(&mut disk(), CommandKind::Read, depth, ranges);
            let reached = (1u64 << 20) as f64 / nanos * 1e9;
            println!("large reads, depth {depth}, at {first}: {:.1} MB/s", reached / 1e6);
            assert_within(reached, rate, 0.05, "sequential rate");
        }
    }
}

#[test]
fn a_random_page_takes_command_seek_and_half_a_revolution() {
    let mut disk = disk();
    let pages = random_pages(&disk, 6000, 11);
    let (nanos, _) = carry_out(&mut disk, CommandKind::Read, 1, pages);
    let seek = disk.figures().seek_nanos as f64 / 6000.0;
    let rest = nanos - seek - disk.parameters.command_nanos as f64;
    println!("random page: {nanos:.0} ns, seek {seek:.0} ns, tracks {}", disk.figures().seek_tracks / 6000);
    assert_within(seek, 8_500_000.0, 0.03, "mean seek");
    assert_within(rest, 4_166_667.0, 0.05, "half a revolution, transfer included");
    let sum = disk.parameters.command_nanos as f64 + seek + 4_166_667.0;
    assert_within(nanos, sum, 0.05, "random page");
    let third = disk.geometry.cylinders() as f64 / 3.0;
    assert_within(disk.figures().seek_tracks as f64 / 6000.0, third, 0.08, "mean distance");
}

#[test]
fn random_pages_cost_about_115_times_sequential_ones() {
    let sequential = (0..20_000).map(|page| (page * PAGE, PAGE));
    let (sequential, _) = carry_out(&mut disk(), CommandKind::Read, 1, sequential);
    let ratio = random_page_nanos(1) / sequential;
    println!("sequential page {sequential:.0} ns, ratio {ratio:.1}");
    assert_within(sequential, 110_000.0, 0.1, "sequential page");
    assert!((100.0..130.0).contains(&ratio), "{ratio}");
}

#[test]
fn depth_of_32_makes_random_pages_up_to_2_7_times_cheaper() {
    let one = random_page_nanos(1);
    let gains = [2, 4, 8, 16, 32, 64].map(|depth| (depth, one / random_page_nanos(depth)));
    println!("gains {gains:.2?}");
    assert!(gains.is_sorted_by(|(_, less), (_, more)| *less <= more * 1.02), "{gains:?}");
    assert!((2.0..=2.7).contains(&gains[4].1), "{gains:?}");
    assert_within(gains[5].1, gains[4].1, 0.02, "beyond the depth of the queue");
}

#[test]
fn cost_grows_with_the_band() {
    let whole = DiskParameters::disk_7200_rpm().capacity_bytes / PAGE;
    let bands = [1, 16, 256, 4 << 10, 64 << 10, 1 << 20, whole];
    let costs = bands.map(|band| (band, (band_nanos(band, 8192) / 1000.0).round()));
    println!("µs per page by band: {costs:?}");
    assert!(costs.is_sorted_by(|(_, less), (_, more)| less < more), "{costs:?}");
}

#[test]
fn queued_neighbours_stream_and_single_ones_without_read_ahead_lose_revolutions() {
    let parameters = DiskParameters { read_ahead_bytes: 0, ..DiskParameters::disk_7200_rpm() };
    for kind in [CommandKind::Read, CommandKind::Write] {
        let ranges = || (0..400u64).map(|number| (number * (256 << 10), 256 << 10));
        let (queued, _) = carry_out(&mut HardDisk::new(parameters.clone(), 1), kind, 4, ranges());
        assert_within((256u64 << 10) as f64 / queued * 1e9, 130e6, 0.05, "four at a time");
        let (single, _) = carry_out(&mut HardDisk::new(parameters.clone(), 1), kind, 1, ranges());
        // A revolution, whose end comes a little later where a track ends.
        assert_within(single, 8_333_333.0 + queued, 0.05, "one at a time");
    }
}

#[test]
fn small_queued_neighbours_stream_as_fast_as_commands_come() {
    let ranges = (0..20_000u64).map(|page| (page * PAGE, PAGE));
    let (nanos, _) = carry_out(&mut disk(), CommandKind::Read, 32, ranges);
    assert_within(nanos, 95_000.0, 0.05, "the command station limits");
}

#[test]
fn no_command_starves_among_nearer_ones() {
    let parameters = DiskParameters::disk_7200_rpm();
    let age_limit = parameters.age_limit_nanos;
    let mut disk = HardDisk::new(parameters, 1);
    let mut random = Random(3);
    let far = 400_000_000_000;
    let ranges: Vec<_> = (0..4000)
        .map(|number| if number == 100 { (far, PAGE) } else { (random.below(64 << 10) * PAGE, PAGE) })
        .collect();
    let (_, latencies) = carry_out(&mut disk, CommandKind::Read, 32, ranges);
    let longest = latencies.iter().copied().max().unwrap();
    assert!(longest > age_limit, "the far one was passed over: {longest}");
    assert!(longest < age_limit + 100 * MILLISECOND, "{longest}");
}

#[test]
fn the_queue_takes_no_more_than_its_depth() {
    // The last command is near and the first under way. It overtakes the far one only where the disk knows of it.
    let order = |queue_depth: usize| {
        let mut disk = HardDisk::new(DiskParameters { queue_depth, ..DiskParameters::disk_7200_rpm() }, 1);
        for (tag, address) in [(0, 200 << 20), (1, 450 << 30), (2, 201 << 20)] {
            disk.submit(0, command(tag, CommandKind::Read, address, PAGE));
        }
        let mut ended = Vec::new();
        while let Some(at) = disk.next_event() {
            assert_eq!(disk.queued, queue_depth.min(3 - ended.len()));
            disk.advance(at, &mut ended);
        }
        ended.iter().map(|ended| ended.tag).collect::<Vec<_>>()
    };
    assert_eq!(order(1), [0, 1, 2]);
    assert_eq!(order(2), [0, 1, 2]);
    assert_eq!(order(3), [0, 2, 1]);
}

#[test]
fn flush_and_trim_end_after_their_command_time_when_nothing_is_dirty() {
    let mut disk = disk();
    disk.submit(1000, command(1, CommandKind::Flush, 0, 0));
    disk.submit(1000, command(2, CommandKind::Trim, 0, 1 << 30));
    let command_nanos = disk.parameters.command_nanos;
    let ended = finish(&mut disk);
    assert_eq!(
        ended,
        [Ended { at: 1000 + command_nanos, tag: 1 }, Ended { at: 1000 + 2 * command_nanos, tag: 2 }]
    );
    assert_eq!(disk.next_event(), None);
    let figures = disk.figures();
    assert_eq!((figures.flush_commands, figures.trim_commands, figures.bytes_trimmed), (1, 1, 1 << 30));
}

#[test]
fn writes_take_their_additional_settling() {
    let pages = random_pages(&disk(), 4000, 5);
    let (reads, _) = carry_out(&mut disk(), CommandKind::Read, 1, pages.clone());
    let (writes, _) = carry_out(&mut disk(), CommandKind::Write, 1, pages);
    let additional = writes - reads;
    assert!((200_000.0..600_000.0).contains(&additional), "{additional}");
}

#[test]
fn a_write_cache_takes_a_burst_and_a_flush_waits_for_it() {
    let parameters = DiskParameters { write_cache: true, ..DiskParameters::disk_7200_rpm() };
    let cache_pages = parameters.cache_bytes / PAGE;
    let mut disk = HardDisk::new(parameters, 1);
    let pages = random_pages(&disk, cache_pages + 400, 21);
    let (fits, beyond) = pages.split_at(cache_pages as usize);

    let (fast, latencies) = carry_out(&mut disk, CommandKind::Write, 1, fits.iter().copied());
    assert_within(fast, 95_000.0 + 13_654.0, 0.01, "while there is room");
    assert!(latencies.iter().all(|nanos| *nanos < 110_000));

    // Destaging went on meanwhile, which made room; once that is used up, every write waits for one to be destaged.
    let room = (disk.cache.capacity_bytes() - disk.cache.used_bytes()) / PAGE;
    let (_, latencies) = carry_out(&mut disk, CommandKind::Write, 1, beyond.iter().copied());
    let slow = &latencies[room as usize + 20..];
    let mean = slow.iter().sum::<u64>() as f64 / slow.len() as f64;
    println!("room {room}, mean write when full {mean:.0}");
    assert!((3e6..9e6).contains(&mean), "{mean}");

    let begun_at = disk.now;
    let (flush, _) = carry_out(&mut disk, CommandKind::Flush, 1, [(0, 0)]);
    assert!(flush > cache_pages as f64 * 3e6, "{flush}");
    assert_eq!((disk.cache.used_bytes(), disk.unsafe_writes.len()), (0, 0));
    println!("flush took {} ms", (disk.now - begun_at) / MILLISECOND);
}

#[test]
fn reads_go_before_destaging_and_find_what_is_dirty() {
    let parameters = DiskParameters { write_cache: true, ..DiskParameters::disk_7200_rpm() };
    let mut disk = HardDisk::new(parameters, 1);
    let pages = random_pages(&disk, 500, 22);
    carry_out(&mut disk, CommandKind::Write, 1, pages.iter().copied());
    let (held, _) = carry_out(&mut disk, CommandKind::Read, 1, [pages[499]]);
    assert_within(held, 95_000.0 + 13_654.0, 0.01, "dirty page");
    let pages = random_pages(&disk, 100, 23);
    let (_, latencies) = carry_out(&mut disk, CommandKind::Read, 1, pages);
    assert!(latencies.iter().all(|nanos| *nanos < 60 * MILLISECOND), "one destaging at most comes before");
    assert!(disk.cache.used_bytes() > 300 * PAGE, "{}", disk.cache.used_bytes());
    // Left alone, the disk writes everything back.
    finish(&mut disk);
    assert_eq!(disk.cache.used_bytes(), 0);
}

#[test]
fn an_overwritten_dirty_page_is_written_once() {
    let parameters = DiskParameters { write_cache: true, ..DiskParameters::disk_7200_rpm() };
    let mut disk = HardDisk::new(parameters, 1);
    let busy: Vec<_> = random_pages(&disk, 100, 24);
    carry_out(&mut disk, CommandKind::Write, 1, busy);
    let before = disk.cache.used_bytes();
    carry_out(&mut disk, CommandKind::Write, 1, [(8 << 30, PAGE); 5]);
    assert!(disk.cache.used_bytes() <= before + PAGE);
    finish(&mut disk);
    assert_eq!((disk.cache.used_bytes(), disk.unsafe_writes.len()), (0, 0));
}

fn commands() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    // Addresses from a few and from many, so that ranges also meet.
    let page = prop_oneof![0..200u64, 0..100_000_000u64];
    prop::collection::vec((0..10u8, page, 0..300u64, prop_oneof![Just(0), 0..20 * MILLISECOND]), 1..150)
}

proptest! {
    #[test]
    fn every_command_ends_once_in_order_of_time_and_the_same_way_again(
        commands in commands(),
        seed: u64,
        write_cache: bool,
        often: bool,
    ) {
        let parameters = DiskParameters { write_cache, cache_bytes: 1 << 20, ..DiskParameters::disk_7200_rpm() };
        let run = |often: bool| {
            let mut disk = HardDisk::new(parameters.clone(), seed);
            let (mut now, mut ended) = (0, Vec::new());
            for (tag, (kind, page, pages, pause)) in commands.iter().copied().enumerate() {
                let kind = match kind {
                    0..5 => CommandKind::Read,
                    5..8 => CommandKind::Write,
                    8 => CommandKind::Flush,
                    _ => CommandKind::Trim,
                };
                let flush = kind == CommandKind::Flush;
                let (address, bytes) = if flush { (0, 0) } else { (page * PAGE, pages * PAGE) };
                now += pause;
                if often {
                    disk.advance(now, &mut ended);
                }
                disk.submit(now, command(tag as u64, kind, address, bytes));
            }
            disk.advance(1000 * SECOND, &mut ended);
            assert_eq!(disk.next_event(), None);
            assert_eq!((disk.queued, disk.cache.used_bytes(), disk.unsafe_writes.len()), (0, 0, 0));
            (ended, disk.figures())
        };
        let (ended, figures) = run(often);
        prop_assert!(ended.is_sorted_by_key(|ended| ended.at));
        let mut tags: Vec<u64> = ended.iter().map(|ended| ended.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..commands.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(run(!often), (ended, figures));
    }
}
