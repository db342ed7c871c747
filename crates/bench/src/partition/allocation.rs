//! How much memory each partition gets, and how it is cut into sub-buffers.

use nandina_device::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use super::Algorithm;

/// The page of systems that write page by page, and the unit in which the formulas allocate.
pub const PAGE_BYTES: usize = 8 << 10;

/// What one request covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Blocked,
    PageSized,
}

impl Unit {
    pub const ALL: [Unit; 2] = [Unit::Blocked, Unit::PageSized];

    pub fn name(self) -> &'static str {
        match self {
            Unit::Blocked => "blocked",
            Unit::PageSized => "page-sized",
        }
    }
}

/// The ring of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingShape {
    pub sub_buffer_bytes: usize,
    pub sub_buffers: usize,
}

impl RingShape {
    /// Cuts `budget_bytes`, all the memory of one partition, into sub-buffers; `None` where that is too little.
    ///
    /// Blocked: sub-buffers of `blocked_bytes`, the smallest I/O that reaches the device's bandwidth, or
    /// smaller where the ring would have fewer than two (section 3: an outstanding level of one is what must
    /// be avoided). Page-sized: pages of [`PAGE_BYTES`]. The classic algorithm has one output buffer: of the
    /// whole budget, written by one request; page-sized, of one page, whatever the budget (section 4.4).
    ///
    /// Writes in flight count too: the overlapped algorithm keeps up to half a ring of them, so its ring is
    /// two thirds of the budget. As it does not wait, one sub-buffer is enough for it.
    pub fn of(algorithm: Algorithm, unit: Unit, budget_bytes: usize, blocked_bytes: usize) -> Option<Self> {
        let (ring_bytes, fewest) = match algorithm {
            Algorithm::Classic => (budget_bytes, 1),
            Algorithm::NHash => (budget_bytes, 2),
            Algorithm::OverlappedNHash => (budget_bytes / 3 * 2, 1),
        };
        let wanted = match unit {
            Unit::Blocked => blocked_bytes,
            Unit::PageSized => PAGE_BYTES,
        };
        // The classic algorithm's buffer is encoded in the same pieces as its competitors', two at least.
        let pieces = if algorithm == Algorithm::Classic && unit == Unit::PageSized { 1 } else { 2 };
        let mut sub_buffer_bytes = wanted;
        while ring_bytes / sub_buffer_bytes < pieces && sub_buffer_bytes > BLOCK_BYTES {
            sub_buffer_bytes = (sub_buffer_bytes / 2).next_multiple_of(BLOCK_BYTES);
        }
        let sub_buffers = match (algorithm, unit) {
            (Algorithm::Classic, Unit::PageSized) => (ring_bytes / sub_buffer_bytes).min(1),
            _ => ring_bytes / sub_buffer_bytes,
        };
        (sub_buffers >= fewest).then_some(Self { sub_buffer_bytes, sub_buffers })
    }

    pub fn bytes(&self) -> usize {
        self.sub_buffer_bytes * self.sub_buffers
    }
}

/// Buffers of a Grace join's partitioning phase (section 4.3, equations 1 to 3, after Haas et al.).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraceAllocation {
    /// B
    pub partitions: usize,
    /// O, the memory of one partition
    pub output_bytes: usize,
    /// I
    pub input_bytes: usize,
}

impl GraceAllocation {
    /// For a build side of `relation_bytes` (|R|), `memory_bytes` (M), and fudge factor F. As in the paper's
    /// Table 1, O is a whole number of pages; what that leaves over goes to the input buffer.
    pub fn of(relation_bytes: u64, memory_bytes: u64, fudge: f64) -> Self {
        let (relation, memory) = (relation_bytes as f64 * fudge, memory_bytes as f64);
        let partitions =
            ((relation + (relation * relation + 4.0 * memory * relation).sqrt()) / (2.0 * memory)).ceil();
        let partitions = (partitions as usize).max(1);
        let memory = memory_bytes as usize;
        let output_bytes = memory / (partitions + 1) / PAGE_BYTES * PAGE_BYTES;
        Self { partitions, output_bytes, input_bytes: memory - partitions * output_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn the_papers_table_comes_out() {
        // |R|·F = 2.53 GB gives the partitions of Table 1: 517, 259, 130, 87, 53, 27, 14.
        let of = |memory: u64| GraceAllocation::of(2_701_000_000, memory << 20, 1.0);
        let found: Vec<usize> = [5, 10, 20, 30, 50, 100, 200].map(|memory| of(memory).partitions).to_vec();
        assert_eq!(found, [517, 259, 130, 87, 53, 27, 14]);
        let small = of(5);
        assert_eq!((small.output_bytes, small.input_bytes), (8 * KIB, 5120 * KIB - 517 * 8 * KIB));
        let middle = of(20);
        assert_eq!((middle.output_bytes, middle.input_bytes), (152 * KIB, 20480 * KIB - 130 * 152 * KIB));
    }

    #[test]
    fn rings_have_two_sub_buffers_where_waiting_depends_on_it() {
        let of = |algorithm, unit, budget| RingShape::of(algorithm, unit, budget, 64 * KIB);
        let shape = |sub_buffer_bytes, sub_buffers| Some(RingShape { sub_buffer_bytes, sub_buffers });
        assert_eq!(of(Algorithm::NHash, Unit::Blocked, 1024 * KIB), shape(64 * KIB, 16));
        assert_eq!(of(Algorithm::NHash, Unit::Blocked, 64 * KIB), shape(32 * KIB, 2));
        assert_eq!(of(Algorithm::NHash, Unit::Blocked, 8 * KIB), shape(4 * KIB, 2));
        assert_eq!(of(Algorithm::NHash, Unit::Blocked, 4 * KIB), None);
        assert_eq!(of(Algorithm::NHash, Unit::PageSized, 64 * KIB), shape(8 * KIB, 8));
        assert_eq!(of(Algorithm::NHash, Unit::PageSized, 8 * KIB), shape(4 * KIB, 2));
        assert_eq!(of(Algorithm::OverlappedNHash, Unit::Blocked, 96 * KIB), shape(32 * KIB, 2));
        assert_eq!(of(Algorithm::OverlappedNHash, Unit::Blocked, 8 * KIB), shape(4 * KIB, 1));
        assert_eq!(of(Algorithm::OverlappedNHash, Unit::Blocked, 4 * KIB), None);
        assert_eq!(of(Algorithm::Classic, Unit::Blocked, 1024 * KIB), shape(64 * KIB, 16));
        assert_eq!(of(Algorithm::Classic, Unit::Blocked, 4 * KIB), shape(4 * KIB, 1));
        assert_eq!(of(Algorithm::Classic, Unit::PageSized, 1024 * KIB), shape(8 * KIB, 1));
        assert_eq!(of(Algorithm::Classic, Unit::PageSized, 4 * KIB), shape(4 * KIB, 1));
    }
}
