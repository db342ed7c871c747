use nandina_device::{FileClass, OpenMode};
use nandina_rowstore::tier::Access;

use crate::model::Model;
use crate::setup::{Devices, PAGE_BYTES};

fn flip(devices: &Devices, name: &str, offset: u64) {
    let file = devices.pages.open_file(name, FileClass::Other, OpenMode::ReadWrite).unwrap();
    let block = offset - offset % 4096;
    let mut bytes = file.read_blocking(block, devices.pages.buffer(4096)).unwrap();
    bytes[(offset % 4096) as usize] ^= 4;
    file.write_blocking(block, bytes).unwrap();
    file.sync().unwrap();
}

fn filled(devices: &Devices) -> Model {
    let store = devices.open().unwrap();
    let mut model = Model::default();
    for _ in 0..120 {
        model.step(&store, 3).unwrap();
    }
    store.checkpoint().unwrap();
    model
}

#[test]
fn a_damaged_page_is_named_and_the_others_can_be_read() {
    let devices = Devices::new();
    let model = filled(&devices);
    // Written more than once ago, so that there is no other copy.
    let damaged = *model.pages.keys().next().unwrap();
    let store = devices.open().unwrap();
    store.checkpoint().unwrap();
    drop(store);
    flip(&devices, "rows.double", 0);
    flip(&devices, "rows.pages", damaged.0 * PAGE_BYTES as u64 + 1000);
    let store = devices.open().unwrap();
    for page in model.pages.keys() {
        match store.read(*page, Access::Random) {
            Ok(_) => assert_ne!(*page, damaged),
            Err(error) => {
                assert_eq!(*page, damaged);
                let error = error.to_string();
                assert!(
                    error.contains(&format!("page {page} of ")) && error.contains("rows.pages"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_page_in_the_place_of_another_one_is_noticed() {
    let devices = Devices::new();
    let model = filled(&devices);
    let mut pages = model.pages.keys();
    let (one, other) = (*pages.next().unwrap(), *pages.next().unwrap());
    flip(&devices, "rows.double", 0);
    let file = devices.pages.open_file("rows.pages", FileClass::Other, OpenMode::ReadWrite).unwrap();
    let image = file.read_blocking(one.0 * PAGE_BYTES as u64, devices.pages.buffer(PAGE_BYTES)).unwrap();
    file.write_blocking(other.0 * PAGE_BYTES as u64, image).unwrap();
    let store = devices.open().unwrap();
    let error = store.read(other, Access::Random).unwrap_err().to_string();
    assert!(error.contains("another page is in its place"), "{error}");
}

#[test]
fn one_control_block_is_enough() {
    for damaged in [0, 4096] {
        let devices = Devices::new();
        let model = filled(&devices);
        flip(&devices, "rows.pages", damaged + 17);
        let store = devices.open();
        // The other one may tell of a part of the log that has been released.
        match store {
            Ok(store) => model.check(&store, "one control block"),
            Err(error) => assert!(damaged == 0 && error.to_string().contains("log"), "{error}"),
        }
    }
    let devices = Devices::new();
    filled(&devices);
    flip(&devices, "rows.pages", 17);
    flip(&devices, "rows.pages", 4096 + 17);
    let error = devices.open().unwrap_err().to_string();
    assert!(error.contains("control blocks") && error.contains("backup"), "{error}");
}

#[test]
fn a_record_of_another_kind_is_named() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let lsn = store.log().append(&[77, 1, 2, 3]).unwrap();
    store.log().wait_until_durable(lsn).unwrap();
    drop(store);
    let error = devices.open().unwrap_err().to_string();
    assert!(error.contains("a record is none that this program writes"), "{error}");
}

#[test]
fn pages_without_their_log_are_left_alone() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let mut model = Model::default();
    for _ in 0..200 {
        model.step(&store, 3).unwrap();
    }
    store.log().wait_until_all_durable().unwrap();
    drop(store);
    let (other, _simulation) = devices.machine.memory("other log", nandina_simulation::FaultPlan::none());
    let error = nandina_rowstore::PageStore::open(
        devices.pages.clone(),
        other,
        crate::setup::STORE_ID,
        &crate::setup::options(),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no file of the log is there"), "{error}");
    model.check(&devices.open().unwrap(), "with its log");
}
