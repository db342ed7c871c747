//! A database: opening it, its catalog, and the one step that makes a change take effect.
//!
//! ```text
//!   write statement:   segment file ──fsync──► directory ──fsync──► manifest.new ──fsync──► rename ──fsync──► done
//!   crash before the rename: the old manifest; the new segment is removed as an orphan at the next open
//!   crash after it:          the new manifest, and everything it names is durable already
//! ```

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use nandina_device::{Device, DeviceOptions, DirectoryLock};
use nandina_pages::PageSchema;
use nandina_rowstore::RowStore;
use nandina_rowstore::page_file::PageFile;
use parking_lot::{Mutex, RwLock};

use crate::definition::{IfExists, TableDefinition, Target};
use crate::error::{Result, StorageError};
use crate::ids::{DatabaseId, RowId, SegmentId, TableId};
use crate::manifest::{Manifest, SegmentRecord, TableRecord, decode_schema, encode_schema, from_hex, to_hex};
use crate::objects::{Objects, TableRules};
use crate::page_index::{IndexCache, IndexLayout};
use crate::rows::{Heap, HeapChanges, IndexRecord, RowStores, Transaction};
use crate::segment::{Segment, TableShape, database_in_header, file_name, id_in_name};
use crate::table::{Table, TableStatistics};

/// Name of the manifest in the database's directory.
pub const MANIFEST: &str = "nandina.manifest";
const LOCK: &str = "nandina.lock";
/// Says who holds the lock, for the message that the next one gets.
const HOLDER: &str = "nandina.pid";
/// Takes up the space that dropping a table needs for its manifest: on a full disk it is given up for that.
const RESERVE: &str = "nandina.reserve";
const SMALLEST_RESERVE_BYTES: usize = 64 << 10;
/// How often a database is opened anew for reading while a writer replaces what its manifest names.
const MOST_OPENINGS: usize = 100;

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By one process at a time. Creates the database if there is none.
    Write,
    /// The same, of a database that is not opened again: what is committed need not survive a crash.
    Temporary,
    /// Sees the database as it was when it was opened.
    ReadOnly,
}

impl Mode {
    fn writes(self) -> bool {
        self != Mode::ReadOnly
    }
}

/// An open database. Clones share it; it is closed with the last clone, table, scan and writer.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

#[derive(Debug)]
struct StoreInner {
    device: Device,
    mode: Mode,
    database: DatabaseId,
    catalog: RwLock<Arc<Catalog>>,
    /// Held while the manifest is replaced.
    commit: Mutex<CommitState>,
    next_segment: AtomicU64,
    rows: RowStores,
    /// How many keep rows from being put elsewhere in the background.
    rows_kept: Arc<AtomicUsize>,
    /// Held to read while rows are changed and where a transaction begins, and to write while tables and indexes come and go: so an
    /// index sees every change, and a transaction has begun before what it sees is dropped.
    shapes: RwLock<()>,
    /// One index is made or dropped at a time, and none during a backup.
    indexing: Mutex<()>,
    /// Held to read where the manifest is changed, before `shapes`, and to write where it is to stay as it is.
    still: RwLock<()>,
    /// Last, so that it is given back after everything else.
    _lock: Option<DirectoryLock>,
}

#[derive(Debug, Default)]
struct CommitState {
    /// A manifest was renamed into place, but its durability could not be confirmed.
    unconfirmed: bool,
    /// Size of [`RESERVE`].
    reserve_bytes: usize,
}

/// Which space a new manifest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestSpace {
    Free,
    /// For what makes the database smaller.
    FreeOrReserved,
}

/// One state of the database.
#[derive(Debug)]
pub(crate) struct Catalog {
    manifest: Manifest,
    tables: BTreeMap<String, Arc<TableEntry>>,
}

/// All tables as they are at one time. It stays as it is, whatever is committed later.
#[derive(Debug, Clone)]
pub struct Snapshot {
    store: Store,
    catalog: Arc<Catalog>,
}

impl Snapshot {
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What the manifest of this state says, and the segments that it names.
    pub(crate) fn contents(&self) -> (Manifest, Vec<Arc<Segment>>) {
        let segments = self.catalog.tables.values().flat_map(|entry| entry.segments.iter().cloned());
        (self.catalog.manifest.clone(), segments.collect())
    }

    pub(crate) fn entry(&self, name: &str) -> Result<&Arc<TableEntry>> {
        self.catalog.tables.get(name).ok_or_else(|| self.catalog.missing(name))
    }

    /// Whether this is a state of the database that `store` is.
    pub fn is_of(&self, store: &Store) -> bool {
        self.store.is(store)
    }
}

/// One state of a table: what a snapshot holds.
#[derive(Debug)]
pub(crate) struct TableEntry {
    pub shape: Arc<TableShape>,
    pub segments: Vec<Arc<Segment>>,
    pub rules: Arc<TableRules>,
    /// Of a table whose rows are changed one by one.
    pub heap: Option<Arc<Heap>>,
    pub index_cache: IndexCache,
    /// Once they have been asked for: every plan with the table does.
    pub statistics: OnceLock<Arc<TableStatistics>>,
}

impl Store {
    /// Opens the database in a directory, with default device options.
    pub fn open_path(directory: impl AsRef<Path>, mode: Mode) -> Result<Self> {
        let directory = directory.as_ref();
        if directory.exists() && !directory.is_dir() {
            return Err(StorageError::NotADirectory { path: directory.to_owned() });
        }
        if mode.writes() && !directory.exists() {
            std::fs::create_dir_all(directory).map_err(|source| {
                let path = directory.to_owned();
                nandina_device::Error::Path { operation: "create", path, source }
            })?;
        }
        if !directory.exists() {
            return Err(StorageError::NoDatabase { path: directory.to_owned() });
        }
        Self::open(Device::open(directory, DeviceOptions::default())?, mode)
    }

    /// Opens the database in the device's directory.
    pub fn open(device: Device, mode: Mode) -> Result<Self> {
        match mode {
            Mode::Write | Mode::Temporary => Self::open_to_write(device, mode),
            Mode::ReadOnly => Self::open_to_read(&device),
        }
    }

    fn open_to_write(device: Device, mode: Mode) -> Result<Self> {
        let lock = take_lock(&device)?;
        let manifest = match read_manifest(&device)? {
            Some(manifest) => manifest,
            None => {
                refuse_lost_manifest(&device)?;
                let manifest = Manifest::empty();
                device.write_small(MANIFEST, &manifest.encode()?)?;
                manifest
            }
        };
        remove_orphans(&device, &manifest)?;
        let store = Self::of_manifest(device, mode, manifest, Some(lock))?;
        // A full disk must not keep the user from dropping a table.
        if let Err(error) = store.device().write_small(HOLDER, std::process::id().to_string().as_bytes()) {
            log::warn!("the next process will not be told which one has the database open: {error}");
        }
        let mut state = store.inner.commit.lock();
        state.reserve_bytes = store.device().read_small(RESERVE).map_or(0, |reserve| reserve.len());
        store.keep_reserve(&mut state, 0);
        drop(state);
        store.drop_unfinished_indexes()?;
        Ok(store)
    }

    /// Removes indexes that a crash has left without some keys.
    fn drop_unfinished_indexes(&self) -> Result<()> {
        let catalog = self.catalog();
        let is_unfinished = |entry: &&Arc<TableEntry>| {
            entry.heap.as_ref().is_some_and(|heap| heap.record.indexes.iter().any(|index| index.is_building))
        };
        for entry in catalog.tables.values().filter(is_unfinished) {
            let table = Table::of_entry(self.clone(), Arc::clone(entry));
            self.change_indexes(&table, |indexes| {
                indexes.retain(|index| !index.is_building);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The writer may drop or replace tables at any time. All segments are opened now, as open files stay readable; if one
    /// is gone already, a newer manifest says what has taken its place.
    fn open_to_read(device: &Device) -> Result<Self> {
        let mut failed: Option<(u64, StorageError)> = None;
        for _ in 0..MOST_OPENINGS {
            let manifest = read_manifest(device)?;
            let manifest =
                manifest.ok_or_else(|| StorageError::NoDatabase { path: device.path().to_owned() })?;
            let generation = manifest.generation;
            match failed {
                Some((before, error)) if before == generation => return Err(error),
                _ => {}
            }
            let store = Self::of_manifest(device.clone(), Mode::ReadOnly, manifest, None)?;
            let catalog = store.catalog();
            let mut segments = catalog.tables.values().flat_map(|table| &table.segments);
            match segments.try_for_each(|segment| segment.file().map(drop)) {
                Ok(()) => return Ok(store),
                Err(error) => failed = Some((generation, error)),
            }
        }
        Err(StorageError::Restless { path: device.path().to_owned() })
    }

    fn of_manifest(
        device: Device,
        mode: Mode,
        mut manifest: Manifest,
        lock: Option<DirectoryLock>,
    ) -> Result<Self> {
        // One of version 1 gets an identity with its first change.
        let database = *manifest.database.get_or_insert_with(DatabaseId::random);
        let next_segment = AtomicU64::new(manifest.next_segment);
        let catalog = RwLock::new(Arc::new(Catalog::new(manifest, database, &device)?));
        let commit = Mutex::default();
        let rows = RowStores::new(device.clone(), database);
        let (rows_kept, shapes, indexing, still) = Default::default();
        let inner = StoreInner {
            device,
            mode,
            database,
            catalog,
            commit,
            next_segment,
            rows,
            rows_kept,
            shapes,
            indexing,
            still,
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    pub fn mode(&self) -> Mode {
        self.inner.mode
    }

    /// Names of all tables, sorted.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog().tables.keys().cloned().collect()
    }

    /// All tables as they are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { store: self.clone(), catalog: self.catalog() }
    }

    pub fn has_table(&self, name: &str) -> bool {
        self.catalog().tables.contains_key(name)
    }

    /// The definition with its page size fixed: the profile of the device may change before the commit.
    pub(crate) fn sized(&self, definition: TableDefinition) -> TableDefinition {
        let page_bytes = definition.page_bytes_on(&self.inner.device);
        definition.with_page_bytes(page_bytes)
    }

    /// Removes a table. Snapshots of it stay readable; its files go with the last of them.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        {
            let _still = self.inner.still.read();
            let _changing = self.inner.shapes.write();
            self.change(ManifestSpace::FreeOrReserved, |catalog, tables, manifest| -> Result<_> {
                let entry = tables.remove(name).ok_or_else(|| catalog.missing(name))?;
                manifest.objects.drop_sequences_of(name);
                Ok(entry.segments.clone())
            })?;
        }
        self.clear_dropped();
        Ok(())
    }

    /// Begins a transaction over tables whose rows are changed one by one.
    pub fn begin(&self) -> Result<Transaction> {
        // Tables that the snapshot has are in the row store, and what it has of them is seen by the transaction.
        let _unchanged = self.inner.shapes.read();
        let snapshot = self.snapshot();
        // Tables may be changed for the first time while it is open, and are seen as they were then.
        let may_have = self.inner.mode.writes() && self.inner.rows.is_open();
        let rows = if may_have || snapshot.catalog.has_rows() { Some(self.row_store()?) } else { None };
        Ok(Transaction::new(snapshot, rows))
    }

    pub(crate) fn row_store(&self) -> Result<Arc<RowStore>> {
        match self.inner.mode {
            Mode::Write | Mode::Temporary => self.inner.rows.to_write(|| self.catalog().heaps_and_indexes()),
            Mode::ReadOnly => {
                let store = self.inner.rows.to_read(LOCK)?;
                // No other process writes from now on.
                let generation = read_manifest(self.device())?.map(|manifest| manifest.generation);
                match generation == Some(self.catalog().manifest.generation) {
                    true => Ok(store),
                    false => {
                        self.inner.rows.release();
                        Err(StorageError::Outdated { path: self.device().path().to_owned() })
                    }
                }
            }
        }
    }

    pub(crate) fn rows(&self) -> &RowStores {
        &self.inner.rows
    }

    pub(crate) fn rows_kept(&self) -> &Arc<AtomicUsize> {
        &self.inner.rows_kept
    }

    pub(crate) fn shapes(&self) -> &RwLock<()> {
        &self.inner.shapes
    }

    pub(crate) fn indexing(&self) -> &Mutex<()> {
        &self.inner.indexing
    }

    /// Pages of rows that are changed one by one may take so many bytes of memory; how many they take now at most.
    pub fn set_pool_bytes(&self, bytes: usize) -> Result<usize> {
        self.inner.rows.set_pool_bytes(bytes)
    }

    /// Writes back what was changed of rows, so that opening the database again reads little of the log.
    pub fn checkpoint(&self) -> Result<()> {
        if self.inner.mode.writes() && self.catalog().has_rows() {
            self.row_store()?.pages().checkpoint()?;
        }
        Ok(())
    }

    /// The log of changes of rows as opening the database would read it, a line for each change, for people. Nothing is changed.
    pub fn list_log(device: &Device, mut take: impl FnMut(String) -> Result<()>) -> Result<()> {
        if !device.exists(MANIFEST)? {
            return Err(StorageError::NoDatabase { path: device.path().to_owned() });
        }
        if !PageFile::is_in(device)? {
            return Ok(());
        }
        let mut failed = None;
        let listed = nandina_rowstore::listing::list(device, device.clone(), |change| {
            if failed.is_none() {
                failed = take(change.to_string()).err();
            }
            Ok(())
        });
        failed.map_or(Ok(listed?), Err)
    }

    /// The state of a table now, with the indexes that it has got since.
    pub(crate) fn newest(&self, table: &Table) -> Result<Arc<TableEntry>> {
        if table.is_being_made() {
            return Ok(Arc::clone(table.entry()));
        }
        let catalog = self.catalog();
        let entry = catalog.tables.get(table.name()).filter(|entry| entry.shape.id == table.id());
        entry.cloned().ok_or_else(|| StorageError::TableGone { name: table.name().to_owned() })
    }

    /// Gives the pages of heaps and indexes back that are no longer there, if no transaction is open that may see them.
    pub fn clear_dropped(&self) {
        if let Err(error) = self.inner.rows.clear_others(|| self.catalog().heaps_and_indexes()) {
            log::warn!("what a dropped table took is given back when the database is opened next: {error}");
        }
    }

    /// Schemas, views, macros and sequences as they are now.
    pub fn objects(&self) -> Objects {
        self.catalog().manifest.objects.clone()
    }

    /// Changes them; nothing is changed if `edit` fails.
    pub fn change_objects<T, E: From<StorageError>>(
        &self,
        edit: impl FnOnce(&mut Objects) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_writable()?;
        self.change_with(ManifestSpace::Free, &[], edit)
    }

    /// Removes tables and other objects, all at once.
    pub fn drop_objects<T, E: From<StorageError>>(
        &self,
        dropped_tables: &[String],
        edit: impl FnOnce(&mut Objects) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_writable()?;
        self.change_with(ManifestSpace::FreeOrReserved, dropped_tables, edit)
    }

    fn change_with<T, E: From<StorageError>>(
        &self,
        space: ManifestSpace,
        dropped_tables: &[String],
        edit: impl FnOnce(&mut Objects) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut outcome = None;
        let _still = self.inner.still.read();
        let changing = (!dropped_tables.is_empty()).then(|| self.inner.shapes.write());
        self.change(space, |catalog, tables, manifest| -> Result<_, E> {
            let mut obsolete = Vec::new();
            for name in dropped_tables {
                let entry = tables.remove(name).ok_or_else(|| catalog.missing(name))?;
                obsolete.extend(entry.segments.iter().cloned());
                manifest.objects.drop_sequences_of(name);
            }
            outcome = Some(edit(&mut manifest.objects)?);
            Ok(obsolete)
        })?;
        let Some(outcome) = outcome else { unreachable!("a change that succeeded was made") };
        drop(changing);
        if !dropped_tables.is_empty() {
            self.clear_dropped();
        }
        Ok(outcome)
    }

    /// Changes what indexes a table has. Nothing is changed if `edit` fails.
    pub(crate) fn change_indexes(
        &self,
        table: &Table,
        edit: impl FnOnce(&mut Vec<IndexRecord>) -> Result<()>,
    ) -> Result<()> {
        self.change_heap(table, |entry| {
            let heap = entry.heap.as_ref().ok_or_else(|| table.not_changeable())?;
            let mut record = heap.record.clone();
            edit(&mut record.indexes)?;
            Ok(Some(Heap::new(record, &entry.shape)?.with_changes_of(heap)))
        })
    }

    /// Changes where the rows of a table are that are changed one by one. Nothing is changed if `edit` fails, or has nothing new.
    pub(crate) fn change_heap(
        &self,
        table: &Table,
        edit: impl FnOnce(&TableEntry) -> Result<Option<Heap>>,
    ) -> Result<()> {
        let _still = self.inner.still.read();
        let _changing = self.inner.shapes.write();
        let Some(heap) = edit(&*self.newest(table)?)? else { return Ok(()) };
        self.change(ManifestSpace::FreeOrReserved, |_, tables, _| -> Result<_> {
            let entry = tables.get(table.name()).filter(|entry| entry.shape.id == table.id());
            let gone = || StorageError::TableGone { name: table.name().to_owned() };
            let entry = entry.ok_or_else(gone)?;
            // Nobody else changes heaps meanwhile.
            tables.insert(table.name().to_owned(), entry.with_heap(Arc::new(heap)));
            Ok(Vec::new())
        })
    }

    /// Whether both are the same open database.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.inner.mode {
            Mode::Write | Mode::Temporary => Ok(()),
            Mode::ReadOnly => Err(StorageError::ReadOnly { path: self.inner.device.path().to_owned() }),
        }
    }

    /// A state that stays the newest one as long as the guard is held: nothing is committed to the manifest.
    pub(crate) fn held(&self) -> (Snapshot, impl Drop + '_) {
        let guard = self.inner.still.write();
        (self.snapshot(), guard)
    }

    /// Keeps the state from being held, before the manifest is changed.
    pub(crate) fn not_held(&self) -> impl Drop + '_ {
        self.inner.still.read()
    }

    pub(crate) fn database(&self) -> DatabaseId {
        self.inner.database
    }

    pub(crate) fn new_segment_id(&self) -> SegmentId {
        SegmentId(self.inner.next_segment.fetch_add(1, Ordering::Relaxed))
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.inner.catalog.read())
    }

    /// Makes a finished segment, or an empty table, part of the database. The segment is durable already.
    pub(crate) fn commit(&self, target: Target, segment: Option<SegmentRecord>) -> Result<()> {
        let device = &self.inner.device;
        let _still = self.inner.still.read();
        let overwritten = match &target {
            Target::Rows { shape, overwrite: Some(changes) } => Some((shape.name.clone(), *changes)),
            _ => None,
        };
        let mut drops_heap = overwritten.is_some() || matches!(target, Target::Vacuum { .. });
        let adds_to_native = match &target {
            Target::Rows { shape, overwrite: None } => {
                self.catalog().tables.get(&shape.name).is_none_or(|entry| entry.heap.is_none())
            }
            _ => false,
        };
        // Where rows are added beside a heap, transactions begin before or after it.
        let changing = (!adds_to_native).then(|| self.inner.shapes.write());
        if let Some((name, changes)) = overwritten
            && let Some(entry) = self.catalog().tables.get(&name)
            && (entry.heap_changes() != changes
                || (entry.heap.is_some() && self.row_store()?.has_writers()?))
        {
            return Err(StorageError::TableChanging { name });
        }
        let heap_after = match &target {
            Target::Vacuum { shape, vacuumed } => self.heap_after(shape, vacuumed)?,
            _ => None,
        };
        self.change(ManifestSpace::Free, |_, tables, manifest| -> Result<_> {
            match target {
                Target::Create { definition, if_exists, rows } => {
                    let replaced = tables.remove(&definition.name);
                    if let Some(state) = &definition.in_place_of {
                        state.check(replaced.as_deref())?;
                    }
                    drops_heap |= replaced.as_ref().is_some_and(|entry| entry.heap.is_some());
                    if replaced.is_some() && if_exists == IfExists::Fail {
                        return Err(StorageError::TableExists { name: definition.name });
                    }
                    if replaced.is_some() && definition.in_place_of.is_none() {
                        manifest.objects.drop_sequences_of(&definition.name);
                    }
                    manifest.objects.sequences.extend(definition.sequences.iter().cloned());
                    let id = TableId(manifest.next_table);
                    manifest.next_table += 1;
                    let page_bytes = definition.page_bytes_on(device);
                    let shape = shape(id, &definition.name, page_bytes, &definition.schema)?;
                    let segments = segment.map(|record| self.segment(record, &shape)).into_iter().collect();
                    let rules = Arc::new(definition.rules);
                    let heap = rows.map(|record| Heap::new(record, &shape)).transpose()?.map(Arc::new);
                    tables.insert(definition.name, TableEntry::new(shape, segments, rules, heap));
                    Ok(replaced.map(|entry| entry.segments.clone()).unwrap_or_default())
                }
                Target::Rows { shape, overwrite } => {
                    let entry = tables.get(&shape.name).filter(|entry| entry.shape.id == shape.id);
                    let entry = entry.ok_or_else(|| StorageError::TableGone { name: shape.name.clone() })?;
                    if entry.has_indexes() {
                        // Its keys would not be in them.
                        return Err(StorageError::HasIndexes { name: shape.name.clone() });
                    }
                    let (mut segments, replaced) = if overwrite.is_some() {
                        (Vec::new(), entry.segments.clone())
                    } else {
                        (entry.segments.clone(), Vec::new())
                    };
                    // Numbers go on after overwritten pages too, so that stale row ids find nothing instead of other rows.
                    if let Some(mut record) = segment {
                        record.first_page = entry.pages_end();
                        segments.push(self.segment(record, &entry.shape));
                    }
                    let shape = Arc::clone(&entry.shape);
                    let rules = Arc::clone(&entry.rules);
                    // What was changed of rows that are replaced goes with them.
                    let heap = entry.heap.clone().filter(|_| overwrite.is_none());
                    tables.insert(shape.name.clone(), TableEntry::new(shape, segments, rules, heap));
                    Ok(replaced)
                }
                Target::Vacuum { shape, vacuumed } => {
                    let entry = tables.get(&shape.name).filter(|entry| entry.shape.id == shape.id);
                    let entry = entry.ok_or_else(|| StorageError::TableGone { name: shape.name.clone() })?;
                    let is_rewritten = |of: &Arc<Segment>| vacuumed.rewritten.contains(&of.record.id);
                    let (replaced, mut segments): (Vec<_>, Vec<_>) =
                        entry.segments.iter().cloned().partition(is_rewritten);
                    if replaced.len() < vacuumed.rewritten.len() {
                        return Err(StorageError::TableChanging { name: shape.name.clone() });
                    }
                    if let Some(mut record) = segment {
                        record.first_page = entry.pages_end();
                        segments.push(self.segment(record, &entry.shape));
                    }
                    let (shape, rules) = (Arc::clone(&entry.shape), Arc::clone(&entry.rules));
                    tables.insert(shape.name.clone(), TableEntry::new(shape, segments, rules, heap_after));
                    Ok(replaced)
                }
            }
        })?;
        drop(changing);
        if drops_heap {
            self.clear_dropped();
        }
        Ok(())
    }

    fn segment(&self, record: SegmentRecord, shape: &Arc<TableShape>) -> Arc<Segment> {
        let device = self.inner.device.clone();
        Arc::new(Segment::new(record, Arc::clone(shape), self.inner.database, device))
    }

    /// Replaces the manifest by a changed one. `edit` returns the segments that nothing names any more.
    pub(crate) fn change<E: From<StorageError>>(
        &self,
        space: ManifestSpace,
        edit: impl FnOnce(
            &Catalog,
            &mut BTreeMap<String, Arc<TableEntry>>,
            &mut Manifest,
        ) -> Result<Vec<Arc<Segment>>, E>,
    ) -> Result<(), E> {
        let mut state = self.inner.commit.lock();
        if state.unconfirmed {
            return Err(StorageError::Unconfirmed { path: self.inner.device.path().to_owned() }.into());
        }
        let before = self.catalog();
        let (mut manifest, mut tables) = (before.manifest.clone(), before.tables.clone());
        let obsolete = edit(&before, &mut tables, &mut manifest)?;
        // Tables and views share their names; two sessions may have made one of each.
        if let Some(view) = manifest.objects.views.iter().find(|view| tables.contains_key(&view.name)) {
            return Err(StorageError::TableExists { name: view.name.clone() }.into());
        }
        manifest.generation += 1;
        manifest.next_segment = self.inner.next_segment.load(Ordering::Relaxed);
        manifest.tables = tables.values().map(|entry| entry.record()).collect();
        self.replace_manifest(&manifest, space, &mut state)?;
        *self.inner.catalog.write() = Arc::new(Catalog { manifest, tables });
        obsolete.iter().for_each(|segment| segment.set_obsolete());
        Ok(())
    }

    fn replace_manifest(
        &self,
        manifest: &Manifest,
        space: ManifestSpace,
        state: &mut CommitState,
    ) -> Result<()> {
        let device = &self.inner.device;
        let contents = manifest.encode()?;
        let mut written = device.write_small(MANIFEST, &contents);
        if space == ManifestSpace::FreeOrReserved
            && written.as_ref().is_err_and(nandina_device::Error::is_no_space)
            && std::mem::take(&mut state.reserve_bytes) > 0
            && device.remove(RESERVE).is_ok()
        {
            written = device.write_small(MANIFEST, &contents);
        }
        let Err(error) = written else {
            self.keep_reserve(state, contents.len());
            return Ok(());
        };
        // Was the new manifest in place when it failed? Only if it surely was not, its segment may be removed.
        match device.read_small(MANIFEST) {
            Ok(found) if found != contents => {
                let _ = device.remove(&replacement_of(MANIFEST));
                return Err(error.into());
            }
            Ok(_) if device.sync_directory().is_ok() => return Ok(()),
            _ => {}
        }
        state.unconfirmed = true;
        Err(StorageError::Unconfirmed { path: device.path().to_owned() })
    }

    /// Makes sure that the reserve has room for two manifests of this size, if the disk has.
    fn keep_reserve(&self, state: &mut CommitState, manifest_bytes: usize) {
        let wanted = SMALLEST_RESERVE_BYTES.max((2 * manifest_bytes).next_power_of_two());
        if state.reserve_bytes >= wanted {
            return;
        }
        // Bytes that no file system can pack into less space.
        let mut state_of_noise = 0x9e37_79b9_7f4a_7c15_u64;
        let noise = std::iter::repeat_with(|| {
            state_of_noise ^= state_of_noise << 13;
            state_of_noise ^= state_of_noise >> 7;
            state_of_noise ^= state_of_noise << 17;
            state_of_noise.to_le_bytes()
        });
        let contents: Vec<u8> = noise.take(wanted / 8).flatten().collect();
        match self.inner.device.write_small(RESERVE, &contents) {
            Ok(()) => state.reserve_bytes = wanted,
            Err(error) => {
                log::debug!("no space is kept for dropping tables on a full disk: {error}");
                // The part already written must not take the last space.
                let rest = replacement_of(RESERVE);
                match self.inner.device.remove(&rest) {
                    Err(error) if !error.is_not_found() => log::warn!("{rest} takes up space: {error}"),
                    _ => {}
                }
            }
        }
    }

    /// Whether the last change could not be confirmed: then no file may be removed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.inner.commit.lock().unconfirmed
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        if self.mode.writes() {
            self.rows.close();
            let _ = self.device.remove(HOLDER);
        }
    }
}

impl Catalog {
    fn new(manifest: Manifest, database: DatabaseId, device: &Device) -> Result<Self> {
        let file = device.path().join(MANIFEST).display().to_string();
        let mut tables = BTreeMap::new();
        for record in &manifest.tables {
            let damaged =
                |reason: &str| StorageError::damaged(&file, format!("table {:?}: {reason}", record.name));
            let schema =
                from_hex(&record.schema).ok_or_else(|| damaged("its schema is not in hex digits"))?;
            let schema = Arc::new(decode_schema(&schema, &file)?);
            let shape = shape(record.id, &record.name, record.page_bytes as usize, &schema)?;
            let segments = record
                .segments
                .iter()
                .map(|segment| Segment::new(segment.clone(), Arc::clone(&shape), database, device.clone()))
                .map(Arc::new)
                .collect();
            let mut next_page = 0;
            let are_in_order = record.segments.iter().all(|segment| {
                let begins_behind = segment.first_page >= next_page;
                next_page = segment.first_page.saturating_add(segment.page_numbers);
                begins_behind && next_page <= RowId::PAGES
            });
            if !are_in_order {
                return Err(damaged("page numbers of its segments overlap, or exceed 47 bits"));
            }
            let rules = Arc::new(record.rules.clone());
            let heap = match &record.rows {
                Some(rows) => {
                    let columns = shape.page_schema().columns();
                    let mut named = rows.indexes.iter().flat_map(|index| &index.definition.columns);
                    if named.any(|column| *column >= columns) {
                        return Err(damaged("an index is of a column that it does not have"));
                    }
                    Some(Arc::new(Heap::new(rows.clone(), &shape)?))
                }
                None => None,
            };
            if tables.insert(record.name.clone(), TableEntry::new(shape, segments, rules, heap)).is_some() {
                return Err(damaged("it is named twice"));
            }
        }
        Ok(Self { manifest, tables })
    }

    fn has_rows(&self) -> bool {
        self.tables.values().any(|entry| entry.heap.is_some())
    }

    /// The first pages of all heaps and indexes.
    fn heaps_and_indexes(&self) -> HashSet<u64> {
        let heaps = self.tables.values().filter_map(|entry| entry.heap.as_ref());
        heaps.flat_map(|heap| heap.first_pages()).collect()
    }

    fn missing(&self, name: &str) -> StorageError {
        let same = self.tables.keys().find(|other| other.eq_ignore_ascii_case(name));
        let hint = match same {
            Some(other) => format!(", but there is {other:?}: names are told apart by case"),
            None if self.tables.is_empty() => ": the database has no tables yet".to_owned(),
            None => String::new(),
        };
        StorageError::NoTable { name: name.to_owned(), hint }
    }
}

impl TableEntry {
    pub fn new(
        shape: Arc<TableShape>,
        segments: Vec<Arc<Segment>>,
        rules: Arc<TableRules>,
        heap: Option<Arc<Heap>>,
    ) -> Arc<Self> {
        let (index_cache, statistics) = (IndexCache::default(), OnceLock::new());
        Arc::new(Self { shape, segments, rules, heap, index_cache, statistics })
    }

    /// That of the heap, if it has one.
    pub fn first_page_of_rows(&self) -> Option<u64> {
        self.heap.as_ref().map(|heap| heap.record.heap)
    }

    /// Whether keys lead to its rows, or are going to.
    pub fn has_indexes(&self) -> bool {
        self.heap.as_ref().is_some_and(|heap| !heap.record.indexes.is_empty())
    }

    /// Where rows of it have been changed, and how often; none if they have not been.
    pub fn heap_changes(&self) -> HeapChanges {
        let heap = self.heap.as_ref().filter(|heap| heap.changes() > 0);
        heap.map(|heap| (heap.record.heap, heap.changes()))
    }

    /// The number of the first page of a segment that is added.
    pub fn pages_end(&self) -> u64 {
        let behind_last =
            self.segments.last().map_or(0, |last| last.record.first_page + last.record.page_numbers);
        let unused = self.heap.as_ref().map_or(0, |heap| heap.record.next_page);
        behind_last.max(unused)
    }

    /// The same with other rows that are changed one by one.
    pub fn with_heap(&self, heap: Arc<Heap>) -> Arc<Self> {
        Self::new(Arc::clone(&self.shape), self.segments.clone(), Arc::clone(&self.rules), Some(heap))
    }

    fn record(&self) -> TableRecord {
        let schema = self.shape.page_schema().arrow();
        TableRecord {
            id: self.shape.id,
            name: self.shape.name.clone(),
            page_bytes: self.shape.page_bytes as u32,
            columns: schema
                .fields()
                .iter()
                .map(|field| {
                    let required = if field.is_nullable() { "" } else { " NOT NULL" };
                    format!("{} {}{required}", field.name(), field.data_type())
                })
                .collect(),
            schema: to_hex(&encode_schema(schema)),
            segments: self.segments.iter().map(|segment| segment.record.clone()).collect(),
            rules: self.rules.as_ref().clone(),
            rows: self.heap.as_ref().map(|heap| heap.record.clone()),
        }
    }
}

pub(crate) fn shape(
    id: TableId,
    name: &str,
    page_bytes: usize,
    schema: &SchemaRef,
) -> Result<Arc<TableShape>> {
    let table = PageSchema::try_new(Arc::clone(schema)).map_err(StorageError::Encode)?;
    Ok(Arc::new(TableShape { id, name: name.to_owned(), page_bytes, layout: IndexLayout::new(table)? }))
}

fn take_lock(device: &Device) -> Result<DirectoryLock> {
    let Some(lock) = device.try_lock(LOCK)? else {
        let holder = device.read_small(HOLDER).ok().and_then(|pid| String::from_utf8(pid).ok());
        let holder = holder.map(|pid| format!(" (process {})", pid.trim())).unwrap_or_default();
        return Err(StorageError::Locked { path: device.path().to_owned(), holder });
    };
    Ok(lock)
}

fn read_manifest(device: &Device) -> Result<Option<Manifest>> {
    if !device.exists(MANIFEST)? {
        return Ok(None);
    }
    let file = device.path().join(MANIFEST).display().to_string();
    Manifest::decode(&device.read_small(MANIFEST)?, &file).map(Some)
}

/// Segments without a manifest are not leftovers but a database that lost its manifest: nothing may be removed.
fn refuse_lost_manifest(device: &Device) -> Result<()> {
    let file = device.path().join(MANIFEST).display().to_string();
    if device.list()?.iter().any(|name| id_in_name(name).is_some()) {
        return Err(StorageError::damaged(file, "it is missing, but there are segment files beside it"));
    }
    if PageFile::is_in(device)? {
        return Err(StorageError::damaged(
            file,
            "it is missing, but there are files of changed rows beside it",
        ));
    }
    Ok(())
}

/// A segment of another database beside the manifest is no leftover: one of the two is in the wrong place.
fn refuse_foreign_manifest(device: &Device, manifest: &Manifest, segment: &str) -> Result<()> {
    let (Some(named), Some(found)) = (manifest.database, database_in_header(device, segment)?) else {
        return Ok(());
    };
    if named != found {
        let file = device.path().join(MANIFEST).display().to_string();
        let reason = format!("{segment} beside it belongs to another database");
        return Err(StorageError::damaged(file, reason));
    }
    Ok(())
}

/// What a crash left behind: segments that no manifest names, and half-written replacements of small files.
fn remove_orphans(device: &Device, manifest: &Manifest) -> Result<()> {
    let segments: Vec<String> = manifest
        .tables
        .iter()
        .flat_map(|table| &table.segments)
        .map(|segment| file_name(segment.id))
        .collect();
    for name in device.list()? {
        let orphan = id_in_name(&name).is_some() && !segments.contains(&name);
        if orphan {
            refuse_foreign_manifest(device, manifest, &name)?;
        }
        let is_replacement = [MANIFEST, HOLDER, RESERVE].iter().any(|small| name == replacement_of(small));
        if orphan || is_replacement {
            log::info!("removing {name}, left behind by a process that ended before it finished");
            device.remove(&name)?;
        }
    }
    Ok(())
}

/// Where the device prepares the new contents of a small file.
fn replacement_of(name: &str) -> String {
    format!("{name}.new")
}
