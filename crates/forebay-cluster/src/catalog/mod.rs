//! The catalog: named documents in the store, replaced by conditional writes.
//!
//! The catalog is in the store, next to the tables, so a cluster needs no service but the store
//! itself. `cluster/head`, `cluster/lease` and `cluster/identity` have fixed names. The documents
//! `cluster/d/REF` are immutable. Clients write their requests to `cluster/requests/ID`.

mod directory;
mod documents;
mod objects;

use std::fmt::Debug;
use std::io;

use bytes::Bytes;

pub use directory::DirectoryCatalog;
pub use documents::{CatalogError, Documented, HEAD, IDENTITY, RESTORE};
pub use objects::ObjectCatalog;

/// A tag that distinguishes a document's content from any other content of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTag(pub String);

/// The result of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    Done(SeenTag),
    /// The document's content is another one than the caller saw.
    Changed,
}

/// Storage of named documents with conditional writes.
///
/// Names are paths below `cluster/`. After an error the write may or may not have been done.
pub trait Catalog: Debug + Send + Sync {
    fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>>;

    /// Writes a document if its content is still the one that the caller saw. If `seen` is `None`,
    /// the document must not exist.
    ///
    /// Each content has a unique stamp. If the document already has exactly this content, the write
    /// counts as done.
    fn put_if(
        &self,
        name: &str,
        content: Bytes,
        seen: Option<&SeenTag>,
    ) -> io::Result<WriteOutcome>;

    /// Lists the names directly below a directory.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Returns whether a read is cheap enough to repeat often.
    fn is_near(&self) -> bool {
        false
    }

    /// Describes, for operators, the process that has kept all others from writing for a second (a
    /// process that hangs, for example).
    fn held_up_by(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// Removes a document. If the document is already gone, this succeeds.
    fn remove(&self, name: &str) -> io::Result<()>;
}
