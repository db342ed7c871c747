//! Where the parts of a flat mini-page lie.

/// Positions of the pieces of a flat mini-page; what must be aligned comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Length of the fixed-width values, bits, or offsets at position 0.
    pub head_bytes: u64,
    /// Where validity starts; `validity_bytes` is 0 without nulls.
    pub validity_start: u64,
    pub validity_bytes: u64,
    /// Where value bytes of variable width start, and thus also where the other encodings end.
    pub tail_start: u64,
}

impl Pieces {
    pub fn new(head_bytes: u64, rows: usize, has_nulls: bool) -> Self {
        if !has_nulls {
            return Self {
                head_bytes,
                validity_start: head_bytes,
                validity_bytes: 0,
                tail_start: head_bytes,
            };
        }
        let validity_start = head_bytes.next_multiple_of(8);
        let validity_bytes = rows.div_ceil(8) as u64;
        Self { head_bytes, validity_start, validity_bytes, tail_start: validity_start + validity_bytes }
    }
}
