//! Proposes commands that write to the replicas of one partition.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::NodeId;
use forebay_cluster::map::MapNode;
use forebay_host::{Answer, Effect};
use forebay_io::within;
use forebay_replica::{GroupId, Refusal};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::super::ask::{Requester, Unanswered};
use super::super::counts::Proposed;
use super::super::frame::{ForwardHeader, NOT_HERE, command as framed_command, reason};
use super::super::link::PeerAnswer;
use super::super::place::moved_to;
use super::super::split;
use super::command_target::CommandTarget;
use super::key_spot::{LiveAt, LiveSpot};
use super::leader_write::{
    EvaluatedWrite, LeaderWrite, MOST_EFFECT_BYTES, NotProposed, ProposalAnswer, WriteCommands,
};
use super::watched_keys::framed_multi;

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

const SPLIT_MEANWHILE: &str = "the partition was split a moment ago";
const NOT_LEADING: &str = "the replica here leads no more";

/// Commands that are proposed to one partition together, in this order.
#[derive(Debug)]
pub struct PartWrite<'a> {
    pub requester: &'a Requester<'a>,
    /// All keys, if the write is about keys.
    pub at: LiveAt,
    pub commands: Arc<WriteCommands>,
    /// For each answer, the slot by which a client may be redirected, if all keys have the same
    /// one.
    pub slots: Vec<Option<u16>>,
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
        answers.resize_with(self.slots.len(), || None);
        let mut left: Vec<usize> = (0..self.slots.len()).collect();
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
                    Err(WriteFailure::Elsewhere) if self.is_in_child() => {
                        again.push((at, SPLIT_MEANWHILE.to_owned()));
                        continue;
                    }
                    Err(WriteFailure::Elsewhere) => {
                        Err(Unanswered::OtherMap(SPLIT_MEANWHILE.to_owned()))
                    }
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
                    answers[at] = Some(Err(Unanswered::OtherMap(SPLIT_MEANWHILE.to_owned())));
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
    fn is_in_child(&self) -> bool {
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
        let may_move = items.iter().all(|at| self.slots[*at].is_some());
        match requester.lead(&spot, may_move, attempt) {
            CommandTarget::Here => self.propose_all(&spot, items).await,
            _ if requester.is_last() => all(&WriteFailure::Certain(String::new())),
            CommandTarget::Moved(address) => {
                let slots = items.iter().map(|at| self.slots[*at].unwrap_or(0));
                let moved = slots.map(|slot| Err(WriteFailure::Reply(moved_to(slot, &address))));
                moved.collect()
            }
            CommandTarget::Node(node) => self.forward(&node, items).await,
            CommandTarget::Unknown(why) => all(&WriteFailure::Certain(why)),
            CommandTarget::Isolated(words) => all(&WriteFailure::Reply(words)),
        }
    }

    /// Evaluates these commands on this node's replica, which leads, and proposes them. Those whose
    /// effects do not fit in one entry are proposed in parts.
    async fn propose_all(&self, spot: &LiveSpot, items: &[usize]) -> Vec<WriteAttempt> {
        let Some(write) = self.leader_write(spot) else {
            let why = WriteFailure::Certain("no replica is here".to_owned());
            return vec![Err(why); items.len()];
        };
        let (mut left, mut most) = (items, items.len());
        let mut parts = Vec::new();
        while !left.is_empty() {
            let (chosen, behind) = left.split_at(most.min(left.len()));
            match self.propose(&write, chosen).await {
                Err(NotProposed::TooLarge(_)) if chosen.len() > 1 => {
                    most = chosen.len().div_ceil(2);
                    continue;
                }
                // The commands after it do not depend on it.
                Err(why @ NotProposed::TooLarge(_)) => parts.push((1, Err(failure(why)))),
                Ok(part) => parts.push((chosen.len(), Ok(part))),
                Err(why) => {
                    parts.push((left.len(), Err(failure(why))));
                    break;
                }
            }
            left = behind;
        }
        let mut tried: Vec<WriteAttempt> = Vec::with_capacity(items.len());
        for (count, part) in parts {
            tried.extend(self.replies(count, part).await);
        }
        tried
    }

    /// Waits for the answer to commands that were proposed together. Returns the outcome of each.
    async fn replies(
        &self,
        count: usize,
        part: Result<EvaluatedWrite, WriteFailure>,
    ) -> Vec<WriteAttempt> {
        let answered = match part {
            Ok(part) => {
                let (answer, replies) = part.split();
                let answer = answered(self.requester, answer).await;
                answer.map(|answer| replies.into_bytes(answer))
            }
            Err(why) => Err(why),
        };
        match answered {
            Ok(replies) => replies.into_iter().map(Ok).collect(),
            Err(why) => vec![Err(why); count],
        }
    }

    /// Proposes commands once this replica can evaluate them.
    async fn propose(
        &self,
        write: &LeaderWrite,
        chosen: &[usize],
    ) -> Result<EvaluatedWrite, NotProposed> {
        let requester = self.requester;
        let clock = requester.work.shared.store.clock();
        loop {
            let woken = match write.propose(chosen).await {
                Err(NotProposed::Waits(woken)) => woken,
                proposed => return proposed,
            };
            if within(&**clock, requester.left(), woken).await.is_none() {
                let why = "what it depends on was not applied in time".to_owned();
                return Err(NotProposed::Unable(why));
            }
        }
    }

    fn leader_write(&self, spot: &LiveSpot) -> Option<LeaderWrite> {
        let work = self.requester.work;
        let tables = work.shared.tables().keep();
        Some(LeaderWrite {
            shared: Arc::clone(&work.shared),
            replicas: self.requester.cluster.member().replicas()?,
            table: tables.live(self.at.table())?.clone(),
            partition: spot.partition,
            group: spot.group,
            commands: Arc::clone(&self.commands),
            resp3: work.resp3,
        })
    }

    /// Returns these commands as clients send them, and how many replies each answer has before
    /// it, itself included.
    fn framed(&self, items: &[usize]) -> (Vec<u8>, usize) {
        match &*self.commands {
            WriteCommands::Each(all) => {
                let chosen = items.iter().filter_map(|at| all.get(*at));
                let commands = chosen.map(|(_, args)| framed_command(args.borrow().iter()));
                (commands.collect::<Vec<_>>().concat(), 1)
            }
            WriteCommands::Multi(queued) => framed_multi(&queued.commands, &queued.watches),
            WriteCommands::Delete { framed, .. } => (framed.clone(), 1),
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
            if waits >= SLOW_LOOKS && self.is_isolated_from(asked, clock.monotonic()) {
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
    fn is_isolated_from(&self, asked: NodeId, now: Duration) -> bool {
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
        let (commands, count) = self.framed(items);
        let frame = header.frame(&commands);
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
        let taken = items.iter().map(|_| {
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

/// Returns the failure of commands that were not proposed.
fn failure(why: NotProposed) -> WriteFailure {
    match why {
        NotProposed::NotLeader | NotProposed::Waits(_) => {
            WriteFailure::Certain(NOT_LEADING.to_owned())
        }
        NotProposed::Elsewhere => WriteFailure::Elsewhere,
        NotProposed::Unable(why) => WriteFailure::Certain(why),
        NotProposed::Refused(words) => WriteFailure::Reply(words),
        NotProposed::NotResident => {
            WriteFailure::Reply("ERR internal error: it waits where it may".to_owned())
        }
        NotProposed::TooLarge(bytes) => WriteFailure::Reply(format!(
            "ERR the command writes {bytes} bytes: in a live table of a cluster a command writes at \
             most {MOST_EFFECT_BYTES}"
        )),
    }
}

/// Returns the outcome of a proposal. `None` if it is not known in time.
fn outcome(answer: Option<Result<Result<Answer, Refusal>, ()>>) -> Result<Answer, WriteFailure> {
    match answer {
        Some(Ok(Ok(Answer::OtherPartition))) => Err(WriteFailure::Elsewhere),
        Some(Ok(Ok(Answer::Refused(why)))) => Err(WriteFailure::Reply(format!("ERR {why}"))),
        Some(Ok(Ok(answer))) => Ok(answer),
        Some(Ok(Err(Refusal::NotLeader(_)))) => Err(WriteFailure::Certain(NOT_LEADING.to_owned())),
        Some(Ok(Err(Refusal::Outdated))) => Err(WriteFailure::Certain(
            "another change of the partition came before it".to_owned(),
        )),
        Some(Ok(Err(Refusal::NoReplicas))) => Err(WriteFailure::Certain(format!(
            "{NO_REPLICAS} no majority of the replicas of the key's partition answers, or another one \
             is to lead: nothing was written"
        ))),
        Some(Ok(Err(Refusal::Uncertain)) | Err(())) => {
            Err(uncertain("the replica that led leads no more"))
        }
        None => Err(uncertain(
            "it was not applied here in time: no majority answered, or this replica cannot apply it",
        )),
    }
}

/// Waits for the answer to a proposal, as long as the requester does.
async fn answered(
    requester: &Requester<'_>,
    mut answer: ProposalAnswer,
) -> Result<Answer, WriteFailure> {
    let clock = requester.work.shared.store.clock();
    // The answers after the first are mostly ready when the first is.
    outcome(match answer.try_recv() {
        Ok(answer) => Some(Ok(answer)),
        Err(TryRecvError::Closed) => Some(Err(())),
        Err(TryRecvError::Empty) => {
            let answer = within(&**clock, requester.left(), answer).await;
            answer.map(|answer| answer.map_err(drop))
        }
    })
}

/// Advances a partition's time with an entry that does nothing else.
pub async fn move_time(requester: &Requester<'_>, group: GroupId) -> Result<(), String> {
    let Some(replicas) = requester.cluster.member().replicas() else {
        return Err("no replica is here".to_owned());
    };
    let (done, answer) = oneshot::channel();
    // A requester that gave up gets nothing.
    let done = Box::new(move |answer| drop(done.send(answer)));
    let effect = Effect::AdvanceTime.encode();
    replicas.host().propose(group, effect, done);
    match answered(requester, answer).await {
        Ok(_) => Ok(()),
        Err(WriteFailure::Certain(why) | WriteFailure::Reply(why)) => Err(why),
        Err(WriteFailure::Elsewhere) => Err(SPLIT_MEANWHILE.to_owned()),
    }
}

fn uncertain(why: &str) -> WriteFailure {
    WriteFailure::Reply(format!(
        "UNCERTAIN it is unknown whether this was written, or will be ({why}): wait, read what it was to \
         change, and decide by that whether to send it again"
    ))
}
