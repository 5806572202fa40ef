//! What a command holds of the cluster of its store, and tells of its rollouts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::catalog::CatalogError;
use forebay_cluster::client::{ClusterPointers, Watcher};
use forebay_cluster::model::{Phase, Rollout};
use forebay_engine::StoreError;
use forebay_load::progress::{Progress, Unit};
use forebay_objects::page;

use crate::human;

/// How long a node is waited for that is told of a request: it would find it by itself.
const NUDGE: Duration = Duration::from_millis(300);

/// What draws the progress of a command.
pub type Drawing = Arc<Box<dyn Progress + Send>>;

/// What a context knows of the cluster of its store.
#[derive(Default)]
pub struct Clustered {
    pub opened: Mutex<Option<Arc<ClusterPointers>>>,
    pub drawing: Mutex<Option<Drawing>>,
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

pub fn is_no_cluster(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CatalogError::NoCluster))
}

/// Tells how far rollouts are, each step once.
pub fn watcher(drawing: &Drawing) -> Watcher {
    let told: Mutex<Option<(u64, Phase, Option<String>)>> = Mutex::default();
    let drawing = Arc::clone(drawing);
    Arc::new(move |rollout: &Rollout| {
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
                let nodes = human::counted(nodes as u64, "node");
                drawing.message(&format!("{nodes} proved what they hold; committed"));
            }
            Phase::Reverting => drawing.stage("taking it back", None, Unit::Bytes),
            Phase::Confirmed | Phase::Aborted | Phase::Reverted => {}
        }
    })
}

/// Tells a node's HTTP port that there are requests. Whatever comes of it: the coordinator finds
/// them.
pub fn nudge(node: &HostPort) {
    // It answers with TLS where it has it; then the coordinator hears of them a little later.
    _ = page(&format!("http://{node}"), "v1/cluster/nudge", NUDGE);
}
