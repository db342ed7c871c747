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
//! Free blocks that have been written are *idle*: they take memory. A new run is cut from idle blocks where they
//! have room for it, best fit, then from blocks that take no memory yet. Idle memory stays up to a limit. Beyond it
//! slabs that are free as a whole go back to the system, and where there is none, the run just freed: that breaks its
//! huge page up, but runs in use elsewhere in the slab must stay.
//!
//! Invariants
//! - `by_idle` and `by_free` hold `(longest idle run, address)` and `(longest free run, address)`, in blocks, of
//!   exactly the slabs in `slabs` that have one.
//! - `idle_blocks` counts the blocks of all slabs that are dirty and not used.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::LazyLock;

use crate::buffer::BLOCK_BYTES;

/// Size and alignment of a slab: a huge page of the common architectures.
pub(crate) const SLAB_BYTES: usize = 2 << 20;
const BLOCKS: usize = SLAB_BYTES / BLOCK_BYTES;
/// Mappings are multiples of the largest page in use.
const MAPPING_UNIT_BYTES: usize = 64 << 10;
const WORD_BITS: usize = u64::BITS as usize;

/// The slabs of one pool.
#[derive(Default)]
pub(crate) struct Slabs {
    slabs: BTreeMap<usize, Slab>,
    by_idle: BTreeSet<(usize, usize)>,
    by_free: BTreeSet<(usize, usize)>,
    idle_blocks: usize,
}

/// One bit per block.
type Bits = [u64; BLOCKS / WORD_BITS];

/// Which blocks of a slab are in use, and which take memory.
struct Slab {
    memory: NonNull<u8>,
    used: Bits,
    dirty: Bits,
    longest_idle: usize,
    longest_free: usize,
}

// SAFETY: a slab is plain memory that its owner alone allocates from.
unsafe impl Send for Slab {}

impl Slab {
    fn free(&self) -> Bits {
        self.used.map(|word| !word)
    }

    /// Blocks that are free and take memory.
    fn idle(&self) -> Bits {
        let mut idle = self.dirty;
        idle.iter_mut().zip(self.used).for_each(|(word, used)| *word &= !used);
        idle
    }
}

/// The runs of set bits, as first block and length.
fn runs(bits: Bits) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += stretch(&bits, at, false);
        let first = at;
        at += stretch(&bits, at, true);
        (at > first).then_some((first, at - first))
    })
}

/// How many bits from `at` on are set, or not.
fn stretch(bits: &Bits, at: usize, set: bool) -> usize {
    let mut end = at;
    while let Some(word) = bits.get(end / WORD_BITS) {
        let rest = if set { !word } else { *word } >> (end % WORD_BITS);
        let same = (rest.trailing_zeros() as usize).min(WORD_BITS - end % WORD_BITS);
        end += same;
        if !end.is_multiple_of(WORD_BITS) || same == 0 {
            break;
        }
    }
    end - at
}

fn longest_run(bits: Bits) -> usize {
    runs(bits).map(|(_, run)| run).max().unwrap_or(0)
}

/// Calls `change` with every word that `blocks` touch, and the bits of them.
fn for_bits(blocks: Range<usize>, mut change: impl FnMut(usize, u64)) {
    let mut at = blocks.start;
    while at < blocks.end {
        let (word, first) = (at / WORD_BITS, at % WORD_BITS);
        let count = (WORD_BITS - first).min(blocks.end - at);
        change(word, (u64::MAX >> (WORD_BITS - count)) << first);
        at += count;
    }
}

fn set(bits: &mut Bits, blocks: Range<usize>, to: bool) {
    for_bits(blocks, |word, mask| {
        if let Some(word) = bits.get_mut(word) {
            *word = if to { *word | mask } else { *word & !mask };
        }
    });
}

fn count(bits: &Bits, blocks: Range<usize>) -> usize {
    let mut count = 0;
    for_bits(blocks, |word, mask| {
        count += bits.get(word).map_or(0, |word| (word & mask).count_ones() as usize)
    });
    count
}

impl Slabs {
    /// A run of `bytes`, a multiple of [`BLOCK_BYTES`] up to [`SLAB_BYTES`]. Its contents are initialised but
    /// unspecified. `None` if the system has no memory.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let blocks = bytes / BLOCK_BYTES;
        let best = |slabs: &BTreeSet<(usize, usize)>| Some(slabs.range((blocks, 0)..).next()?.1);
        let (address, from_idle) = match best(&self.by_idle) {
            Some(address) => (address, true),
            None => (best(&self.by_free).or_else(|| self.add_slab())?, false),
        };
        let slab = self.slabs.get_mut(&address)?;
        let candidates = runs(if from_idle { slab.idle() } else { slab.free() });
        let (first, _) = candidates.filter(|&(_, run)| run >= blocks).min_by_key(|&(_, run)| run)?;
        let run = first..first + blocks;
        self.idle_blocks -= count(&slab.dirty, run.clone());
        set(&mut slab.used, run.clone(), true);
        set(&mut slab.dirty, run, true);
        // SAFETY: the run lies inside the slab.
        let memory = unsafe { slab.memory.add(first * BLOCK_BYTES) };
        self.file(address);
        Some(memory)
    }

    /// Gives a run back. At most `idle_bytes` of unused memory are kept.
    ///
    /// # Safety
    /// `memory` and `bytes` are those of an [`allocate`](Self::allocate) of these slabs, no longer in use.
    pub(crate) unsafe fn free(&mut self, memory: NonNull<u8>, bytes: usize, idle_bytes: usize) {
        let address = memory.addr().get() & !(SLAB_BYTES - 1);
        let Some(slab) = self.slabs.get_mut(&address) else { return };
        let first = (memory.addr().get() - address) / BLOCK_BYTES;
        let run = first..first + bytes / BLOCK_BYTES;
        set(&mut slab.used, run.clone(), false);
        self.idle_blocks += run.len();
        self.file(address);
        self.trim(idle_bytes);
        if self.idle_blocks * BLOCK_BYTES > idle_bytes
            && let Some(slab) = self.slabs.get_mut(&address)
        {
            // SAFETY: the run is mapped and unused; its next owner finds zeros.
            unsafe { discard(memory, bytes) };
            self.idle_blocks -= run.len();
            set(&mut slab.dirty, run, false);
            self.file(address);
        }
    }

    /// Gives unused slabs back while more than `idle_bytes` are idle.
    fn trim(&mut self, idle_bytes: usize) {
        while self.idle_bytes() > idle_bytes && self.remove_empty_slab() {}
    }

    /// Unused memory.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.idle_blocks * BLOCK_BYTES
    }

    /// Gives memory back until at most `idle_bytes` are idle.
    pub(crate) fn shrink(&mut self, idle_bytes: usize) {
        self.trim(idle_bytes);
        // Those with the longest idle runs first: the fewest huge pages are broken up.
        while self.idle_bytes() > idle_bytes
            && let Some(&(_, address)) = self.by_idle.last()
            && let Some(slab) = self.slabs.get_mut(&address)
        {
            for (first, blocks) in runs(slab.idle()) {
                // SAFETY: the run lies inside the slab, mapped and unused.
                unsafe { discard(slab.memory.add(first * BLOCK_BYTES), blocks * BLOCK_BYTES) };
                self.idle_blocks -= blocks;
            }
            slab.dirty = slab.used;
            self.file(address);
        }
    }

    fn add_slab(&mut self) -> Option<usize> {
        let memory = map(SLAB_BYTES)?;
        let nothing = [0; BLOCKS / WORD_BITS];
        let slab = Slab { memory, used: nothing, dirty: nothing, longest_idle: 0, longest_free: 0 };
        let address = memory.addr().get();
        self.slabs.insert(address, slab);
        Some(address)
    }

    fn remove_empty_slab(&mut self) -> bool {
        let Some((_, address)) = self.by_free.last().copied().filter(|(longest, _)| *longest == BLOCKS)
        else {
            return false;
        };
        self.by_free.pop_last();
        if let Some(slab) = self.slabs.remove(&address) {
            self.by_idle.remove(&(slab.longest_idle, address));
            self.idle_blocks -= count(&slab.dirty, 0..BLOCKS);
            // SAFETY: no run of the slab is in use.
            unsafe { unmap(slab.memory, SLAB_BYTES) };
        }
        true
    }

    /// Files a slab under the longest runs it has now.
    fn file(&mut self, address: usize) {
        let Some(slab) = self.slabs.get_mut(&address) else { return };
        let refile = |index: &mut BTreeSet<(usize, usize)>, filed: &mut usize, longest: usize| {
            if *filed != longest {
                index.remove(&(*filed, address));
                *filed = longest;
                if longest > 0 {
                    index.insert((longest, address));
                }
            }
        };
        let (idle, free) = (longest_run(slab.idle()), longest_run(slab.free()));
        refile(&mut self.by_idle, &mut slab.longest_idle, idle);
        refile(&mut self.by_free, &mut slab.longest_free, free);
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
    let bytes = bytes.next_multiple_of(MAPPING_UNIT_BYTES);
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
    // SAFETY: only the mapping's head and tail are unmapped; the rest of it is advised.
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
/// The memory is no longer in use.
pub(crate) unsafe fn unmap(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(memory.as_ptr().cast(), bytes.next_multiple_of(MAPPING_UNIT_BYTES)) };
}

/// Lets the system have the pages of `memory`; reading them again gives zeros.
///
/// # Safety
/// The memory is mapped, and its contents are no longer in use.
unsafe fn discard(memory: NonNull<u8>, bytes: usize) {
    static PAGE_BYTES: LazyLock<usize> = LazyLock::new(|| {
        // SAFETY: a plain question to the system.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(usize::MAX)
    });
    // A run may end inside a larger page, of which the rest is in use.
    if *PAGE_BYTES > BLOCK_BYTES {
        return;
    }
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
            slabs.free(runs[1], SLAB_BYTES / 4, 0);
            assert_eq!(slabs.allocate(SLAB_BYTES / 4).unwrap(), runs[1], "best fit");
            slabs.free(other, BLOCK_BYTES, 0);
            assert_eq!(slabs.slabs.len(), 1);
            runs.into_iter().for_each(|run| slabs.free(run, SLAB_BYTES / 4, 0));
        }
        assert!(slabs.slabs.is_empty() && slabs.by_idle.is_empty() && slabs.by_free.is_empty());
        assert_eq!(slabs.idle_blocks, 0);
    }

    #[test]
    fn idle_memory_stays_up_to_its_limit() {
        const RUN: usize = SLAB_BYTES / 2;
        let mut slabs = Slabs::default();
        let runs: Vec<_> = (0..4).map(|_| slabs.allocate(RUN).unwrap()).collect();
        // SAFETY: each run is given back once.
        unsafe {
            slabs.free(runs[0], RUN, 2 * RUN);
            slabs.free(runs[1], RUN, 2 * RUN);
            assert_eq!((slabs.slabs.len(), slabs.idle_blocks), (2, BLOCKS), "a free slab is kept");
            slabs.free(runs[2], RUN, 2 * RUN);
            assert_eq!((slabs.slabs.len(), slabs.idle_blocks), (1, BLOCKS / 2), "until it is too much");
            slabs.shrink(0);
            assert_eq!((slabs.slabs.len(), slabs.idle_blocks), (1, 0));
            slabs.free(runs[3], RUN, 0);
        }
        assert!(slabs.slabs.is_empty());
    }

    #[test]
    fn a_run_that_comes_back_to_the_system_is_zero() {
        let mut slabs = Slabs::default();
        let (keeper, run) = (slabs.allocate(BLOCK_BYTES).unwrap(), slabs.allocate(2 * BLOCK_BYTES).unwrap());
        // SAFETY: both runs are in use until they are freed.
        unsafe {
            run.write_bytes(7, 2 * BLOCK_BYTES);
            slabs.free(run, 2 * BLOCK_BYTES, 0);
            let again = slabs.allocate(2 * BLOCK_BYTES).unwrap();
            assert_eq!(again, run);
            assert!(
                std::slice::from_raw_parts(again.as_ptr(), 2 * BLOCK_BYTES).iter().all(|byte| *byte == 0)
            );
            slabs.free(again, 2 * BLOCK_BYTES, 0);
            slabs.free(keeper, BLOCK_BYTES, 0);
        }
    }

    proptest! {
        #[test]
        fn runs_never_overlap(
            steps in prop::collection::vec((1usize..=BLOCKS, any::<prop::sample::Index>()), 1..80),
            idle_bytes in 0..4 * SLAB_BYTES,
        ) {
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
                    unsafe { slabs.free(run, bytes, idle_bytes) };
                }
                let idle: usize = slabs.slabs.values().map(|slab| count(&slab.dirty, 0..BLOCKS) - count(&slab.used, 0..BLOCKS)).sum();
                prop_assert_eq!(idle, slabs.idle_blocks);
                prop_assert!(idle * BLOCK_BYTES <= idle_bytes);
            }
            for (run, bytes) in runs {
                // SAFETY: as above.
                unsafe { slabs.free(run, bytes, 0) };
            }
            prop_assert!(slabs.slabs.is_empty() && slabs.by_idle.is_empty() && slabs.by_free.is_empty());
        }
    }
}
