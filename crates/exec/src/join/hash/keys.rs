//! Key equality between pages and batches.
//!
//! Candidates come out of the hash table with 32 equal hash bits, so nearly all of them are equal and the
//! loops below mostly confirm. They compact the two vectors of a pair list in place, one key column at a time.
//! Values compare as their bytes do. Floats do, too, except that both zeros are equal: that is the equality of
//! DataFusion's own joins and of its hash function.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{
    BinaryType, BinaryViewType, LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use arrow::datatypes::{ByteArrayType, ByteViewType, DataType};
use datafusion::common::Result;
use nandina_pages::ColumnLayout;

use crate::keys::floats::canonical;

use crate::join::rows::{PageColumn, PageRows, RowRef};

/// Pairs of a build row and a row of the probe batch.
#[derive(Debug, Default)]
pub struct Pairs {
    pub build: Vec<RowRef>,
    pub probe: Vec<u32>,
}

impl Pairs {
    pub fn len(&self) -> usize {
        self.build.len()
    }

    pub fn is_empty(&self) -> bool {
        self.build.is_empty()
    }

    pub fn clear(&mut self) {
        self.build.clear();
        self.probe.clear();
    }

    /// Makes room for as many more pairs.
    pub fn reserve(&mut self, more: usize) {
        self.build.reserve(more);
        self.probe.reserve(more);
    }

    /// Adds a pair if `wanted`, for which there must be room in any case: it is written first and counted then, since
    /// a branch on data would mispredict.
    #[inline]
    pub fn push_if(&mut self, build: RowRef, probe: u32, wanted: bool) {
        let len = self.build.len();
        assert!(len < self.build.capacity() && len < self.probe.capacity() && len == self.probe.len());
        // SAFETY: both have room for one more element, which is written before it is counted.
        unsafe {
            self.build.as_mut_ptr().add(len).write(build);
            self.probe.as_mut_ptr().add(len).write(probe);
            self.build.set_len(len + usize::from(wanted));
            self.probe.set_len(len + usize::from(wanted));
        }
    }

    /// Keeps the pairs for which `keep` says so.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(RowRef, u32) -> bool) {
        let mut kept = 0;
        for at in 0..self.build.len() {
            let (build, probe) = (self.build[at], self.probe[at]);
            // Written unconditionally: nearly every pair stays, and a branch on data would mispredict.
            self.build[kept] = build;
            self.probe[kept] = probe;
            kept += usize::from(keep(build, probe));
        }
        self.build.truncate(kept);
        self.probe.truncate(kept);
    }

    /// Keeps the pairs whose bit in `keep` is set.
    pub fn retain_positions(&mut self, keep: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.retain(|_, _| {
            at += 1;
            keep(at - 1)
        });
    }
}

/// Keeps the pairs whose keys in `column` equal those of `probe`.
pub fn retain_equal(
    rows: &PageRows,
    column: usize,
    probe: &ArrayRef,
    nulls_equal: bool,
    pairs: &mut Pairs,
) -> Result<()> {
    let build = rows.column(column);
    match probe.data_type() {
        DataType::Float16 => {
            retain_fixed::<u16>(build, probe, nulls_equal, pairs, |b, p| b == p || (b | p) << 1 == 0);
            return Ok(());
        }
        DataType::Float32 => {
            retain_fixed::<u32>(build, probe, nulls_equal, pairs, |b, p| b == p || (b | p) << 1 == 0);
            return Ok(());
        }
        DataType::Float64 => {
            retain_fixed::<u64>(build, probe, nulls_equal, pairs, |b, p| b == p || (b | p) << 1 == 0);
            return Ok(());
        }
        _ => {}
    }
    match build.layout() {
        ColumnLayout::Fixed { width_bytes: 1 } => {
            retain_fixed::<u8>(build, probe, nulls_equal, pairs, |b, p| b == p)
        }
        ColumnLayout::Fixed { width_bytes: 2 } => {
            retain_fixed::<u16>(build, probe, nulls_equal, pairs, |b, p| b == p)
        }
        ColumnLayout::Fixed { width_bytes: 4 } => {
            retain_fixed::<u32>(build, probe, nulls_equal, pairs, |b, p| b == p)
        }
        ColumnLayout::Fixed { width_bytes: 8 } => {
            retain_fixed::<u64>(build, probe, nulls_equal, pairs, |b, p| b == p)
        }
        ColumnLayout::Fixed { width_bytes: 16 } => {
            retain_fixed::<u128>(build, probe, nulls_equal, pairs, |b, p| b == p)
        }
        ColumnLayout::Fixed { width_bytes } => {
            let data = probe.to_data();
            let values = &data.buffers()[0][data.offset() * width_bytes..];
            let value = |row: usize| &values[row * width_bytes..(row + 1) * width_bytes];
            retain_valued(build, probe, nulls_equal, pairs, |b, p| build.bytes(b) == value(p));
        }
        ColumnLayout::Bits => {
            let values = probe.as_boolean();
            retain_valued(build, probe, nulls_equal, pairs, |b, p| build.bit(b) == values.value(p));
        }
        ColumnLayout::Variable => match probe.data_type() {
            DataType::Utf8 => retain_bytes::<Utf8Type>(build, probe, nulls_equal, pairs),
            DataType::LargeUtf8 => retain_bytes::<LargeUtf8Type>(build, probe, nulls_equal, pairs),
            DataType::Binary => retain_bytes::<BinaryType>(build, probe, nulls_equal, pairs),
            DataType::LargeBinary => retain_bytes::<LargeBinaryType>(build, probe, nulls_equal, pairs),
            DataType::Utf8View => retain_views::<StringViewType>(build, probe, nulls_equal, pairs),
            DataType::BinaryView => retain_views::<BinaryViewType>(build, probe, nulls_equal, pairs),
            _ => retain_compared(rows, column, probe, nulls_equal, pairs)?,
        },
        ColumnLayout::Nested | ColumnLayout::Null => {
            retain_compared(rows, column, probe, nulls_equal, pairs)?
        }
    }
    Ok(())
}

#[inline]
fn retain_fixed<T: Copy>(
    build: &PageColumn,
    probe: &ArrayRef,
    nulls_equal: bool,
    pairs: &mut Pairs,
    equal: impl Fn(T, T) -> bool,
) {
    let data = probe.to_data();
    let values = data.buffers()[0].as_ptr().cast::<T>();
    let offset = data.offset();
    // SAFETY: probe rows are rows of this array, whose first buffer holds a `T` for every one of them.
    let value = |row: usize| unsafe { values.add(offset + row).read_unaligned() };
    for &row in &pairs.build {
        build.prefetch_fixed::<T>(row);
    }
    retain_valued(build, probe, nulls_equal, pairs, |b, p| equal(build.fixed::<T>(b), value(p)));
}

fn retain_bytes<T: ByteArrayType>(
    build: &PageColumn,
    probe: &ArrayRef,
    nulls_equal: bool,
    pairs: &mut Pairs,
) {
    let values = probe.as_bytes::<T>();
    let value = |row: usize| -> &[u8] { values.value(row).as_ref() };
    retain_valued(build, probe, nulls_equal, pairs, |b, p| build.bytes(b) == value(p));
}

fn retain_views<T: ByteViewType>(build: &PageColumn, probe: &ArrayRef, nulls_equal: bool, pairs: &mut Pairs) {
    let values = probe.as_byte_view::<T>();
    let value = |row: usize| -> &[u8] { values.value(row).as_ref() };
    retain_valued(build, probe, nulls_equal, pairs, |b, p| build.bytes(b) == value(p));
}

/// Compares valid values with `equal`; two nulls are equal if `nulls_equal` says so, one null never is.
#[inline]
fn retain_valued(
    build: &PageColumn,
    probe: &ArrayRef,
    nulls_equal: bool,
    pairs: &mut Pairs,
    equal: impl Fn(RowRef, usize) -> bool,
) {
    let nulls = probe.nulls().filter(|nulls| nulls.null_count() > 0);
    if nulls.is_none() && !build.any_nulls() {
        return pairs.retain(|b, p| equal(b, p as usize));
    }
    pairs.retain(|b, p| {
        let probe_valid = nulls.is_none_or(|nulls| nulls.is_valid(p as usize));
        match (build.is_valid(b), probe_valid) {
            (true, true) => equal(b, p as usize),
            (false, false) => nulls_equal,
            _ => false,
        }
    });
}

/// Types without a layout of their own: gathered, then compared by Arrow.
fn retain_compared(
    rows: &PageRows,
    column: usize,
    probe: &ArrayRef,
    nulls_equal: bool,
    pairs: &mut Pairs,
) -> Result<()> {
    let left = canonical(&rows.gather(column, &pairs.build)?)?;
    let right = canonical(&take(probe, &UInt32Array::from(pairs.probe.clone()), None)?)?;
    let (left_nulls, right_nulls) = (left.logical_nulls(), right.logical_nulls());
    let compare = make_comparator(&left, &right, SortOptions::default())?;
    pairs.retain_positions(|at| {
        let left_valid = left_nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
        let right_valid = right_nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
        match (left_valid, right_valid) {
            (true, true) => compare(at, at).is_eq(),
            (false, false) => nulls_equal,
            _ => false,
        }
    });
    Ok(())
}
