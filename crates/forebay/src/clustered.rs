//! Stores of clusters: the catalog beside the tables, and what commands ask of it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use forebay_cluster::HostPort;
use forebay_cluster::catalog::{Catalog, CatalogError, DirectoryCatalog, ObjectCatalog};
use forebay_cluster::client::{ClusterClient, ClusterPointers, RolloutDraft};
use forebay_engine::live::LiveError;
use forebay_engine::{StoreError, TableName};
use forebay_objects::{Address, Objects, Patience};

use crate::cluster_handle::{
    Drawing, is_in_cluster, is_no_cluster, is_no_store, store_error, watcher,
};
use crate::context::Context;

impl Context {
    /// Returns the catalog of --store, whether a cluster was created there or not.
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

    /// Returns servers by name and address of their HTTP: the named ones, or the nodes of the
    /// cluster that --store belongs to, if any.
    pub fn servers(&self, named: &[HostPort]) -> anyhow::Result<Vec<(String, HostPort)>> {
        if !named.is_empty() {
            // A server that is named twice is asked once.
            let named: BTreeMap<String, &HostPort> =
                named.iter().map(|at| (at.to_string(), at)).collect();
            return Ok(named
                .into_iter()
                .map(|(name, at)| (name, at.clone()))
                .collect());
        }
        match self.is_clustered() {
            Ok(true) => {}
            Ok(false) => return Ok(Vec::new()),
            Err(error) if is_no_store(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let (_, model) = self.cluster()?.client().model()?;
        let nodes = model.all_nodes();
        let nodes = nodes.filter_map(|node| Some((node.name.to_string(), node.http.clone()?)));
        Ok(nodes.collect())
    }

    /// Returns the pointers of the cluster that --store belongs to, which must exist.
    pub fn cluster(&self) -> anyhow::Result<Arc<ClusterPointers>> {
        let opened = self.clustered.opened.lock();
        let mut opened = opened.unwrap_or_else(PoisonError::into_inner);
        if let Some(pointers) = &*opened {
            return Ok(Arc::clone(pointers));
        }
        let is_given = match self.is_remote() {
            true => self.is_given_to_cluster()?,
            false => None,
        };
        if is_given == Some(false) {
            return Err(CatalogError::NoCluster.into());
        }
        let catalog = self.catalog(Patience::Short)?;
        let client = ClusterClient::open(catalog, self.clock.clone(), self.random.clone());
        let client = match client {
            Err(CatalogError::NoCluster) if self.is_given_to_cluster()? == Some(true) => {
                return Err(CatalogError::AllLost.into());
            }
            client => client?,
        };
        let (notified, asked) = (self.node_pages()?, self.node_pages()?);
        let client = client.nudging(Arc::new(move |node: &HostPort| notified.notify(node)));
        let client = client.asking(Arc::new(move |node: &HostPort| asked.status(node)));
        let client = client.watched_by(watcher(&self.clustered.drawing));
        let pointers = Arc::new(ClusterPointers::new(client));
        *opened = Some(Arc::clone(&pointers));
        Ok(pointers)
    }

    /// Returns whether the store's own file says that it belongs to a cluster, whatever happened to
    /// the catalog. `None`: there is no store.
    fn is_given_to_cluster(&self) -> anyhow::Result<Option<bool>> {
        match self.open_plainly() {
            Ok(_) => Ok(Some(false)),
            Err(error) if is_in_cluster(&error) => Ok(Some(true)),
            Err(error) if is_no_store(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As `cluster`, for a command that draws its progress.
    pub fn cluster_drawn(&self, drawing: &Drawing) -> anyhow::Result<Arc<ClusterPointers>> {
        let drawn = self.clustered.drawing.lock();
        *drawn.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(drawing));
        self.cluster()
    }

    /// Ends the drawing, before the result is printed.
    pub fn stop_drawing(&self, drawing: Drawing) {
        let drawn = self.clustered.drawing.lock();
        drop((
            drawn.unwrap_or_else(PoisonError::into_inner).take(),
            drawing,
        ));
    }

    /// Returns whether --store belongs to a cluster.
    pub fn is_clustered(&self) -> anyhow::Result<bool> {
        match self.cluster() {
            Err(error) if is_no_cluster(&error) => Ok(false),
            cluster => cluster.map(|_| true),
        }
    }

    /// As `cluster_drawn`, for a command that rolls out as `goal` says. `None` if the store belongs
    /// to no cluster, or does not exist.
    pub fn cluster_if_any(
        &self,
        goal: RolloutDraft,
        drawing: &Drawing,
    ) -> anyhow::Result<Option<Arc<ClusterPointers>>> {
        match self.cluster_drawn(drawing) {
            Err(error) if is_no_cluster(&error) => Ok(None),
            Err(error) => Err(error),
            Ok(pointers) => {
                pointers.goal(goal);
                Ok(Some(pointers))
            }
        }
    }

    /// Returns the versions of a table that were rolled back, as a cluster notes them.
    pub fn bad_versions(&self, table: &TableName) -> anyhow::Result<Vec<u64>> {
        if !self.is_clustered()? {
            return Ok(Vec::new());
        }
        let (_, model) = self.cluster()?.client().model()?;
        Ok(model
            .table(table)
            .map_or(Vec::new(), |entry| entry.bad.clone()))
    }

    /// Returns whether the cluster has a live table of this name: its nodes have it, and the store
    /// has nothing of it.
    pub fn is_live_in_cluster(&self, table: &TableName) -> anyhow::Result<bool> {
        if !self.is_clustered()? {
            return Ok(false);
        }
        let (_, model) = self.cluster()?.client().model()?;
        Ok(model
            .table(table)
            .is_some_and(|entry| entry.live().is_some()))
    }

    /// Returns the live tables of the cluster, if the store belongs to one.
    pub fn live_tables_of_cluster(&self) -> anyhow::Result<Vec<TableName>> {
        if !self.is_clustered()? {
            return Ok(Vec::new());
        }
        let (_, model) = self.cluster()?.client().model()?;
        let live = model
            .all_tables()
            .filter(|(_, entry)| entry.live().is_some());
        Ok(live.map(|(name, _)| name.clone()).collect())
    }

    /// Returns the error for a table that the store does not have but the nodes of its cluster do.
    pub fn of_cluster(&self, error: anyhow::Error) -> anyhow::Error {
        let missing = match (store_error(&error), error.downcast_ref()) {
            (Some(StoreError::NoTable { table }), _) | (_, Some(LiveError::NoTable { table })) => {
                table.clone()
            }
            _ => return error,
        };
        match self.is_live_in_cluster(&missing) {
            Ok(true) => anyhow::anyhow!(
                "{missing} is a live table of the cluster: its nodes have it, and the store has nothing of it; \
                 read and write it as a Redis client of a node"
            ),
            _ => error,
        }
    }
}
