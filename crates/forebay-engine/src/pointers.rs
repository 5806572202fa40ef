//! Pointers that are kept elsewhere than in the store.
//!
//! The tables of a cluster are served by many nodes, and which version serves is said by the
//! cluster's catalog. A store of a cluster is opened with that ([`Store::open_with`]): what reads a
//! pointer asks there, and what moves one asks for it there, and waits until it is done, or is not.
//!
//! [`Store::open_with`]: crate::Store::open_with

use std::fmt::Debug;

use crate::error::StoreError;
use crate::name::TableName;
use crate::pointer::Pointer;

/// What a swap or a rollback did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapReport {
    /// What served before; the same as `to` when there was nothing to do.
    pub from: Option<u64>,
    /// What serves now.
    pub to: u64,
}

/// What is asked of a table's pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerMove {
    /// The version serves; what served before is what a rollback goes to.
    Swap { to: u64 },
    /// What served before serves again, if the version that serves is `from`, where one is given.
    Rollback { from: Option<u64> },
    /// The version, of the same rows, takes the place of the one that serves, if that is `from`.
    Replace { from: u64, to: u64 },
    /// The table is no more.
    Drop,
}

/// Where pointers are kept. See the module's text.
pub trait Pointers: Debug + Send + Sync {
    /// `None`: no version of the table ever served.
    fn read(&self, table: &TableName) -> Result<Option<Pointer>, StoreError>;

    /// Blocks until it is done everywhere; after an error it is done nowhere, unless the error says
    /// so.
    fn change(&self, table: &TableName, change: PointerMove) -> Result<SwapReport, StoreError>;
}
