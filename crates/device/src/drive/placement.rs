//! Where on a drive the bytes of files lie: what a file system decides, in its simplest form.
//!
//! A file grows where it ended before, if that is free. Otherwise the next free range that is long enough is taken,
//! searching onwards from the last one that was. Files that grow in turns, a little at a time, therefore interleave on
//! the drive, and files that are reserved at once do not.
//!
//! ```text
//!   appended in turns    A B C A B C A B C …      a block of flash holds pieces of all
//!   reserved at once     A A A B B B C C C …      … of one
//! ```

use std::collections::{BTreeMap, HashMap};

/// Tells a file from others for as long as it exists.
pub(crate) type FileKey = u64;

/// A range of a drive's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub address: u64,
    pub bytes: u64,
}

pub(crate) struct Placement {
    capacity_bytes: u64,
    /// Start to length, neighbours merged.
    free: BTreeMap<u64, u64>,
    /// Of every file, the start of each mapped range to where it lies; ranges do not overlap.
    files: HashMap<FileKey, BTreeMap<u64, Piece>>,
    /// Where the search for a free range goes on.
    cursor: u64,
}

impl Placement {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, free: BTreeMap::from([(0, capacity_bytes)]), files: HashMap::new(), cursor: 0 }
    }

    /// The pieces of a range of a file that have a place, in order.
    pub(crate) fn find(&self, file: FileKey, offset: u64, bytes: u64) -> Vec<Piece> {
        let mut found = Vec::new();
        let Some(map) = self.files.get(&file) else { return found };
        let first = map.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, piece) in map.range(first..offset + bytes) {
            let from = offset.max(*start);
            let until = (offset + bytes).min(start + piece.bytes);
            if from < until {
                push(&mut found, Piece { address: piece.address + (from - start), bytes: until - from });
            }
        }
        found
    }

    /// The pieces of a range of a file; what has no place gets one.
    pub(crate) fn place(&mut self, file: FileKey, offset: u64, bytes: u64) -> Vec<Piece> {
        for (start, missing) in self.holes(file, offset, bytes) {
            self.map(file, start, missing);
        }
        self.find(file, offset, bytes)
    }

    fn holes(&self, file: FileKey, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = offset + bytes;
        let Some(map) = self.files.get(&file) else { return vec![(offset, bytes)] };
        let mut holes = Vec::new();
        let mut at =
            map.range(..=offset).next_back().map_or(offset, |(start, piece)| offset.max(start + piece.bytes));
        for (start, piece) in map.range(offset..end) {
            if at < *start {
                holes.push((at, start - at));
            }
            at = at.max(start + piece.bytes);
        }
        if at < end {
            holes.push((at, end - at));
        }
        holes
    }

    fn map(&mut self, file: FileKey, mut offset: u64, mut bytes: u64) {
        while bytes > 0 {
            let before = self.files.get(&file).and_then(|map| map.range(..offset).next_back());
            let goal = before
                .filter(|(start, piece)| *start + piece.bytes == offset)
                .map(|(_, piece)| piece.address + piece.bytes);
            let piece = self.take(goal, bytes);
            let map = self.files.entry(file).or_default();
            match map.range_mut(..offset).next_back() {
                Some((start, last))
                    if start + last.bytes == offset && last.address + last.bytes == piece.address =>
                {
                    last.bytes += piece.bytes;
                }
                _ => {
                    map.insert(offset, piece);
                }
            }
            offset += piece.bytes;
            bytes -= piece.bytes;
        }
    }

    /// Takes a free piece of at most `bytes`, preferably at `goal`.
    fn take(&mut self, goal: Option<u64>, bytes: u64) -> Piece {
        let at_goal = goal.and_then(|goal| {
            let (start, length) = self.free.range(..=goal).next_back()?;
            (start + length > goal).then_some((goal, *start, *length))
        });
        let fits = |(start, length): (&u64, &u64)| (*length >= bytes).then_some((*start, *start, *length));
        let (address, start, length) = at_goal
            .or_else(|| self.free.range(self.cursor..).find_map(fits))
            .or_else(|| self.free.iter().find_map(fits))
            .or_else(|| self.free.iter().max_by_key(|(_, length)| **length).map(|(s, l)| (*s, *s, *l)))
            // More data than the drive has addresses: they are used again from the beginning.
            .unwrap_or((0, self.capacity_bytes, 0));
        if length == 0 {
            let address = self.cursor.min(self.capacity_bytes.saturating_sub(bytes));
            self.cursor = (address + bytes) % self.capacity_bytes.max(1);
            return Piece { address, bytes };
        }
        let taken = bytes.min(start + length - address);
        self.free.remove(&start);
        if address > start {
            self.free.insert(start, address - start);
        }
        if start + length > address + taken {
            self.free.insert(address + taken, start + length - address - taken);
        }
        self.cursor = address + taken;
        Piece { address, bytes: taken }
    }

    /// Frees a range of a file; returns the pieces that it had.
    pub(crate) fn release(&mut self, file: FileKey, offset: u64, bytes: u64) -> Vec<Piece> {
        let end = offset.saturating_add(bytes);
        let Some(map) = self.files.get_mut(&file) else { return Vec::new() };
        let first = map.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        let touched: Vec<(u64, Piece)> =
            map.range(first..end).map(|(start, piece)| (*start, *piece)).collect();
        let mut released = Vec::new();
        for (start, piece) in touched {
            let from = offset.max(start);
            let until = end.min(start + piece.bytes);
            if from >= until {
                continue;
            }
            map.remove(&start);
            if from > start {
                map.insert(start, Piece { address: piece.address, bytes: from - start });
            }
            if until < start + piece.bytes {
                let rest =
                    Piece { address: piece.address + (until - start), bytes: start + piece.bytes - until };
                map.insert(until, rest);
            }
            push(&mut released, Piece { address: piece.address + (from - start), bytes: until - from });
        }
        for piece in &released {
            self.put_free(*piece);
        }
        released
    }

    /// Frees all of a file.
    pub(crate) fn remove(&mut self, file: FileKey) -> Vec<Piece> {
        let released = self.release(file, 0, u64::MAX);
        self.files.remove(&file);
        released
    }

    fn put_free(&mut self, piece: Piece) {
        let Piece { mut address, mut bytes } = piece;
        if let Some((&before, &length)) = self.free.range(..address).next_back()
            && before + length >= address
        {
            self.free.remove(&before);
            bytes = bytes.max(before + length - address) + (address - before);
            address = before;
        }
        if let Some(length) = self.free.remove(&(address + bytes)) {
            bytes += length;
        }
        self.free.insert(address, bytes);
    }
}

/// Adds a piece, joined with the last one where they touch.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.address + last.bytes == piece.address => last.bytes += piece.bytes,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_grow_in_turns_interleave() {
        let mut placement = Placement::new(1000);
        for turn in 0..3 {
            for file in 0..2 {
                let place = placement.place(file, turn * 10, 10);
                assert_eq!(place, [Piece { address: turn * 20 + file * 10, bytes: 10 }]);
            }
        }
        assert_eq!(placement.find(0, 0, 30).len(), 3);
        assert_eq!(
            placement.find(0, 5, 10),
            [Piece { address: 5, bytes: 5 }, Piece { address: 20, bytes: 5 }]
        );
    }

    #[test]
    fn reserved_files_are_contiguous() {
        let mut placement = Placement::new(1000);
        placement.place(1, 0, 100);
        placement.place(2, 0, 100);
        assert_eq!(placement.place(1, 20, 10), [Piece { address: 20, bytes: 10 }]);
        assert_eq!(placement.place(2, 90, 30), [Piece { address: 190, bytes: 30 }]);
    }

    #[test]
    fn freed_space_is_merged_and_found_again() {
        let mut placement = Placement::new(100);
        placement.place(1, 0, 50);
        placement.place(2, 0, 50);
        assert_eq!(placement.release(1, 10, 20), [Piece { address: 10, bytes: 20 }]);
        assert_eq!(placement.find(1, 0, 50).iter().map(|piece| piece.bytes).sum::<u64>(), 30);
        assert_eq!(placement.remove(1).iter().map(|piece| piece.bytes).sum::<u64>(), 30);
        assert_eq!(placement.place(3, 0, 50), [Piece { address: 0, bytes: 50 }]);
        assert_eq!(placement.free, BTreeMap::new());
        // More than there is: addresses are used twice rather than refused.
        assert_eq!(placement.place(4, 0, 20).iter().map(|piece| piece.bytes).sum::<u64>(), 20);
    }

    #[test]
    fn reading_a_hole_touches_nothing() {
        let mut placement = Placement::new(100);
        placement.place(1, 10, 10);
        placement.place(1, 30, 10);
        assert_eq!(placement.find(1, 0, 10), []);
        assert_eq!(placement.find(1, 0, 100).iter().map(|piece| piece.bytes).sum::<u64>(), 20);
        assert_eq!(placement.holes(1, 0, 50), [(0, 10), (20, 10), (40, 10)]);
        assert_eq!(placement.holes(1, 12, 4), []);
    }
}
