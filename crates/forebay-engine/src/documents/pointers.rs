//! Pointers that are kept outside of the store.
//!
//! Many nodes serve the tables of a cluster, and the cluster's catalog names the serving versions.
//! A store of a cluster is opened with its catalog ([`Store::open_with`]). Readers of a pointer
//! read it from the catalog. A change of a pointer is a request to the catalog, and the caller
//! waits until it succeeds or fails.
//!
//! [`Store::open_with`]: crate::Store::open_with

use std::fmt::Debug;

use crate::documents::pointer::Pointer;
use crate::error::StoreError;
use crate::name::TableName;

/// The result of a swap or a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapReport {
    /// The version that served before; the same as `to` if there was nothing to do.
    pub from: Option<u64>,
    /// The version that serves now.
    pub to: u64,
}

/// A change of a table's pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerMove {
    /// Makes the version serve; the version that served before becomes the rollback target.
    Swap { to: u64 },
    /// Restores the version that served before. If `from` is given, only if `from` serves.
    Rollback { from: Option<u64> },
    /// Replaces the serving version by one with the same rows, if `from` serves.
    Replace { from: u64, to: u64 },
    /// Drops the table.
    Drop,
}

/// The place where pointers are kept.
pub trait Pointers: Debug + Send + Sync {
    /// Returns the pointer; `None` if no version of the table ever served.
    fn read(&self, table: &TableName) -> Result<Option<Pointer>, StoreError>;

    /// Blocks until the change is complete everywhere. After an error it was made nowhere, unless
    /// the error says so.
    fn change(&self, table: &TableName, change: PointerMove) -> Result<SwapReport, StoreError>;
}
