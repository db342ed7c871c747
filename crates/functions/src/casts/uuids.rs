//! UUIDs, which are texts of one form: 32 hexadecimal digits in five groups.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Decimal256Array, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, exec_err};

use super::huge_integers::HUGE;
use super::{CANNOT_BE_CAST, Failed};
use crate::function::Kind::{Any, Text};
use crate::function::{Kernel, arguments};

/// The functions that statements with casts to `UUID` call.
pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["uuid_of_text"], &[&[Text]], text, |given, _| uuids(given, Failed::IsError)),
    Kernel::new(&["try_uuid_of_text"], &[&[Text]], text, |given, _| uuids(given, Failed::IsNull)),
    Kernel::new(&["uuid_of_uhugeint"], &[&[Any]], text, |given, _| {
        let [numbers] = arguments(given)?;
        let numbers = numbers.as_primitive::<Decimal256Type>().iter();
        let uuids = numbers.map(|number| uuid(&format!("{:032x}", number?.to_parts().0)));
        Ok(Arc::new(uuids.collect::<StringViewArray>()))
    }),
    Kernel::new(
        &["uhugeint_of_uuid"],
        &[&[Text]],
        |_| Ok(HUGE),
        |given, _| {
            let [uuids] = arguments(given)?;
            let number = |uuid: &str| {
                let digits: String = uuid.chars().filter(|&letter| letter != '-').collect();
                Some(i256::from_parts(u128::from_str_radix(&digits, 16).ok()?, 0))
            };
            let numbers = as_string_view_array(uuids)?.iter().map(|uuid| number(uuid?));
            Ok(Arc::new(numbers.collect::<Decimal256Array>().with_precision_and_scale(39, 0)?))
        },
    ),
];

fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

fn uuids(given: &[ArrayRef], failed: Failed) -> Result<ArrayRef> {
    let [texts] = arguments(given)?;
    let texts: &StringViewArray = as_string_view_array(texts)?;
    let mut uuids = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        let uuid = text.map(|text| uuid(text).ok_or(text));
        match uuid {
            Some(Ok(uuid)) => uuids.append_value(uuid),
            Some(Err(text)) if failed == Failed::IsError => {
                return exec_err!("'{text}'{CANNOT_BE_CAST}UUID; write 32 hexadecimal digits");
            }
            Some(Err(_)) | None => uuids.append_null(),
        }
    }
    Ok(Arc::new(uuids.finish()))
}

/// Digits in small letters, whatever hyphens and brackets are written.
fn uuid(text: &str) -> Option<String> {
    const DIGITS: usize = 32;
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut uuid = String::with_capacity(DIGITS + 4);
    let mut digits = 0;
    for letter in bare.chars().filter(|&letter| letter != '-') {
        if !letter.is_ascii_hexdigit() || digits == DIGITS {
            return None;
        }
        if matches!(digits, 8 | 12 | 16 | 20) {
            uuid.push('-');
        }
        uuid.push(letter.to_ascii_lowercase());
        digits += 1;
    }
    (digits == DIGITS).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn uuids_have_one_form() {
        let usual = Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".to_owned());
        for text in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(uuid(text), usual);
        }
        for other in
            ["", "a0eebc99", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111", "g0eebc999c0b4ef8bb6d6bb9bd380a11"]
        {
            assert_eq!(uuid(other), None);
        }
    }
}
