//! Reads and writes the catalog for the state machine.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::TableName;
use serde::Serialize;
use tracing::{debug, info, warn};

use super::Shell;
use crate::catalog::{Documented, WriteOutcome};
use crate::coordinator::{CommitOutcome, Coordinator, CoordinatorAction, CoordinatorEvent};
use crate::lease::{COORDINATOR_LEASE, LeaseAction, LeaseDocument, LeaseEvent, ring};
use crate::measures::reads::BatchReads;
use crate::model::{
    Documents, Head, Model, ModelError, MovePlan, PlanGoal, RequestId, Survey, parsed, written,
};
use crate::node::{NodeEvent, VersionPlace};
use crate::planning::{
    BATCH_BYTES, BalanceBounds, BalanceProposal, KnownLoad, Summaries, propose, propose_balance,
    surveyed,
};
use crate::request::Request;

/// How long to ask the store for a manifest before the coordinator learns that it is unavailable.
const MANIFEST_PATIENCE: Duration = Duration::from_secs(60);
const MANIFEST_RETRY: Duration = Duration::from_millis(500);

impl Shell {
    pub(super) fn sit(self: &Arc<Self>, action: LeaseAction) {
        self.background("forebay-lease", move |shell| {
            let event = match &action {
                LeaseAction::Read => shell.read_lease(),
                LeaseAction::Put(document, seen) => {
                    let put = shell.written(document).and_then(|bytes| {
                        shell
                            .parts
                            .catalog
                            .put_if(COORDINATOR_LEASE, bytes.into(), seen.as_ref())
                    });
                    match put {
                        Ok(WriteOutcome::Done(seen)) => {
                            shell.log_catalog(None);
                            LeaseEvent::Put(seen)
                        }
                        Ok(WriteOutcome::Changed) => LeaseEvent::Changed,
                        Err(error) => shell.lease_failed(&error),
                    }
                }
                LeaseAction::Won | LeaseAction::Lost | LeaseAction::Rung => return,
            };
            shell.deliver(NodeEvent::Lease(event));
        });
    }

    /// Encodes a document in the catalog's format. If the node cannot read the head, because its
    /// program is too old or the head is lost, this fails. So it neither takes the lease nor asks
    /// for anything.
    fn written<T: Serialize>(&self, content: &T) -> io::Result<Vec<u8>> {
        let format = match self.known_format() {
            Some(format) => format,
            None => {
                let head = Documented(&*self.parts.catalog).head();
                head.map_err(io::Error::other)?.0.forebay_head
            }
        };
        written(format, content).map_err(io::Error::other)
    }

    fn known_format(&self) -> Option<u64> {
        let node = self.node.lock();
        let standing = node.coordinator().and_then(Coordinator::standing);
        let known = standing.or_else(|| node.follower().known());
        known.map(|(head, _)| head.forebay_head)
    }

    fn read_lease(&self) -> LeaseEvent {
        match self.parts.catalog.get(COORDINATOR_LEASE) {
            Ok(None) => LeaseEvent::Read(None),
            Ok(Some((bytes, seen))) => match parsed::<LeaseDocument>(COORDINATOR_LEASE, &bytes) {
                Ok(document) => LeaseEvent::Read(Some((document, seen))),
                // Taking a damaged lease costs only time: the head is written conditionally.
                Err(error @ ModelError::Damaged { .. }) => {
                    warn!(%error, "the coordinator lease is written again");
                    LeaseEvent::Read(Some((self.empty_lease(), seen)))
                }
                Err(error) => {
                    warn!(%error, "the coordinator lease cannot be read");
                    LeaseEvent::Failed
                }
            },
            Err(error) => self.lease_failed(&error),
        }
    }

    fn lease_failed(&self, error: &io::Error) -> LeaseEvent {
        self.log_catalog(Some(error));
        LeaseEvent::Failed
    }

    /// Returns a lease that any node may take.
    fn empty_lease(&self) -> LeaseDocument {
        LeaseDocument {
            cluster: self.parts.identity.id,
            holder: self.parts.who.name.clone(),
            peer: self.parts.who.peer.clone(),
            incarnation: 0,
            renewal: 0,
            released: true,
            bell: 0,
            offered: false,
        }
    }

    pub(super) fn coordinate(self: &Arc<Self>, action: CoordinatorAction) {
        self.background("forebay-catalog", move |shell| {
            let event = match action {
                CoordinatorAction::Load => shell.load_catalog(),
                CoordinatorAction::Commit {
                    documents,
                    head,
                    seen,
                } => shell.commit(documents, &head, &seen),
                CoordinatorAction::ReadSummary { table, version } => {
                    let place = (table, version);
                    let summary = shell.read_summary(&place);
                    let (table, version) = place;
                    CoordinatorEvent::Summary {
                        table,
                        version,
                        summary,
                    }
                }
                CoordinatorAction::Plan {
                    goal,
                    model,
                    survey,
                } => {
                    let plan = shell.plan(&model, &survey, &goal);
                    CoordinatorEvent::Planned { goal, plan }
                }
                CoordinatorAction::Balance {
                    table,
                    bounds,
                    model,
                    reads,
                    survey,
                } => {
                    let known = (&*model, &reads, &survey);
                    let made = shell.balanced(known, &table, bounds);
                    match &made {
                        Ok(made) => info!("{}", made.words),
                        Err(why) => info!(%table, "its load is not spread: {why}"),
                    }
                    let made = made.map(Box::new);
                    CoordinatorEvent::Balanced { table, made }
                }
                CoordinatorAction::ListRequests => match shell.read_requests() {
                    Ok(requests) => CoordinatorEvent::Requests(requests),
                    Err(error) => {
                        debug!(%error, "requests cannot be read now");
                        CoordinatorEvent::NotListed
                    }
                },
                CoordinatorAction::ForgetRequests(ids) => {
                    for id in ids {
                        // The next scan finds it again and removes it.
                        let _ = shell.parts.catalog.remove(&format!("requests/{id}"));
                    }
                    return;
                }
                CoordinatorAction::Reply { .. } => return,
            };
            shell.deliver(NodeEvent::Coordinator(event));
        });
    }

    fn load_catalog(&self) -> CoordinatorEvent {
        let catalog = Documented(&*self.parts.catalog);
        let known = self.known_model();
        let loaded = catalog.head().and_then(|(head, seen)| {
            let model = catalog.model(&head, &known)?;
            Ok((head, seen, model))
        });
        match loaded {
            Ok((head, seen, model)) => CoordinatorEvent::Loaded {
                head: Box::new(head),
                seen,
                model: Box::new(model),
            },
            Err(error) => {
                warn!(%error, "the coordinator cannot read the catalog");
                CoordinatorEvent::NotLoaded
            }
        }
    }

    fn commit(
        &self,
        documents: Documents,
        head: &Head,
        seen: &crate::catalog::SeenTag,
    ) -> CoordinatorEvent {
        let catalog = Documented(&*self.parts.catalog);
        let put = catalog
            .put_documents(&documents)
            .and_then(|()| catalog.put_head(head, Some(seen)));
        let outcome = match put {
            Ok(WriteOutcome::Done(seen)) => {
                self.known.add(documents);
                CommitOutcome::Done(seen)
            }
            Ok(WriteOutcome::Changed) => CommitOutcome::Conflict,
            Err(error) => {
                warn!(%error, "a change of the catalog is tried again");
                CommitOutcome::Unknown
            }
        };
        let stamp = head.stamp;
        CoordinatorEvent::Wrote { stamp, outcome }
    }

    /// Reads a version's summary. If the store is unavailable, retries for a while.
    fn read_summary(
        &self,
        place: &VersionPlace,
    ) -> Result<crate::routing::version::VersionSummary, String> {
        let clock = &self.parts.clock;
        let end = clock.monotonic() + MANIFEST_PATIENCE;
        loop {
            match self.parts.versions_at.summary(place) {
                Err(error)
                    if error.kind() != io::ErrorKind::NotFound && clock.monotonic() < end =>
                {
                    clock.sleep(MANIFEST_RETRY);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err("the store has no such version".to_owned());
                }
                read => return read.map_err(|error| error.to_string()),
            }
        }
    }

    fn balanced(
        &self,
        (model, reads, survey): (&Model, &BatchReads, &Survey),
        table: &TableName,
        bounds: BalanceBounds,
    ) -> Result<BalanceProposal, String> {
        let mut summaries = Summaries::new();
        if let Some(version) = model.table(table).and_then(|entry| entry.serving) {
            let summary = self.read_summary(&(table.clone(), version))?;
            summaries.insert(table.clone(), summary);
        }
        let known = KnownLoad {
            summaries: &summaries,
            reads,
            survey,
        };
        propose_balance(model, known, table, bounds)
    }

    fn plan(
        &self,
        model: &Model,
        survey: &Survey,
        goal: &PlanGoal,
    ) -> Result<Box<MovePlan>, String> {
        let mut summaries = surveyed(model, survey, &[]);
        for (table, entry) in model.all_tables() {
            if let Some(version) = entry.serving {
                let summary = self.read_summary(&(table.clone(), version))?;
                summaries.insert(table.clone(), summary);
            }
        }
        let proposal = propose(model, &summaries, goal, BATCH_BYTES);
        let plan = proposal.map(|proposal| Box::new(proposal.plan));
        plan.map_err(|error| error.to_string())
    }

    /// Asks the other nodes to admit this node, until they do.
    pub(super) fn join(self: &Arc<Self>, tried: u64) {
        self.background("forebay-join", move |shell| {
            let who = &shell.parts.who;
            let request = Request::Join {
                who: Box::new(who.clone()),
            };
            // Each try has its own name, because an answered request is not carried out again.
            let name = format!("requests/join-{}-{:x}-{tried}", who.name, who.incarnation);
            let put = shell.written(&request);
            let put = put.and_then(|bytes| shell.parts.catalog.put_if(&name, bytes.into(), None));
            match put {
                Ok(_) => ring(&*shell.parts.catalog, shell.parts.random.next_u64()),
                Err(error) => {
                    warn!(%error, "this node cannot write its request to join into the catalog")
                }
            }
        });
    }

    fn read_requests(&self) -> io::Result<BTreeMap<RequestId, Request>> {
        let catalog = &self.parts.catalog;
        let mut requests = BTreeMap::new();
        for name in catalog.list("requests")? {
            let path = format!("requests/{name}");
            let bytes = match catalog.get(&path) {
                Ok(Some((bytes, _))) => bytes,
                Ok(None) => continue,
                // A directory, or some other foreign object, is not a request.
                Err(error) if is_no_file(error.kind()) => {
                    warn!(path, %error, "it is no request: passed over");
                    continue;
                }
                Err(error) => return Err(error),
            };
            match parsed(&path, &bytes) {
                Ok(request) => {
                    requests.insert(RequestId(name), request);
                }
                Err(error) => {
                    // No node can carry it out, and its client gets no answer.
                    warn!(%error, "a request is passed over and removed");
                    catalog.remove(&path)?;
                }
            }
        }
        Ok(requests)
    }
}

/// Returns whether a retry cannot help.
fn is_no_file(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, PermissionDenied};
    matches!(
        kind,
        IsADirectory | InvalidInput | InvalidFilename | PermissionDenied
    )
}
