//! Pages that are changed in place and survive crashes: opening, recovery, checkpoints.
//!
//! Opening reads the log twice. The first time finds its end and makes sure that all of it is durable; the second time makes
//! the changes again that pages do not have, reading the pages of many records at once. What transactions had not committed is
//! then in the pages, and rolled back by `transaction`.
//!
//! A checkpoint writes the pages back whose first change lies furthest back, and notes from where on the log is needed, while others
//! go on changing pages.

use std::collections::HashMap;
use std::sync::Arc;

use nandina_device::Device;

use crate::change::{self, Change, Changed, PageEdits};
use crate::error::{Error, Result};
use crate::log::{Log, LogFiles, LogOptions, Lsn};
use crate::page::{self, PageId, PageKind};
use crate::page_file::{Control, PageFile, backup_error, control};
use crate::pool::{BufferPool, PageRead, PageWrite};
use crate::read_only::ReadOnlyPages;
use crate::space::Space;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::tier::{Access, PageTier};

/// How a page store is kept.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Bytes of a page of a new store.
    pub page_bytes: usize,
    /// Pages in memory.
    pub frames: usize,
    /// Pages in memory that the pool may grow to.
    pub most_frames: usize,
    pub log: LogOptions,
    /// Bytes of the log that recovery may have to read, about.
    pub most_log_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            page_bytes: 8 << 10,
            frames: 8192,
            most_frames: 8192,
            log: LogOptions::default(),
            most_log_bytes: 256 << 20,
        }
    }
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct PageStore {
    pool: BufferPool,
    log: Log,
    /// `None` where the store is only read.
    file: Option<Arc<PageFile>>,
    space: Space,
    most_log_bytes: u64,
    /// What the control block says. One checkpoint at a time.
    control: Mutex<Control>,
    /// Where recovery would begin, as the control block says.
    redo: AtomicU64,
}

impl PageStore {
    /// Opens the store whose pages and whose log are in these directories, or makes one. `id` tells it from all others.
    pub fn open(pages: Device, log: Device, id: u64, options: &StoreOptions) -> Result<Self> {
        assert!(control::is_page_size(options.page_bytes), "a page has 4 to 32 KiB, a power of two");
        let new =
            Control { page_bytes: options.page_bytes as u32, log_id: id, sequence: 0, redo: Lsn::default() };
        let (file, control) = PageFile::open(pages.clone(), new)?;
        let file = Arc::new(file);
        let mut records = 0_u64;
        let mut made = HashMap::new();
        let log = Log::open(log, control.log_id, options.log.clone(), control.redo, |lsn, record| {
            records += 1;
            let pages = change::pages_of(record).unwrap_or_default().into_iter();
            made.extend(pages.filter(|edits| edits.creates().is_some()).map(|edits| (edits.page, lsn)));
            Ok(())
        })?;
        let tier: Arc<dyn PageTier> = Arc::clone(&file) as Arc<dyn PageTier>;
        let pool = BufferPool::new(pages, tier, log.clone(), options.frames, options.most_frames);
        let space = Space::new(pool.page_bytes());
        let store = Self {
            pool,
            log,
            file: Some(Arc::clone(&file)),
            space,
            most_log_bytes: options.most_log_bytes,
            control: Mutex::new(control),
            redo: AtomicU64::new(control.redo.0),
        };
        if control.redo == Lsn::default() && records == 0 {
            if file.has(store.space.root_page())? {
                return Err(file.without_log());
            }
            store.create()?;
        } else {
            store.redo(control.redo, made)?;
        }
        Ok(store)
    }

    /// Opens the store to read it, whatever is wrong with its log, which is told; see `read_only`. Nothing on the devices is
    /// changed: writes are errors.
    pub fn open_read_only(pages: Device, log: Device, frames: usize) -> Result<(Self, Option<Error>)> {
        let (tier, control, damage) = ReadOnlyPages::open(&pages, log.clone())?;
        let why = Error::ReadOnly { path: pages.path().to_path_buf() };
        let log = Log::closed(log, control.log_id, control.redo, why)?;
        let pool = BufferPool::new(pages, Arc::new(tier), log.clone(), frames, frames);
        let store = Self {
            space: Space::new(pool.page_bytes()),
            pool,
            log,
            file: None,
            most_log_bytes: u64::MAX,
            control: Mutex::new(control),
            redo: AtomicU64::new(control.redo.0),
        };
        Ok((store, damage))
    }

    fn create(&self) -> Result<()> {
        let mut change = self.change();
        self.space.create(&mut change)?;
        change.commit()?;
        // From now on, these pages are there, and recovery begins behind them.
        self.checkpoint()
    }

    /// Makes the changes again that pages do not have. `made` says where pages were last made anew: what was in them before is
    /// not looked at, and may have been torn since.
    fn redo(&self, start: Lsn, made: HashMap<PageId, Lsn>) -> Result<()> {
        /// Pages that are read ahead of the records that change them.
        const MOST_AHEAD: usize = 64;
        const MOST_BYTES: usize = 1 << 20;
        let most_ahead = MOST_AHEAD.min(self.pool.frames() / 4);
        let mut window = Window { made, ..Window::default() };
        self.log.read(start, |lsn, record| {
            window.add(lsn, record);
            let is_full = window.pages.len() >= most_ahead || window.bytes >= MOST_BYTES;
            if is_full { window.redo(self) } else { Ok(()) }
        })?;
        window.redo(self)
    }

    fn redo_page(&self, lsn: Lsn, edits: &PageEdits<'_>) -> Result<Option<()>> {
        self.pool.tier().grow(PageId(edits.page.0 + 1))?;
        let mut page = match edits.creates() {
            Some(kind) => self.pool.create(edits.page, kind)?.0,
            None => self.pool.write(edits.page, Access::Random)?,
        };
        if page::lsn(&page) >= lsn {
            return Ok(Some(()));
        }
        if page.frame().mark_dirty(lsn, edits.creates().is_some()).is_first {
            self.pool.tier().first_update(edits.page);
        }
        let applied = edits.apply(page.bytes_mut());
        page::set_lsn(page.bytes_mut(), lsn);
        Ok(applied)
    }

    fn file(&self) -> Result<&PageFile> {
        let read_only = || Error::ReadOnly { path: self.pool.device().path().to_path_buf() };
        self.file.as_deref().ok_or_else(read_only)
    }

    pub fn page_bytes(&self) -> usize {
        self.pool.page_bytes()
    }

    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn read(&self, page: PageId, access: Access) -> Result<PageRead<'_>> {
        self.pool.read(page, access)
    }

    pub fn write(&self, page: PageId, access: Access) -> Result<PageWrite<'_>> {
        self.pool.write(page, access)
    }

    /// Waits where the log has taken more than it has written, for a moment in which no page is latched.
    pub fn throttle(&self) -> Result<()> {
        nandina_device::block_on(self.log.throttle())
    }

    /// What to report of a page whose content cannot be.
    pub fn damaged(&self, page: PageId, reason: &'static str) -> Error {
        self.pool.tier().damaged(page, reason)
    }

    /// Begins a change of pages.
    pub fn change(&self) -> Change<'_> {
        Change::new(&self.pool)
    }

    /// An empty page, taken as part of a change.
    pub fn allocate<'a>(&'a self, change: &mut Change<'a>, kind: PageKind) -> Result<Changed> {
        self.space.allocate(&self.pool, change, kind)
    }

    /// Gives a page back as part of a change.
    pub fn free<'a>(&'a self, change: &mut Change<'a>, page: PageId) -> Result<()> {
        self.space.free(change, page)
    }

    /// Pages that are used.
    pub fn used_pages(&self) -> Result<u64> {
        self.space.used(&self.pool)
    }

    /// A number that those above begin with; zero before it is set.
    pub fn root(&self, number: usize) -> Result<u64> {
        self.space.root(&self.pool, number)
    }

    pub fn set_root(&self, change: &mut Change<'_>, number: usize, to: u64) -> Result<()> {
        self.space.set_root(change, number, to)
    }

    /// Bytes of the log that recovery would have to read.
    pub fn log_bytes(&self) -> u64 {
        self.log.end().0.saturating_sub(self.redo.load(Ordering::Relaxed))
    }

    /// Writes back what was changed longest ago, if recovery would have to read too much of the log. Those who change pages call
    /// it now and then, without a page latched.
    pub fn checkpoint_if_due(&self) -> Result<()> {
        if self.log_bytes() <= self.most_log_bytes {
            return Ok(());
        }
        // Half of it, so that pages that are changed often are not written each time.
        let end = Lsn(self.log.end().0 - self.most_log_bytes / 2);
        // Where one is running, nobody needs another one.
        self.control.try_lock().map_or(Ok(()), |control| self.checkpoint_before(end, control))
    }

    /// Writes all changed pages back, so that recovery has nothing to read of the log but what is changed meanwhile.
    pub fn checkpoint(&self) -> Result<()> {
        let control = self.control.lock();
        self.checkpoint_before(self.log.end(), control)
    }

    /// Copies the store as it is at some moment from now on, while others go on using it: everything that is committed now is in the
    /// copy. Opening it is a recovery. Checkpoints wait meanwhile, so that the log grows.
    ///
    /// Pages are copied first and then the log from where on they may not have its changes: pages come along as they are at different
    /// moments, and what is missing in them is in the log behind.
    pub fn backup(&self, pages: &Device, log: &Device) -> Result<()> {
        for (device, is_there) in [(pages, PageFile::is_in(pages)), (log, LogFiles::is_in(log))] {
            if is_there.map_err(|source| backup_error(device, source))? {
                return Err(Error::BackupExists { path: device.path().to_path_buf() });
            }
        }
        self.copy(pages, log).inspect_err(|_| {
            let discarded = PageFile::discard_copy(pages).and_then(|()| LogFiles::discard_copy(log));
            if let Err(error) = discarded {
                log::warn!("files of a backup that failed stay: {error}");
            }
        })
    }

    fn copy(&self, pages: &Device, log: &Device) -> Result<()> {
        let file = self.file()?;
        self.checkpoint()?;
        // Nobody moves the beginning of the log meanwhile.
        let control = self.control.lock();
        file.copy(pages, &control)?;
        // The log has every change of a page that was copied: pages are written after it.
        self.log.wait_until_all_durable()?;
        self.log.copy(control.redo, log)?;
        PageFile::finish_copy(pages)
    }

    fn checkpoint_before(&self, end: Lsn, mut control: MutexGuard<'_, Control>) -> Result<()> {
        let redo = self.pool.checkpoint(end)?;
        self.log.wait_until_all_durable()?;
        if redo <= control.redo {
            return Ok(());
        }
        let next = Control { sequence: control.sequence + 1, redo, ..*control };
        self.file()?.write_control(&next)?;
        *control = next;
        self.redo.store(redo.0, Ordering::Relaxed);
        self.log.release_before(redo)
    }
}

/// Records whose pages are read together.
#[derive(Default)]
struct Window {
    records: Vec<(Lsn, Vec<u8>)>,
    bytes: usize,
    /// That they change and do not make.
    pages: Vec<PageId>,
    /// The last records that make pages.
    made: HashMap<PageId, Lsn>,
}

impl Window {
    fn add(&mut self, lsn: Lsn, record: &[u8]) {
        for edits in change::pages_of(record).unwrap_or_default() {
            let is_read = edits.creates().is_none() && self.is_wanted(lsn, &edits);
            if is_read && !self.pages.contains(&edits.page) {
                self.pages.push(edits.page);
            }
        }
        self.records.push((lsn, record.to_vec()));
        self.bytes += record.len();
    }

    /// Whether the page is not made anew by a later record.
    fn is_wanted(&self, lsn: Lsn, edits: &PageEdits<'_>) -> bool {
        self.made.get(&edits.page).is_none_or(|made| *made <= lsn)
    }

    fn redo(&mut self, store: &PageStore) -> Result<()> {
        // Pages that records of this window make are not there to be read, and need not be.
        let made = self.records.iter().flat_map(|(_, record)| change::pages_of(record).unwrap_or_default());
        let made: Vec<PageId> =
            made.filter(|edits| edits.creates().is_some()).map(|edits| edits.page).collect();
        self.pages.retain(|page| !made.contains(page));
        store.pool.prefetch(&self.pages, Access::Random);
        self.pages.clear();
        self.bytes = 0;
        for (lsn, record) in std::mem::take(&mut self.records) {
            let malformed = || store.log.damaged(lsn, "a record is none that this program writes");
            for edits in change::pages_of(&record).ok_or_else(malformed)? {
                if self.is_wanted(lsn, &edits) {
                    store.redo_page(lsn, &edits)?.ok_or_else(malformed)?;
                }
            }
        }
        Ok(())
    }
}
