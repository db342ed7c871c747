//! Rows by their keys: which are equal, how they are hashed, and the hash table that groups them.
//!
//! ```text
//!   key columns ──layout──► stored form ──hasher──► KeyedRows ──group_table──► group numbers
//! ```

mod byte_views;
mod columns;
pub mod floats;
mod group_table;
mod hasher;
mod keyed_rows;
mod layout;

pub(crate) use byte_views::ByteViews;
pub(crate) use columns::BatchKey;
pub(crate) use group_table::GroupTable;
pub(crate) use hasher::KeyHasher;
pub(crate) use keyed_rows::{KeyedRows, hashes_of};
pub(crate) use layout::KeyLayout;
