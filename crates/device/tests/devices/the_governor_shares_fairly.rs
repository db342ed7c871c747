//! However many queries read, the device has what is useful for it, everybody has their share, and who waits for a
//! single page waits least. In virtual time, so that every figure is the same each time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::setup;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandina_device::calibration::Calibration;
use nandina_device::profile::DeviceProfile;
use nandina_device::{Batch, Device, DeviceOptions, File, FileClass, FlowId, IoAccount, Priority, Request};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, Simulation, SimulationOptions};
use setup::real_devices;

const PAGE: usize = 4096;
const LARGE: usize = 256 << 10;
const FILE_BYTES: u64 = 64 << 20;

/// A drive that has been written to, and what calibration says about it.
struct Bed {
    device: Device,
    simulation: Simulation,
    file: File,
    /// At most so much time goes by before the end of a request is answered.
    step: Duration,
}

fn simulated(model: &str, governed: bool) -> (Device, Simulation) {
    let model = DriveModel::named(model).unwrap();
    let contents = Contents::Forgotten;
    let (device, simulation) = nandina_simulation::on_drive(SimulationOptions {
        contents,
        governed,
        ..SimulationOptions::of(model)
    });
    simulation.fill_drive();
    (device, simulation)
}

fn profile_of(model: &str) -> DeviceProfile {
    Calibration::quick().run(&simulated(model, true).0, &mut |_| true).unwrap()
}

impl Bed {
    fn new(model: &str, governed: bool) -> Self {
        let (device, simulation) = simulated(model, governed);
        device.set_profile(profile_of(model));
        let file = device.create("file", FileClass::Table).unwrap();
        let contents = device.buffer(1 << 20).freeze();
        for offset in (0..FILE_BYTES).step_by(1 << 20) {
            file.write_blocking(offset, contents.clone()).unwrap();
        }
        file.sync().unwrap();
        simulation.pass(Duration::from_secs(1));
        let step = Duration::from_micros(if model == "disk" { 50 } else { 1 });
        Self { device, simulation, file, step }
    }

    /// Lets readers go on for a span of virtual time.
    fn run(&self, readers: &mut [Reader], span: Duration) {
        let until = self.device.now() + span;
        readers.iter_mut().for_each(|reader| reader.refill(self));
        while self.device.now() < until {
            self.simulation.pass(self.step);
            readers.iter_mut().for_each(|reader| reader.answer(self));
        }
    }

    /// Lets time go by until a batch has ended.
    fn finish(&self, mut readers: Vec<Reader>) {
        for reader in &mut readers {
            while reader.window.next_blocking().is_some() {}
        }
    }

    fn granted(&self) -> usize {
        self.device.granted_depth(FlowId::unique(), PAGE)
    }
}

/// One query: reads at random places, so many at a time.
struct Reader {
    account: Arc<IoAccount>,
    window: Batch,
    depth: usize,
    bytes: usize,
    random: u64,
    submitted: HashMap<usize, Instant>,
    /// Since submission, of those that have ended, in microseconds.
    latencies: Vec<f64>,
}

impl Reader {
    fn new(bed: &Bed, priority: Priority, depth: usize, bytes: usize) -> Self {
        static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let seed = SEED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let account = IoAccount::of_flow(FlowId::unique(), priority);
        Self {
            window: bed.device.batch(Some(&account)),
            account,
            depth,
            bytes,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            submitted: HashMap::new(),
            latencies: Vec::new(),
        }
    }

    fn scan(bed: &Bed, depth: usize) -> Self {
        Self::new(bed, Priority::Scan, depth, PAGE)
    }

    fn refill(&mut self, bed: &Bed) {
        let mut requests = Vec::new();
        for _ in self.submitted.len()..self.depth {
            // xorshift
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let offset = self.random % (FILE_BYTES / self.bytes as u64) * self.bytes as u64;
            requests.push((bed.file.clone(), Request::read(offset, bed.device.buffer(self.bytes))));
        }
        if !requests.is_empty() {
            let indices = self.window.add(requests);
            let now = bed.device.now();
            self.submitted.extend(indices.map(|index| (index, now)));
        }
    }

    fn answer(&mut self, bed: &Bed) {
        while let Some(ended) = self.window.try_next() {
            let since = self.submitted.remove(&ended.unwrap().0).unwrap();
            self.latencies.push((bed.device.now() - since).as_secs_f64() * 1e6);
        }
        self.refill(bed);
    }

    fn ended(&self) -> f64 {
        self.latencies.len() as f64
    }

    fn p99(&self) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() * 99).div_ceil(100) - 1]
    }
}

fn forget(readers: &mut [Reader]) {
    readers.iter_mut().for_each(|reader| reader.latencies.clear());
}

#[test]
fn the_device_has_what_is_useful_and_loses_nothing_by_it() {
    // 2 × the useful depth, or 32 where an arm may choose; 256 is what the device is opened for.
    for (model, useful, most, span) in
        [("nvme", 256, 256, 20), ("p300", 8, 16, 60), ("sata-ssd", 16, 32, 60), ("disk", 32, 32, 20_000)]
    {
        let span = Duration::from_millis(span);
        let rate = |governed: bool, streams: usize| {
            let bed = Bed::new(model, governed);
            assert!(bed.device.sizes().small_read_depth <= useful, "{model}: {:?}", bed.device.sizes());
            let mut readers: Vec<Reader> = (0..streams).map(|_| Reader::scan(&bed, 32)).collect();
            bed.run(&mut readers, span);
            let peak = bed.device.counters().total().peak_in_flight;
            (readers.iter().map(Reader::ended).sum::<f64>(), peak)
        };
        for streams in [1, 4, 16] {
            let (ungoverned, all) = rate(false, streams);
            let (governed, peak) = rate(true, streams);
            assert_eq!(all, 256.min(32 * streams as u64), "{model}");
            assert!(peak <= most, "{model}: {peak} at the device");
            assert!(governed >= 0.95 * ungoverned, "{model}, {streams} streams: {governed} of {ungoverned}");
        }
    }
}

#[test]
fn large_and_small_requests_share_one_budget() {
    let bed = Bed::new("p300", true);
    let small = Reader::scan(&bed, 64);
    let large = Reader::new(&bed, Priority::Scan, 64, LARGE);
    let mut readers = [small, large];
    let mut both = 0;
    for _ in 0..3000 {
        bed.run(&mut readers, Duration::from_micros(20));
        let [small, large] = [0, 1].map(|at: usize| readers[at].account.statistics().in_flight);
        // A small one is 1 in 16, a large one 1 in 4.
        assert!(small + 4 * large <= 16, "{small} small and {large} large");
        both += u64::from(small > 0 && large > 0);
    }
    assert!(both > 2000, "at the device together in {both} of 3000 moments");
    let [small, large] = readers.each_ref().map(Reader::ended);
    assert!(small > 300.0 && large > 50.0, "{small} small and {large} large ones in 60 ms");
}

#[test]
fn equal_flows_have_equal_shares_whatever_they_ask_for() {
    let bed = Bed::new("p300", true);
    let mut readers = [256, 64, 8].map(|depth| Reader::scan(&bed, depth));
    bed.run(&mut readers, Duration::from_millis(20));
    forget(&mut readers);
    bed.run(&mut readers, Duration::from_millis(200));
    let counts = readers.each_ref().map(Reader::ended);
    let mean = counts.iter().sum::<f64>() / 3.0;
    assert!(mean > 3000.0);
    assert!(counts.iter().all(|count| (count / mean - 1.0).abs() < 0.03), "{counts:?}");
}

#[test]
fn point_reads_come_before_scans_and_background_goes_on() {
    // How much longer than alone 99 of 100 point reads take at most, and what part of that without a governor.
    for (model, span, longer, part) in [("nvme", 30, 5.0, 0.7), ("p300", 200, 3.0, 0.1)] {
        let span = Duration::from_millis(span);
        let bed = Bed::new(model, true);
        let mut alone = [Reader::new(&bed, Priority::Point, 1, PAGE)];
        bed.run(&mut alone, span);
        let busy = |bed: &Bed| {
            let mut readers = vec![Reader::new(bed, Priority::Point, 1, PAGE)];
            readers.push(Reader::new(bed, Priority::Background, 32, PAGE));
            readers.extend((0..8).map(|_| Reader::scan(bed, 32)));
            bed.run(&mut readers, span / 10);
            forget(&mut readers);
            bed.run(&mut readers, span);
            readers
        };
        let governed = busy(&bed);
        let (point, background, scans) = (&governed[0], &governed[1], &governed[2..]);
        assert!(
            point.p99() < longer * alone[0].p99(),
            "{model}: {} µs, alone {}",
            point.p99(),
            alone[0].p99()
        );
        assert!(scans.iter().all(|scan| point.p99() < scan.p99()), "{model}");
        // By weight an eighth of a scan each.
        let mean = scans.iter().map(Reader::ended).sum::<f64>() / 8.0;
        let share = background.ended() / mean;
        assert!((0.10..0.16).contains(&share), "{model}: {} and {mean}", background.ended());
        let ungoverned = busy(&Bed::new(model, false));
        assert!(point.p99() < part * ungoverned[0].p99(), "{model}: {} µs", ungoverned[0].p99());
    }
}

#[test]
fn who_comes_late_has_a_share_at_once_and_leaves_it_to_the_others() {
    let bed = Bed::new("p300", true);
    let mut readers = vec![Reader::scan(&bed, 200), Reader::scan(&bed, 200)];
    bed.run(&mut readers, Duration::from_millis(50));
    let share =
        |readers: &[Reader], at: usize| readers[at].ended() / readers.iter().map(Reader::ended).sum::<f64>();
    assert!((share(&readers, 0) - 0.5).abs() < 0.02);
    assert_eq!(bed.granted(), 6 + 6 / 4 + 1, "a third of 16, and two that wait");

    readers.push(Reader::scan(&bed, 200));
    forget(&mut readers);
    // 300 requests, of which 16 were at the device before.
    bed.run(&mut readers, Duration::from_millis(5));
    assert!((share(&readers, 2) - 0.33).abs() < 0.05, "{}", share(&readers, 2));

    drop(readers.remove(0));
    bed.run(&mut readers, Duration::from_millis(1));
    forget(&mut readers);
    bed.run(&mut readers, Duration::from_millis(20));
    assert!((share(&readers, 1) - 0.5).abs() < 0.03, "{}", share(&readers, 1));
    let rate = readers.iter().map(Reader::ended).sum::<f64>() / 0.02;
    assert!(rate > 57_000.0, "the whole device is theirs: {rate} a second");
}

#[test]
fn a_stream_that_keeps_what_it_is_granted_loses_nothing() {
    let bed = Bed::new("p300", true);
    let mut readers: Vec<Reader> = (0..4).map(|_| Reader::scan(&bed, 1)).collect();
    for round in 0..20_000 {
        if round == 2000 {
            forget(&mut readers);
        }
        for reader in &mut readers {
            reader.depth = bed.device.granted_depth(reader.account.flow(), PAGE);
        }
        bed.run(&mut readers, Duration::from_micros(5));
    }
    let counts: Vec<f64> = readers.iter().map(Reader::ended).collect();
    let sum: f64 = counts.iter().sum();
    assert!(sum / 0.09 > 0.95 * 59_800.0, "{} a second", sum / 0.09);
    assert!(counts.iter().all(|count| (4.0 * count / sum - 1.0).abs() < 0.05), "{counts:?}");
    // 24 outstanding of 16 that are useful, not 4 × 32.
    let outstanding: usize = readers.iter().map(|reader| reader.submitted.len()).sum();
    assert!((16..=28).contains(&outstanding), "{outstanding}");
    assert!(readers.iter().all(|reader| reader.p99() < 700.0), "{}", readers[0].p99());
}

#[test]
fn a_dropped_batch_gives_back_what_waited() {
    let bed = Bed::new("p300", true);
    let alone = bed.granted();
    assert_eq!(alone, 16 + 16 / 4 + 1);
    let before = bed.simulation.drive_figures().read_commands;
    let mut greedy = Reader::scan(&bed, 5000);
    greedy.refill(&bed);
    let mut other = [Reader::scan(&bed, 32)];
    bed.run(&mut other, Duration::from_millis(10));
    assert!(bed.granted() < alone / 2 + 2, "{} beside two others", bed.granted());
    let account = Arc::clone(&greedy.account);
    drop(greedy);
    // 16 at the device, and half of the 600 that were served.
    bed.run(&mut other, Duration::from_millis(2));
    assert_eq!(account.statistics().in_flight, 0);
    assert!(account.statistics().requests() < 360, "{}", account.statistics().requests());
    // What it has not had, it has not used up: it is served like the other from now on.
    let mut again = Reader::scan(&bed, 32);
    again.window = bed.device.batch(Some(&account));
    let mut both = [other.into_iter().next().unwrap(), again];
    forget(&mut both);
    bed.run(&mut both, Duration::from_millis(10));
    let [one, two] = both.each_ref().map(Reader::ended);
    assert!((one / two - 1.0).abs() < 0.06, "{one} and {two}");

    bed.finish(both.into());
    assert_eq!(bed.device.counters().total().in_flight, 0);
    bed.simulation.pass(Duration::from_millis(20));
    assert_eq!(bed.granted(), alone);
    let commands = bed.simulation.drive_figures().read_commands - before;
    assert!(commands < 2000, "{commands} of 5000 requests that nobody wanted");
}

#[test]
fn a_request_larger_than_the_budget_gets_through() {
    let bed = Bed::new("p300", true);
    let mut readers: Vec<Reader> = (0..4).map(|_| Reader::scan(&bed, 64)).collect();
    bed.run(&mut readers, Duration::from_millis(5));
    let mut large = bed.file.submit(vec![Request::read(0, bed.device.buffer(FILE_BYTES as usize))]);
    let mut waited = 0;
    let read = loop {
        bed.run(&mut readers, Duration::from_millis(1));
        waited += 1;
        assert!(waited < 2000, "still waiting");
        if let Some(read) = large.try_next() {
            break read.unwrap().1;
        }
    };
    assert_eq!(read.bytes(), FILE_BYTES);
    // 64 MiB take 180 ms alone.
    assert!((170..1500).contains(&waited), "{waited} ms");
}

#[test]
fn ungoverned_devices_serve_in_the_order_of_submission() {
    let bed = Bed::new("p300", false);
    assert_eq!(bed.granted(), 256);
    let mut greedy = Reader::scan(&bed, 2000);
    greedy.refill(&bed);
    let mut point = Reader::new(&bed, Priority::Point, 1, PAGE);
    point.refill(&bed);
    assert_eq!(bed.device.counters().total().in_flight, 256);
    while point.window.try_next().is_none() {
        bed.simulation.pass(bed.step);
    }
    let before = greedy.account.statistics().requests();
    assert!((1960..=2000).contains(&before), "{before} of 2000 had come before");
}

/// What waits for a seat is seated by whatever ends, whoever looks after the ring then: threads that block on one read,
/// on windows, tasks, and batches that are dropped, all at once on a device with four seats.
#[test]
fn nobody_is_forgotten_on_real_devices_with_few_seats() {
    let disk = profile_of("cloud-volume");
    for setup in real_devices(&DeviceOptions::default()) {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, device.buffer(4 << 20)).unwrap();
        device.set_profile(disk.clone());
        let ended: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..24u64)
                .map(|kind| {
                    scope.spawn({
                        let file = &file;
                        move || work(device, file, kind)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(ended, 24 * 400, "{}", setup.name);
        let mut left = 0;
        while device.counters().total().in_flight > 0 {
            std::thread::sleep(Duration::from_millis(1));
            left += 1;
            assert!(left < 10_000, "{}: requests stay at the device", setup.name);
        }
        std::thread::sleep(Duration::from_millis(15));
        assert_eq!(device.granted_depth(FlowId::unique(), PAGE), 6, "{}: 4, and 2 that wait", setup.name);
    }
}

/// Reads 400 pages; how many have come.
fn work(device: &Device, file: &File, kind: u64) -> u64 {
    let priority = [Priority::Scan, Priority::Point, Priority::Background][(kind % 3) as usize];
    let account = IoAccount::of_flow(FlowId::unique(), priority);
    let request = |at: u64| {
        let bytes = if at.is_multiple_of(7) { 64 << 10 } else { PAGE };
        (file.clone(), Request::read((at * 37 + kind) % 48 * (64 << 10), device.buffer(bytes)))
    };
    let mut ended = 0;
    let mut at = 0;
    while ended < 400 {
        match kind % 4 {
            // One after the other, in the thread itself.
            0 => {
                ended += (file.read_blocking(at % 1000 * PAGE as u64, device.buffer(PAGE)).unwrap().len()
                    / PAGE) as u64;
            }
            1 => {
                let batch = device.submit_many((0..10).map(|of| request(at + of)).collect(), Some(&account));
                ended += batch.wait().unwrap().len() as u64;
            }
            2 => {
                let batch = device.submit_many((0..8).map(|of| request(at + of)).collect(), Some(&account));
                ended += futures::executor::block_on(batch.wait_async()).unwrap().len() as u64;
            }
            // Takes two, and wants the others no longer.
            _ => {
                let mut batch =
                    device.submit_many((0..20).map(|of| request(at + of)).collect(), Some(&account));
                for _ in 0..2 {
                    batch.next_blocking().unwrap().unwrap();
                    ended += 1;
                }
            }
        }
        at += 10;
    }
    ended
}
