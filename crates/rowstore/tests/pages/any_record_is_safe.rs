//! Records with any bytes in them: those of a damaged log whose checksums are right, or of another program.

use nandina_rowstore::change::{Edit, pages_of};
use nandina_rowstore::page::{HEADER_BYTES, PageId, PageKind, format};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::setup::PAGE_BYTES;

/// The parts of an edit, mostly ones that fit a page.
fn edit() -> impl Strategy<Value = Vec<u8>> {
    let place = prop_oneof![8 => HEADER_BYTES as u16..PAGE_BYTES as u16, 1 => any::<u16>()];
    let made = any::<u16>().prop_map(|kind| [&[0][..], &kind.to_le_bytes()].concat());
    let written = (place.clone(), vec(any::<u8>(), 0..60)).prop_map(|(at, bytes)| {
        [&[1][..], &at.to_le_bytes(), &(bytes.len() as u16).to_le_bytes(), &bytes].concat()
    });
    let moved = (place.clone(), place, 0..200_u16).prop_map(|(from, to, length)| {
        [&[2][..], &from.to_le_bytes(), &to.to_le_bytes(), &length.to_le_bytes()].concat()
    });
    prop_oneof![1 => made, 4 => written, 2 => moved]
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    let page = (0..1_u64 << 48, vec(edit(), 0..5)).prop_map(|(page, edits)| {
        let edits = edits.concat();
        [&page.to_le_bytes()[..], &(edits.len() as u32).to_le_bytes(), &edits].concat()
    });
    vec(page, 0..4).prop_map(|pages| [&[1][..], &pages.concat()].concat())
}

/// Makes the edits of a record on pages, each of which they leave as one of its number and with bytes of its own alone.
fn apply(record: &[u8]) -> Option<usize> {
    let pages = pages_of(record)?;
    for edits in &pages {
        let mut page = vec![0; PAGE_BYTES];
        format(&mut page, edits.page, PageKind(1));
        let head = page[..HEADER_BYTES].to_vec();
        let is_made = edits.edits().any(|edit| matches!(edit, Some(Edit::Format(_))));
        edits.apply(&mut page)?;
        assert_eq!(nandina_rowstore::page::id(&page), PageId(edits.page.0));
        assert!(is_made || page[..HEADER_BYTES] == head, "no edit is of the header");
    }
    Some(pages.len())
}

proptest! {
    #[test]
    fn records_are_pages_and_edits_whatever_is_changed_in_them(
        record in record(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = apply(&record);
        let _ = apply(&record[..cut.index(record.len())]);
        let mut damaged = record;
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let _ = apply(&damaged);
    }

    #[test]
    fn any_bytes_are_a_record_or_none(bytes in vec(any::<u8>(), 0..200)) {
        let _ = apply(&bytes);
        let _ = apply(&[&[1][..], &bytes].concat());
    }
}

/// Most records that are made here are whole ones, so that the tests above are of more than refusals.
#[test]
fn records_of_edits_that_fit_are_made() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let made = (0..400).filter(|_| {
        let record = record().new_tree(&mut runner).unwrap().current();
        apply(&record).is_some_and(|pages| pages > 0)
    });
    assert!(made.count() > 150);
}
