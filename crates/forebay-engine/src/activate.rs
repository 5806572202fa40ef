//! Letting versions of several tables serve from one moment on, whose opening is done.
//!
//! 1. Every version asked for is found open, and locks for drops are taken: what cannot be is
//!    refused, with nothing changed.
//! 2. Tables to be dropped are marked so, durably.
//! 3. The new set is published: from this moment on all of it serves.
//! 4. The pointers are written, durably, so that a process that starts again serves the same.
//!
//! A crash between 3 and 4 leaves pointers of before, although readers saw the new versions.
//! Whoever activates several tables at once has decided so elsewhere, and asks there before it
//! serves after a start; and it counts this as done only once 4 is. The other order would have the
//! moment of the first table wait for the syncs of all. A pointer that cannot be written is owed:
//! what serves goes on, and each look of the follower tries again before it believes the file.

use std::sync::Arc;

use thiserror::Error;
use tracing::warn;

use crate::cleanup::Dropping;
use crate::error::StoreError;
use crate::follow::FollowerMemory;
use crate::name::TableName;
use crate::pointer::Pointer;
use crate::serving_set::Change;
use crate::table::Table;
use crate::version::Version;

/// What is to become of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The version serves that the pointer names, with as much of its history as is here. The
    /// pointer's sequence and stamp are given anew.
    Serve(Pointer),
    /// Nothing of it serves; its files stay.
    Nothing,
    /// It is dropped, with all its files. Refused while a version of it is made or brought.
    Dropped,
}

/// Why tables did not come to what was asked, or not wholly.
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

/// What was found for an activation.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    serve: Vec<(TableName, Arc<Version>, Pointer)>,
    rest: Vec<TableName>,
    dropped: Vec<Dropping>,
}

impl Activation {
    /// Step 1. Nothing is changed by that.
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

    /// Step 3, but for the publication.
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

    /// Step 4. All of them are tried; the first error is returned.
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
    /// Writes a pointer that names what serves already, with as much of its history as is here.
    pub(crate) fn point_at(&self, wanted: &Pointer) -> Result<Pointer, StoreError> {
        let _lock = self.lock_pointer("a swap")?;
        let now = match Pointer::read(&**self.disk(), &self.files.pointer()) {
            // Nothing in it is needed.
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
