//! Values written into texts: `printf` with `%d`, `format` with `{}`, sizes and bars.
//!
//! Both kinds of placeholders are read into one [`Placeholder`], which writes the value:
//! `{:[fill]<align>[sign][0][width][.precision][type]}` and `%[-+ 0,][width][.precision]type`.

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal256Type};
use datafusion::common::cast::{as_boolean_array, as_float64_array, as_int64_array, as_string_view_array};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err};

use crate::casts::texts_of;
use crate::function::Kind::{Any, Float, Integer, Text};
use crate::function::{Kernel, arguments};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["printf"], &[&[Text, Any]], text, |given, _| formatted(given, printf)).repeating(),
    Kernel::new(&["format"], &[&[Text, Any]], text, |given, _| formatted(given, braces)).repeating(),
    Kernel::new(
        &["format_bytes", "formatreadablesize", "pg_size_pretty"],
        &[&[Integer]],
        text,
        |given, _| sizes(given, 1024, &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]),
    ),
    Kernel::new(&["formatreadabledecimalsize"], &[&[Integer]], text, |given, _| {
        sizes(given, 1000, &["kB", "MB", "GB", "TB", "PB", "EB"])
    }),
    Kernel::new(&["bar"], &[&[Float, Float, Float], &[Float, Float, Float, Float]], text, bars),
];

fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Text(String),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a floating-point number",
            Value::Boolean(_) => "a boolean",
            Value::Text(_) => "a text",
        }
    }
}

/// The arguments after the first one, in few types.
enum Column {
    Integers(ArrayRef),
    Wide(ArrayRef),
    Huge(ArrayRef),
    Floats(ArrayRef),
    Booleans(ArrayRef),
    Texts(ArrayRef),
}

impl Column {
    fn new(values: &ArrayRef) -> Result<Self> {
        let data_type = values.data_type();
        Ok(match data_type {
            DataType::Boolean => Column::Booleans(Arc::clone(values)),
            DataType::UInt64 => Column::Wide(Arc::clone(values)),
            DataType::Decimal256(39, 0) => Column::Huge(Arc::clone(values)),
            _ if data_type.is_integer() => Column::Integers(cast(values, &DataType::Int64)?),
            _ if data_type.is_numeric() => Column::Floats(cast(values, &DataType::Float64)?),
            _ => Column::Texts(Arc::new(texts_of(values)?)),
        })
    }

    fn value(&self, row: usize) -> Result<Option<Value>> {
        let (Column::Integers(values)
        | Column::Wide(values)
        | Column::Huge(values)
        | Column::Floats(values)
        | Column::Booleans(values)
        | Column::Texts(values)) = self;
        if values.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match self {
            Column::Integers(values) => Value::Integer(as_int64_array(values)?.value(row).into()),
            Column::Wide(values) => match ScalarValue::try_from_array(values, row)? {
                ScalarValue::UInt64(Some(value)) => Value::Integer(value.into()),
                other => return exec_err!("{other} is no integer"),
            },
            Column::Huge(values) => {
                let value = values.as_primitive::<Decimal256Type>().value(row);
                value.to_i128().map_or_else(|| Value::Text(value.to_string()), Value::Integer)
            }
            Column::Floats(values) => Value::Float(as_float64_array(values)?.value(row)),
            Column::Booleans(values) => Value::Boolean(as_boolean_array(values)?.value(row)),
            Column::Texts(values) => Value::Text(as_string_view_array(values)?.value(row).to_owned()),
        }))
    }
}

fn formatted(given: &[ArrayRef], write: impl Fn(&str, &[Value]) -> Result<String>) -> Result<ArrayRef> {
    let [formats] = arguments(given)?;
    let columns = given.iter().skip(1).map(Column::new).collect::<Result<Vec<_>>>()?;
    let mut written = StringViewBuilder::with_capacity(formats.len());
    for (row, format) in as_string_view_array(formats)?.iter().enumerate() {
        let values = columns.iter().map(|column| column.value(row)).collect::<Result<Option<Vec<_>>>>()?;
        match format.zip(values) {
            Some((format, values)) => written.append_value(write(format, &values)?),
            None => written.append_null(),
        }
    }
    Ok(Arc::new(written.finish()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
    Center,
}

#[derive(Debug, Clone, PartialEq)]
struct Placeholder {
    fill: char,
    align: Option<Align>,
    /// What stands before numbers that are not negative.
    plus: Option<char>,
    prefix: bool,
    zeros: bool,
    thousands: Option<char>,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Default for Placeholder {
    fn default() -> Self {
        Placeholder {
            fill: ' ',
            align: None,
            plus: None,
            prefix: false,
            zeros: false,
            thousands: None,
            width: 0,
            precision: None,
            kind: None,
        }
    }
}

/// No text is filled to more letters than this.
const MOST_WIDTH: usize = 1 << 20;
/// More digits than any floating-point number has.
const MOST_PRECISION: usize = 1100;

fn number(letters: &mut Peekable<Chars>) -> Result<usize> {
    let mut number = 0_usize;
    while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
        number = number * 10 + digit as usize;
        if number > MOST_WIDTH {
            return exec_err!("a width must not be more than {MOST_WIDTH}");
        }
        letters.next();
    }
    Ok(number)
}

fn precision(letters: &mut Peekable<Chars>) -> Result<Option<usize>> {
    match letters.next_if_eq(&'.') {
        Some(_) => Ok(Some(number(letters)?)),
        None => Ok(None),
    }
}

fn argument(values: &[Value], position: usize) -> Result<&Value> {
    let missing =
        || exec_datafusion_err!("the format asks for argument {}, of {}", position + 1, values.len());
    values.get(position).ok_or_else(missing)
}

fn printf(format: &str, values: &[Value]) -> Result<String> {
    let mut written = String::with_capacity(format.len());
    let mut letters = format.chars().peekable();
    let mut position = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            written.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            written.push('%');
            continue;
        }
        let mut placeholder = Placeholder { align: Some(Align::Right), ..Placeholder::default() };
        while let Some(flag) = letters.next_if(|letter| "-+ #0,_'".contains(*letter)) {
            match flag {
                '-' => placeholder.align = Some(Align::Left),
                '+' => placeholder.plus = Some('+'),
                ' ' => placeholder.plus = placeholder.plus.or(Some(' ')),
                '#' => placeholder.prefix = true,
                '0' => placeholder.zeros = true,
                separator => placeholder.thousands = Some(separator),
            }
        }
        placeholder.width = number(&mut letters)?;
        placeholder.precision = precision(&mut letters)?;
        while letters.next_if(|letter| "hlLqjzt".contains(*letter)).is_some() {}
        let Some(kind) = letters.next() else {
            return exec_err!("the format ends after %; write %% for a %");
        };
        placeholder.kind = Some(if kind == 'i' || kind == 'u' { 'd' } else { kind });
        placeholder.write(argument(values, position)?, &mut written)?;
        position += 1;
    }
    Ok(written)
}

fn braces(format: &str, values: &[Value]) -> Result<String> {
    let mut written = String::with_capacity(format.len());
    let mut letters = format.chars().peekable();
    let (mut position, mut is_counted, mut is_numbered) = (0, false, false);
    while let Some(letter) = letters.next() {
        match letter {
            '{' if letters.next_if_eq(&'{').is_some() => written.push('{'),
            '}' if letters.next_if_eq(&'}').is_some() => written.push('}'),
            '}' => return exec_err!("the format has a }} alone; write }}}} for a }}"),
            '{' => {
                let which = match letters.peek() {
                    Some(digit) if digit.is_ascii_digit() => {
                        is_numbered = true;
                        number(&mut letters)?
                    }
                    _ => {
                        is_counted = true;
                        position += 1;
                        position - 1
                    }
                };
                if is_counted && is_numbered {
                    return exec_err!("the format has both {{}} and {{0}}; write one or the other");
                }
                let placeholder = match letters.next_if_eq(&':') {
                    Some(_) => specified(&mut letters)?,
                    None => Placeholder::default(),
                };
                if letters.next() != Some('}') {
                    return exec_err!("the format has a {{ that is not closed; write {{{{ for a {{");
                }
                placeholder.write(argument(values, which)?, &mut written)?;
            }
            letter => written.push(letter),
        }
    }
    Ok(written)
}

fn specified(letters: &mut Peekable<Chars>) -> Result<Placeholder> {
    let mut placeholder = Placeholder::default();
    let align = |letter: char| match letter {
        '<' => Some(Align::Left),
        '>' => Some(Align::Right),
        '^' => Some(Align::Center),
        _ => None,
    };
    let mut ahead = letters.clone();
    if let (Some(fill), Some(side)) = (ahead.next(), ahead.next().and_then(align)) {
        (placeholder.fill, placeholder.align) = (fill, Some(side));
        letters.nth(1);
    } else if let Some(side) = letters.peek().copied().and_then(align) {
        placeholder.align = Some(side);
        letters.next();
    }
    match letters.next_if(|letter| "+- ".contains(*letter)) {
        Some('-') | None => {}
        sign => placeholder.plus = sign,
    }
    placeholder.prefix = letters.next_if_eq(&'#').is_some();
    placeholder.zeros = letters.next_if_eq(&'0').is_some();
    placeholder.width = number(letters)?;
    placeholder.precision = precision(letters)?;
    placeholder.thousands = match letters.next_if(|letter| ",_'t".contains(*letter)) {
        Some('t') => letters.next(),
        separator => separator,
    };
    placeholder.kind = letters.next_if(|letter| *letter != '}');
    Ok(placeholder)
}

impl Placeholder {
    fn write(&self, value: &Value, written: &mut String) -> Result<()> {
        let refused = || {
            exec_err!(
                "'{}' does not write {}; cast the argument",
                self.kind.unwrap_or_default(),
                value.kind()
            )
        };
        let (is_negative, digits, is_number) = match (value, self.kind) {
            (Value::Boolean(value), None | Some('s')) => (false, value.to_string(), false),
            (Value::Boolean(value), Some('d')) => (false, u8::from(*value).to_string(), true),
            (Value::Text(text), None | Some('s')) => {
                let text = match self.precision {
                    Some(letters) => text.chars().take(letters).collect(),
                    None => text.clone(),
                };
                (false, text, false)
            }
            (Value::Integer(value), None | Some('d' | 'n')) => {
                (*value < 0, value.unsigned_abs().to_string(), true)
            }
            (Value::Integer(value), Some(kind @ ('x' | 'X' | 'o' | 'b' | 'B'))) => {
                let value_abs = value.unsigned_abs();
                let (prefix, digits) = match kind {
                    'x' => ("0x", format!("{value_abs:x}")),
                    'X' => ("0X", format!("{value_abs:X}")),
                    'o' => ("0", format!("{value_abs:o}")),
                    _ => ("0b", format!("{value_abs:b}")),
                };
                (*value < 0, if self.prefix { format!("{prefix}{digits}") } else { digits }, true)
            }
            (Value::Integer(value), Some('c')) => match u32::try_from(*value).ok().and_then(char::from_u32) {
                Some(letter) => (false, letter.to_string(), false),
                None => return exec_err!("{value} is no letter"),
            },
            (Value::Integer(value), Some('e' | 'E' | 'f' | 'F' | 'g' | 'G')) => self.float(*value as f64),
            (Value::Float(value), None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G')) => self.float(*value),
            _ => return refused(),
        };
        let digits = match self.thousands {
            Some(separator) if is_number => in_thousands(&digits, separator),
            _ => digits,
        };
        let sign = match self.plus {
            _ if is_negative => "-",
            Some('+') if is_number => "+",
            Some(_) if is_number => " ",
            _ => "",
        };
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        let fill = |count: usize| std::iter::repeat_n(self.fill, count);
        let align = self.align.unwrap_or(if is_number { Align::Right } else { Align::Left });
        if self.zeros && is_number && align != Align::Left {
            written.push_str(sign);
            written.extend(std::iter::repeat_n('0', missing));
            written.push_str(&digits);
            return Ok(());
        }
        let before = match align {
            Align::Left => 0,
            Align::Right => missing,
            Align::Center => missing / 2,
        };
        written.extend(fill(before));
        written.push_str(sign);
        written.push_str(&digits);
        written.extend(fill(missing - before));
        Ok(())
    }

    fn float(&self, value: f64) -> (bool, String, bool) {
        let magnitude = value.abs();
        let precision = self.precision.unwrap_or(6).min(MOST_PRECISION);
        let digits = match self.kind {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => "inf".to_owned(),
            Some('f' | 'F') => format!("{magnitude:.precision$}"),
            Some('e' | 'E') => exponent(&format!("{magnitude:.precision$e}")),
            Some('g' | 'G') => general(magnitude, precision),
            _ => match self.precision {
                // Zero has no digits that could be left out.
                Some(_) if magnitude == 0.0 => format!("{:.*}", precision.saturating_sub(1), 0.0),
                Some(precision) => general(magnitude, precision.min(MOST_PRECISION)),
                None => shortest(magnitude),
            },
        };
        let digits =
            if self.kind.is_some_and(|kind| kind.is_uppercase()) { digits.to_uppercase() } else { digits };
        (value.is_sign_negative() && !value.is_nan(), digits, value.is_finite())
    }
}

/// Rust's exponent as C writes it: a sign and two digits at least.
fn exponent(digits: &str) -> String {
    let Some((mantissa, power)) = digits.split_once('e') else { return digits.to_owned() };
    match power.strip_prefix('-') {
        Some(power) => format!("{mantissa}e-{power:0>2}"),
        None => format!("{mantissa}e+{power:0>2}"),
    }
}

/// As many digits as tell the number from others; `1.0` for whole numbers.
fn shortest(value: f64) -> String {
    match value {
        0.0 => "0.0".to_owned(),
        1e-4..1e16 => format!("{value:?}"),
        _ => exponent(&format!("{value:e}")),
    }
}

/// As many significant digits, without zeros at the end, and an exponent where that is shorter.
fn general(value: f64, significant: usize) -> String {
    let significant = significant.max(1);
    let scientific = format!("{value:.*e}", significant - 1);
    let Some((mantissa, power)) = scientific.split_once('e') else { return scientific };
    let power: i64 = power.parse().unwrap_or_default();
    let trimmed = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if power < -4 || power >= significant as i64 {
        return exponent(&format!("{}e{power}", trimmed(mantissa)));
    }
    trimmed(&format!("{value:.*}", (significant as i64 - 1 - power).max(0) as usize))
}

fn in_thousands(digits: &str, separator: char) -> String {
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut grouped = String::with_capacity(digits.len() + whole.len() / 3);
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position) % 3 == 0 {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn sizes(given: &[ArrayRef], step: u64, units: &[&str]) -> Result<ArrayRef> {
    let [bytes] = arguments(given)?;
    let written = as_int64_array(bytes)?.iter().map(|bytes| Some(size(bytes?, step, units)));
    Ok(Arc::new(written.collect::<StringViewArray>()))
}

fn size(bytes: i64, step: u64, units: &[&str]) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let magnitude = bytes.unsigned_abs();
    let (mut unit, mut unit_bytes) = (None, 1_u64);
    for larger in units {
        match unit_bytes.checked_mul(step) {
            Some(larger_bytes) if larger_bytes <= magnitude => {
                (unit, unit_bytes) = (Some(larger), larger_bytes)
            }
            _ => break,
        }
    }
    match unit {
        // A digit that the size has reached, not one that it is near to.
        Some(unit) => {
            let tenths = u128::from(magnitude) * 10 / u128::from(unit_bytes);
            format!("{sign}{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None if bytes == 1 => "1 byte".to_owned(),
        None => format!("{sign}{magnitude} bytes"),
    }
}

/// Blocks of eighths, from an empty one to one that lacks an eighth.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

fn bars(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [values, least, most] = arguments(given)?;
    let (values, least, most) =
        (as_float64_array(values)?, as_float64_array(least)?, as_float64_array(most)?);
    let widths = given.get(3).map(|widths| as_float64_array(widths)).transpose()?;
    let mut written = StringViewBuilder::with_capacity(values.len());
    for (row, ((value, least), most)) in values.iter().zip(least.iter()).zip(most.iter()).enumerate() {
        let width = match widths {
            Some(widths) if widths.is_null(row) => None,
            Some(widths) => Some(widths.value(row)),
            None => Some(80.0),
        };
        match (value, least, most, width) {
            (Some(value), Some(least), Some(most), Some(width)) => {
                written.append_value(bar(value, least, most, width)?);
            }
            _ => written.append_null(),
        }
    }
    Ok(Arc::new(written.finish()))
}

fn bar(value: f64, least: f64, most: f64, width: f64) -> Result<String> {
    if !(1.0..=1000.0).contains(&width) {
        return exec_err!("bar: the width must be between 1 and 1000");
    }
    let share = match (value, least, most) {
        _ if value.is_nan() || least.is_nan() || most.is_nan() || value <= least => 0.0,
        _ if value >= most => 1.0,
        _ => (value - least) / (most - least),
    };
    if !share.is_finite() {
        return exec_err!("bar: {value} has no share between {least} and {most}");
    }
    let eighths = (share * width * 8.0) as usize;
    let mut blocks: String = std::iter::repeat_n('█', eighths / 8).collect();
    let mut letters = eighths / 8;
    if let Some(part) = EIGHTHS.get(eighths % 8).filter(|_| !eighths.is_multiple_of(8)) {
        blocks.push(*part);
        letters += 1;
    }
    blocks.extend(std::iter::repeat_n(' ', (width as usize).saturating_sub(letters)));
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_printf() {
        let values = [Value::Integer(42), Value::Text("hello".to_owned()), Value::Float(2.34567)];
        assert_eq!(printf("%d %s %5.2f %%", &values).unwrap(), "42 hello  2.35 %");
        let seven = [Value::Integer(7)];
        assert_eq!(printf("%-5d|", &seven).unwrap(), "7    |");
        assert_eq!(printf("%05d", &seven).unwrap(), "00007");
        assert_eq!(printf("%,d", &[Value::Integer(-1_234_567)]).unwrap(), "-1,234,567");
        assert!(printf("%d %d", &seven).is_err());
        assert!(printf("%d", &[Value::Float(1.5)]).is_err());
        assert!(printf("%", &seven).is_err());
    }

    #[test]
    fn placeholders_in_braces() {
        let values = [Value::Integer(1), Value::Text("a".to_owned())];
        assert_eq!(braces("{} {} {{}}", &values).unwrap(), "1 a {}");
        assert_eq!(braces("{1}{0}{1}", &values).unwrap(), "a1a");
        assert_eq!(braces("{:>5}|{:*^5}|", &values).unwrap(), "    1|**a**|");
        assert_eq!(
            braces("{} {:e}", &[Value::Float(1e20), Value::Float(1.5)]).unwrap(),
            "1e+20 1.500000e+00"
        );
        assert_eq!(braces("{}", &[Value::Float(1.0)]).unwrap(), "1.0");
        assert!(braces("{} {0}", &values).is_err() && braces("{", &values).is_err());
    }

    #[test]
    fn numbers_are_written_generally() {
        assert_eq!(general(0.0001, 6), "0.0001");
        assert_eq!(general(0.00001, 6), "1e-05");
        assert_eq!(general(1_234_567.0, 6), "1.23457e+06");
        assert_eq!(general(100.0, 6), "100");
    }
}
