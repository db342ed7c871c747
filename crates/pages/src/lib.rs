//! What does a page look like?
//!
//! Pure codecs between PAX pages and Arrow, without I/O. A PAX page (seed paper *RARE-join*, section 2, after
//! Ailamaki et al.) holds whole rows; inside it the values of each column stand together in a *mini-page*, in
//! Arrow's own layout, so that a reader builds arrays that point into the page's bytes. Where a page is written once and
//! read often ([`CompactPage`]), each is in the smallest of several encodings instead.
//!
//! ```text
//!  0        64              64+20·columns                                       used_bytes      page_bytes
//!  ├─ header ┼─ directory ───┼─ pad ┼─ mini-page 0 ─┼─ pad ┼─ mini-page 1 ─┼ … ─┼── zeros ───────┤
//!  │ magic   │ 20 bytes per  │      │ fixed width:  │      │ variable:     │
//!  │ version │ column:       │      │  values       │      │  offsets      │
//!  │ rows …  │ position,     │      │  [validity]   │      │  [validity]   │
//!  │ crc32c  │ length, crc32c│      │               │      │  value bytes  │
//! ```
//!
//! Invariants:
//! * Every mini-page starts at a multiple of [`MINI_PAGE_ALIGNMENT`]; the piece that needs alignment comes first in it.
//! * A validity bitmap exists exactly if the column holds at least one null in this page.
//! * A mini-page can be decoded from its own bytes and its [`MiniPageMeta`]: scans never need the header.
//! * No input bytes make a decoder panic or read out of bounds, whether checksums are verified or not.
//!
//! Byte-level diagrams: `docs/format.md`.

#![allow(
    clippy::indexing_slicing,
    reason = "a wrong index must not write less than was given; what is read is checked before: lengths, offsets, codes"
)]

mod bitmap;
mod builder;
mod compact_page;
mod encodings;
mod error;
mod format;
pub mod mini_page;
mod nested;
mod own_buffers;
mod page;
mod pieces;
pub mod prefetch;
mod row_bytes;
mod row_codec;
mod rows;
mod schema;
mod staging;

pub use builder::PageBuilder;
pub use compact_page::CompactPage;
pub use encodings::MAX_ENCODED_ROWS;
pub use error::{PageError, Result};
pub use format::{
    Encoding, FORMAT_VERSION, HEADER_BYTES, MAGIC, MINI_PAGE_ALIGNMENT, MiniPageMeta, PageIdentity, PageMeta,
};
pub use mini_page::{
    ColumnParts, DictionaryParts, PartValues, decode_dictionary, decode_mini_page, mini_page_checksum,
};
pub use own_buffers::with_own_buffers;
pub use page::{Page, Verify};
pub use row_bytes::row_bytes;
pub use row_codec::{RowCodec, RowDecoder, RowEncoder};
pub use rows::Rows;
pub use schema::{ColumnLayout, PageSchema};
