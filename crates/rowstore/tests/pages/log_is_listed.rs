//! The log, for people: while the store is open, and without a change of anything.

use nandina_device::Device;
use nandina_rowstore::Result;
use nandina_rowstore::listing::list;

use crate::model::Model;
use crate::setup::{CELLS, Devices};

fn lines(devices: &Devices) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    list(&devices.pages, devices.log.clone(), |change| {
        lines.push(change.to_string());
        Ok(())
    })?;
    Ok(lines)
}

/// All bytes of all files.
fn bytes_of(device: &Device) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in device.list().unwrap() {
        let file = device.open_file(&name, nandina_device::FileClass::Other, nandina_device::OpenMode::Read);
        let file = file.unwrap();
        let buffer = device.buffer(file.len().unwrap() as usize);
        files.push((name, file.read_blocking(0, buffer).unwrap().to_vec()));
    }
    files
}

#[test]
fn lines_say_which_bytes_of_which_pages_change() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let before = lines(&devices).unwrap().len();
    let mut change = store.change();
    let page = store.allocate(&mut change, CELLS).unwrap();
    let id = change.id(page);
    change.write(page, 100, &[7; 12]);
    change.shift(page, 100..110, 200);
    change.write(page, 300, &[1]);
    let lsn = change.commit().unwrap();
    assert_eq!(lines(&devices).unwrap().len(), before, "what is not durable yet is not there");

    store.log().wait_until_durable(lsn).unwrap();
    let listed = lines(&devices).unwrap();
    assert_eq!(listed.len(), before + 1);
    let (line, edits) = (&listed[before], "12 bytes at 100, 10 bytes moved from 100 to 200, 1 byte at 300");
    assert!(line.starts_with(&format!("{:016x} ", lsn.0)), "{line}");
    assert!(line.ends_with(&format!("; page {id}: made for kind 100, {edits}")), "{line}");
}

#[test]
fn all_that_recovery_would_read_is_listed_and_nothing_changed() {
    let devices = Devices::new();
    let mut model = Model::default();
    let store = devices.open().unwrap();
    for _ in 0..400 {
        model.step(&store, 3).unwrap();
        store.checkpoint_if_due().unwrap();
    }
    store.log().wait_until_all_durable().unwrap();
    let before = (bytes_of(&devices.pages), bytes_of(&devices.log));
    let listed = lines(&devices).unwrap();
    assert!(before == (bytes_of(&devices.pages), bytes_of(&devices.log)));
    assert!(!listed.is_empty() && listed.is_sorted(), "addresses grow");
    assert!(listed.iter().all(|line| !line.contains("this program")), "{listed:?}");

    store.checkpoint().unwrap();
    assert_eq!(lines(&devices).unwrap(), Vec::<String>::new());
}

#[test]
fn a_folder_without_pages_is_named() {
    let error = lines(&Devices::new()).unwrap_err().to_string();
    assert!(error.contains("rows.pages"), "{error}");
}
