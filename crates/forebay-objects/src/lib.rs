//! Stores in object storage: S3, Google Cloud Storage, Azure Blob Storage, and compatible ones.
//!
//! [`open`] returns a [`Store`](forebay_engine::Store) of the engine whose files are in a bucket,
//! under the same names as a local store's in its directory. [`RemoteDisk`] makes this possible, a
//! [`Disk`](forebay_io::Disk) made of requests: the engine and the loader do not know of it.
//! [`Puller`] keeps a local store, a node's cache, in step with such a store.
//!
//! Clients of object stores are asynchronous; a small runtime in this crate waits for them, so that
//! callers can be synchronous. The loader, which reads sources from any store, takes its
//! connections from this crate ([`bucket`], [`website`]).

mod address;
mod announcing;
mod attempt;
mod backend;
mod disk;
mod documents;
mod environment;
mod file;
mod journal;
mod lease;
mod notify;
mod objects;
mod open;
mod open_error;
mod pull;
mod put_file;
mod refusals;
mod tables_document;
mod upload;

pub use address::{Address, AddressError, is_remote, path_of_file_url};
pub use backend::{Patience, bucket, website};
pub use disk::{Joined, RemoteDisk};
pub use documents::StoreMemory;
pub use object_store::UpdateVersion;
pub use objects::{News, Objects, PutOutcome};
pub use open::{RemoteStore, open, open_disk};
pub use open_error::OpenError;
pub use pull::claim as claim_cache;
pub use pull::is_claimed;
pub use pull::{
    DirectoryOrigin, Fetcher, NodeAddress, Origin, Origins, Prepared, PullActive, PullError,
    PullOptions, PullRate, PullState, PullThrottle, PulledVersion, Puller, Pulling, ServedVersions,
    TablePull, object_origin,
};
pub use refusals::said;
pub use upload::Uploaded;
