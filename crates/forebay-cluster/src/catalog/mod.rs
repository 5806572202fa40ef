//! Where a cluster is written down: named documents, replaced on conditions.
//!
//! The catalog lies in the store, beside its tables, so that a cluster needs no service but the
//! store itself. `cluster/head`, `cluster/lease` and `cluster/identity` are named; `cluster/d/REF`
//! are immutable; `cluster/requests/ID` is what clients ask for.

mod directory;
mod documents;
mod objects;

use std::fmt::Debug;
use std::io;

use bytes::Bytes;

pub use directory::DirectoryCatalog;
pub use documents::{CatalogError, Documented, HEAD, IDENTITY, RESTORE};
pub use objects::ObjectCatalog;

/// What tells a document's content from any other of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTag(pub String);

/// What a conditional write met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    Done(SeenTag),
    /// Something else is there.
    Changed,
}

/// See the module's text. Names are paths below `cluster/`. After an error a write may have been
/// done or not.
pub trait Catalog: Debug + Send + Sync {
    fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>>;

    /// Writes a document if it is still what was seen; `None`: if there is none. Content has
    /// something of its own (a stamp): what is there already just as it was to be is done.
    fn put_if(
        &self,
        name: &str,
        content: Bytes,
        seen: Option<&SeenTag>,
    ) -> io::Result<WriteOutcome>;

    /// Names right below a directory.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Whether looking costs nothing to speak of.
    fn is_near(&self) -> bool {
        false
    }

    /// Who has kept all others from writing for a second, in words for operators: a process that
    /// hangs, say.
    fn held_up_by(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// That it is gone already is as good.
    fn remove(&self, name: &str) -> io::Result<()>;
}
