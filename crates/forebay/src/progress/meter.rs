//! The progress of a stage, its rate and its remaining time.

use std::time::Duration;

use forebay_load::progress::Unit;
use serde::Serialize;

use crate::printing::human;

/// The progress of a stage at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Reading {
    pub stage: String,
    pub done: u64,
    pub total: Option<u64>,
    pub unit: &'static str,
    pub seconds: f64,
    pub per_second: f64,
    /// The remaining seconds at the present rate, if the total is known.
    pub eta_seconds: Option<f64>,
}

impl Reading {
    /// Returns the progress with `done` of `total` units after `elapsed`.
    pub fn new(stage: &str, done: u64, total: Option<u64>, unit: Unit, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let per_second = if seconds > 0.0 {
            done as f64 / seconds
        } else {
            0.0
        };
        let left = total.map(|total| total.saturating_sub(done));
        let eta_seconds = left
            .filter(|_| per_second > 0.0)
            .map(|left| left as f64 / per_second);
        let unit = unit_name(unit);
        Self {
            stage: stage.to_owned(),
            done,
            total,
            unit,
            seconds,
            per_second,
            eta_seconds,
        }
    }

    /// Returns `reading: 120,000 of 336,776 rows (35%), 60,000 rows/s, 3.61 s left`.
    pub fn line(&self) -> String {
        let done = match self.total {
            Some(total) if total > 0 => format!(
                "{} of {} ({}%)",
                self.amount(self.done),
                self.amount(total),
                (self.done.min(total) as f64 * 100.0 / total as f64) as u64
            ),
            _ => self.amount(self.done),
        };
        let left = self.eta_seconds.filter(|left| *left > 0.0 && *left < 1e9);
        let left =
            left.map(|left| format!(", {} left", human::duration(Duration::from_secs_f64(left))));
        format!(
            "{}: {done}, {}/s{}",
            self.stage,
            self.rate(),
            left.unwrap_or_default()
        )
    }

    /// Returns `reading: 336,776 rows in 5.61 s, 60,031 rows/s`.
    pub fn summary(&self) -> String {
        let time = human::duration(Duration::from_secs_f64(self.seconds));
        format!(
            "{}: {} in {time}, {}/s",
            self.stage,
            self.amount(self.done),
            self.rate()
        )
    }

    fn rate(&self) -> String {
        self.amount(self.per_second as u64)
    }

    fn amount(&self, n: u64) -> String {
        match self.unit {
            "bytes" => human::bytes(n),
            unit => format!("{} {unit}", human::count(n)),
        }
    }
}

/// Returns the unit as it is written.
pub fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Rows => "rows",
        Unit::Bytes => "bytes",
        Unit::Pages => "pages",
        Unit::Partitions => "partitions",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_progress_rate_and_remaining_time() {
        let reading = Reading::new(
            "reading",
            120_000,
            Some(336_776),
            Unit::Rows,
            Duration::from_secs(2),
        );
        assert_eq!(
            reading.line(),
            "reading: 120,000 rows of 336,776 rows (35%), 60,000 rows/s, 3.61 s left"
        );
        assert_eq!(
            reading.summary(),
            "reading: 120,000 rows in 2.00 s, 60,000 rows/s"
        );
    }

    #[test]
    fn no_progress_and_an_unknown_total_are_no_division_by_zero() {
        let reading = Reading::new("sorting", 0, None, Unit::Bytes, Duration::ZERO);
        assert_eq!(reading.line(), "sorting: 0 B, 0 B/s");
        let empty = Reading::new("sorting", 0, Some(0), Unit::Rows, Duration::ZERO);
        assert_eq!(empty.line(), "sorting: 0 rows, 0 rows/s");
    }
}
