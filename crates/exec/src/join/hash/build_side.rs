//! The build side of a join, or of one of its spilled partitions, while it is probed.

use std::sync::Arc;

use datafusion::common::Result;
use nandina_pages::Page;
use nandina_spill::partition_of;

use super::table::PartitionTable;
use crate::join::kind::{JoinKind, SideRows};
use crate::join::row_bits::RowBits;
use crate::join::rows::PageRows;
use crate::join::spec::JoinSpec;
use crate::keys::KeyHasher;
use crate::memory::MAX_PAGE_ROWS;
use crate::spill::HashFilter;

/// Tables up to this size stay in a processor's second-level cache while they are probed.
const CACHED_TABLE_BYTES: usize = 512 << 10;

/// Memory of the visited bits of a build side with so many pages, if joins of this kind have any.
pub fn visited_bytes(kind: JoinKind, pages: usize) -> usize {
    if kind.build_rows == SideRows::Dropped { 0 } else { RowBits::bytes_for(pages * MAX_PAGE_ROWS) }
}

/// Which rows of a partition had matched before it was spilled.
///
/// The bits stay in memory and reserved. Batches that were being probed when the partition was spilled still set
/// theirs, so they are final only when every probe row has been seen.
#[derive(Clone, Debug)]
pub struct EarlierVisits {
    visited: Arc<RowBits>,
    /// Where the partition's pages begin.
    first_page: usize,
}

/// Build partitions in memory, with what probing them needs.
///
/// Immutable: spilling a partition while the join is probed makes a new `BuildSide` without that table, and
/// its pages are freed when the last batch that still probes the old one is done.
#[derive(Clone)]
pub struct BuildSide {
    rows: Arc<PageRows>,
    tables: Vec<Option<Arc<PartitionTable>>>,
    partition_bits: u32,
    /// Which rows have matched, by their references: every page has bits for as many rows as one can have.
    visited: Option<Arc<RowBits>>,
    /// Which keys the spilled partitions may hold; every key if `None`.
    spilled_keys: Option<Arc<HashFilter>>,
    /// Mean size of a row, for bounding output batches in bytes.
    row_bytes: usize,
    exceeds_caches: bool,
}

impl BuildSide {
    /// Opens the tables of all partitions; `None` stands for a spilled one.
    pub fn new(
        spec: &JoinSpec,
        partition_bits: u32,
        tables: Vec<Option<Arc<PartitionTable>>>,
    ) -> Result<Self> {
        let pages: Vec<&Page> = tables.iter().flatten().flat_map(|table| table.pages()).collect();
        let rows = Arc::new(PageRows::new(&spec.build.pages, &pages)?);
        let visited = (spec.kind.build_rows != SideRows::Dropped)
            .then(|| Arc::new(RowBits::new(pages.len() * MAX_PAGE_ROWS)));
        let count: usize = pages.iter().map(|page| page.rows()).sum();
        let bytes: usize = pages.iter().map(|page| page.memory_bytes()).sum();
        let row_bytes = bytes / count.max(1);
        let table_bytes: usize = tables.iter().flatten().map(|table| table.table_bytes()).sum();
        let exceeds_caches = table_bytes > CACHED_TABLE_BYTES;
        Ok(Self { rows, tables, partition_bits, visited, spilled_keys: None, row_bytes, exceeds_caches })
    }

    /// A build side of one partition made of `pages`.
    pub fn of_pages(spec: &JoinSpec, hasher: &KeyHasher, pages: Vec<Page>) -> Result<Self> {
        let table = PartitionTable::build(spec, hasher, 0, pages, 0)?;
        Self::new(spec, 0, vec![Some(Arc::new(table))])
    }

    /// The same build side, not probed yet, whose pages are those of a spilled partition from `first_page` on.
    pub fn visited_earlier(self, earlier: Option<&EarlierVisits>, first_page: usize) -> Self {
        if let (Some(visited), Some(earlier)) = (&self.visited, earlier) {
            visited.copy_from(&earlier.visited, (earlier.first_page + first_page) * MAX_PAGE_ROWS);
        }
        self
    }

    /// Which rows of `partition` have matched so far, if the join tracks that.
    pub fn visits_of(&self, partition: usize) -> Option<EarlierVisits> {
        let table = self.tables[partition].as_ref()?;
        let visited = Arc::clone(self.visited.as_ref()?);
        Some(EarlierVisits { visited, first_page: table.first_page() })
    }

    /// The same build side, with a filter over the keys of its spilled partitions.
    pub fn with_spilled_keys(mut self, spilled_keys: Option<Arc<HashFilter>>) -> Self {
        // The filter is as large as its share of memory allows: larger than caches, if there is one.
        self.exceeds_caches |= spilled_keys.is_some();
        self.spilled_keys = spilled_keys;
        self
    }

    /// The same build side without the table of `partition`.
    pub fn without(&self, partition: usize) -> Self {
        let mut tables = self.tables.clone();
        tables[partition] = None;
        Self {
            rows: Arc::clone(&self.rows),
            tables,
            partition_bits: self.partition_bits,
            visited: self.visited.clone(),
            spilled_keys: self.spilled_keys.clone(),
            row_bytes: self.row_bytes,
            exceeds_caches: self.exceeds_caches,
        }
    }

    /// Whether probing has to wait for memory, so that asking for lines ahead of their use pays.
    #[inline]
    pub fn exceeds_caches(&self) -> bool {
        self.exceeds_caches
    }

    /// The build rows, for gathering.
    pub fn rows(&self) -> &PageRows {
        &self.rows
    }

    /// Which keys the spilled partitions may hold; every key if `None`.
    pub fn spilled_keys(&self) -> Option<&HashFilter> {
        self.spilled_keys.as_deref()
    }

    /// For each hash whether a build row, in memory or spilled, may have it. Looks up groups of them at a time, so that
    /// their lines come from memory side by side.
    pub fn may_hold(&self, hashes: &[u64]) -> Vec<bool> {
        const GROUP: usize = 32;
        let mut found = vec![false; hashes.len()];
        let mut turned_away = 0;
        let mut groups = hashes.chunks(GROUP).peekable();
        groups.peek().into_iter().for_each(|first| first.iter().for_each(|&hash| self.prefetch(hash)));
        for found in found.chunks_mut(GROUP) {
            let Some(group) = groups.next() else { unreachable!("there are as many groups of hashes") };
            groups.peek().into_iter().for_each(|next| next.iter().for_each(|&hash| self.prefetch(hash)));
            // Those that the directory knows come together: which they are, nothing could predict.
            let mut candidates = [(0, 0, 0); GROUP];
            let mut known = 0;
            for (slot, (found, &hash)) in found.iter_mut().zip(group).enumerate() {
                let Some(table) = self.table(hash) else {
                    *found = self.spilled_keys().is_none_or(|keys| keys.may_hold(hash));
                    turned_away += usize::from(!*found);
                    continue;
                };
                let entries = table.candidates(hash);
                candidates[known] = (slot, entries.start, entries.end);
                known += usize::from(entries.start < entries.end);
            }
            let candidates = &candidates[..known];
            for &(slot, start, _) in candidates {
                self.table(group[slot]).into_iter().for_each(|table| table.prefetch_entry(start));
            }
            for &(slot, start, end) in candidates {
                found[slot] =
                    self.table(group[slot]).is_some_and(|table| table.has_hash(start..end, group[slot]));
            }
        }
        // The rest will be asked again, and counted, by the join.
        if let Some(keys) = self.spilled_keys() {
            keys.note(turned_away, 0);
        }
        found
    }

    /// Asks for the line that a lookup of this hash will read first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        match (self.table(hash), self.spilled_keys()) {
            (Some(table), _) => table.prefetch_bucket(hash),
            (None, Some(keys)) => keys.prefetch(hash),
            (None, None) => {}
        }
    }

    /// Memory of the visited bits, those of spilled partitions included.
    pub fn visited_bytes(&self) -> usize {
        self.visited.as_ref().map_or(0, |visited| visited.memory_bytes())
    }

    /// Which build rows have matched, if the join asks.
    pub fn visited(&self) -> Option<&RowBits> {
        self.visited.as_deref()
    }

    /// Rows in an output batch of `spec` whose probe rows take `probe_row_bytes` on average.
    pub fn output_rows(&self, spec: &JoinSpec, probe_row_bytes: usize) -> usize {
        spec.output_rows(self.row_bytes + probe_row_bytes)
    }

    /// The partitions' tables; `None` stands for a spilled partition.
    pub fn tables(&self) -> &[Option<Arc<PartitionTable>>] {
        &self.tables
    }

    /// Whether some partition is not in memory.
    pub fn any_spilled(&self) -> bool {
        self.tables.iter().any(Option::is_none)
    }

    /// The table that a row with this hash probes; `None` if its partition is spilled.
    #[inline]
    pub fn table(&self, hash: u64) -> Option<&PartitionTable> {
        self.tables[partition_of(hash, self.partition_bits)].as_deref()
    }
}
