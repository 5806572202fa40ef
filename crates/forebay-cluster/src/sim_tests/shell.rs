//! Carries out the actions of the state machines, as a node's threads and sockets do.

use super::engine::{order_of, summary};
use super::plans::summaries;
use super::world::{Life, MS, World};
use crate::catalog::WriteOutcome;
use crate::coordinator::{CommitOutcome, CoordinatorAction, CoordinatorEvent};
use crate::lease::{LeaseAction, LeaseEvent};
use crate::message::BeatReply;
use crate::model::{Documents, Head};
use crate::node::{FollowerAction, FollowerEvent, NodeAction, NodeEvent};
use crate::planning::{KnownLoad, propose, propose_balance, surveyed};

/// A version that the store does not have.
pub const NO_VERSION: u64 = 999_999;

impl World {
    pub fn perform(&mut self, by: Life, action: NodeAction) {
        match action {
            NodeAction::Follower(action) => self.perform_follower(by, action),
            NodeAction::Lease(action) => self.perform_lease(by, action),
            NodeAction::Coordinator(action) => self.perform_coordinator(by, action),
        }
    }

    fn perform_follower(&mut self, by: Life, action: FollowerAction) {
        match action {
            FollowerAction::Beat { to, beat } => self.send_beat(by, &to, beat),
            FollowerAction::ReadHead => self.with_store(
                by,
                |world| world.store.head_and_tag().0,
                move |world, head| match head {
                    Some(head) => world.notify_follower(by, FollowerEvent::Head(Box::new(head))),
                    None => world.ask_for_head(by),
                },
            ),
            FollowerAction::Load { head } => self.load(by, *head),
            FollowerAction::Remember => {
                let pause = self.rng.between(1, 20) * MS;
                self.after(pause, move |world| world.remember(by));
            }
            FollowerAction::Prepare { place, ranges, .. } => self.prepare(by, place, ranges),
            FollowerAction::Forget { place } => self.forget(by, &place),
            FollowerAction::Activate(activating) => self.activate(by, activating),
            FollowerAction::Route => {}
            FollowerAction::Replicas(orders) => self.take_orders(by, *orders),
            // The simulated catalog is never lost.
            FollowerAction::Alarm(alarm) => assert_eq!(alarm, None),
            FollowerAction::OnIsolation(is_cut_off) => {
                self.count("cut offs");
                if let Some(process) = self.process(by) {
                    process.is_cut_off = is_cut_off;
                }
            }
            FollowerAction::Left => {
                self.count("leaves");
                let lease_has_time = 500 * MS;
                self.after(lease_has_time, move |world| {
                    if world.process(by).is_some() {
                        world.kill(by.host);
                        let pause = world.rng.between(100, 30_000) * MS;
                        world.after(pause, move |world| world.start(by.host));
                    }
                });
            }
            FollowerAction::Refused { problem } => {
                self.fail(format!("a node was refused: {problem}"));
            }
        }
    }

    pub fn notify_follower(&mut self, by: Life, event: FollowerEvent) {
        self.notify(by, NodeEvent::Follower(event));
    }

    /// Asks any other node for the head that it knows.
    fn ask_for_head(&mut self, by: Life) {
        let peer = self.rng.below(self.hosts.len() as u64) as usize;
        let known = self.hosts[peer]
            .process
            .as_ref()
            .filter(|_| !self.hosts[peer].paused);
        let known = known.and_then(|process| process.node.follower().known());
        let head = known.map(|(head, _)| Box::new(head.clone()));
        let (there, back) = (self.transit(by.host, peer), self.transit(peer, by.host));
        let event = match (head, there, back) {
            (Some(head), Some(_), Some(_)) if peer != by.host => FollowerEvent::HeadReported(head),
            _ => FollowerEvent::NoHead,
        };
        let pause = there.unwrap_or(500 * MS) + back.unwrap_or(500 * MS);
        self.after(pause, move |world| world.notify_follower(by, event));
    }

    /// Loads a head's documents from a node that has them, otherwise from the store.
    fn load(&mut self, by: Life, head: Head) {
        let peer = self.rng.below(self.hosts.len() as u64) as usize;
        let process = self.hosts[peer]
            .process
            .as_ref()
            .filter(|_| !self.hosts[peer].paused);
        let known = process.and_then(|process| process.node.follower().known());
        let has_it = known.is_some_and(|(known, _)| known.stamp == head.stamp);
        let path = (self.transit(by.host, peer), self.transit(peer, by.host));
        if let (true, (Some(there), Some(back))) = (has_it, path) {
            let model = self.store.model(&head).cloned();
            let event = loaded(head, model);
            return self.after(there + back, move |world| world.notify_follower(by, event));
        }
        self.with_store(
            by,
            |world| (world.store.model(&head).cloned(), head),
            move |world, found| {
                let event = found.map(|(model, head)| loaded(head, model));
                world.notify_follower(by, event.unwrap_or(FollowerEvent::NotLoaded));
            },
        );
    }

    fn remember(&mut self, by: Life) {
        let event = match self.hosts[by.host].disk.remembered.clone() {
            Some((head, model)) => FollowerEvent::Loaded {
                head: Box::new(head),
                model: Box::new(model),
                remembered: true,
            },
            None => FollowerEvent::NotLoaded,
        };
        self.count("remembered");
        self.notify_follower(by, event);
    }

    fn perform_lease(&mut self, by: Life, action: LeaseAction) {
        match action {
            LeaseAction::Read => self.with_store(
                by,
                |world| {
                    let lease = world.store.lease.clone();
                    lease.map(|(document, number)| (document, super::store::tag(number)))
                },
                move |world, found| {
                    let event = found.map_or(LeaseEvent::Failed, LeaseEvent::Read);
                    world.notify(by, NodeEvent::Lease(event));
                },
            ),
            LeaseAction::Put(document, seen) => self.write_store(
                by,
                move |world| world.store.put_lease(document, seen.as_ref()),
                move |world, written| {
                    let event = match written {
                        Some(WriteOutcome::Done(tag)) => LeaseEvent::Put(tag),
                        Some(WriteOutcome::Changed) => LeaseEvent::Changed,
                        None => LeaseEvent::Failed,
                    };
                    world.notify(by, NodeEvent::Lease(event));
                },
            ),
            LeaseAction::Won | LeaseAction::Lost | LeaseAction::Rung => {}
        }
    }

    pub fn notify_coordinator(&mut self, by: Life, event: CoordinatorEvent) {
        self.notify(by, NodeEvent::Coordinator(event));
    }

    fn perform_coordinator(&mut self, by: Life, action: CoordinatorAction) {
        match action {
            CoordinatorAction::Load => self.with_store(
                by,
                |world| {
                    let (head, seen) = world.store.head_and_tag();
                    (head, seen, world.store.current().clone())
                },
                move |world, found| {
                    let event = found.map(|(head, seen, model)| CoordinatorEvent::Loaded {
                        head: Box::new(head),
                        seen,
                        model: Box::new(model),
                    });
                    world.notify_coordinator(by, event.unwrap_or(CoordinatorEvent::NotLoaded));
                },
            ),
            CoordinatorAction::Commit {
                documents,
                head,
                seen,
            } => self.commit(by, documents, head, seen),
            CoordinatorAction::Reply { token, reply } => self.reply_checked(by, token, reply),
            CoordinatorAction::ReadSummary { table, version } => self.with_store(
                by,
                |_| (),
                move |world, found| {
                    let summary = match found {
                        Some(()) if version != NO_VERSION => {
                            Ok(summary(&table, order_of(&table), version))
                        }
                        Some(()) => Err("there is none".to_owned()),
                        None => Err("the store does not answer".to_owned()),
                    };
                    let event = CoordinatorEvent::Summary {
                        table,
                        version,
                        summary,
                    };
                    world.notify_coordinator(by, event);
                },
            ),
            CoordinatorAction::Plan {
                goal,
                model,
                survey,
            } => {
                let mut known = surveyed(&model, &survey, &[]);
                known.extend(summaries(&model));
                let plan = propose(&model, &known, &goal, 1 << 30);
                let plan = plan.map(|proposal| Box::new(proposal.plan));
                let plan = plan.map_err(|error| error.to_string());
                self.count("replaced");
                let pause = self.rng.between(1, 500) * MS;
                self.after(pause, move |world| {
                    world.notify_coordinator(by, CoordinatorEvent::Planned { goal, plan });
                });
            }
            CoordinatorAction::Balance {
                table,
                bounds,
                model,
                reads,
                survey,
            } => {
                let known = KnownLoad {
                    summaries: &summaries(&model),
                    reads: &reads,
                    survey: &survey,
                };
                let made = propose_balance(&model, known, &table, bounds).map(Box::new);
                self.count("balanced");
                let pause = self.rng.between(1, 500) * MS;
                self.after(pause, move |world| {
                    world.notify_coordinator(by, CoordinatorEvent::Balanced { table, made });
                });
            }
            CoordinatorAction::ListRequests => self.with_store(
                by,
                |world| world.store.requests.clone(),
                move |world, found| {
                    let event = found.map(CoordinatorEvent::Requests);
                    world.notify_coordinator(by, event.unwrap_or(CoordinatorEvent::NotListed));
                },
            ),
            CoordinatorAction::ForgetRequests(ids) => self.write_store(
                by,
                move |world| world.store.requests.retain(|id, _| !ids.contains(id)),
                |_, _| {},
            ),
        }
    }

    fn commit(
        &mut self,
        by: Life,
        documents: Documents,
        head: Box<Head>,
        seen: crate::catalog::SeenTag,
    ) {
        self.count("commits");
        let key = self.process(by).map_or(0, |process| process.terms_of);
        let (stamp, forced) = (head.stamp, self.wrong.overwrites);
        self.store.put_documents(&documents, &head);
        self.check_decision(by, &head);
        self.write_store(
            by,
            move |world| {
                let before = world.store.head.clone();
                let seen = if forced {
                    world.store.head_and_tag().1
                } else {
                    seen
                };
                let written = world.store.put_head(&head, &seen);
                if world.store.head != before {
                    world.check_commit(by, key, &before);
                    world.check_live(&before);
                }
                written
            },
            move |world, written| {
                let outcome = match written {
                    Some(WriteOutcome::Done(tag)) => CommitOutcome::Done(tag),
                    Some(WriteOutcome::Changed) => CommitOutcome::Conflict,
                    None => CommitOutcome::Unknown,
                };
                world.notify_coordinator(by, CoordinatorEvent::Wrote { stamp, outcome });
            },
        );
    }

    fn reply_checked(&mut self, by: Life, token: u64, reply: Box<BeatReply>) {
        if let BeatReply::Known {
            head: Some(head), ..
        } = &*reply
        {
            self.check_known(by, head);
        }
        self.reply(by, token, reply);
    }
}

fn loaded(head: Head, model: Option<crate::model::Model>) -> FollowerEvent {
    match model {
        Some(model) => FollowerEvent::Loaded {
            head: Box::new(head),
            model: Box::new(model),
            remembered: false,
        },
        None => FollowerEvent::NotLoaded,
    }
}
