//! Handles rows that cannot be stored: refuses, counts, or writes them to a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use forebay_io::{Disk, WriteFile};
use serde::Serialize;
use serde_json::json;

use super::PushError;
use crate::near;
use crate::sources::{Origin, Place, Reject, row_as_json};

/// The treatment of bad rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BadRows {
    /// The first one ends the push.
    #[default]
    Fail,
    /// Bad rows are left out and counted.
    Skip,
    /// Bad rows are left out, counted and written to this file, which must not exist yet.
    File(PathBuf),
}

/// Runs `work`. If it fails and the file of bad rows that it created is empty, this removes the
/// file. Another attempt can then use the name.
pub(crate) fn without_empty_file<R, E>(
    policy: &BadRows,
    disk: &dyn Disk,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let path = match policy {
        BadRows::File(path) if !disk.exists(path).unwrap_or(true) => path,
        _ => return work(),
    };
    work().inspect_err(|_| {
        if disk.open(path).is_ok_and(|file| file.len_bytes() == 0) {
            // A failed removal matters less than the error.
            _ = disk.remove(path);
        }
    })
}

/// A bad row as shown in messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotedRow {
    pub file: String,
    /// `line 7`, `row 7`.
    pub place: String,
    pub reason: String,
    /// Advice about it, before the option to leave such rows out.
    #[serde(skip)]
    pub advice: String,
}

/// The error of a push that accepts no bad rows.
impl From<NotedRow> for PushError {
    fn from(row: NotedRow) -> Self {
        let NotedRow {
            file,
            place,
            reason,
            advice,
        } = row;
        PushError::BadRow {
            file,
            place,
            reason,
            advice,
        }
    }
}

/// A receiver of the bad rows of all threads.
#[derive(Debug)]
pub struct Rejects {
    policy: BadRows,
    count: AtomicU64,
    file: Option<Mutex<Box<dyn WriteFile>>>,
    /// The bad rows kept for messages, up to a limit.
    noted: Mutex<Vec<NotedRow>>,
    most_noted: usize,
}

impl Rejects {
    pub fn new(policy: &BadRows, disk: &dyn Disk) -> Result<Self, PushError> {
        let file = match policy {
            BadRows::File(path) => {
                let file = disk.create(path).map_err(|error| failed(path, error))?;
                Some(Mutex::new(file))
            }
            BadRows::Fail | BadRows::Skip => None,
        };
        Ok(Self {
            file,
            ..Self::of(policy.clone(), 0)
        })
    }

    /// Creates a receiver that counts bad rows, or fails at the first one.
    pub fn counted(fail: bool) -> Self {
        Self::of(if fail { BadRows::Fail } else { BadRows::Skip }, 0)
    }

    /// Creates a receiver that counts bad rows and keeps some of the first.
    pub fn noting(most_noted: usize) -> Self {
        Self::of(BadRows::Skip, most_noted)
    }

    fn of(policy: BadRows, most_noted: usize) -> Self {
        Self {
            policy,
            count: AtomicU64::new(0),
            file: None,
            noted: Mutex::default(),
            most_noted,
        }
    }

    /// Returns the kept rows.
    pub fn noted(&self) -> Vec<NotedRow> {
        let noted = self.noted.lock();
        noted.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Handles a record that its source could not read.
    pub fn unread(&self, reject: &Reject<'_>) -> Result<(), PushError> {
        let text = || json!(String::from_utf8_lossy(reject.record));
        let record = || match reject.place {
            Place::Line(_) | Place::Element(_) => text(),
            _ => serde_json::from_slice(reject.record).unwrap_or_else(|_| text()),
        };
        let column = reject.column.as_deref();
        self.reject(reject.file, &reject.place, &reject.reason, column, record)
    }

    /// Handles a row of a batch that cannot be stored.
    pub fn unstored(
        &self,
        origin: &Origin,
        batch: &RecordBatch,
        row: usize,
        reason: &str,
    ) -> Result<(), PushError> {
        let record = || serde_json::from_slice(&row_as_json(batch, row)).unwrap_or_default();
        self.reject(&origin.file, &origin.place(row), reason, None, record)
    }

    fn reject(
        &self,
        file: &str,
        place: &Place,
        reason: &str,
        column: Option<&str>,
        record: impl FnOnce() -> serde_json::Value,
    ) -> Result<(), PushError> {
        let number = self.count.fetch_add(1, Relaxed);
        let note = || NotedRow {
            file: file.to_owned(),
            place: place.to_string(),
            reason: reason.to_owned(),
            advice: column.map(advice).unwrap_or_default(),
        };
        if number < self.most_noted as u64 {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push(note());
        }
        match (&self.policy, &self.file) {
            (BadRows::Fail, _) => Err(note().into()),
            (BadRows::File(path), Some(out)) => {
                let mut line = json!({ "file": file, "reason": reason, "record": record() });
                match *place {
                    Place::Line(number) => line["line"] = json!(number),
                    Place::Element(number) => line["element"] = json!(number),
                    Place::Row(number) => line["row"] = json!(number),
                    Place::Byte(at) => line["byte"] = json!(at),
                    Place::BatchRow { batch, row } => {
                        line["batch"] = json!(batch);
                        line["row"] = json!(row);
                    }
                }
                let text = format!("{line}\n");
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                out.write_all(text.as_bytes())
                    .map_err(|error| failed(path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the file, so that it can be created again.
    pub fn discard(self, disk: &dyn Disk) -> Result<(), PushError> {
        match &self.policy {
            BadRows::File(path) => {
                drop(self.file);
                disk.remove(path).map_err(|error| failed(path, error))
            }
            BadRows::Fail | BadRows::Skip => Ok(()),
        }
    }

    /// Makes the file durable.
    pub fn finish(&self) -> Result<(), PushError> {
        match (&self.policy, &self.file) {
            (BadRows::File(path), Some(out)) => {
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                out.sync().map_err(|error| failed(path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Returns advice about a value that another type of its column would hold.
fn advice(column: &str) -> String {
    let option = near::column_option(column, "text");
    format!("give its column a type that holds it, as by {option}, or ")
}

fn failed(path: &Path, error: std::io::Error) -> PushError {
    PushError::Rejects {
        path: path.to_path_buf(),
        error,
    }
}
