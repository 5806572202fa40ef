//! Defines the errors of a push.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_engine::StoreError;
use forebay_io::advice;

use super::given_boundaries::BoundariesError;
use crate::encode::EncodeError;
use crate::gate::GateError;
use crate::sort::{SortError, Tally};
use crate::sources::SourceError;

/// An error of a push. Nothing of the push is visible.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(transparent)]
    Sort(#[from] SortError),
    /// An error of the sort, about rows of this file.
    #[error("{file}: {error}")]
    SortOf { file: String, error: SortError },
    #[error(transparent)]
    Engine(#[from] forebay_engine::PushError),
    #[error(
        "{file}: {place}: {reason}; {advice}leave such rows out by --bad-rows skip, or have them \
         written to a file by --bad-rows FILE"
    )]
    BadRow {
        file: String,
        place: String,
        reason: String,
        /// Further advice; ends in "or ".
        advice: String,
    },
    #[error("cannot write the bad rows to {}: {error}{}", path.display(), advice(error))]
    Rejects {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error(
        "what was read back is not what came in: {read_back:?} against {source_tally:?}; nothing \
         was published. Check the machine's memory and disk, then push again"
    )]
    Mismatch {
        source_tally: Tally,
        read_back: Tally,
    },
    #[error(
        "every row of the sources was rejected; nothing was published. --bad-rows FILE writes them down, each with its reason"
    )]
    NothingLeft,
    #[error("--boundaries: {0}")]
    Boundaries(#[from] BoundariesError),
    #[error("a push that makes a table whole needs the template of its keys: give --key")]
    NoKey,
    #[error(
        "deltas of this kind add up numbers, so that the value has to be one column: give --value COLUMN"
    )]
    DeltaOfRows,
    #[error(
        "append deltas add bytes at the end of bytes, and the values are {values}: give --value a column of \
         text or bytes, or leave --delta out"
    )]
    AppendToNested { values: &'static str },
    #[error("the base version (--onto) does not fit: {problem}")]
    Onto { problem: String },
}

impl From<StoreError> for PushError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<forebay_engine::ReadError> for PushError {
    fn from(error: forebay_engine::ReadError) -> Self {
        Self::Engine(error.into())
    }
}

impl PushError {
    /// Adds the file to an error about two rows of one key, if there is only one file.
    pub(crate) fn in_files(self, files: &[Arc<str>]) -> PushError {
        match (self, files) {
            (PushError::Sort(error @ SortError::Duplicate { .. }), [file]) => PushError::SortOf {
                file: file.to_string(),
                error,
            },
            (error, _) => error,
        }
    }
}
