//! Asks the nodes that have a range, one after another until one answers.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::NodeId;
use forebay_cluster::map::{ClusterMap, MapNode};
use forebay_engine::TableName;

use super::frame::{DAMAGED, ForwardHeader, NOT_HERE};
use super::link::PeerAnswer;
use super::node::Cluster;
use super::place::{KeyPlace, moved_to};
use super::split;
use super::topology::primary_at;
use crate::command::{COMMANDS, CommandError};
use crate::execute::{Outcome, View};
use crate::port::Port;
use crate::resp::{OwnedArgs, Reply};
use crate::table_view::TableView;
use crate::work::{Task, Work, WorkOutcome};

/// The pause before a node is asked again for a version that it lacked: nodes swap at about the
/// same time.
const VERSION_PAUSE: Duration = Duration::from_millis(20);

/// A command, with the map and the versions of one attempt to answer it.
#[derive(Debug)]
pub struct Requester<'w> {
    pub work: &'w Work,
    pub cluster: &'w Cluster,
    pub map: Arc<ClusterMap>,
    pub tables: TableView,
    /// On the monotonic clock.
    pub deadline: Duration,
    /// Attempts are repeated until then; there is always a second one.
    retry_until: Duration,
    has_retried: bool,
    /// Whether this node could not read keys that other nodes have too.
    is_damaged_here: bool,
}

/// The reason why an attempt gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// A final error, which the client gets.
    Reply(String),
    /// Nodes have different maps at the moment: another attempt may succeed.
    OtherMap(String),
    /// Nodes have different versions at the moment: another attempt may succeed.
    OtherVersion(String),
    /// The data of this node, or of all other nodes that were asked, is damaged.
    Damaged(String),
}

/// Replies of another node, or of this one in the same form.
#[derive(Debug, Clone)]
pub struct PeerReplies {
    pub bytes: Bytes,
    /// The range of each reply.
    each: Vec<Range<usize>>,
    /// The node that sent them; `None` for this node.
    from: Option<NodeId>,
}

impl PeerReplies {
    /// Parses replies of another node. `None` if there is anything else among them, none at all, or
    /// more than `most`.
    fn of(bytes: Bytes, most: usize, from: NodeId) -> Option<Self> {
        let each = split::replies(&bytes)?;
        let from = Some(from);
        let fits = (1..=most).contains(&each.len());
        fits.then_some(Self { bytes, each, from })
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.each.get(index).map(|range| &self.bytes[range.clone()])
    }

    /// Returns the reply to a single command.
    pub fn one(&self) -> &[u8] {
        self.get(0).unwrap_or_default()
    }
}

impl<'w> Requester<'w> {
    pub fn new(work: &'w Work, cluster: &'w Cluster) -> Self {
        let now = work.shared.store.clock().monotonic();
        let limits = cluster.limits();
        Self {
            work,
            cluster,
            map: cluster.map_for(&work.user),
            tables: work.tables.keep(),
            deadline: now + limits.total_time,
            retry_until: now + limits.total_time.saturating_sub(limits.hop_time) / 2,
            has_retried: false,
            is_damaged_here: false,
        }
    }

    /// Prepares another attempt with the current map and versions. Returns `false` if none is left.
    pub async fn tries_again(&mut self, why: &Unanswered) -> bool {
        let clock = Arc::clone(self.work.shared.store.clock());
        let is_late = || self.has_retried && clock.monotonic() >= self.retry_until;
        match why {
            Unanswered::Reply(_) => return false,
            Unanswered::Damaged(_) if self.is_damaged_here => return false,
            Unanswered::Damaged(_) => self.is_damaged_here = true,
            _ if is_late() => return false,
            Unanswered::OtherVersion(_) => clock.wait(VERSION_PAUSE).await,
            Unanswered::OtherMap(_) => {
                self.cluster.newer_map(&*clock, self.map.revision).await;
            }
        }
        self.has_retried = true;
        self.map = self.cluster.map_for(&self.work.user);
        self.tables = self.work.shared.tables().keep();
        true
    }

    /// Returns whether this node reads its own keys: not after a damaged read if other nodes have
    /// them.
    pub fn reads_here(&self, holders: &[NodeId]) -> bool {
        !self.is_damaged_here || holders.iter().all(|node| *node == self.map.me)
    }

    /// Returns a table and the version that all nodes are asked for. It is the version open on this
    /// node or, if none is open yet, the one that the map names.
    pub fn read_of(&self, table: &[u8]) -> Option<(&str, u64)> {
        if let Some(version) = self.tables.batch.get(table) {
            return Some((version.table().as_str(), version.version()));
        }
        let name = TableName::new(std::str::from_utf8(table).ok()?).ok()?;
        let (known, entry) = self.map.table_and_name(&name)?;
        Some((known.as_str(), entry.serving?))
    }

    /// Returns an error while this node has not opened all tables of the cluster: a walk would miss
    /// some.
    pub fn check_started(&self) -> Result<(), Unanswered> {
        let mut serving = self
            .map
            .tables()
            .filter(|(_, entry)| entry.serving.is_some());
        let is_open = |name: &TableName| self.tables.batch.get(name.as_str().as_bytes()).is_some();
        match self.map.revision > 0 && serving.all(|(name, _)| is_open(name)) {
            true => Ok(()),
            false => {
                let words = "LOADING the node is starting, and does not have all tables open yet";
                Err(Unanswered::Reply(words.to_owned()))
            }
        }
    }

    pub fn left(&self) -> Duration {
        let now = self.work.shared.store.clock().monotonic();
        self.deadline.saturating_sub(now)
    }

    /// Asks the nodes in turn to run commands and returns the replies of the first that answers, at
    /// most `count`. `versions` is as in a frame.
    pub async fn ask(
        &self,
        holders: &[NodeId],
        commands: &[u8],
        count: usize,
        versions: &str,
    ) -> Result<PeerReplies, Unanswered> {
        let header = ForwardHeader {
            cluster: self.map.cluster,
            revision: self.map.revision,
            node: self.map.me,
            user: self.work.user.name(),
            resp3: self.work.resp3,
            versions,
        };
        let take = |bytes: &Bytes, node| PeerReplies::of(bytes.clone(), count, node);
        let is_whole = |replies: &PeerReplies| {
            let mut each = (0..count).filter_map(|index| replies.get(index));
            !each.any(|reply| split::is_error(reply, NOT_HERE) || split::is_error(reply, DAMAGED))
        };
        let frame = header.frame(commands);
        self.ask_frame(holders, frame, take, is_whole).await
    }

    /// Sends a frame to the nodes in turn until `take` accepts an answer. It skips a node that has
    /// not opened the whole range or the version, while other nodes are left.
    pub async fn ask_frame<T>(
        &self,
        holders: &[NodeId],
        frame: Bytes,
        take: impl Fn(&Bytes, NodeId) -> Option<T>,
        is_whole: impl Fn(&T) -> bool,
    ) -> Result<T, Unanswered> {
        if holders.contains(&self.map.me) && holders.len() == 1 {
            // Until the node has opened a new replica, or learns that the replica was moved away.
            return Err(Unanswered::OtherMap(format!(
                "by map {} this node alone has the key, and it is not open here",
                self.map.revision
            )));
        }
        let (mut part, mut other_version) = (None, None);
        let mut problems = Vec::new();
        let mut is_late = false;
        let links = self.cluster.links(self.work.worker);
        for node in self.map.to_ask(holders) {
            let limit = self.cluster.limits().hop_time.min(self.left());
            if limit < Duration::from_millis(1) {
                is_late = true;
                break;
            }
            let garbled = || io::Error::other("its answer cannot be understood");
            let taken = match links.ask(&node.peer, frame.clone(), limit).await {
                Ok(PeerAnswer::Refused(text)) => match self.refused(node, text) {
                    reported @ Unanswered::OtherVersion(_) => {
                        other_version.get_or_insert(reported);
                        continue;
                    }
                    reported => return Err(reported),
                },
                Ok(PeerAnswer::Bytes(bytes)) => take(&bytes, node.id).ok_or_else(garbled),
                Err(error) => Err(error),
            };
            match taken {
                Ok(taken) => {
                    if !node.is_available {
                        self.cluster.member().trust(node.id);
                    }
                    if is_whole(&taken) {
                        return Ok(taken);
                    }
                    part.get_or_insert(taken);
                }
                Err(error) => {
                    is_late |= error.kind() == io::ErrorKind::TimedOut;
                    self.cluster.suspect(self.now(), node.id);
                    problems.push(format!("{} ({}): {error}", node.name, node.peer));
                }
            }
        }
        match (part, other_version) {
            (Some(part), _) => return Ok(part),
            (None, Some(reported)) => return Err(reported),
            (None, None) => {}
        }
        let code = if is_late { "TRYAGAIN" } else { "CLUSTERDOWN" };
        let problems = match problems.is_empty() {
            true => "no other node has it".to_owned(),
            false => problems.join("; "),
        };
        Err(Unanswered::Reply(format!(
            "{code} no node that has the key answers: {problems}"
        )))
    }

    fn refused(&self, node: &MapNode, text: String) -> Unanswered {
        match text.strip_prefix("NOVERSION ") {
            Some(words) => Unanswered::OtherVersion(format!("node {} answers: {words}", node.name)),
            None => Unanswered::Reply(text),
        }
    }

    /// Returns the error if one of the replies says that the node lacks its keys or cannot read
    /// them.
    pub fn not_there(&self, replies: &PeerReplies, reply: &[u8]) -> Option<Unanswered> {
        if split::is_error(reply, DAMAGED) {
            let text = split::error(reply).unwrap_or_default();
            return Some(Unanswered::Damaged(text[DAMAGED.len() + 1..].to_owned()));
        }
        if !split::is_error(reply, NOT_HERE) {
            return None;
        }
        let name = |id| self.map.node(id).map_or("?", |node| node.name.as_str());
        let (me, other) = (name(self.map.me), name(replies.from.unwrap_or(self.map.me)));
        let text = split::error(reply).unwrap_or_default();
        let mut words = text.splitn(3, ' ').skip(1);
        let (theirs, why) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        Some(Unanswered::OtherMap(format!(
            "by its map {} node {me} takes node {other} to have the key, which by its map {theirs} answers: \
             {why}",
            self.map.revision
        )))
    }

    /// Runs a command on this node's data. Its reply has the form of another node's.
    pub async fn run_here(&self, place: usize, args: OwnedArgs) -> PeerReplies {
        self.read_here(Task::One(place, args), 1).await
    }

    /// Runs a task on this node's data, with at most `count` replies.
    pub async fn read_here(&self, task: Task, count: usize) -> PeerReplies {
        self.read_as(task, count, self.tables.keep(), false).await
    }

    /// Runs a task on the replicas as they are now, with a read permit.
    pub async fn read_by_permit(&self, task: Task, count: usize) -> PeerReplies {
        let tables = self.work.shared.tables().keep();
        self.read_as(task, count, tables, true).await
    }

    async fn read_as(
        &self,
        task: Task,
        count: usize,
        tables: TableView,
        has_permit: bool,
    ) -> PeerReplies {
        let work = Work {
            task,
            tables,
            has_permit,
            user: Arc::clone(&self.work.user),
            client: Arc::clone(&self.work.client),
            shared: Arc::clone(&self.work.shared),
            ..*self.work
        };
        let ran = tokio::task::spawn_blocking(move || work.run_as(Port::Peer)).await;
        let reply = match ran {
            Ok(WorkOutcome::Done(done)) => done.replies,
            Ok(WorkOutcome::Elsewhere(_)) | Err(_) => {
                let mut reply = Reply::new(false);
                reply.error("ERR internal error: see the server's log");
                reply
            }
        };
        let bytes = Bytes::from(reply.into_bytes());
        let each = match count {
            1 => std::iter::once(0..bytes.len()).collect(),
            _ => split::replies(&bytes).unwrap_or_default(),
        };
        let from = None;
        PeerReplies { bytes, each, from }
    }

    /// Returns a view of this node's data for a thread that must not wait.
    pub fn view(&self) -> View<'_> {
        View {
            tables: &self.tables,
            user: &self.work.user,
            shared: &self.work.shared,
            may_wait: false,
            port: self.work.client.port,
            evaluation: None,
            has_permit: false,
        }
    }

    /// Returns the redirect for a client of a class port or of the ordinary port. `None` if the
    /// command is forwarded.
    pub fn moved(&self, place: &KeyPlace<'_>) -> Option<String> {
        let leads = self.work.client.port.is_clustered();
        if !leads || self.work.shared.config.default_table.is_some() {
            return None;
        }
        let slot = place.slot?;
        // A user that sees all tables uses the layout that they share.
        if place.has_own_slots && !self.map.is_own {
            return None;
        }
        let class = self.map.class_of(slot)?;
        let acting = *class.nodes.first()?;
        let to = if !place.holders.contains(&acting) {
            let holders = place.holders.iter().filter_map(|id| self.map.node(*id));
            let mut holders = holders.filter(|node| node.id != self.map.me);
            let holder = holders.find(|node| node.is_available)?;
            primary_at(&self.map, holder, slot)?
        } else if acting == self.map.me {
            return None;
        } else {
            class.primary.clone()
        };
        (!to.host.is_empty()).then(|| moved_to(slot, &to))
    }

    /// Ends the command with this error.
    pub fn fail(&self, words: &str) -> (Reply, Outcome) {
        let mut reply = self.work.reply();
        reply.error(words);
        (reply, Outcome::Failed)
    }

    /// Ends the command with another node's reply, unchanged.
    pub fn pass(&self, bytes: &[u8]) -> (Reply, Outcome) {
        let limit = self.work.shared.config.limits.reply_bytes;
        if bytes.len() > limit {
            return self.fail(&format!(
                "ERR the reply is larger than {limit} bytes: ask for less at a time"
            ));
        }
        let mut reply = self.work.reply();
        reply.append(bytes);
        let is_error = bytes.first() == Some(&b'-');
        (
            reply,
            if is_error {
                Outcome::Failed
            } else {
                Outcome::Answered
            },
        )
    }

    /// Returns the command's name in capitals, for messages.
    pub fn name(&self, place: usize) -> String {
        COMMANDS[place].name.to_uppercase()
    }
}

impl From<CommandError> for Unanswered {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Error(text) => Unanswered::Reply(text.into_owned()),
            // The table is one of the cluster's: it is being added, or was removed a moment ago.
            CommandError::NotHere(words) => Unanswered::OtherMap(words),
            CommandError::Damaged(words) => Unanswered::Damaged(words),
            CommandError::Machine { text, .. } => Unanswered::Reply(text),
            CommandError::NotResident | CommandError::Replicas => {
                Unanswered::Reply("ERR internal error: it waits where it may".to_owned())
            }
        }
    }
}

impl Unanswered {
    /// Returns the error text for the client when no attempt is left.
    pub fn into_words(self) -> String {
        match self {
            Unanswered::Reply(words) => words,
            Unanswered::Damaged(words) => format!("ERR {words}"),
            Unanswered::OtherMap(words) | Unanswered::OtherVersion(words) => {
                format!("TRYAGAIN {words}")
            }
        }
    }
}

/// Waits for all of these futures at once.
pub async fn all<'f, T>(works: Vec<Pin<Box<dyn Future<Output = T> + Send + 'f>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = works.iter().map(|_| None).collect();
    let mut works: Vec<Option<_>> = works.into_iter().map(Some).collect();
    poll_fn(|context| {
        for (slot, done) in works.iter_mut().zip(&mut done) {
            if let Some(work) = slot
                && let Poll::Ready(given) = work.as_mut().poll(context)
            {
                *done = Some(given);
                *slot = None;
            }
        }
        match works.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
