//! One node's part in all protocols: it follows, it may have the seat, and coordinates while it
//! does.

mod alarm;
mod copies;
mod events;
mod follower;
mod said;
mod suspicions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use alarm::{Alarm, older};
pub use copies::{Copies, VersionPlace};
pub use events::{Activation, FollowerAction, FollowerEvent, Serve};
pub use follower::Follower;

use forebay_engine::TableName;

use crate::coordinator::{Coordinator, CoordinatorAction, CoordinatorEvent, CoordinatorSettings};
use crate::dice::Dice;
use crate::ids::{ClusterId, HostPort};
use crate::message::{Beat, BeatReply, Introduction};
use crate::seat::{Seat, SeatAction, SeatEvent};
use crate::time::Now;

/// What a node is told.
#[derive(Debug, Clone)]
pub enum NodeEvent {
    Tick,
    Follower(FollowerEvent),
    Seat(SeatEvent),
    Coordinator(CoordinatorEvent),
    /// Another node's heartbeat; the token is given back with the answer.
    Beat {
        token: u64,
        beat: Box<Beat>,
    },
    /// Somebody says that there are requests.
    Nudged,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAction {
    Follower(FollowerAction),
    Seat(SeatAction),
    Coordinator(CoordinatorAction),
}

/// Which part of the node is told something next.
enum Told {
    Follower(FollowerEvent),
    Seat(SeatEvent),
    Coordinator(CoordinatorEvent),
}

/// Of heartbeats of this node to itself.
const OWN: u64 = 1 << 63;

/// Hands a coordinator's action on; answers to this node's own heartbeats stay here.
fn answer(action: CoordinatorAction, todo: &mut VecDeque<Told>, actions: &mut Vec<NodeAction>) {
    match action {
        CoordinatorAction::Reply { token, reply } if token & OWN != 0 => {
            let seq = token & !OWN;
            todo.push_back(Told::Follower(FollowerEvent::Reply { seq, reply }));
        }
        action => actions.push(NodeAction::Coordinator(action)),
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Node {
    follower: Follower,
    seat: Seat,
    coordinator: Option<Coordinator>,
    peer: HostPort,
    dice: Dice,
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
            seat: Seat::new(cluster, name, peer.clone(), who.incarnation),
            follower: Follower::new(now, cluster, who),
            coordinator: None,
            peer,
            dice: Dice::new(seed),
            settings,
        }
    }

    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    /// Says which revision this node knew before it started.
    pub fn remember(&mut self, revision: u64, cached: BTreeSet<TableName>) {
        self.follower.remember(revision, cached);
    }

    /// What is wrong with the catalog itself.
    pub fn alarm(&self) -> Option<String> {
        let own = self.follower.alarm().problem().map(str::to_owned);
        let behind = || {
            let (found, newest) = self.coordinator.as_ref()?.behind()?;
            Some(older(found, newest))
        };
        own.or_else(behind)
    }

    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    pub fn handle(&mut self, now: Now, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        // A process that was stopped for a while finds heartbeats waiting. Before the first of them
        // it has to know that its lease is over: by its clock all nodes have been silent.
        self.seat
            .want(self.follower.is_alone(now) || self.coordinator.is_some());
        let coordinator = self.coordinator.as_ref();
        self.seat
            .offer(coordinator.is_some_and(|coordinator| coordinator.hears_few(now)));
        self.tell(now, Told::Seat(SeatEvent::Tick), &mut actions);
        match event {
            NodeEvent::Tick => {
                self.tell(now, Told::Coordinator(CoordinatorEvent::Tick), &mut actions);
                self.tell(now, Told::Follower(FollowerEvent::Tick), &mut actions);
            }
            NodeEvent::Follower(event) => self.tell(now, Told::Follower(event), &mut actions),
            NodeEvent::Seat(event) => self.tell(now, Told::Seat(event), &mut actions),
            NodeEvent::Coordinator(event) => self.tell(now, Told::Coordinator(event), &mut actions),
            NodeEvent::Beat { token, beat } => match self.coordinator {
                Some(_) => {
                    let event = CoordinatorEvent::Beat { token, beat };
                    self.tell(now, Told::Coordinator(event), &mut actions);
                }
                None => actions.push(self.lead_on(token)),
            },
            NodeEvent::Nudged if self.coordinator.is_some() => {
                actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
            }
            NodeEvent::Nudged => {}
        }
        actions
    }

    /// Tells a part of the node something, and the others what comes of it, one after the other.
    fn tell(&mut self, now: Now, told: Told, actions: &mut Vec<NodeAction>) {
        let mut todo = VecDeque::from([told]);
        while let Some(told) = todo.pop_front() {
            match told {
                Told::Follower(event) => self.tell_follower(now, event, &mut todo, actions),
                Told::Seat(event) => self.tell_seat(now, event, &mut todo, actions),
                Told::Coordinator(event) => self.tell_coordinator(now, event, &mut todo, actions),
            }
        }
    }

    /// The answer to a heartbeat that belongs to another node.
    fn lead_on(&self, token: u64) -> NodeAction {
        let holder = self.seat.holder().map(|holder| holder.peer.clone());
        let coordinator = holder.filter(|peer| *peer != self.peer);
        let reply = Box::new(BeatReply::NotCoordinator { coordinator });
        NodeAction::Coordinator(CoordinatorAction::Reply { token, reply })
    }

    fn tell_seat(
        &mut self,
        now: Now,
        event: SeatEvent,
        todo: &mut VecDeque<Told>,
        actions: &mut Vec<NodeAction>,
    ) {
        // Only what was just read is news: the node may have been told better since.
        let is_news = !matches!(event, SeatEvent::Tick);
        for action in self.seat.handle(now, self.follower.timing(), event) {
            match action {
                SeatAction::Won => {
                    let (mut coordinator, begun) =
                        Coordinator::new(now, self.dice.draw(), self.settings.clone());
                    coordinator.expect(self.follower.alarm().newest());
                    self.coordinator = Some(coordinator);
                    actions.extend(begun.into_iter().map(NodeAction::Coordinator));
                }
                SeatAction::Lost => {
                    let ended = self.coordinator.take().into_iter();
                    for action in ended.flat_map(Coordinator::dismiss) {
                        answer(action, todo, actions);
                    }
                }
                SeatAction::Rung => {
                    actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
                }
                action => actions.push(NodeAction::Seat(action)),
            }
        }
        debug_assert_eq!(
            self.coordinator.is_some(),
            self.seat.is_held(),
            "this node coordinates, or has the seat, and not both"
        );
        self.follower.coordinate(self.coordinator.is_some());
        if let Some(holder) = self.seat.holder().filter(|_| is_news) {
            let event = FollowerEvent::Coordinator(holder.peer.clone());
            todo.push_back(Told::Follower(event));
        }
    }

    fn tell_coordinator(
        &mut self,
        now: Now,
        event: CoordinatorEvent,
        todo: &mut VecDeque<Told>,
        actions: &mut Vec<NodeAction>,
    ) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        for action in coordinator.handle(now, event) {
            answer(action, todo, actions);
        }
    }

    fn tell_follower(
        &mut self,
        now: Now,
        event: FollowerEvent,
        todo: &mut VecDeque<Told>,
        actions: &mut Vec<NodeAction>,
    ) {
        for action in self.follower.handle(now, event) {
            match action {
                FollowerAction::Beat { to, beat } if to == self.peer => {
                    let (seq, token) = (beat.seq, beat.seq | OWN);
                    todo.push_back(match self.coordinator {
                        Some(_) => Told::Coordinator(CoordinatorEvent::Beat { token, beat }),
                        // It was the coordinator, or is not yet.
                        None => Told::Follower(FollowerEvent::Reply {
                            seq,
                            reply: Box::new(BeatReply::NotCoordinator { coordinator: None }),
                        }),
                    });
                }
                FollowerAction::Left => {
                    self.seat.retire();
                    actions.push(NodeAction::Follower(FollowerAction::Left));
                    todo.push_back(Told::Seat(SeatEvent::Tick));
                }
                action => actions.push(NodeAction::Follower(action)),
            }
        }
    }

    /// What is known of the tables here, for people.
    pub fn serving(&self) -> BTreeMap<String, u64> {
        let active = self.follower.active().iter();
        active
            .map(|(table, serve)| (table.to_string(), serve.version))
            .collect()
    }
}
