//! Numbers that name things.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identifier!(
    /// Never used again, also not after DROP.
    TableId
);
identifier!(
    /// Names a segment file of the database. Never used again.
    SegmentId
);
identifier!(
    /// Counts the pages of one table through all its segments. Less than 2^48.
    PageNumber
);

/// Tells databases apart, so that a file of one in the place of another's is noticed. Drawn when a database is created;
/// copies of its directory have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct DatabaseId(pub u64);

impl DatabaseId {
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl From<DatabaseId> for String {
    fn from(id: DatabaseId) -> Self {
        format!("{:016x}", id.0)
    }
}

impl TryFrom<String> for DatabaseId {
    type Error = std::num::ParseIntError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&digits, 16).map(Self)
    }
}

/// A row of one table: page number (47 bits) and slot in the page (16 bits).
///
/// Ids ascend in the order of storage. They stay valid as long as the table is only appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(u64);

impl RowId {
    pub const SLOT_BITS: u32 = 16;
    /// Most rows of one page.
    pub const SLOTS: usize = 1 << Self::SLOT_BITS;
    /// Most pages of a table: the highest bit of an id tells rows of its heap.
    pub const PAGES: u64 = 1 << 47;

    pub fn new(page: PageNumber, slot: u16) -> Self {
        assert!(page.0 < Self::PAGES, "page numbers have 47 bits");
        Self(page.0 << Self::SLOT_BITS | u64::from(slot))
    }

    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub fn to_bits(self) -> u64 {
        self.0
    }

    pub fn page(self) -> PageNumber {
        PageNumber(self.0 >> Self::SLOT_BITS)
    }

    pub fn slot(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page(), self.slot())
    }
}
