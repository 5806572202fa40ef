//! The pointer of a table: the serving version, and the versions that served before.
//!
//! The pointer is one sealed document, replaced atomically under the pointer lock. A swap and a
//! rollback move it. A follower reads nothing else.

use std::io;
use std::path::Path;

use forebay_io::{Disk, dir_of, is_out_of_space, put_file};
use serde::{Deserialize, Serialize};

use crate::documents::reserve::Reserve;
use crate::documents::seal::{DocumentError, Upgrade, seal, unseal_upgrading};
use crate::error::{At, StoreError};
use crate::name::TableName;

/// The format number of pointer files that this program writes; it reads older ones, too.
pub const POINTER_FORMAT: u64 = 2;

/// Format 1 has no note of a rollback.
const UPGRADES: [Upgrade; 1] = [|_| Some(())];

/// The content of a table's pointer file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pointer {
    forebay_pointer: u64,
    /// Increases by one with every change.
    pub sequence: u64,
    /// The serving version; none before the first swap.
    pub serving: Option<u64>,
    /// The versions that served before, oldest first. A rollback serves the last one and removes it
    /// from the list. The version that was rolled back from is not added, so two rollbacks go back
    /// two versions.
    pub history: Vec<u64>,
    /// Set when the table is being dropped. From then on it does not exist, even if files remain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// Set when the last move was a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rollback: Option<LastRollback>,
    /// A random number, so that no two contents are equal even if a dropped table is created again.
    pub stamp: u64,
}

/// The time of a rollback, and the version that it replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastRollback {
    pub from: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
}

impl Pointer {
    /// Returns the pointer of a table that serves nothing yet.
    pub fn unset() -> Self {
        Self {
            forebay_pointer: POINTER_FORMAT,
            sequence: 0,
            serving: None,
            history: Vec::new(),
            dropped: false,
            last_rollback: None,
            stamp: 0,
        }
    }

    /// Returns the version that a rollback would restore.
    pub fn before(&self) -> Option<u64> {
        self.history.last().copied()
    }

    /// Returns the pointer after a swap to `version`. The old version becomes the rollback target.
    pub fn swapped(&self, version: u64) -> Self {
        let mut next = self.clone();
        next.history
            .retain(|&past| past != version && Some(past) != self.serving);
        next.history
            .extend(self.serving.filter(|&serving| serving != version));
        if next.serving.replace(version) != Some(version) {
            next.last_rollback = None;
        }
        next
    }

    /// Returns the pointer with another version of the same rows as the serving one.
    pub fn replaced(&self, version: u64) -> Self {
        let mut next = self.pruned(|past| past != version);
        next.serving = Some(version);
        next
    }

    /// Returns the pointer after a rollback; `None` if nothing served before.
    pub fn rolled_back(&self) -> Option<Self> {
        let mut next = self.clone();
        next.serving = Some(next.history.pop()?);
        Some(next)
    }

    /// Returns the pointer of a table that is being dropped.
    pub(crate) fn tombstone(&self) -> Self {
        Self {
            sequence: self.sequence,
            dropped: true,
            ..Self::unset()
        }
    }

    /// Returns the pointer without the history entries that `keep` rejects.
    pub fn pruned(&self, keep: impl Fn(u64) -> bool) -> Self {
        let mut next = self.clone();
        next.history.retain(|&past| keep(past));
        next
    }

    /// Reads the pointer file; `None` if there is none. If the file is damaged, reads it again: on
    /// a full disk, a file opened two pointers ago may be overwritten during the read.
    pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>, StoreError> {
        let mut damaged = None;
        loop {
            let bytes = match disk.read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                bytes => bytes.at("read", path)?,
            };
            match Self::parse(&bytes) {
                Ok(pointer) => return Ok(Some(pointer)),
                Err(problem) if damaged.as_ref() == Some(&bytes) => {
                    let path = path.to_path_buf();
                    return Err(StoreError::DamagedPointer { path, problem });
                }
                Err(_) => damaged = Some(bytes),
            }
        }
    }

    /// Checks and parses a pointer file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let unsealed =
            unseal_upgrading::<Self>(bytes, "forebay_pointer", POINTER_FORMAT, &UPGRADES)?;
        let pointer = unsealed.document;
        let wrong = |text: &str| Err(DocumentError::Inconsistent(text.to_owned()));
        let mut seen = pointer.history.clone();
        seen.extend(pointer.serving);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        match pointer.serving {
            _ if seen.len() != count => wrong("it names a version twice"),
            None if count > 0 => wrong("no version serves, but some served before"),
            _ => Ok(pointer),
        }
    }

    /// Returns whether each version is named once, and none without a serving version.
    fn is_consistent(&self) -> bool {
        let history = &self.history;
        let named_again = |at: usize| history[at + 1..].contains(&history[at]);
        let is_once = !(0..history.len()).any(named_again);
        let serves_again = self
            .serving
            .is_some_and(|serving| history.contains(&serving));
        is_once && !serves_again && (self.serving.is_some() || history.is_empty())
    }

    /// Replaces the pointer file and increments the sequence number. REQUIRES the pointer lock. A
    /// reader sees the old pointer or this one. On success, the new one survives a power cut. After
    /// [`StoreError::NotSynced`] the new one is in place, but a power cut may undo it. After
    /// another error, either may be in place. On a full disk it uses the space of the [`Reserve`].
    pub(crate) fn write(
        mut self,
        disk: &dyn Disk,
        table: &TableName,
        path: &Path,
        stamp: u64,
    ) -> Result<Self, StoreError> {
        debug_assert!(
            self.is_consistent(),
            "a pointer that cannot be read back: {self:?}"
        );
        self.sequence += 1;
        self.stamp = stamp;
        let damaged = |problem| StoreError::Damaged {
            path: path.to_path_buf(),
            problem,
        };
        let (bytes, _) = seal(&self).map_err(damaged)?;
        let reserve = Reserve::of(disk, path);
        let spent = match put_file(disk, path, &bytes) {
            Err(full) if is_out_of_space(&full) && disk.keeps_blocks() => {
                match reserve.put_pointer(&bytes) {
                    // An older program may have written the table last.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Err(full),
                    put => put.map(Some),
                }
            }
            put => put.map(|()| None),
        };
        let spent = spent.at("write the pointer", path)?;
        disk.sync_dir(dir_of(path))
            .map_err(|source| StoreError::NotSynced {
                table: table.clone(),
                serves: self.serving,
                dir: dir_of(path).to_path_buf(),
                source,
            })?;
        match spent {
            Some(spent) => reserve.refill(&spent),
            None if self.dropped => {}
            None => reserve.keep(bytes.len()),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::seal::seal_text;
    use proptest::prelude::*;

    fn pointer(serving: Option<u64>, history: &[u64]) -> Pointer {
        Pointer {
            serving,
            history: history.to_vec(),
            ..Pointer::unset()
        }
    }

    #[test]
    fn rolling_back_twice_goes_back_twice() {
        let mut at = Pointer::unset();
        for version in [1, 2, 3] {
            at = at.swapped(version);
        }
        assert_eq!(at, pointer(Some(3), &[1, 2]));
        at = at.rolled_back().expect("2 served before");
        assert_eq!(at, pointer(Some(2), &[1]));
        // Version 3 was bad: neither a newer swap nor a rollback returns to it.
        at = at.swapped(4);
        assert_eq!(at, pointer(Some(4), &[1, 2]));
        at = at
            .rolled_back()
            .and_then(|at| at.rolled_back())
            .expect("two versions before");
        assert_eq!(at, pointer(Some(1), &[]));
        assert_eq!(at.rolled_back(), None);
    }

    #[test]
    fn a_swap_to_the_previous_version_can_be_undone() {
        let at = pointer(Some(3), &[1, 2]).swapped(1);
        assert_eq!(at, pointer(Some(1), &[2, 3]));
        assert_eq!(at.swapped(1), at, "a swap to what serves changes nothing");
        assert_eq!(at.rolled_back(), Some(pointer(Some(3), &[2])));
    }

    #[test]
    fn a_pointer_of_format_1_is_read_and_one_of_a_later_format_is_refused() {
        let text = |format: u64| {
            let text = format!(
                r#"{{"forebay_pointer": {format}, "sequence": 7, "serving": 3, "history": [1, 2], "stamp": 9}}"#
            );
            seal_text(text.into_bytes())
        };
        let known = pointer(Some(3), &[1, 2]);
        let read = Pointer::parse(&text(1)).expect("read");
        assert_eq!((read.serving, &read.history), (Some(3), &known.history));
        assert_eq!((read.sequence, read.last_rollback), (7, None));
        let later = DocumentError::Format { found: 3, known: 2 };
        assert_eq!(Pointer::parse(&text(3)), Err(later));
    }

    #[test]
    fn contradictions_are_refused() {
        for bad in [
            pointer(Some(2), &[1, 2]),
            pointer(Some(3), &[1, 1]),
            pointer(None, &[1]),
        ] {
            let (bytes, _) = seal(&bad).expect("sealed");
            let error = Pointer::parse(&bytes).expect_err("refused");
            assert!(matches!(error, DocumentError::Inconsistent(_)), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_run_of_swaps_and_rollbacks_leaves_a_pointer_that_parses(
            steps in proptest::collection::vec(0u64..6, 0..40)
        ) {
            let mut at = Pointer::unset();
            for step in steps {
                at = match step {
                    0 => at.rolled_back().unwrap_or(at),
                    version => at.swapped(version),
                };
                let (bytes, _) = seal(&at).expect("sealed");
                prop_assert_eq!(Pointer::parse(&bytes), Ok(at.clone()));
            }
        }
    }
}
