//! Whether a page that was read can be one of its kind: all places that it names are within it.
//!
//! Its checksum tells that it is as it was written; this tells that what was written makes sense, so that those who look into it need
//! not ask. What pages say of each other is checked where one leads to the other.

use crate::heap::{directory, slotted};
use crate::page;
use crate::tree::{TREE_KIND, node};
use crate::undo;

/// What cannot be in such a page, if there is something.
pub fn fault(page: &[u8]) -> Option<&'static str> {
    let is_sound = match page::kind(page) {
        slotted::HEAP_KIND => slotted::is_sound(page),
        directory::DIRECTORY_KIND => directory::is_sound(page),
        TREE_KIND => node::is_sound(page),
        undo::UNDO_KIND => undo::is_sound(page),
        // All places of others follow from the size of a page, or are looked at one by one.
        _ => true,
    };
    (!is_sound).then_some("it names places that are not within it")
}
