//! Parses texts in the most common forms, without the general rules.
//!
//! The result always equals that of the general rules, and the type is the one they would infer.
//! Texts in other forms are left to the general rules. Text formats have many values in common
//! forms.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Date32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow_schema::DataType;

/// Powers of ten that floats hold exactly.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Returns the values of texts, if all are in their common form.
pub(crate) fn read(texts: &StringArray, data_type: &DataType) -> Option<ArrayRef> {
    match data_type {
        DataType::Int64 => all::<Int64Type>(texts, integer),
        DataType::Float64 => all::<Float64Type>(texts, float),
        DataType::Date32 => all::<Date32Type>(texts, date),
        DataType::Boolean => {
            let truth = |text: &str| match text {
                "true" => Some(Some(true)),
                "false" => Some(Some(false)),
                _ => None,
            };
            let values = texts.iter().map(|text| text.map_or(Some(None), truth));
            let values: Option<Vec<Option<bool>>> = values.collect();
            Some(Arc::new(BooleanArray::from(values?)))
        }
        _ => None,
    }
}

fn all<T: ArrowPrimitiveType>(
    texts: &StringArray,
    value: fn(&[u8]) -> Option<T::Native>,
) -> Option<ArrayRef> {
    let mut values: Vec<T::Native> = Vec::with_capacity(texts.len());
    let bytes = texts.value_data();
    for (row, ends) in texts.value_offsets().windows(2).enumerate() {
        let text = &bytes[ends[0] as usize..ends[1] as usize];
        match value(text) {
            Some(value) => values.push(value),
            None if texts.is_null(row) => values.push(T::Native::default()),
            None => return None,
        }
    }
    let nulls = texts.nulls().cloned();
    Some(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// Reads up to 18 digits without leading zeros as a number; `None` for an empty text.
fn digits(text: &[u8]) -> Option<u64> {
    if text.len() > 18 || text.is_empty() {
        return None;
    }
    let mut value = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Reads `0`, `17`, `-3`.
fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => Some(digits(text)? as i64),
        [b'-', rest @ ..] if matches!(rest, [b'1'..=b'9', ..]) => Some(-(digits(rest)? as i64)),
        _ => None,
    }
}

/// Reads `0.5`, `-17.25`, `3`: up to 15 digits, whose quotient by a power of ten is rounded once.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if rest.len() > 16 {
        return None;
    }
    let point = rest.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    let zeros = whole.len() > 1 && whole[0] == b'0';
    if zeros || whole.len() + fraction.len() > 15 || (point.is_some() && fraction.is_empty()) {
        return None;
    }
    let power = 10_u64.pow(fraction.len() as u32);
    let behind = if fraction.is_empty() {
        0
    } else {
        digits(fraction)?
    };
    let all = digits(whole)? * power + behind;
    // Negative zero has a form of its own.
    if negative && all == 0 {
        return None;
    }
    let value = all as f64 / POWERS[fraction.len()];
    Some(if negative { -value } else { value })
}

/// Reads `2026-11-22`.
fn date(text: &[u8]) -> Option<i32> {
    let [_, _, _, _, b'-', _, _, b'-', _, _] = text else {
        return None;
    };
    let (year, month, day) = (
        digits(&text[..4])?,
        digits(&text[5..7])?,
        digits(&text[8..])?,
    );
    let days = super::calendar::days_of(year as i64, month as i64, day as i64)?;
    i32::try_from(days).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::there_and_back;
    use super::super::{Changes, Converter, Rules};
    use super::*;

    /// Returns the array that the general rules read.
    fn read_by_rules(text: &str, data_type: &DataType) -> ArrayRef {
        // If any text has an uncommon form, this reader refuses all of them.
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(text), Some("+1")]));
        let rules = Rules::default();
        let converter = Converter::new("x", &DataType::Utf8, data_type, &rules).unwrap();
        converter
            .convert(&texts, &mut Changes::default())
            .unwrap()
            .slice(0, 1)
    }

    proptest! {
        #[test]
        fn common_forms_are_read_as_the_rules_do(text in "-?[0-9]{1,17}(\\.[0-9]{1,8})?") {
            let texts = StringArray::from(vec![text.as_str()]);
            for data_type in [DataType::Int64, DataType::Float64] {
                if let Some(quick) = read(&texts, &data_type) {
                    prop_assert_eq!(&quick, &read_by_rules(&text, &data_type), "{}", text);
                }
            }
        }

        #[test]
        fn dates_are_read_back(days in -719_528_i32..2_932_896) {
            let array: ArrayRef = Arc::new(PrimitiveArray::<Date32Type>::from(vec![days]));
            prop_assert_eq!(&there_and_back(&array), &array);
        }
    }

    #[test]
    fn other_forms_are_left_to_the_rules() {
        for text in [
            "",
            "-",
            "007",
            "-0",
            "+1",
            "1e3",
            "1.",
            ".5",
            "1.5.2",
            "00.5",
            "-0.0",
            "1234567890123456789",
            "x",
        ] {
            let texts = StringArray::from(vec![text]);
            assert!(read(&texts, &DataType::Int64).is_none(), "{text}");
            assert!(read(&texts, &DataType::Float64).is_none(), "{text}");
        }
        for text in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-01",
            "2026-11-22T",
            "26-11-2222",
        ] {
            assert!(
                read(&StringArray::from(vec![text]), &DataType::Date32).is_none(),
                "{text}"
            );
        }
        let nulls = StringArray::from(vec![None, Some("5")]);
        assert_eq!(read(&nulls, &DataType::Int64).unwrap().null_count(), 1);
    }
}
