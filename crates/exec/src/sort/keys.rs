//! The keys of rows: what comes first, encoded as bytes, and behind it a text that stays in its column.
//!
//! ```text
//!   ORDER BY price, comment    price in Arrow's row format │ 1 │ the comment, in the batch
//!   ORDER BY comment DESC                                  │ 1 │ the comment, its bytes complemented as they are compared
//!   ORDER BY comment, price    both in Arrow's row format  │
//!                              └──────── encoded ─────────┘└─────────── text ─────────────┘
//! ```
//!
//! The byte in between tells values from nulls. A text of many bytes would else be in memory twice, and be encoded again
//! whenever a page of a run is read. No encoded part is the beginning of another one; of texts one may be, and compares
//! as if zeros followed it, which decides unless there are zeros in texts.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, LargeBinaryArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::Rows;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;

/// Bytes of a key's head.
pub const HEAD_BYTES: usize = size_of::<Head>();

/// Some bytes of a key, as numbers that compare like them. Not one of sixteen bytes, which would be aligned to as many
/// and make a third more of every position.
pub type Head = [u64; 2];

/// What stands before a text that is not null.
const VALUE: u8 = 1;

/// The keys of a batch's rows.
#[derive(Debug)]
pub struct Keys {
    rows: usize,
    encoded: Option<Rows>,
    texts: Option<Texts>,
}

/// A sort column whose values are the ends of keys.
#[derive(Debug, Clone, Copy)]
pub struct TextColumn {
    number: usize,
    options: SortOptions,
}

#[derive(Debug)]
struct Texts {
    values: TextValues,
    options: SortOptions,
}

#[derive(Debug)]
enum TextValues {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    Views(BinaryViewArray),
}

/// The key of a row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Key<'a> {
    encoded: &'a [u8],
    text: Option<Text<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Text<'a> {
    /// [`VALUE`], or less or more than it if it is null.
    before: u8,
    is_descending: bool,
    bytes: &'a [u8],
}

/// A key by itself.
#[derive(Debug)]
pub struct OwnedKey {
    encoded: Box<[u8]>,
    /// What a [`Text`] is made of.
    text: Option<(u8, bool, Box<[u8]>)>,
}

impl TextColumn {
    /// The column of an expression that is the last one of a sort, if it is one of texts or bytes.
    pub fn of(expression: &PhysicalSortExpr, schema: &SchemaRef) -> Option<Self> {
        let number = expression.expr.downcast_ref::<Column>()?.index();
        let is_text = matches!(
            schema.field(number).data_type(),
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        );
        is_text.then_some(Self { number, options: expression.options })
    }

    fn texts(self, rows: &RecordBatch) -> Result<Texts> {
        Ok(Texts { values: TextValues::of(rows.column(self.number))?, options: self.options })
    }
}

impl TextValues {
    fn of(column: &ArrayRef) -> Result<Self> {
        Ok(match column.data_type() {
            DataType::Utf8 => Self::Small(column.as_string::<i32>().clone().into()),
            DataType::LargeUtf8 => Self::Large(column.as_string::<i64>().clone().into()),
            DataType::Utf8View => Self::Views(column.as_string_view().clone().to_binary_view()),
            DataType::Binary => Self::Small(column.as_binary::<i32>().clone()),
            DataType::LargeBinary => Self::Large(column.as_binary::<i64>().clone()),
            DataType::BinaryView => Self::Views(column.as_binary_view().clone()),
            other => return Err(internal_datafusion_err!("a sort column of texts is one of {other}")),
        })
    }

    /// None if it is null.
    #[inline]
    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Small(values) => values.is_valid(row).then(|| values.value(row)),
            Self::Large(values) => values.is_valid(row).then(|| values.value(row)),
            Self::Views(values) => values.is_valid(row).then(|| values.value(row)),
        }
    }
}

impl Keys {
    /// The keys of `rows`, of which this is encoded.
    pub fn try_new(encoded: Option<Rows>, text: Option<TextColumn>, rows: &RecordBatch) -> Result<Self> {
        let texts = text.map(|text| text.texts(rows)).transpose()?;
        if let Some(encoded) = &encoded {
            assert_eq!(encoded.num_rows(), rows.num_rows(), "every row has a key");
        }
        Ok(Self { rows: rows.num_rows(), encoded, texts })
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    /// What is encoded.
    pub fn encoded(&self) -> Option<&Rows> {
        self.encoded.as_ref()
    }

    /// What is encoded, alone.
    pub fn into_encoded(self) -> Option<Rows> {
        self.encoded
    }

    /// Bytes in memory beside those of the rows.
    pub fn bytes(&self) -> usize {
        self.encoded.as_ref().map_or(0, Rows::size)
    }

    /// The key of a row.
    #[inline]
    pub fn key(&self, row: usize) -> Key<'_> {
        let encoded = match &self.encoded {
            Some(encoded) => encoded.row(row).data(),
            None => &[],
        };
        Key { encoded, text: self.texts.as_ref().map(|texts| texts.text(row)) }
    }

    pub fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        (0..self.rows).map(|row| self.key(row))
    }
}

impl Texts {
    #[inline]
    fn text(&self, row: usize) -> Text<'_> {
        let SortOptions { descending: is_descending, nulls_first } = self.options;
        match self.values.get(row) {
            Some(bytes) => Text { before: VALUE, is_descending, bytes },
            None => {
                Text { before: if nulls_first { VALUE - 1 } else { VALUE + 1 }, is_descending, bytes: &[] }
            }
        }
    }
}

impl<'a> Key<'a> {
    /// A key that is encoded whole.
    #[cfg(test)]
    pub fn encoded(encoded: &'a [u8]) -> Self {
        Self { encoded, text: None }
    }

    /// Its bytes.
    pub fn len(self) -> usize {
        self.encoded.len() + self.text.map_or(0, |text| 1 + text.bytes.len())
    }

    /// The byte at this place; what keys are filled up with behind their end.
    #[inline]
    fn byte(self, place: usize) -> u8 {
        let Some(text) = self.text else { return self.encoded.get(place).copied().unwrap_or_default() };
        match place.checked_sub(self.encoded.len()) {
            None => self.encoded[place],
            Some(0) => text.before,
            Some(behind) => text.bytes.get(behind - 1).copied().unwrap_or_default() ^ text.mask() as u8,
        }
    }

    /// The bytes behind the first `skipped_bytes`, as numbers that compare like them.
    #[inline]
    pub fn head(self, skipped_bytes: usize) -> Head {
        [self.word(skipped_bytes), self.word(skipped_bytes + size_of::<u64>())]
    }

    #[inline]
    fn word(self, start: usize) -> u64 {
        match self.text {
            None => word(self.encoded, start),
            Some(text) if start > self.encoded.len() => {
                word(text.bytes, start - self.encoded.len() - 1) ^ text.mask()
            }
            Some(_) if start + size_of::<u64>() <= self.encoded.len() => word(self.encoded, start),
            Some(_) => u64::from_be_bytes(std::array::from_fn(|at| self.byte(start + at))),
        }
    }

    /// The order of two keys that have the first `skipped_bytes` in common.
    #[inline]
    pub fn cmp_behind(self, other: Self, skipped_bytes: usize) -> Ordering {
        let rest = |bytes: &'a [u8]| bytes.get(skipped_bytes..).unwrap_or_default();
        let encoded = rest(self.encoded).cmp(other.encoded.get(skipped_bytes..).unwrap_or_default());
        match (self.text, other.text) {
            (Some(text), Some(of_other)) => encoded.then_with(|| {
                let in_text = skipped_bytes.saturating_sub(self.encoded.len() + 1);
                text.before.cmp(&of_other.before).then_with(|| text.cmp_behind(of_other, in_text))
            }),
            _ => encoded,
        }
    }

    /// How many bytes of `prefix` it begins with.
    #[inline]
    pub fn shared_bytes(self, prefix: &[u8]) -> usize {
        let encoded = shared_bytes(self.encoded, prefix);
        let (Some(text), true) = (self.text, encoded == self.encoded.len()) else { return encoded };
        match prefix[encoded..].split_first() {
            Some((before, prefix)) if *before == text.before => encoded + 1 + text.shared_bytes(prefix),
            _ => encoded,
        }
    }

    /// Whether zeros in its text may stand where another one ends.
    pub fn has_zeros(self) -> bool {
        self.text.is_some_and(|text| text.bytes.contains(&0))
    }

    /// Copies its first bytes, filled up behind its end.
    pub fn copy_to(self, bytes: &mut [u8]) {
        bytes.iter_mut().enumerate().for_each(|(place, byte)| *byte = self.byte(place));
    }

    /// All of its bytes.
    pub fn to_bytes(self) -> Box<[u8]> {
        (0..self.len()).map(|place| self.byte(place)).collect()
    }

    pub fn to_owned(self) -> OwnedKey {
        let text = self.text.map(|text| (text.before, text.is_descending, text.bytes.into()));
        OwnedKey { encoded: self.encoded.into(), text }
    }
}

impl Text<'_> {
    /// What its bytes are changed by.
    #[inline]
    fn mask(self) -> u64 {
        if self.is_descending { u64::MAX } else { 0 }
    }

    fn shared_bytes(self, prefix: &[u8]) -> usize {
        match self.is_descending {
            true => self.bytes.iter().zip(prefix).take_while(|(ours, theirs)| !**ours == **theirs).count(),
            false => shared_bytes(self.bytes, prefix),
        }
    }

    /// The order of two texts whose first bytes are the same, or of which one has zeros there where the other has ended.
    #[inline]
    fn cmp_behind(self, other: Text, skipped_bytes: usize) -> Ordering {
        let rest = self.bytes.get(skipped_bytes..).unwrap_or_default();
        let ascending = rest.cmp(other.bytes.get(skipped_bytes..).unwrap_or_default());
        let ascending = ascending.then(self.bytes.len().cmp(&other.bytes.len()));
        if self.is_descending { ascending.reverse() } else { ascending }
    }
}

impl OwnedKey {
    pub fn key(&self) -> Key<'_> {
        let text = self.text.as_ref().map(|(before, is_descending, bytes)| Text {
            before: *before,
            is_descending: *is_descending,
            bytes,
        });
        Key { encoded: &self.encoded, text }
    }
}

impl Ord for Key<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_behind(*other, 0)
    }
}

impl PartialOrd for Key<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// How many bytes both begin with.
#[inline]
pub fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let most = a.len().min(b.len());
    if a[..most] == b[..most] {
        return most;
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[inline]
fn word(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut word = [0; size_of::<u64>()];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int8Array, StringArray};
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::LexOrdering;
    use datafusion::physical_expr::expressions::col;
    use proptest::prelude::*;

    use super::super::forecast::mark;
    use super::super::shared_prefix::SharedPrefix;
    use super::super::spec::{KeyEncoder, SortSpec};
    use super::*;

    type Row = (Option<i8>, Option<String>);

    fn rows_of(rows: &[Row], text: &DataType) -> RecordBatch {
        let numbers: Int8Array = rows.iter().map(|(number, _)| *number).collect();
        let texts: StringArray = rows.iter().map(|(_, text)| text.as_deref()).collect();
        let texts = arrow::compute::cast(&texts, text).unwrap();
        let fields = vec![Field::new("n", DataType::Int8, true), Field::new("t", text.clone(), true)];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(numbers), texts]).unwrap()
    }

    fn row() -> impl Strategy<Value = Row> {
        // Beginnings of each other, with zeros and without, short and longer than heads.
        let text = prop_oneof!["[ab]{0,3}", "[a\\x00]{0,20}", "common beginning[ab\\x00]{0,20}", "é{0,12}"];
        (prop::option::of(0..2i8), prop::option::weighted(0.9, text))
    }

    fn options() -> impl Strategy<Value = SortOptions> {
        any::<(bool, bool)>().prop_map(|(descending, nulls_first)| SortOptions { descending, nulls_first })
    }

    const TYPES: [DataType; 6] = [
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
    ];

    proptest! {
        #[test]
        fn keys_compare_as_if_they_were_encoded_whole(
            rows in prop::collection::vec(row(), 1..40),
            (of_number, of_text) in (options(), options()),
            has_number in any::<bool>(),
            text in prop::sample::select(&TYPES[..]),
        ) {
            let rows = rows_of(&rows, &text);
            let schema = rows.schema();
            let number = PhysicalSortExpr { expr: col("n", &schema).unwrap(), options: of_number };
            let text = PhysicalSortExpr { expr: col("t", &schema).unwrap(), options: of_text };
            let order: Vec<_> = [number, text].into_iter().skip(usize::from(!has_number)).collect();
            let whole = KeyEncoder::try_new(order.clone(), &schema).unwrap().keys(&rows).unwrap();
            let spec = SortSpec::try_new(LexOrdering::new(order).unwrap(), schema, 8192, None).unwrap();
            let keys = spec.keys(&rows).unwrap();
            prop_assert_eq!(keys.encoded().is_some(), has_number);
            let mut prefix = SharedPrefix::default();
            prefix.add(&keys);
            let mut joined = SharedPrefix::default();
            joined.join(&prefix);
            prop_assert_eq!(joined.len_bytes(), prefix.len_bytes());
            for (a, of_a) in keys.iter().zip(whole.iter()) {
                prop_assert_eq!(a.shared_bytes(&a.to_bytes()), a.len());
                prop_assert!(a.to_owned().key() == a);
                for (b, of_b) in keys.iter().zip(whole.iter()) {
                    let right = of_a.cmp(&of_b);
                    prop_assert_eq!(a.cmp(&b), right);
                    for skipped in [0, prefix.len_bytes() / 2, prefix.len_bytes()] {
                        prop_assert_eq!(a.cmp_behind(b, skipped), right);
                        let heads = a.head(skipped).cmp(&b.head(skipped));
                        prop_assert!(heads == right || heads.is_eq());
                    }
                    let heads = a.head(prefix.len_bytes()).cmp(&b.head(prefix.len_bytes()));
                    prop_assert!(heads == right || !prefix.heads_decide());
                    let marks = mark(a).cmp(&mark(b));
                    prop_assert!(marks == right || marks.is_eq());
                }
            }
        }
    }
}
