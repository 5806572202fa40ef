//! Converts values of Rust types, and checks them against the kind of a column.

use super::datum::Datum;
use super::schema::Kind;

macro_rules! datum_of {
    ($($from:ty, $value:ident => $to:expr;)*) => {
        $(impl<'a> From<$from> for Datum<'a> {
            fn from($value: $from) -> Self {
                $to
            }
        })*
    };
}

datum_of! {
    bool, value => Datum::Bool(value);
    i32, value => Datum::Int(value.into());
    i64, value => Datum::Int(value);
    u32, value => Datum::UInt(value.into());
    u64, value => Datum::UInt(value);
    f32, value => Datum::Float32(value);
    f64, value => Datum::Float64(value);
    &'a str, text => Datum::Text(text);
    &'a String, text => Datum::Text(text);
    &'a [u8], bytes => Datum::Bytes(bytes);
    &'a Vec<u8>, bytes => Datum::Bytes(bytes);
}

/// `None` is null.
impl<'a, T: Into<Datum<'a>>> From<Option<T>> for Datum<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Datum::Null, Into::into)
    }
}

impl Datum<'_> {
    /// Returns whether it is a value of this kind, with the kind's unit, scale and nested types. It
    /// does not check the range of numbers or the length of fixed-length types. Null is of every
    /// kind.
    pub fn is_of(&self, kind: &Kind) -> bool {
        match (self, kind) {
            (Datum::Null, _) => true,
            (Datum::Bool(_), Kind::Bool)
            | (Datum::Float16(_), Kind::Float16)
            | (Datum::Float32(_), Kind::Float32)
            | (Datum::Float64(_), Kind::Float64)
            | (Datum::Date(_), Kind::Date32)
            | (Datum::Date64(_), Kind::Date64)
            | (Datum::Text(_), Kind::Text)
            | (Datum::Bytes(_), Kind::Binary | Kind::FixedBinary { .. }) => true,
            (Datum::Int(_), kind) => matches!(kind.integer(), Some((true, _))),
            (Datum::UInt(_), kind) => matches!(kind.integer(), Some((false, _))),
            (
                Datum::Decimal { scale, .. },
                Kind::Decimal {
                    scale: own, bits, ..
                },
            ) => scale == own && *bits <= 128,
            (
                Datum::Decimal256 { scale, .. },
                Kind::Decimal {
                    scale: own, bits, ..
                },
            ) => scale == own && *bits == 256,
            (Datum::Time { unit, .. }, Kind::Time { unit: own })
            | (Datum::Duration { unit, .. }, Kind::Duration { unit: own }) => unit == own,
            (Datum::Timestamp { unit, zoned, .. }, Kind::Timestamp { unit: own, zone }) => {
                unit == own && *zoned == zone.is_some()
            }
            (
                Datum::Interval { .. },
                Kind::IntervalMonths | Kind::IntervalDayTime | Kind::IntervalMonthDayNano,
            ) => true,
            (Datum::List(list), Kind::List { item, length }) => {
                let length = length.is_none_or(|length| length as usize == list.len());
                length && list.item_kind() == Some(&item.kind)
            }
            (Datum::Map(list), Kind::Map { entries, .. }) => list.entry_schema() == Some(entries),
            (Datum::Row(row), Kind::Struct { fields }) => row.schema() == fields,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{ListView, TimeUnit};

    #[test]
    fn units_scales_and_items_make_a_kind() {
        let seconds = Datum::Time {
            value: 7,
            unit: TimeUnit::Second,
        };
        let decimal = Datum::Decimal { value: 1, scale: 2 };
        let of_scale = |scale| Kind::Decimal {
            precision: 9,
            scale,
            bits: 64,
        };
        assert!(seconds.is_of(&Kind::Time {
            unit: TimeUnit::Second
        }));
        assert!(!seconds.is_of(&Kind::Time {
            unit: TimeUnit::Millisecond
        }));
        assert!(decimal.is_of(&of_scale(2)) && !decimal.is_of(&of_scale(3)));
        let list = ListView::new(&Kind::Int64, &[]).map(Datum::List);
        let of_items = |item| Kind::List {
            item: Box::new(crate::row::Column::new("item", item, true)),
            length: None,
        };
        let list = list.expect("an empty list");
        assert!(list.is_of(&of_items(Kind::Int64)) && !list.is_of(&of_items(Kind::Text)));
        assert!(Datum::from(7u32).is_of(&Kind::UInt8) && !Datum::from(7i64).is_of(&Kind::UInt8));
        assert!(Datum::from(None::<&str>).is_of(&Kind::Bool));
    }
}
