//! Heads and models in a catalog.

use std::io;

use bytes::Bytes;
use thiserror::Error;

use super::{Catalog, SeenTag, Written};
use crate::ids::ClusterId;
use crate::model::{
    CLUSTER_FORMAT, DocRef, Documents, Head, Identity, Model, ModelError, parsed, written,
};

pub const IDENTITY: &str = "identity";
pub const HEAD: &str = "head";

/// Why a catalog cannot be read or written.
#[derive(Debug, Error)]
pub enum CatalogError {
    #[error("the catalog cannot be reached: {name}: {source}")]
    Io { name: String, source: io::Error },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(
        "the store belongs to no cluster: make one (forebay cluster create), or leave --cluster away"
    )]
    NoCluster,
    #[error("the store belongs to cluster '{0}' already")]
    Exists(String),
    #[error(
        "the catalog names document {0}, and there is none: restore the folder cluster of the store from a \
         backup; the nodes serve on meanwhile"
    )]
    Lost(DocRef),
}

/// Heads, models and the identity of a catalog.
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

    /// Makes a cluster, of `first`. Done again after a failure, it goes on.
    pub fn create(
        &self,
        id: ClusterId,
        name: &str,
        unix_ms: u64,
        mut first: Model,
    ) -> Result<Identity, CatalogError> {
        let identity = Identity {
            forebay_cluster: CLUSTER_FORMAT,
            id,
            name: name.to_owned(),
            created_unix_ms: unix_ms,
        };
        if self.get(HEAD)?.is_none() {
            let mut count = 0;
            let (documents, roots) = first.write(|| {
                count += 1;
                DocRef::new(&format!("0-{id}-{count}"))
            })?;
            self.put_documents(&documents)?;
            let mut head = Head::first(id, id.0);
            head.roots = roots;
            self.put(HEAD, written(&head)?, None)?;
        }
        match self.put(IDENTITY, written(&identity)?, None)? {
            Written::Done(_) => Ok(identity),
            Written::Changed => Err(CatalogError::Exists(self.identity()?.name)),
        }
    }

    pub fn head(&self) -> Result<(Head, SeenTag), CatalogError> {
        let (bytes, seen) = self.get(HEAD)?.ok_or(CatalogError::NoCluster)?;
        Ok((parsed(HEAD, &bytes)?, seen))
    }

    /// The model of a head. What `known` has of it is not read again.
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
            // Names are unique: what is there was put by an earlier try.
            self.put(&format!("d/{name}"), bytes.clone(), None)?;
        }
        Ok(())
    }

    pub fn put_head(&self, head: &Head, seen: Option<&SeenTag>) -> Result<Written, CatalogError> {
        self.put(HEAD, written(head)?, seen)
    }

    fn put(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&SeenTag>,
    ) -> Result<Written, CatalogError> {
        let io = |source| CatalogError::Io {
            name: name.to_owned(),
            source,
        };
        self.0.put_if(name, bytes.into(), seen).map_err(io)
    }
}
