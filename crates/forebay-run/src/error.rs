//! What can go wrong with a run.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::advice;

use crate::operation::OperandError;

/// An error of reading or writing a run; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused an operation.
    #[error("{}: cannot {what}: {source}{}", path.display(), advice(source))]
    Io {
        path: PathBuf,
        what: &'static str,
        source: io::Error,
    },
    /// The bytes are not what was written. `place` says where and which check failed.
    #[error("{}: damaged: {place}; restore the file from another copy, or bring the table's rows again", path.display())]
    Damaged { path: PathBuf, place: String },
    /// A run of a newer or unknown kind.
    #[error("{}: {what}; read it with a newer forebay", path.display())]
    Unsupported { path: PathBuf, what: String },
    /// A merge that allows one record a key met a second.
    #[error("key {key} occurs more than once")]
    Duplicate { key: String },
    /// Records of one key whose operations do not go together.
    #[error("key {key}: {source}")]
    Operand { key: String, source: OperandError },
    /// The caller broke a rule of the writer or the merge.
    #[error("{}: {what}", path.display())]
    Refused { path: PathBuf, what: String },
}

impl RunError {
    /// Of a file that ends before what is to be read in it, this is damage: runs never change.
    pub fn io(path: &Path, what: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::damaged(
                path,
                "the file was cut off: it ends before what is to be read",
            );
        }
        Self::Io {
            path: path.to_path_buf(),
            what,
            source,
        }
    }

    pub fn damaged(path: &Path, place: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            place: place.into(),
        }
    }

    pub fn refused(path: &Path, what: impl Into<String>) -> Self {
        Self::Refused {
            path: path.to_path_buf(),
            what: what.into(),
        }
    }

    /// The file that it is about, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Damaged { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Refused { path, .. } => Some(path),
            Self::Duplicate { .. } | Self::Operand { .. } => None,
        }
    }

    /// Whether the file, or the device under it, no longer gives what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => forebay_io::is_bad_device(source),
            _ => false,
        }
    }
}

pub type Result<T, E = RunError> = std::result::Result<T, E>;

/// A key as errors name it: its text without control characters; hex where it is no text.
pub fn named_key(key: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(key) else {
        let digits = key.iter().map(|byte| format!("{byte:02x}"));
        return format!("0x{}", digits.collect::<String>());
    };
    without_controls(text)
}

/// A column as messages name it, on one line; `''` where its name is empty.
pub fn named_column(name: &str) -> String {
    match name.is_empty() {
        true => "''".to_owned(),
        false => without_controls(name),
    }
}

/// A text in which control characters are written out, so that it stays on its line and says
/// nothing to a terminal.
pub fn without_controls(text: &str) -> String {
    let shown = |text: &mut String, character: char| match character.is_control() {
        true => text.extend(character.escape_default()),
        false => text.push(character),
    };
    let mut out = String::with_capacity(text.len());
    text.chars()
        .for_each(|character| shown(&mut out, character));
    out
}
