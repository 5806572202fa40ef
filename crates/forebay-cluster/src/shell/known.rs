//! The documents that a node knows: for other nodes, and for itself after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Disk, replace_file};
use parking_lot::Mutex;

use crate::ids::ClusterId;
use crate::model::{DocRef, Documents, Head, Identity, Model, ModelError, parsed, written};
use crate::recovery::restore::CachedCatalog;

const IDENTITY: &str = "identity";

/// The number of tries to read files that a running node may change.
const READS: usize = 5;

/// Documents by name, kept while a known head names them.
#[derive(Debug, Default)]
pub struct KnownDocuments(Mutex<Documents>);

impl KnownDocuments {
    pub fn add(&self, documents: Documents) {
        self.0.lock().extend(documents);
    }

    pub fn get(&self, names: &BTreeSet<DocRef>) -> BTreeMap<DocRef, String> {
        let known = self.0.lock();
        let found = names.iter().filter_map(|name| {
            let bytes = known.get(name)?;
            Some((name.clone(), String::from_utf8(bytes.clone()).ok()?))
        });
        found.collect()
    }

    pub fn all(&self) -> Documents {
        self.0.lock().clone()
    }

    /// Keeps the documents of a model, and forgets others.
    pub fn keep(&self, names: &BTreeSet<DocRef>) {
        self.0.lock().retain(|name, _| names.contains(name));
    }
}

/// The saved catalog of a node, from which it can serve without a store.
#[derive(Debug, Clone)]
pub struct SavedCatalog {
    pub disk: Arc<dyn Disk>,
    /// A directory of the node's cache.
    pub dir: PathBuf,
}

impl SavedCatalog {
    /// Saves the identity of the node's cluster if it is not saved yet. A node whose disk is full
    /// starts nevertheless.
    pub fn note_identity(&self, identity: &Identity) -> io::Result<()> {
        if self.identity().as_ref() == Some(identity) {
            return Ok(());
        }
        self.disk.create_dir_all(&self.dir)?;
        let bytes = written(identity.forebay_cluster, identity).map_err(io::Error::other)?;
        replace_file(&*self.disk, &self.dir.join(IDENTITY), &bytes)
    }

    pub fn identity(&self) -> Option<Identity> {
        let bytes = self.disk.read(&self.dir.join(IDENTITY)).ok()?;
        parsed(IDENTITY, &bytes).ok()
    }

    /// Saves a head and its documents. Removes documents that it does not name.
    pub fn note(&self, head: &Head, documents: &Documents) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        let files = self.disk.list(&self.dir)?;
        for (name, bytes) in documents {
            if !files.iter().any(|file| file == name.as_str()) {
                replace_file(&*self.disk, &self.dir.join(name.as_str()), bytes)?;
            }
        }
        let bytes = written(head.forebay_head, head).map_err(io::Error::other)?;
        replace_file(&*self.disk, &self.dir.join("head"), &bytes)?;
        for file in files {
            if file != "head" && file != IDENTITY && !documents.contains_key(&DocRef::new(&file)) {
                match self.disk.remove(&self.dir.join(&file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the newest revision of a cluster that this node has known; 0 if none.
    pub fn revision(&self, cluster: ClusterId) -> u64 {
        let bytes = self.disk.read(&self.dir.join("head"));
        let head = bytes
            .ok()
            .and_then(|bytes| parsed::<Head>("head", &bytes).ok());
        let head = head.filter(|head| head.cluster == cluster);
        head.map_or(0, |head| head.revision)
    }

    /// Returns the saved catalog, to restore a lost one. A running node may change it meanwhile.
    pub fn cached_catalog(&self) -> Result<CachedCatalog, String> {
        let source = self.dir.display();
        let identity = self.identity();
        let identity =
            identity.ok_or_else(|| format!("{source}: no node has noted its cluster here"))?;
        let mut read = self.read();
        for _ in 1..READS {
            if read.is_ok() {
                break;
            }
            read = self.read();
        }
        let (head, model, documents) = read?;
        if head.cluster != identity.id {
            return Err(format!("{source}: its head is of another cluster"));
        }
        Ok(CachedCatalog {
            source: source.to_string(),
            identity,
            head,
            model,
            documents,
        })
    }

    pub fn read(&self) -> Result<(Head, Model, Documents), String> {
        let text = |error: &dyn std::fmt::Display| format!("{}: {error}", self.dir.display());
        let bytes = self
            .disk
            .read(&self.dir.join("head"))
            .map_err(|error| text(&error))?;
        let head: Head = parsed("head", &bytes).map_err(|error| text(&error))?;
        let mut documents = Documents::new();
        loop {
            match Model::read(&head, &documents, &Model::default()) {
                Ok(model) => return Ok((head, model, documents)),
                Err(ModelError::Lacks(names)) => {
                    for name in names {
                        let read = self.disk.read(&self.dir.join(name.as_str()));
                        documents.insert(name, read.map_err(|error| text(&error))?);
                    }
                }
                Err(error) => return Err(text(&error)),
            }
        }
    }
}
