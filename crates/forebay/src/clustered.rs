//! Stores of clusters: the catalog beside the tables, and what commands ask of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use forebay_cluster::HostPort;
use forebay_cluster::catalog::{Catalog, CatalogError, DirectoryCatalog, ObjectCatalog};
use forebay_cluster::client::{ClusterClient, ClusterPointers, RolloutWish, Watcher};
use forebay_cluster::model::{Model, Phase, Rollout};
use forebay_engine::StoreError;
use forebay_load::progress::{Progress, Unit};
use forebay_objects::{Address, Objects, Patience, page};

use crate::context::Context;

/// How long a node is waited for that is told of a request: it would find it by itself.
const NUDGE: Duration = Duration::from_millis(300);

/// What draws the progress of a command.
pub type Drawing = Arc<Box<dyn Progress + Send>>;

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

/// What a context knows of the cluster of its store.
#[derive(Default)]
pub struct Clustered {
    opened: Mutex<Option<Arc<ClusterPointers>>>,
    drawing: Mutex<Option<Drawing>>,
}

/// Whether opening failed because the store belongs to a cluster.
pub fn is_in_cluster(error: &anyhow::Error) -> bool {
    let opened = error.downcast_ref::<forebay_objects::OpenError>();
    let remote = opened.and_then(|error| match error {
        forebay_objects::OpenError::Store(error) => Some(error),
        _ => None,
    });
    let store = error.downcast_ref::<StoreError>().or(remote);
    matches!(store, Some(StoreError::InCluster { .. }))
}

fn is_no_cluster(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CatalogError::NoCluster))
}

/// Tells how far rollouts are, each step once.
fn watcher(drawing: &Drawing) -> Watcher {
    let told: Mutex<Option<(u64, Phase, Option<String>)>> = Mutex::default();
    let drawing = Arc::clone(drawing);
    Arc::new(move |rollout: &Rollout, model: &Model| {
        let step = Some((rollout.id.0, rollout.phase, rollout.reason.clone()));
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == step {
            return;
        }
        *told = step;
        let nodes = rollout.participants.len();
        match rollout.phase {
            Phase::Preparing | Phase::Prepared => {
                drawing.stage("preparing on all nodes", None, Unit::Bytes);
                if let Some(reason) = &rollout.reason {
                    drawing.message(&format!(
                        "it waits: {reason}; start the nodes that are down"
                    ));
                }
            }
            Phase::Committed => {
                drawing.stage("swapping", None, Unit::Bytes);
                drawing.message(&format!(
                    "{nodes} of {} nodes have proved what they hold; committed",
                    model.all_nodes().count()
                ));
            }
            Phase::Reverting => drawing.stage("taking it back", None, Unit::Bytes),
            Phase::Confirmed | Phase::Aborted | Phase::Reverted => {}
        }
    })
}

/// Tells a node's HTTP port that there are requests. Whatever comes of it: the coordinator finds
/// them.
fn nudge(node: &HostPort) {
    // It answers with TLS where it has it; then the coordinator hears of them a little later.
    _ = page(&format!("http://{node}"), "v1/cluster/nudge", NUDGE);
}
