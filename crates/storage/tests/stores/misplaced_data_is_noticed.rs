//! Intact parts in the wrong place: swapped, repeated, shifted, taken from a neighbour. Every one of them carries checksums
//! that match; what is read is still what was written, or an error that names the file.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use nandina_storage::*;
use setup::*;

const BLOCK: usize = 4096;

/// Tables `t` and `u` of two stripes each, whose rows are as many and as long wherever they begin.
fn database(from: i64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    for (name, keys) in [("t", from..from + 4000), ("u", from + 4000..from + 8000)] {
        let writer =
            store.create_table_with_rows(definition(name), IfExists::Fail, WriteOptions::default()).unwrap();
        write_in_two_stripes(&writer, keys);
        writer.commit_blocking().unwrap();
    }
    directory
}

fn write_in_two_stripes(writer: &TableWriter, keys: Range<i64>) {
    let middle = keys.start.midpoint(keys.end);
    let mut lanes = [writer.lane(), writer.lane()];
    lanes[0].append_blocking(&rows(keys.start..middle)).unwrap();
    lanes[1].append_blocking(&rows(middle..keys.end)).unwrap();
    for lane in lanes {
        lane.finish_blocking().unwrap();
    }
}

fn content(directory: &Path) -> Result<RecordBatch> {
    let store = Store::open_path(directory, Mode::ReadOnly)?;
    scan(&store.table("t")?, ScanOptions { pruner: Some(Arc::new(AllBounds)), ..Default::default() })
}

/// A database, blocks of one segment of which are replaced again and again by something else.
struct Attack {
    _directory: tempfile::TempDir,
    path: PathBuf,
    intact: Vec<u8>,
    /// Positions of the blocks that are not all zeros, as those in holes between stripes are.
    places: Vec<usize>,
    expected: RecordBatch,
    tried: usize,
    noticed: usize,
}

impl Attack {
    fn new() -> Self {
        let directory = database(100_000);
        let expected = content(directory.path()).unwrap();
        let path = directory.path().join("segment-1.pax");
        let intact = fs::read(&path).unwrap();
        assert!(intact.len().is_multiple_of(BLOCK));
        let is_written = |at: &usize| intact[at * BLOCK..(at + 1) * BLOCK].iter().any(|&byte| byte != 0);
        let places: Vec<usize> = (0..intact.len() / BLOCK).filter(is_written).collect();
        assert!((16..200).contains(&places.len()), "{} blocks", places.len());
        Self { _directory: directory, path, intact, places, expected, tried: 0, noticed: 0 }
    }

    fn blocks_of(&self, file: &[u8]) -> Vec<Vec<u8>> {
        self.places.iter().map(|at| file[at * BLOCK..(at + 1) * BLOCK].to_vec()).collect()
    }

    /// With other blocks at the places from the `first` one on.
    fn replace(&mut self, first: usize, blocks: &[Vec<u8>], what: &str) {
        let intact = self.blocks_of(&self.intact);
        if blocks == &intact[first..first + blocks.len()] {
            return;
        }
        let file = File::options().write(true).open(&self.path).unwrap();
        let put = |blocks: &[Vec<u8>]| {
            for (at, block) in self.places[first..].iter().zip(blocks) {
                file.write_all_at(block, (at * BLOCK) as u64).unwrap();
            }
        };
        put(blocks);
        self.tried += 1;
        match content(self.path.parent().unwrap()) {
            Ok(found) => assert_eq!(found, self.expected, "other rows after {what}"),
            Err(error) => {
                self.noticed += 1;
                assert!(error.to_string().contains("segment-1.pax"), "{what}: {error}");
            }
        }
        put(&intact[first..first + blocks.len()]);
    }

    /// What is not noticed lies behind the last mini-page of a page, where nothing is read.
    fn check_noticed(&self) {
        assert!(self.noticed * 10 > self.tried * 8, "{} of {} noticed", self.noticed, self.tried);
    }
}

#[test]
fn blocks_of_a_segment_in_each_other_s_place() {
    let mut attack = Attack::new();
    let blocks = attack.blocks_of(&attack.intact);
    for at in 0..blocks.len() {
        for from in 0..blocks.len() {
            attack.replace(at, &blocks[from..=from], &format!("a copy of block {from} at {at}"));
            if from < at {
                let mut swapped = blocks[from..=at].to_vec();
                swapped.swap(0, at - from);
                attack.replace(from, &swapped, &format!("blocks {from} and {at} swapped"));
            }
        }
    }
    attack.check_noticed();
}

#[test]
fn parts_of_a_segment_shifted() {
    let mut attack = Attack::new();
    let blocks = attack.blocks_of(&attack.intact);
    for from in 0..blocks.len() {
        for to in from + 2..=blocks.len() {
            let (mut left, mut right) = (blocks[from..to].to_vec(), blocks[from..to].to_vec());
            left.rotate_left(1);
            attack.replace(from, &left, &format!("blocks {from}..{to} shifted to the left"));
            right.rotate_right(1);
            attack.replace(from, &right, &format!("blocks {from}..{to} shifted to the right"));
        }
    }
    attack.check_noticed();
}

#[test]
fn parts_of_neighbours() {
    let mut attack = Attack::new();
    let other_database = database(200_000);
    // The next table of the same database, and the same table of another one, laid out alike.
    for path in [attack.path.with_file_name("segment-2.pax"), other_database.path().join("segment-1.pax")] {
        let neighbour = fs::read(&path).unwrap();
        assert_eq!(neighbour.len(), attack.intact.len(), "the layouts are to be the same");
        let blocks = attack.blocks_of(&neighbour);
        attack.replace(0, &blocks, &path.display().to_string());
        assert_eq!(attack.noticed, attack.tried, "a whole segment: {}", path.display());
        for from in 0..blocks.len() {
            for to in from + 1..=blocks.len() {
                let what = format!("blocks {from}..{to} of {}", path.display());
                attack.replace(from, &blocks[from..to], &what);
            }
        }
    }
    attack.check_noticed();
}

#[test]
fn a_segment_of_a_copy_that_went_its_own_way() {
    let directory = database(0);
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    for (path, keys) in [(directory.path(), 10_000..10_100), (copy.path(), 20_000..20_100)] {
        let store = Store::open_path(path, Mode::Write).unwrap();
        append(&store.table("t").unwrap(), keys);
    }
    fs::copy(copy.path().join("segment-3.pax"), directory.path().join("segment-3.pax")).unwrap();
    let message = content(directory.path()).unwrap_err().to_string();
    assert!(
        message.contains("segment-3.pax, directory is damaged: it is another one than the manifest names"),
        "{message}"
    );
}

#[test]
fn a_manifest_of_another_database() {
    let (directory, other) = (database(100_000), database(200_000));
    let manifest = directory.path().join(MANIFEST);
    fs::copy(other.path().join(MANIFEST), &manifest).unwrap();
    let message = content(directory.path()).unwrap_err().to_string();
    assert!(
        message.contains("segment-1.pax, header is damaged: it belongs to another database"),
        "{message}"
    );
}

#[test]
fn a_manifest_that_names_fewer_segments_removes_no_foreign_ones() {
    let directory = database(0);
    let empty = tempfile::tempdir().unwrap();
    drop(Store::open_path(empty.path(), Mode::Write).unwrap());
    fs::copy(empty.path().join(MANIFEST), directory.path().join(MANIFEST)).unwrap();
    let message = Store::open_path(directory.path(), Mode::Write).unwrap_err().to_string();
    assert!(
        message.contains("nandina.manifest is damaged: segment-")
            && message.contains(".pax beside it belongs to another database"),
        "{message}"
    );
    assert!(
        directory.path().join("segment-1.pax").exists() && directory.path().join("segment-2.pax").exists()
    );
}

#[test]
fn an_older_manifest_of_the_same_database() {
    let directory = database(0);
    let manifest = directory.path().join(MANIFEST);
    let before = fs::read(&manifest).unwrap();
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    let writer = store.table("t").unwrap().writer(WriteMode::Overwrite, WriteOptions::default()).unwrap();
    write(&writer, 5..6);
    writer.commit_blocking().unwrap();
    drop(store);
    fs::write(&manifest, before).unwrap();
    let message = content(directory.path()).unwrap_err().to_string();
    assert!(message.contains("segment-1.pax"), "{message}");
}
