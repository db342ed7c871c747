//! Where on a drive the bytes of files lie: what a file system decides, in its simplest form.
//!
//! A file grows where it ended before, if that is free. Otherwise the next free range that is long enough is taken,
//! searching onwards from the block group in which the last one was. A file that is written without having been
//! reserved gets more than is written, as much as it is long already and up to 8 MiB, and keeps that for its next
//! write. So files that grow in turns interleave on the drive in ever longer pieces, files that are reserved at once do
//! not, and what a large file leaves is not used again before the search has come round: all this as ext4 does it.
//!
//! ```text
//!   written in turns     A B A B AA BB AAAA BBBB …      4 MiB by 64 KiB: 7 pieces, as measured on ext4
//!   reserved at once     AAAAAAAAA BBBBBBBBB …          1 piece
//! ```

use std::collections::{BTreeMap, HashMap};

use nandina_device::medium::FileKey;

/// A range of a drive's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub address: u64,
    pub bytes: u64,
}

/// The most that a growing file is given beyond its written end: ext4's largest normalized request.
const MOST_AHEAD_BYTES: u64 = 8 << 20;

/// A block group of ext4. A small file that is removed and made again comes to lie where it was; with more than this
/// the search goes on into other groups (seen with `filefrag` on Linux 6.18: a file of 32 MiB stays where it is, four
/// of 1 GiB one after the other take 4 GiB).
const GROUP_BYTES: u64 = 128 << 20;

/// Offsets in a file to where they lie on the drive; ranges do not overlap.
type Map = BTreeMap<u64, Piece>;

pub(crate) struct Placement {
    capacity_bytes: u64,
    /// Start to length, neighbours merged.
    free: BTreeMap<u64, u64>,
    files: HashMap<FileKey, Map>,
    /// What growing files were given for their next writes. Theirs until they go, or until the drive is full.
    ahead: HashMap<FileKey, Map>,
    /// Where the last piece that was taken ends. The search for the next one begins with its group.
    cursor: u64,
}

impl Placement {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let free = BTreeMap::from([(0, capacity_bytes)]);
        Self { capacity_bytes, free, files: HashMap::new(), ahead: HashMap::new(), cursor: 0 }
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

    /// The pieces of a range of a file that is being written; what has no place gets one.
    pub(crate) fn place(&mut self, file: FileKey, offset: u64, bytes: u64) -> Vec<Piece> {
        for (start, missing) in self.holes(file, offset, bytes) {
            self.grow(file, start, missing);
        }
        self.find(file, offset, bytes)
    }

    /// Gives a range of a file its place before it is written.
    pub(crate) fn reserve(&mut self, file: FileKey, offset: u64, bytes: u64) {
        for (start, missing) in self.holes(file, offset, bytes) {
            self.map(file, start, missing);
        }
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

    /// Gives a range that is being written its place: the one it was given ahead, or a new one with more to follow.
    fn grow(&mut self, file: FileKey, mut offset: u64, mut bytes: u64) {
        while bytes > 0 {
            let placed = match self.take_ahead(file, offset, bytes) {
                Some(piece) => self.insert(file, offset, piece),
                None => match self.take_window(file, offset, bytes) {
                    Some(window) => {
                        self.ahead.entry(file).or_default().insert(offset, window);
                        continue;
                    }
                    None => {
                        self.map(file, offset, bytes);
                        bytes
                    }
                },
            };
            offset += placed;
            bytes -= placed;
        }
    }

    /// The part of a range's start that the file was given ahead.
    fn take_ahead(&mut self, file: FileKey, offset: u64, bytes: u64) -> Option<Piece> {
        let map = self.ahead.get_mut(&file)?;
        let (&start, &piece) = map.range(..=offset).next_back()?;
        if start + piece.bytes <= offset {
            return None;
        }
        map.remove(&start);
        let skipped = offset - start;
        let taken = bytes.min(piece.bytes - skipped);
        if skipped > 0 {
            map.insert(start, Piece { bytes: skipped, ..piece });
        }
        if skipped + taken < piece.bytes {
            let rest =
                Piece { address: piece.address + skipped + taken, bytes: piece.bytes - skipped - taken };
            map.insert(offset + taken, rest);
        }
        Some(Piece { address: piece.address + skipped, bytes: taken })
    }

    /// Takes room for a write and those that may follow: up to the next multiple of the file's length, rounded up to
    /// a power of two. None if that is not free in one piece.
    fn take_window(&mut self, file: FileKey, offset: u64, bytes: u64) -> Option<Piece> {
        let map = self.files.get(&file);
        let length = map.and_then(Map::last_key_value).map_or(0, |(start, last)| start + last.bytes);
        let unit = length.max(offset + bytes).next_power_of_two().min(MOST_AHEAD_BYTES);
        let next =
            |map: Option<&Map>| map.and_then(|map| map.range(offset..).next()).map(|(start, _)| *start);
        let end = (offset / unit + 1) * unit;
        let end = [next(map), next(self.ahead.get(&file))].into_iter().flatten().fold(end, u64::min);
        let wanted = end - offset;
        if wanted < bytes {
            return None;
        }
        let goal = self.goal(file, offset);
        let fits = |start: u64, length: u64, from: u64| start + length >= from + wanted;
        let at_goal = goal.filter(|&goal| {
            self.free.range(..=goal).next_back().is_some_and(|(&start, &length)| fits(start, length, goal))
        });
        let anywhere = || self.free.values().any(|&length| length >= wanted);
        (at_goal.is_some() || anywhere()).then(|| self.take(at_goal, wanted))
    }

    /// Where a file's next piece would lie best: behind the one before it.
    fn goal(&self, file: FileKey, offset: u64) -> Option<u64> {
        let (start, piece) = self.files.get(&file)?.range(..offset).next_back()?;
        (start + piece.bytes == offset).then_some(piece.address + piece.bytes)
    }

    fn map(&mut self, file: FileKey, mut offset: u64, mut bytes: u64) {
        while bytes > 0 {
            let goal = self.goal(file, offset);
            let piece = self.take(goal, bytes);
            self.insert(file, offset, piece);
            offset += piece.bytes;
            bytes -= piece.bytes;
        }
    }

    fn insert(&mut self, file: FileKey, offset: u64, piece: Piece) -> u64 {
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
        piece.bytes
    }

    /// Takes a free piece of at most `bytes`, preferably at `goal`.
    fn take(&mut self, goal: Option<u64>, bytes: u64) -> Piece {
        if self.free.is_empty() {
            self.give_up_what_is_ahead();
        }
        let at_goal = goal.and_then(|goal| {
            let (start, length) = self.free.range(..=goal).next_back()?;
            (start + length > goal).then_some((goal, *start, *length))
        });
        let group = self.cursor / GROUP_BYTES * GROUP_BYTES;
        let first_fit = |from: u64| {
            let reaching_in = self.free.range(..from).next_back();
            reaching_in.into_iter().chain(self.free.range(from..)).find_map(|(&start, &length)| {
                let address = start.max(from);
                (start + length >= address + bytes).then_some((address, start, length))
            })
        };
        let (address, start, length) = at_goal
            .or_else(|| first_fit(group))
            .or_else(|| first_fit(0))
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
        let mut unwritten = Vec::new();
        if let Some(ahead) = self.ahead.get_mut(&file) {
            unwritten.extend(ahead.extract_if(offset..end, |_, _| true).map(|(_, piece)| piece));
        }
        for piece in released.iter().chain(&unwritten) {
            self.put_free(*piece);
        }
        released
    }

    /// Frees the space that growing files were given beyond what they needed.
    fn give_up_what_is_ahead(&mut self) {
        for piece in std::mem::take(&mut self.ahead).into_values().flat_map(Map::into_values) {
            self.put_free(piece);
        }
    }

    /// Frees all of a file.
    pub(crate) fn remove(&mut self, file: FileKey) -> Vec<Piece> {
        let released = self.release(file, 0, u64::MAX);
        self.files.remove(&file);
        self.ahead.remove(&file);
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

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn pieces(placement: &Placement, file: FileKey) -> Vec<u64> {
        placement.find(file, 0, 1 << 40).iter().map(|piece| piece.bytes).collect()
    }

    /// Files of `bytes`, written in turns.
    fn grow_in_turns(placement: &mut Placement, files: u64, bytes: u64, unit: u64) {
        for turn in 0..bytes / unit {
            (0..files).for_each(|file| assert!(!placement.place(file, turn * unit, unit).is_empty()));
        }
    }

    /// What `filefrag` says of 32 and 128 files on ext4 (Linux 6.18) that grew in turns, by direct writes: 6.7 to 6.9
    /// pieces of 4 MiB written by 64 KiB, 8.5 of 16 MiB, 10 of 4 MiB written by 16 KiB.
    #[test]
    fn files_that_grow_in_turns_interleave_in_longer_and_longer_pieces() {
        for (bytes, unit, expected) in
            [(4 * MIB, 64 * KIB, 7), (16 * MIB, 64 * KIB, 9), (4 * MIB, 16 * KIB, 9)]
        {
            let mut placement = Placement::new(4096 * MIB);
            grow_in_turns(&mut placement, 32, bytes, unit);
            for file in 0..32 {
                assert_eq!(pieces(&placement, file).len(), expected, "{bytes} bytes by {unit}");
            }
        }
    }

    #[test]
    fn what_a_file_did_not_need_is_free_when_it_goes_and_when_the_drive_is_full() {
        let mut placement = Placement::new(MIB);
        placement.place(1, 0, 192 * KIB);
        assert_eq!(placement.free, BTreeMap::from([(256 * KIB, 768 * KIB)]), "64 KiB are ahead");
        assert_eq!(
            placement.remove(1),
            [Piece { address: 0, bytes: 192 * KIB }],
            "and nothing of that was used"
        );
        assert_eq!(placement.free, BTreeMap::from([(0, MIB)]));

        placement.place(1, 0, 192 * KIB);
        placement.reserve(2, 0, MIB - 192 * KIB);
        assert_eq!(placement.free, BTreeMap::new());
        assert_eq!((pieces(&placement, 1), pieces(&placement, 2).iter().sum()), (vec![192 * KIB], 832 * KIB));
    }

    #[test]
    fn writing_in_the_middle_of_what_is_ahead_keeps_both_sides_of_it() {
        let mut placement = Placement::new(64 * MIB);
        placement.place(1, 0, 3 * MIB);
        placement.place(1, 3 * MIB + 512 * KIB, 64 * KIB);
        placement.place(2, 0, MIB);
        placement.place(1, 3 * MIB, 512 * KIB);
        placement.place(1, 3 * MIB + 576 * KIB, 448 * KIB);
        assert_eq!(placement.find(1, 0, 4 * MIB), [Piece { address: 0, bytes: 4 * MIB }]);
    }

    #[test]
    fn a_large_file_does_not_lie_where_the_last_one_did_before_the_search_comes_round() {
        let mut placement = Placement::new(1024 * MIB);
        for file in 0..9 {
            placement.reserve(file, 0, 256 * MIB);
            let expected = Piece { address: file % 4 * 256 * MIB, bytes: 256 * MIB };
            assert_eq!(placement.remove(file), [expected]);
        }
    }

    #[test]
    fn a_small_file_lies_where_the_last_one_did() {
        let mut placement = Placement::new(1024 * MIB);
        for file in 0..9 {
            placement.place(file, 0, 32 * MIB);
            assert_eq!(placement.remove(file), [Piece { address: 0, bytes: 32 * MIB }]);
        }
    }

    #[test]
    fn reserved_files_are_contiguous() {
        let mut placement = Placement::new(1000);
        placement.reserve(1, 0, 100);
        placement.reserve(2, 0, 100);
        assert_eq!(placement.place(1, 20, 10), [Piece { address: 20, bytes: 10 }]);
        assert_eq!(placement.place(2, 90, 30), [Piece { address: 190, bytes: 30 }]);
    }

    #[test]
    fn freed_space_is_merged_and_found_again() {
        let mut placement = Placement::new(100);
        placement.reserve(1, 0, 50);
        placement.reserve(2, 0, 50);
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
