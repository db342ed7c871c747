//! Buffers that a direct transfer can use: aligned to [`BLOCK_BYTES`], recycled through a pool.
//!
//! ```text
//!   pool.take(bytes) ──► AlignedBuffer ──freeze()──► Bytes ──slice──► Bytes …
//!        ▲                    │ drop                   │ last clone dropped
//!        └────────────────────┴────────────────────────┘   (kept up to `retained_bytes`, else freed to the slabs)
//! ```
//!
//! Invariants
//! - The start address and the capacity are multiples of [`BLOCK_BYTES`]; a capacity of zero owns no memory.
//! - All bytes up to the capacity are initialised (fresh memory is zeroed, recycled memory holds old contents).
//! - The pool never holds more than `retained_bytes` of unused memory: small buffers, and those larger than a slab,
//!   ready for the next transfer of their size and up to half of it, the others as idle memory of the slabs.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::slab::{self, SLAB_BYTES, Slabs};

/// Unit of direct I/O: offsets, lengths and memory addresses of requests are multiples of it.
/// 4 KiB is the logical block of most NVMe formats and the page of the CPUs we run on.
pub const BLOCK_BYTES: usize = 4096;

/// Buffers up to this size are kept ready: requests are quick, and finding a run would be felt.
const MAX_READY_BYTES: usize = 16 << 10;

/// Capacity of a buffer of `bytes`: whole blocks, in at most eight sizes between one power of two and the next. A
/// few sizes leave few gaps that nothing fits into.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.max(1).next_power_of_two() / 16).max(BLOCK_BYTES);
    bytes.next_multiple_of(step)
}

/// `bytes` rounded up to whole blocks.
pub const fn round_up_to_block(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// Memory without an owner type: an address and its capacity. Freed by the pool it came from.
struct Allocation {
    address: NonNull<u8>,
    capacity: usize,
}

// SAFETY: an allocation is plain memory that exactly one owner points to; nothing in it is bound to a thread.
unsafe impl Send for Allocation {}
// SAFETY: shared access only hands out `&[u8]`.
unsafe impl Sync for Allocation {}

/// Recycles [`AlignedBuffer`]s by capacity.
pub struct BufferPool {
    retained: Mutex<Retained>,
    slabs: Mutex<Slabs>,
    limit_bytes: usize,
}

#[derive(Default)]
struct Retained {
    by_capacity: BTreeMap<usize, Vec<Allocation>>,
    bytes: usize,
}

impl BufferPool {
    /// A pool that keeps at most `limit_bytes` of unused memory.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self { retained: Mutex::default(), slabs: Mutex::default(), limit_bytes })
    }

    /// A buffer of length `bytes`. Its contents are unspecified: zeros or what an earlier user left.
    pub fn take(self: &Arc<Self>, bytes: usize) -> AlignedBuffer {
        let capacity = size_class(bytes);
        let recycled = if capacity == 0 { None } else { self.retained.lock().take(capacity) };
        let memory = recycled.unwrap_or_else(|| self.allocate(capacity));
        AlignedBuffer { memory: Some(memory), len: bytes, pool: Arc::clone(self) }
    }

    /// Memory held for reuse.
    pub fn retained_bytes(&self) -> usize {
        self.retained.lock().bytes
    }

    /// Frees everything held for reuse.
    pub fn shrink(&self) {
        let freed = std::mem::take(&mut *self.retained.lock());
        freed.by_capacity.into_values().flatten().for_each(|memory| self.free(memory));
        self.slabs.lock().shrink(0);
    }

    fn allocate(&self, capacity: usize) -> Allocation {
        let address = match capacity {
            0 => NonNull::new(std::ptr::without_provenance_mut(BLOCK_BYTES)),
            1..=SLAB_BYTES => self.slabs.lock().allocate(capacity),
            _ => slab::map(capacity),
        };
        match (address, Layout::from_size_align(capacity, BLOCK_BYTES)) {
            (Some(address), _) => Allocation { address, capacity },
            (None, Ok(layout)) => handle_alloc_error(layout),
            (None, Err(_)) => handle_alloc_error(Layout::new::<[u8; BLOCK_BYTES]>()),
        }
    }

    fn free(&self, memory: Allocation) {
        match memory.capacity {
            0 => {}
            // SAFETY: the allocation came from these slabs, and its last owner gives it up here.
            1..=SLAB_BYTES => unsafe {
                let idle_bytes = self.limit_bytes.saturating_sub(self.retained_bytes());
                self.slabs.lock().free(memory.address, memory.capacity, idle_bytes);
            },
            // SAFETY: as above, from a mapping of its own.
            _ => unsafe { slab::unmap(memory.address, memory.capacity) },
        }
    }

    fn give_back(&self, memory: Allocation) {
        if memory.capacity == 0 {
            return;
        }
        if (MAX_READY_BYTES + 1..=SLAB_BYTES).contains(&memory.capacity) {
            return self.free(memory);
        }
        let mut retained = self.retained.lock();
        if retained.bytes + memory.capacity <= self.limit_bytes / 2 {
            retained.bytes += memory.capacity;
            retained.by_capacity.entry(memory.capacity).or_default().push(memory);
        } else {
            drop(retained);
            self.free(memory);
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.shrink();
    }
}

impl Retained {
    /// The smallest kept allocation of at least `capacity` that wastes no more than a quarter.
    fn take(&mut self, capacity: usize) -> Option<Allocation> {
        let most = capacity.saturating_add(capacity / 4);
        let (&found, _) = self.by_capacity.range(capacity..=most).next()?;
        let kept = self.by_capacity.get_mut(&found)?;
        let memory = kept.pop();
        if kept.is_empty() {
            self.by_capacity.remove(&found);
        }
        if memory.is_some() {
            self.bytes -= found;
        }
        memory
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool")
            .field("retained_bytes", &self.retained_bytes())
            .field("limit_bytes", &self.limit_bytes)
            .finish()
    }
}

/// A block-aligned piece of memory from a [`BufferPool`], to which it returns when dropped.
pub struct AlignedBuffer {
    /// `None` only while dropping.
    memory: Option<Allocation>,
    len: usize,
    pool: Arc<BufferPool>,
}

impl AlignedBuffer {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it can be [resized](Self::resize) to without new memory: a multiple of [`BLOCK_BYTES`].
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.capacity)
    }

    /// Shortens the buffer; longer lengths are ignored.
    pub fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(bytes);
    }

    /// Sets the length within the capacity, without touching the contents; returns whether it fitted.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.capacity();
        if fits {
            self.len = bytes;
        }
        fits
    }

    /// Shared, immutable view. The memory goes back to the pool when the last clone or slice is dropped.
    pub fn freeze(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.address.as_ptr())
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: `len` never exceeds the capacity, all of it is initialised, and `self` owns it.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.address.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.memory {
            // SAFETY: as for `deref`; `&mut self` makes the access unique.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.address.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).field("capacity", &self.capacity()).finish()
    }
}

/// One part of a vectored write: immutable, block-aligned bytes. Alignment is checked when it is submitted.
#[derive(Debug, Clone)]
pub struct WriteBuffer(Bytes);

impl WriteBuffer {
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for WriteBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<AlignedBuffer> for WriteBuffer {
    fn from(buffer: AlignedBuffer) -> Self {
        Self(buffer.freeze())
    }
}

impl From<Bytes> for WriteBuffer {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zeroed_when_fresh() {
        let pool = BufferPool::new(1 << 20);
        for bytes in [1, 4095, 4096, 4097, 1 << 20] {
            let buffer = pool.take(bytes);
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.capacity(), round_up_to_block(bytes));
            assert_eq!(buffer.as_ptr().addr() % BLOCK_BYTES, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            std::mem::forget(buffer.freeze());
        }
    }

    #[test]
    fn an_empty_buffer_owns_nothing() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(0);
        assert_eq!(buffer.capacity(), 0);
        assert_eq!(&buffer[..], b"");
        buffer.copy_from_slice(&[]);
        assert_eq!(buffer.freeze().len(), 0);
        assert_eq!(pool.retained_bytes(), 0);
    }

    #[test]
    fn dropped_buffers_are_reused_up_to_the_limit() {
        let pool = BufferPool::new(6 * BLOCK_BYTES);
        let first = pool.take(BLOCK_BYTES);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.retained_bytes(), BLOCK_BYTES);
        let again = pool.take(100);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(pool.retained_bytes(), 0);

        let large = pool.take(4 * BLOCK_BYTES);
        drop(large);
        assert_eq!(pool.retained_bytes(), 0, "larger than the limit: freed");
        drop((again, pool.take(BLOCK_BYTES), pool.take(BLOCK_BYTES), pool.take(BLOCK_BYTES)));
        assert_eq!(pool.retained_bytes(), 3 * BLOCK_BYTES);
        pool.shrink();
        assert_eq!(pool.retained_bytes(), 0);
    }

    #[test]
    fn a_kept_buffer_serves_only_requests_near_its_size() {
        let pool = BufferPool::new(64 << 20);
        drop(pool.take(8 * SLAB_BYTES));
        let small = pool.take(SLAB_BYTES + BLOCK_BYTES);
        assert!(small.capacity() < 2 * SLAB_BYTES);
        let near = pool.take(7 * SLAB_BYTES);
        assert_eq!((near.len(), near.capacity()), (7 * SLAB_BYTES, 8 * SLAB_BYTES));
    }

    #[test]
    fn frozen_memory_returns_after_the_last_slice() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(2 * BLOCK_BYTES);
        buffer[BLOCK_BYTES] = 7;
        let bytes = buffer.freeze();
        let tail = bytes.slice(BLOCK_BYTES..);
        drop(bytes);
        assert_eq!(pool.retained_bytes(), 0);
        assert_eq!(tail[0], 7);
        drop(tail);
        assert_eq!(pool.retained_bytes(), 2 * BLOCK_BYTES);
    }
}
