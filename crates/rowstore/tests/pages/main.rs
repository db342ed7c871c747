//! Pages that are changed in place, in memory and on the device.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod any_record_is_safe;
mod crashes_keep_what_was_committed;
mod damage_is_named;
mod log_is_listed;
mod model;
mod pool_holds_what_it_should;
mod setup;
mod threads_change_pages;
