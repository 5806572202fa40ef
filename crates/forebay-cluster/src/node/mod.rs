//! The state machine of one node: a follower that may hold the lease and act as the coordinator.

mod alarm;
mod copies;
mod events;
mod follower;
mod reported_state;
mod suspicions;

use forebay_io::sim::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use alarm::{Alarm, older};
pub use copies::{Copies, VersionPlace};
pub use events::{Activation, FollowerAction, FollowerEvent, Serve};
pub use follower::Follower;

use forebay_engine::TableName;

use crate::coordinator::{Coordinator, CoordinatorAction, CoordinatorEvent, CoordinatorSettings};
use crate::ids::{ClusterId, HostPort};
use crate::lease::{CoordinatorLease, LeaseAction, LeaseEvent};
use crate::message::{Beat, BeatReply, Introduction};
use crate::time::Now;

/// An event for a node.
#[derive(Debug, Clone)]
pub enum NodeEvent {
    Tick,
    Follower(FollowerEvent),
    Lease(LeaseEvent),
    Coordinator(CoordinatorEvent),
    /// Another node's heartbeat; the answer returns the token.
    Beat {
        token: u64,
        beat: Box<Beat>,
    },
    /// A node or client reports new requests.
    Notified,
}

/// An action for the shell to carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAction {
    Follower(FollowerAction),
    Lease(LeaseAction),
    Coordinator(CoordinatorAction),
}

/// The part of the node that receives the next event.
enum NotifyTurn {
    Follower(FollowerEvent),
    Lease(LeaseEvent),
    Coordinator(CoordinatorEvent),
}

/// Marks the tokens of heartbeats of this node to itself.
const OWN: u64 = 1 << 63;

/// Passes on a coordinator's action. Answers to this node's own heartbeats stay inside the node.
fn answer(
    action: CoordinatorAction,
    todo: &mut VecDeque<NotifyTurn>,
    actions: &mut Vec<NodeAction>,
) {
    match action {
        CoordinatorAction::Reply { token, reply } if token & OWN != 0 => {
            let seq = token & !OWN;
            todo.push_back(NotifyTurn::Follower(FollowerEvent::Reply { seq, reply }));
        }
        action => actions.push(NodeAction::Coordinator(action)),
    }
}

/// The state machine of one node.
#[derive(Debug)]
pub struct Node {
    follower: Follower,
    lease: CoordinatorLease,
    coordinator: Option<Coordinator>,
    peer: HostPort,
    rng: Rng,
    settings: CoordinatorSettings,
}

impl Node {
    pub fn new(
        now: Now,
        cluster: ClusterId,
        who: Introduction,
        seed: u64,
        settings: CoordinatorSettings,
    ) -> Self {
        let (peer, name) = (who.peer.clone(), who.name.clone());
        Self {
            lease: CoordinatorLease::new(cluster, name, peer.clone(), who.incarnation),
            follower: Follower::new(now, cluster, who),
            coordinator: None,
            peer,
            rng: Rng(seed),
            settings,
        }
    }

    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    /// Sets the revision that this node knew before it started.
    pub fn remember(&mut self, revision: u64, cached: BTreeSet<TableName>) {
        self.follower.remember(revision, cached);
    }

    /// Returns the problem of the catalog itself.
    pub fn alarm(&self) -> Option<String> {
        let own = self.follower.alarm().problem().map(str::to_owned);
        let behind = || {
            let (found, newest) = self.coordinator.as_ref()?.behind()?;
            Some(older(found, newest))
        };
        own.or_else(behind)
    }

    pub fn lease(&self) -> &CoordinatorLease {
        &self.lease
    }

    pub fn handle(&mut self, now: Now, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        // A process that was stopped for a while finds waiting heartbeats. It has to check that its
        // lease is over before it handles the first: by its clock all nodes have been silent.
        self.lease
            .want(self.follower.is_alone(now) || self.coordinator.is_some());
        let coordinator = self.coordinator.as_ref();
        self.lease
            .offer(coordinator.is_some_and(|coordinator| coordinator.receives_few(now)));
        self.notify(now, NotifyTurn::Lease(LeaseEvent::Tick), &mut actions);
        match event {
            NodeEvent::Tick => {
                self.notify(
                    now,
                    NotifyTurn::Coordinator(CoordinatorEvent::Tick),
                    &mut actions,
                );
                self.notify(now, NotifyTurn::Follower(FollowerEvent::Tick), &mut actions);
            }
            NodeEvent::Follower(event) => {
                self.notify(now, NotifyTurn::Follower(event), &mut actions)
            }
            NodeEvent::Lease(event) => self.notify(now, NotifyTurn::Lease(event), &mut actions),
            NodeEvent::Coordinator(event) => {
                self.notify(now, NotifyTurn::Coordinator(event), &mut actions)
            }
            NodeEvent::Beat { token, beat } => match self.coordinator {
                Some(_) => {
                    let event = CoordinatorEvent::Beat { token, beat };
                    self.notify(now, NotifyTurn::Coordinator(event), &mut actions);
                }
                None => actions.push(self.lead_on(token)),
            },
            NodeEvent::Notified if self.coordinator.is_some() => {
                actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
            }
            NodeEvent::Notified => {}
        }
        actions
    }

    /// Passes an event to a part of the node, then the resulting events to the others, one after
    /// the other.
    fn notify(&mut self, now: Now, reported: NotifyTurn, actions: &mut Vec<NodeAction>) {
        let mut todo = VecDeque::from([reported]);
        while let Some(reported) = todo.pop_front() {
            match reported {
                NotifyTurn::Follower(event) => self.notify_follower(now, event, &mut todo, actions),
                NotifyTurn::Lease(event) => self.notify_lease(now, event, &mut todo, actions),
                NotifyTurn::Coordinator(event) => {
                    self.notify_coordinator(now, event, &mut todo, actions)
                }
            }
        }
    }

    /// Redirects a heartbeat to the coordinator.
    fn lead_on(&self, token: u64) -> NodeAction {
        let holder = self.lease.holder().map(|holder| holder.peer.clone());
        let coordinator = holder.filter(|peer| *peer != self.peer);
        let reply = Box::new(BeatReply::NotCoordinator { coordinator });
        NodeAction::Coordinator(CoordinatorAction::Reply { token, reply })
    }

    fn notify_lease(
        &mut self,
        now: Now,
        event: LeaseEvent,
        todo: &mut VecDeque<NotifyTurn>,
        actions: &mut Vec<NodeAction>,
    ) {
        // Only a lease just read is news: the node may know a newer coordinator by now.
        let is_news = !matches!(event, LeaseEvent::Tick);
        for action in self.lease.handle(now, self.follower.timing(), event) {
            match action {
                LeaseAction::Won => {
                    let (mut coordinator, begun) =
                        Coordinator::new(now, self.rng.next_u64(), self.settings.clone());
                    coordinator.expect(self.follower.alarm().newest());
                    self.coordinator = Some(coordinator);
                    actions.extend(begun.into_iter().map(NodeAction::Coordinator));
                }
                LeaseAction::Lost => {
                    let ended = self.coordinator.take().into_iter();
                    for action in ended.flat_map(Coordinator::dismiss) {
                        answer(action, todo, actions);
                    }
                }
                LeaseAction::Rung => {
                    actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
                }
                action => actions.push(NodeAction::Lease(action)),
            }
        }
        debug_assert_eq!(
            self.coordinator.is_some(),
            self.lease.is_held(),
            "a node is the coordinator if and only if it has the coordinator lease"
        );
        self.follower.coordinate(self.coordinator.is_some());
        if let Some(holder) = self.lease.holder().filter(|_| is_news) {
            let event = FollowerEvent::Coordinator(holder.peer.clone());
            todo.push_back(NotifyTurn::Follower(event));
        }
    }

    fn notify_coordinator(
        &mut self,
        now: Now,
        event: CoordinatorEvent,
        todo: &mut VecDeque<NotifyTurn>,
        actions: &mut Vec<NodeAction>,
    ) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        for action in coordinator.handle(now, event) {
            answer(action, todo, actions);
        }
    }

    fn notify_follower(
        &mut self,
        now: Now,
        event: FollowerEvent,
        todo: &mut VecDeque<NotifyTurn>,
        actions: &mut Vec<NodeAction>,
    ) {
        for action in self.follower.handle(now, event) {
            match action {
                FollowerAction::Beat { to, beat } if to == self.peer => {
                    let (seq, token) = (beat.seq, beat.seq | OWN);
                    todo.push_back(match self.coordinator {
                        Some(_) => NotifyTurn::Coordinator(CoordinatorEvent::Beat { token, beat }),
                        // This node was the coordinator, or is not yet.
                        None => NotifyTurn::Follower(FollowerEvent::Reply {
                            seq,
                            reply: Box::new(BeatReply::NotCoordinator { coordinator: None }),
                        }),
                    });
                }
                FollowerAction::Left => {
                    self.lease.retire();
                    actions.push(NodeAction::Follower(FollowerAction::Left));
                    todo.push_back(NotifyTurn::Lease(LeaseEvent::Tick));
                }
                action => actions.push(NodeAction::Follower(action)),
            }
        }
    }

    /// Returns the serving versions of this node, for people.
    pub fn serving(&self) -> BTreeMap<String, u64> {
        let active = self.follower.active().iter();
        active
            .map(|(table, serve)| (table.to_string(), serve.version))
            .collect()
    }
}
