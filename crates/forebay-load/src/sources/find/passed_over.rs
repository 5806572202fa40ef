//! Finds pipes and unreadable directories that a listing of a local directory skips.
//!
//! Without this check, rows would be missing silently.

#![allow(
    clippy::disallowed_methods,
    reason = "sources are the user's files, not those of a store"
)]

use std::fs;
use std::io;
use std::path::PathBuf;

use super::glob::hidden;
use super::location::special;
use crate::sources::error::SourceError;

/// Fails at the first such entry below a directory whose name is `wanted`. Symbolic links to
/// directories are not followed.
pub fn refuse_passed_over(root: PathBuf, wanted: &dyn Fn(&str) -> bool) -> Result<(), SourceError> {
    let mut waiting = vec![root];
    while let Some(dir) = waiting.pop() {
        let failed = |path: &PathBuf, error: io::Error| SourceError::Io {
            file: path.to_string_lossy().into_owned(),
            error,
        };
        for entry in fs::read_dir(&dir).map_err(|error| failed(&dir, error))? {
            let entry = entry.map_err(|error| failed(&dir, error))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if hidden(&name) {
                continue;
            }
            let kind = entry.file_type().map_err(|error| failed(&path, error))?;
            if kind.is_dir() {
                waiting.push(path);
                continue;
            }
            if !wanted(&name) {
                continue;
            }
            match fs::metadata(&path) {
                // A broken link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, error)),
                Ok(there) => {
                    if let Some(what) = special(there.file_type()) {
                        let source_text = path.to_string_lossy().into_owned();
                        return Err(SourceError::NoFile { source_text, what });
                    }
                }
            }
        }
    }
    Ok(())
}
