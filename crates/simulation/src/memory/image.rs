//! Contents of a simulated file: blocks that the live and the durable image share until one changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use nandina_device::{BLOCK_BYTES, SplitMix64};

use super::{Contents, CrashOutcome};

/// What a disk writes atomically.
pub(super) const SECTOR_BYTES: usize = 512;

type Block = [u8; BLOCK_BYTES];

/// One version of a file's contents. Blocks that are missing read as zeros.
#[derive(Clone, Default)]
pub(crate) struct Image {
    len: u64,
    blocks: BTreeMap<u64, Arc<Block>>,
}

/// The part of a range that lies in one block.
struct Piece {
    block: u64,
    /// First byte inside the block.
    start: usize,
    /// First byte inside the range.
    at: usize,
    bytes: usize,
}

fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes {
            return None;
        }
        let position = offset + at as u64;
        let start = (position % BLOCK_BYTES as u64) as usize;
        let piece = Piece {
            block: position / BLOCK_BYTES as u64,
            start,
            at,
            bytes: (BLOCK_BYTES - start).min(bytes - at),
        };
        at += piece.bytes;
        Some(piece)
    })
}

impl Image {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES as u64
    }

    /// Space that a write of the range would take beyond what the image holds.
    pub(crate) fn missing_bytes(&self, offset: u64, bytes: u64) -> u64 {
        let missing =
            pieces(offset, bytes as usize).filter(|piece| !self.blocks.contains_key(&piece.block)).count();
        missing as u64 * BLOCK_BYTES as u64
    }

    /// Fills `out` up to the end of the file; returns how many bytes that were.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let bytes = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        for piece in pieces(offset, bytes) {
            let target = out.get_mut(piece.at..piece.at + piece.bytes).unwrap_or_default();
            match self
                .blocks
                .get(&piece.block)
                .and_then(|block| block.get(piece.start..piece.start + piece.bytes))
            {
                Some(source) => target.copy_from_slice(source),
                None => target.fill(0),
            }
        }
        bytes
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for piece in pieces(offset, data.len()) {
            let block = self.blocks.entry(piece.block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            let block = Arc::make_mut(block);
            if let (Some(target), Some(source)) = (
                block.get_mut(piece.start..piece.start + piece.bytes),
                data.get(piece.at..piece.at + piece.bytes),
            ) {
                target.copy_from_slice(source);
            }
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(*offset, data),
            Change::Extend { bytes } => self.len = self.len.max(*bytes),
            Change::Allocate { offset, bytes } => {
                for piece in pieces(*offset, *bytes as usize) {
                    self.blocks.entry(piece.block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
                }
                self.len = self.len.max(offset + bytes);
            }
            Change::Punch { offset, bytes } => {
                for piece in pieces(*offset, *bytes as usize) {
                    if piece.bytes == BLOCK_BYTES {
                        self.blocks.remove(&piece.block);
                    } else if let Some(block) = self.blocks.get_mut(&piece.block) {
                        let hole = Arc::make_mut(block).get_mut(piece.start..piece.start + piece.bytes);
                        hole.unwrap_or_default().fill(0);
                    }
                }
            }
            Change::Truncate { bytes } => {
                let kept_blocks = bytes.div_ceil(BLOCK_BYTES as u64);
                self.blocks.split_off(&kept_blocks);
                let tail = (bytes % BLOCK_BYTES as u64) as usize;
                if tail > 0
                    && let Some(block) = self.blocks.get_mut(&(kept_blocks - 1))
                {
                    Arc::make_mut(block).get_mut(tail..).unwrap_or_default().fill(0);
                }
                self.len = *bytes;
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write {
        offset: u64,
        data: Arc<[u8]>,
    },
    /// The file has at least this length.
    Extend {
        bytes: u64,
    },
    Allocate {
        offset: u64,
        bytes: u64,
    },
    Punch {
        offset: u64,
        bytes: u64,
    },
    Truncate {
        bytes: u64,
    },
}

/// A file as requests see it, as a crash would leave it, and the way from one to the other.
#[derive(Default)]
pub(crate) struct FileImages {
    pub(crate) live: Image,
    durable: Image,
    unsynced: Vec<Change>,
}

impl FileImages {
    pub(crate) fn apply(&mut self, change: Change, contents: Contents) {
        self.live.apply(&change);
        if contents == Contents::Kept {
            self.unsynced.push(change);
        }
    }

    pub(crate) fn sync(&mut self, contents: Contents) {
        if contents == Contents::Kept {
            self.durable = self.live.clone();
            self.unsynced.clear();
        }
    }

    pub(crate) fn crash(&mut self, outcome: CrashOutcome, random: Option<&mut SplitMix64>) {
        let unsynced = std::mem::take(&mut self.unsynced);
        match (outcome, random) {
            (CrashOutcome::KeepAll, _) => self.durable = self.live.clone(),
            (CrashOutcome::Random { .. }, Some(random)) => {
                for change in &unsynced {
                    self.apply_by_chance(change, random);
                }
            }
            _ => {}
        }
        self.live = self.durable.clone();
    }

    fn apply_by_chance(&mut self, change: &Change, random: &mut SplitMix64) {
        match (random.below(4), change) {
            (0, _) => {}
            (1, Change::Write { offset, data }) => {
                for (number, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                    if random.below(2) == 0 {
                        self.durable.write(offset + (number * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
            _ => self.durable.apply(change),
        }
    }
}
