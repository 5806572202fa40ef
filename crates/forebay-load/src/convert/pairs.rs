//! Defines which types that are not nested convert to which others.

use arrow_schema::DataType;
use forebay_run::row::Kind;

use super::loss::Loss;

/// The kind of a type's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Number,
    Bool,
    Date,
    Time,
    Timestamp { zoned: bool },
    Duration,
    Interval,
    Text,
    Binary,
    Other,
}

fn family(kind: &Kind) -> Family {
    match kind {
        kind if kind.is_number() => Family::Number,
        Kind::Bool => Family::Bool,
        Kind::Date32 | Kind::Date64 => Family::Date,
        Kind::Time { .. } => Family::Time,
        Kind::Timestamp { zone, .. } => Family::Timestamp {
            zoned: zone.is_some(),
        },
        Kind::Duration { .. } => Family::Duration,
        Kind::IntervalMonths | Kind::IntervalDayTime | Kind::IntervalMonthDayNano => {
            Family::Interval
        }
        Kind::Text => Family::Text,
        Kind::Binary | Kind::FixedBinary { .. } => Family::Binary,
        _ => Family::Other,
    }
}

/// Returns whether some values of one kind are values of the other, with what `loss` allows.
pub(super) fn converts(from: &Kind, to: &Kind, loss: Loss) -> bool {
    use Family::{Binary, Bool, Date, Duration, Interval, Number, Other, Text, Time, Timestamp};
    let naive = Timestamp { zoned: false };
    match (family(from), family(to)) {
        (Other, _) | (_, Other) => false,
        (Text, _) | (_, Text) => true,
        (Number | Bool, Number | Bool) | (Binary, Binary) => true,
        (Time, Time) | (Duration, Duration) | (Interval, Interval) => true,
        (Date, Date) => true,
        (Timestamp { zoned: a }, Timestamp { zoned: b }) => a == b || loss == Loss::Utc,
        (Date, moment @ Timestamp { .. }) | (moment @ Timestamp { .. }, Date) => {
            moment == naive || loss == Loss::Utc
        }
        _ => false,
    }
}

/// Returns whether the types differ only in the layout of their values.
pub(super) fn same_but_for_layout(from: &DataType, to: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Timestamp, Utf8, Utf8View};
    match (from, to) {
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => true,
        // The moment is the same in every zone.
        (Timestamp(unit, Some(_)), Timestamp(other, Some(_))) => unit == other,
        _ => false,
    }
}

/// Returns why two similar types do not convert.
pub(super) fn hint(from: &DataType, to: &DataType) -> Option<&'static str> {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    let time = |data_type: &DataType| {
        matches!(
            data_type,
            Timestamp(..) | Date32 | Date64 | Duration(_) | Time32(_) | Time64(_)
        )
    };
    match (from, to) {
        (Timestamp(_, None) | Date32 | Date64, Timestamp(_, Some(_))) => {
            Some("a time without a zone is no moment; TYPE:utc takes it for UTC")
        }
        (Timestamp(_, Some(_)), Timestamp(_, None) | Date32 | Date64) => {
            Some("the zone would be lost; TYPE:utc writes the time in UTC")
        }
        (from, to) if from.is_numeric() && time(to) || time(from) && to.is_numeric() => {
            Some("numbers do not say what they count")
        }
        _ => None,
    }
}
