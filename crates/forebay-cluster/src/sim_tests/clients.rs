//! Operators: they write requests into the catalog, notify nodes, and wait for answers.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;

use super::plans::draw_plan;
use super::shell::NO_VERSION;
use super::world::{MS, SECOND, World, table};
use crate::ids::NodeId;
use crate::model::{
    LoadStage, Model, MoveStage, OnFailure, Outcome, Phase, RequestId, RolloutOptions,
};
use crate::node::NodeEvent;
use crate::request::{Request, SwapTo};

/// An operator's request, and the answer.
#[derive(Debug, Clone)]
pub struct Op {
    pub id: RequestId,
    pub request: Request,
    pub report: Option<Report>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// Done; the exit code is 0 if no nodes were excluded, otherwise 6.
    Done {
        excluded: BTreeSet<NodeId>,
    },
    /// Aborted or reverted.
    Undone {
        phase: Phase,
        reason: String,
    },
    Refused(String),
}

/// Schedules operators' requests now and then, until the end.
pub fn schedule(world: &mut World, seconds: u64) {
    let end = world.now + seconds * SECOND;
    next_request(world, end, 0);
    next_gather(world);
}

fn next_gather(world: &mut World) {
    let pause = world.rng.between(200, 600) * MS;
    world.after(pause, |world| {
        let at = world.rng.below(world.hosts.len() as u64) as usize;
        world.gather(at);
        next_gather(world);
    });
}

fn next_request(world: &mut World, end: u64, version: u64) {
    let pause = world.rng.between(100, 9000) * MS;
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        let request = draw(world, version + 1);
        world.submit(request);
        next_request(world, end, version + 2);
    });
}

fn draw(world: &mut World, version: u64) -> Request {
    let (one, other) = (table(world.rng.below(3)).0, table(world.rng.below(3)).0);
    let options = RolloutOptions {
        deadline_ms: [12_000, 30_000, 60_000][world.rng.below(3) as usize],
        min_replicas: world.rng.chance(300).then_some(1),
        on_failure: match world.rng.chance(300) {
            true => OnFailure::Keep,
            false => OnFailure::Revert,
        },
    };
    match world.rng.below(100) {
        0..15 => Request::Rollback {
            tables: BTreeSet::from([one]),
            options,
        },
        15..20 => Request::Rollback {
            tables: BTreeSet::from([one, other]),
            options,
        },
        20..26 => match world.ops.last() {
            Some(op) => Request::Cancel {
                rollout: op.id.clone(),
            },
            None => Request::Drop { table: one },
        },
        26..29 => Request::Drop { table: one },
        29..41 => draw_plan(world).unwrap_or(Request::Rollback {
            tables: BTreeSet::from([one]),
            options,
        }),
        drawn => {
            let known = 1 + world.rng.below(version);
            let version = match drawn {
                41..50 => known,
                50..52 => NO_VERSION,
                _ => version,
            };
            let mut tables = BTreeMap::from([(one, swap_to(world, version))]);
            if world.rng.chance(400) {
                tables.insert(other, swap_to(world, version));
            }
            Request::Swap {
                tables,
                options,
                force: world.rng.chance(200),
            }
        }
    }
}

fn swap_to(world: &mut World, version: u64) -> SwapTo {
    SwapTo {
        version,
        replicas: None,
        keep: world.rng.between(1, 4) as usize,
        replaces: None,
    }
}

impl World {
    /// Runs an operator's command until it has ended.
    pub fn submit(&mut self, request: Request) -> usize {
        self.count("requests");
        let at = self.ops.len();
        let id = RequestId(format!("{:03}-{:x}", at, self.rng.below(1 << 16)));
        self.ops.push(Op {
            id,
            request,
            report: None,
        });
        self.put_request(at);
        at
    }

    fn put_request(&mut self, at: usize) {
        let Op { id, request, .. } = self.ops[at].clone();
        let reaches = !self.store.is_away && !self.store.is_read_only;
        self.operate(
            reaches,
            None,
            move |world| world.store.requests.insert(id, request),
            move |world, done| match done {
                Some(_) => {
                    world.notify_nodes();
                    world.watch(at);
                }
                None => world.after(SECOND, move |world| world.put_request(at)),
            },
        );
    }

    /// Notifies the nodes by the lease document, and sometimes each node directly.
    fn notify_nodes(&mut self) {
        if self.rng.chance(300) {
            for host in 0..self.hosts.len() {
                let life = self.life(host);
                self.notify(life, NodeEvent::Notified);
            }
        }
        let bell = self.rng.draw();
        let reaches = !self.store.is_away && !self.store.is_read_only;
        self.operate(
            reaches,
            None,
            move |world| {
                if let Some((mut lease, number)) = world.store.lease.clone() {
                    lease.bell = bell;
                    world
                        .store
                        .put_lease(lease, Some(&super::store::tag(number)));
                }
            },
            |world, done| {
                if done.is_none() {
                    world.after(SECOND, World::notify_nodes);
                }
            },
        );
    }

    fn watch(&mut self, at: usize) {
        let reaches = !self.store.is_away;
        self.operate(
            reaches,
            None,
            |world| world.store.current().clone(),
            move |world, model| {
                if let Some(model) = model {
                    world.seen(at, &model);
                }
                if world.ops[at].report.is_none() {
                    world.after(SECOND, move |world| world.watch(at));
                }
            },
        );
    }

    fn seen(&mut self, at: usize, model: &Model) {
        let id = self.ops[at].id.clone();
        let Some(answer) = model.work.answers.get(&id) else {
            return;
        };
        let report = match &answer.outcome {
            Outcome::Done => Report::Done {
                excluded: BTreeSet::new(),
            },
            Outcome::Survey(_) | Outcome::Reads(_) | Outcome::LiveState(_) => {
                self.count("surveys");
                Report::Done {
                    excluded: BTreeSet::new(),
                }
            }
            Outcome::Refused(problem) | Outcome::Busy(problem) => {
                self.count("refused");
                Report::Refused(problem.clone())
            }
            Outcome::Rebalance => {
                let mut plans = model.work.rebalances.iter();
                let Some(plan) = plans.find(|plan| plan.request == id) else {
                    return;
                };
                match plan.stage {
                    MoveStage::Done => {
                        self.count("plans done");
                        let excluded = BTreeSet::new();
                        Report::Done { excluded }
                    }
                    MoveStage::Stopped => {
                        self.count("plans stopped");
                        let reason = plan.reason.clone().unwrap_or_default();
                        Report::Refused(reason)
                    }
                    _ => return,
                }
            }
            Outcome::Load(number) => {
                let mut loads = model.work.loads.iter();
                let Some(load) = loads.find(|load| load.number == *number) else {
                    return self.fail(format!("the outcome of load {id} is not recorded"));
                };
                match load.stage {
                    LoadStage::Done => {
                        self.count("loads done");
                        let excluded = BTreeSet::new();
                        Report::Done { excluded }
                    }
                    LoadStage::Stopped => {
                        self.count("loads stopped");
                        Report::Refused(load.reason.clone().unwrap_or_default())
                    }
                    _ => return,
                }
            }
            Outcome::Rollout(rollout) => {
                let Some(rollout) = model.work.rollouts.get(rollout) else {
                    return self.fail(format!("the outcome of request {id} is not recorded"));
                };
                let tables = || rollout.tables.keys().cloned().collect::<Vec<_>>();
                let reason = rollout.reason.clone().unwrap_or_default();
                match rollout.phase {
                    Phase::Confirmed => {
                        self.reported(&tables(), rollout.committed, &rollout.excluded);
                        let excluded = rollout.excluded.clone();
                        Report::Done { excluded }
                    }
                    phase @ (Phase::Reverted | Phase::Aborted) => {
                        self.reported(&tables(), rollout.reverted, &rollout.excluded);
                        Report::Undone { phase, reason }
                    }
                    _ => return,
                }
            }
        };
        self.ops[at].report = Some(report);
    }

    fn reported(
        &mut self,
        tables: &[TableName],
        revision: Option<u64>,
        excluded: &BTreeSet<NodeId>,
    ) {
        for table in tables {
            let reported = self.checks.reported.entry(table.clone()).or_default();
            reported.extend(revision.map(|revision| (revision, excluded.clone())));
        }
    }
}
