//! Encodings that make mini-pages smaller than Arrow's form.
//!
//! | encoding | for | decoding |
//! |---|---|---|
//! | [`FrameOfReference`](Encoding::FrameOfReference) | integers, decimals, dates, times | vector code |
//! | [`Dictionary`](Encoding::Dictionary) | strings and binary of few values | a lookup per row |
//! | [`Compressed`](Encoding::Compressed) | other strings and binary | LZ4 |
//!
//! Each page chooses for each column by itself the smallest encoding; one that saves less than a sixteenth is not used.
//! For pages that are written once and read often: tables. Spilled pages are read once, and compressed, if at all, as a
//! whole.

mod bit_packing;
mod integers;
mod texts;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field};

use crate::bitmap::Bitmap;
use crate::error::{PageError, Result};
use crate::format::{Encoding, MiniPageMeta};
use crate::mini_page::{ColumnParts, DictionaryParts, PartValues};
use crate::schema::ColumnLayout;
pub(crate) use integers::encode as encode_integers;
pub(crate) use texts::{StagedTexts, encode as encode_texts};

/// Most rows of a page with such mini-pages: a few bytes can stand for any number of equal values, and a reader of
/// damaged ones must not run out of memory.
pub const MAX_ENCODED_ROWS: usize = 1 << 16;

/// Whether it pays to decode `bytes` instead of `raw_bytes`.
fn is_smaller(bytes: u64, raw_bytes: u64) -> bool {
    bytes <= raw_bytes / 16 * 15
}

fn append_validity(validity: Option<&Bitmap>, rows: usize, out: &mut Vec<u8>) {
    if let Some(validity) = validity {
        let start = out.len();
        out.resize(start + rows.div_ceil(8), 0);
        validity.write(&mut out[start..]);
    }
}

/// Decodes into Arrow's form a mini-page whose encoding [is one of these](Encoding::is_arrow).
pub(crate) fn column_parts(
    bytes: &Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Result<ColumnParts> {
    let (name, nulls) = (field.name(), meta.null_count as usize);
    check_rows(rows, name)?;
    let of_texts = |texts: texts::DecodedTexts| ColumnParts {
        rows,
        validity: texts.validity,
        values: PartValues::Variable { offsets: texts.offsets, bytes: texts.bytes },
    };
    match (ColumnLayout::of(field.data_type()), meta.encoding) {
        (ColumnLayout::Fixed { width_bytes }, Encoding::FrameOfReference) => {
            let (bytes, validity) = integers::decode(bytes, width_bytes, rows, nulls, name)?;
            Ok(ColumnParts { rows, validity, values: PartValues::Fixed { width_bytes, bytes } })
        }
        (ColumnLayout::Variable, Encoding::Dictionary) => {
            texts::decode_dictionary(bytes, rows, nulls, name).map(of_texts)
        }
        (ColumnLayout::Variable, Encoding::Compressed) => {
            texts::decode_compressed(bytes, rows, nulls, name).map(of_texts)
        }
        (_, encoding) => Err(PageError::malformed(
            name,
            format!("{encoding:?} is not an encoding of {}", field.data_type()),
        )),
    }
}

/// Columns of views whose values stand in a dictionary need not be expanded: `None` for all others.
pub(crate) fn column_views(
    bytes: &Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Option<Result<ArrayRef>> {
    let is_view = matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
    (is_view && meta.encoding == Encoding::Dictionary).then(|| {
        check_rows(rows, field.name())?;
        texts::dictionary_views(bytes, field.data_type(), rows, meta.null_count as usize, field.name())
    })
}

/// The parts of a dictionary of strings or binary.
pub(crate) fn dictionary_parts(
    bytes: &Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Result<DictionaryParts> {
    check_rows(rows, field.name())?;
    texts::dictionary_parts(bytes, field, rows, meta.null_count as usize)
}

fn check_rows(rows: usize, column: &str) -> Result<()> {
    if rows <= MAX_ENCODED_ROWS {
        return Ok(());
    }
    Err(PageError::malformed(column, format!("{rows} rows, where at most {MAX_ENCODED_ROWS} can be")))
}
