//! Forecasting: which runs are to be read next.
//!
//! ```text
//!   run A   [k…m] asked for up to m        the run whose rows end first of those that have been asked for
//!   run B   [a…c] asked for up to c   ─►   is the first to need more: B
//!   run C   [b…f] asked for up to f
//! ```
//!
//! Every run keeps the beginning of the key of the last row of each page, about. A tournament over the last keys that have
//! been asked for tells in which order the merge will need the runs' next units, so that the memory for reading ahead goes
//! where it is needed first, and not to every run alike (Knuth, *The Art of Computer Programming* 3, section 5.4.9; in SSD-sort:
//! Ghodsnia, *Effective Use of SSDs in Database Systems*, section 4.5.1). It is a guess from the beginnings of keys: a run that
//! is needed before it was foreseen is read then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::keys::Key;
use super::stored_run::RunPages;

/// Bytes of a key that tell its place from others', mostly.
pub const MARK_BYTES: usize = 32;

/// The beginning of a key, filled up behind its end.
pub type Mark = [u8; MARK_BYTES];

pub fn mark(key: Key) -> Mark {
    let mut mark = [0; MARK_BYTES];
    key.copy_to(&mut mark);
    mark
}

/// The keys of some rows of a run, in order, the first and the last one among them.
#[derive(Debug, Default)]
pub struct Marks {
    first: Mark,
    /// With how many rows come up to it.
    marks: Vec<(u64, Mark)>,
}

impl Marks {
    /// The first row has this key.
    pub fn begin(&mut self, key: Key) {
        self.first = mark(key);
    }

    pub fn first(&self) -> Mark {
        self.first
    }

    pub fn last(&self) -> Mark {
        self.marks.last().map_or(self.first, |(_, mark)| *mark)
    }

    /// Adds those of rows that come behind so many.
    pub fn append(&mut self, rows: u64, next: Self) {
        self.marks.extend(next.marks.into_iter().map(|(place, mark)| (rows + place, mark)));
    }

    /// The last of the first `rows` rows has this key.
    pub fn add(&mut self, rows: u64, key: Key) {
        self.marks.push((rows, mark(key)));
    }

    /// The key of the last of the first `rows` rows, about; `None` if those are all.
    pub fn of_row(&self, rows: u64) -> Option<Mark> {
        let behind = self.marks.partition_point(|(marked, _)| *marked <= rows);
        if behind == self.marks.len() {
            return None;
        }
        // Rows before the first mark may have any key up to it.
        self.marks.get(behind.saturating_sub(1)).map(|(_, mark)| *mark)
    }

    pub fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<(u64, Mark)>()
    }
}

/// The order in which runs need their next units, and the memory to read them ahead.
#[derive(Debug, Default)]
pub struct Forecast {
    free_bytes: usize,
    /// Of each run that has more, the last key that has been asked for.
    asked: BinaryHeap<Reverse<(Mark, usize)>>,
}

impl Forecast {
    pub fn new(free_bytes: usize) -> Self {
        Self { free_bytes, asked: BinaryHeap::new() }
    }

    /// A run by its number among the sources. It may have been asked for some units, with memory of its own.
    pub fn add(&mut self, source: usize, pages: &RunPages) {
        self.asked.extend(pages.asked().map(|mark| Reverse((mark, source))));
    }

    /// Memory that has become free.
    pub fn give(&mut self, bytes: usize) {
        self.free_bytes += bytes;
    }

    /// Asks for the next units of the runs that come first, as far as there is memory. `pages_of` has those of a source that are
    /// not being read this moment.
    pub fn read_ahead<S>(&mut self, sources: &mut [S], pages_of: impl Fn(&mut S) -> Option<&mut RunPages>) {
        let mut away = Vec::new();
        while let Some(Reverse((mark, source))) = self.asked.pop() {
            let Some(pages) = sources.get_mut(source).and_then(&pages_of) else {
                away.push(Reverse((mark, source)));
                continue;
            };
            // All of it has been asked for.
            let Some(now) = pages.asked() else { continue };
            if now > mark {
                // It was read before it was foreseen.
                self.asked.push(Reverse((now, source)));
                continue;
            }
            if pages.unit_bytes() > self.free_bytes {
                self.asked.push(Reverse((mark, source)));
                break;
            }
            if pages.read_next_unit() {
                self.free_bytes -= pages.unit_bytes();
                self.add(source, pages);
            }
        }
        self.asked.extend(away);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_the_key_of_a_row_or_the_one_before() {
        let mut marks = Marks::default();
        assert_eq!(marks.of_row(0), None);
        let key_of = |text: &'static str| Key::encoded(text.as_bytes());
        [(10, "b"), (20, "d"), (30, "f")].iter().for_each(|(rows, key)| marks.add(*rows, key_of(key)));
        for (rows, key) in [(0, "b"), (9, "b"), (10, "b"), (15, "b"), (20, "d"), (29, "d")] {
            assert_eq!(marks.of_row(rows), Some(mark(key_of(key))), "{rows}");
        }
        assert_eq!(marks.of_row(30), None);
        assert_eq!(mark(key_of("abc"))[..4], *b"abc\0");
        assert_eq!(mark(Key::encoded(&[7; 100])), [7; 32]);
    }
}
