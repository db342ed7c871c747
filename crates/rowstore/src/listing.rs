//! The log of a store, for people.
//!
//! ```text
//!   address          bytes  changes
//!   0000000000001010    86  page 2: 1 byte at 25; page 9: made for rows, 8 bytes at 24
//! ```

use std::fmt;

use nandina_device::Device;

use crate::change::{self, Edit, PageEdits};
use crate::error::Result;
use crate::heap::directory::DIRECTORY_KIND;
use crate::heap::overflow::OVERFLOW_KIND;
use crate::heap::slotted::HEAP_KIND;
use crate::log::{self, Lsn};
use crate::page::PageKind;
use crate::page_file::PageFile;
use crate::space::{MAP_KIND, ROOT_KIND};
use crate::tree::TREE_KIND;
use crate::undo::{STREAMS_KIND, UNDO_KIND};

/// A record of the log. Displayed, it is a line that says which bytes of which pages it changes.
#[derive(Debug, Clone, Copy)]
pub struct LoggedChange<'r> {
    pub lsn: Lsn,
    record: &'r [u8],
}

/// Hands over the records that recovery would read of the store whose pages and whose log are in these directories. Nothing is
/// changed. Where another process has the store open and writes, it may fail, or say that there is damage: try again then.
pub fn list(pages: &Device, log: Device, mut take: impl FnMut(LoggedChange<'_>) -> Result<()>) -> Result<()> {
    let control = PageFile::control(pages)?;
    log::read_only(log, control.log_id, control.redo, |lsn, record| take(LoggedChange { lsn, record }))
}

impl fmt::Display for LoggedChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} {:>7}  ", self.lsn.0, self.record.len())?;
        let Some(pages) = change::pages_of(self.record) else {
            return f.write_str("none that this program writes");
        };
        for (number, edits) in pages.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            page(edits, f)?;
        }
        Ok(())
    }
}

fn page(edits: &PageEdits<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "page {}:", edits.page)?;
    for (number, edit) in edits.edits().enumerate() {
        f.write_str(if number > 0 { ", " } else { " " })?;
        match edit {
            Some(Edit::Format(kind)) => write!(f, "made for {}", name(kind))?,
            Some(Edit::Write { at, bytes }) => write!(f, "{} at {at}", count(bytes.len()))?,
            Some(Edit::Move { from, to, length }) => {
                write!(f, "{} moved from {from} to {to}", count(length))?;
            }
            None => f.write_str("an edit that this program does not make")?,
        }
    }
    Ok(())
}

fn count(bytes: usize) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}

/// What a page is used for.
fn name(kind: PageKind) -> String {
    let known = [
        (ROOT_KIND, "roots"),
        (MAP_KIND, "a map of pages"),
        (STREAMS_KIND, "streams of undo"),
        (UNDO_KIND, "undo"),
        (HEAP_KIND, "rows"),
        (DIRECTORY_KIND, "a directory of rows"),
        (OVERFLOW_KIND, "a long row"),
        (TREE_KIND, "a tree"),
    ];
    let found = known.iter().find(|(known, _)| *known == kind);
    found.map_or_else(|| format!("kind {}", kind.0), |(_, name)| (*name).to_owned())
}
