//! Checks whether a type holds a written number without loss.

/// The most digits that a float64 reproduces as written.
const FLOAT_DIGITS: usize = 17;

/// The parts of a number in JSON's grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) struct Parts<'t> {
    text: &'t str,
    whole: &'t str,
    fraction: Option<&'t str>,
    exponent: bool,
}

impl<'t> Parts<'t> {
    /// Parses a text; `None` if it is not a JSON number: `1.`, `.5`, `+5`, `007`.
    pub fn of(text: &'t str) -> Option<Parts<'t>> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (digits, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let unsigned = |text: &'t str| text.strip_prefix(['+', '-']).unwrap_or(text);
        let well = all_digits(whole)
            && (whole.len() == 1 || !whole.starts_with('0'))
            && fraction.is_none_or(all_digits)
            && exponent.map(unsigned).is_none_or(all_digits);
        well.then_some(Parts {
            text,
            whole,
            fraction,
            exponent: exponent.is_some(),
        })
    }

    /// Returns whether it has neither a point nor an exponent.
    pub fn is_whole(&self) -> bool {
        self.fraction.is_none() && !self.exponent
    }

    /// Returns whether a float64 reproduces the number as written: it has few enough digits and a
    /// magnitude within the range of floats.
    pub fn is_exact_float(&self) -> bool {
        let digits = self
            .whole
            .bytes()
            .chain(self.fraction.unwrap_or("").bytes());
        let significant = digits.skip_while(|b| *b == b'0').count();
        let in_range = || match self.text.parse::<f64>() {
            Ok(float) => float.is_finite() && (float != 0.0 || significant == 0),
            Err(_) => false,
        };
        significant <= FLOAT_DIGITS && (!self.exponent || in_range())
    }
}

/// Returns whether a float64 holds the integer exactly.
pub(in crate::sources) fn is_float(number: i128) -> bool {
    let beyond = number.unsigned_abs() >> number.trailing_zeros().min(127);
    number == 0 || beyond < 1 << 53
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_apart() {
        for text in ["1.", ".5", "+5", "007", "1e", "-", "1.2.3", "1-2", "1e5.0"] {
            assert_eq!(Parts::of(text), None, "{text}");
        }
        for text in [
            "0",
            "-0.5",
            "1e400",
            "1E+5",
            "0.1",
            "12345678901234567890123",
        ] {
            assert!(Parts::of(text).is_some(), "{text}");
        }
        let exact = |text| Parts::of(text).is_some_and(|parts| parts.is_exact_float());
        assert!(exact("0.1") && exact("1e300") && exact("0e999") && exact("-1.5"));
        assert!(!exact("1e400") && !exact("1e-400") && !exact("0.123456789012345678"));
    }

    #[test]
    fn integers_that_floats_round() {
        for (number, float) in [
            (0, true),
            (1 << 53, true),
            ((1 << 53) + 1, false),
            (-(1 << 53) - 1, false),
            (1 << 60, true),
            (i128::from(i64::MIN), true),
            (i128::from(i64::MAX), false),
        ] {
            assert_eq!(is_float(number), float, "{number}");
        }
    }
}
