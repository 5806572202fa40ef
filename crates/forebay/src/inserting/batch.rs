//! The rows of one request: consecutive commands, each of which writes one row.

use forebay_engine::TableName;
use forebay_run::operation::Operation;
use forebay_run::record;

use super::resp::push_command;

/// The most bytes of a request, whatever its number of rows, unless a single row is larger.
const MOST_BYTES: usize = 1 << 20;

/// The operation of a row, as reports count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVerb {
    Update,
    Insert,
    Delete,
    Delta,
}

/// A row of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRow {
    pub key: Vec<u8>,
    pub verb: RowVerb,
    /// The bytes of key and value.
    pub bytes: u64,
    /// The end of its command.
    end: usize,
}

/// A batch of rows, encoded as one pipelined request.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// The prefix of keys.
    prefix: Vec<u8>,
    most_rows: usize,
    pub rows: Vec<BatchRow>,
    commands: Vec<u8>,
    /// The current key, with its table.
    wire_key: Vec<u8>,
}

impl RowBatch {
    pub fn new(table: &TableName, most_rows: usize) -> Self {
        Self {
            prefix: format!("{table}:").into_bytes(),
            most_rows,
            rows: Vec::new(),
            commands: Vec::new(),
            wire_key: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.most_rows || self.commands.len() >= MOST_BYTES
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.commands.clear();
    }

    /// Returns the batch, and leaves an empty one of the same kind.
    pub fn take(&mut self) -> Self {
        Self {
            rows: std::mem::take(&mut self.rows),
            commands: std::mem::take(&mut self.commands),
            wire_key: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the bytes of all rows' keys and values.
    pub fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// Returns the command of a row.
    pub fn command(&self, row: usize) -> &[u8] {
        let start = match row {
            0 => 0,
            row => self.rows[row - 1].end,
        };
        &self.commands[start..self.rows[row].end]
    }

    pub fn push(&mut self, key: &[u8], operation: Operation<'_>) {
        self.wire_key.clear();
        self.wire_key.extend_from_slice(&self.prefix);
        self.wire_key.extend_from_slice(key);
        let mut args: [&[u8]; 8] = [b"KV.WRITE", &self.wire_key, b"", b"", b"", b"", b"", b""];
        let (verb, mut count) = match operation.plain() {
            Operation::Update(value) => {
                args[2..4].copy_from_slice(&[b"UPDATE", value]);
                (RowVerb::Update, 4)
            }
            Operation::Insert(value) => {
                args[2..4].copy_from_slice(&[b"INSERT", value]);
                (RowVerb::Insert, 4)
            }
            Operation::Delta(delta) => {
                args[2..4].copy_from_slice(&[b"DELTA", delta]);
                (RowVerb::Delta, 4)
            }
            Operation::InsertDelta { value, delta } => {
                args[2..6].copy_from_slice(&[b"INSERT", value, b"DELTA", delta]);
                (RowVerb::Delta, 6)
            }
            Operation::Delete | Operation::Timed(_) => {
                args[2] = b"DELETE";
                (RowVerb::Delete, 3)
            }
        };
        let expires_ms = operation.times().expires_ms;
        let moment = moment(expires_ms);
        if expires_ms != u64::MAX {
            args[count..count + 2].copy_from_slice(&[b"PXAT", moment.as_bytes()]);
            count += 2;
        }
        push_command(&mut self.commands, &args[..count]);
        let (_, payload) = record::encode(operation);
        self.rows.push(BatchRow {
            key: key.to_vec(),
            verb,
            bytes: (key.len() + payload.len()) as u64,
            end: self.commands.len(),
        });
    }
}

/// Formats a time as a command takes it: after 1970, and within Redis's range of times.
fn moment(expires_ms: u64) -> String {
    expires_ms.clamp(1, i64::MAX as u64).to_string()
}

impl RowVerb {
    /// Returns whether a row that may have been written may be sent again: the key's value is the
    /// same afterwards.
    pub fn is_repeatable(self) -> bool {
        self != RowVerb::Delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inserting::resp::{RespAnswer, parse};
    use forebay_run::times::Times;

    fn words(batch: &RowBatch, row: usize) -> String {
        let parsed = parse(batch.command(row)).unwrap().unwrap();
        assert_eq!(parsed.1, batch.command(row).len());
        let RespAnswer::Array(items) = parsed.0 else {
            panic!("an array");
        };
        let word = |item: &RespAnswer| match item {
            RespAnswer::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?}"),
        };
        items.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_row_is_a_command() {
        let mut batch = RowBatch::new(&TableName::new("t").unwrap(), 3);
        let until = |ms| Times {
            written_ms: 5,
            expires_ms: ms,
        };
        let operations = [
            (Operation::Update(b"v"), "KV.WRITE t:k UPDATE v"),
            (Operation::Insert(b"v"), "KV.WRITE t:k INSERT v"),
            (Operation::Delete, "KV.WRITE t:k DELETE"),
            (Operation::Delta(b"d"), "KV.WRITE t:k DELTA d"),
            (
                Operation::InsertDelta {
                    value: b"v",
                    delta: b"d",
                },
                "KV.WRITE t:k INSERT v DELTA d",
            ),
            (
                Operation::Update(b"v").with_times(until(70)),
                "KV.WRITE t:k UPDATE v PXAT 70",
            ),
            (
                Operation::InsertDelta {
                    value: b"v",
                    delta: b"d",
                }
                .with_times(until(0)),
                "KV.WRITE t:k INSERT v DELTA d PXAT 1",
            ),
            (
                Operation::Delete.with_times(until(7)),
                "KV.WRITE t:k DELETE",
            ),
        ];
        for (operation, _) in operations {
            batch.push(b"k", operation);
        }
        for (row, (operation, text)) in operations.iter().enumerate() {
            assert_eq!(words(&batch, row), *text, "{operation:?}");
        }
        let deltas = batch.rows.iter().filter(|row| !row.verb.is_repeatable());
        assert_eq!(deltas.count(), 3);
        assert!(batch.is_full());
        let taken = batch.take();
        assert!(batch.is_empty() && !batch.is_full() && taken.rows.len() == operations.len());
        batch.push(b"l", Operation::Update(&vec![0; MOST_BYTES]));
        assert!(batch.is_full());
    }
}
