//! `partitioning.json`, `partitioning.md`, `partitioning.svg` and `write-bandwidth.svg`.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::allocation::{RingShape, Unit};
use super::device_grid::{DeviceGrid, megabytes};
use super::trial::Trial;
use crate::error::Result;
use crate::machine::Machine;
use crate::plot::{self, Panel, Series};
use crate::table::Table;
use crate::{quantity, runner};

const JSON_NAME: &str = "partitioning.json";

/// Which of the paper's experiments a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Experiment {
    /// A fixed number of partitions, and a fixed input buffer beside the memory of the output buffers.
    Fixed,
    /// Both buffers and the number of partitions as a Grace join would have them.
    Grace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub experiment: Experiment,
    pub unit: Unit,
    pub partitions: usize,
    /// Fixed: of the output buffers; Grace: of the input buffer too.
    pub memory_bytes: u64,
    /// Memory of one partition.
    pub output_bytes: usize,
    pub input_bytes: usize,
}

/// One algorithm in one setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    #[serde(flatten)]
    pub setting: Setting,
    pub algorithm: String,
    pub ring: RingShape,
    pub trials: Vec<Trial>,
    /// How many times faster than the classic algorithm.
    pub speed_up: Option<f64>,
}

impl Measured {
    /// Whether the same work was measured: settings may differ in memory that the algorithm does not use.
    pub fn is_same_work(&self, other: &Measured) -> bool {
        let work = |measured: &Measured| {
            let setting = measured.setting;
            (measured.algorithm.clone(), setting.unit, setting.partitions, setting.input_bytes, measured.ring)
        };
        self.setting != other.setting && work(self) == work(other)
    }

    /// The median over the rounds of the classic algorithm's time divided by this one's in the same round; of
    /// trials that did not take turns, or not equally often, the ratio of the medians.
    pub fn speed_up_over(&self, classic: &Measured, took_turns: bool) -> Option<f64> {
        if took_turns && self.trials.len() == classic.trials.len() {
            let rounds = classic.trials.iter().zip(&self.trials);
            return quantity::median(rounds.map(|(classic, this)| classic.elapsed_s / this.elapsed_s));
        }
        Some(classic.median()?.elapsed_s / self.median()?.elapsed_s)
    }

    /// The trial whose time is the median.
    pub fn median(&self) -> Option<&Trial> {
        let elapsed = quantity::median(self.trials.iter().map(|trial| trial.elapsed_s))?;
        self.trials.iter().find(|trial| trial.elapsed_s == elapsed)
    }
}

/// Everything that is published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Study {
    pub machine: Machine,
    pub command: String,
    pub scale: f64,
    pub input_bytes: u64,
    pub grid: DeviceGrid,
    pub blocked_bytes: usize,
    pub fudge: f64,
    pub measured: Vec<Measured>,
    /// Settings that leave too little memory, and why.
    pub skipped: Vec<String>,
}

impl Study {
    /// What an earlier call left in `folder`, if anything.
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        runner::read_json(&folder.join(JSON_NAME))
    }

    pub fn save(&self, folder: &Path) -> Result<()> {
        runner::write_json(&folder.join(JSON_NAME), self)
    }

    /// Whether a setting has been measured, or skipped, with all algorithms.
    pub fn has(&self, setting: &Setting) -> bool {
        self.measured.iter().any(|measured| measured.setting == *setting)
    }

    /// Adds measurements of a setting in place of earlier ones.
    pub fn put(&mut self, setting: &Setting, measured: Vec<Measured>) {
        self.measured.retain(|old| old.setting != *setting);
        self.measured.extend(measured);
    }

    /// Notes a setting that cannot be measured.
    pub fn skip(&mut self, note: String) {
        println!("skipped: {note}");
        if !self.skipped.contains(&note) {
            self.skipped.push(note);
        }
    }

    /// Least time in which the device takes the bytes that were written.
    fn bound_s(&self, written_bytes: u64) -> f64 {
        written_bytes as f64 / self.grid.sustained_bytes_per_second
    }

    fn of(&self, experiment: Experiment, unit: Unit) -> Vec<&Measured> {
        let wanted =
            |measured: &&Measured| (measured.setting.experiment, measured.setting.unit) == (experiment, unit);
        let mut found: Vec<&Measured> = self.measured.iter().filter(wanted).collect();
        found.sort_by_key(|measured| (measured.setting.partitions, measured.setting.memory_bytes));
        if experiment == Experiment::Grace {
            found.sort_by_key(|measured| measured.setting.memory_bytes);
        }
        found
    }

    /// One line per algorithm and setting.
    pub fn table(&self, experiment: Experiment, unit: Unit) -> Table {
        let header = [
            "algorithm",
            "partitions",
            "memory",
            "ring",
            "sub-buffer",
            "elapsed (s)",
            "CPU (s)",
            "read (s)",
            "write (s)",
            "requests",
            "depth",
            "speed-up",
            "bound (s)",
        ];
        let mut table = Table::new(1, header);
        for measured in self.of(experiment, unit) {
            table.row(self.cells(measured));
        }
        table
    }

    fn cells(&self, measured: &Measured) -> Vec<String> {
        let Some(trial) = measured.median() else { return vec![measured.algorithm.clone()] };
        vec![
            measured.algorithm.clone(),
            measured.setting.partitions.to_string(),
            quantity::bytes(measured.setting.memory_bytes),
            quantity::bytes(measured.ring.bytes() as u64),
            quantity::bytes(measured.ring.sub_buffer_bytes as u64),
            format!("{:.2}", trial.elapsed_s),
            format!("{:.2}", trial.cpu_s),
            format!("{:.2}", trial.read_s),
            format!("{:.2}", trial.write_s),
            trial.write_requests.to_string(),
            format!("{:.1}", trial.mean_queue_depth),
            measured.speed_up.map_or(String::new(), |speed_up| format!("{speed_up:.2}")),
            format!("{:.2}", self.bound_s(trial.written_bytes)),
        ]
    }

    /// The terminal's line for what was just measured.
    pub fn line(&self, measured: &Measured) -> String {
        let cells = self.cells(measured);
        let widths = [18, 4, 7, 8, 7, 6, 6, 5, 5, 7, 6, 5, 5];
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
        padded.collect::<Vec<_>>().join(" ")
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        self.save(folder)?;
        runner::write(&folder.join("partitioning.md"), self.markdown())?;
        let grid = folder.join("write-bandwidth.svg");
        plot::write_svg(&grid, "Psync writes: bandwidth by I/O size", &[self.grid_panel()], 1)?;
        let title = format!("Partitioning ORDERS at scale {} by O_CUSTKEY", self.scale);
        plot::write_svg(&folder.join("partitioning.svg"), &title, &self.panels(), 2)
    }

    fn markdown(&self) -> String {
        let mut text = String::from("# Hash partitioning: classic, N-Hash, overlapped N-Hash\n\n");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "The experiments of Shin et al., *Optimizing Hash Partitioning for Solid State Drives*, SAC 2016, \
             sections 2.4 and 4.2 to 4.4: TPC-H `ORDERS` at scale {} ({} of PAX pages) is read by direct I/O and \
             partitioned by `O_CUSTKEY`, on one thread.\n\nMade by\n\n```sh\n{}\n```\n\non {}\n\n\
             - *elapsed*, of the median trial; algorithms took turns, *speed-up* is the median of classic ÷ this \
             over the rounds. Trials of many seconds were not repeated, and page-sized classic writing, which \
             has one page per partition whatever the memory, was measured once per number of partitions; there \
             it is the ratio of the medians.\n\
             - *read* is the time spent waiting for the input, *write* the time with at least one write in \
             flight; with overlapped N-Hash both go on while rows are being scattered.\n\
             - *ring* is the memory of one partition. Writes in flight count as memory, so overlapped N-Hash has \
             two thirds as large rings.\n\
             - *depth* is the mean number of outstanding writes over that time; *bound* is bytes written ÷ the \
             device's sustained write bandwidth, {} MB/s.\n\
             - Blocked writes use sub-buffers of {}, the smallest I/O that reaches 95 % of that bandwidth, or \
             less where a ring would have only one. A page-sized write is one page of 8 KB.\n\n\
             ![elapsed time by memory](partitioning.svg)\n",
            self.scale,
            quantity::bytes(self.input_bytes),
            self.command,
            self.machine.describe(),
            megabytes(self.grid.sustained_bytes_per_second),
            quantity::bytes(self.blocked_bytes as u64),
        );
        let _ = writeln!(
            text,
            "## Write bandwidth\n\nMB/s over I/O size and outstanding level; random offsets, all submitted at \
             once and awaited (Psync), for a quarter of a second: more than the sustained {} MB/s is a burst.\n\n\
             {}\n![write bandwidth by I/O size](write-bandwidth.svg)\n",
            megabytes(self.grid.sustained_bytes_per_second),
            self.grid.table().to_markdown()
        );
        let fixed = "the output buffers share the memory, the input buffer has 4 MB beside it";
        let grace = format!("B, O and I by Haas et al. with |R| = the input's bytes and F = {}", self.fudge);
        for (experiment, title, said) in
            [(Experiment::Fixed, "Fixed partitions", fixed), (Experiment::Grace, "Grace join", &grace)]
        {
            for unit in Unit::ALL {
                let table = self.table(experiment, unit);
                if !table.is_empty() {
                    let _ = writeln!(
                        text,
                        "## {title}, {} writes\n\n{said}.\n\n{}",
                        unit.name(),
                        table.to_markdown()
                    );
                }
            }
        }
        if !self.skipped.is_empty() {
            let _ = writeln!(text, "## Skipped\n\n- {}", self.skipped.join("\n- "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    fn panels(&self) -> Vec<Panel> {
        let mut panels = Vec::new();
        let mut partitions: Vec<usize> = self
            .measured
            .iter()
            .filter(|measured| measured.setting.experiment == Experiment::Fixed)
            .map(|measured| measured.setting.partitions)
            .collect();
        partitions.sort_unstable();
        partitions.dedup();
        for unit in Unit::ALL {
            let grace = self.of(Experiment::Grace, unit);
            panels.extend(self.panel(format!("Grace join's buffers, {} writes", unit.name()), &grace));
        }
        for count in partitions {
            for unit in Unit::ALL {
                let fixed: Vec<&Measured> = self.of(Experiment::Fixed, unit);
                let these: Vec<&Measured> =
                    fixed.into_iter().filter(|measured| measured.setting.partitions == count).collect();
                panels.extend(self.panel(format!("{count} partitions, {} writes", unit.name()), &these));
            }
        }
        panels
    }

    fn grid_panel(&self) -> Panel {
        let sizes = self.grid.sizes();
        let series =
            self.grid.levels().into_iter().filter(|level| [1, 4, 16, 64, 256].contains(level)).map(|level| {
                let values = sizes.iter().map(|size| Some(self.grid.at(*size, level)? / f64::from(1 << 20)));
                Series::new(level.to_string(), values.collect())
            });
        Panel {
            title: "outstanding writes".to_owned(),
            x_label: "I/O size".to_owned(),
            y_label: "MB/s".to_owned(),
            categories: sizes.iter().map(|size| quantity::bytes(*size as u64)).collect(),
            series: series.collect(),
            bound: Some(self.grid.sustained_bytes_per_second / f64::from(1 << 20)),
            is_logarithmic: true,
        }
    }

    fn panel(&self, title: String, measured: &[&Measured]) -> Option<Panel> {
        let mut memories: Vec<u64> = measured.iter().map(|measured| measured.setting.memory_bytes).collect();
        memories.dedup();
        let mut algorithms: Vec<&str> = Vec::new();
        for measured in measured {
            if !algorithms.contains(&measured.algorithm.as_str()) {
                algorithms.push(&measured.algorithm);
            }
        }
        let value = |algorithm: &str, memory: u64| {
            let found =
                measured.iter().find(|m| m.algorithm == algorithm && m.setting.memory_bytes == memory);
            found.and_then(|measured| measured.median()).map(|trial| trial.elapsed_s)
        };
        let series = algorithms.iter().map(|algorithm| {
            Series::new(*algorithm, memories.iter().map(|memory| value(algorithm, *memory)).collect())
        });
        let written =
            quantity::median(measured.iter().filter_map(|m| m.median()).map(|trial| trial.written_bytes))?;
        Some(Panel {
            title,
            x_label: "memory (dashed: bytes written ÷ device bandwidth)".to_owned(),
            y_label: "seconds".to_owned(),
            categories: memories.iter().map(|memory| quantity::bytes(*memory)).collect(),
            series: series.collect(),
            bound: Some(self.bound_s(written)),
            is_logarithmic: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(memory_bytes: u64, elapsed: &[f64]) -> Measured {
        let trial = |elapsed_s: &f64| Trial {
            elapsed_s: *elapsed_s,
            cpu_s: 1.0,
            read_s: 0.5,
            write_s: 0.5,
            write_requests: 10,
            written_bytes: 1 << 20,
            mean_queue_depth: 2.0,
            peak_buffer_bytes: 1,
            rows: 1,
        };
        let setting = Setting {
            experiment: Experiment::Fixed,
            unit: Unit::PageSized,
            partitions: 8,
            memory_bytes,
            output_bytes: 1 << 20,
            input_bytes: 4 << 20,
        };
        let ring = RingShape { sub_buffer_bytes: 8192, sub_buffers: 1 };
        Measured {
            setting,
            algorithm: "classic".into(),
            ring,
            trials: elapsed.iter().map(trial).collect(),
            speed_up: None,
        }
    }

    #[test]
    fn ratios_are_of_rounds_where_contenders_took_turns() {
        let (classic, this) = (measured(1, &[4.0, 9.0, 8.0]), measured(1, &[2.0, 3.0, 4.0]));
        assert_eq!(this.speed_up_over(&classic, true), Some(2.0));
        assert_eq!(this.speed_up_over(&classic, false), Some(8.0 / 3.0));
        assert_eq!(this.speed_up_over(&measured(1, &[9.0]), true), Some(3.0));
        assert_eq!(this.speed_up_over(&measured(1, &[]), true), None);
    }

    #[test]
    fn the_same_work_in_more_memory_is_recognised() {
        assert!(measured(1, &[]).is_same_work(&measured(2, &[])));
        assert!(!measured(1, &[]).is_same_work(&measured(1, &[])), "a setting itself is measured anew");
        let other =
            Measured { ring: RingShape { sub_buffer_bytes: 4096, sub_buffers: 1 }, ..measured(2, &[]) };
        assert!(!measured(1, &[]).is_same_work(&other));
    }

    #[test]
    fn a_study_is_written_and_comes_back() {
        let folder = std::env::temp_dir().join(format!("nandina-study-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(Study::load(&folder).unwrap().is_none());
        let mut study = Study {
            machine: Machine::this(&folder),
            command: "partition_bench".into(),
            scale: 1.0,
            input_bytes: 1 << 30,
            grid: DeviceGrid { sustained_bytes_per_second: f64::from(1 << 20), points: Vec::new() },
            blocked_bytes: 65536,
            fudge: 1.2,
            measured: Vec::new(),
            skipped: Vec::new(),
        };
        let cell = measured(64 << 20, &[3.25]);
        study.put(&cell.setting.clone(), vec![cell.clone()]);
        study.skip("too little".into());
        study.skip("too little".into());
        study.write(&folder).unwrap();
        let loaded = Study::load(&folder).unwrap().unwrap();
        let text = std::fs::read_to_string(folder.join("partitioning.md")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(loaded.has(&cell.setting));
        assert_eq!((loaded.measured.len(), loaded.skipped.len()), (1, 1));
        assert!(text.contains("## Fixed partitions, page-sized writes") && text.contains("- too little"));
        let line = text.lines().find(|line| line.starts_with("| classic")).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(&cells[1..7], ["classic", "8", "64 MiB", "8 KiB", "8 KiB", "3.25"]);
        assert_eq!(cells[13], "1.00", "the bound: 1 MB at 1 MB/s");
    }
}
