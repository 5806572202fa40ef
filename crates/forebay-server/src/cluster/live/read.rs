//! Reading keys of one partition by leave of its replicas.

use bytes::Bytes;
use forebay_engine::live::Expiry;
use forebay_host::ReadLeave;
use forebay_io::within;
use forebay_replica::GroupId;
use tokio::sync::oneshot;

use super::super::ask::{Asker, PeerReplies, Unanswered};
use super::super::frame::{DAMAGED, reason};
use super::super::place::moved_to;
use super::super::split;
use super::lead::Lead;
use super::spot::{LiveAt, LiveSpot};
use super::write::move_time;
use crate::command::split as split_key;
use crate::work::Task;

const CUT: &str = "the partition was split a moment ago";

/// Commands that read keys of one partition.
pub struct PartRead<'a> {
    pub asker: &'a Asker<'a>,
    pub at: LiveAt,
    /// All keys have one slot.
    pub may_move: bool,
    /// What is run here.
    pub task: Box<dyn Fn() -> Task + Send + Sync + 'a>,
    /// The same as clients send it.
    pub commands: Vec<u8>,
    /// How many replies there are at most: here, and of another node.
    pub counts: (usize, usize),
}

/// Why a try did not read.
enum NotRead {
    /// Another try may.
    Passing(String),
    /// The same, once another replica leads: what the one that was read has is damaged.
    Damaged(String),
    Told(Unanswered),
}

impl PartRead<'_> {
    pub async fn done(&self) -> Result<PeerReplies, Unanswered> {
        let asker = self.asker;
        let mut attempt = 0;
        loop {
            let (why, is_damage) = match self.once(attempt).await {
                Ok(replies) => return Ok(replies),
                Err(NotRead::Told(told)) => return Err(told),
                Err(NotRead::Passing(why)) => (why, false),
                Err(NotRead::Damaged(why)) => (why, true),
            };
            if asker.is_last() {
                return Err(match is_damage {
                    true => Unanswered::Told(format!("{DAMAGED} {why}")),
                    false => asker.not_leading(),
                });
            }
            if self.at.has_changed(asker.cluster) {
                let words = "the partitions of the table have just changed";
                return Err(Unanswered::OtherMap(words.to_owned()));
            }
            if (is_damage && self.has_one_replica()) || !asker.waits_for_lead(attempt).await {
                return Err(match is_damage {
                    true => Unanswered::Damaged(why),
                    false => Unanswered::Told(format!("TRYAGAIN {}", reason(&why))),
                });
            }
            attempt += 1;
        }
    }

    async fn once(&self, attempt: usize) -> Result<PeerReplies, NotRead> {
        let asker = self.asker;
        let Some(spot) = asker.spot(&self.at) else {
            let why = "where the table's partitions are is not known here yet".to_owned();
            return Err(NotRead::Passing(why));
        };
        let mut lead = asker.lead(&spot, self.may_move, attempt);
        if lead != Lead::Here && asker.reads_follower(spot.group) {
            if !self.has_expired().await {
                return self.here(&spot, false).await;
            }
            // Only the leader moves the partition's time.
            lead = asker.lead(&spot, false, attempt);
        }
        match lead {
            Lead::Here => self.here(&spot, true).await,
            _ if asker.is_last() => Err(NotRead::Passing(String::new())),
            Lead::Moved(address) => {
                let moved = moved_to(spot.slot.unwrap_or(0), &address);
                Err(NotRead::Told(Unanswered::Told(moved)))
            }
            Lead::Node(node) => self.ask(&[node.id]).await,
            Lead::Unknown(why) => Err(NotRead::Passing(why)),
            Lead::CutOff(words) => Err(NotRead::Told(Unanswered::Told(words))),
        }
    }

    async fn ask(&self, nodes: &[forebay_cluster::NodeId]) -> Result<PeerReplies, NotRead> {
        let count = self.counts.1;
        let asked = self.asker.ask(nodes, &self.commands, count, "").await;
        let replies = asked.map_err(|why| match why {
            Unanswered::Told(words) if is_passing(&words) => NotRead::Passing(words),
            Unanswered::Told(_) => NotRead::Told(why),
            why => NotRead::Passing(why.into_words()),
        })?;
        if let (1, count @ 2..) = self.counts {
            last_of_exec(&replies, count).map_err(NotRead::Told)?;
        }
        self.if_there(&replies)?;
        Ok(replies)
    }

    /// Whether nobody else could have what is damaged.
    fn has_one_replica(&self) -> bool {
        let spot = self.asker.spot(&self.at);
        spot.is_some_and(|spot| spot.nodes.len() < 2)
    }

    /// Refuses replies one of which says that its keys are not there, or cannot be read there.
    fn if_there(&self, replies: &PeerReplies) -> Result<(), NotRead> {
        let mut each = (0..).map_while(|at| replies.get(at));
        match each.find_map(|reply| self.asker.not_there(replies, reply)) {
            Some(Unanswered::Damaged(why)) => Err(NotRead::Damaged(why)),
            Some(why) => Err(NotRead::Passing(why.into_words())),
            None => Ok(()),
        }
    }

    /// Reads the replica here.
    async fn here(&self, spot: &LiveSpot, leads: bool) -> Result<PeerReplies, NotRead> {
        let (asker, group) = (self.asker, spot.group);
        if leads && self.has_expired().await {
            // The answer is that of a partition whose time has come to now.
            let moved = move_time(asker, group).await;
            moved.map_err(|why| NotRead::Passing(why_not_moved(why)))?;
        }
        let leave = self.leave(group, leads).await?;
        let routing = self.routing(spot)?;
        let replies = asker.read_by_leave((self.task)(), self.counts.0).await;
        if !leave.holds() {
            let why = "the replica here leads no more".to_owned();
            return Err(NotRead::Passing(why));
        }
        // Leave of the group is about what its partition has.
        if self.routing(spot)? != routing {
            return Err(NotRead::Passing(CUT.to_owned()));
        }
        self.if_there(&replies)?;
        Ok(replies)
    }

    /// How keys are led here; an error where what is asked for lies in another partition.
    fn routing(&self, spot: &LiveSpot) -> Result<u64, NotRead> {
        let tables = self.asker.work.shared.tables().keep();
        let Some(table) = tables.live(self.at.table()) else {
            return Err(NotRead::Passing("the table is not here".to_owned()));
        };
        let routing = table.routing().number();
        match self.at.lies_in(spot.partition, table) {
            true => Ok(routing),
            false => Err(NotRead::Passing(CUT.to_owned())),
        }
    }

    async fn leave(&self, group: GroupId, leads: bool) -> Result<ReadLeave, NotRead> {
        let asker = self.asker;
        let Some(replicas) = asker.cluster.member().replicas() else {
            return Err(NotRead::Passing("no replica is here".to_owned()));
        };
        let (done, given) = oneshot::channel();
        // Who gave up is told nothing.
        let done = Box::new(move |leave| drop(done.send(leave)));
        match asker.cluster.stale_reads().filter(|_| !leads) {
            Some(bound) => replicas.host().read_within(group, bound, done),
            None => replicas.host().read(group, done),
        }
        let clock = asker.work.shared.store.clock();
        match within(&**clock, asker.left(), given).await {
            Some(Ok(Ok(leave))) => Ok(leave),
            Some(Ok(Err(_)) | Err(_)) => Err(NotRead::Passing(
                "no majority of the replicas of the key's partition answers".to_owned(),
            )),
            None => Err(NotRead::Passing(
                "no majority of the replicas answered in time".to_owned(),
            )),
        }
    }

    /// Whether a key has expired by the clock here, and is there by its partition's time.
    async fn has_expired(&self) -> bool {
        let shared = &self.asker.work.shared;
        let (tables, now_ms) = (shared.tables().keep(), shared.store.clock().unix_ms());
        let expires = |wire: &[u8]| {
            let table = split_key(wire)
                .ok()
                .and_then(|(table, _)| tables.live(table));
            table.is_some_and(|table| table.options().expiry != Expiry::Never)
        };
        let keys = match &self.at {
            LiveAt::Keys(keys) => keys,
            // Some of its keys may have.
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
                // What cannot be read, the command tells.
                found.is_some_and(|(table, key)| table.would_expire(key, now_ms).unwrap_or(false))
            })
        });
        looks.await.unwrap_or(false)
    }
}

/// The reply to EXEC. A command that was refused says why.
fn last_of_exec(replies: &PeerReplies, count: usize) -> Result<&[u8], Unanswered> {
    let before = (0..count - 1).filter_map(|at| replies.get(at));
    if let Some(words) = before.filter_map(split::error).next() {
        return Err(Unanswered::Told(words));
    }
    replies.get(count - 1).ok_or_else(|| {
        let words = "ERR this MULTI has more commands than another node takes at a time";
        Unanswered::Told(words.to_owned())
    })
}

/// Why a partition's time is not known to have come to now. Nothing was to be written by it.
fn why_not_moved(why: String) -> String {
    match why.starts_with("UNCERTAIN ") {
        true => "it is not known yet whether a key has expired: another replica comes to lead"
            .to_owned(),
        false => why,
    }
}

fn is_passing(words: &str) -> bool {
    words.starts_with("TRYAGAIN ") || words.starts_with("CLUSTERDOWN ")
}

/// The bytes of the only reply, or of the last one of several.
pub fn last_of(replies: &PeerReplies, (here, asked): (usize, usize)) -> Bytes {
    let last = match (here, replies.get(asked - 1)) {
        (1, Some(last)) => last,
        _ => replies.one(),
    };
    replies.bytes.slice_ref(last)
}
