//! Sends the state machine's messages to other nodes, and answers theirs.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_engine::TableName;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::Shell;
use crate::catalog::{CatalogError, Documented};
use crate::facts::NodeFacts;
use crate::ids::{HostPort, NodeId};
use crate::link::DeferredAnswer;
use crate::local::LocalReplicas;
use crate::member::Member;
use crate::message::{Beat, BeatReply};
use crate::model::{DocRef, Documents, Head, Model, ModelError};
use crate::node::{FollowerEvent, NodeEvent};
use crate::routing::live_places::LivePlaces;
use crate::routing::map::ClusterMap;
use crate::status::Status;
use crate::wire::{Question, Reply, from_bytes, to_bytes};

/// A node as its server sees it.
#[derive(Debug)]
pub struct NodeMember(pub Arc<Shell>);

impl Shell {
    pub(super) fn beat(self: &Arc<Self>, to: HostPort, beat: Beat) {
        let seq = beat.seq;
        let asked = self.ask(&to, &Question::Beat(Box::new(beat)));
        let shell = Arc::clone(self);
        self.runtime.spawn(async move {
            let event = match asked.await {
                Ok(Reply::Beat(reply)) => FollowerEvent::Reply { seq, reply },
                Ok(_) => FollowerEvent::Lost { seq },
                Err(error) => {
                    debug!(%to, %error, "a heartbeat was lost");
                    FollowerEvent::Lost { seq }
                }
            };
            shell.deliver(NodeEvent::Follower(event));
        });
    }

    /// Notifies the coordinator of new requests.
    pub(super) fn notify(self: &Arc<Self>) {
        match self.coordinator() {
            None => drop(self.deliver(NodeEvent::Notified)),
            Some(peer) => {
                let asked = self.ask(&peer, &Question::Notify);
                self.runtime.spawn(async move { drop(asked.await) });
            }
        }
    }

    fn ask(&self, to: &HostPort, question: &Question) -> DeferredAnswer<io::Result<Reply>> {
        let limit = self.timing().heartbeat_lost();
        let asked = to_bytes(question).map(|bytes| self.parts.peers.ask(to, bytes, limit));
        Box::pin(async move { from_bytes(&asked?.await?) })
    }

    /// Reads the head from the catalog. If that is unavailable, asks the other nodes.
    pub(super) fn read_head(self: &Arc<Self>) {
        self.background("forebay-head", |shell| {
            let event = match Documented(&*shell.parts.catalog).head() {
                Ok((head, _)) => {
                    shell.log_catalog(None);
                    FollowerEvent::Head(Box::new(head))
                }
                Err(error) => {
                    if matches!(error, CatalogError::Io { .. }) {
                        shell.log_catalog(Some(&error));
                    } else {
                        let event = FollowerEvent::NoCatalog(error.to_string());
                        shell.deliver(NodeEvent::Follower(event));
                    }
                    let heads = shell.heads_of_others();
                    match heads.into_iter().max_by_key(|head| head.revision) {
                        Some(head) => FollowerEvent::HeadReported(Box::new(head)),
                        None => FollowerEvent::NoHead,
                    }
                }
            };
            shell.deliver(NodeEvent::Follower(event));
        });
    }

    /// Returns the last known addresses of the other nodes, if necessary from before the start.
    fn others(&self) -> Vec<HostPort> {
        let map = self.map.load_full();
        let known: Vec<HostPort> = map.nodes().map(|node| node.peer.clone()).collect();
        let known = match known.is_empty() {
            false => known,
            true => {
                let remembered = self.parts.remembered.read();
                let model = remembered.map(|(_, model, _)| model).unwrap_or_default();
                model.all_nodes().map(|node| node.peer.clone()).collect()
            }
        };
        let own = &self.parts.who.peer;
        known.into_iter().filter(|peer| peer != own).collect()
    }

    fn heads_of_others(&self) -> Vec<Head> {
        let asked: Vec<_> = self
            .others()
            .iter()
            .take(8)
            .map(|peer| self.ask(peer, &Question::Head))
            .collect();
        self.runtime.block_on(async {
            let mut heads = Vec::new();
            for head in asked {
                if let Ok(Reply::Head(Some(head))) = head.await {
                    heads.push(*head);
                }
            }
            heads
        })
    }

    /// Loads the documents of a head: from known ones, the coordinator, or the catalog.
    pub(super) fn load(self: &Arc<Self>, head: Head) {
        self.background("forebay-load", move |shell| {
            let event = match shell.read_model(&head) {
                Ok(model) => FollowerEvent::Loaded {
                    head: Box::new(head),
                    model: Box::new(model),
                    remembered: false,
                },
                Err(error) => {
                    warn!(revision = head.revision, %error, "a change of the cluster cannot be read yet");
                    FollowerEvent::NotLoaded
                }
            };
            shell.deliver(NodeEvent::Follower(event));
        });
    }

    fn read_model(&self, head: &Head) -> Result<Model, CatalogError> {
        let catalog = Documented(&*self.parts.catalog);
        let known = self.known_model();
        let mut documents = self.known.all();
        loop {
            match Model::read(head, &documents, &known) {
                Err(ModelError::Lacks(names)) => {
                    let names: BTreeSet<DocRef> = names.into_iter().collect();
                    let came = self.documents_of_coordinator(&names);
                    for name in &names {
                        let bytes = match came.get(name) {
                            Some(bytes) => bytes.clone(),
                            None => catalog.document(name)?,
                        };
                        documents.insert(name.clone(), bytes);
                    }
                }
                model => {
                    let model = model?;
                    self.note(head, &model, documents);
                    return Ok(model);
                }
            }
        }
    }

    fn documents_of_coordinator(&self, names: &BTreeSet<DocRef>) -> Documents {
        let Some(peer) = self.coordinator() else {
            return Documents::new();
        };
        let asked = self.ask(&peer, &Question::Documents(names.clone()));
        match self.runtime.block_on(asked) {
            Ok(Reply::Documents(documents)) => {
                let bytes = documents.into_iter();
                bytes
                    .map(|(name, text)| (name, text.into_bytes()))
                    .collect()
            }
            _ => Documents::new(),
        }
    }

    /// Keeps a head's documents in memory and on the disk. Two heads may be loaded at once. A head
    /// older than the saved one is ignored, because it would remove documents of the newer one.
    fn note(&self, head: &Head, model: &Model, documents: Documents) {
        let names = model.references().into_iter().collect();
        let write = || {
            self.known.add(documents);
            self.known.keep(&names);
            self.parts.remembered.note(head, &self.known.all())
        };
        if let Err(error) = self.replica_orders.note(head, write) {
            warn!(%error, "what the cluster is cannot be noted for a restart");
        }
    }

    /// Loads the head and documents that were saved before a restart.
    pub(super) fn remember(self: &Arc<Self>) {
        self.background("forebay-remember", |shell| {
            let event = match shell.parts.remembered.read() {
                Ok((head, model, documents)) => {
                    warn!(
                        revision = head.revision,
                        "neither the store nor another node answers: what served before serves"
                    );
                    shell.known.add(documents);
                    shell.replica_orders.is_noted(&head);
                    FollowerEvent::Loaded {
                        head: Box::new(head),
                        model: Box::new(model),
                        remembered: true,
                    }
                }
                Err(problem) => {
                    info!(problem, "nothing is known of the cluster here");
                    FollowerEvent::NotLoaded
                }
            };
            shell.deliver(NodeEvent::Follower(event));
        });
    }

    async fn receive(self: Arc<Self>, beat: Box<Beat>) -> io::Result<Reply> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(token, answer);
        if !self.deliver(NodeEvent::Beat { token, beat }) {
            self.waiting.lock().clear();
        }
        let reply = answered.await;
        self.waiting.lock().remove(&token);
        let nothing = BeatReply::NotCoordinator { coordinator: None };
        Ok(Reply::Beat(Box::new(reply.unwrap_or(nothing))))
    }

    /// Returns the state of the cluster from the coordinator, whichever node that is. If none
    /// answers, or the catalog is lost and no node can be the coordinator, returns this node's own
    /// knowledge.
    async fn whole_status(&self) -> Option<Status> {
        let own = match self.status() {
            None => self.own_status(),
            reported => return reported,
        };
        let is_lost = own.as_ref().is_some_and(|own| own.catalog_lost);
        let Some(peer) = self.coordinator().filter(|_| !is_lost) else {
            return own;
        };
        match self.ask(&peer, &Question::Status).await {
            Ok(Reply::Status(Some(reported))) if reported.is_whole() => Some(*reported),
            _ => own,
        }
    }

    /// Returns the address of the coordinator, if it is another node.
    fn coordinator(&self) -> Option<HostPort> {
        let lease = self
            .node
            .lock()
            .lease()
            .holder()
            .map(|holder| holder.peer.clone());
        lease.filter(|peer| *peer != self.parts.who.peer)
    }

    async fn reply(self: Arc<Self>, message: Bytes) -> io::Result<Bytes> {
        let reply = match from_bytes(&message)? {
            Question::Beat(beat) => self.receive(beat).await?,
            Question::Notify => {
                self.notify();
                Reply::Done
            }
            Question::Head => {
                let node = self.node.lock();
                let head = node.follower().known().map(|(head, _)| head.clone());
                Reply::Head(head.map(Box::new))
            }
            Question::Documents(names) => Reply::Documents(self.known.get(&names)),
            Question::Status => Reply::Status(self.whole_status().await.map(Box::new)),
        };
        to_bytes(&reply)
    }
}

impl Member for NodeMember {
    fn map(&self) -> Arc<ClusterMap> {
        self.0.map.load_full()
    }

    fn live(&self) -> Arc<LivePlaces> {
        self.0.live.load_full()
    }

    fn replicas(&self) -> Option<Arc<LocalReplicas>> {
        self.0.parts.replicas.clone()
    }

    fn facts(&self) -> NodeFacts {
        let now = self.0.now();
        NodeFacts::of(&self.0.node.lock(), now)
    }

    fn newer_head(&self, than: u64) -> DeferredAnswer<()> {
        let mut revision = self.0.revision.subscribe();
        Box::pin(async move {
            // A node that stops reports no further revision.
            let _ = revision.wait_for(|known| *known > than).await;
        })
    }

    fn answer(&self, message: Bytes) -> DeferredAnswer<io::Result<Bytes>> {
        Box::pin(Arc::clone(&self.0).reply(message))
    }

    fn fetch(
        &self,
        table: &TableName,
        file: &str,
        range: Range<u64>,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let versions = Arc::clone(&self.0.parts.versions);
        let (table, file) = (table.clone(), file.to_owned());
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || versions.read(&table, &file, range));
            read.await.map_err(io::Error::other)?
        })
    }

    fn suspect(&self, node: NodeId) {
        self.0
            .deliver(NodeEvent::Follower(FollowerEvent::Suspect(node)));
    }

    fn trust(&self, node: NodeId) {
        self.0
            .deliver(NodeEvent::Follower(FollowerEvent::Trust(node)));
    }
}
