//! Row groups that are too large for the memory limit, read as windows of their rows.
//!
//! A lane of a scan holds the columns of a row group until it is decoded. Where that would take more than the lane's share
//! of the limit, it reads one window of rows at a time: of every column the dictionary, and the pages that have rows of
//! the window.
//!
//! ```text
//!   windows   │  1  │  2  │  3  │     cut where pages begin;
//!   column a  ▐▌▐██▌▐▌▐██▌▐▌▐██▌      pages of other columns that lie across a cut
//!   column b  ▐▌▐█████▌▐███████▌      are read for both windows
//! ```
//!
//! Which rows a page has tells the file's page index. Where a file was written without one, the headers of its pages do,
//! except for lists in data pages of version 1: such row groups are read as a whole.
#![allow(
    clippy::indexing_slicing,
    reason = "row groups and columns are numbered as the file's metadata does"
)]

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::common::Statistics;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use nandina_exec::execution::meter::inherited_work;
use nandina_exec::scan::begin_of_row_group;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::column::page::PageReader as _;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, OffsetIndexBuilder, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::reader::AccountedReader;
use crate::set_on_drop::SetOnDrop;

/// Page headers that are read at a time: as many requests as keep a device busy.
const HEADERS_AT_A_TIME: usize = 16;

/// Bytes that are read of a page to have its header, at first.
const HEADER_BYTES: usize = 512;

/// The metadata of a file that is read by windows, with the places of its pages.
#[derive(Debug)]
pub(super) struct WithPages(pub Arc<ParquetMetaData>);

/// What a scan reads of its files.
pub(super) struct Wanted<'a> {
    /// The fields of the files' schema of which it reads anything.
    pub fields: HashSet<&'a str>,
    /// Bytes of a row group that have room at a time, about.
    pub most_bytes: u64,
}

/// A column of a row group: its bytes, and where its pages lie.
struct Column<'a> {
    chunk: &'a ColumnChunkMetaData,
    pages: &'a [PageLocation],
}

impl Wanted<'_> {
    /// The files of `groups`, of which those that have row groups that are too large become windows. `reader` makes what
    /// reads a file's footer.
    pub async fn in_windows(
        &self,
        groups: Vec<FileGroup>,
        reader: impl Fn(&PartitionedFile) -> datafusion::common::Result<AccountedReader>,
    ) -> datafusion::common::Result<Vec<FileGroup>> {
        let mut windows = Vec::with_capacity(groups.len());
        for group in groups {
            let statistics = group.file_statistics(None).cloned();
            let mut files = Vec::with_capacity(group.len());
            for file in group.into_inner() {
                if file.object_meta.size <= self.most_bytes || file.range.is_some() {
                    files.push(file);
                    continue;
                }
                let mut reader = reader(&file)?;
                match self.windows_of(&file, &mut reader).await {
                    Ok(Some(windows)) => files.extend(windows),
                    Ok(None) => files.push(file),
                    Err(error) => {
                        // Reading the file will say what is wrong with it.
                        log::debug!("'{}' is read by whole row groups: {error}", reader.path().display());
                        files.push(file);
                    }
                }
            }
            let group = FileGroup::new(files);
            windows.push(match statistics {
                Some(statistics) => group.with_statistics(Arc::new(statistics)),
                None => group,
            });
        }
        Ok(windows)
    }

    /// The parts that a file is read in; `None` if it is read as a whole.
    async fn windows_of(
        &self,
        file: &PartitionedFile,
        reader: &mut AccountedReader,
    ) -> Result<Option<Vec<PartitionedFile>>> {
        let metadata = reader.get_metadata(None).await?;
        let leaves = self.leaves(&metadata);
        let row_groups = metadata.row_groups();
        let bytes = |group: &RowGroupMetaData| -> u64 { columns(group, &leaves).map(chunk_bytes).sum() };
        // A row group that is hardly larger is not worth reading dictionaries twice.
        let is_large = |group: &RowGroupMetaData| bytes(group) > self.most_bytes + self.most_bytes / 2;
        let large = row_groups.iter().enumerate().filter(|(_, group)| is_large(group));
        let large: Vec<usize> = large.map(|(at, _)| at).collect();
        // A part of a file is a range of places, and has the row groups that begin there: those must rise.
        let file_bytes = i64::try_from(file.object_meta.size).unwrap_or(i64::MAX);
        let begins: Option<Vec<i64>> = row_groups.iter().map(|group| begin(group, file_bytes)).collect();
        let Some(begins) = begins.filter(|begins| begins.is_sorted_by(|one, next| one < next)) else {
            return Ok(None);
        };
        if large.is_empty() {
            return Ok(None);
        }
        let Some(metadata) = with_pages(metadata, &large, &leaves, reader).await? else {
            return Ok(None);
        };

        let mut parts = Vec::new();
        let mut rest_begin = 0;
        for at in large {
            let (group, group_begin) = (metadata.row_group(at), begins[at]);
            let Some(columns) = columns_with_pages(&metadata, at, &leaves) else { return Ok(None) };
            let cuts = self.cuts(&columns);
            if cuts.is_empty() {
                continue;
            }
            if begins.iter().any(|begin| (rest_begin..group_begin).contains(begin)) {
                parts.push(part(file, rest_begin..group_begin, None));
            }
            rest_begin = group_begin + 1;
            let share = i64::try_from(bytes(group)).unwrap_or(i64::MAX) / (cuts.len() as i64 + 1);
            let ends = cuts.iter().copied().chain([group.num_rows()]);
            for (from, to) in [0].into_iter().chain(cuts.iter().copied()).zip(ends) {
                let range = group_begin..group_begin.saturating_add(share.max(1));
                let mut part = part(file, range, Some(to - from));
                part.extensions.insert(access(&metadata, at, from, to));
                part.extensions.insert(WithPages(Arc::clone(&metadata)));
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return Ok(None);
        }
        if begins.last().is_some_and(|&last| last >= rest_begin) {
            parts.push(part(file, rest_begin..file_bytes, None));
        }
        Ok(Some(parts))
    }

    /// The columns that are read, as the file counts them.
    fn leaves(&self, metadata: &ParquetMetaData) -> Vec<usize> {
        let columns = metadata.file_metadata().schema_descr().columns().iter().enumerate();
        let is_wanted =
            |path: &[String]| path.first().is_some_and(|root| self.fields.contains(root.as_str()));
        columns.filter(|(_, column)| is_wanted(column.path().parts())).map(|(at, _)| at).collect()
    }

    /// The rows before which a row group is cut: where the pages that begin in a window would have no room with the next.
    fn cuts(&self, columns: &[Column<'_>]) -> Vec<i64> {
        // What every window reads besides: dictionaries, and pages of which it has but some rows.
        let extra: u64 = columns.iter().map(|column| column.dictionary_bytes() + column.largest_page()).sum();
        let window = self.most_bytes.saturating_sub(extra).max(extra);
        let pages = columns.iter().flat_map(|column| column.pages);
        let mut pages: Vec<(i64, u64)> = pages
            .map(|page| (page.first_row_index, u64::from(page.compressed_page_size.unsigned_abs())))
            .collect();
        pages.sort_unstable();
        let (mut cuts, mut bytes) = (Vec::new(), 0);
        for pages in pages.chunk_by(|one, next| one.0 == next.0) {
            let begun: u64 = pages.iter().map(|(_, bytes)| bytes).sum();
            if bytes > 0 && bytes + begun > window {
                cuts.push(pages[0].0);
                bytes = 0;
            }
            bytes += begun;
        }
        cuts
    }
}

impl Column<'_> {
    fn dictionary_bytes(&self) -> u64 {
        let (begin, _) = self.chunk.byte_range();
        let first = self.pages.first().and_then(|page| u64::try_from(page.offset).ok());
        first.map_or(0, |first| first.saturating_sub(begin))
    }

    fn largest_page(&self) -> u64 {
        let bytes = self.pages.iter().map(|page| u64::from(page.compressed_page_size.unsigned_abs()));
        bytes.max().unwrap_or_default()
    }
}

fn columns<'a>(
    group: &'a RowGroupMetaData,
    leaves: &[usize],
) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    leaves.iter().map(|&leaf| group.column(leaf))
}

fn chunk_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    u64::try_from(chunk.compressed_size()).unwrap_or(0)
}

/// Where a row group of a file of so many bytes begins; `None` if a column is at no place in it.
fn begin(group: &RowGroupMetaData, file_bytes: i64) -> Option<i64> {
    let is_at_a_place = |chunk: &ColumnChunkMetaData| {
        let dictionary = chunk.dictionary_page_offset().unwrap_or_default();
        dictionary >= 0 && chunk.data_page_offset() >= 0 && chunk.compressed_size() >= 0
    };
    begin_of_row_group(group).filter(|&begin| begin < file_bytes && group.columns().iter().all(is_at_a_place))
}

/// Of `file`, the row groups that begin in `range`, or a window of so many rows of one.
fn part(file: &PartitionedFile, range: std::ops::Range<i64>, rows: Option<i64>) -> PartitionedFile {
    let mut part = file.clone();
    let whole = i64::try_from(file.object_meta.size).unwrap_or(i64::MAX).max(1);
    let share = (range.end - range.start) as f64 / whole as f64;
    let of_part = |known: &Precision<usize>| match known.get_value() {
        Some(&all) => Precision::Inexact((all as f64 * share).ceil() as usize),
        None => Precision::Absent,
    };
    part.range = Some(FileRange { start: range.start, end: range.end });
    part.statistics = file.statistics.as_deref().map(|of_file| {
        let mut statistics = Statistics::clone(of_file).to_inexact();
        statistics.num_rows = match rows.and_then(|rows| usize::try_from(rows).ok()) {
            Some(rows) => Precision::Inexact(rows),
            None => of_part(&of_file.num_rows),
        };
        statistics.total_byte_size = of_part(&of_file.total_byte_size);
        for (column, of_file) in statistics.column_statistics.iter_mut().zip(&of_file.column_statistics) {
            column.null_count = Precision::Absent;
            column.sum_value = Precision::Absent;
            column.byte_size = of_part(&of_file.byte_size);
        }
        Arc::new(statistics)
    });
    part
}

/// Reads the rows `from..to` of row group `at` alone.
fn access(metadata: &ParquetMetaData, at: usize, from: i64, to: i64) -> ParquetAccessPlan {
    let rows = |count: i64| {
        usize::try_from(count)
            .unwrap_or_else(|_| unreachable!("rows {from} to {to} are some of row group {at}"))
    };
    let row_groups = metadata.row_groups().iter().enumerate();
    let of_group = |(group, described): (usize, &RowGroupMetaData)| {
        if group != at {
            return RowGroupAccess::Skip;
        }
        RowGroupAccess::Selection(RowSelection::from(vec![
            RowSelector::skip(rows(from)),
            RowSelector::select(rows(to - from)),
            RowSelector::skip(rows(described.num_rows() - to)),
        ]))
    };
    ParquetAccessPlan::new(row_groups.map(of_group).collect())
}

/// The columns of a row group that are read; `None` if it is not known of all where their pages lie.
fn columns_with_pages<'a>(
    metadata: &'a ParquetMetaData,
    at: usize,
    leaves: &[usize],
) -> Option<Vec<Column<'a>>> {
    let group = metadata.row_group(at);
    let index = metadata.offset_index()?.get(at)?;
    let column = |&leaf: &usize| {
        let pages = index.get(leaf)?.page_locations().as_slice();
        let starts_at_zero = pages.first().is_some_and(|page| page.first_row_index == 0);
        let rises = pages
            .is_sorted_by(|one, next| one.first_row_index < next.first_row_index && one.offset < next.offset);
        let ends = pages.last().is_some_and(|page| page.first_row_index < group.num_rows());
        if !(starts_at_zero && rises && ends) {
            return None;
        }
        Some(Column { chunk: group.column(leaf), pages })
    };
    leaves.iter().map(column).collect()
}

/// `metadata` with the places of the pages of `leaves` in the row groups `large`; `None` if those cannot be known.
async fn with_pages(
    metadata: Arc<ParquetMetaData>,
    large: &[usize],
    leaves: &[usize],
    reader: &mut AccountedReader,
) -> Result<Option<Arc<ParquetMetaData>>> {
    if knows_pages(&metadata, large, leaves) {
        return Ok(Some(metadata));
    }
    let has_index = large
        .iter()
        .flat_map(|&at| columns(metadata.row_group(at), leaves))
        .all(|column| column.offset_index_offset().is_some());
    if has_index {
        let mut index = ParquetMetaDataReader::new_with_metadata(ParquetMetaData::clone(&metadata))
            .with_page_index_policy(PageIndexPolicy::Optional);
        index.load_page_index(&mut *reader).await?;
        let with_index = index.finish()?;
        if knows_pages(&with_index, large, leaves) {
            return Ok(Some(Arc::new(with_index)));
        }
    }
    let (large, leaves, path) = (large.to_vec(), leaves.to_vec(), reader.path().to_path_buf());
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = SetOnDrop(Arc::clone(&is_cancelled));
    let task = SpawnedTask::spawn_blocking(inherited_work(move || {
        let index = offset_index(&metadata, &large, &leaves, &path, &is_cancelled)?;
        let builder = ParquetMetaData::clone(&metadata).into_builder();
        let with_index = builder.set_column_index(None).set_offset_index(Some(index)).build();
        Ok(knows_pages(&with_index, &large, &leaves).then(|| Arc::new(with_index)))
    }));
    task.join_unwind().await.map_err(|error| ParquetError::External(Box::new(error)))?
}

fn knows_pages(metadata: &ParquetMetaData, large: &[usize], leaves: &[usize]) -> bool {
    large.iter().all(|&at| columns_with_pages(metadata, at, leaves).is_some())
}

/// Where the pages of `leaves` in the row groups `large` lie, from their headers. For everything else it has no pages.
fn offset_index(
    metadata: &ParquetMetaData,
    large: &[usize],
    leaves: &[usize],
    path: &Path,
    is_cancelled: &AtomicBool,
) -> Result<Vec<Vec<OffsetIndexMetaData>>> {
    let file = Arc::new(Headers::open(path)?);
    let empty = || OffsetIndexBuilder::new().build();
    let mut index: Vec<Vec<OffsetIndexMetaData>> = metadata.row_groups().iter().map(|_| Vec::new()).collect();
    let mut chunks: Vec<(usize, usize)> =
        large.iter().flat_map(|&group| leaves.iter().map(move |&leaf| (group, leaf))).collect();
    // Lists first: they alone can make all this useless.
    let schema = metadata.file_metadata().schema_descr();
    chunks.sort_by_key(|&(_, leaf)| Reverse(schema.column(leaf).max_rep_level()));
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(chunks.len()));
    let work = || {
        while let Some(&(group, leaf)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let described = metadata.row_group(group);
            match pages(&file, described.column(leaf), described.num_rows(), is_cancelled) {
                Ok(pages) => found.lock().push((group, leaf, pages)),
                Err(error) => {
                    next.store(chunks.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok::<_, ParquetError>(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..HEADERS_AT_A_TIME.min(chunks.len())).map(|_| scope.spawn(work)).collect();
        // All are joined: the scope itself would panic for a thread that did and was not.
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter().try_for_each(|end| match end {
            Ok(read) => read,
            // The reader asserts what a damaged header may lack.
            Err(_) => Err(ParquetError::General("a page header is damaged".to_owned())),
        })
    })?;
    for (group, leaf, pages) in found.into_inner() {
        if index[group].is_empty() {
            index[group].extend((0..metadata.row_group(group).num_columns()).map(|_| empty()));
        }
        index[group][leaf] = pages;
    }
    Ok(index)
}

/// Where the pages of a column lie.
fn pages(
    file: &Arc<Headers>,
    chunk: &ColumnChunkMetaData,
    rows: i64,
    is_cancelled: &AtomicBool,
) -> Result<OffsetIndexMetaData> {
    let (begin, bytes) = chunk.byte_range();
    let headers = Arc::new(HeadersOfChunk { file: Arc::clone(file), begin: Mutex::default() });
    let total = usize::try_from(rows).map_err(|error| ParquetError::External(Box::new(error)))?;
    let mut reader = SerializedPageReader::new(Arc::clone(&headers), chunk, total, None)?;
    let is_list = chunk.column_descr().max_rep_level() > 0;
    // Where a data page begins, and its rows.
    let mut found: Vec<(u64, i64)> = Vec::new();
    while let Some(page) = reader.peek_next_page()? {
        if is_cancelled.load(Ordering::Relaxed) {
            return Err(ParquetError::General("nobody waits for it".to_owned()));
        }
        let Some(page_begin) = headers.begin.lock().take() else { unreachable!("a header has been read") };
        if !page.is_dict {
            let count = page.num_rows.or(page.num_levels.filter(|_| !is_list));
            let count = count.and_then(|count| i64::try_from(count).ok());
            let count = count.ok_or_else(|| ParquetError::General("a page of unknown rows".to_owned()))?;
            found.push((page_begin, count));
        }
        reader.skip_next_page()?;
    }
    if found.iter().map(|(_, count)| count).sum::<i64>() != rows {
        return Err(ParquetError::General("pages have other rows than their row group".to_owned()));
    }
    let ends = found.iter().skip(1).map(|(begin, _)| *begin).chain([begin + bytes]).collect::<Vec<u64>>();
    let mut index = OffsetIndexBuilder::new();
    for ((begin, count), end) in found.into_iter().zip(ends) {
        let fail = |_| ParquetError::General("a page is too large".to_owned());
        let bytes = i32::try_from(end.saturating_sub(begin)).map_err(fail)?;
        index.append_offset_and_size(i64::try_from(begin).map_err(fail)?, bytes);
        index.append_row_count(count);
    }
    Ok(index.build())
}

/// A file of which the headers of pages are read.
struct Headers {
    file: File,
    bytes: u64,
}

/// Those of one column.
struct HeadersOfChunk {
    file: Arc<Headers>,
    /// Where the last one began.
    begin: Mutex<Option<u64>>,
}

/// A file from a place on.
struct ReadFrom {
    file: Arc<Headers>,
    place: u64,
}

impl Headers {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        nandina_device::without_read_ahead(&file);
        Ok(Self { file, bytes })
    }
}

impl Length for HeadersOfChunk {
    fn len(&self) -> u64 {
        self.file.bytes
    }
}

impl ChunkReader for HeadersOfChunk {
    type T = BufReader<ReadFrom>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        *self.begin.lock() = Some(start);
        let from = ReadFrom { file: Arc::clone(&self.file), place: start };
        Ok(BufReader::with_capacity(HEADER_BYTES, from))
    }

    fn get_bytes(&self, _: u64, _: usize) -> Result<Bytes> {
        Err(ParquetError::General("only headers are read".to_owned()))
    }
}

impl Read for ReadFrom {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.file.read_at(into, self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}
