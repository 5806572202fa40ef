//! Converts numbers with exact arithmetic over integers, decimals and floats.

use std::cmp::Ordering;

use arrow_buffer::i256;
use forebay_run::row::{Datum, f16_to_f32};
use half::f16;

use super::loss::{Fit, Loss};

/// The number of digits that always fit an `i256`.
pub(super) const MAX_DIGITS: u32 = 76;

/// An exact number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i128),
    /// `value` times 10^-scale.
    Scaled {
        value: i256,
        scale: i32,
    },
    Float(f64),
}

impl Number {
    /// Returns the number of a value; `None` if it is not a number.
    #[inline]
    pub fn of(datum: &Datum<'_>) -> Option<Number> {
        Some(match *datum {
            Datum::Bool(value) => Number::Whole(i128::from(value)),
            Datum::Int(value) => Number::Whole(i128::from(value)),
            Datum::UInt(value) => Number::Whole(i128::from(value)),
            Datum::Float16(bits) => Number::Float(f64::from(f16_to_f32(bits))),
            Datum::Float32(value) => Number::Float(f64::from(value)),
            Datum::Float64(value) => Number::Float(value),
            Datum::Decimal { value, scale } => Number::Scaled {
                value: i256::from_i128(value),
                scale: i32::from(scale),
            },
            Datum::Decimal256 { value, scale } => Number::Scaled {
                value: i256::from_le_bytes(value),
                scale: i32::from(scale),
            },
            _ => return None,
        })
    }

    /// Converts to an integer.
    #[inline]
    pub fn whole(self, loss: Loss) -> Fit<i128> {
        match self {
            Number::Whole(value) => Fit::Exact(value),
            other => other.scaled(0, loss).and_then(i256::to_i128),
        }
    }

    /// Converts to `value` times 10^-scale.
    pub fn scaled(self, scale: i32, loss: Loss) -> Fit<i256> {
        match self {
            Number::Whole(value) => rescaled(i256::from_i128(value), scale, loss),
            Number::Scaled { value, scale: has } => rescaled(value, scale - has, loss),
            Number::Float(value) => float_scaled(value, scale, loss),
        }
    }

    /// Converts to a boolean, from 0 or 1.
    pub fn truth(self) -> Option<bool> {
        match self.whole(Loss::None).exact()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn float64(self, loss: Loss) -> Fit<f64> {
        match self {
            Number::Float(value) => Fit::Exact(value),
            other => other.nearest(loss, |text| text.parse().ok(), |float| float),
        }
    }

    pub fn float32(self, loss: Loss) -> Fit<f32> {
        match self {
            Number::Float(value) => narrowed(value, value as f32, f64::from, loss),
            other => other.nearest(loss, |text| text.parse().ok(), f64::from),
        }
    }

    pub fn float16(self, loss: Loss) -> Fit<f16> {
        match self {
            Number::Float(value) => narrowed(value, nearest_f16(value), f16::to_f64, loss),
            other => {
                let parse = |text: &str| text.parse().ok().map(|near| nearest_half(near, other));
                other.nearest(loss, parse, f16::to_f64)
            }
        }
    }

    /// Returns the nearest float of an integer or decimal; `wide` gives a float's exact value.
    fn nearest<F: Copy>(
        self,
        loss: Loss,
        parse: impl Fn(&str) -> Option<F>,
        wide: impl Fn(F) -> f64,
    ) -> Fit<F> {
        let (value, scale) = match self {
            Number::Whole(value) => (i256::from_i128(value), 0),
            Number::Scaled { value, scale } => (value, scale),
            Number::Float(_) => return Fit::Misfit,
        };
        let Some(nearest) = parse(&format!("{value}e{}", -scale)) else {
            return Fit::Misfit;
        };
        let exact = Number::Float(wide(nearest)).digits();
        if exact.is_some() && exact == stripped(value, scale) {
            return Fit::Exact(nearest);
        }
        match loss {
            Loss::Round if wide(nearest).is_finite() => Fit::Changed(nearest),
            _ => Fit::Misfit,
        }
    }

    /// Returns the decimal digits and their scale, without trailing zeros; `None` if the number has
    /// too many digits, or is not finite.
    pub fn digits(self) -> Option<(i256, i32)> {
        match self {
            Number::Whole(value) => stripped(i256::from_i128(value), 0),
            Number::Scaled { value, scale } => stripped(value, scale),
            Number::Float(value) => {
                let (mantissa, exponent) = float_parts(value)?;
                let mantissa = i256::from_i128(mantissa);
                // m / 2^k is m * 5^k / 10^k.
                match u32::try_from(exponent) {
                    Ok(exponent) => stripped(shifted_left(mantissa, exponent)?, 0),
                    Err(_) if exponent.unsigned_abs() > MAX_DIGITS => None,
                    Err(_) => {
                        let fives = i256::from_i128(5).checked_pow(exponent.unsigned_abs())?;
                        stripped(mantissa.checked_mul(fives)?, -exponent)
                    }
                }
            }
        }
    }
}

/// Converts a float to a narrower one.
fn narrowed<F: Copy>(value: f64, narrow: F, wide: impl Fn(F) -> f64, loss: Loss) -> Fit<F> {
    let back = wide(narrow);
    match loss {
        _ if back == value || value.is_nan() => Fit::Exact(narrow),
        Loss::Round if back.is_finite() => Fit::Changed(narrow),
        _ => Fit::Misfit,
    }
}

/// Returns the nearest half-precision float. The intermediate 32-bit float, as the processor rounds
/// it, records lost bits in its last bit. Nothing is therefore rounded twice.
pub(super) fn nearest_f16(value: f64) -> f16 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || !near.is_finite() {
        return f16::from_f32(near);
    }
    let beyond = u32::from(back.abs() > value.abs());
    f16::from_f32(f32::from_bits((near.to_bits() - beyond) | 1))
}

/// Returns the half-precision float nearest to a number, given the nearest 64-bit float. If that
/// float is midway between two halves, the error of its own rounding decides.
pub(super) fn nearest_half(near: f64, exact: Number) -> f16 {
    let half = nearest_f16(near);
    let Some(other) = other_of_tie(near, half) else {
        return half;
    };
    let (inner, outer) = match near.abs() < width(half) {
        true => (other, half),
        false => (half, other),
    };
    match magnitude_beside(exact, near) {
        Ordering::Less => inner,
        Ordering::Equal => half,
        Ordering::Greater => outer,
    }
}

/// Returns the other half-precision float at the same distance from a number, if there is one.
fn other_of_tie(number: f64, taken: f16) -> Option<f16> {
    let bits = match number.abs() > width(taken) {
        true => taken.to_bits().checked_add(1)?,
        false => taken.to_bits().checked_sub(1)?,
    };
    let other = f16::from_bits(bits);
    (number.abs() * 2.0 == width(taken) + width(other)).then_some(other)
}

/// Returns the distance of a half-precision float from zero; an infinity counts as the next value.
fn width(half: f16) -> f64 {
    match half.is_infinite() {
        true => 65_536.0,
        false => half.to_f64().abs(),
    }
}

/// Returns whether a number is farther from zero than a float that is near to it.
fn magnitude_beside(number: Number, float: f64) -> Ordering {
    let aligned = || {
        let (value, scale) = number.digits()?;
        let (other, other_scale) = Number::Float(float).digits()?;
        let most = scale.max(other_scale);
        let to_most = |value: i256, scale: i32| {
            let power = power_of_ten(u32::try_from(most - scale).ok()?)?;
            Some(value.checked_mul(power)?.wrapping_abs())
        };
        Some((to_most(value, scale)?, to_most(other, other_scale)?))
    };
    aligned().map_or(Ordering::Equal, |(value, other)| value.cmp(&other))
}

/// Returns 10^`digits`, if it fits.
fn power_of_ten(digits: u32) -> Option<i256> {
    match digits {
        0..=MAX_DIGITS => i256::from_i128(10).checked_pow(digits),
        _ => None,
    }
}

/// Returns `value` times 10^`digits`.
fn rescaled(value: i256, digits: i32, loss: Loss) -> Fit<i256> {
    if value == i256::ZERO {
        return Fit::Exact(value);
    }
    let power = power_of_ten(digits.unsigned_abs());
    if digits >= 0 {
        return Fit::of(power.and_then(|power| value.checked_mul(power)));
    }
    match power {
        Some(power) => quotient(value, power, loss),
        // Less than a tenth of the type's smallest unit.
        None => match loss {
            Loss::Round | Loss::Truncate => Fit::Changed(i256::ZERO),
            _ => Fit::Misfit,
        },
    }
}

/// Returns `value / by`; REQUIRES: `by` is above zero.
fn quotient(value: i256, by: i256, loss: Loss) -> Fit<i256> {
    let (Some(whole), Some(rest)) = (value.checked_div(by), value.checked_rem(by)) else {
        return Fit::Misfit;
    };
    if rest == i256::ZERO {
        return Fit::Exact(whole);
    }
    match loss {
        Loss::Truncate => Fit::Changed(whole),
        Loss::Round => {
            let rest = rest.wrapping_abs();
            // rest >= by / 2, without a doubling that could overflow.
            let up = rest >= by.wrapping_sub(rest);
            let away = if value.is_negative() {
                i256::MINUS_ONE
            } else {
                i256::ONE
            };
            Fit::Changed(if up { whole.wrapping_add(away) } else { whole })
        }
        _ => Fit::Misfit,
    }
}

/// Converts a float to `value` times 10^-scale.
fn float_scaled(float: f64, scale: i32, loss: Loss) -> Fit<i256> {
    let Some((mantissa, exponent)) = float_parts(float) else {
        return Fit::Misfit;
    };
    let mantissa = i256::from_i128(mantissa);
    if let Ok(exponent) = u32::try_from(exponent) {
        return match shifted_left(mantissa, exponent) {
            Some(whole) => rescaled(whole, scale, loss),
            None => Fit::Misfit,
        };
    }
    let halvings = exponent.unsigned_abs();
    if scale < 0 {
        // Here halves are integers: the digits after the point only distinguish exact from changed
        // values.
        let down = match loss {
            Loss::Round => Loss::Truncate,
            other => other,
        };
        return halved(mantissa, halvings, down).then(|whole| rescaled(whole, scale, loss));
    }
    match power_of_ten(scale.unsigned_abs()).and_then(|power| mantissa.checked_mul(power)) {
        Some(value) => halved(value, halvings, loss),
        // This many places hold the float's digits exactly, or no number of places does.
        None => match Number::Float(float).digits() {
            Some((value, has)) if has <= scale => rescaled(value, scale - has, loss),
            _ => Fit::Misfit,
        },
    }
}

/// Returns `value / 2^times`.
fn halved(value: i256, times: u32, loss: Loss) -> Fit<i256> {
    if times < 254 {
        return quotient(value, i256::ONE << (times as u8), loss);
    }
    match loss {
        _ if value == i256::ZERO => Fit::Exact(value),
        // |value| is below 2^253, which is half of 2^254.
        Loss::Round | Loss::Truncate => Fit::Changed(i256::ZERO),
        _ => Fit::Misfit,
    }
}

/// Returns an odd mantissa and its power of two; `None` for NaN and infinities.
fn float_parts(value: f64) -> Option<(i128, i32)> {
    if !value.is_finite() {
        return None;
    }
    if value == 0.0 {
        return Some((0, 0));
    }
    let bits = value.to_bits();
    let raw = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = match raw {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, raw - 1075),
    };
    let zeros = mantissa.trailing_zeros();
    let mantissa = i128::from(mantissa >> zeros);
    let signed = if value < 0.0 { -mantissa } else { mantissa };
    Some((signed, exponent + zeros as i32))
}

fn shifted_left(value: i256, by: u32) -> Option<i256> {
    // 53 bits and a sign.
    (value == i256::ZERO || by <= 200).then(|| value << (by.min(200) as u8))
}

/// Removes trailing zeros.
fn stripped(mut value: i256, mut scale: i32) -> Option<(i256, i32)> {
    if value == i256::ZERO {
        return Some((value, 0));
    }
    let ten = i256::from_i128(10);
    while value.checked_rem(ten)? == i256::ZERO {
        value = value.checked_div(ten)?;
        scale -= 1;
    }
    Some((value, scale))
}

#[cfg(test)]
mod tests {
    use super::super::literal::Literal;
    use super::*;

    /// Returns the half-precision float of a decimal, from its number and from its text.
    fn halves(text: &str) -> [Option<f64>; 2] {
        let literal = Literal::parse(text).expect("a number");
        let number = literal.number().expect("of few digits");
        let halves = [number.float16(Loss::Round), literal.float16(Loss::Round)];
        halves.map(|fit| match fit {
            Fit::Exact(half) | Fit::Changed(half) => Some(half.to_f64()),
            Fit::Misfit => None,
        })
    }

    #[test]
    fn a_half_precision_float_is_nearest_to_the_decimal_itself() {
        for (text, wanted) in [
            ("2049", Some(2048.0)),
            ("2049.00000000000000000001", Some(2050.0)),
            ("2048.99999999999999999999", Some(2048.0)),
            ("-2049.00000000000000000001", Some(-2050.0)),
            ("2051", Some(2052.0)),
            ("2050.99999999999999999999", Some(2050.0)),
            ("65519.9999999999999999999", Some(65504.0)),
            ("65520", None),
            (
                "0.000000029802322387695312500000001",
                Some(5.960464477539063e-8),
            ),
            ("0.0000000298023223876953125", Some(0.0)),
        ] {
            assert_eq!(halves(text), [wanted; 2], "{text}");
        }
    }
}
