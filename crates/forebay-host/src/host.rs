//! The groups of a node, and the calls that a server makes on them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_engine::live::Stored;
use forebay_io::{Clock, start_answering, start_thread};
use forebay_replica::{
    Change, CodecError, Event, GroupId, PeerId, PeerMessage, Pending, Refusal, Replica, SplitEntry,
    Start, StartError, TICK, decode,
};
use parking_lot::Mutex;
use tracing::warn;

use crate::core::{HostCore, HostCounts};
use crate::early::EarlyMessages;
use crate::effects::WriteDone;
use crate::environment::{GroupState, MessageSender, NodeKey, ReadPace, StandingWatch};
use crate::group::{GroupFacts, GroupStanding, HostedGroup, ReadCallback, ReadPermit};
use crate::leader_state::{EvaluationResult, ProposeOutcome, Wake};
use crate::log_writer::TableLog;
use crate::outbox::Outbox;
use crate::pool::WorkerPool;

/// The time between two trims of the logs while the disk is not short of space.
const TRIM: Duration = Duration::from_secs(1);
/// The number of groups whose messages leave together when all groups get an event. With more, the
/// messages of the first groups would be late.
const TOGETHER: usize = 256;

/// The settings and services of a host.
#[derive(Debug, Clone)]
pub struct HostParts {
    pub clock: Arc<dyn Clock>,
    pub post: Arc<dyn MessageSender>,
    /// The pace at which lagging peers are sent entries from logs.
    pub pace: Arc<dyn ReadPace>,
    pub watch: Arc<dyn StandingWatch>,
    /// The number of threads that apply entries, at least 1. As many further threads do the steps
    /// that take long.
    pub appliers: usize,
    /// The first request number: a different one in each process.
    pub first_request: u64,
}

/// A replica that starts on this host.
#[derive(Debug)]
pub struct NewReplica {
    pub start: Start,
    pub log: Arc<TableLog>,
    pub state: Arc<dyn GroupState>,
    /// The nodes of its group's peers.
    pub nodes: BTreeMap<PeerId, NodeKey>,
}

#[derive(Debug)]
struct HostShared {
    core: Arc<HostCore>,
    groups: ArcSwap<HashMap<GroupId, Arc<HostedGroup>>>,
    early: EarlyMessages,
    is_closed: AtomicBool,
}

/// The replicas of a node, with their threads. Dropping it ends its threads; acknowledged writes
/// are in the logs.
#[derive(Debug)]
pub struct ReplicaHost {
    shared: Arc<HostShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl HostShared {
    fn run_ticks(&self) {
        while !self.is_closed() {
            self.core.clock.sleep(TICK);
            let groups = self.groups.load_full();
            let mut left = groups.values().peekable();
            while left.peek().is_some() {
                let some = left.by_ref().take(TOGETHER);
                let tick = || some.for_each(HostedGroup::tick);
                self.core.outbox.together(tick);
            }
        }
    }

    /// Trims the logs in a thread of its own: trimming writes, and heartbeats must not wait for
    /// that.
    fn run_trims(&self) {
        let mut trimmed = self.core.clock.monotonic();
        while !self.is_closed() {
            self.core.clock.sleep(TICK);
            let now = self.core.clock.monotonic();
            let is_due = now >= trimmed + TRIM;
            if is_due {
                trimmed = now;
            }
            let groups = self.groups.load_full();
            let due = groups
                .values()
                .filter(|group| is_due || group.is_log_short());
            let here = due.filter(|group| !group.is_halted());
            here.for_each(HostedGroup::trim);
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

impl ReplicaHost {
    pub fn start(parts: HostParts) -> io::Result<Self> {
        let core = Arc::new(HostCore {
            outbox: Outbox::new(parts.post),
            pool: Arc::new(WorkerPool::new(Arc::clone(&parts.clock))),
            reader: Arc::default(),
            watch: parts.watch,
            counts: HostCounts::default(),
            requests: AtomicU64::new(parts.first_request),
            clock: parts.clock,
        });
        let shared = Arc::new(HostShared {
            core: Arc::clone(&core),
            groups: ArcSwap::default(),
            early: EarlyMessages::default(),
            is_closed: AtomicBool::new(false),
        });
        let host = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        };
        type Work = Box<dyn FnOnce() + Send>;
        let begin = |name: &str, work: Work| -> io::Result<()> {
            host.threads.lock().push(start_thread(name, work)?);
            Ok(())
        };
        let begin_answering = |name: &str, work: Work| -> io::Result<()> {
            host.threads.lock().push(start_answering(name, work)?);
            Ok(())
        };
        for _ in 0..parts.appliers.max(1) {
            let pool = Arc::clone(&core.pool);
            let applies = move || pool.run();
            begin_answering("forebay-apply", Box::new(applies))?;
        }
        for _ in 0..parts.appliers.max(1) {
            let pool = Arc::clone(&core.pool);
            let applies = move || pool.run_long();
            begin("forebay-change", Box::new(applies))?;
        }
        let (reader, pace) = (Arc::clone(&core.reader), parts.pace);
        let reads = move || reader.run(&*pace);
        begin("forebay-tail", Box::new(reads))?;
        let ticking = Arc::clone(&shared);
        let ticks = move || ticking.run_ticks();
        begin("forebay-tick", Box::new(ticks))?;
        let trimming = Arc::clone(&shared);
        let trims = move || trimming.run_trims();
        begin("forebay-trim", Box::new(trims))?;
        Ok(host)
    }

    /// Adds a replica. If the host has one of the same group, that one ends first: see
    /// [`ReplicaHost::remove`].
    pub fn add(&self, new: NewReplica) -> Result<(), StartError> {
        let replica = Replica::new(self.shared.core.now(), &new.start)?;
        let core = Arc::clone(&self.shared.core);
        let group = HostedGroup::new(core, new.log, new.state, replica, new.nodes);
        let group = Arc::new(group);
        self.remove(group.group());
        self.change(|groups| drop(groups.insert(group.group(), Arc::clone(&group))));
        self.shared.core.outbox.together(|| {
            // The replica that is to lead first stands for election at once.
            group.tick();
            self.receive_early(&group);
        });
        Ok(())
    }

    /// Ends a replica, and returns when none of its work is being written or applied. Its waiting
    /// callers learn that the outcome of their write is uncertain.
    pub fn remove(&self, group: GroupId) {
        let gone = self.get(group);
        self.change(|groups| drop(groups.remove(&group)));
        if let Some(gone) = gone {
            gone.end("it was removed");
            gone.log.settle(group);
            gone.settle_state();
        }
    }

    fn change(&self, change: impl Fn(&mut HashMap<GroupId, Arc<HostedGroup>>)) {
        self.shared.groups.rcu(|groups| {
            let mut groups = HashMap::clone(groups);
            change(&mut groups);
            groups
        });
    }

    fn get(&self, group: GroupId) -> Option<Arc<HostedGroup>> {
        self.shared.groups.load().get(&group).cloned()
    }

    /// Sets the nodes of a group's peers.
    pub fn set_nodes(&self, group: GroupId, nodes: BTreeMap<PeerId, NodeKey>) {
        if let Some(group) = self.get(group) {
            *group.nodes.lock() = nodes;
        }
    }

    /// Handles a frame from another node.
    pub fn receive(&self, frame: Bytes) -> Result<(), CodecError> {
        let mut messages = decode(frame)?.into_iter().peekable();
        while messages.peek().is_some() {
            let some = messages.by_ref().take(TOGETHER);
            self.shared.core.outbox.together(|| self.receive_all(some));
        }
        Ok(())
    }

    fn receive_all(&self, messages: impl Iterator<Item = PeerMessage>) {
        let groups = self.shared.groups.load();
        for message in messages {
            // Skip a replica that has left, or is another peer now.
            let group = groups.get(&message.group);
            let receives =
                |group: &&Arc<HostedGroup>| group.me() == message.to() && !group.is_halted();
            match group {
                Some(group) if receives(&group) => group.notify(Event::Message(message)),
                Some(_) => {}
                None => self.receive_before(message),
            }
        }
    }

    /// Handles a message of a group that this host does not have, or has had only for a moment.
    fn receive_before(&self, message: PeerMessage) {
        let group = message.group;
        let now = self.shared.core.clock.monotonic();
        self.shared.early.keep(now, message);
        if let Some(group) = self.get(group) {
            self.receive_early(&group);
        }
    }

    /// Passes to a group the messages that arrived before the group did.
    fn receive_early(&self, group: &Arc<HostedGroup>) {
        let now = self.shared.core.clock.monotonic();
        let early = self.shared.early.take(now, group.group(), group.me());
        let messages = early.into_iter().map(Event::Message);
        messages.for_each(|message| group.notify(message));
    }

    /// Proposes an encoded effect that depends on no state. An effect that is refused with
    /// [`Refusal::Uncertain`] may have been applied, may not, or may be applied later.
    pub fn propose(&self, group: GroupId, effect: Bytes, done: WriteDone) {
        match self.get(group) {
            Some(group) => group.propose(effect, done),
            None => done(Err(Refusal::NotLeader(None))),
        }
    }

    /// Evaluates a command on the newest state of a group that this host leads, and proposes its
    /// effect. `decide` gets the effects that are not applied yet, and reads other keys from the
    /// applied state. It is called at most once, with the group's other evaluations locked out.
    ///
    /// The callback of the proposal gets [`Refusal::Outdated`] if the evaluation has to be
    /// repeated.
    pub fn evaluate(
        &self,
        group: GroupId,
        decide: impl FnOnce(&Pending<Stored>) -> EvaluationResult,
        wake: Wake,
    ) -> ProposeOutcome {
        match self.get(group) {
            Some(group) => group.evaluate(decide, wake),
            None => ProposeOutcome::NotLeader,
        }
    }

    /// Holds back the proposals to a group that this host leads, for at most that time. Returns the
    /// term, or `None` if the host does not lead the group.
    pub fn hold(&self, group: GroupId, within: Duration) -> Option<u64> {
        self.get(group)?.hold(within)
    }

    /// Returns whether a group's proposals are still held back.
    pub fn is_held(&self, group: GroupId) -> bool {
        self.get(group).is_some_and(|group| group.is_held())
    }

    /// Ends such a hold.
    pub fn release(&self, group: GroupId) {
        if let Some(group) = self.get(group) {
            group.release();
        }
    }

    /// Returns a read permit if it needs no waiting.
    pub fn try_read(&self, group: GroupId) -> Option<ReadPermit> {
        let groups = self.shared.groups.load();
        ReadPermit::at_once(groups.get(&group)?)
    }

    /// Requests a read permit. A leader grants it itself; a follower asks its leader. `done` gets
    /// it once this replica has applied the entries that the permit covers.
    pub fn read(&self, group: GroupId, done: ReadCallback) {
        match self.get(group) {
            Some(group) => group.read(done),
            None => done(Err(Refusal::NotLeader(None))),
        }
    }

    /// Requests a permit for a stale read, of data that lags by less than a bound: it has
    /// everything that was acknowledged before that. If a permit was granted within the bound, no
    /// request is needed.
    pub fn read_within(&self, group: GroupId, bound: Duration, done: ReadCallback) {
        match self.get(group) {
            Some(group) => group.read_within(bound, done),
            None => done(Err(Refusal::NotLeader(None))),
        }
    }

    /// Passes the coordinator's changes to a group. Only its leader acts on them.
    pub fn order(&self, group: GroupId, changes: Vec<Change>) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Change(changes));
        }
    }

    /// Has the group's leader, if it is this replica, propose a split of the partition.
    pub fn split(&self, group: GroupId, split: SplitEntry) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Split(split));
        }
    }

    /// Has the group's leader, if it is this replica, hand over leadership.
    pub fn transfer(&self, group: GroupId, to: PeerId) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Transfer { to });
        }
    }

    /// Returns the leader of a group, as its replica on this host knows it.
    pub fn leader(&self, group: GroupId) -> Option<PeerId> {
        let groups = self.shared.groups.load();
        groups.get(&group)?.leader()
    }

    /// Returns whether a replica of this host knows no leader of its group.
    pub fn lacks_leader(&self) -> bool {
        let groups = self.shared.groups.load();
        let mut running = groups.values().filter(|group| !group.is_halted());
        running.any(|group| group.leader().is_none())
    }

    /// Returns whether this host has a replica of the group that has not ended by itself.
    pub fn runs(&self, group: GroupId) -> bool {
        let groups = self.shared.groups.load();
        groups.get(&group).is_some_and(|group| !group.is_halted())
    }

    /// Marks this host's replica of a group as unhealthy: its data is damaged. It hands over
    /// leadership, and the coordinator replaces it.
    pub fn fall_ill(&self, group: GroupId, why: &str) {
        if let Some(group) = self.get(group) {
            group.fall_ill(why);
        }
    }

    /// Returns whether this host has a replica that serves reads although it does not lead.
    pub fn may_follow(&self, group: GroupId) -> bool {
        let groups = self.shared.groups.load();
        let group = groups.get(&group);
        group.is_some_and(|group| !group.is_halted() && !group.is_unhealthy())
    }

    pub fn facts(&self, group: GroupId) -> Option<GroupFacts> {
        self.get(group).map(|group| group.facts())
    }

    /// Returns the state of a group's peers, or `None` if this host does not lead it.
    pub fn standing(&self, group: GroupId) -> Option<GroupStanding> {
        self.get(group)?.standing()
    }

    pub fn counts(&self) -> &HostCounts {
        &self.shared.core.counts
    }

    pub fn groups(&self) -> Vec<GroupId> {
        self.shared.groups.load().keys().copied().collect()
    }

    /// Ends all replicas and the host's threads. Acknowledged writes are in the logs, to which the
    /// host writes no more. It adds no replica afterwards.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.groups()
            .into_iter()
            .for_each(|group| self.remove(group));
        self.shared.core.outbox.close();
        self.shared.core.pool.close();
        self.shared.core.reader.close();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                warn!("a thread of the replicas ended by a panic");
            }
        }
    }
}

impl Drop for ReplicaHost {
    fn drop(&mut self) {
        self.close();
    }
}
