//! One node's part in all protocols: it follows, it may have the seat, and coordinates while it
//! does.

mod copies;
mod follower;

use std::collections::BTreeMap;

pub use copies::{Copies, VersionPlace};
pub use follower::{Follower, FollowerAction, FollowerEvent, Serve};

use crate::coordinator::{Coordinator, CoordinatorAction, CoordinatorEvent};
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

/// Of heartbeats of this node to itself.
const OWN: u64 = 1 << 63;

/// See the module's text.
#[derive(Debug)]
pub struct Node {
    follower: Follower,
    seat: Seat,
    coordinator: Option<Coordinator>,
    peer: HostPort,
    dice: Dice,
    is_leaving: bool,
}

impl Node {
    pub fn new(now: Now, cluster: ClusterId, who: Introduction, seed: u64) -> Self {
        let (peer, name) = (who.peer.clone(), who.name.clone());
        Self {
            seat: Seat::new(cluster, name, peer.clone(), who.incarnation),
            follower: Follower::new(now, cluster, who),
            coordinator: None,
            peer,
            dice: Dice::new(seed),
            is_leaving: false,
        }
    }

    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    pub fn handle(&mut self, now: Now, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        match event {
            NodeEvent::Tick => {
                self.seat
                    .want(self.follower.is_alone(now) || self.coordinator.is_some());
                self.tell_seat(now, SeatEvent::Tick, &mut actions);
                self.tell_coordinator(now, CoordinatorEvent::Tick, &mut actions);
                self.tell_follower(now, FollowerEvent::Tick, &mut actions);
            }
            NodeEvent::Follower(event) => {
                self.is_leaving |= matches!(event, FollowerEvent::Leave);
                self.tell_follower(now, event, &mut actions);
            }
            NodeEvent::Seat(event) => self.tell_seat(now, event, &mut actions),
            NodeEvent::Coordinator(event) => self.tell_coordinator(now, event, &mut actions),
            NodeEvent::Beat { token, beat } => self.hear(now, token, beat, &mut actions),
            NodeEvent::Nudged => {
                if self.coordinator.is_some() {
                    actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
                }
            }
        }
        actions
    }

    fn hear(&mut self, now: Now, token: u64, beat: Box<Beat>, actions: &mut Vec<NodeAction>) {
        if self.coordinator.is_some() {
            let event = CoordinatorEvent::Beat { token, beat };
            return self.tell_coordinator(now, event, actions);
        }
        let holder = self.seat.holder().map(|holder| holder.peer.clone());
        let coordinator = holder.filter(|peer| *peer != self.peer);
        let reply = Box::new(BeatReply::NotCoordinator { coordinator });
        let action = CoordinatorAction::Reply { token, reply };
        actions.push(NodeAction::Coordinator(action));
    }

    fn tell_seat(&mut self, now: Now, event: SeatEvent, actions: &mut Vec<NodeAction>) {
        for action in self.seat.handle(now, event) {
            match action {
                SeatAction::Won => {
                    let (coordinator, begun) = Coordinator::new(now, self.dice.draw());
                    self.coordinator = Some(coordinator);
                    actions.extend(begun.into_iter().map(NodeAction::Coordinator));
                }
                SeatAction::Lost => self.coordinator = None,
                SeatAction::Rung => {
                    actions.push(NodeAction::Coordinator(CoordinatorAction::ListRequests));
                }
                action => actions.push(NodeAction::Seat(action)),
            }
        }
        if let Some(holder) = self.seat.holder() {
            let event = FollowerEvent::Coordinator(holder.peer.clone());
            self.tell_follower(now, event, actions);
        }
    }

    fn tell_coordinator(
        &mut self,
        now: Now,
        event: CoordinatorEvent,
        actions: &mut Vec<NodeAction>,
    ) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let mut own = Vec::new();
        for action in coordinator.handle(now, event) {
            match action {
                CoordinatorAction::Reply { token, reply } if token & OWN != 0 => {
                    let seq = token & !OWN;
                    own.push(FollowerEvent::Reply { seq, reply });
                }
                action => actions.push(NodeAction::Coordinator(action)),
            }
        }
        for event in own {
            self.tell_follower(now, event, actions);
        }
    }

    fn tell_follower(&mut self, now: Now, event: FollowerEvent, actions: &mut Vec<NodeAction>) {
        for action in self.follower.handle(now, event) {
            match action {
                FollowerAction::Beat { to, beat } if to == self.peer => {
                    let (seq, token) = (beat.seq, beat.seq | OWN);
                    if self.coordinator.is_none() {
                        // It was the coordinator, or is not yet.
                        let reply = Box::new(BeatReply::NotCoordinator { coordinator: None });
                        let event = FollowerEvent::Reply { seq, reply };
                        actions.extend(
                            self.follower
                                .handle(now, event)
                                .into_iter()
                                .map(NodeAction::Follower),
                        );
                        continue;
                    }
                    let event = CoordinatorEvent::Beat { token, beat };
                    self.tell_coordinator(now, event, actions);
                }
                FollowerAction::Left => {
                    self.seat.retire();
                    actions.push(NodeAction::Follower(FollowerAction::Left));
                    self.tell_seat(now, SeatEvent::Tick, actions);
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
