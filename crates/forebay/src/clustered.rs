//! Stores of clusters: the catalog beside the tables, and what commands ask of it.

use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use forebay_cluster::catalog::{Catalog, DirectoryCatalog, ObjectCatalog};
use forebay_cluster::client::{ClusterClient, ClusterPointers, RolloutWish};
use forebay_objects::{Address, Objects, Patience};

use crate::cluster_handle::{Drawing, is_no_cluster, nudge, watcher};
use crate::context::Context;

impl Context {
    /// The catalog of --store, whether a cluster was made there or not.
    pub fn catalog(&self, patience: Patience) -> anyhow::Result<Arc<dyn Catalog>> {
        if !self.is_remote() {
            let path = self.store_path()?;
            let (disk, clock) = (self.disk.clone(), self.clock.clone());
            return Ok(Arc::new(DirectoryCatalog::new(disk, clock, &path)));
        }
        let url = self.remote_url()?;
        let address = Address::parse(url)?;
        let objects = Objects::connect(&address, patience);
        let objects = objects.with_context(|| format!("{url}: cannot use it"))?;
        Ok(Arc::new(ObjectCatalog::new(objects)))
    }

    /// The pointers of the cluster that --store belongs to, which has to be there.
    pub fn cluster(&self) -> anyhow::Result<Arc<ClusterPointers>> {
        let opened = self.clustered.opened.lock();
        let mut opened = opened.unwrap_or_else(PoisonError::into_inner);
        if let Some(pointers) = &*opened {
            return Ok(Arc::clone(pointers));
        }
        let catalog = self.catalog(Patience::Short)?;
        let client = ClusterClient::open(catalog, self.clock.clone(), self.random.clone())?;
        let client = client.nudging(Arc::new(nudge));
        let drawing = self.clustered.drawing.lock();
        let client = match &*drawing.unwrap_or_else(PoisonError::into_inner) {
            Some(drawing) => client.watched_by(watcher(drawing)),
            None => client,
        };
        let pointers = Arc::new(ClusterPointers::new(client));
        *opened = Some(Arc::clone(&pointers));
        Ok(pointers)
    }

    /// Whether --store belongs to a cluster.
    pub fn is_clustered(&self) -> anyhow::Result<bool> {
        match self.cluster() {
            Err(error) if is_no_cluster(&error) => Ok(false),
            cluster => cluster.map(|_| true),
        }
    }

    /// The same, of a command that rolls out as `wish` says, and draws; `None` where the store
    /// belongs to no cluster, or there is none.
    pub fn cluster_if_any(
        &self,
        wish: RolloutWish,
        drawing: &Drawing,
    ) -> anyhow::Result<Option<Arc<ClusterPointers>>> {
        let drawn = self.clustered.drawing.lock();
        *drawn.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(drawing));
        match self.cluster() {
            Err(error) if is_no_cluster(&error) => Ok(None),
            Err(error) => Err(error),
            Ok(pointers) => {
                pointers.wish(wish);
                Ok(Some(pointers))
            }
        }
    }
}
