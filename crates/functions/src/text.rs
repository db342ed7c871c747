//! Texts: their parts, how far apart they are, and their other spellings.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BinaryArray, Float64Array, Int32Array, Int64Array, ListBuilder, StringViewArray,
    StringViewBuilder,
};
use arrow::datatypes::DataType;
use datafusion::common::cast::{as_binary_array, as_boolean_array, as_int64_array, as_string_view_array};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::function::Kind::{Blob, Boolean, Integer, Text};
use crate::function::{Kernel, arguments, list_of};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["string_split", "str_split", "split"], &[&[Text, Text]], texts, string_split),
    Kernel::new(&["strip_accents"], &[&[Text]], text, |given, _| {
        map_text(given, |text| text.nfd().filter(|letter| !is_combining_mark(*letter)).collect())
    }),
    Kernel::new(&["nfc_normalize"], &[&[Text]], text, |given, _| {
        map_text(given, |text| text.nfc().collect())
    }),
    Kernel::new(
        &["strlen"],
        &[&[Text]],
        |_| Ok(DataType::Int64),
        |given, _| {
            let [texts] = arguments(given)?;
            let bytes = as_string_view_array(texts)?.iter().map(|text| Some(text?.len() as i64));
            Ok(Arc::new(bytes.collect::<Int64Array>()))
        },
    ),
    Kernel::new(
        &["unicode", "ord"],
        &[&[Text]],
        |_| Ok(DataType::Int32),
        |given, _| {
            let [texts] = arguments(given)?;
            let first = |text: &str| text.chars().next().map_or(-1, |letter| letter as i32);
            Ok(Arc::new(
                as_string_view_array(texts)?.iter().map(|text| text.map(first)).collect::<Int32Array>(),
            ))
        },
    ),
    Kernel::new(&["hamming", "mismatches"], &[&[Text, Text]], integer, |given, _| {
        distances(given, |a, b| match strsim::hamming(a, b) {
            Ok(distance) => Ok(distance as i64),
            Err(_) => exec_err!("hamming('{a}', '{b}'): the texts must have the same length"),
        })
    }),
    Kernel::new(&["damerau_levenshtein"], &[&[Text, Text]], integer, |given, _| {
        distances(given, |a, b| Ok(strsim::damerau_levenshtein(a, b) as i64))
    }),
    Kernel::new(&["jaccard"], &[&[Text, Text]], double, |given, _| similarities(given, jaccard)),
    Kernel::new(&["jaro_similarity"], &[&[Text, Text]], double, |given, _| {
        similarities(given, |a, b| Ok(strsim::jaro(a, b)))
    }),
    Kernel::new(&["jaro_winkler_similarity"], &[&[Text, Text]], double, |given, _| {
        similarities(given, |a, b| Ok(strsim::jaro_winkler(a, b)))
    }),
    Kernel::new(&["url_encode"], &[&[Text]], text, |given, _| map_text(given, url_encode)),
    Kernel::new(&["url_decode"], &[&[Text]], text, |given, _| map_text(given, url_decode)),
    Kernel::new(&["hex", "to_hex"], &[&[Integer], &[Text], &[Blob]], text, |given, _| {
        digits(given, |number| format!("{number:X}"), |byte| format!("{byte:02X}"))
    }),
    Kernel::new(&["bin", "to_binary"], &[&[Integer], &[Text], &[Blob]], text, |given, _| {
        digits(given, |number| format!("{number:b}"), |byte| format!("{byte:08b}"))
    }),
    Kernel::new(&["unhex", "from_hex"], &[&[Text]], |_| Ok(DataType::Binary), |given, _| blobs(given, unhex)),
    Kernel::new(
        &["from_binary", "unbin"],
        &[&[Text]],
        |_| Ok(DataType::Binary),
        |given, _| blobs(given, unbin),
    ),
    Kernel::new(&["to_base"], &[&[Integer, Integer], &[Integer, Integer, Integer]], text, to_base),
    Kernel::new(&["parse_path"], PATH, texts, |given, _| {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for path in paths(given)? {
            match path {
                Some(path) => lists.append_value(path.parts().map(Some)),
                None => lists.append_null(),
            }
        }
        Ok(Arc::new(lists.finish()))
    }),
    Kernel::new(&["parse_dirname"], PATH, text, |given, _| path_parts(given, Path::first)),
    Kernel::new(&["parse_dirpath"], PATH, text, |given, _| path_parts(given, Path::folder)),
    Kernel::new(
        &["parse_filename"],
        &[&[Text], &[Text, Text], &[Text, Boolean], &[Text, Boolean, Text]],
        text,
        |given, _| path_parts(given, Path::file),
    ),
];

const PATH: &[&[crate::function::Kind]] = &[&[Text], &[Text, Text]];

fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

fn texts(_: &[DataType]) -> Result<DataType> {
    Ok(list_of(DataType::Utf8View))
}

fn integer(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

fn double(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Float64)
}

fn both(given: &[ArrayRef]) -> Result<impl Iterator<Item = Option<(&str, &str)>>> {
    let [first, second] = arguments(given)?;
    let pairs = as_string_view_array(first)?.iter().zip(as_string_view_array(second)?.iter());
    Ok(pairs.map(|(first, second)| first.zip(second)))
}

fn distances(given: &[ArrayRef], distance: impl Fn(&str, &str) -> Result<i64>) -> Result<ArrayRef> {
    let answers = both(given)?.map(|pair| pair.map(|(first, second)| distance(first, second)).transpose());
    Ok(Arc::new(answers.collect::<Result<Int64Array>>()?))
}

fn similarities(given: &[ArrayRef], similarity: impl Fn(&str, &str) -> Result<f64>) -> Result<ArrayRef> {
    let answers = both(given)?.map(|pair| pair.map(|(first, second)| similarity(first, second)).transpose());
    Ok(Arc::new(answers.collect::<Result<Float64Array>>()?))
}

fn map_text(given: &[ArrayRef], spelled: impl Fn(&str) -> String) -> Result<ArrayRef> {
    let [texts] = arguments(given)?;
    let spelled = as_string_view_array(texts)?.iter().map(|text| text.map(&spelled));
    Ok(Arc::new(spelled.collect::<StringViewArray>()))
}

fn blobs(given: &[ArrayRef], read: impl Fn(&str) -> Result<Vec<u8>>) -> Result<ArrayRef> {
    let [texts] = arguments(given)?;
    let blobs = as_string_view_array(texts)?.iter().map(|text| text.map(&read).transpose());
    let blobs = blobs.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(blobs.iter().map(Option::as_deref).collect::<BinaryArray>()))
}

/// The parts between separators; every letter where the separator is empty.
fn string_split(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [texts, separators] = arguments(given)?;
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for (text, separator) in as_string_view_array(texts)?.iter().zip(as_string_view_array(separators)?.iter())
    {
        match (text, separator) {
            (None, _) => lists.append_null(),
            (Some(text), None) => lists.append_value([Some(text)]),
            (Some(text), Some("")) if !text.is_empty() => {
                for letter in text.chars() {
                    lists.values().append_value(letter.encode_utf8(&mut [0; 4]));
                }
                lists.append(true);
            }
            (Some(text), Some("")) => lists.append_value([Some(text)]),
            (Some(text), Some(separator)) => lists.append_value(text.split(separator).map(Some)),
        }
    }
    Ok(Arc::new(lists.finish()))
}

/// The share of letters that both texts have, of those that either has.
fn jaccard(first: &str, second: &str) -> Result<f64> {
    if first.is_empty() || second.is_empty() {
        return exec_err!("jaccard: a text without letters has no similarity");
    }
    let (first, second): (HashSet<char>, HashSet<char>) = (first.chars().collect(), second.chars().collect());
    Ok(first.intersection(&second).count() as f64 / first.union(&second).count() as f64)
}

fn url_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

fn url_decode(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => nibble(*high).zip(nibble(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn digits(
    given: &[ArrayRef],
    of_number: impl Fn(i64) -> String,
    of_byte: impl Fn(u8) -> String,
) -> Result<ArrayRef> {
    let [values] = arguments(given)?;
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|&byte| of_byte(byte)).collect::<String>();
    let spelled: StringViewArray = match values.data_type() {
        DataType::Int64 => as_int64_array(values)?.iter().map(|number| number.map(&of_number)).collect(),
        DataType::Binary => as_binary_array(values)?.iter().map(|bytes| bytes.map(of_bytes)).collect(),
        _ => {
            let texts = as_string_view_array(values)?;
            texts.iter().map(|text| text.map(|text| of_bytes(text.as_bytes()))).collect()
        }
    };
    Ok(Arc::new(spelled))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let fail = || exec_datafusion_err!("'{text}' are not hexadecimal digits");
    let digits = text.bytes().map(|digit| nibble(digit).ok_or_else(fail)).collect::<Result<Vec<u8>>>()?;
    // An odd number of digits begins with half a byte.
    let (first, rest) = digits.split_at(digits.len() % 2);
    let pairs = rest.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit));
    Ok(first.iter().copied().chain(pairs).collect())
}

fn unbin(text: &str) -> Result<Vec<u8>> {
    let digit = |digit: u8| match digit {
        b'0' | b'1' => Ok(digit - b'0'),
        _ => exec_err!("'{text}' are not binary digits"),
    };
    let digits = text.bytes().map(digit).collect::<Result<Vec<u8>>>()?;
    let byte = |digits: &[u8]| digits.iter().fold(0, |byte, digit| byte << 1 | digit);
    let (first, rest) = digits.split_at(digits.len() % 8);
    let first = (!first.is_empty()).then(|| byte(first));
    Ok(first.into_iter().chain(rest.chunks_exact(8).map(byte)).collect())
}

fn to_base(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [numbers, bases] = arguments(given)?;
    let (numbers, bases) = (as_int64_array(numbers)?, as_int64_array(bases)?);
    let lengths = given.get(2).map(|lengths| as_int64_array(lengths)).transpose()?;
    let spelled = numbers.iter().zip(bases.iter()).enumerate().map(|(row, (number, base))| {
        let length = match lengths {
            Some(lengths) if lengths.is_null(row) => return Ok(None),
            Some(lengths) => lengths.value(row),
            None => 0,
        };
        number.zip(base).map(|(number, base)| in_base(number, base, length)).transpose()
    });
    Ok(Arc::new(spelled.collect::<Result<StringViewArray>>()?))
}

fn in_base(number: i64, base: i64, length: i64) -> Result<String> {
    let fail = |what: &str| exec_err!("to_base({number}, {base}): {what}");
    let Ok(mut rest) = u64::try_from(number) else { return fail("the number must not be negative") };
    let radix = match u32::try_from(base) {
        Ok(radix @ 2..=36) => radix,
        _ => return fail("the base must be between 2 and 36"),
    };
    let Ok(length @ 0..=64) = usize::try_from(length) else {
        return fail("at most 64 digits can be asked for");
    };
    let mut digits = Vec::new();
    while rest > 0 || digits.len() < length.max(1) {
        let digit = char::from_digit((rest % u64::from(radix)) as u32, radix).unwrap_or('0');
        digits.push(digit.to_ascii_uppercase());
        rest /= u64::from(radix);
    }
    Ok(digits.into_iter().rev().collect())
}

/// The path of a file, and what is between its parts.
struct Path<'a> {
    text: &'a str,
    separators: &'static [char],
    without_extension: bool,
}

impl<'a> Path<'a> {
    fn parts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let root = self.text.get(..1).filter(|start| start.starts_with(self.separators));
        let separators = self.separators;
        root.into_iter().chain(self.text.split(separators).filter(|part| !part.is_empty()))
    }

    fn first(&self) -> &'a str {
        match self.text.find(self.separators) {
            Some(_) => self.parts().next().unwrap_or_default(),
            None => "",
        }
    }

    fn folder(&self) -> &'a str {
        match self.text.rfind(self.separators) {
            Some(0) => self.text.get(..1).unwrap_or_default(),
            Some(end) => self.text.get(..end).unwrap_or_default(),
            None => "",
        }
    }

    fn file(&self) -> &'a str {
        let name = self.text.rsplit(self.separators).next().unwrap_or_default();
        match name.rsplit_once('.') {
            Some((stem, _)) if self.without_extension => stem,
            _ => name,
        }
    }
}

/// The paths, with what further arguments say: whether the extension is cut off, and the separator's name.
fn paths<'a>(given: &'a [ArrayRef]) -> Result<Vec<Option<Path<'a>>>> {
    let [texts] = arguments(given)?;
    let rest = given.get(1..).unwrap_or_default();
    let paths = as_string_view_array(texts)?.iter().enumerate().map(|(row, text)| {
        let Some(text) = text else { return Ok(None) };
        let mut path = Path { text, separators: &['/', '\\'], without_extension: false };
        for argument in rest {
            if argument.data_type() == &DataType::Boolean {
                let says = as_boolean_array(argument)?;
                path.without_extension = says.is_valid(row) && says.value(row);
            } else {
                let name = as_string_view_array(argument)?;
                path.separators = separators(if name.is_valid(row) { name.value(row) } else { "both_slash" });
            }
        }
        Ok(Some(path))
    });
    paths.collect()
}

fn separators(name: &str) -> &'static [char] {
    match name {
        "system" | "forward_slash" => &['/'],
        "backslash" => &['\\'],
        _ => &['/', '\\'],
    }
}

fn path_parts<'a>(given: &'a [ArrayRef], part: impl Fn(&Path<'a>) -> &'a str) -> Result<ArrayRef> {
    let parts = paths(given)?;
    let parts = parts.iter().map(|path| path.as_ref().map(&part));
    Ok(Arc::new(parts.collect::<StringViewArray>()))
}
