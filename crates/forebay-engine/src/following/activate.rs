//! Switches the serving versions of several tables in one step, after their files are open.
//!
//! 1. The activation finds every requested version open and takes the locks for drops. If either
//!    fails, it is refused and nothing changes.
//! 2. Tables to be dropped are marked so, durably.
//! 3. The new set is published. From this moment all of it serves.
//! 4. The pointers are written, durably, so that a restarted process serves the same versions.
//!
//! A crash between 3 and 4 leaves the old pointers, although readers saw the new versions. A caller
//! that activates several tables at once has recorded the decision elsewhere. It checks that record
//! before it serves after a start, and counts the activation as done only after 4. In the other
//! order, the first table would wait for the syncs of all others. If a pointer cannot be written,
//! the follower owes it: the version keeps serving. Each look of the follower retries the write
//! before it trusts the file.

use std::sync::Arc;

use thiserror::Error;
use tracing::warn;

use crate::documents::pointer::Pointer;
use crate::error::StoreError;
use crate::following::follow::FollowerMemory;
use crate::following::serving_set::Change;
use crate::name::TableName;
use crate::publishing::cleanup::Dropping;
use crate::tables::table::Table;
use crate::tables::version::Version;

/// The new state of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Serves the version that the pointer names, with the part of its history that this store has.
    /// The pointer gets a new sequence and stamp.
    Serve(Pointer),
    /// Serves no version; the files stay.
    Nothing,
    /// Drops the table with all its files. Refused while a version of it is being made or fetched.
    Dropped,
}

/// An activation that failed, wholly or in part.
#[derive(Debug, Error)]
pub enum ActivateError {
    #[error(
        "version {version} of table {table} is not open here, and nothing was changed: open it \
         ahead, then activate again"
    )]
    NotOpen { table: TableName, version: u64 },
    #[error("nothing serves otherwise than before: {0}")]
    Refused(#[source] StoreError),
    #[error(
        "all of it serves, but the pointer of table {table} is not written: {source}. It is tried \
         again each second; see to the disk"
    )]
    NotWritten {
        table: TableName,
        source: StoreError,
    },
    #[error(transparent)]
    Remains(StoreError),
}

/// The versions and locks that an activation needs.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    serve: Vec<(TableName, Arc<Version>, Pointer)>,
    rest: Vec<TableName>,
    dropped: Vec<Dropping>,
}

impl Activation {
    /// Step 1. Changes nothing.
    pub fn find(
        followed: &FollowerMemory,
        next: &[(TableName, Next)],
    ) -> Result<Self, ActivateError> {
        let mut activation = Self::default();
        for (name, next) in next {
            match next {
                Next::Serve(pointer) => {
                    let table = name.clone();
                    let Some(version) = pointer.serving else {
                        let nothing = StoreError::NothingServes { table };
                        return Err(ActivateError::Refused(nothing));
                    };
                    let Some(open) = followed.find_open(name, version) else {
                        return Err(ActivateError::NotOpen { table, version });
                    };
                    activation.serve.push((table, open, pointer.clone()));
                }
                Next::Nothing => activation.rest.push(name.clone()),
                Next::Dropped => {
                    let table = followed.store().any_table(name);
                    if table.exists().map_err(ActivateError::Refused)? {
                        let locked = table.lock_drop().map_err(ActivateError::Refused)?;
                        activation.dropped.push(locked);
                    }
                }
            }
        }
        Ok(activation)
    }

    /// Step 2.
    pub fn mark_dropped(&self) -> Result<(), ActivateError> {
        let mut dropped = self.dropped.iter();
        dropped.try_for_each(|table| table.mark().map_err(ActivateError::Refused))
    }

    /// Step 3, without the publication.
    pub fn take(&self, followed: &mut FollowerMemory) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, version, pointer) in &self.serve {
            changes.extend(followed.serve(name, Arc::clone(version), pointer.before()));
        }
        for table in &self.rest {
            changes.extend(followed.rest(table));
        }
        for dropped in &self.dropped {
            changes.extend(followed.stop(dropped.table().name().clone()));
        }
        changes
    }

    /// Step 4. Tries all pointers and returns the first error.
    pub fn write_pointers(&self, followed: &mut FollowerMemory) -> Result<(), ActivateError> {
        let mut outcome = Ok(());
        for (name, _, pointer) in &self.serve {
            let table = followed.store().any_table(name);
            let written = table.point_at(pointer);
            if let Err(source) = followed.wrote(name, pointer, written) {
                let table = name.clone();
                outcome = outcome.and(Err(ActivateError::NotWritten { table, source }));
            }
        }
        outcome
    }

    /// Removes the files of dropped tables.
    pub fn remove_dropped(self) -> Result<(), ActivateError> {
        let mut outcome = Ok(());
        for dropped in self.dropped {
            let removed = dropped.finish().map_err(ActivateError::Remains);
            outcome = outcome.and(removed);
        }
        outcome
    }
}

impl Table {
    /// Writes a pointer to a version that serves already, with the history that this store has.
    pub(crate) fn point_at(&self, wanted: &Pointer) -> Result<Pointer, StoreError> {
        let _lock = self.lock_pointer("a swap")?;
        let now = match Pointer::read(&**self.disk(), &self.files.pointer()) {
            // A damaged pointer holds nothing that is needed.
            Err(StoreError::DamagedPointer { path, problem }) => {
                warn!(path = %path.display(), %problem, "a damaged pointer is replaced");
                None
            }
            now => now?,
        };
        let here = self.version_numbers()?;
        let mut next = wanted.pruned(|past| here.contains(&past));
        next.sequence = now.map_or(0, |now| now.sequence);
        self.write_pointer(next)
    }
}
