//! The error of all functions of the library.

use std::fmt;

use forebay_engine::live::{CheckpointError, LiveError};
use forebay_engine::{NameError, ReadError, SourceError, StoreError};
use forebay_load::load::LoadError;
use forebay_load::push::PushError;

use super::problem::Problem;
use crate::error_kind::{ErrorKind, words};

/// An error of the library. The text names the table, the file, the row or the key, and says what
/// to do next. [`Error::kind`] says what a program can do about it.
pub struct Error(anyhow::Error);

impl Error {
    /// Returns the kind of the error, which says what can be done about it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(&self.0)
    }

    pub(super) fn of_anyhow(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(&self.0))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Batch(error) => error.into(),
            SourceError::Live(error) => error.into(),
        }
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        StoreError::Name(error).into()
    }
}

/// Implements conversions from the libraries' errors of known kinds.
macro_rules! errors_of {
    ($($of:ty),*) => {
        $(impl From<$of> for Error {
            fn from(error: $of) -> Self {
                Self(anyhow::Error::new(error))
            }
        })*
    };
}

errors_of!(
    StoreError,
    ReadError,
    LiveError,
    CheckpointError,
    PushError,
    LoadError,
    Problem
);
