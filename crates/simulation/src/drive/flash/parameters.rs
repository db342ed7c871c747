//! What a flash drive is made of, and drives that were or are on the market.
//!
//! The drives here export 16 GiB, far less than the real ones: a model keeps a few bytes per sector, and tests fill
//! drives whole. Capacity does not enter any time: that follows from the number of dies and channels, which are those
//! of the real drives. Blocks are smaller than real ones so that a die still has hundreds of them, on which the
//! choice of blocks to clean depends.

use crate::drive::Nanos;

/// Bytes of the unit in which drives map addresses to flash.
pub const SECTOR_BYTES: u64 = 4096;

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;
const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

/// A flash drive's parts and times. Zero where at least one is needed counts as one.
#[derive(Debug, Clone, PartialEq)]
pub struct FlashParameters {
    pub name: String,
    /// What the host can address. Rounded down to whole sectors.
    pub capacity_bytes: u64,
    /// Physical over exported capacity, less 1, from 0 to 0.9. Every die has at least a handful of spare blocks, however small the
    /// drive: [`super::FlashDrive::over_provisioning`] tells what came of it.
    pub over_provisioning: f64,

    pub channels: u32,
    pub dies_per_channel: u32,
    /// What a die senses or programs at once: the page of the data sheet times the planes used together.
    pub flash_page_bytes: u64,
    pub pages_per_block: u32,
    /// Sensing a page in the die.
    pub read_nanos: Nanos,
    /// Programming a page, the mean over the bits of a cell.
    pub program_nanos: Nanos,
    pub erase_nanos: Nanos,
    pub channel_bytes_per_second: u64,
    /// Sense times are this much longer or shorter, uniformly at random: 0.1 for ±10 %.
    pub jitter: f64,

    /// Host pages that are programmed in [`Self::burst_program_nanos`], as in one-bit mode, until they have used this
    /// up. 0 for drives without.
    pub burst_bytes: u64,
    pub burst_program_nanos: Nanos,
    /// How fast `burst_bytes` comes back while nothing is to be written.
    pub burst_recovery_bytes_per_second: u64,

    /// What interface and controller let through together, to the host and from it.
    pub host_read_bytes_per_second: u64,
    pub host_write_bytes_per_second: u64,
    /// Whether both directions share one link, as with SATA.
    pub half_duplex: bool,
    /// Commands the drive takes at once. Further ones wait in the order of their submission.
    pub queue_depth: usize,
    /// Time a controller spends on a read before anything else happens to it.
    pub read_command_nanos: Nanos,
    /// The same for writes and flushes.
    pub write_command_nanos: Nanos,
    /// Commands that can be in that stage at once.
    pub controllers: u32,
    /// What protocol, interrupt and host software add to a read without occupying anything.
    pub read_latency_nanos: Nanos,
    /// The same for writes, flushes and trims.
    pub write_latency_nanos: Nanos,
    /// Whether a read starts to cross the link only when all of it has been collected.
    pub gathers_reads: bool,

    /// Memory for data being written to flash. A write has ended when it is there. 0: when it is in flash.
    pub write_buffer_bytes: u64,
    /// Whether the buffer outlasts a loss of power, so that a flush has nothing to wait for.
    pub power_loss_protection: bool,

    /// Time a trim command keeps a controller, and more for its range.
    pub trim_command_nanos: Nanos,
    pub trim_nanos_per_gibibyte: Nanos,
    /// `false`: a trim waits until the drive has nothing else to do, and everything behind it waits for the trim.
    pub trim_is_queued: bool,

    /// Pages the controller remembers of sequential runs of reads, least recently used given up first.
    pub page_cache_pages: usize,
    /// How far ahead of a sequential run it senses.
    pub read_ahead_bytes: u64,
}

impl FlashParameters {
    pub fn with_capacity_bytes(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    pub fn with_over_provisioning(mut self, over_provisioning: f64) -> Self {
        self.over_provisioning = over_provisioning;
        self
    }

    /// A PCIe drive with one bit per cell, of 2008.
    ///
    /// Times of transfers are fitted to those that "Optimizing Hash Partitioning for Solid State Drives" measured with
    /// libaio and direct I/O: a write of n bytes takes 69 µs + n / 600 MB/s alone, many writes of 4 KiB reach the same
    /// 600 MB/s, and reads reach 780 MB/s. Cell times are those usual for SLC of that time (25 µs, 220 µs, 1.5 ms);
    /// channels and dies are estimates that let these rates through.
    pub fn fusion_io_drive() -> Self {
        Self {
            name: "Fusion ioDrive".into(),
            over_provisioning: 0.25,
            channels: 24,
            dies_per_channel: 4,
            flash_page_bytes: 4096,
            pages_per_block: 64,
            read_nanos: 25 * MICROSECOND,
            program_nanos: 220 * MICROSECOND,
            erase_nanos: 1_500 * MICROSECOND,
            channel_bytes_per_second: 80_000_000,
            host_read_bytes_per_second: 780_000_000,
            host_write_bytes_per_second: 605_000_000,
            queue_depth: 128,
            read_command_nanos: 5 * MICROSECOND,
            write_command_nanos: 5 * MICROSECOND,
            read_latency_nanos: 10 * MICROSECOND,
            write_latency_nanos: 64 * MICROSECOND,
            write_buffer_bytes: 4 * MEBIBYTE,
            power_loss_protection: true,
            ..Self::plain()
        }
    }

    /// A SATA drive for servers with one bit per cell, of 2010.
    ///
    /// Fitted to the same paper's figures: writes take 60 µs + n / 265 MB/s alone and reach 270 MB/s, 35,000 a second
    /// at 4 KiB; reads reach 376 MB/s. Random reads are those of Micron's data sheet, 60,000 a second at depth 32.
    pub fn micron_p300() -> Self {
        Self {
            name: "Micron RealSSD P300".into(),
            over_provisioning: 0.28,
            channels: 8,
            dies_per_channel: 2,
            flash_page_bytes: 8192,
            pages_per_block: 64,
            read_nanos: 25 * MICROSECOND,
            program_nanos: 300 * MICROSECOND,
            erase_nanos: 2 * MILLISECOND,
            channel_bytes_per_second: 166_000_000,
            host_read_bytes_per_second: 376_000_000,
            host_write_bytes_per_second: 267_000_000,
            half_duplex: true,
            queue_depth: 32,
            read_command_nanos: 16_700,
            write_command_nanos: 28_900,
            read_latency_nanos: 13 * MICROSECOND,
            write_latency_nanos: 30 * MICROSECOND,
            write_buffer_bytes: 8 * MEBIBYTE,
            power_loss_protection: true,
            ..Self::plain()
        }
    }

    /// A SATA drive for consumers with two bits per cell (SandForce SF-2281, toggle-mode flash), of 2011.
    ///
    /// Fitted to the same paper's figures: writes take 45 µs + n / 500 MB/s alone, 65,000 a second at 4 KiB; reads
    /// reach 503 MB/s when several are outstanding, but 380 MB/s alone, as if each was collected before it was sent.
    pub fn ocz_vertex3_max_iops() -> Self {
        Self {
            name: "OCZ Vertex 3 MAX IOPS".into(),
            over_provisioning: 0.12,
            channels: 8,
            dies_per_channel: 8,
            flash_page_bytes: 8192,
            pages_per_block: 128,
            read_nanos: 50 * MICROSECOND,
            program_nanos: 900 * MICROSECOND,
            erase_nanos: 3 * MILLISECOND,
            channel_bytes_per_second: 266_000_000,
            host_read_bytes_per_second: 503_000_000,
            host_write_bytes_per_second: 500_000_000,
            half_duplex: true,
            queue_depth: 32,
            read_command_nanos: 15_400,
            write_command_nanos: 15_400,
            read_latency_nanos: 2 * MICROSECOND,
            write_latency_nanos: 29 * MICROSECOND,
            gathers_reads: true,
            write_buffer_bytes: 2 * MEBIBYTE,
            ..Self::plain()
        }
    }

    /// Four SandForce controllers behind one PCIe interface, as the RevoDrive 3 X2 of 2011: advertised with 1.5 GB/s
    /// reading, 1.3 GB/s writing, 230,000 random reads and 140,000 random writes of 4 KiB a second.
    pub fn revo_drive() -> Self {
        Self {
            name: "RevoDrive".into(),
            over_provisioning: 0.12,
            channels: 32,
            dies_per_channel: 4,
            flash_page_bytes: 8192,
            pages_per_block: 64,
            read_nanos: 50 * MICROSECOND,
            program_nanos: 700 * MICROSECOND,
            erase_nanos: 2 * MILLISECOND,
            channel_bytes_per_second: 200_000_000,
            host_read_bytes_per_second: 1_500_000_000,
            host_write_bytes_per_second: 1_300_000_000,
            queue_depth: 128,
            read_command_nanos: 18 * MICROSECOND,
            write_command_nanos: 28_600,
            controllers: 4,
            read_latency_nanos: 2 * MICROSECOND,
            write_latency_nanos: 20 * MICROSECOND,
            write_buffer_bytes: 8 * MEBIBYTE,
            ..Self::plain()
        }
    }

    /// A SATA drive for consumers with three bits per cell, of 2021, after the figures of the Samsung 870 EVO: 560 and
    /// 530 MB/s, 98,000 random reads and 88,000 random writes a second at depth 32, 13,000 and 36,000 at depth 1.
    /// Its parts are estimates that give these.
    pub fn sata_ssd() -> Self {
        Self {
            name: "SATA SSD".into(),
            over_provisioning: 0.10,
            channels: 8,
            dies_per_channel: 4,
            flash_page_bytes: 16384,
            pages_per_block: 64,
            read_nanos: 45 * MICROSECOND,
            program_nanos: 700 * MICROSECOND,
            erase_nanos: MILLISECOND,
            channel_bytes_per_second: 600_000_000,
            host_read_bytes_per_second: 560_000_000,
            host_write_bytes_per_second: 530_000_000,
            half_duplex: true,
            queue_depth: 32,
            read_command_nanos: 10_200,
            write_command_nanos: 11_360,
            read_latency_nanos: 7 * MICROSECOND,
            write_latency_nanos: 9 * MICROSECOND,
            write_buffer_bytes: 16 * MEBIBYTE,
            page_cache_pages: 32,
            read_ahead_bytes: 128 << 10,
            ..Self::plain()
        }
    }

    /// An NVMe drive for consumers with three bits per cell behind four lanes of PCIe 3, of 2019, after the figures of
    /// the Samsung 970 EVO Plus: 3.5 GB/s reading, 3.3 (here 3) writing and 1.7 (here 1.5) when the fast part is used
    /// up, 600,000 random reads a second, here at depth 128. A single read takes 85 µs, as with most drives of the
    /// kind; that one has faster flash. The fast part is scaled down with the capacity; parts are estimates.
    pub fn nvme_ssd() -> Self {
        Self {
            name: "NVMe SSD".into(),
            over_provisioning: 0.10,
            channels: 8,
            dies_per_channel: 8,
            flash_page_bytes: 16384,
            pages_per_block: 64,
            read_nanos: 55 * MICROSECOND,
            program_nanos: 700 * MICROSECOND,
            erase_nanos: MILLISECOND,
            channel_bytes_per_second: 1_200_000_000,
            burst_bytes: GIBIBYTE,
            burst_program_nanos: 200 * MICROSECOND,
            burst_recovery_bytes_per_second: 500_000_000,
            host_read_bytes_per_second: 3_500_000_000,
            host_write_bytes_per_second: 3_000_000_000,
            queue_depth: 1024,
            read_command_nanos: 1_650,
            write_command_nanos: 1_650,
            read_latency_nanos: 24 * MICROSECOND,
            write_latency_nanos: 15 * MICROSECOND,
            write_buffer_bytes: 16 * MEBIBYTE,
            trim_command_nanos: 20 * MICROSECOND,
            trim_nanos_per_gibibyte: 500 * MICROSECOND,
            trim_is_queued: true,
            page_cache_pages: 64,
            read_ahead_bytes: 256 << 10,
            ..Self::plain()
        }
    }

    /// What the drives above have in common. Trims are the old, unqueued kind; reports of their cost differ widely, a
    /// millisecond for a command and a few per gibibyte is in the middle.
    fn plain() -> Self {
        Self {
            name: String::new(),
            capacity_bytes: 16 * GIBIBYTE,
            over_provisioning: 0.0,
            channels: 1,
            dies_per_channel: 1,
            flash_page_bytes: SECTOR_BYTES,
            pages_per_block: 64,
            read_nanos: 0,
            program_nanos: 0,
            erase_nanos: 0,
            channel_bytes_per_second: 0,
            jitter: 0.1,
            burst_bytes: 0,
            burst_program_nanos: 0,
            burst_recovery_bytes_per_second: 0,
            host_read_bytes_per_second: 0,
            host_write_bytes_per_second: 0,
            half_duplex: false,
            queue_depth: 1,
            read_command_nanos: 0,
            write_command_nanos: 0,
            controllers: 1,
            read_latency_nanos: 0,
            write_latency_nanos: 0,
            gathers_reads: false,
            write_buffer_bytes: 0,
            power_loss_protection: false,
            trim_command_nanos: MILLISECOND,
            trim_nanos_per_gibibyte: 5 * MILLISECOND,
            trim_is_queued: false,
            page_cache_pages: 0,
            read_ahead_bytes: 0,
        }
    }
}
