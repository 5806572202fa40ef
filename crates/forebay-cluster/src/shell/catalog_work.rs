//! The machine's reading and writing of the catalog.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::Shell;
use crate::catalog::{Documented, Written};
use crate::coordinator::{CommitOutcome, CoordinatorAction, CoordinatorEvent};
use crate::model::{Documents, Head, RequestId, parsed, written};
use crate::node::{NodeEvent, VersionPlace};
use crate::request::Request;
use crate::seat::{SEAT, SeatAction, SeatDocument, SeatEvent, ring};

/// How long the store is asked for a manifest before the coordinator is told that it cannot be had.
const MANIFEST_PATIENCE: Duration = Duration::from_secs(60);
const MANIFEST_RETRY: Duration = Duration::from_millis(500);

impl Shell {
    pub(super) fn sit(self: &Arc<Self>, action: SeatAction) {
        self.background("forebay-seat", move |shell| {
            let event = match &action {
                SeatAction::Read => shell.read_seat(),
                SeatAction::Put(document, seen) => {
                    let put = written(document)
                        .map_err(io::Error::other)
                        .and_then(|bytes| {
                            shell
                                .parts
                                .catalog
                                .put_if(SEAT, bytes.into(), seen.as_ref())
                        });
                    match put {
                        Ok(Written::Done(seen)) => SeatEvent::Put(seen),
                        Ok(Written::Changed) => SeatEvent::Changed,
                        Err(error) => failed(&error),
                    }
                }
                SeatAction::Won | SeatAction::Lost | SeatAction::Rung => return,
            };
            shell.tell(NodeEvent::Seat(event));
        });
    }

    fn read_seat(&self) -> SeatEvent {
        match self.parts.catalog.get(SEAT) {
            Ok(None) => SeatEvent::Read(None),
            Ok(Some((bytes, seen))) => match parsed::<SeatDocument>(SEAT, &bytes) {
                Ok(document) => SeatEvent::Read(Some((document, seen))),
                Err(error) => {
                    warn!(%error, "the coordinator's seat cannot be read");
                    SeatEvent::Failed
                }
            },
            Err(error) => failed(&error),
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
                CoordinatorAction::ListRequests => match shell.read_requests() {
                    Ok(requests) => CoordinatorEvent::Requests(requests),
                    Err(error) => {
                        debug!(%error, "requests cannot be read now");
                        CoordinatorEvent::NotListed
                    }
                },
                CoordinatorAction::ForgetRequests(ids) => {
                    for id in ids {
                        // It is found again by the next look, and removed then.
                        let _ = shell.parts.catalog.remove(&format!("requests/{id}"));
                    }
                    return;
                }
                CoordinatorAction::Reply { .. } => return,
            };
            shell.tell(NodeEvent::Coordinator(event));
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
            Ok(Written::Done(seen)) => {
                self.known.add(documents);
                CommitOutcome::Done(seen)
            }
            Ok(Written::Changed) => CommitOutcome::Conflict,
            Err(error) => {
                warn!(%error, "a change of the catalog is tried again");
                CommitOutcome::Unknown
            }
        };
        let stamp = head.stamp;
        CoordinatorEvent::Wrote { stamp, outcome }
    }

    /// A store that is away is waited for.
    fn read_summary(&self, place: &VersionPlace) -> Result<crate::version::VersionSummary, String> {
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

    /// Asks to be let in by the other nodes, until they do.
    pub(super) fn join(self: &Arc<Self>, tried: u64) {
        self.background("forebay-join", move |shell| {
            let who = &shell.parts.who;
            let request = Request::Join {
                who: Box::new(who.clone()),
            };
            // A name of its own each time: an answered request is not taken up again.
            let name = format!("requests/join-{}-{:x}-{tried}", who.name, who.incarnation);
            let put = written(&request).map_err(io::Error::other);
            let put = put.and_then(|bytes| shell.parts.catalog.put_if(&name, bytes.into(), None));
            match put {
                Ok(_) => ring(&*shell.parts.catalog, shell.parts.random.next_u64()),
                Err(error) => warn!(%error, "the catalog cannot be told of this node"),
            }
        });
    }

    fn read_requests(&self) -> io::Result<BTreeMap<RequestId, Request>> {
        let catalog = &self.parts.catalog;
        let mut requests = BTreeMap::new();
        for name in catalog.list("requests")? {
            let path = format!("requests/{name}");
            let Some((bytes, _)) = catalog.get(&path)? else {
                continue;
            };
            match parsed(&path, &bytes) {
                Ok(request) => {
                    requests.insert(RequestId(name), request);
                }
                Err(error) => {
                    // Nobody can carry it out, and who wrote it sees no answer.
                    warn!(%error, "a request is passed over and removed");
                    catalog.remove(&path)?;
                }
            }
        }
        Ok(requests)
    }
}

fn failed(error: &io::Error) -> SeatEvent {
    debug!(%error, "the catalog does not answer");
    SeatEvent::Failed
}
