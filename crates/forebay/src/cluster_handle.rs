//! A command's handle to the cluster of its store, and the progress of its rollouts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_cluster::catalog::CatalogError;
use forebay_cluster::client::{ActiveWork, ClusterPointers, Watcher};
use forebay_cluster::model::{
    LoadStage, MoveStage, Phase, PlanGoal, Rebalance, Rollout, TableLoad,
};
use forebay_cluster::status::{PlanStatus, Status};
use forebay_engine::StoreError;
use forebay_load::progress::{Progress, Unit};

use crate::printing::human;

/// The drawing of a command's progress.
pub type Drawing = Arc<Box<dyn Progress + Send>>;

/// The known state of the cluster of a context's store.
#[derive(Default)]
pub struct ClusterContext {
    pub opened: Mutex<Option<Arc<ClusterPointers>>>,
    pub drawing: SharedDrawing,
}

/// The drawing of a command, once there is one.
pub type SharedDrawing = Arc<Mutex<Option<Drawing>>>;

/// Returns whether opening failed because the store belongs to a cluster.
pub fn is_in_cluster(error: &anyhow::Error) -> bool {
    matches!(store_error(error), Some(StoreError::InCluster { .. }))
}

/// Returns whether opening failed because there is no store.
pub fn is_no_store(error: &anyhow::Error) -> bool {
    matches!(store_error(error), Some(StoreError::NoStore { .. }))
}

/// Returns the store's own error, in a directory or in object storage.
pub fn store_error(error: &anyhow::Error) -> Option<&StoreError> {
    let opened = error.downcast_ref::<forebay_objects::OpenError>();
    let remote = opened.and_then(|error| match error {
        forebay_objects::OpenError::Store(error) => Some(error),
        _ => None,
    });
    error.downcast_ref::<StoreError>().or(remote)
}

pub fn is_no_cluster(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CatalogError::NoCluster))
}

/// The progress that was reported last.
#[derive(Default)]
struct ReportedSteps {
    rollout: Option<(u64, Phase, Option<String>)>,
    /// The rollout that is being prepared, by the id of its request: the bytes expected at most,
    /// and the bytes fetched.
    preparing: Option<(String, u64, u64)>,
    /// A plan, by the id of its request, and the bytes copied.
    moved: Option<(String, u64)>,
    /// The plan that has completed its moves, by the id of its request.
    moved_all: Option<String>,
    /// The partitions that the plan splits, and how many were reported, while it splits.
    cut: Option<(u64, u64)>,
    /// A load, by the id of its request, its stage, and the reported bytes.
    loaded: Option<(String, LoadStage, u64)>,
}

/// Reports the progress of rollouts and plans, each step once.
pub fn watcher(drawing: &SharedDrawing) -> Watcher {
    let reported: Mutex<ReportedSteps> = Mutex::default();
    let drawing = Arc::clone(drawing);
    Arc::new(move |under_way: ActiveWork<'_>| {
        let drawing = drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(drawing) = &*drawing else {
            return;
        };
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        match under_way {
            ActiveWork::Rollout(rollout) => reported.rollout(rollout, drawing),
            ActiveWork::Rebalance(plan) => reported.rebalance(plan, drawing),
            ActiveWork::Load(load) => reported.load(load, drawing),
            ActiveWork::Status(status) => reported.status(status, drawing),
        }
    })
}

impl ReportedSteps {
    fn rollout(&mut self, rollout: &Rollout, drawing: &Drawing) {
        let step = Some((rollout.id.0, rollout.phase, rollout.reason.clone()));
        if self.rollout == step {
            return;
        }
        let is_new = self
            .rollout
            .as_ref()
            .is_none_or(|(id, _, _)| *id != rollout.id.0);
        self.rollout = step;
        let nodes = rollout.participants.len();
        self.preparing =
            (rollout.phase == Phase::Preparing).then(|| (rollout.request.to_string(), 0, 0));
        match rollout.phase {
            Phase::Preparing => {
                drawing.stage("preparing on all nodes", None, Unit::Bytes);
                if is_new {
                    let nodes = human::counted(nodes as u64, "node");
                    let most = Duration::from_millis(rollout.options.deadline_ms);
                    drawing.message(&format!(
                        "waiting for {nodes}: a node without progress for {} is left out, or ends this (--deadline of a push)",
                        human::duration(most)
                    ));
                }
                if let Some(reason) = &rollout.reason {
                    drawing.message(&format!(
                        "it waits: {reason}; start the nodes that are down"
                    ));
                }
            }
            Phase::Committed => {
                drawing.stage("swapping", None, Unit::Bytes);
                let nodes = human::counted(nodes as u64, "node");
                drawing.message(&format!("{nodes} verified their copies; committed"));
            }
            Phase::Reverting => drawing.stage("taking it back", None, Unit::Bytes),
            Phase::Confirmed | Phase::Aborted | Phase::Reverted => {}
        }
    }

    fn rebalance(&mut self, plan: &Rebalance, drawing: &Drawing) {
        let request = plan.request.to_string();
        // Its last part, while previous replicas keep answering, runs beside the next step.
        if self.moved_all.as_ref() == Some(&request) {
            return;
        }
        if self.moved.is_none() {
            let what = match plan.goal {
                PlanGoal::Insert { .. } => "splitting and moving partitions",
                _ => "moving",
            };
            drawing.stage(what, Some(plan.copied_bytes), Unit::Bytes);
            self.moved = Some((request.clone(), 0));
        }
        let bytes = match plan.has_moved() && plan.stage != MoveStage::Stopped {
            true => plan.copied_bytes,
            false => plan.done_bytes,
        };
        self.moved_so_far(bytes, drawing);
        if plan.has_moved() {
            (self.moved, self.moved_all) = (None, Some(request));
        }
    }

    fn load(&mut self, load: &TableLoad, drawing: &Drawing) {
        let (request, stage) = (load.request.to_string(), load.stage);
        let known = self.loaded.as_ref();
        if known.is_some_and(|known| (&known.0, known.1) == (&request, stage)) {
            return;
        }
        // The previous stage is over, whatever was reported of it.
        if let Some((before, _, reported)) = known
            && *before == request
            && stage != LoadStage::Stopped
        {
            drawing.advance(load.draft.bytes.saturating_sub(*reported));
        }
        self.loaded = Some((request, stage, 0));
        match stage {
            LoadStage::Fetching => {
                let bytes = Some(load.draft.bytes);
                drawing.stage("copying it to all replicas", bytes, Unit::Bytes);
            }
            LoadStage::Adding => drawing.stage("adding", Some(load.draft.bytes), Unit::Bytes),
            LoadStage::Done | LoadStage::Stopped => {}
        }
    }

    /// Reports the progress of a load in proportion to the replicas that have it.
    fn loaded_so_far(&mut self, status: &Status, drawing: &Drawing) {
        let Some((request, stage, before)) = &mut self.loaded else {
            return;
        };
        let mut loads = status.loads.iter();
        let load = loads.find(|load| load.request == *request && load.stage == *stage);
        let counts = load.and_then(|load| Some((load.bytes, load.progress?)));
        let Some((bytes, counts)) = counts else {
            return;
        };
        let parts = u128::from(bytes) * counts.ready_replicas as u128;
        let bytes = parts.checked_div(counts.replicas as u128).unwrap_or(0) as u64;
        drawing.advance(bytes.saturating_sub(*before));
        *before = bytes.max(*before);
    }

    fn moved_so_far(&mut self, bytes: u64, drawing: &Drawing) {
        if let Some((_, before)) = &mut self.moved {
            drawing.advance(bytes.saturating_sub(*before));
            *before = bytes.max(*before);
        }
    }

    /// Reports the partitions that a plan has split, before it moves anything.
    fn cut_so_far(&mut self, plan: &PlanStatus, drawing: &Drawing) {
        let left = plan.splits_left as u64;
        let (all, before) = match self.cut {
            Some(cut) => cut,
            None if left == 0 => return,
            None => {
                drawing.stage("splitting partitions", Some(left), Unit::Partitions);
                (left, 0)
            }
        };
        let done = all.saturating_sub(left).max(before);
        drawing.advance(done - before);
        self.cut = (left > 0).then_some((all, done));
        if left == 0 {
            drawing.stage("moving partitions", Some(plan.copied_bytes), Unit::Bytes);
        }
    }

    /// Reports the bytes fetched, which the catalog does not have.
    fn status(&mut self, status: &Status, drawing: &Drawing) {
        self.loaded_so_far(status, drawing);
        if let (Some(plan), Some((request, _))) = (&status.plan, &self.moved)
            && plan.request == *request
        {
            self.cut_so_far(plan, drawing);
            self.moved_so_far(plan.done_bytes, drawing);
        }
        let Some((request, most, come)) = &mut self.preparing else {
            return;
        };
        let mut rollouts = status
            .tables
            .iter()
            .filter_map(|table| table.rollout.as_ref());
        let Some(rollout) = rollouts.find(|rollout| rollout.request == *request) else {
            return;
        };
        // A node that is ready reports no bytes any more.
        let left = rollout.total_bytes.saturating_sub(rollout.done_bytes);
        if rollout.total_bytes > *most {
            (*most, *come) = (rollout.total_bytes, 0);
            drawing.stage("preparing on all nodes", Some(*most), Unit::Bytes);
        }
        let now = most.saturating_sub(left);
        drawing.advance(now.saturating_sub(*come));
        *come = now.max(*come);
    }
}
