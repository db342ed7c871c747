//! One setting, measured once.

use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use nandina_device::Device;
use nandina_simulation::Simulation;
use nandina_spill::{
    Compression, Partition, Partitioner, PartitionerOptions, QuerySpace, Scatter, TempOptions, TempSpace,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::Algorithm;
use super::allocation::{RingShape, Unit};
use super::input::{Input, KEY_COLUMN};
use super::waiting::WaitingPartitioner;
use crate::error::{BenchError, Result};
use crate::machine;

/// What is being partitioned, and where to.
#[derive(Debug)]
pub struct Workbench {
    pub input: Input,
    temp: Arc<TempSpace>,
    device: Device,
    computing: Option<Computing>,
}

/// What computing costs on the machine that a simulated device is part of: virtual time that passes beside its I/O.
#[derive(Debug, Clone)]
pub struct Computing {
    pub simulation: Simulation,
    pub nanos_per_row: u64,
}

impl Computing {
    /// Of the machine of the paper: in its Table 1, the time of 15 million rows beyond reading and writing is 1.4 s.
    pub fn of_the_paper(simulation: Simulation) -> Self {
        Self { simulation, nanos_per_row: 95 }
    }
}

/// How one trial is set up.
#[derive(Debug, Clone, Copy)]
pub struct TrialOptions {
    pub algorithm: Algorithm,
    pub unit: Unit,
    pub partitions: usize,
    pub ring: RingShape,
    pub input_buffer_bytes: usize,
    /// Read everything back, and check that each row is where it belongs.
    pub verify: bool,
}

/// What one trial took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub elapsed_s: f64,
    /// Processor time, of the kernel too.
    pub cpu_s: f64,
    /// Waiting for reads of the input.
    pub read_s: f64,
    /// At least one write was in flight.
    pub write_s: f64,
    pub write_requests: u64,
    pub written_bytes: u64,
    /// Over the time in which a write was in flight.
    pub mean_queue_depth: f64,
    /// The most that the partitioner held at the end of an input page, unused capacity included.
    pub peak_buffer_bytes: u64,
    pub rows: u64,
}

impl Workbench {
    /// `computing` is given for simulated devices.
    pub fn open(device: &Device, scale: f64, computing: Option<Computing>) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            computing,
            input: Input::open(device, scale)?,
            // As in the paper.
            temp: TempSpace::open(
                device.clone(),
                TempOptions { compression: Compression::Off, ..TempOptions::default() },
            )?,
        })
    }

    /// Partitions the whole input.
    pub fn run(&self, options: &TrialOptions) -> Result<Trial> {
        let space = self.temp.query(format!("{:?} {} partitions", options.algorithm, options.partitions));
        let bits = options.partitions.next_power_of_two().ilog2();
        let partitioner_options = PartitionerOptions {
            partition_bits: bits,
            page_bytes: options.ring.sub_buffer_bytes,
            max_page_rows: 1 << 20,
            ring_pages: options.ring.sub_buffers,
            extent_bytes: extent_bytes(&options.ring),
        };
        let (cpu, start) = (machine::processor_seconds(), self.device.now());
        let mut contender = Contender::new(options, self.input.schema(), partitioner_options, &space)?;
        let mut scatter = Scatter::default();
        let mut hashes = Vec::new();
        let (mut rows, mut peak) = (0, 0);
        let waited = self.input.scan(options.input_buffer_bytes, |batch| {
            hash_keys(batch, options.partitions, bits, &mut hashes)?;
            scatter.by_hash(&hashes, bits);
            if let Some(computing) = &self.computing {
                let nanos = computing.nanos_per_row * batch.num_rows() as u64;
                computing.simulation.pass(Duration::from_nanos(nanos));
            }
            contender.push(batch, &scatter)?;
            rows += batch.num_rows() as u64;
            peak = peak.max(contender.memory_bytes() as u64);
            Ok(())
        })?;
        let partitions = contender.finish()?;
        let elapsed_s = (self.device.now() - start).as_secs_f64();
        let writes = space.io().statistics();
        let kept: u64 = partitions.iter().map(|partition| partition.rows).sum();
        if kept != rows {
            return Err(BenchError::Setup(format!("{rows} rows went in, {kept} came out: {options:?}")));
        }
        if options.verify {
            verify(self.input.schema(), partitions, options.partitions, rows)?;
        }
        Ok(Trial {
            elapsed_s,
            cpu_s: machine::processor_seconds() - cpu,
            read_s: waited.as_secs_f64(),
            write_s: writes.busy_nanos as f64 / 1e9,
            write_requests: writes.write_requests,
            written_bytes: writes.bytes_written,
            mean_queue_depth: writes.mean_queue_depth(),
            peak_buffer_bytes: peak,
            rows,
        })
    }
}

/// A partitioner under comparison.
enum Contender {
    Waiting(WaitingPartitioner),
    Overlapped { partitioner: Partitioner, most_in_flight_bytes: usize },
}

impl Contender {
    fn new(
        trial: &TrialOptions,
        schema: &Arc<nandina_pages::PageSchema>,
        options: PartitionerOptions,
        space: &Arc<QuerySpace>,
    ) -> Result<Self> {
        if trial.algorithm != Algorithm::OverlappedNHash {
            let contender = (trial.algorithm, trial.unit);
            return Ok(Self::Waiting(WaitingPartitioner::new(schema, contender, options, space)));
        }
        let partitioner = Partitioner::new(Arc::clone(schema), options, Arc::clone(space));
        for partition in 0..trial.partitions {
            partitioner.spill(partition)?;
        }
        Ok(Self::Overlapped { partitioner, most_in_flight_bytes: trial.partitions * trial.ring.bytes() / 2 })
    }

    fn push(&mut self, batch: &RecordBatch, scatter: &Scatter) -> Result<()> {
        match self {
            Self::Waiting(partitioner) => partitioner.push(batch, scatter),
            Self::Overlapped { partitioner, most_in_flight_bytes } => {
                partitioner.push(batch, scatter)?;
                Ok(partitioner.drain_to_blocking(*most_in_flight_bytes)?)
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Waiting(partitioner) => partitioner.memory_bytes(),
            Self::Overlapped { partitioner, .. } => partitioner.memory_bytes(),
        }
    }

    fn finish(self) -> Result<Vec<Partition>> {
        match self {
            Self::Waiting(partitioner) => partitioner.finish(),
            Self::Overlapped { partitioner, .. } => {
                let partitions = partitioner.finish()?;
                partitioner.drain_to_blocking(0)?;
                Ok(partitions)
            }
        }
    }
}

/// Room for several flushes of a ring, so that the end of an extent seldom splits a write.
fn extent_bytes(ring: &RingShape) -> usize {
    const LEAST: usize = 1 << 20;
    (4 * ring.bytes()).max(LEAST)
}

/// A bijection under which every bit of the input changes half the bits of the output.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The partition of a key, of any number of partitions: the hash as a fraction, times their number.
fn partition_of_key(key: i64, partitions: usize) -> usize {
    ((u128::from(mix(key as u64)) * partitions as u128) >> 64) as usize
}

/// Hashes whose top bits are the partition, as the partitioner counts partitions by bits.
fn hash_keys(batch: &RecordBatch, partitions: usize, bits: u32, hashes: &mut Vec<u64>) -> Result<()> {
    let keys = keys(batch)?;
    let shift = 63 - bits;
    hashes.clear();
    hashes.extend(keys.iter().map(|&key| ((partition_of_key(key, partitions) as u64) << shift) << 1));
    Ok(())
}

fn keys(batch: &RecordBatch) -> Result<&[i64]> {
    let column = batch.column(KEY_COLUMN);
    let Some(keys) = column.as_primitive_opt::<Int64Type>() else {
        return Err(BenchError::Setup(format!("the key is of type {}", column.data_type())));
    };
    Ok(keys.values())
}

/// Reads all partitions back.
fn verify(
    schema: &Arc<nandina_pages::PageSchema>,
    partitions: Vec<Partition>,
    count: usize,
    rows: u64,
) -> Result<()> {
    const WINDOW_BYTES: usize = 4 << 20;
    let mut found = 0;
    for (number, partition) in partitions.into_iter().enumerate() {
        let Some(file) = partition.file else { continue };
        let mut reader = file.read(Arc::clone(schema), WINDOW_BYTES);
        while let Some(page) = reader.next_blocking()? {
            let batch = page.batch(None)?;
            if keys(&batch)?.iter().any(|&key| partition_of_key(key, count) != number) {
                return Err(BenchError::Setup(format!("partition {number} holds a row of another one")));
            }
            found += batch.num_rows() as u64;
        }
    }
    if found == rows {
        Ok(())
    } else {
        Err(BenchError::Setup(format!("{rows} rows were written, {found} came back")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nandina_device::DeviceOptions;

    #[test]
    fn every_algorithm_keeps_every_row_in_its_partition() {
        let folder = std::env::temp_dir().join(format!("nandina-trial-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let device = Device::open(&folder, DeviceOptions::default()).unwrap();
        let bench = Workbench::open(&device, 0.01, None).unwrap();
        for algorithm in Algorithm::ALL {
            for unit in Unit::ALL.into_iter().filter(|unit| algorithm.writes(*unit)) {
                for partitions in [1, 5, 32] {
                    let ring = RingShape::of(algorithm, unit, 24 << 10, 64 << 10).unwrap();
                    let input_buffer_bytes = 256 << 10;
                    let options =
                        TrialOptions { algorithm, unit, partitions, ring, input_buffer_bytes, verify: true };
                    let trial = bench.run(&options).unwrap();
                    assert_eq!(trial.rows, 15_000);
                    assert!(trial.written_bytes > 1_000_000 && trial.write_requests > 0, "{trial:?}");
                    if (algorithm, unit) == (Algorithm::Classic, Unit::PageSized) {
                        assert_eq!(ring.sub_buffers, 1);
                    }
                }
            }
        }
        drop(bench);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
