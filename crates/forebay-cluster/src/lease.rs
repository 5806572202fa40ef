//! The coordinator lease: a document of the catalog that names the coordinator.
//!
//! The holder rewrites the document every [`Timing::lease_renewal`]. A node that wants the lease
//! waits until the document is unchanged for [`Timing::coordinator_lease`] by its own clock. Then
//! it takes the lease by a conditional write: if several nodes try, one succeeds. Safety does not
//! depend on there being only one holder. Each write of a coordinator is conditional on the head
//! that it read, and a new coordinator first raises the head's term.
//!
//! A holder that receives nothing from most nodes may be cut off from them, and still reach the
//! catalog. It offers the lease and continues as coordinator. A node that receives nothing from the
//! holder may then take the lease at once. If the silent nodes are dead, no node takes the lease,
//! and nothing changes.
//!
//! A client with a request rings: it rewrites the document with another `bell`. The holder notices
//! this when it renews the lease. So an idle coordinator sends no extra requests to the catalog to
//! look for client requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, SeenTag, WriteOutcome};
use crate::ids::{ClusterId, HostPort, NodeName};
use crate::model::{parsed_as, written};
use crate::time::{Now, Timing};

/// The number of attempts to ring. A renewal by the holder can overtake one write.
const RINGS: usize = 3;

/// The name of the document.
pub const COORDINATOR_LEASE: &str = "lease";

/// Makes the holder look for requests at its next renewal. Failing to ring is not an error.
pub fn ring(catalog: &dyn Catalog, bell: u64) {
    let rung = || -> Option<WriteOutcome> {
        let (bytes, seen) = catalog.get(COORDINATOR_LEASE).ok()??;
        let (format, lease) = parsed_as::<LeaseDocument>(COORDINATOR_LEASE, &bytes).ok()?;
        let bytes = written(format, &LeaseDocument { bell, ..lease }).ok()?;
        catalog
            .put_if(COORDINATOR_LEASE, bytes.into(), Some(&seen))
            .ok()
    };
    for _ in 0..RINGS {
        match rung() {
            Some(WriteOutcome::Changed) => {}
            Some(WriteOutcome::Done(_)) | None => return,
        }
    }
}

/// The content of the document `lease`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseDocument {
    pub cluster: ClusterId,
    pub holder: NodeName,
    /// The address of the holder.
    pub peer: HostPort,
    /// The holder's incarnation.
    pub incarnation: u64,
    pub renewal: u64,
    /// The holder has released the lease: any node may take it at once.
    pub released: bool,
    /// A number that clients change so that the holder looks for requests.
    pub bell: u64,
    /// Most nodes are silent to the holder: a node that receives nothing from it may take the
    /// lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offered: bool,
}

impl LeaseDocument {
    /// Returns whether the holder has renewed the lease or changed it since.
    fn is_renewed(&self, since: &Self) -> bool {
        (self.incarnation, self.renewal, self.released)
            != (since.incarnation, since.renewal, since.released)
    }
}

#[derive(Debug, Clone)]
pub enum LeaseEvent {
    Tick,
    Read(Option<(LeaseDocument, SeenTag)>),
    Put(SeenTag),
    /// Another node or client wrote the document.
    Changed,
    /// The catalog did not answer; a write may have taken effect.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    Read,
    Put(LeaseDocument, Option<SeenTag>),
    /// This node is the coordinator from now on.
    Won,
    /// This node is no longer the coordinator.
    Lost,
    /// The coordinator has to look for requests.
    Rung,
}

/// One node's view of the lease. It has at most one catalog operation in progress.
#[derive(Debug)]
pub struct CoordinatorLease {
    me: LeaseDocument,
    state: LeaseHolder,
    known: Option<KnownLease>,
    /// Whether this node should try to take the lease.
    wanted: bool,
    busy: Option<Busy>,
    next_look: Duration,
    retired: bool,
    offered: bool,
}

#[derive(Debug)]
struct KnownLease {
    document: LeaseDocument,
    seen: SeenTag,
    /// When this node first saw the document in its current state.
    since: Duration,
    /// When this node first saw the current process as the holder.
    met: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum LeaseHolder {
    Watching,
    Holding { renewed: Duration, bell: u64 },
}

#[derive(Debug)]
enum Busy {
    Reading,
    Putting {
        document: LeaseDocument,
        begun: Duration,
    },
}

impl CoordinatorLease {
    pub fn new(cluster: ClusterId, holder: NodeName, peer: HostPort, incarnation: u64) -> Self {
        Self {
            me: LeaseDocument {
                cluster,
                holder,
                peer,
                incarnation,
                renewal: 0,
                released: false,
                bell: 0,
                offered: false,
            },
            state: LeaseHolder::Watching,
            known: None,
            wanted: false,
            busy: None,
            next_look: Duration::ZERO,
            retired: false,
            offered: false,
        }
    }

    pub fn is_held(&self) -> bool {
        matches!(self.state, LeaseHolder::Holding { .. })
    }

    /// Returns the holder, as far as this node knows.
    pub fn holder(&self) -> Option<&LeaseDocument> {
        let known = self.known.as_ref().map(|known| &known.document);
        known.filter(|document| !document.released)
    }

    /// Sets whether this node needs a coordinator. If so, the node watches the lease and takes it
    /// when it is free.
    pub fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Sets whether the holder offers the lease to nodes that receive nothing from it.
    pub fn offer(&mut self, offered: bool) {
        self.offered = offered;
    }

    /// Releases the lease for good: this node stops.
    pub fn retire(&mut self) {
        self.retired = true;
    }

    pub fn handle(&mut self, now: Now, timing: Timing, event: LeaseEvent) -> Vec<LeaseAction> {
        let mut actions = Vec::new();
        match event {
            LeaseEvent::Tick => {}
            LeaseEvent::Read(found) => {
                self.busy = None;
                self.take_note(now, timing, found, &mut actions);
            }
            LeaseEvent::Put(seen) => self.done(now, seen, &mut actions),
            LeaseEvent::Changed => {
                // A client rang, or another node took the lease: the next read shows which.
                self.busy = None;
                self.next_look = now.monotonic;
                if self.is_held() {
                    self.busy = Some(Busy::Reading);
                    actions.push(LeaseAction::Read);
                }
            }
            LeaseEvent::Failed => {
                self.busy = None;
                self.next_look = now.monotonic + timing.retry();
            }
        }
        self.step(now, timing, &mut actions);
        actions
    }

    fn take_note(
        &mut self,
        now: Now,
        timing: Timing,
        found: Option<(LeaseDocument, SeenTag)>,
        actions: &mut Vec<LeaseAction>,
    ) {
        let Some((document, seen)) = found else {
            self.known = None;
            self.lose_unless(false, actions);
            if self.wanted && !self.retired {
                self.put(now, 0, None, actions);
            }
            return;
        };
        let is_mine = document.incarnation == self.me.incarnation && !document.released;
        self.lose_unless(is_mine, actions);
        if let LeaseHolder::Holding { bell, renewed } = &mut self.state {
            if *bell != document.bell {
                *bell = document.bell;
                actions.push(LeaseAction::Rung);
            }
            // The renewal was refused, or its outcome is unknown: renew again.
            *renewed = (*renewed).min(now.monotonic.saturating_sub(timing.lease_renewal()));
            self.me.renewal = self.me.renewal.max(document.renewal);
            self.next_look = now.monotonic;
        } else {
            self.next_look = now.monotonic + timing.lease_look();
        }
        let since = match &self.known {
            Some(known) if !document.is_renewed(&known.document) => known.since,
            _ => now.monotonic,
        };
        let met = match &self.known {
            Some(known) if document.incarnation == known.document.incarnation => known.met,
            _ => now.monotonic,
        };
        let is_old_self =
            document.holder == self.me.holder && document.peer == self.me.peer && !is_mine;
        // This node wants the lease, so it receives nothing from the holder. If it has only just
        // learned which node is the holder, it tries to reach that node first.
        let is_offered = document.offered && now.since(met) >= timing.heartbeat_lost();
        let is_over = now.since(since) >= timing.coordinator_lease();
        let is_free = document.released || is_old_self || is_offered || is_over;
        if is_free && self.wanted && !self.retired && !self.is_held() {
            self.put(now, document.bell, Some(seen.clone()), actions);
        }
        self.known = Some(KnownLease {
            document,
            seen,
            since,
            met,
        });
    }

    fn lose_unless(&mut self, is_mine: bool, actions: &mut Vec<LeaseAction>) {
        if self.is_held() && !is_mine {
            self.state = LeaseHolder::Watching;
            actions.push(LeaseAction::Lost);
        }
    }

    fn done(&mut self, now: Now, seen: SeenTag, actions: &mut Vec<LeaseAction>) {
        let Some(Busy::Putting { document, begun }) = self.busy.take() else {
            return;
        };
        debug_assert!(
            self.me.renewal < document.renewal,
            "renewal {} of the coordinator lease does not come after {}",
            document.renewal,
            self.me.renewal
        );
        self.me.renewal = document.renewal;
        let bell = document.bell;
        let released = document.released;
        self.known = Some(KnownLease {
            document,
            seen,
            since: now.monotonic,
            met: now.monotonic,
        });
        match (&mut self.state, released) {
            (_, true) => self.lose_unless(false, actions),
            (LeaseHolder::Holding { renewed, .. }, false) => *renewed = begun,
            (LeaseHolder::Watching, false) => {
                let renewed = begun;
                self.state = LeaseHolder::Holding { renewed, bell };
                actions.push(LeaseAction::Won);
            }
        }
    }

    fn step(&mut self, now: Now, timing: Timing, actions: &mut Vec<LeaseAction>) {
        if let LeaseHolder::Holding { renewed, .. } = self.state
            && now.since(renewed) >= timing.coordinator_lease()
        {
            // Another node may have taken it by now.
            self.state = LeaseHolder::Watching;
            self.known = None;
            actions.push(LeaseAction::Lost);
        }
        if self.busy.is_some() || now.monotonic < self.next_look {
            return;
        }
        match self.state {
            LeaseHolder::Holding { renewed, bell } => {
                let is_reported = |known: &KnownLease| known.document.offered == self.offered;
                let is_due = now.since(renewed) >= timing.lease_renewal()
                    || self.retired
                    || !self.known.as_ref().is_some_and(is_reported);
                match &self.known {
                    Some(known) if is_due => {
                        let seen = Some(known.seen.clone());
                        self.put(now, bell, seen, actions);
                    }
                    Some(_) => {}
                    None => self.read(actions),
                }
            }
            LeaseHolder::Watching if !self.wanted || self.retired => {}
            LeaseHolder::Watching => self.read(actions),
        }
    }

    fn read(&mut self, actions: &mut Vec<LeaseAction>) {
        debug_assert!(
            self.busy.is_none(),
            "the coordinator lease is read while {:?} is in progress",
            self.busy
        );
        self.busy = Some(Busy::Reading);
        actions.push(LeaseAction::Read);
    }

    fn put(&mut self, now: Now, bell: u64, seen: Option<SeenTag>, actions: &mut Vec<LeaseAction>) {
        debug_assert!(
            self.busy.is_none(),
            "the coordinator lease is written while {:?} is in progress",
            self.busy
        );
        let document = LeaseDocument {
            renewal: self.me.renewal + 1,
            released: self.retired,
            offered: self.offered,
            bell,
            ..self.me.clone()
        };
        self.busy = Some(Busy::Putting {
            document: document.clone(),
            begun: now.monotonic,
        });
        actions.push(LeaseAction::Put(document, seen));
    }
}
