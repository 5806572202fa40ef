//! Writes to live tables.

use forebay_engine::live::{Batch, Commit, LiveError, LiveTable};
use forebay_run::operation::Operation;
use forebay_run::times::Times;
use pyo3::prelude::*;

use crate::errors::usage;
use crate::pack::{delta_of, value_of};
use crate::shape::Shape;

/// The operation of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Put,
    Insert,
    Delta,
    Delete,
}

impl Verb {
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "put" => Verb::Put,
            "insert" => Verb::Insert,
            "delta" => Verb::Delta,
            "delete" => Verb::Delete,
            _ => return None,
        })
    }
}

/// Returns the bytes of the operand.
pub fn operand(
    shape: &Shape,
    table: &LiveTable,
    verb: Verb,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<u8>> {
    match (verb, value) {
        (Verb::Delete, _) => Ok(Vec::new()),
        (Verb::Delta, Some(delta)) => delta_of(shape, table.options().delta, delta),
        (_, Some(value)) => value_of(shape, value),
        (_, None) => Err(Python::attach(|py| usage(py, "a write needs a value"))),
    }
}

/// A requested write.
#[derive(Debug)]
pub struct Write {
    pub verb: Verb,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// When it expires, if the caller says so.
    pub expires_ms: Option<u64>,
}

impl Write {
    fn operation(&self) -> Operation<'_> {
        let operation = match self.verb {
            Verb::Put => Operation::Update(&self.value),
            Verb::Insert => Operation::Insert(&self.value),
            Verb::Delta => Operation::Delta(&self.value),
            Verb::Delete => Operation::Delete,
        };
        match self.expires_ms {
            Some(moment_ms) => operation.with_times(Times::until(moment_ms)),
            None => operation,
        }
    }
}

fn begin<'a>(table: &'a LiveTable, write: &Write) -> Result<Commit<'a>, LiveError> {
    let (key, value) = (&write.key, &write.value);
    match write.verb {
        _ if write.expires_ms.is_some() => {
            let mut batch = Batch::new();
            batch.push(key, write.operation());
            table.write(&batch)
        }
        Verb::Put => table.update(key, value),
        Verb::Insert => table.insert(key, value),
        Verb::Delta => table.delta(key, value),
        Verb::Delete => table.delete(key),
    }
}

/// Writes, and waits until the write is as durable as the table promises.
pub fn write(table: &LiveTable, write: &Write) -> Result<(), LiveError> {
    begin(table, write)?.wait()
}

/// Does several writes; returns how many. If the last one is durable, all are.
pub fn write_many(table: &LiveTable, writes: &[Write], atomic: bool) -> Result<u64, LiveError> {
    if atomic {
        let mut batch = Batch::new();
        for write in writes {
            batch.push(&write.key, write.operation());
        }
        table.write(&batch)?.wait()?;
        return Ok(writes.len() as u64);
    }
    let mut last: Option<Commit<'_>> = None;
    for write in writes {
        last = Some(begin(table, write)?);
    }
    last.map_or(Ok(()), Commit::wait)?;
    Ok(writes.len() as u64)
}
