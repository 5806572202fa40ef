//! Proposing commands that write to the replicas of one partition.

use bytes::Bytes;
use forebay_cluster::map::MapNode;
use forebay_io::within;
use forebay_replica::{GroupId, Refusal};
use tokio::sync::oneshot;

use super::super::ask::{Asker, Unanswered};
use super::super::counts::Proposed;
use super::super::frame::{ForwardHeader, NOT_HERE};
use super::super::link::PeerAnswer;
use super::super::place::moved_to;
use super::super::split;
use super::lead::Lead;
use super::spot::LiveAt;

/// The error of a partition whose replicas do not answer. Nothing was written.
const NO_REPLICAS: &str = "NOREPLICAS";

/// Commands on keys of one partition.
#[derive(Debug)]
pub struct PartWrite<'a> {
    pub asker: &'a Asker<'a>,
    pub at: LiveAt,
    /// All keys have one slot.
    pub may_move: bool,
    pub proposal: Bytes,
    /// As clients send them, the last of whose replies is the answer.
    pub commands: Vec<u8>,
    pub count: usize,
}

/// Why a try did not write.
enum NotWritten {
    /// It certainly did not: why.
    Certain(String),
    /// What the client is told.
    Told(String),
}

impl PartWrite<'_> {
    /// The reply, when a majority has it. What was certainly not written is tried again while there
    /// is time.
    pub async fn done(&self) -> Result<Bytes, Unanswered> {
        let answer = self.tries().await;
        let counts = &self.asker.cluster.counts;
        match &answer {
            Ok(_) => counts.proposed(Proposed::Answered),
            Err(Unanswered::Told(words)) if words.starts_with("UNCERTAIN ") => {
                counts.proposed(Proposed::Uncertain);
            }
            Err(Unanswered::Told(words)) if words.starts_with("MOVED ") => {}
            Err(_) => counts.proposed(Proposed::Refused),
        }
        answer
    }

    async fn tries(&self) -> Result<Bytes, Unanswered> {
        let asker = self.asker;
        let mut attempt = 0;
        loop {
            let why = match self.once(attempt).await {
                Ok(bytes) => return Ok(bytes),
                Err(NotWritten::Told(words)) => return Err(Unanswered::Told(words)),
                Err(NotWritten::Certain(why)) => why,
            };
            if asker.is_last() && !why.starts_with(NO_REPLICAS) {
                return Err(asker.not_leading());
            }
            if asker.is_last() || !asker.waits_for_lead().await {
                return Err(Unanswered::Told(match why.starts_with(NO_REPLICAS) {
                    true => why,
                    false => format!("TRYAGAIN nothing was written: {why}"),
                }));
            }
            attempt += 1;
        }
    }

    async fn once(&self, attempt: usize) -> Result<Bytes, NotWritten> {
        let asker = self.asker;
        let Some(spot) = self.at.now(asker.cluster) else {
            let why = "where the table's partitions are is not known here yet".to_owned();
            return Err(NotWritten::Certain(why));
        };
        match asker.lead(&spot, self.may_move, attempt) {
            Lead::Here => propose(asker, spot.group, self.proposal.clone()).await,
            _ if asker.is_last() => Err(NotWritten::Certain(String::new())),
            Lead::Moved(address) => {
                Err(NotWritten::Told(moved_to(spot.slot.unwrap_or(0), &address)))
            }
            Lead::Node(node) => self.forward(&node).await,
            Lead::Unknown(why) => Err(NotWritten::Certain(why)),
        }
    }

    /// Has another node propose them. They are sent once at most.
    async fn forward(&self, node: &MapNode) -> Result<Bytes, NotWritten> {
        let asker = self.asker;
        let header = ForwardHeader {
            cluster: asker.map.cluster,
            revision: asker.map_now().revision,
            node: asker.map.me,
            user: asker.work.user.name(),
            resp3: asker.work.resp3,
            versions: "",
        };
        let links = asker.cluster.links(asker.work.worker);
        let frame = header.frame(&self.commands);
        let bytes = match links.ask_once(&node.peer, frame, asker.left()).await {
            Ok(PeerAnswer::Bytes(bytes)) => bytes,
            Ok(PeerAnswer::Refused(text)) => return Err(NotWritten::Told(text)),
            Err(failure) => {
                asker.cluster.suspect(node.id);
                let why = format!("node {} ({}): {}", node.name, node.peer, failure.error);
                return Err(match failure.was_sent {
                    true => uncertain(&why),
                    false => NotWritten::Certain(why),
                });
            }
        };
        if !node.is_available {
            asker.cluster.member().trust(node.id);
        }
        self.taken(node, &bytes)
    }

    /// The reply among those of another node.
    fn taken(&self, node: &MapNode, bytes: &Bytes) -> Result<Bytes, NotWritten> {
        let garbled = || uncertain(&format!("what node {} answers is no reply", node.name));
        let replies = split::replies(bytes).ok_or_else(garbled)?;
        let (Some(last), true) = (replies.get(self.count - 1), replies.len() == self.count) else {
            return Err(match (self.count, replies.is_empty()) {
                // Its EXEC was not looked at.
                (2.., false) => NotWritten::Told(
                    "ERR this MULTI has more commands than another node takes at a time".to_owned(),
                ),
                _ => garbled(),
            });
        };
        let reply = &bytes[last.clone()];
        if split::is_error(reply, NOT_HERE) || split::is_error(reply, NO_REPLICAS) {
            let why = split::error(reply).unwrap_or_default();
            return Err(NotWritten::Certain(why));
        }
        // A command that was refused says why; EXEC does not.
        let before = replies[..self.count - 1].iter();
        match before
            .filter_map(|range| split::error(&bytes[range.clone()]))
            .next()
        {
            Some(words) => Err(NotWritten::Told(words)),
            None => Ok(bytes.slice(last.clone())),
        }
    }
}

/// Proposes to the replica here. It must lead to take it.
async fn propose(asker: &Asker<'_>, group: GroupId, proposal: Bytes) -> Result<Bytes, NotWritten> {
    let Some(replicas) = asker.cluster.member().replicas() else {
        return Err(NotWritten::Certain("no replica is here".to_owned()));
    };
    let (done, answered) = oneshot::channel();
    // Who gave up is told nothing.
    let done = Box::new(move |answer| drop(done.send(answer)));
    replicas.host().propose(group, vec![(proposal, done)]);
    let clock = asker.work.shared.store.clock();
    match within(&**clock, asker.left(), answered).await {
        Some(Ok(Ok(bytes))) => Ok(bytes),
        Some(Ok(Err(Refusal::NotLeader(_)))) => Err(NotWritten::Certain(
            "the replica here leads no more".to_owned(),
        )),
        Some(Ok(Err(Refusal::NoReplicas))) => Err(NotWritten::Certain(format!(
            "{NO_REPLICAS} no majority of the replicas of the key's partition answers, or another one \
             is to lead: nothing was written"
        ))),
        Some(Ok(Err(Refusal::Uncertain)) | Err(_)) => {
            Err(uncertain("the replica that led leads no more"))
        }
        None => Err(uncertain("no majority of the replicas answered in time")),
    }
}

/// Moves a partition's time on, by an entry that does nothing.
pub async fn move_time(asker: &Asker<'_>, group: GroupId) -> Result<(), String> {
    let moved = propose(asker, group, Bytes::new()).await;
    moved.map(drop).map_err(|why| match why {
        NotWritten::Certain(why) | NotWritten::Told(why) => why,
    })
}

fn uncertain(why: &str) -> NotWritten {
    NotWritten::Told(format!(
        "UNCERTAIN nobody knows whether this was written, or will be ({why}): read what it was to change, \
         and decide by that whether to send it again"
    ))
}
