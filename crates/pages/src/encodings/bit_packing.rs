//! Packing of small integers: each takes as many bits as the largest of its mini-page needs.
//!
//! Integers are packed in blocks of 256, which lie like rows of a table: 8 lanes of 32 bits side by side, or 4 of 64
//! bits where more than 32 are needed. Neighbours stand in neighbouring lanes, so that one shift serves a whole row and
//! compilers turn the loops into vector code (the layout of *FastLanes*, Afroozeh and Boncz, PVLDB 16:9, section 2.2,
//! without its order for running sums).
//!
//! ```text
//!               lane 0      lane 1           lane 7
//!  values      0, 8, 16 …  1, 9, 17 …  …    7, 15, 23 …       of a block
//!  word 0     ├ v8 ┤ v0 ┤ ├ v9 ┤ v1 ┤      ├ v15 ┤ v7 ┤       least significant bits first
//! ```

/// Integers of a block.
pub(super) const BLOCK: usize = 256;

/// Bytes of `rows` packed integers; the last block is filled up with zeros.
pub(super) fn packed_bytes(rows: usize, bits: u32) -> usize {
    rows.div_ceil(BLOCK) * block_bytes(bits)
}

const fn block_bytes(bits: u32) -> usize {
    BLOCK / 8 * bits as usize
}

/// Bits that `value` needs.
pub(super) fn bits_of(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Kernels on blocks with words of one type; `$lanes` of them are 32 bytes.
macro_rules! kernels {
    ($pack:ident, $unpack:ident, $word:ty, $lanes:literal, $bytes:literal) => {
        fn $pack(values: &[$word; BLOCK], bits: u32, out: &mut Vec<u8>) {
            let mut words = [[0 as $word; $lanes]; <$word>::BITS as usize];
            for (row, values) in values.as_chunks::<$lanes>().0.iter().enumerate() {
                let at = row as u32 * bits;
                let (word, shift) = ((at / <$word>::BITS) as usize, at % <$word>::BITS);
                for (low, value) in words[word].iter_mut().zip(values) {
                    *low |= value << shift;
                }
                if shift + bits > <$word>::BITS {
                    for (high, value) in words[word + 1].iter_mut().zip(values) {
                        *high |= value >> (<$word>::BITS - shift);
                    }
                }
            }
            out.extend(words[..bits as usize].iter().flatten().flat_map(|word| word.to_le_bytes()));
        }

        /// `block` is as long as a block of so many bits (1 to those of a word).
        fn $unpack(block: &[u8], bits: u32, out: &mut [$word; BLOCK]) {
            let words = block.as_chunks::<$bytes>().0.as_chunks::<$lanes>().0;
            let mask = <$word>::MAX >> (<$word>::BITS - bits);
            for (row, out) in out.as_chunks_mut::<$lanes>().0.iter_mut().enumerate() {
                let at = row as u32 * bits;
                let (word, shift) = ((at / <$word>::BITS) as usize, at % <$word>::BITS);
                let low = &words[word];
                if shift + bits <= <$word>::BITS {
                    for (out, low) in out.iter_mut().zip(low) {
                        *out = <$word>::from_le_bytes(*low) >> shift & mask;
                    }
                } else {
                    for ((out, low), high) in out.iter_mut().zip(low).zip(&words[word + 1]) {
                        let high = <$word>::from_le_bytes(*high) << (<$word>::BITS - shift);
                        *out = (<$word>::from_le_bytes(*low) >> shift | high) & mask;
                    }
                }
            }
        }
    };
}

kernels!(pack32, unpack32, u32, 8, 4);
kernels!(pack64, unpack64, u64, 4, 8);

/// Appends `values`, each of at most `bits` bits, to `out`.
pub(super) fn pack(values: impl Iterator<Item = u64>, bits: u32, out: &mut Vec<u8>) {
    if bits == 0 {
        return;
    }
    let mut values = values.fuse();
    loop {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        for (slot, value) in block.iter_mut().zip(values.by_ref()) {
            *slot = value;
            filled += 1;
        }
        if filled == 0 {
            return;
        }
        if bits <= u32::BITS {
            pack32(&block.map(|value| value as u32), bits, out);
        } else {
            pack64(&block, bits, out);
        }
        if filled < BLOCK {
            return;
        }
    }
}

/// `rows` integers of at most 64 bits, each made into a `T`. `packed` holds as many as [`packed_bytes`] says.
pub(super) fn unpack<T: Copy>(packed: &[u8], bits: u32, rows: usize, value: impl Fn(u64) -> T) -> Vec<T> {
    if bits == 0 {
        return vec![value(0); rows];
    }
    let mut out = Vec::with_capacity(rows.next_multiple_of(BLOCK));
    let blocks = packed.chunks_exact(block_bytes(bits)).take(rows.div_ceil(BLOCK));
    if bits <= u32::BITS {
        let mut values = [0; BLOCK];
        for block in blocks {
            unpack32(block, bits, &mut values);
            out.extend(values.iter().map(|&packed| value(u64::from(packed))));
        }
    } else {
        let mut values = [0; BLOCK];
        for block in blocks {
            unpack64(block, bits, &mut values);
            out.extend(values.iter().map(|&packed| value(packed)));
        }
    }
    out.truncate(rows);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for bits in 0..=64 {
            let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
            for rows in [0, 1, 7, 255, 256, 257, 1000] {
                let scattered = |row: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 3 & mask;
                let values: Vec<u64> =
                    (0..rows as u64).map(|row| if row % 17 == 0 { mask } else { scattered(row) }).collect();
                let mut packed = Vec::new();
                pack(values.iter().copied(), bits, &mut packed);
                assert_eq!(packed.len(), packed_bytes(rows, bits), "{rows} rows of {bits} bits");
                assert_eq!(unpack(&packed, bits, rows, |value| value), values, "{rows} rows of {bits} bits");
            }
        }
    }

    #[test]
    fn neighbours_stand_in_neighbouring_lanes() {
        let mut packed = Vec::new();
        pack(0..16, 4, &mut packed);
        // Word 0 of lane 1: value 1 in the lowest four bits, value 9 above.
        assert_eq!(packed[4..8], 0x91u32.to_le_bytes());
    }
}
