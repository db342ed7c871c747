//! Damaged files: the error says which file and which page, and nothing panics.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nandina_storage::*;
use setup::*;

fn database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    create(&store, "t", 0..20_000);
    drop(store);
    let segment = fs::canonicalize(directory.path()).unwrap().join("segment-1.pax");
    assert!(segment.exists());
    (directory, segment)
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn message(directory: &Path) -> String {
    let store = Store::open_path(directory, Mode::Write).map_err(|error| error.to_string());
    match store {
        Err(message) => message,
        Ok(store) => match scan(
            &store.table("t").unwrap(),
            ScanOptions { pruner: Some(Arc::new(AllBounds)), ..Default::default() },
        ) {
            Ok(_) => "no error".to_owned(),
            Err(error) => error.to_string(),
        },
    }
}

/// Replaces words of a manifest, whose checksum is right afterwards.
fn rewrite_manifest(directory: &Path, from: &str, to: &str) {
    let path = directory.join(MANIFEST);
    let manifest = fs::read_to_string(&path).unwrap();
    let (_, body) = manifest.split_once('\n').unwrap();
    assert!(body.contains(from), "{body}");
    let body = body.replacen(from, to, 1);
    let line = format!("NANDINA MANIFEST 2 {:08x} {}", crc32c::crc32c(body.as_bytes()), body.len());
    fs::write(path, format!("{line}\n{body}")).unwrap();
}

#[test]
fn a_manifest_that_counts_other_rows() {
    let (directory, segment) = database();
    rewrite_manifest(directory.path(), "\"rows\": 20000", "\"rows\": 20001");
    let expected = "is damaged: it has 20000 rows, the manifest says 20001; restore the database from a copy";
    assert_eq!(message(directory.path()), format!("{} {expected}", segment.display()));
}

#[test]
fn a_manifest_with_page_numbers_that_cannot_be() {
    let (directory, _segment) = database();
    rewrite_manifest(directory.path(), "\"first_page\": 0", "\"first_page\": 140737488355328");
    let message = message(directory.path());
    assert!(
        message.contains("table \"t\": page numbers of its segments overlap, or exceed 47 bits"),
        "{message}"
    );
}

#[test]
fn a_flipped_bit_in_a_page() {
    let (directory, segment) = database();
    // Page 3 in slots of 32 KiB after a header of 4 KiB; its first mini-page starts at 192.
    flip(&segment, 4096 + 3 * 32768 + 200);
    let message = message(directory.path());
    let start =
        format!("{}, page 3: mini-page of column \"key\" of page 3 is damaged: checksum", segment.display());
    assert!(message.starts_with(&start), "{message}");
}

#[test]
fn every_block_is_covered_by_a_checksum() {
    let (directory, segment) = database();
    let length = fs::metadata(&segment).unwrap().len();
    for block in 0..length / 4096 {
        // One of these may be padding between mini-pages or behind the last one, not all of them.
        let noticed = [40, 300, 2500].into_iter().any(|byte| {
            flip(&segment, block * 4096 + byte);
            let found = message(directory.path());
            flip(&segment, block * 4096 + byte);
            assert!(found == "no error" || found.contains("segment-1.pax"), "block {block}: {found}");
            found != "no error"
        });
        assert!(noticed, "block {block} of {}", length / 4096);
    }
    assert_eq!(message(directory.path()), "no error");
}

#[test]
fn a_truncated_segment() {
    let (directory, segment) = database();
    let length = fs::metadata(&segment).unwrap().len();
    for keep in [0, 4096, length / 2, length - 4096] {
        OpenOptions::new().write(true).open(&segment).unwrap().set_len(keep).unwrap();
        let message = message(directory.path());
        let expected =
            format!("{} is damaged: it is {keep} bytes long instead of {length}", segment.display());
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn a_missing_segment() {
    let (directory, segment) = database();
    fs::remove_file(&segment).unwrap();
    let message = message(directory.path());
    assert!(
        message.contains(&segment.display().to_string()) && message.starts_with("cannot open"),
        "{message}"
    );
}

#[test]
fn another_kind_of_file_in_its_place() {
    let (directory, segment) = database();
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"PAR1", 0).unwrap();
    let message = message(directory.path());
    assert!(
        message.contains("segment-1.pax, header is damaged: it is not a Nandina segment file"),
        "{message}"
    );
}

#[test]
fn a_segment_of_a_newer_format() {
    let (directory, segment) = database();
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[3], 4).unwrap();
    let expected = "has format version 3, this build reads version 2: open it with the release that wrote it";
    let message = message(directory.path());
    assert_eq!(message, format!("{} {expected}", segment.display()));
}

#[test]
fn two_segments_in_each_other_s_place() {
    let (directory, segment) = database();
    {
        let store = Store::open_path(directory.path(), Mode::Write).unwrap();
        create(&store, "other", 0..20_000);
    }
    fs::copy(directory.path().join("segment-2.pax"), &segment).unwrap();
    let message = message(directory.path());
    assert!(message.contains("segment-1.pax, header is damaged: it belongs to another segment"), "{message}");
}

#[test]
fn a_lost_manifest_loses_no_segments() {
    let (directory, segment) = database();
    fs::remove_file(directory.path().join(MANIFEST)).unwrap();
    let message = message(directory.path());
    assert!(
        message.contains("nandina.manifest is damaged: it is missing, but there are segment files"),
        "{message}"
    );
    assert!(segment.exists());
}

#[test]
fn a_damaged_manifest() {
    let (directory, segment) = database();
    flip(&directory.path().join(MANIFEST), 200);
    let message = message(directory.path());
    assert!(message.contains("nandina.manifest is damaged: its checksum does not match"), "{message}");
    assert!(segment.exists());
    fs::write(directory.path().join(MANIFEST), b"").unwrap();
    assert!(self::message(directory.path()).contains("its first line is cut off"));
}
