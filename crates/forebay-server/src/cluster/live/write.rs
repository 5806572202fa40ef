//! Proposes commands that write to the replicas of one partition.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::NodeId;
use forebay_cluster::map::MapNode;
use forebay_host::WriteDone;
use forebay_io::within;
use forebay_replica::{GroupId, Refusal};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::super::ask::{Requester, Unanswered};
use super::super::counts::Proposed;
use super::super::frame::{ForwardHeader, NOT_HERE, reason};
use super::super::link::PeerAnswer;
use super::super::place::moved_to;
use super::super::split;
use super::command_target::CommandTarget;
use super::key_spot::LiveAt;
use crate::applying::is_elsewhere;

/// The time between two checks of the leader while another node's answer is awaited, and the number
/// of checks before this node stops waiting. The answer may be on its way.
const LEADER_LOOK: Duration = Duration::from_millis(100);
const LEADER_LOOKS: usize = 3;
/// The number of checks after which this node checks whether any other node answers.
const SLOW_LOOKS: usize = 5;
/// With less time left, no node is asked: the outcome of the write would be unknown.
const LEAST_TIME: Duration = Duration::from_millis(1);
/// The error of a partition whose replicas do not answer. Nothing was written.
const NO_REPLICAS: &str = "NOREPLICAS";

const CUT: &str = "the partition was split a moment ago";

/// Items that are proposed to one partition together, in this order. Each gets an answer of its
/// own.
#[derive(Debug)]
pub struct PartWrite<'a> {
    pub requester: &'a Requester<'a>,
    /// All keys, if the write is about keys.
    pub at: LiveAt,
    pub items: Vec<WriteItem>,
}

/// A command, or the commands of a MULTI.
#[derive(Debug)]
pub struct WriteItem {
    /// The slot by which a client may be redirected, if all keys have the same one.
    pub slot: Option<u16>,
    pub proposal: Bytes,
    /// The commands as clients send them. The last reply is the answer.
    pub commands: Bytes,
    pub count: usize,
}

/// The reason why an attempt did not write.
#[derive(Debug, Clone)]
enum WriteFailure {
    /// It certainly did not write; the reason.
    Certain(String),
    /// It certainly did not write: the partition does not have the keys.
    Elsewhere,
    /// A final error, which the client gets.
    Reply(String),
}

type WriteAttempt = Result<Bytes, WriteFailure>;

impl PartWrite<'_> {
    /// Returns the replies when a majority has the writes. Certain failures are retried while there
    /// is time.
    pub async fn done(&self) -> Vec<Result<Bytes, Unanswered>> {
        let answers = self.tries().await;
        answers.iter().for_each(|answer| self.count(answer));
        answers
    }

    /// Returns the only reply. REQUIRES: there is one item.
    pub async fn one(&self) -> Result<Bytes, Unanswered> {
        let none = || Unanswered::Reply("ERR internal error: nothing was proposed".to_owned());
        self.done().await.pop().ok_or_else(none)?
    }

    fn count(&self, answer: &Result<Bytes, Unanswered>) {
        let counts = &self.requester.cluster.counts;
        match answer {
            Ok(_) => counts.proposed(Proposed::Answered),
            Err(Unanswered::Reply(words)) if words.starts_with("UNCERTAIN ") => {
                counts.proposed(Proposed::Uncertain);
            }
            Err(Unanswered::Reply(words)) if words.starts_with("MOVED ") => {}
            Err(_) => counts.proposed(Proposed::Refused),
        }
    }

    async fn tries(&self) -> Vec<Result<Bytes, Unanswered>> {
        let mut answers: Vec<Option<Result<Bytes, Unanswered>>> = Vec::new();
        answers.resize_with(self.items.len(), || None);
        let mut left: Vec<usize> = (0..self.items.len()).collect();
        let mut attempt = 0;
        loop {
            let tried = self.once(&left, attempt).await;
            let is_last = self.requester.is_last();
            // A refused write is not repeated after the writes that followed it.
            let is_refused = |tried: &WriteAttempt| {
                matches!(
                    tried,
                    Err(WriteFailure::Certain(_) | WriteFailure::Elsewhere)
                )
            };
            let behind = tried.iter().rposition(|tried| !is_refused(tried));
            let mut again = Vec::new();
            for (number, (at, tried)) in left.into_iter().zip(tried).enumerate() {
                answers[at] = Some(match tried {
                    Ok(bytes) => Ok(bytes),
                    Err(WriteFailure::Reply(words)) => Err(Unanswered::Reply(words)),
                    Err(WriteFailure::Elsewhere) if is_last => Err(self.requester.not_leading()),
                    Err(WriteFailure::Elsewhere) if self.is_in_half() => {
                        again.push((at, CUT.to_owned()));
                        continue;
                    }
                    Err(WriteFailure::Elsewhere) => Err(Unanswered::OtherMap(CUT.to_owned())),
                    Err(WriteFailure::Certain(why)) if Some(number) < behind => {
                        Err(self.given_up(why, is_last))
                    }
                    Err(WriteFailure::Certain(why)) => {
                        again.push((at, why));
                        continue;
                    }
                });
            }
            if again.is_empty() {
                break;
            }
            if is_last || !self.requester.waits_for_lead(attempt).await {
                for (at, why) in again {
                    answers[at] = Some(Err(self.given_up(why, is_last)));
                }
                break;
            }
            if self.at.has_changed(self.requester.cluster) {
                for (at, _) in again {
                    answers[at] = Some(Err(Unanswered::OtherMap(CUT.to_owned())));
                }
                break;
            }
            left = again.into_iter().map(|(at, _)| at).collect();
            attempt += 1;
        }
        let lost = || {
            Err(Unanswered::Reply(
                "ERR internal error: no answer".to_owned(),
            ))
        };
        answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(lost))
            .collect()
    }

    /// Returns whether all keys are in a child that was split off on this node; the next attempt
    /// finds it.
    fn is_in_half(&self) -> bool {
        let whole = self.at.now(self.requester.cluster);
        let now = self.requester.spot(&self.at);
        whole
            .zip(now)
            .is_some_and(|(whole, now)| whole.group != now.group)
    }

    fn given_up(&self, why: String, is_last: bool) -> Unanswered {
        match why.starts_with(NO_REPLICAS) {
            true => Unanswered::Reply(why),
            false if is_last => self.requester.not_leading(),
            false => {
                let why = reason(&why);
                Unanswered::Reply(format!("TRYAGAIN nothing was written: {why}"))
            }
        }
    }

    /// Makes one attempt for these items. Returns an outcome for each.
    async fn once(&self, items: &[usize], attempt: usize) -> Vec<WriteAttempt> {
        let requester = self.requester;
        let all = |why: &WriteFailure| vec![Err(why.clone()); items.len()];
        let Some(spot) = requester.spot(&self.at) else {
            let why = "where the table's partitions are is not known here yet".to_owned();
            return all(&WriteFailure::Certain(why));
        };
        let may_move = items.iter().all(|at| self.items[*at].slot.is_some());
        match requester.lead(&spot, may_move, attempt) {
            CommandTarget::Here => {
                let proposals = items.iter().map(|at| self.items[*at].proposal.clone());
                propose(requester, spot.group, proposals.collect()).await
            }
            _ if requester.is_last() => all(&WriteFailure::Certain(String::new())),
            CommandTarget::Moved(address) => {
                let slots = items.iter().map(|at| self.items[*at].slot.unwrap_or(0));
                let moved = slots.map(|slot| Err(WriteFailure::Reply(moved_to(slot, &address))));
                moved.collect()
            }
            CommandTarget::Node(node) => self.forward(&node, items).await,
            CommandTarget::Unknown(why) => all(&WriteFailure::Certain(why)),
            CommandTarget::CutOff(words) => all(&WriteFailure::Reply(words)),
        }
    }

    /// Returns a node's answer, or why this node stops waiting for it. Either another node has led
    /// the partition for a while, or this node reaches no majority and the client can ask another
    /// node.
    async fn unless_in_vain<T>(
        &self,
        asked: NodeId,
        answer: impl Future<Output = T>,
    ) -> Result<T, &'static str> {
        let clock = self.requester.work.shared.store.clock();
        let mut answer = std::pin::pin!(answer);
        let (mut looks, mut waits) = (0, 0);
        loop {
            if let Some(answer) = within(&**clock, LEADER_LOOK, answer.as_mut()).await {
                return Ok(answer);
            }
            waits += 1;
            if waits >= SLOW_LOOKS && self.is_cut_off_from(asked, clock.monotonic()) {
                return Err("did not answer, and no majority of the cluster's nodes does");
            }
            looks = match self.is_led_by_another(asked) {
                true => looks + 1,
                false => 0,
            };
            if looks >= LEADER_LOOKS {
                return Err("did not answer, and another one leads now");
            }
        }
    }

    /// Returns whether the client should ask another node: this one reaches neither the node that
    /// was asked nor a majority.
    fn is_cut_off_from(&self, asked: NodeId, now: Duration) -> bool {
        let cluster = self.requester.cluster;
        let is_clustered = self.requester.work.client.port.is_clustered();
        is_clustered && cluster.lacks_majority(now) && !cluster.reaches(now, asked)
    }

    /// Returns whether this node's replica knows a leader on another node.
    fn is_led_by_another(&self, node: NodeId) -> bool {
        let cluster = self.requester.cluster;
        let spot = self.requester.spot(&self.at);
        let replicas = cluster.member().replicas();
        let leader = spot.zip(replicas);
        let leader = leader.and_then(|(spot, replicas)| replicas.leader(spot.group));
        leader.is_some_and(|leader| leader != node)
    }

    /// Forwards the items to another node, at most once.
    async fn forward(&self, node: &MapNode, items: &[usize]) -> Vec<WriteAttempt> {
        let requester = self.requester;
        let header = ForwardHeader {
            cluster: requester.map.cluster,
            revision: requester.map_now().revision,
            node: requester.map.me,
            user: requester.work.user.name(),
            resp3: requester.work.resp3,
            versions: "",
        };
        let links = requester.cluster.links(requester.work.worker);
        let commands = items.iter().map(|at| &self.items[*at].commands[..]);
        let frame = header.frame(&commands.collect::<Vec<_>>().concat());
        let all = |why: &WriteFailure| vec![Err(why.clone()); items.len()];
        let limit = requester.left();
        if limit < LEAST_TIME {
            let why = format!("there was no time left to ask node {}", node.name);
            return all(&WriteFailure::Certain(why));
        }
        let asked = links.ask_once(&node.peer, frame, limit);
        let answer = match self.unless_in_vain(node.id, asked).await {
            Ok(answer) => answer,
            Err(why) => {
                requester.cluster.suspect(requester.now(), node.id);
                return all(&uncertain(&format!("node {} {why}", node.name)));
            }
        };
        let bytes = match answer {
            Ok(PeerAnswer::Bytes(bytes)) => bytes,
            Ok(PeerAnswer::Refused(text)) => return all(&WriteFailure::Reply(text)),
            Err(failure) => {
                requester.cluster.suspect(requester.now(), node.id);
                let why = format!("node {} ({}): {}", node.name, node.peer, failure.error);
                return all(&match failure.was_sent {
                    true => uncertain(&why),
                    false => WriteFailure::Certain(why),
                });
            }
        };
        if !node.is_available {
            requester.cluster.member().trust(node.id);
        }
        let Some(replies) = split::replies(&bytes) else {
            return all(&garbled(node));
        };
        let mut at = 0;
        let taken = items.iter().map(|item| {
            let count = self.items[*item].count;
            let its = &replies[at.min(replies.len())..(at + count).min(replies.len())];
            at += count;
            taken(node, &bytes, (its, count), at > count)
        });
        taken.collect()
    }
}

/// Returns the reply to an item among another node's replies. `is_behind` if other items precede
/// it.
fn taken(
    node: &MapNode,
    bytes: &Bytes,
    (replies, count): (&[Range<usize>], usize),
    is_behind: bool,
) -> WriteAttempt {
    let Some(last) = replies.get(count - 1) else {
        return Err(match (count, replies.is_empty()) {
            // The node stopped before this item.
            (1, true) if is_behind => {
                WriteFailure::Certain(format!("node {} did not come to it", node.name))
            }
            // The node did not evaluate the EXEC.
            (2.., false) => WriteFailure::Reply(
                "ERR this MULTI has more commands than another node takes at a time".to_owned(),
            ),
            _ => garbled(node),
        });
    };
    let reply = &bytes[last.clone()];
    if split::is_error(reply, NOT_HERE) || split::is_error(reply, NO_REPLICAS) {
        let why = split::error(reply).unwrap_or_default();
        return Err(WriteFailure::Certain(why));
    }
    // The error of a refused command gives the reason; that of EXEC does not.
    let before = replies[..count - 1].iter();
    match before
        .filter_map(|range| split::error(&bytes[range.clone()]))
        .next()
    {
        Some(words) => Err(WriteFailure::Reply(words)),
        None => Ok(bytes.slice(last.clone())),
    }
}

fn garbled(node: &MapNode) -> WriteFailure {
    uncertain(&format!("what node {} answers is no reply", node.name))
}

/// Proposes the items to this node's replica in this order. It must lead to accept them.
async fn propose(
    requester: &Requester<'_>,
    group: GroupId,
    proposals: Vec<Bytes>,
) -> Vec<WriteAttempt> {
    let Some(replicas) = requester.cluster.member().replicas() else {
        let why = WriteFailure::Certain("no replica is here".to_owned());
        return vec![Err(why); proposals.len()];
    };
    let mut answers = Vec::with_capacity(proposals.len());
    let proposals = proposals.into_iter().map(|proposal| -> (Bytes, WriteDone) {
        let (done, answered) = oneshot::channel();
        answers.push(answered);
        // A requester that gave up gets nothing.
        (proposal, Box::new(move |answer| drop(done.send(answer))))
    });
    let proposals = proposals.collect();
    replicas.host().propose(group, proposals);
    let clock = requester.work.shared.store.clock();
    let mut tried = Vec::with_capacity(answers.len());
    for mut answered in answers {
        // The answers after the first are mostly ready when the first is.
        let answer = match answered.try_recv() {
            Ok(answer) => Some(Ok(answer)),
            Err(TryRecvError::Closed) => Some(Err(())),
            Err(TryRecvError::Empty) => {
                let answer = within(&**clock, requester.left(), answered).await;
                answer.map(|answer| answer.map_err(drop))
            }
        };
        tried.push(outcome(answer));
    }
    tried
}

/// Returns the outcome of a proposal. `None` if it is not known in time.
fn outcome(answer: Option<Result<Result<Bytes, Refusal>, ()>>) -> WriteAttempt {
    match answer {
        Some(Ok(Ok(bytes))) if is_elsewhere(&bytes) => Err(WriteFailure::Elsewhere),
        Some(Ok(Ok(bytes))) => Ok(bytes),
        Some(Ok(Err(Refusal::NotLeader(_)))) => Err(WriteFailure::Certain(
            "the replica here leads no more".to_owned(),
        )),
        Some(Ok(Err(Refusal::NoReplicas))) => Err(WriteFailure::Certain(format!(
            "{NO_REPLICAS} no majority of the replicas of the key's partition answers, or another one \
             is to lead: nothing was written"
        ))),
        Some(Ok(Err(Refusal::Uncertain)) | Err(())) => {
            Err(uncertain("the replica that led leads no more"))
        }
        None => Err(uncertain("no majority of the replicas answered in time")),
    }
}

/// Advances a partition's time with an entry that does nothing else.
pub async fn move_time(requester: &Requester<'_>, group: GroupId) -> Result<(), String> {
    let moved = propose(requester, group, vec![Bytes::new()]).await;
    let why = |why| match why {
        WriteFailure::Certain(why) | WriteFailure::Reply(why) => why,
        WriteFailure::Elsewhere => CUT.to_owned(),
    };
    moved
        .into_iter()
        .try_for_each(|tried| tried.map(drop).map_err(why))
}

fn uncertain(why: &str) -> WriteFailure {
    WriteFailure::Reply(format!(
        "UNCERTAIN nobody knows whether this was written, or will be ({why}): read what it was to change, \
         and decide by that whether to send it again"
    ))
}
