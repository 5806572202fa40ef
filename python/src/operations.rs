//! Writes to live tables.

use forebay_engine::live::{Batch, Commit, LiveError, LiveTable};
use pyo3::prelude::*;

use crate::errors::usage;
use crate::pack::{delta_of, value_of};
use crate::shape::Shape;

/// What a write does.
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

/// The bytes of what is written.
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

fn begin<'a>(
    table: &'a LiveTable,
    verb: Verb,
    key: &[u8],
    value: &[u8],
) -> Result<Commit<'a>, LiveError> {
    match verb {
        Verb::Put => table.update(key, value),
        Verb::Insert => table.insert(key, value),
        Verb::Delta => table.delta(key, value),
        Verb::Delete => table.delete(key),
    }
}

/// Writes, and waits until that is as durable as the table promises.
pub fn write(table: &LiveTable, verb: Verb, key: &[u8], value: &[u8]) -> Result<(), LiveError> {
    begin(table, verb, key, value)?.wait()
}

/// Several writes; gives how many. The last one's being durable says that all are.
pub fn write_many(
    table: &LiveTable,
    writes: &[(Verb, Vec<u8>, Vec<u8>)],
    atomic: bool,
) -> Result<u64, LiveError> {
    if atomic {
        let mut batch = Batch::new();
        for (verb, key, value) in writes {
            match verb {
                Verb::Put => batch.update(key, value),
                Verb::Insert => batch.insert(key, value),
                Verb::Delta => batch.delta(key, value),
                Verb::Delete => batch.delete(key),
            }
        }
        table.write(&batch)?.wait()?;
        return Ok(writes.len() as u64);
    }
    let mut last: Option<Commit<'_>> = None;
    for (verb, key, value) in writes {
        last = Some(begin(table, *verb, key, value)?);
    }
    last.map_or(Ok(()), Commit::wait)?;
    Ok(writes.len() as u64)
}
