//! Reads and writes heads, models and the identity in a catalog.

use std::io;

use bytes::Bytes;
use forebay_io::advice;
use thiserror::Error;

use super::{Catalog, SeenTag, WriteOutcome};
use crate::model::{DocRef, Documents, Head, Identity, Model, ModelError, parsed, written};
use crate::time::Timing;

pub const IDENTITY: &str = "identity";
pub const HEAD: &str = "head";

/// Advice to the operator when the catalog is lost.
pub const RESTORE: &str =
    "running nodes keep serving; forebay cluster restore rebuilds the catalog from what they know";

/// The reason why a catalog cannot be read or written.
#[derive(Debug, Error)]
pub enum CatalogError {
    #[error("the catalog cannot be reached: {name}: {source}{}", advice(source))]
    Io { name: String, source: io::Error },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(
        "the store belongs to no cluster: look whether it is the right one, and mounted, if it is a directory; only \
         where there never was a cluster, forebay cluster create makes one; a server alone does without --cluster"
    )]
    NoCluster,
    #[error("the store belongs to cluster '{0}' already")]
    Exists(String),
    #[error(
        "the cluster's catalog has no head: look whether the store is mounted, if it is a directory; {RESTORE}"
    )]
    NoHead,
    #[error("the catalog names document {0}, which does not exist: {RESTORE}")]
    Lost(DocRef),
    #[error("the cluster's catalog is lost, and the store is a cluster's: {RESTORE}")]
    AllLost,
}

/// A typed view of a catalog's heads, models and identity.
#[derive(Debug, Clone, Copy)]
pub struct Documented<'a>(pub &'a dyn Catalog);

impl Documented<'_> {
    fn get(&self, name: &str) -> Result<Option<(Bytes, SeenTag)>, CatalogError> {
        let io = |source| CatalogError::Io {
            name: name.to_owned(),
            source,
        };
        self.0.get(name).map_err(io)
    }

    pub fn identity(&self) -> Result<Identity, CatalogError> {
        let (bytes, _) = self.get(IDENTITY)?.ok_or(CatalogError::NoCluster)?;
        Ok(parsed(IDENTITY, &bytes)?)
    }

    /// Creates an empty cluster, with a catalog of this identity's format. If an earlier call
    /// failed, a repeated call completes it. REQUIRES: the format can express the timing.
    pub fn create(&self, identity: &Identity, timing: Timing) -> Result<Identity, CatalogError> {
        let (id, format) = (identity.id, identity.forebay_cluster);
        if self.get(HEAD)?.is_none() {
            let mut count = 0;
            let mut model = Model::default();
            model.work.edit().timing = timing;
            let (documents, roots) = model.write(format, || {
                count += 1;
                DocRef::new(&format!("0-{id}-{count}"))
            })?;
            self.put_documents(&documents)?;
            let head = Head {
                forebay_head: format,
                roots,
                ..Head::first(id, id.0)
            };
            self.put_head(&head, None)?;
        }
        match self.put(IDENTITY, written(format, identity)?, None)? {
            WriteOutcome::Done(_) => Ok(identity.clone()),
            WriteOutcome::Changed => Err(CatalogError::Exists(self.identity()?.name)),
        }
    }

    pub fn head(&self) -> Result<(Head, SeenTag), CatalogError> {
        let (bytes, seen) = self.get(HEAD)?.ok_or(CatalogError::NoHead)?;
        Ok((parsed(HEAD, &bytes)?, seen))
    }

    /// Reads the model of a head. Documents that `known` contains are not read again.
    pub fn model(&self, head: &Head, known: &Model) -> Result<Model, CatalogError> {
        let mut documents = Documents::new();
        loop {
            match Model::read(head, &documents, known) {
                Err(ModelError::Lacks(names)) => {
                    for name in names {
                        let bytes = self.document(&name)?;
                        documents.insert(name, bytes);
                    }
                }
                model => return Ok(model?),
            }
        }
    }

    pub fn document(&self, name: &DocRef) -> Result<Vec<u8>, CatalogError> {
        let found = self.get(&format!("d/{name}"))?;
        let (bytes, _) = found.ok_or_else(|| CatalogError::Lost(name.clone()))?;
        Ok(bytes.to_vec())
    }

    pub fn put_documents(&self, documents: &Documents) -> Result<(), CatalogError> {
        for (name, bytes) in documents {
            // Names are unique. An existing document was written by an earlier try.
            self.put(&format!("d/{name}"), bytes.clone(), None)?;
        }
        Ok(())
    }

    pub fn put_head(
        &self,
        head: &Head,
        seen: Option<&SeenTag>,
    ) -> Result<WriteOutcome, CatalogError> {
        self.put(HEAD, written(head.forebay_head, head)?, seen)
    }

    fn put(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&SeenTag>,
    ) -> Result<WriteOutcome, CatalogError> {
        let io = |source| CatalogError::Io {
            name: name.to_owned(),
            source,
        };
        self.0.put_if(name, bytes.into(), seen).map_err(io)
    }
}
