//! Numbers as bytes that are in the order of the numbers: a sign, how many digits stand before the point, two digits in each
//! byte, an end. All but the sign are turned around for negative numbers. Zeros at the end are left out.

use datafusion::common::Result;

use super::decoding::{Bytes, damaged};

const NEGATIVE: u8 = 0;
const ZERO: u8 = 1;
const POSITIVE: u8 = 2;
/// Added to the number of digits before the point.
const MIDDLE: i32 = 128;
const END: u8 = 0;
/// More than a decimal of 256 bits has.
const MOST_DIGITS: i32 = 80;

/// Writes the number that these digits are, of which some stand behind the point.
pub(super) fn write(number: &str, scale: i8, out: &mut Vec<u8>) {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (NEGATIVE, digits),
        None => (POSITIVE, number),
    };
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        out.push(ZERO);
        return;
    }
    out.push(sign);
    let before_point = digits.len() as i32 - i32::from(scale) + MIDDLE;
    let turned = turn(sign);
    out.push(before_point as u8 ^ turned);
    for pair in significant.as_bytes().chunks(2) {
        let two = match pair {
            [tens, ones] => (tens - b'0') * 10 + ones - b'0',
            [tens, ..] => (tens - b'0') * 10,
            [] => unreachable!("chunks are not empty"),
        };
        out.push((two + 1) ^ turned);
    }
    out.push(END ^ turned);
}

fn turn(sign: u8) -> u8 {
    if sign == NEGATIVE { u8::MAX } else { 0 }
}

/// Reads a number as digits, of which so many stand behind the point.
pub(super) fn read(bytes: &mut Bytes<'_>, scale: i8) -> Result<String> {
    let sign = bytes.byte()?;
    if sign == ZERO {
        return Ok("0".to_owned());
    }
    let turned = turn(sign);
    let length = i32::from(bytes.byte()? ^ turned) - MIDDLE + i32::from(scale);
    let mut digits = String::new();
    if sign == NEGATIVE {
        digits.push('-');
    }
    loop {
        match bytes.byte()? ^ turned {
            END => break,
            two @ 1..=100 => digits.extend([b'0' + (two - 1) / 10, b'0' + (two - 1) % 10].map(char::from)),
            _ => return Err(damaged()),
        }
    }
    if !(1..=MOST_DIGITS).contains(&length) {
        return Err(damaged());
    }
    let length = length as usize + usize::from(sign == NEGATIVE);
    let kept = digits.trim_end_matches('0').len();
    if kept > length {
        return Err(damaged());
    }
    digits.truncate(kept);
    digits.extend(std::iter::repeat_n('0', length - kept));
    Ok(digits)
}

/// Passes over a number.
pub(super) fn skip(bytes: &mut Bytes<'_>) -> Result<()> {
    let sign = bytes.byte()?;
    if sign == ZERO {
        return Ok(());
    }
    bytes.byte()?;
    while bytes.byte()? != END ^ turn(sign) {}
    Ok(())
}
