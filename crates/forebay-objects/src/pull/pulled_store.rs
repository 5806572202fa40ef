//! Applies the serving versions of a store in object storage to its cache.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::{Pointer, RunId, STORE_FILE, StoreError, Table, TableName};
use tracing::warn;

use super::PullError;
use super::fetch_version::{Fetcher, manifest_from};
use super::origin::{Origin, Origins};
use crate::announcing::pointer_name;
use crate::objects::{News, Objects};

/// A store in object storage with its cache.
#[derive(Debug)]
pub struct PulledStore {
    pub fetcher: Fetcher,
    pub objects: Objects,
    origin: Arc<dyn Origin>,
    /// How many versions of a table to keep.
    keep: usize,
}

/// A version that is complete in the cache, and may serve as its pointer in the store says.
#[derive(Debug)]
pub struct PulledVersion {
    here: Table,
    version: u64,
    pointer: Pointer,
    /// Whether it was fetched.
    came: bool,
    /// The count of [`Prepared`](super::Prepared).
    pub(super) repaired: u64,
}

impl PulledVersion {
    pub fn table(&self) -> &TableName {
        self.here.name()
    }

    pub fn version(&self) -> u64 {
        self.version
    }
}

impl PulledStore {
    pub fn new(fetcher: Fetcher, objects: Objects, keep: usize) -> Self {
        Self {
            fetcher,
            origin: Arc::new(objects.clone()),
            objects,
            keep,
        }
    }

    fn origins(&self) -> Origins<'static> {
        Origins::of(Arc::clone(&self.origin))
    }

    pub fn tables(&self) -> Result<Vec<TableName>, PullError> {
        let failed = |name: &str, source| PullError::Request {
            name: name.to_owned(),
            source,
        };
        // An empty or a wrong bucket is not a store without tables.
        let store = STORE_FILE;
        self.objects
            .get(store)
            .map_err(|source| failed(store, source))?;
        let names = self.objects.list("tables");
        let names = names.map_err(|source| failed("tables", source))?;
        Ok(names
            .iter()
            .filter_map(|name| TableName::new(name).ok())
            .collect())
    }

    /// Fetches the version of a table that serves in the store.
    pub fn prepare_serving(&self, table: &TableName) -> Result<PulledVersion, PullError> {
        let nothing = || {
            PullError::Store(StoreError::NothingServes {
                table: table.clone(),
            })
        };
        let name = pointer_name(table);
        let pointer = match self.objects.news(&name, None) {
            Ok(News::Content(bytes, _)) => parse_pointer(&name, &bytes)?,
            Ok(_) => {
                return Err(StoreError::NoTable {
                    table: table.clone(),
                }
                .into());
            }
            Err(source) => return Err(PullError::Request { name, source }),
        };
        let prepared = self.prepare(table, &pointer, &AtomicBool::new(false))?;
        prepared.ok_or_else(nothing)
    }

    /// Returns the version that the pointer names, if the cache has it already.
    fn here(
        &self,
        table: &TableName,
        pointer: &Pointer,
    ) -> Result<Option<PulledVersion>, PullError> {
        let local = self.fetcher.local();
        let (Some(version), Ok(here)) = (pointer.serving, local.table(table)) else {
            return Ok(None);
        };
        let manifest = manifest_from(&self.origins(), table, version)?;
        let is_here = here.has_installed(version, &manifest)?;
        Ok(is_here.then(|| PulledVersion {
            here,
            version,
            pointer: pointer.clone(),
            came: false,
            repaired: 0,
        }))
    }

    /// Fetches the version that the pointer names, and verifies it. It does not change what serves
    /// from the cache. `None`: the pointer names none.
    pub fn prepare(
        &self,
        table: &TableName,
        pointer: &Pointer,
        cancelled: &AtomicBool,
    ) -> Result<Option<PulledVersion>, PullError> {
        let Some(version) = pointer.serving else {
            return Ok(None);
        };
        if let Some(here) = self.here(table, pointer)? {
            return Ok(Some(here));
        }
        let origins = self.origins();
        let prepared = self.fetcher.prepare(table, version, &origins, cancelled)?;
        Ok(Some(PulledVersion {
            here: self.fetcher.local().table(table)?,
            version,
            pointer: pointer.clone(),
            came: true,
            repaired: prepared.repaired,
        }))
    }

    /// Makes a prepared version the serving one of the cache.
    pub fn activate(&self, pulled: &PulledVersion) -> Result<(), PullError> {
        let (here, table) = (&pulled.here, pulled.here.name());
        here.point_as(&pulled.pointer)?;
        if pulled.came {
            self.fetcher
                .shared
                .state
                .table(table, |state| state.pulled += 1);
            if let Err(error) = here.retain(self.keep) {
                warn!(%table, %error, "old versions were not removed");
            }
        }
        Ok(())
    }

    /// Makes the version of the pointer the serving one of the cache, if the cache has it, or if
    /// the pointer names none. Returns whether it did.
    pub fn activate_if_here(
        &self,
        table: &TableName,
        pointer: &Pointer,
    ) -> Result<bool, PullError> {
        if pointer.serving.is_none() {
            return Ok(true);
        }
        match self.here(table, pointer)? {
            Some(pulled) => self.activate(&pulled).map(|()| true),
            None => Ok(false),
        }
    }

    /// Calls [`Fetcher::repair`].
    pub fn repair(
        &self,
        table: &TableName,
        whole: bool,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        let origins = self.origins();
        self.fetcher.repair(table, whole, &origins, cancelled)
    }

    /// Calls [`Fetcher::repair_met`].
    pub fn repair_met(
        &self,
        table: &TableName,
        met: (u64, Vec<RunId>),
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        let origins = self.origins();
        self.fetcher.repair_met(table, met, &origins, cancelled)
    }
}

pub fn parse_pointer(name: &str, bytes: &[u8]) -> Result<Pointer, PullError> {
    Pointer::parse(bytes).map_err(|problem| PullError::Damaged {
        name: name.to_owned(),
        problem: problem.to_string(),
    })
}
