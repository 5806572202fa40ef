//! Connects the state machine with the replicas of live tables.
//!
//! The reason for a replica is on the disk before the replica is created. A node that knew less
//! after a restart could create a peer again that has promised something.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::{debug, warn};

use super::Shell;
use crate::local::ReplicaWatch;
use crate::measures::reports::GroupReport;
use crate::model::{DocRef, Head};
use crate::node::{FollowerEvent, NodeEvent};
use crate::routing::live::ReplicaOrders;

/// Orders that wait until their head is saved.
#[derive(Debug, Default)]
pub struct WaitingOrders {
    orders: Mutex<SavedOrders>,
    /// Held while a head is being saved.
    noting: Mutex<()>,
}

#[derive(Debug, Default)]
struct SavedOrders {
    /// The stamp and the revision of the head that is saved on the disk.
    noted: Option<(u64, u64)>,
    /// The newest revision that had to be saved, even if the disk did not take it.
    newest: u64,
    orders: Option<ReplicaOrders>,
    /// The orders cannot be saved; existing replicas run meanwhile.
    run_meanwhile: bool,
}

/// A node as its replicas see it.
#[derive(Debug)]
struct ShellWatch(Weak<Shell>);

impl ReplicaWatch for ShellWatch {
    fn may_steer(&self) -> bool {
        let shell = self.0.upgrade();
        shell.is_some_and(|shell| {
            let now = shell.now();
            shell.node.lock().follower().may_steer(now)
        })
    }

    fn replicas_stand(&self, reports: Vec<GroupReport>, troubles: Vec<String>) {
        if let Some(shell) = self.0.upgrade() {
            let stand = FollowerEvent::Replicas { reports, troubles };
            shell.deliver(NodeEvent::Follower(stand));
        }
    }
}

impl WaitingOrders {
    /// Saves a head, one at a time. Ignores a head that is older than the saved one.
    pub fn note(&self, head: &Head, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _one_at_a_time = self.noting.lock();
        if self.is_past(head) {
            return Ok(());
        }
        self.orders.lock().newest = head.revision;
        write()?;
        self.is_noted(head);
        Ok(())
    }

    /// Records that this head is on the disk.
    pub fn is_noted(&self, head: &Head) {
        let mut orders = self.orders.lock();
        orders.noted = Some((head.stamp, head.revision));
        orders.newest = orders.newest.max(head.revision);
    }

    /// Returns whether the head is older than the newest one that had to be saved.
    fn is_past(&self, head: &Head) -> bool {
        self.orders.lock().newest > head.revision
    }
}

impl Shell {
    pub(super) fn watch_replicas(self: &Arc<Self>) {
        if let Some(replicas) = &self.parts.replicas {
            replicas.watched_by(Arc::new(ShellWatch(Arc::downgrade(self))));
        }
    }

    pub(super) fn order_replicas(self: &Arc<Self>, orders: ReplicaOrders) {
        let count = orders.replicas.len();
        match &self.parts.replicas {
            None if count > 0 => warn!(
                "{count} replicas of live tables are to be here, and this program runs none: use a newer one"
            ),
            None => {}
            // These orders are of the head that was read from the disk.
            Some(replicas) if orders.is_from_memory => {
                self.replica_orders.orders.lock().orders = None;
                replicas.carry_out(orders);
            }
            Some(_) => {
                {
                    let mut waiting = self.replica_orders.orders.lock();
                    (waiting.orders, waiting.run_meanwhile) = (Some(orders), false);
                }
                self.order_again();
            }
        }
    }

    /// Carries out waiting orders, if allowed.
    pub(super) fn order_again(self: &Arc<Self>) {
        let Some(replicas) = &self.parts.replicas else {
            return;
        };
        if self.replica_orders.orders.lock().orders.is_none() {
            return;
        }
        let (head, names) = {
            let node = self.node.lock();
            let Some((head, model)) = node.follower().known() else {
                return;
            };
            let names: BTreeSet<DocRef> = model.references().into_iter().collect();
            (head.clone(), names)
        };
        let mut waiting = self.replica_orders.orders.lock();
        if waiting.noted.is_some_and(|(stamp, _)| stamp == head.stamp) {
            if let Some(orders) = waiting.orders.take() {
                replicas.carry_out(orders);
            }
            return;
        }
        drop(waiting);
        self.note_again(head, names);
    }

    /// Tries once more to save the known head, unless a newer one is known meanwhile.
    fn note_again(self: &Arc<Self>, head: Head, names: BTreeSet<DocRef>) {
        self.background("forebay-note", move |shell| {
            let noted = shell.replica_orders.note(&head, || {
                let known = shell.known.all();
                let is_whole = names.iter().all(|name| known.contains_key(name));
                match is_whole {
                    true => shell.parts.remembered.note(&head, &known),
                    false => Err(io::Error::other("a newer one is being read")),
                }
            });
            if let Err(error) = noted {
                debug!(%error, "replicas wait until the catalog is noted here");
                if error.raw_os_error().is_some() {
                    shell.run_meanwhile(&error);
                }
            }
        });
    }

    /// Runs existing replicas although nothing can be saved, as on a full disk. Only created and
    /// removed replicas have to be known after a restart.
    fn run_meanwhile(&self, error: &io::Error) {
        let mut waiting = self.replica_orders.orders.lock();
        if waiting.run_meanwhile {
            return;
        }
        if let (Some(replicas), Some(orders)) = (&self.parts.replicas, &waiting.orders) {
            let dir = self.parts.remembered.dir.display();
            warn!(%error, %dir, "no replica is made or removed until there is room; those that are here run");
            replicas.carry_out(ReplicaOrders {
                is_from_memory: true,
                ..orders.clone()
            });
            waiting.run_meanwhile = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClusterId;

    fn head(revision: u64) -> Head {
        Head {
            revision,
            stamp: 100 + revision,
            ..Head::first(ClusterId(7), 1)
        }
    }

    #[test]
    fn a_head_read_late_does_not_replace_a_newer_one() {
        let orders = WaitingOrders::default();
        orders.note(&head(5), || Ok(())).unwrap();
        let late = || panic!("this drops what the newer head names");
        orders.note(&head(4), late).unwrap();
        assert_eq!(orders.orders.lock().noted, Some((105, 5)));
        let full = || Err(io::Error::other("the disk is full"));
        assert!(orders.note(&head(6), full).is_err());
        orders.note(&head(5), late).unwrap();
        assert_eq!(orders.orders.lock().noted, Some((105, 5)));
        orders.note(&head(6), || Ok(())).unwrap();
        assert_eq!(orders.orders.lock().noted, Some((106, 6)));
    }
}
