//! Why a store in object storage could not be opened.

use std::io;

use forebay_engine::StoreError;
use thiserror::Error;

use crate::address::AddressError;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(
        "{url}: cannot use it: {source}; docs/how-to/use-object-storage.md says which variables it takes"
    )]
    Connect { url: String, source: io::Error },
    #[error("no directory for the work of pushes: set HOME or XDG_CACHE_HOME, or give --work-dir")]
    NoWorkDir,
    #[error(transparent)]
    Pull(#[from] crate::pull::error::PullError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
