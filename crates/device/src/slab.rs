//! Memory for I/O buffers: slabs of one huge page each, cut into runs of blocks.
//!
//! ```text
//!   slab: 2 MiB, aligned                                            used: one bit per block
//!   ┌──────────────┬───────────┬───┬──────────────────────────┐
//!   │ run (64 KiB) │ run (32K) │   │  longest free run        │     1111111111111111 11111111 0 000000…
//!   └──────────────┴───────────┴───┴──────────────────────────┘
//! ```
//!
//! A direct transfer hands the device one segment per stretch of physically contiguous memory. A mebibyte of 4 KiB
//! pages is 256 of them, which is more than one virtio or NVMe request can carry; inside a huge page it is one. On
//! virtio that alone doubled sequential reads. It also spares 511 of 512 page faults, and misses of the address
//! translation when join tables gather rows from buffers.
//!
//! Best fit over the slabs' longest free runs keeps slabs full, so that few of them are partly used. What is freed
//! beyond `retained_bytes` of the pool is given back to the system at once, slab by slab, and run by run where the
//! rest of its slab is in use.
//!
//! Invariants
//! - `by_longest` holds `(longest free run in blocks, address)` of exactly the slabs in `slabs` that have one.
//! - A slab without a used block does not exist: its memory went back when its last run did.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use crate::buffer::BLOCK_BYTES;

/// Size and alignment of a slab: a huge page of the common architectures.
pub(crate) const SLAB_BYTES: usize = 2 << 20;
const BLOCKS: usize = SLAB_BYTES / BLOCK_BYTES;
const WORD_BITS: usize = u64::BITS as usize;

/// The slabs of one pool.
#[derive(Default)]
pub(crate) struct Slabs {
    slabs: BTreeMap<usize, Slab>,
    by_longest: BTreeSet<(usize, usize)>,
}

/// Which blocks of a slab are in use.
struct Slab {
    memory: NonNull<u8>,
    used: [u64; BLOCKS / WORD_BITS],
    longest: usize,
}

// SAFETY: a slab is plain memory that its owner alone hands out.
unsafe impl Send for Slab {}

impl Slab {
    fn is_used(&self, block: usize) -> bool {
        self.used.get(block / WORD_BITS).is_none_or(|word| word >> (block % WORD_BITS) & 1 == 1)
    }

    fn mark(&mut self, first: usize, blocks: usize, used: bool) {
        for block in first..first + blocks {
            if let Some(word) = self.used.get_mut(block / WORD_BITS) {
                let bit = 1 << (block % WORD_BITS);
                *word = if used { *word | bit } else { *word & !bit };
            }
        }
    }

    /// The free runs, as first block and length.
    fn free_runs(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < BLOCKS && self.is_used(at) {
                at += 1;
            }
            let first = at;
            while at < BLOCKS && !self.is_used(at) {
                at += 1;
            }
            (at > first).then_some((first, at - first))
        })
    }

    fn is_empty(&self) -> bool {
        self.used.iter().all(|word| *word == 0)
    }
}

impl Slabs {
    /// A run of `bytes`, a multiple of [`BLOCK_BYTES`] up to [`SLAB_BYTES`]. Its contents are initialised but
    /// unspecified. `None` if the system has no memory.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let blocks = bytes / BLOCK_BYTES;
        let found = self.by_longest.range((blocks, 0)..).next().copied();
        let (longest, address) = match found {
            Some(found) => {
                self.by_longest.remove(&found);
                found
            }
            None => {
                let memory = map(SLAB_BYTES)?;
                let slab = Slab { memory, used: [0; BLOCKS / WORD_BITS], longest: BLOCKS };
                self.slabs.insert(memory.addr().get(), slab);
                (BLOCKS, memory.addr().get())
            }
        };
        let slab = self.slabs.get_mut(&address)?;
        debug_assert_eq!(slab.longest, longest);
        let fitting = slab.free_runs().filter(|&(_, run)| run >= blocks).min_by_key(|&(_, run)| run);
        let (first, _) = fitting?;
        slab.mark(first, blocks, true);
        // SAFETY: the run lies inside the slab.
        let memory = unsafe { slab.memory.add(first * BLOCK_BYTES) };
        self.recount(address);
        Some(memory)
    }

    /// Gives a run back.
    ///
    /// # Safety
    /// `memory` and `bytes` are those of an [`allocate`](Self::allocate) of these slabs, which nobody uses any more.
    pub(crate) unsafe fn free(&mut self, memory: NonNull<u8>, bytes: usize) {
        let address = memory.addr().get() & !(SLAB_BYTES - 1);
        let Some(slab) = self.slabs.get_mut(&address) else { return };
        self.by_longest.remove(&(slab.longest, address));
        slab.mark((memory.addr().get() - address) / BLOCK_BYTES, bytes / BLOCK_BYTES, false);
        if slab.is_empty() {
            if let Some(slab) = self.slabs.remove(&address) {
                // SAFETY: no run of the slab is in use.
                unsafe { unmap(slab.memory, SLAB_BYTES) };
            }
            return;
        }
        // SAFETY: the run is mapped and unused; whoever gets it next finds zeros.
        unsafe { discard(memory, bytes) };
        self.recount(address);
    }

    fn recount(&mut self, address: usize) {
        if let Some(slab) = self.slabs.get_mut(&address) {
            slab.longest = slab.free_runs().map(|(_, run)| run).max().unwrap_or(0);
            if slab.longest > 0 {
                self.by_longest.insert((slab.longest, address));
            }
        }
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        // Buffers hold the pool: when it goes, no run is in use.
        for slab in std::mem::take(&mut self.slabs).into_values() {
            // SAFETY: as above.
            unsafe { unmap(slab.memory, SLAB_BYTES) };
        }
    }
}

/// Zeroed memory of `bytes`, aligned to a huge page and made of huge pages as far as the system has them.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let mapped = bytes.checked_add(SLAB_BYTES)?;
    // SAFETY: a fresh private mapping at an address of the system's choice.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    let head = memory.addr().wrapping_neg() & (SLAB_BYTES - 1);
    let tail = SLAB_BYTES - head;
    // SAFETY: what is unmapped is the mapping's head and tail; the rest of it is advised.
    unsafe {
        let start = memory.byte_add(head);
        if head > 0 {
            libc::munmap(memory, head);
        }
        if tail > 0 {
            libc::munmap(start.byte_add(bytes), tail);
        }
        #[cfg(target_os = "linux")]
        if bytes >= SLAB_BYTES {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        NonNull::new(start.cast())
    }
}

/// Gives the memory of [`map`] back.
///
/// # Safety
/// Nobody uses the memory any more.
pub(crate) unsafe fn unmap(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(memory.as_ptr().cast(), bytes) };
}

/// Lets the system have the pages of `memory`; reading them again gives zeros.
///
/// # Safety
/// The memory is mapped, and nobody uses its contents any more.
unsafe fn discard(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::madvise(memory.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slab_holds_what_fits_and_goes_with_its_last_run() {
        let mut slabs = Slabs::default();
        let runs: Vec<_> = (0..4).map(|_| slabs.allocate(SLAB_BYTES / 4).unwrap()).collect();
        assert_eq!(slabs.slabs.len(), 1);
        let other = slabs.allocate(BLOCK_BYTES).unwrap();
        assert_eq!(slabs.slabs.len(), 2);
        // SAFETY: each run is given back once.
        unsafe {
            slabs.free(runs[1], SLAB_BYTES / 4);
            assert_eq!(slabs.allocate(SLAB_BYTES / 4).unwrap(), runs[1], "best fit");
            slabs.free(other, BLOCK_BYTES);
            runs.into_iter().for_each(|run| slabs.free(run, SLAB_BYTES / 4));
        }
        assert!(slabs.slabs.is_empty() && slabs.by_longest.is_empty());
    }

    #[test]
    fn a_run_that_comes_back_to_the_system_is_zero() {
        let mut slabs = Slabs::default();
        let (keeper, run) = (slabs.allocate(BLOCK_BYTES).unwrap(), slabs.allocate(2 * BLOCK_BYTES).unwrap());
        // SAFETY: both runs are in use until they are freed.
        unsafe {
            run.write_bytes(7, 2 * BLOCK_BYTES);
            slabs.free(run, 2 * BLOCK_BYTES);
            let again = slabs.allocate(2 * BLOCK_BYTES).unwrap();
            assert_eq!(again, run);
            assert!(
                std::slice::from_raw_parts(again.as_ptr(), 2 * BLOCK_BYTES).iter().all(|byte| *byte == 0)
            );
            slabs.free(again, 2 * BLOCK_BYTES);
            slabs.free(keeper, BLOCK_BYTES);
        }
    }

    proptest! {
        #[test]
        fn runs_never_overlap(steps in prop::collection::vec((1usize..=BLOCKS, any::<prop::sample::Index>()), 1..80)) {
            let mut slabs = Slabs::default();
            let mut runs: Vec<(NonNull<u8>, usize)> = Vec::new();
            for (blocks, victim) in steps {
                let bytes = blocks * BLOCK_BYTES;
                let run = slabs.allocate(bytes).unwrap();
                let start = run.addr().get();
                prop_assert_eq!(start % BLOCK_BYTES, 0);
                for (other, other_bytes) in &runs {
                    let other = other.addr().get();
                    prop_assert!(start + bytes <= other || other + other_bytes <= start);
                }
                runs.push((run, bytes));
                if runs.len() > 6 {
                    let (run, bytes) = runs.swap_remove(victim.index(runs.len()));
                    // SAFETY: it left the list of runs in use.
                    unsafe { slabs.free(run, bytes) };
                }
            }
            for (run, bytes) in runs {
                // SAFETY: as above.
                unsafe { slabs.free(run, bytes) };
            }
            prop_assert!(slabs.slabs.is_empty() && slabs.by_longest.is_empty());
        }
    }
}
