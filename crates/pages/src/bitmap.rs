//! A growing bitmap: validity and boolean values while a page is filled. Least significant bit first, as in Arrow.

use arrow_buffer::BooleanBuffer;

use crate::rows::Rows;

/// Invariant: `words.len() == bits.div_ceil(64)`, and the bits beyond `bits` are zero.
#[derive(Debug, Default)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    bits: usize,
}

impl Bitmap {
    pub fn clear(&mut self) {
        self.words.clear();
        self.bits = 0;
    }

    pub fn capacity_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    pub fn get(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }

    /// Appends the lowest `count` bits of `word`, the rest of which must be zero.
    fn push(&mut self, word: u64, count: usize) {
        assert!(count == 64 || count < 64 && word >> count == 0, "no bits stand behind the last one");
        if count == 0 {
            return;
        }
        let used = self.bits % 64;
        match self.words.last_mut() {
            Some(last) if used != 0 => {
                *last |= word << used;
                if used + count > 64 {
                    self.words.push(word >> (64 - used));
                }
            }
            _ => self.words.push(word),
        }
        self.bits += count;
    }

    pub fn append_ones(&mut self, mut count: usize) {
        while count > 0 {
            let step = count.min(64);
            self.push(u64::MAX >> (64 - step), step);
            count -= step;
        }
    }

    /// The rows must lie inside `source`: checked by the page builder for the whole batch.
    pub fn append(&mut self, source: &BooleanBuffer, rows: Rows<'_>) {
        match rows {
            Rows::Range(range) => {
                let slice = source.slice(range.start, range.len());
                let chunks = slice.bit_chunks();
                chunks.iter().for_each(|word| self.push(word, 64));
                self.push(chunks.remainder_bits(), chunks.remainder_len());
            }
            Rows::Indices(indices) => {
                let (bytes, offset) = (source.values(), source.offset());
                for chunk in indices.chunks(64) {
                    let mut word = 0u64;
                    for (position, &index) in chunk.iter().enumerate() {
                        let bit = index as usize + offset;
                        word |= u64::from(bytes[bit / 8] >> (bit % 8) & 1) << position;
                    }
                    self.push(word, chunk.len());
                }
            }
        }
    }

    /// Writes `bits.div_ceil(8)` bytes to the start of `out`.
    pub fn write(&self, out: &mut [u8]) {
        let bytes = self.bits.div_ceil(8);
        let mut targets = out[..bytes].chunks_exact_mut(8);
        let mut words = self.words.iter();
        for (target, word) in targets.by_ref().zip(words.by_ref()) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        let rest = targets.into_remainder();
        if let Some(word) = self.words.get(bytes / 8) {
            rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
        }
    }
}
