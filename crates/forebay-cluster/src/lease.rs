//! The coordinator's seat: a lease in the catalog.
//!
//! The holder rewrites the document every [`Timing::lease_renewal`]. A node that wants the lease,
//! and has seen the document unchanged for [`Timing::coordinator_lease`] by its own clock, takes it
//! by a conditional write: one of several gets it. Nothing depends on there being one holder only:
//! what a coordinator writes is conditional on the head that it read, and a new one raises the
//! head's term first.
//!
//! A holder that most nodes are silent to may be cut off from them, and reach the catalog all the
//! same. It offers the seat and goes on: who hears nothing of it may take the seat at once. Where
//! those nodes are dead nobody takes it, and nothing has changed.
//!
//! A client that asks for something rings: it rewrites the document with another `bell`. The holder
//! notices when it renews, so that being asked costs an idle coordinator no request of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, SeenTag, WriteOutcome};
use crate::ids::{ClusterId, HostPort, NodeName};
use crate::model::{parsed_as, written};
use crate::time::{Now, Timing};

/// Between a renewal of the holder and this, one write may be overtaken.
const RINGS: usize = 3;

/// The name of the document.
pub const COORDINATOR_LEASE: &str = "lease";

/// Has the holder look for requests when it renews. That it cannot be told is no error.
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

/// The document `seat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseDocument {
    pub cluster: ClusterId,
    pub holder: NodeName,
    /// Where the holder answers.
    pub peer: HostPort,
    /// The holder's incarnation.
    pub incarnation: u64,
    pub renewal: u64,
    /// Given up: anybody may take it at once.
    pub released: bool,
    /// Changed by who wants requests to be looked at.
    pub bell: u64,
    /// Most nodes are silent to the holder: a node that hears nothing of it may take the seat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offered: bool,
}

impl LeaseDocument {
    /// Whether the holder has done something since.
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
    /// Somebody else wrote it.
    Changed,
    /// The catalog did not answer; a write may have been done.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    Read,
    Put(LeaseDocument, Option<SeenTag>),
    /// This node is the coordinator from now on.
    Won,
    /// It is no longer.
    Lost,
    /// Requests are to be looked at.
    Rung,
}

/// One node's view of the seat. At most one action of the catalog is under way.
#[derive(Debug)]
pub struct CoordinatorLease {
    me: LeaseDocument,
    state: LeaseHolder,
    known: Option<KnownLease>,
    /// Whether this node should try to get it.
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
    /// When the holder was first seen to have done this.
    since: Duration,
    /// When this process was first seen to be the holder.
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

    /// Who holds it, as far as is known.
    pub fn holder(&self) -> Option<&LeaseDocument> {
        let known = self.known.as_ref().map(|known| &known.document);
        known.filter(|document| !document.released)
    }

    /// Says whether this node does without a coordinator, so that it looks, and takes the seat when
    /// it is free.
    pub fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Says whether the holder should offer the seat to nodes that hear nothing of it.
    pub fn offer(&mut self, offered: bool) {
        self.offered = offered;
    }

    /// Gives the seat up for good: this node stops.
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
                // Somebody rang, or took it: the next look tells.
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
            // A renewal was refused, or its outcome is unknown: again.
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
        // This node wants the seat, so it hears nothing of the holder. Where it has just learnt who
        // that is it tries to reach it first.
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
            "renewal {} of the seat comes behind {}",
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
            // Others may have taken it by now.
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
            "the seat is looked at while {:?} is under way",
            self.busy
        );
        self.busy = Some(Busy::Reading);
        actions.push(LeaseAction::Read);
    }

    fn put(&mut self, now: Now, bell: u64, seen: Option<SeenTag>, actions: &mut Vec<LeaseAction>) {
        debug_assert!(
            self.busy.is_none(),
            "the seat is written while {:?} is under way",
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
