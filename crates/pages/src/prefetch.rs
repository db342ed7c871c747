//! Asking for cache lines before they are needed.
//!
//! Probing touches a random line of the directory, of the entries and of a page for every row; scattering reads a text
//! here and a text there. The loops do little work per row, but enough that the processor runs out of reordering window
//! before it has as many misses under way as the memory could serve; a hint some rows ahead keeps them coming.

/// How many rows ahead of their use lines are asked for: enough to cover a memory access at a few
/// nanoseconds per row, few enough to stay in the first-level cache.
pub const AHEAD: usize = 24;

/// Asks for the line that holds `slice[index]`; nothing happens if there is no such element.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        prefetch_address(std::ptr::from_ref(element).cast());
    }
}

/// Asks for the line at `address`, which need not be valid.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
