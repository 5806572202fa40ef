//! Errors of reading and writing runs.

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
    /// The bytes differ from those that were written. `place` is the position and the failed check.
    #[error("{}: damaged: {place}; restore the file from another copy, or load the table's rows again", path.display())]
    Damaged { path: PathBuf, place: String },
    /// A run of a newer or unknown kind.
    #[error("{}: {what}; read it with a newer forebay", path.display())]
    Unsupported { path: PathBuf, what: String },
    /// A merge that allows one record per key found a second.
    #[error("key {key} occurs more than once")]
    Duplicate { key: String },
    /// Records of one key whose operations cannot be composed.
    #[error("key {key}: {source}")]
    Operand { key: String, source: OperandError },
    /// The caller violated a requirement of the writer or the merge.
    #[error("{}: {what}", path.display())]
    Refused { path: PathBuf, what: String },
}

impl RunError {
    /// Returns the error. If the file ends too early, this is damage: runs never change.
    pub fn io(path: &Path, what: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::damaged(
                path,
                "the file is truncated: it ends before the bytes to read",
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

    /// Returns the file of the error, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Damaged { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Refused { path, .. } => Some(path),
            Self::Duplicate { .. } | Self::Operand { .. } => None,
        }
    }

    /// Returns whether the file, or its device, no longer returns the data that was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => forebay_io::is_bad_device(source),
            _ => false,
        }
    }
}

pub type Result<T, E = RunError> = std::result::Result<T, E>;

/// Returns a key as errors show it: its text without control characters; hex if it is not text.
pub fn named_key(key: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(key) else {
        let digits = key.iter().map(|byte| format!("{byte:02x}"));
        return format!("0x{}", digits.collect::<String>());
    };
    without_controls(text)
}

/// Returns a column as messages show it, on one line; `''` if its name is empty.
pub fn named_column(name: &str) -> String {
    match name.is_empty() {
        true => "''".to_owned(),
        false => without_controls(name),
    }
}

/// Returns a text with control characters escaped, so that it stays on its line and cannot control
/// a terminal. Invisible characters, and those that change the text direction, are escaped, too.
pub fn without_controls(text: &str) -> String {
    shown_but(text, |_| false)
}

/// Does [`without_controls`] for a text of several lines; keeps line ends and tabs.
pub fn lines_without_controls(text: &str) -> String {
    shown_but(text, |character| matches!(character, '\n' | '\t'))
}

/// Returns whether a character is not shown as itself: a control character, one without width, or
/// one that changes the text direction.
pub fn is_hidden(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    is_format || character.is_control()
}

fn shown_but(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match is_hidden(character) && !stays(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        let name = "a\u{202e}b\u{200b}\u{feff}c\u{1b}[1m\n\u{9b}";
        let shown = r"a\u{202e}b\u{200b}\u{feff}c\u{1b}[1m\n\u{9b}";
        assert_eq!(without_controls(name), shown);
        assert_eq!(named_column(name), shown);
        assert_eq!(lines_without_controls("a\tb\u{7}\n"), "a\tb\\u{7}\n");
        for sound in ["naïve", "日本", "שם", "😀", "a b"] {
            assert_eq!(without_controls(sound), sound);
        }
    }
}
