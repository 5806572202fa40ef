//! The meaning of `+` for the deltas of a table.
//!
//! Deltas of a key are joined into one while the value that they apply to is not known. For most
//! kinds a joined delta looks like any other. Saturating addition is not associative on numbers: at
//! the upper limit, first 5 and then -3 is not the same as 2. But it is on the functions that the
//! deltas stand for. Each is `x` to `clamp(x + d, lo, hi)`, and the composition of two such
//! functions is such a function. With `f(x) = clamp(x + d1, lo1, hi1)` and then `g`, the limits of
//! `g after f` are `g(lo1)` and `g(hi1)`, and its addend is `d1 + d2`, without any rounding. If no
//! single number expresses a joined delta, it is stored as three numbers, see [`ClampedDelta`].

/// The meaning of `+` for a table's deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// 8-byte little-endian integers, added modulo 2^64.
    AddI64,
    /// 8-byte little-endian integers; sums are limited to the least and the greatest i64.
    AddI64Saturating,
    /// 8-byte little-endian floats. Associative except for rounding.
    AddF64,
    /// Bytes joined, older first.
    Append,
    /// 8-byte little-endian integers, the lesser.
    Min,
    /// 8-byte little-endian integers, the greater.
    Max,
}

/// A delta or a value of the wrong shape for the table's [`DeltaKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a value of {bytes} bytes is no operand of {kind:?}, which takes 8 bytes")]
pub struct OperandError {
    kind: DeltaKind,
    bytes: usize,
}

impl OperandError {
    fn new(kind: DeltaKind, operand: &[u8]) -> Self {
        Self {
            kind,
            bytes: operand.len(),
        }
    }
}

impl DeltaKind {
    /// Checks that `operand`, a value or a delta from a writer, has the shape of this kind.
    pub fn check(self, operand: &[u8]) -> Result<(), OperandError> {
        if self == DeltaKind::Append || operand.len() == 8 {
            Ok(())
        } else {
            Err(OperandError::new(self, operand))
        }
    }

    /// Returns `value` with `delta` added, which may be a joined one.
    pub fn add(self, value: &[u8], delta: &[u8]) -> Result<Vec<u8>, OperandError> {
        if self == DeltaKind::Append {
            return Ok([value, delta].concat());
        }
        let a = self.word(value)?;
        if self == DeltaKind::AddI64Saturating {
            let sum = self.clamped(delta)?.of(a);
            return Ok(sum.to_le_bytes().to_vec());
        }
        let b = self.word(delta)?;
        let sum = match self {
            DeltaKind::AddF64 => {
                let sum = f64::from_bits(a as u64) + f64::from_bits(b as u64);
                sum.to_bits() as i64
            }
            DeltaKind::Min => a.min(b),
            DeltaKind::Max => a.max(b),
            DeltaKind::AddI64 | DeltaKind::AddI64Saturating | DeltaKind::Append => {
                a.wrapping_add(b)
            }
        };
        Ok(sum.to_le_bytes().to_vec())
    }

    /// Does [`DeltaKind::add`] in place. An error changes nothing.
    pub fn add_to(self, value: &mut Vec<u8>, delta: &[u8]) -> Result<(), OperandError> {
        match self {
            DeltaKind::Append => value.extend_from_slice(delta),
            _ => *value = self.add(value, delta)?,
        }
        Ok(())
    }

    /// Returns the delta that does `older` and then `newer`.
    pub fn join(self, older: &[u8], newer: &[u8]) -> Result<Vec<u8>, OperandError> {
        if self != DeltaKind::AddI64Saturating {
            return self.add(older, newer);
        }
        let (older, newer) = (self.clamped(older)?, self.clamped(newer)?);
        Ok(newer.after(older).encode())
    }

    /// Returns the value of a key that was absent before `delta`.
    pub fn value_of(self, delta: &[u8]) -> Result<Vec<u8>, OperandError> {
        match self {
            DeltaKind::AddI64Saturating => self.add(&[0; 8], delta),
            _ => Ok(delta.to_vec()),
        }
    }

    /// Returns whether a key that was absent before `delta` has exactly these bytes afterwards.
    pub(crate) fn is_value(self, delta: &[u8]) -> bool {
        self != DeltaKind::AddI64Saturating || delta.len() == 8
    }

    fn word(self, operand: &[u8]) -> Result<i64, OperandError> {
        let bytes = operand.try_into();
        bytes
            .map(i64::from_le_bytes)
            .map_err(|_| OperandError::new(self, operand))
    }

    fn clamped(self, delta: &[u8]) -> Result<ClampedDelta, OperandError> {
        ClampedDelta::decode(delta).ok_or_else(|| OperandError::new(self, delta))
    }
}

/// The function from `x` to `clamp(x + d, low, high)` on all i64, in its canonical form. `low` and
/// `high` are its least and greatest results. `from` is the greatest `x` with the result `low`, or
/// the least i64 if all results are `low`. So `d` is `low - from`, which need not fit an i64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClampedDelta {
    from: i64,
    low: i64,
    high: i64,
}

impl ClampedDelta {
    fn adding(delta: i64) -> Self {
        let low = i64::MIN.saturating_add(delta);
        Self::new(i128::from(delta), low, i64::MAX.saturating_add(delta))
    }

    /// REQUIRES: `low` and `high` are the results for the least and the greatest i64.
    fn new(addend: i128, low: i64, high: i64) -> Self {
        let from = match i64::try_from(i128::from(low) - addend) {
            Ok(from) if low < high => from,
            _ => i64::MIN,
        };
        Self { from, low, high }
    }

    fn addend(self) -> i128 {
        i128::from(self.low) - i128::from(self.from)
    }

    fn of(self, x: i64) -> i64 {
        let sum = i128::from(x) + self.addend();
        let clamped = sum.clamp(i128::from(self.low), i128::from(self.high));
        // A value between two i64 fits an i64.
        i64::try_from(clamped).unwrap_or(self.low)
    }

    fn after(self, older: Self) -> Self {
        let (low, high) = (self.of(older.low), self.of(older.high));
        Self::new(older.addend() + self.addend(), low, high)
    }

    /// Returns one number if that is enough, else `from`, `low`, `high`.
    fn encode(self) -> Vec<u8> {
        if let Ok(delta) = i64::try_from(self.addend())
            && Self::adding(delta) == self
        {
            return delta.to_le_bytes().to_vec();
        }
        let words = [self.from, self.low, self.high];
        words.into_iter().flat_map(i64::to_le_bytes).collect()
    }

    fn decode(delta: &[u8]) -> Option<Self> {
        let (words, rest) = delta.as_chunks::<8>();
        match *words {
            _ if !rest.is_empty() => None,
            [delta] => Some(Self::adding(i64::from_le_bytes(delta))),
            [from, low, high] => {
                let [from, low, high] = [from, low, high].map(i64::from_le_bytes);
                (low <= high).then_some(Self { from, low, high })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of all sizes, often near the limits.
    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            -20i64..20,
            (0i64..20).prop_map(|n| i64::MAX - n),
            (0i64..20).prop_map(|n| i64::MIN + n),
        ]
    }

    fn joined(deltas: &[i64]) -> ClampedDelta {
        let functions = deltas.iter().map(|delta| ClampedDelta::adding(*delta));
        functions
            .reduce(|older, newer| newer.after(older))
            .unwrap_or(ClampedDelta::adding(0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn a_joined_delta_equals_its_parts_applied_in_turn(
            deltas in prop::collection::vec(number(), 1..8),
            x in number(),
        ) {
            let stepwise = deltas.iter().fold(x, |sum, delta| sum.saturating_add(*delta));
            let function = joined(&deltas);
            prop_assert_eq!(function.of(x), stepwise);
            prop_assert_eq!(ClampedDelta::decode(&function.encode()), Some(function));
        }

        /// Each function has one form, so joining is associative to the bit.
        #[test]
        fn the_grouping_of_parts_makes_no_difference(
            deltas in prop::collection::vec(number(), 2..8),
            cut in 0usize..8,
        ) {
            let (older, newer) = deltas.split_at(cut % deltas.len());
            prop_assert_eq!(joined(newer).after(joined(older)), joined(&deltas));
        }

        #[test]
        fn any_bytes_are_a_function_or_refused(
            delta in prop::collection::vec(any::<u8>(), 0..40),
            x in number(),
        ) {
            if let Some(function) = ClampedDelta::decode(&delta) {
                let result = function.of(x);
                prop_assert!((function.low..=function.high).contains(&result));
                function.after(function).of(x);
            }
        }
    }

    #[test]
    fn deltas_of_one_sign_stay_one_number() {
        let kind = DeltaKind::AddI64Saturating;
        let word = |n: i64| n.to_le_bytes().to_vec();
        assert_eq!(kind.join(&word(5), &word(3)).unwrap(), word(8));
        assert_eq!(kind.join(&word(-5), &word(-3)).unwrap(), word(-8));
        let joined = kind.join(&word(5), &word(-3)).unwrap();
        assert_eq!(joined.len(), 24);
        assert_eq!(kind.value_of(&joined).unwrap(), word(2));
        assert_eq!(
            kind.add(&word(i64::MAX), &joined).unwrap(),
            word(i64::MAX - 3)
        );
        assert!(
            kind.check(&joined).is_err(),
            "a writer gives plain numbers only"
        );
    }
}
