//! Devices and queries to look at and to test with: simulated drives, and queries that nobody ran.

#![allow(dead_code, reason = "every test takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;

use nandina_device::calibration::Calibration;
use nandina_device::profile::{DeviceIdentity, DeviceProfile, ProfileKind, SustainedWrites};
use nandina_report::{PlanNode, QueryReport, Sample};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, SimulationOptions};

/// A moment for everything: 2026-11-21 14:05.
const THEN: u64 = 1_795_269_900;

/// A simulated drive after a full calibration, which is a lot of requests to simulate.
pub fn measured(drive: &str) -> DeviceProfile {
    calibrated(drive, &Calibration::full().with_scratch_bytes(512 << 20))
}

/// An NVMe drive after a quick one; tests share it.
pub fn quickly_measured() -> DeviceProfile {
    static NVME: OnceLock<DeviceProfile> = OnceLock::new();
    NVME.get_or_init(|| calibrated("nvme", &Calibration::quick())).clone()
}

fn calibrated(drive: &str, calibration: &Calibration) -> DeviceProfile {
    let model = DriveModel::named(drive).unwrap();
    let options = SimulationOptions { contents: Contents::Forgotten, ..SimulationOptions::of(model) };
    let (device, _simulation) = nandina_simulation::on_drive(options);
    let profile = calibration.run(&device, &mut |_| true).unwrap();
    DeviceProfile { measured_at: THEN, ..profile }
}

pub fn assumed() -> DeviceProfile {
    DeviceProfile::assumed(DeviceIdentity {
        model: "Fast & \"Furious\" <2000>".to_owned(),
        name: "nvme0n1".to_owned(),
        file_system: "tmpfs".to_owned(),
        ..DeviceIdentity::default()
    })
}

/// An NVMe drive whose write cache gives out.
pub fn with_a_cache_that_gives_out() -> DeviceProfile {
    let mut profile = quickly_measured();
    profile.kind = ProfileKind::Full;
    let ripple = |number: u32| 1.0 + f64::from(number * 7919 % 101) / 2000.0;
    let rates = (0..128).map(|number| if number < 52 { 3.1e9 } else { 1.2e9 } * ripple(number));
    profile.sustained = Some(SustainedWrites::of(64 << 20, rates.collect()));
    profile
}

fn scan(file: &str, rows: u64, scanned_bytes: u64, seconds: f64) -> PlanNode {
    PlanNode {
        name: "DataSourceExec".to_owned(),
        details: format!(
            "file_groups={file}, projection=[o_orderkey, o_custkey, o_totalprice], file_type=nandina"
        ),
        rows,
        compute_seconds: seconds,
        wait_seconds: seconds * 0.7,
        scanned_bytes,
        mean_queue_depth: 14.2,
        peak_memory_bytes: 4 << 20,
        ..PlanNode::default()
    }
}

fn node(name: &str, details: &str, rows: u64, seconds: f64, inputs: Vec<PlanNode>) -> PlanNode {
    PlanNode {
        name: name.to_owned(),
        details: details.to_owned(),
        rows,
        compute_seconds: seconds,
        inputs,
        ..PlanNode::default()
    }
}

/// A join and an aggregation that do not fit in memory.
pub fn spilling_join() -> QueryReport {
    let filter = node(
        "FilterExec",
        "c_mktsegment@1 = BUILDING",
        300_276,
        0.041,
        vec![scan("customer.nan", 1_500_000, 61 << 20, 0.21)],
    );
    let inner = PlanNode {
        peak_memory_bytes: 14 << 20,
        ..node(
            "HashJoinExec",
            "Inner, on=[(c_custkey@0, o_custkey@1)], projection=[o_orderkey@1, o_orderdate@2]",
            1_461_923,
            0.92,
            vec![filter, scan("orders.nan", 15_000_000, 412 << 20, 0.63)],
        )
    };
    let join = PlanNode {
        wait_seconds: 2.9,
        peak_memory_bytes: 61 << 20,
        spilled_bytes: 610 << 20,
        spill_read_bytes: 610 << 20,
        spilled_partitions: 24,
        mean_queue_depth: 31.4,
        ..node(
            "PartitionedHashJoinExec",
            "Inner, on=[(o_orderkey@0, l_orderkey@0)], partitions=64, filter=bloom",
            11_997_996,
            3.21,
            vec![inner, scan("lineitem.nan", 59_986_052, 1_890 << 20, 1.4)],
        )
    };
    let aggregate = PlanNode {
        wait_seconds: 0.4,
        peak_memory_bytes: 38 << 20,
        spilled_bytes: 96 << 20,
        spill_read_bytes: 96 << 20,
        spilled_partitions: 6,
        mean_queue_depth: 12.0,
        ..node(
            "AggregateExec",
            "gby=[l_orderkey, o_orderdate], aggr=[sum(l_extendedprice * (1 − l_discount))]",
            1_131_041,
            1.1,
            vec![join],
        )
    };
    let top = node("SortExec", "TopK(fetch=10), revenue DESC", 10, 0.012, vec![aggregate]);
    QueryReport {
        sql: "SELECT l_orderkey,\n       sum(l_extendedprice * (1 - l_discount)) AS revenue,\n       o_orderdate\n  FROM customer, orders, lineitem\n WHERE c_mktsegment = 'BUILDING'\n   AND c_custkey = o_custkey\n   AND l_orderkey = o_orderkey\n   AND o_totalprice > 100 & l_quantity < 24\n GROUP BY l_orderkey, o_orderdate\n ORDER BY revenue DESC\n LIMIT 10".to_owned(),
        started_at: THEN,
        elapsed_seconds: 6.42,
        memory_limit_bytes: 128 << 20,
        peak_memory_bytes: 119 << 20,
        result_rows: 10,
        plan: node("ProjectionExec", "l_orderkey, revenue, o_orderdate", 10, 0.000_021, vec![top]),
        timeline: phases(64, 6.42, 128 << 20),
        device: Some("Fast 2000 nvme0n1, ext4".to_owned()),
        notes: vec!["The build side of PartitionedHashJoinExec was larger than estimated: 1,461,923 rows instead of 120,000.".to_owned()],
    }
}

/// Reading, spilling, reading back.
fn phases(samples: u32, seconds: f64, limit: u64) -> Vec<Sample> {
    let look = |number: u32| {
        let share = f64::from(number) / f64::from(samples.max(1));
        let ripple = 0.85 + 0.3 * f64::from(number * 7919 % 97) / 97.0;
        let (read, write, depth, temp) = match share {
            ..0.15 => (1.9e9, 0.0, 14.0, 0.0),
            ..0.55 => (1.1e9, 0.42e9, 22.0, (share - 0.15) / 0.4),
            ..0.85 => (1.4e9, 0.03e9, 31.0, 1.0 - (share - 0.55) / 0.6),
            _ => (0.12e9, 0.0, 2.0, 0.4),
        };
        Sample {
            seconds: seconds * share,
            read_bytes_per_second: read * ripple,
            write_bytes_per_second: write * ripple,
            queue_depth: depth * ripple,
            memory_bytes: (limit as f64 * (share * 6.0).min(0.93 - share * 0.2) * ripple.min(1.0)) as u64,
            temp_bytes: (temp * 706.0 * f64::from(1 << 20)) as u64,
        }
    };
    (0..samples).map(look).collect()
}

/// One operator, over before the first look.
pub fn microseconds() -> QueryReport {
    QueryReport {
        sql: "SELECT 1".to_owned(),
        elapsed_seconds: 85e-6,
        result_rows: 1,
        plan: node("PlaceholderRowExec", "", 1, 2e-7, vec![]),
        ..QueryReport::default()
    }
}

/// Two hours, 200 operators, 40,000 looks, everything long.
pub fn hours() -> QueryReport {
    let mut plan = scan("part-0000.nan", 60_000_000_000, 9 << 40, 4000.0);
    for number in 0..99_u32 {
        let name = format!("RepartitioningPartitionedHashJoinExecNumber{number}");
        let words = "very_long_column_name_without_any_space_in_it_".repeat(6);
        let other =
            scan(&format!("schnäppchen-{number}-日本語.nan"), 1_000_000, 3 << 30, 7.0 * f64::from(number));
        plan = PlanNode {
            wait_seconds: 30.0 * f64::from(number),
            peak_memory_bytes: u64::from(number) << 24,
            spilled_bytes: u64::from(number) << 32,
            ..node(&name, &words, 12_000_000_000, 11.0 * f64::from(number), vec![plan, other])
        };
    }
    plan = node("SortExec", "everything", 12_000_000_000, 800.0, vec![plan]);
    QueryReport {
        sql: "SELECT * FROM a, b WHERE a.x = b.y AND name <> '</script><script>alert(1)</script>' -- Grüße\n"
            .repeat(40),
        started_at: THEN,
        elapsed_seconds: 7543.0,
        memory_limit_bytes: 64 << 30,
        peak_memory_bytes: 2 << 30,
        result_rows: 12_000_000_000,
        plan,
        timeline: phases(40_000, 7543.0, 2 << 30),
        device: Some("x".repeat(300)),
        notes: Vec::new(),
    }
}
