//! Restores a lost catalog from the copies of the catalog in the nodes' caches.
//!
//! Each node saves the head that it follows, with all its documents, in its cache. The newest saved
//! catalog becomes the catalog again, with a head of a higher revision and a far higher term. Nodes
//! follow that head. No earlier coordinator can write anything, because its writes are conditional
//! on a head that no longer exists. A node that knows a still higher revision does not follow the
//! head, and lets no node be the coordinator ([`crate::coordinator`]). Then the catalog has to be
//! restored from that node's cache.

use std::io;

use thiserror::Error;

use crate::catalog::{Catalog, CatalogError, Documented, HEAD, IDENTITY, SeenTag, WriteOutcome};
use crate::ids::ClusterId;
use crate::lease::COORDINATOR_LEASE;
use crate::model::{Documents, Head, Identity, Model, ModelError, parsed, written};

/// The increase of the term. It exceeds the number of terms that unknown coordinators can have
/// added.
const TERMS: u64 = 1000;

/// The copy of the catalog in a node's cache.
#[derive(Debug, Clone)]
pub struct CachedCatalog {
    /// Where the cache is, for messages.
    pub source: String,
    pub identity: Identity,
    pub head: Head,
    pub model: Model,
    pub documents: Documents,
}

/// Why a catalog is not restored. Nothing was changed, unless the text says so.
#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("no cache was given: name those of the cluster's nodes")]
    NoCache,
    #[error("{one} is of cluster {}, and {other} of cluster {}: give those of one cluster", .ids[0], .ids[1])]
    Several {
        one: String,
        other: String,
        ids: [ClusterId; 2],
    },
    #[error("the store has the catalog of cluster {found}, and the caches are of cluster {wanted}")]
    OtherCluster { found: ClusterId, wanted: ClusterId },
    #[error(
        "there is nothing to restore: the catalog is whole, of revision {found}, and the newest that the caches \
         know is {newest}"
    )]
    Whole { found: u64, newest: u64 },
    #[error("the catalog was changed meanwhile: look at forebay cluster status, and run it again")]
    Changed,
}

/// The catalog that a restore will write.
#[derive(Debug)]
pub struct Restore {
    pub identity: Identity,
    pub head: Head,
    /// The model in the cached catalog.
    pub model: Model,
    documents: Documents,
    /// The cache whose catalog is used, and the revision that it knows.
    pub source: String,
    pub known: u64,
    /// The revision of the existing catalog, if it can be read.
    pub found: Option<u64>,
    seen: Option<SeenTag>,
}

impl Restore {
    /// Plans the restore of the newest cached catalog over the existing catalog. `stamp`: random.
    pub fn plan(
        catalog: &dyn Catalog,
        cached: Vec<CachedCatalog>,
        stamp: u64,
    ) -> Result<Self, RestoreError> {
        check_one_cluster(&cached)?;
        let most = |of: fn(&Head) -> u64| cached.iter().map(|one| of(&one.head)).max();
        let newest = most(|head| head.revision).unwrap_or(0);
        let term = most(|head| head.term).unwrap_or(0);
        let newest_cached = cached
            .into_iter()
            .max_by_key(|one| (one.head.revision, one.head.term));
        let cached = newest_cached.ok_or(RestoreError::NoCache)?;
        check_identity(catalog, cached.identity.id)?;
        let there = StoredHead::read(catalog, cached.identity.id)?;
        let found = there.head.as_ref().map(|head| head.revision);
        if let Some(head) = &there.head
            && head.revision >= newest
            && is_whole(catalog, head)?
        {
            let found = head.revision;
            return Err(RestoreError::Whole { found, newest });
        }
        let found_term = there.head.as_ref().map_or(0, |head| head.term);
        Ok(Self {
            head: Head {
                revision: newest.max(found.unwrap_or(0)) + 1,
                term: term.max(found_term) + TERMS,
                stamp: stamp | 1,
                ..cached.head.clone()
            },
            identity: cached.identity,
            model: cached.model,
            documents: cached.documents,
            source: cached.source,
            known: cached.head.revision,
            found,
            seen: there.seen,
        })
    }

    /// Writes the catalog. It writes the head last, on the condition that the head has not changed
    /// since the plan. An interrupted restore can be repeated.
    pub fn carry_out(&self, catalog: &dyn Catalog) -> Result<(), RestoreError> {
        for (name, bytes) in &self.documents {
            put_back(catalog, &format!("d/{name}"), bytes.clone())?;
        }
        let identity = written(self.identity.forebay_cluster, &self.identity);
        put_back(catalog, IDENTITY, identity.map_err(CatalogError::from)?)?;
        // The answers to some requests may be lost: the coordinator would carry them out again.
        let requests = catalog
            .list("requests")
            .map_err(|error| io("requests", error))?;
        for name in requests {
            let name = format!("requests/{name}");
            catalog.remove(&name).map_err(|error| io(&name, error))?;
        }
        // The lease may be damaged, too. Its holder takes it again.
        catalog
            .remove(COORDINATOR_LEASE)
            .map_err(|error| io(COORDINATOR_LEASE, error))?;
        match Documented(catalog).put_head(&self.head, self.seen.as_ref())? {
            WriteOutcome::Done(_) => Ok(()),
            WriteOutcome::Changed => Err(RestoreError::Changed),
        }
    }
}

/// The existing head.
struct StoredHead {
    head: Option<Head>,
    seen: Option<SeenTag>,
}

impl StoredHead {
    fn read(catalog: &dyn Catalog, wanted: ClusterId) -> Result<Self, RestoreError> {
        let read = catalog.get(HEAD).map_err(|error| io(HEAD, error))?;
        let Some((bytes, seen)) = read else {
            return Ok(Self {
                head: None,
                seen: None,
            });
        };
        let head = readable::<Head>(HEAD, &bytes)?;
        if let Some(found) = head.as_ref().map(|head| head.cluster)
            && found != wanted
        {
            return Err(RestoreError::OtherCluster { found, wanted });
        }
        let seen = Some(seen);
        Ok(Self { head, seen })
    }
}

fn check_one_cluster(cached: &[CachedCatalog]) -> Result<(), RestoreError> {
    for pair in cached.windows(2) {
        let [one, other] = pair else { continue };
        if one.identity.id != other.identity.id {
            return Err(RestoreError::Several {
                one: one.source.clone(),
                other: other.source.clone(),
                ids: [one.identity.id, other.identity.id],
            });
        }
    }
    Ok(())
}

fn check_identity(catalog: &dyn Catalog, wanted: ClusterId) -> Result<(), RestoreError> {
    let read = catalog.get(IDENTITY).map_err(|error| io(IDENTITY, error))?;
    let Some((bytes, _)) = read else {
        return Ok(());
    };
    match readable::<Identity>(IDENTITY, &bytes)? {
        Some(identity) if identity.id != wanted => Err(RestoreError::OtherCluster {
            found: identity.id,
            wanted,
        }),
        _ => Ok(()),
    }
}

/// Parses a document; `None` if it is damaged. A document of a newer format is an error, because it
/// must not be replaced.
fn readable<T: serde::de::DeserializeOwned>(
    name: &str,
    bytes: &[u8],
) -> Result<Option<T>, RestoreError> {
    match parsed(name, bytes) {
        Ok(content) => Ok(Some(content)),
        Err(error @ ModelError::Newer { .. }) => Err(CatalogError::from(error).into()),
        Err(_) => Ok(None),
    }
}

/// Returns whether all documents that a head names exist.
fn is_whole(catalog: &dyn Catalog, head: &Head) -> Result<bool, RestoreError> {
    match Documented(catalog).model(head, &Model::default()) {
        Ok(_) => Ok(check_names(catalog)?),
        Err(CatalogError::Lost(_) | CatalogError::Model(ModelError::Damaged { .. })) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the identity exists, which nodes need to start.
fn check_names(catalog: &dyn Catalog) -> Result<bool, RestoreError> {
    match Documented(catalog).identity() {
        Ok(_) => Ok(true),
        Err(CatalogError::NoCluster | CatalogError::Model(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn put_back(catalog: &dyn Catalog, name: &str, bytes: Vec<u8>) -> Result<(), RestoreError> {
    let found = catalog.get(name).map_err(|error| io(name, error))?;
    let seen = match found {
        Some((found, _)) if found == bytes => return Ok(()),
        Some((_, seen)) => Some(seen),
        None => None,
    };
    let put = catalog.put_if(name, bytes.into(), seen.as_ref());
    match put.map_err(|error| io(name, error))? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Changed => Err(RestoreError::Changed),
    }
}

fn io(name: &str, source: io::Error) -> RestoreError {
    let name = name.to_owned();
    CatalogError::Io { name, source }.into()
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
