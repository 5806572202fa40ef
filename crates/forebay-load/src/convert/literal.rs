//! Parses numbers written as text.

use arrow_buffer::i256;
use half::f16;

use super::loss::{Fit, Loss};
use super::number::{MAX_DIGITS, Number, nearest_f16, nearest_half};

/// The significant digits with which every float of a width can be written. A text with at most
/// this many digits is accepted as a float.
const FLOAT64_DIGITS: usize = 17;
const FLOAT32_DIGITS: usize = 9;
const FLOAT16_DIGITS: usize = 5;

/// A number as written: sign, digits, point, exponent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literal<'t> {
    text: &'t str,
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    /// Zero if the text has no exponent; clamped to the limits if it exceeds every type.
    exponent: i32,
    /// Whether the text has neither a point nor an exponent.
    plain: bool,
}

impl<'t> Literal<'t> {
    /// Parses a text; `None` if it is not a number.
    pub fn parse(text: &'t str) -> Option<Literal<'t>> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let power = match exponent {
            None => 0,
            Some(power) => {
                let (below, count) = match power.as_bytes().first()? {
                    b'-' => (true, &power[1..]),
                    b'+' => (false, &power[1..]),
                    _ => (false, power),
                };
                if count.is_empty() || !digits(count) {
                    return None;
                }
                let count: i32 = count.parse().unwrap_or(i32::MAX / 4).min(i32::MAX / 4);
                if below { -count } else { count }
            }
        };
        Some(Literal {
            text,
            negative,
            whole,
            fraction,
            exponent: power,
            plain: exponent.is_none() && mantissa.len() == whole.len(),
        })
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> + '_ {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn is_zero(&self) -> bool {
        self.digits().all(|digit| digit == b'0')
    }

    /// Returns the number of digits between the first and the last that are not zero.
    fn significant(&self) -> usize {
        let all = self.whole.len() + self.fraction.len();
        let leading = self.digits().take_while(|digit| *digit == b'0').count();
        if leading == all {
            return 0;
        }
        let trailing = self
            .digits()
            .rev()
            .take_while(|digit| *digit == b'0')
            .count();
        all - leading - trailing
    }

    /// Returns the exact number; `None` if it has more digits than any type holds.
    pub fn number(&self) -> Option<Number> {
        if self.is_zero() {
            return Some(Number::Whole(0));
        }
        if self.plain && self.whole.len() <= 18 {
            let value: i128 = self.whole.parse().ok()?;
            return Some(Number::Whole(if self.negative { -value } else { value }));
        }
        if self.significant() > MAX_DIGITS as usize {
            return None;
        }
        let all = self.whole.len() + self.fraction.len();
        let trailing = self
            .digits()
            .rev()
            .take_while(|digit| *digit == b'0')
            .count();
        let ten = i256::from_i128(10);
        let mut value = i256::ZERO;
        for digit in self.digits().take(all - trailing) {
            let digit = i256::from_i128(i128::from(digit - b'0'));
            value = value.checked_mul(ten)?.checked_add(digit)?;
        }
        let scale = self.fraction.len() as i64 - trailing as i64 - i64::from(self.exponent);
        Some(Number::Scaled {
            value: if self.negative {
                value.wrapping_neg()
            } else {
                value
            },
            scale: i32::try_from(scale).ok()?,
        })
    }

    pub fn float64(&self, loss: Loss) -> Fit<f64> {
        self.float(loss, FLOAT64_DIGITS, self.text.parse().ok(), |float| float)
    }

    pub fn float32(&self, loss: Loss) -> Fit<f32> {
        self.float(loss, FLOAT32_DIGITS, self.text.parse().ok(), f64::from)
    }

    pub fn float16(&self, loss: Loss) -> Fit<f16> {
        let near: Option<f64> = self.text.parse().ok();
        let nearest = near.map(|near| match self.number() {
            Some(exact) => nearest_half(near, exact),
            None => nearest_f16(near),
        });
        self.float(loss, FLOAT16_DIGITS, nearest, f16::to_f64)
    }

    fn float<F: Copy>(
        &self,
        loss: Loss,
        digits: usize,
        nearest: Option<F>,
        wide: impl Fn(F) -> f64,
    ) -> Fit<F> {
        let Some(nearest) = nearest else {
            return Fit::Misfit;
        };
        let value = wide(nearest);
        if value.is_infinite() {
            return Fit::Misfit;
        }
        let vanished = value == 0.0 && !self.is_zero();
        let short = !self.plain && self.text.len() <= digits || self.significant() <= digits;
        if !vanished && short && !self.plain {
            return Fit::Exact(nearest);
        }
        let exact = || self.number().and_then(Number::digits);
        if !vanished && Number::Float(value).digits() == exact() && exact().is_some() {
            return Fit::Exact(nearest);
        }
        match loss {
            Loss::Round => Fit::Changed(nearest),
            _ => Fit::Misfit,
        }
    }
}

/// Parses NaN and infinities, in upper or lower case.
pub(super) fn non_finite(text: &str) -> Option<f64> {
    let (sign, name) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if name.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let infinite = name.eq_ignore_ascii_case("inf") || name.eq_ignore_ascii_case("infinity");
    infinite.then_some(sign * f64::INFINITY)
}
