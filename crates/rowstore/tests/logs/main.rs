//! A log keeps what it has said to be durable, whatever happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod commits_share_syncs;
mod crashes_lose_nothing_durable;
mod damage_is_named;
mod files_are_used_again;
mod setup;
