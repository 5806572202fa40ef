//! Converts dates, times, timestamps and durations between units.

use arrow_schema::TimeUnit;
use forebay_run::row;

use super::loss::{Fit, Loss};

/// The nanoseconds of a day.
pub(super) const DAY_NS: i64 = 86_400_000_000_000;

/// Returns the length of a unit in nanoseconds.
pub(super) fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

pub(super) fn row_unit_ns(unit: row::TimeUnit) -> i64 {
    1_000_000_000 / unit.per_second()
}

/// Counts nanoseconds in units of `unit_ns`.
pub(super) fn counted(nanoseconds: i128, unit_ns: i64, loss: Loss) -> Fit<i128> {
    let unit = i128::from(unit_ns);
    let (past, rest) = (nanoseconds.div_euclid(unit), nanoseconds.rem_euclid(unit));
    match loss {
        _ if rest == 0 => Fit::Exact(past),
        Loss::Truncate => Fit::Changed(past),
        Loss::Round => {
            // Halves away from zero.
            let up = 2 * rest > unit || (2 * rest == unit && nanoseconds > 0);
            Fit::Changed(past + i128::from(up))
        }
        _ => Fit::Misfit,
    }
}
