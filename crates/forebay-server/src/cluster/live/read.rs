//! Reads keys of one partition with a permit of its replicas.

use bytes::Bytes;
use forebay_engine::live::Expiry;
use forebay_host::ReadPermit;
use forebay_io::within;
use forebay_replica::GroupId;
use tokio::sync::oneshot;

use super::super::ask::{PeerReplies, Requester, Unanswered};
use super::super::frame::{DAMAGED, reason};
use super::super::place::moved_to;
use super::super::split;
use super::command_target::CommandTarget;
use super::key_spot::{LiveAt, LiveSpot};
use super::write::move_time;
use crate::command::split as split_key;
use crate::work::Task;

const SPLIT_MEANWHILE: &str = "the partition was split a moment ago";

/// Commands that read keys of one partition.
pub struct PartRead<'a> {
    pub requester: &'a Requester<'a>,
    pub at: LiveAt,
    /// Whether the client may be redirected: all keys have one slot.
    pub may_move: bool,
    /// The task that runs on this node.
    pub task: Box<dyn Fn() -> Task + Send + Sync + 'a>,
    /// The commands as clients send them, for another node.
    pub commands: Vec<u8>,
    /// The most replies: on this node, and of another node.
    pub counts: (usize, usize),
}

/// The reason why an attempt did not read.
enum ReadFailure {
    /// Another attempt may succeed.
    Passing(String),
    /// Another attempt may succeed once another replica leads: the data of the replica that was
    /// read is damaged.
    Damaged(String),
    Reply(Unanswered),
}

impl PartRead<'_> {
    pub async fn done(&self) -> Result<PeerReplies, Unanswered> {
        let requester = self.requester;
        let mut attempt = 0;
        loop {
            let (why, is_damage) = match self.once(attempt).await {
                Ok(replies) => return Ok(replies),
                Err(ReadFailure::Reply(reported)) => return Err(reported),
                Err(ReadFailure::Passing(why)) => (why, false),
                Err(ReadFailure::Damaged(why)) => (why, true),
            };
            if requester.is_last() {
                return Err(match is_damage {
                    true => Unanswered::Reply(format!("{DAMAGED} {why}")),
                    false => requester.not_leading(),
                });
            }
            if self.at.has_changed(requester.cluster) {
                let words = "the partitions of the table have just changed";
                return Err(Unanswered::OtherMap(words.to_owned()));
            }
            if (is_damage && self.has_one_replica()) || !requester.waits_for_lead(attempt).await {
                return Err(match is_damage {
                    true => Unanswered::Damaged(why),
                    false => Unanswered::Reply(format!("TRYAGAIN {}", reason(&why))),
                });
            }
            attempt += 1;
        }
    }

    async fn once(&self, attempt: usize) -> Result<PeerReplies, ReadFailure> {
        let requester = self.requester;
        let Some(spot) = requester.spot(&self.at) else {
            let why = "where the table's partitions are is not known here yet".to_owned();
            return Err(ReadFailure::Passing(why));
        };
        let mut lead = requester.lead(&spot, self.may_move, attempt);
        if lead != CommandTarget::Here && requester.reads_follower(spot.group) {
            if !self.has_expired().await {
                return self.here(&spot, false).await;
            }
            // Only the leader advances the partition's time.
            lead = requester.lead(&spot, false, attempt);
        }
        match lead {
            CommandTarget::Here => self.here(&spot, true).await,
            _ if requester.is_last() => Err(ReadFailure::Passing(String::new())),
            CommandTarget::Moved(address) => {
                let moved = moved_to(spot.slot.unwrap_or(0), &address);
                Err(ReadFailure::Reply(Unanswered::Reply(moved)))
            }
            CommandTarget::Node(node) => self.ask(&[node.id]).await,
            CommandTarget::Unknown(why) => Err(ReadFailure::Passing(why)),
            CommandTarget::Isolated(words) => Err(ReadFailure::Reply(Unanswered::Reply(words))),
        }
    }

    async fn ask(&self, nodes: &[forebay_cluster::NodeId]) -> Result<PeerReplies, ReadFailure> {
        let count = self.counts.1;
        let asked = self.requester.ask(nodes, &self.commands, count, "").await;
        let replies = asked.map_err(|why| match why {
            Unanswered::Reply(words) if is_passing(&words) => ReadFailure::Passing(words),
            Unanswered::Reply(_) => ReadFailure::Reply(why),
            why => ReadFailure::Passing(why.into_words()),
        })?;
        if let (1, count @ 2..) = self.counts {
            last_of_exec(&replies, count).map_err(ReadFailure::Reply)?;
        }
        self.if_there(&replies)?;
        Ok(replies)
    }

    /// Returns whether no other replica exists that could have what is damaged.
    fn has_one_replica(&self) -> bool {
        let spot = self.requester.spot(&self.at);
        spot.is_some_and(|spot| spot.nodes.len() < 2)
    }

    /// Refuses replies one of which says that the node lacks its keys or cannot read them.
    fn if_there(&self, replies: &PeerReplies) -> Result<(), ReadFailure> {
        let mut each = (0..).map_while(|at| replies.get(at));
        match each.find_map(|reply| self.requester.not_there(replies, reply)) {
            Some(Unanswered::Damaged(why)) => Err(ReadFailure::Damaged(why)),
            Some(why) => Err(ReadFailure::Passing(why.into_words())),
            None => Ok(()),
        }
    }

    /// Reads this node's replica.
    async fn here(&self, spot: &LiveSpot, leads: bool) -> Result<PeerReplies, ReadFailure> {
        let (requester, group) = (self.requester, spot.group);
        if leads && self.has_expired().await {
            // The answer is as of a partition time that has reached the present.
            let moved = move_time(requester, group).await;
            moved.map_err(|why| ReadFailure::Passing(why_not_moved(why)))?;
        }
        let permit = self.permit(group, leads).await?;
        let routing = self.routing(spot)?;
        let replies = requester.read_by_permit((self.task)(), self.counts.0).await;
        if !permit.holds() {
            let why = "the replica here leads no more".to_owned();
            return Err(ReadFailure::Passing(why));
        }
        // The group's permit covers only the keys of its partition.
        if self.routing(spot)? != routing {
            return Err(ReadFailure::Passing(SPLIT_MEANWHILE.to_owned()));
        }
        self.if_there(&replies)?;
        Ok(replies)
    }

    /// Returns the routing number of the keys, or an error if the request is for another partition.
    fn routing(&self, spot: &LiveSpot) -> Result<u64, ReadFailure> {
        let tables = self.requester.work.shared.tables().keep();
        let Some(table) = tables.live(self.at.table()) else {
            return Err(ReadFailure::Passing("the table is not here".to_owned()));
        };
        let routing = table.routing().number();
        match self.at.lies_in(spot.partition, table) {
            true => Ok(routing),
            false => Err(ReadFailure::Passing(SPLIT_MEANWHILE.to_owned())),
        }
    }

    async fn permit(&self, group: GroupId, leads: bool) -> Result<ReadPermit, ReadFailure> {
        let requester = self.requester;
        let Some(replicas) = requester.cluster.member().replicas() else {
            return Err(ReadFailure::Passing("no replica is here".to_owned()));
        };
        let (done, given) = oneshot::channel();
        // A requester that gave up gets nothing.
        let done = Box::new(move |permit| drop(done.send(permit)));
        match requester.cluster.max_staleness().filter(|_| !leads) {
            Some(bound) => replicas.host().read_within(group, bound, done),
            None => replicas.host().read(group, done),
        }
        let clock = requester.work.shared.store.clock();
        match within(&**clock, requester.left(), given).await {
            Some(Ok(Ok(permit))) => Ok(permit),
            Some(Ok(Err(_)) | Err(_)) => Err(ReadFailure::Passing(
                "no majority of the replicas of the key's partition answers".to_owned(),
            )),
            None => Err(ReadFailure::Passing(
                "no majority of the replicas answered in time".to_owned(),
            )),
        }
    }

    /// Returns whether a key has expired by this node's clock but not by its partition's time.
    async fn has_expired(&self) -> bool {
        let shared = &self.requester.work.shared;
        let (tables, now_ms) = (shared.tables().keep(), shared.store.clock().unix_ms());
        let expires = |wire: &[u8]| {
            let table = split_key(wire)
                .ok()
                .and_then(|(table, _)| tables.live(table));
            table.is_some_and(|table| table.options().expiry != Expiry::Never)
        };
        let keys = match &self.at {
            LiveAt::Keys(keys) => keys,
            // Some of the table's keys may have expired.
            LiveAt::Place { table, .. } => return expires(&[table, &b":"[..]].concat()),
        };
        if !keys.iter().any(|wire| expires(wire)) {
            return false;
        }
        let keys = keys.clone();
        let looks = tokio::task::spawn_blocking(move || {
            keys.iter().any(|wire| {
                let found = split_key(wire).ok();
                let found = found.and_then(|(table, key)| Some((tables.live(table)?, key)));
                // If the key cannot be read, the command reports it.
                found.is_some_and(|(table, key)| table.would_expire(key, now_ms).unwrap_or(false))
            })
        });
        looks.await.unwrap_or(false)
    }
}

/// Returns the reply to EXEC, or the error of a command that was refused.
fn last_of_exec(replies: &PeerReplies, count: usize) -> Result<&[u8], Unanswered> {
    let before = (0..count - 1).filter_map(|at| replies.get(at));
    if let Some(words) = before.filter_map(split::error).next() {
        return Err(Unanswered::Reply(words));
    }
    replies.get(count - 1).ok_or_else(|| {
        let words = "ERR this MULTI has more commands than another node takes at a time";
        Unanswered::Reply(words.to_owned())
    })
}

/// Returns the error if a partition's time may not have reached the present. Nothing was written.
fn why_not_moved(why: String) -> String {
    match why.starts_with("UNCERTAIN ") {
        true => "it is not known yet whether a key has expired: another replica is becoming leader"
            .to_owned(),
        false => why,
    }
}

fn is_passing(words: &str) -> bool {
    words.starts_with("TRYAGAIN ") || words.starts_with("CLUSTERDOWN ")
}

/// Returns the bytes of the only reply, or of the last of several.
pub fn last_of(replies: &PeerReplies, (here, asked): (usize, usize)) -> Bytes {
    let last = match (here, replies.get(asked - 1)) {
        (1, Some(last)) => last,
        _ => replies.one(),
    };
    replies.bytes.slice_ref(last)
}
