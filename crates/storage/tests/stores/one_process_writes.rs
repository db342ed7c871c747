//! One writer at a time; readers see the database as it was when they opened it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use nandina_storage::*;
use setup::*;

#[test]
fn the_second_writer_is_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    let message = Store::open_path(directory.path(), Mode::Write).unwrap_err().to_string();
    let path = std::fs::canonicalize(directory.path()).unwrap();
    let pid = std::process::id();
    assert_eq!(
        message,
        format!(
            "database {} is open for writing in another process (process {pid}): close it there, or open it read-only",
            path.display()
        )
    );
    drop(store);
    Store::open_path(directory.path(), Mode::Write).unwrap();
}

#[test]
fn tables_keep_the_database_open() {
    let directory = tempfile::tempdir().unwrap();
    let table = create(&Store::open_path(directory.path(), Mode::Write).unwrap(), "t", 0..10);
    assert!(Store::open_path(directory.path(), Mode::Write).is_err());
    drop(table);
    Store::open_path(directory.path(), Mode::Write).unwrap();
}

#[test]
fn readers_beside_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open_path(directory.path(), Mode::Write).unwrap();
    create(&writer, "t", 0..1000);
    let reader = Store::open_path(directory.path(), Mode::ReadOnly).unwrap();
    writer.drop_table("t").unwrap();
    create(&writer, "u", 0..10);
    assert_eq!(reader.table_names(), ["t"]);
    assert_batches_equal(&read(&reader.table("t").unwrap()), &rows(0..1000));
    let message = reader.drop_table("t").unwrap_err().to_string();
    assert!(message.contains("was opened read-only"), "{message}");
    assert_eq!(Store::open_path(directory.path(), Mode::ReadOnly).unwrap().table_names(), ["u"]);
}

#[test]
fn readers_find_a_state_while_the_writer_replaces_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open_path(directory.path(), Mode::Write).unwrap();
    create(&writer, "t", 0..100);
    let opened = std::thread::scope(|scope| {
        let openings = scope.spawn(|| {
            for _ in 0..200 {
                let reader = Store::open_path(directory.path(), Mode::ReadOnly).unwrap();
                assert_batches_equal(&read(&reader.table("t").unwrap()), &rows(0..100));
            }
        });
        while !openings.is_finished() {
            let options = WriteOptions::default();
            let replaced =
                writer.create_table_with_rows(definition("t"), IfExists::Replace, options).unwrap();
            write(&replaced, 0..100);
            replaced.commit_blocking().unwrap();
        }
        openings.join()
    });
    opened.unwrap();
}

#[test]
fn places_without_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let message = Store::open_path(directory.path(), Mode::ReadOnly).unwrap_err().to_string();
    assert!(message.starts_with("there is no database in"), "{message}");
    let missing = directory.path().join("missing");
    let message = Store::open_path(&missing, Mode::ReadOnly).unwrap_err().to_string();
    assert!(message.starts_with("there is no database in"), "{message}");
    let file = directory.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let message = Store::open_path(&file, Mode::Write).unwrap_err().to_string();
    assert!(message.ends_with("file is not a directory: give the path of a database directory"), "{message}");
    Store::open_path(directory.path().join("a/new/one"), Mode::Write).unwrap();
}
