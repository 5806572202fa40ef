//! Parses texts of clients as floats, and refuses those that would be stored as another number.
//!
//! The rule is that of docs/reference/conversions.md for text.

use crate::command::{Answer, CommandError, shown};

/// The significant digits that are enough to write every float of a width, and up to which a text
/// may be rounded to one.
pub const FLOAT64_DIGITS: usize = 17;
pub const FLOAT32_DIGITS: usize = 9;

/// Returns whether `value`, the nearest float to the text, is stored as the number that the text
/// says. It is if the text has no more than `digits` digits, or equals the float exactly. Integers
/// must be exact.
fn holds(text: &str, digits: usize, value: f64) -> bool {
    let Some(written) = decimal(text) else {
        // The names of infinities and NaN.
        return !value.is_finite();
    };
    if !value.is_finite() || value == 0.0 {
        return value == 0.0 && written.0.is_empty();
    }
    let is_integer = |byte: u8| byte.is_ascii_digit() || byte == b'-' || byte == b'+';
    let is_short = written.0.len() <= digits && !text.bytes().all(is_integer);
    // No float has more decimals.
    is_short || decimal(&format!("{value:.1074}")) == Some(written)
}

/// Refuses a number that a float with this many digits would store as another one. `whose` names
/// the float in the error.
pub fn check_float(text: &[u8], value: Option<f64>, digits: usize, whose: &str) -> Answer {
    let as_text = std::str::from_utf8(text).unwrap_or_default();
    if value.is_none_or(|value| holds(as_text, digits, value)) {
        return Ok(());
    }
    let (text, bits) = (shown(text), if digits == FLOAT32_DIGITS { 32 } else { 64 });
    Err(CommandError::error(format!(
        "ERR '{text}' is no float{bits}{whose}, which would hold another number: numbers with a \
         point have at most {digits} digits, all others are exact"
    )))
}

/// Returns the digits of a number between the first and the last that are not zero, and the power
/// of ten of the last one. `None` if it is not written in digits.
fn decimal(text: &str) -> Option<(String, i64)> {
    let unsigned = text.trim_start_matches(['-', '+']);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        // An exponent that is too long for a number is beyond any float as well.
        Some((mantissa, exponent)) => (mantissa, exponent.parse().unwrap_or(i32::MAX)),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = all.trim_end_matches('0');
    let power = i64::from(exponent) - fraction.len() as i64 + (all.len() - kept.len()) as i64;
    Some((kept.trim_start_matches('0').to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_float_cannot_hold_exactly_is_refused() {
        let single = |text: &str| {
            let value: f32 = text.parse().expect("a float");
            holds(text, FLOAT32_DIGITS, f64::from(value))
        };
        let double = |text: &str| holds(text, FLOAT64_DIGITS, text.parse().expect("a float"));
        for text in ["0.1", "-7", "16777216", "1e3", "0", "-0.0", "NaN", "inf"] {
            assert!(single(text) && double(text), "{text}");
        }
        for text in [
            "0.1234567891",
            "16777217",
            "1e39",
            "1e-60",
            "3.00000000000001",
        ] {
            assert!(!single(text), "{text}");
        }
        for text in ["16777217", "0.30000000000000004", "1e300", "4.9e-324"] {
            assert!(double(text), "{text}");
        }
        // It has all of the float's decimals: it is exact.
        let exact = "0.1000000000000000055511151231257827021181583404541015625";
        assert!(double(exact) && double("9007199254740992"));
        for text in [
            "0.100000000000000001",
            "9007199254740993",
            "1e309",
            "1e-400",
            "1e99999999999",
            "1e-99999999999",
        ] {
            assert!(!double(text), "{text}");
        }
    }
}
