//! Limits equal log lines to one in ten seconds.
//!
//! The first line of a kind is written at once. Equal lines after it are counted. When its ten
//! seconds are over, the last of them is written with their number. A disk that is full for an hour
//! causes six lines a minute for each of its errors, and none is hidden for good.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use serde_json::Value;
use tracing::Level;

use super::record::Record;

/// The time between two equal lines.
const PAUSE: Duration = Duration::from_secs(10);
/// The most kinds whose lines are counted at a time. Lines of further kinds are all written.
const MOST_KINDS: usize = 1000;
/// Fields that distinguish lines that are otherwise equal.
const NAMES: [&str; 8] = [
    "table",
    "group",
    "partition",
    "node",
    "peer",
    "user",
    "version",
    "name",
];

/// The lines that were written last.
#[derive(Debug, Default)]
pub struct LineLimit {
    kinds: HashMap<String, LineCount>,
}

/// The lines of one kind.
#[derive(Debug)]
struct LineCount {
    since: Duration,
    left_out: u64,
    /// The last line that was left out.
    last: Option<Record>,
}

impl LineLimit {
    /// Returns the record, unless an equal one was written shortly before.
    pub fn admit(&mut self, record: Record, now: Duration) -> Option<Record> {
        // Changes of versions are few, and each counts.
        if record.level > Level::INFO || record.fields.contains_key("to") {
            return Some(record);
        }
        let is_full = self.kinds.len() >= MOST_KINDS;
        match self.kinds.entry(kind_of(&record)) {
            Entry::Occupied(mut known) => {
                let counted = known.get_mut();
                counted.left_out += 1;
                counted.last = Some(record);
                None
            }
            Entry::Vacant(_) if is_full => Some(record),
            Entry::Vacant(new) => {
                new.insert(LineCount {
                    since: now,
                    left_out: 0,
                    last: None,
                });
                Some(record)
            }
        }
    }

    /// Returns what was left out of kinds whose time is over: the last record of each, with the
    /// number.
    pub fn sweep(&mut self, now: Duration) -> Vec<Record> {
        let mut repeated = Vec::new();
        self.kinds.retain(|_, counted| {
            if now.saturating_sub(counted.since) < PAUSE {
                return true;
            }
            counted.since = now;
            let count = std::mem::take(&mut counted.left_out);
            let last = counted.last.take();
            let is_left = last.is_some();
            repeated.extend(last.map(|record| record.repeated(count)));
            is_left
        });
        repeated
    }
}

/// Returns the kind of a record. In warnings, numbers and words with digits, such as file names, do
/// not count, except in the fields of [`NAMES`].
fn kind_of(record: &Record) -> String {
    let Record {
        level,
        target,
        message,
        fields,
        ..
    } = record;
    let mut kind = format!("{level} {target} {message}");
    for (name, value) in fields {
        let is_exact = *level == Level::INFO || NAMES.contains(&name.as_str());
        match value {
            _ if is_exact => kind.extend([" ", name, "=", &value.to_string()]),
            Value::String(text) => {
                kind.extend([" ", name, "="]);
                let words = text.split(|end: char| !end.is_ascii_alphanumeric());
                let words =
                    words.filter(|word| !word.contains(|digit: char| digit.is_ascii_digit()));
                words.for_each(|word| kind.extend([word, " "]));
            }
            _ => {}
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warning(table: &str, problem: &str) -> Record {
        let mut record = Record::warning("a flush failed".to_owned(), 0);
        record.fields.insert("table".to_owned(), json!(table));
        record.fields.insert("problem".to_owned(), json!(problem));
        record
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_flood_is_a_line_each_ten_seconds() {
        let mut limit = LineLimit::default();
        let mut written = 0;
        let mut counted = 0;
        for at in 0..60 {
            for file in 0..10 {
                let line = warning("t1", &format!("a{file}bc{at}.run: no space is left"));
                written += usize::from(limit.admit(line, second(at)).is_some());
            }
            for record in limit.sweep(second(at)) {
                written += 1;
                counted += record.fields["repeated"].as_u64().unwrap();
            }
        }
        assert_eq!(written, 1 + 5);
        let rest = limit.sweep(second(60));
        assert_eq!(rest.len(), 1);
        counted += rest[0].fields["repeated"].as_u64().unwrap();
        assert_eq!(counted, 599);
        // Once it has ended, the next line is written at once.
        assert_eq!(limit.sweep(second(71)).len(), 0);
        assert!(
            limit
                .admit(warning("t1", "no space is left"), second(72))
                .is_some()
        );
    }

    #[test]
    fn other_tables_and_other_problems_are_other_lines() {
        let mut limit = LineLimit::default();
        for line in [
            warning("t1", "no space is left"),
            warning("t2", "no space is left"),
            warning("t1", "permission denied"),
        ] {
            assert!(limit.admit(line, second(1)).is_some());
        }
        assert!(
            limit
                .admit(warning("t1", "no space is left"), second(1))
                .is_none()
        );
        let info = |field: &str, number: u64| {
            let mut record = Record::warning("something was done".to_owned(), 0);
            record.level = Level::INFO;
            record.fields.insert(field.to_owned(), json!(number));
            record
        };
        assert!(limit.admit(info("rows", 1), second(1)).is_some());
        assert!(limit.admit(info("rows", 2), second(1)).is_some());
        assert!(limit.admit(info("rows", 2), second(1)).is_none());
        assert!(limit.admit(info("to", 2), second(1)).is_some());
        assert!(limit.admit(info("to", 2), second(1)).is_some());
    }

    #[test]
    fn more_kinds_than_are_counted_are_all_written() {
        let mut limit = LineLimit::default();
        let table = |number: usize| warning(&format!("t{number}"), "no space is left");
        for number in 0..MOST_KINDS + 5 {
            assert!(limit.admit(table(number), second(1)).is_some());
        }
        assert!(limit.admit(table(MOST_KINDS + 1), second(1)).is_some());
        assert!(limit.admit(table(1), second(1)).is_none());
    }
}
