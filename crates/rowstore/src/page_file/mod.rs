//! The page file: pages on the device, each at its number times its size.
//!
//! ```text
//!   rows.pages    | control | control | … 64 KiB | page | page | page | …
//!   rows.double   | which pages | images of the pages that are being written |
//! ```
//!
//! A write of a page may be torn by a crash: any of its sectors may be old or new. So pages are written twice, first one
//! behind the other to `rows.double`, then to their places; when the file is opened, a page whose write was torn is taken from
//! there (*double write*, as in InnoDB). Pages that the log makes anew since they were last written are written once: recovery
//! makes them again, whatever is there.
//!
//! | file | subject |
//! |---|---|
//! | `control` | what must be known before anything else: sizes, and where recovery begins |
//! | `double_write` | the second copy |

pub mod control;
mod double_write;

use std::sync::Arc;

use bytes::Bytes;
use nandina_device::{
    AlignedBuffer, Batch, Device, Error as DeviceError, File, FileClass, OpenMode, Request,
};

pub use self::control::Control;
use self::double_write::DoubleWrite;
use crate::error::{Error, Result};
use crate::page::{self, PageId};
use crate::sync::Mutex;
use crate::tier::{Access, PageTier, WriteReason, WrittenPage};

const NAME: &str = "rows.pages";
const NEW_NAME: &str = "rows.pages.new";
/// In front of the pages; a multiple of every size of pages.
pub const CONTROL_BYTES: u64 = 64 << 10;
/// A file grows by a part of its length, and by so much at least.
const LEAST_GROWTH_BYTES: u64 = 128 << 10;
const GROWTH_PART: u64 = 16;
/// Bytes that are copied at once, while which no page is written.
const COPIED_BYTES: u64 = 1 << 20;

/// See the [module documentation](self).
pub struct PageFile {
    device: Device,
    file: File,
    page_bytes: usize,
    double: DoubleWrite,
    /// Bytes that there are.
    length: Mutex<u64>,
    /// Pages that could not be written to their places: their copies are the only ones until they are. One write at a time.
    unwritten: Mutex<Vec<(PageId, Bytes)>>,
}

impl PageFile {
    /// Opens the page file of a directory, or makes one as `control` says; with it what its control block says. Pages whose
    /// write was torn are whole afterwards.
    pub fn open(device: Device, new: Control) -> Result<(Self, Control)> {
        let failed = |source| read_error(&device, source);
        if device.exists(NEW_NAME).map_err(failed)? {
            device.remove(NEW_NAME).map_err(failed)?;
        }
        if !device.exists(NAME).map_err(failed)? {
            Self::create(&device, new)?;
        }
        let file = device.open_file(NAME, FileClass::Table, OpenMode::ReadWrite).map_err(failed)?;
        let control = control::read(&file)?;
        let page_bytes = control.page_bytes as usize;
        let length = file.len().map_err(failed)?;
        let double = DoubleWrite::open(&device, page_bytes)?;
        // Whether those who made the files came to that is not known.
        device.sync_directory().map_err(failed)?;
        let opened = Self {
            device,
            file,
            page_bytes,
            double,
            length: Mutex::new(length),
            unwritten: Mutex::default(),
        };
        opened.repair()?;
        Ok((opened, control))
    }

    /// What the control block of the page file in a directory says; nothing is changed.
    pub fn control(device: &Device) -> Result<Control> {
        open_to_read(device).map(|(_, control)| control)
    }

    fn create(device: &Device, new: Control) -> Result<()> {
        let full = |source| Error::PagesFull { path: device.path().join(NAME), source: Arc::new(source) };
        let file = device.create(NEW_NAME, FileClass::Table).map_err(full)?;
        file.allocate(0, LEAST_GROWTH_BYTES).map_err(full)?;
        control::write(&file, &new).map_err(|source| Error::PagesWrite {
            path: file.path().to_path_buf(),
            source: Arc::new(source),
        })?;
        device.rename(NEW_NAME, NAME).map_err(full)?;
        device.sync_directory().map_err(full)
    }

    /// Copies the pages to another directory, each as it is at some moment from now on. Nobody can open the copy before
    /// [`finish_copy`](Self::finish_copy).
    pub fn copy(&self, to: &Device, control: &Control) -> Result<()> {
        let failed = |source| backup_error(to, source);
        let copy = to.create(NEW_NAME, FileClass::Table).map_err(failed)?;
        control::write(&copy, control).map_err(failed)?;
        let mut at = CONTROL_BYTES;
        loop {
            let pages = {
                // No write of a page is half done meanwhile.
                let mut unwritten = self.unwritten.lock();
                self.write_unwritten(&mut unwritten)?;
                let bytes = COPIED_BYTES.min(self.length.lock().saturating_sub(at));
                if bytes == 0 {
                    break;
                }
                let buffer = self.device.buffer(bytes as usize);
                self.file.read_blocking(at, buffer).map_err(|source| self.read_error(source))?
            };
            let bytes = pages.len() as u64;
            copy.write_blocking(at, pages).map_err(failed)?;
            at += bytes;
        }
        copy.sync().map_err(failed)
    }

    /// Makes a copy one that can be opened.
    pub fn finish_copy(to: &Device) -> Result<()> {
        to.rename(NEW_NAME, NAME)
            .and_then(|()| to.sync_directory())
            .map_err(|source| backup_error(to, source))
    }

    /// Removes what there is of a copy that has not been finished.
    pub fn discard_copy(to: &Device) -> Result<(), DeviceError> {
        if to.exists(NEW_NAME)? { to.remove(NEW_NAME) } else { Ok(()) }
    }

    /// Whether a directory has files of pages.
    pub fn is_in(device: &Device) -> Result<bool, DeviceError> {
        Ok(device.exists(NAME)? || device.exists(NEW_NAME)? || device.exists(double_write::NAME)?)
    }

    /// Makes durable from where on the log is needed.
    pub fn write_control(&self, control: &Control) -> Result<()> {
        control::write(&self.file, control).map_err(|source| self.write_error(source))
    }

    /// Where a page is; behind all pages, if its number has more bits than those of pages.
    fn offset(&self, page: PageId) -> u64 {
        page.0.min(1 << PageId::BITS) * self.page_bytes as u64
    }

    /// Puts the copies of pages in place whose write was torn.
    fn repair(&self) -> Result<()> {
        let mut torn = Vec::new();
        for (page, image) in self.double.images()? {
            if self.offset(page) + self.page_bytes as u64 > *self.length.lock() {
                torn.push((page, image));
                continue;
            }
            let buffer = self.device.buffer(self.page_bytes);
            // What was torn may not even be readable.
            let there = self.file.read_blocking(self.offset(page), buffer).ok();
            if there.and_then(|there| page::verify(&there)) != Some(page) {
                torn.push((page, image));
            }
        }
        if torn.is_empty() {
            return Ok(());
        }
        for (page, _) in &torn {
            self.grow(PageId(page.0 + 1))?;
        }
        self.write_home(&torn)
    }

    /// Whether a page has ever been written.
    pub fn has(&self, page: PageId) -> Result<bool> {
        if self.offset(page) + self.page_bytes as u64 > *self.length.lock() {
            return Ok(false);
        }
        let read = self.file.read_blocking(self.offset(page), self.device.buffer(self.page_bytes));
        Ok(page::verify(&read.map_err(|source| self.read_error(source))?) == Some(page))
    }

    /// An error to report about a store whose log is not there.
    pub fn without_log(&self) -> Error {
        let reason =
            "it has pages and its log has no records; the folder of the log may be another one".into();
        Error::NoPageFile { path: self.file.path().to_path_buf(), reason }
    }

    /// Writes pages to their places, and makes them durable there.
    fn write_home(&self, pages: &[(PageId, Bytes)]) -> Result<()> {
        let requests = pages.iter().map(|(page, image)| Request::write(self.offset(*page), image.clone()));
        let requests: Vec<Request> = requests.collect();
        let done = self.file.submit(requests).wait().and_then(|_| self.file.sync());
        done.map_err(|source| self.write_error(source))
    }

    /// Writes pages to their places that could not be written before.
    fn write_unwritten(&self, unwritten: &mut Vec<(PageId, Bytes)>) -> Result<()> {
        if !unwritten.is_empty() {
            self.write_home(unwritten)?;
            unwritten.clear();
        }
        Ok(())
    }

    fn write_error(&self, source: DeviceError) -> Error {
        Error::PagesWrite { path: self.file.path().to_path_buf(), source: Arc::new(source) }
    }
}

/// The page file of a directory, and what its control block says; nothing is changed.
pub fn open_to_read(device: &Device) -> Result<(File, Control)> {
    let file = device.open_file(NAME, FileClass::Table, OpenMode::Read);
    let file = file.map_err(|source| read_error(device, source))?;
    let control = control::read(&file)?;
    Ok((file, control))
}

/// The second copies of pages that were written last in a directory; nothing is changed.
pub fn copies(device: &Device, page_bytes: usize) -> Result<Vec<(PageId, Bytes)>> {
    match DoubleWrite::open_to_read(device, page_bytes)? {
        Some(double) => double.images(),
        None => Ok(Vec::new()),
    }
}

/// An error to report of a copy.
pub fn backup_error(to: &Device, source: DeviceError) -> Error {
    Error::BackupWrite { path: to.path().to_path_buf(), source: Arc::new(source) }
}

pub fn read_error(device: &Device, source: DeviceError) -> Error {
    Error::PagesRead { path: device.path().join(NAME), source: Arc::new(source) }
}

impl PageTier for PageFile {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn read(&self, pages: Vec<(PageId, AlignedBuffer)>) -> Batch {
        let requests = pages.into_iter().map(|(page, buffer)| Request::read(self.offset(page), buffer));
        self.file.submit(requests.collect())
    }

    fn read_one(&self, page: PageId, buffer: AlignedBuffer) -> Result<AlignedBuffer, DeviceError> {
        self.file.read_blocking(self.offset(page), buffer)
    }

    fn write(&self, pages: &[WrittenPage], images: AlignedBuffer, _reason: WriteReason) -> Result<()> {
        let images: Bytes = images.freeze();
        let mut unwritten = self.unwritten.lock();
        self.write_unwritten(&mut unwritten)?;
        let image = |at: usize| images.slice(at * self.page_bytes..(at + 1) * self.page_bytes);
        let numbered = || pages.iter().enumerate();
        let twice = numbered().filter(|(_, written)| !written.is_in_log);
        let twice: Vec<(PageId, Bytes)> = twice.map(|(at, written)| (written.page, image(at))).collect();
        if !twice.is_empty() {
            self.double.write(&twice)?;
        }
        let images: Vec<(PageId, Bytes)> =
            numbered().map(|(at, written)| (written.page, image(at))).collect();
        self.write_home(&images).inspect_err(|_| *unwritten = images)
    }

    fn evicted(&self, _page: PageId, _image: &[u8], _access: Access) {}

    fn first_update(&self, _page: PageId) {}

    fn grow(&self, end: PageId) -> Result<()> {
        let mut length = self.length.lock();
        let wanted = self.offset(end);
        if wanted <= *length {
            return Ok(());
        }
        let full =
            |source| Error::PagesFull { path: self.file.path().to_path_buf(), source: Arc::new(source) };
        let growth = (*length / GROWTH_PART).max(LEAST_GROWTH_BYTES).next_multiple_of(LEAST_GROWTH_BYTES);
        let ample = (*length + growth).max(wanted);
        // Where there is no room for more than the page, that has to do.
        let (end, grown) = match self.file.allocate(*length, ample - *length) {
            Ok(()) => (ample, Ok(())),
            Err(_) => (wanted, self.file.allocate(*length, wanted - *length)),
        };
        grown.map_err(full)?;
        *length = end;
        Ok(())
    }

    fn damaged(&self, page: PageId, reason: &'static str) -> Error {
        Error::PageDamaged { path: self.file.path().to_path_buf(), page, reason }
    }

    fn read_error(&self, source: DeviceError) -> Error {
        read_error(&self.device, source)
    }
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageFile").field("file", &self.file).field("page_bytes", &self.page_bytes).finish()
    }
}
