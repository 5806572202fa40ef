//! The groups that are here, and what a server asks of them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_io::{Clock, start_answering, start_thread};
use forebay_replica::{
    Change, CodecError, Event, GroupId, PeerId, PeerMessage, Refusal, Replica, SplitEntry, Start,
    StartError, TICK, decode,
};
use parking_lot::Mutex;
use tracing::warn;

use crate::core::{HostCore, HostCounts};
use crate::early::EarlyMessages;
use crate::group::{GroupFacts, GroupStanding, HostedGroup, ReadCallback, ReadPermit, WriteDone};
use crate::log_writer::TableLog;
use crate::outbox::{Outbox, deliver};
use crate::outside::{GroupState, MessageSender, NodeKey, ReadPace, StandingWatch};
use crate::pool::WorkerPool;

/// Between two looks at what of the log need not be kept, where the disk is not short.
const TRIM: Duration = Duration::from_secs(1);
/// The messages of so many groups leave together where all are told something: longer, and those of
/// the first would be late.
const TOGETHER: usize = 256;

/// What a host works with.
#[derive(Debug, Clone)]
pub struct HostParts {
    pub clock: Arc<dyn Clock>,
    pub post: Arc<dyn MessageSender>,
    /// How fast peers that are behind are sent what is in logs.
    pub pace: Arc<dyn ReadPace>,
    pub watch: Arc<dyn StandingWatch>,
    /// Threads that apply, and as many for steps that take long; at least 1.
    pub appliers: usize,
    /// Requests are numbered from here on: another number in each process.
    pub first_request: u64,
}

/// A replica that begins here.
#[derive(Debug)]
pub struct NewReplica {
    pub start: Start,
    pub log: Arc<TableLog>,
    pub state: Arc<dyn GroupState>,
    /// Where the peers of its group are.
    pub nodes: BTreeMap<PeerId, NodeKey>,
}

#[derive(Debug)]
struct HostShared {
    core: Arc<HostCore>,
    groups: ArcSwap<HashMap<GroupId, Arc<HostedGroup>>>,
    early: EarlyMessages,
    is_closed: AtomicBool,
}

/// See the crate's text. Dropping it ends its threads; what was acknowledged is in the logs.
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

    /// By a thread of its own: to shorten a log is to write, and no heartbeat waits for that.
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
            outbox: Arc::new(Outbox::default()),
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
        let sends = deliver(&core.outbox, &parts.post);
        begin_answering("forebay-send", Box::new(sends))?;
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

    /// Takes a replica in. One of the same group that was here ends first: see
    /// [`ReplicaHost::remove`].
    pub fn add(&self, new: NewReplica) -> Result<(), StartError> {
        let replica = Replica::new(self.shared.core.now(), &new.start)?;
        let core = Arc::clone(&self.shared.core);
        let group = HostedGroup::new(core, new.log, new.state, replica, new.nodes);
        let group = Arc::new(group);
        self.remove(group.group());
        self.change(|groups| drop(groups.insert(group.group(), Arc::clone(&group))));
        self.shared.core.outbox.together(|| {
            // Who is to lead first stands at once.
            group.tick();
            self.receive_early(&group);
        });
        Ok(())
    }

    /// Ends a replica, and returns when nothing of it is being written or applied. Who waits for it
    /// is told that nobody knows what became of a write.
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

    /// Where the peers of a group are from now on.
    pub fn set_nodes(&self, group: GroupId, nodes: BTreeMap<PeerId, NodeKey>) {
        if let Some(group) = self.get(group) {
            *group.nodes.lock() = nodes;
        }
    }

    /// Takes a frame from another node.
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
            // One that has left, or is another peer now, hears nothing.
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

    /// Takes a message of a group that is not here, or came a moment ago.
    fn receive_before(&self, message: PeerMessage) {
        let group = message.group;
        let now = self.shared.core.clock.monotonic();
        self.shared.early.keep(now, message);
        if let Some(group) = self.get(group) {
            self.receive_early(&group);
        }
    }

    /// Passes on to a group what was said to it before it was here.
    fn receive_early(&self, group: &Arc<HostedGroup>) {
        let now = self.shared.core.clock.monotonic();
        let early = self.shared.early.take(now, group.group(), group.me());
        let messages = early.into_iter().map(Event::Message);
        messages.for_each(|message| group.notify(message));
    }

    /// Proposes operations, in this order; each is answered for itself. What is refused with
    /// [`Refusal::Uncertain`] may have been done or not, and may be yet.
    pub fn propose(&self, group: GroupId, all: Vec<(Bytes, WriteDone)>) {
        match self.get(group) {
            Some(group) => group.propose(all),
            None => all
                .into_iter()
                .for_each(|(_, done)| done(Err(Refusal::NotLeader(None)))),
        }
    }

    /// Holds back what is proposed to a group that is led here, for at most that time. Gives the
    /// term; `None`: it is not led here.
    pub fn hold(&self, group: GroupId, within: Duration) -> Option<u64> {
        self.get(group)?.hold(within)
    }

    /// Whether a group's proposals are still held back.
    pub fn is_held(&self, group: GroupId) -> bool {
        self.get(group).is_some_and(|group| group.is_held())
    }

    /// Ends such a hold.
    pub fn release(&self, group: GroupId) {
        if let Some(group) = self.get(group) {
            group.release();
        }
    }

    /// Leave to read what is here, where nothing has to be waited for.
    pub fn try_read(&self, group: GroupId) -> Option<ReadPermit> {
        let groups = self.shared.groups.load();
        ReadPermit::at_once(groups.get(&group)?)
    }

    /// Asks for leave to read. It is given by the leader, or by who follows one, once what it
    /// covers is applied here.
    pub fn read(&self, group: GroupId, done: ReadCallback) {
        match self.get(group) {
            Some(group) => group.read(done),
            None => done(Err(Refusal::NotLeader(None))),
        }
    }

    /// The same, but what is read may be older by less than a bound: it has all that was
    /// acknowledged so long before. Without asking, where leave was given within that time.
    pub fn read_within(&self, group: GroupId, bound: Duration, done: ReadCallback) {
        match self.get(group) {
            Some(group) => group.read_within(bound, done),
            None => done(Err(Refusal::NotLeader(None))),
        }
    }

    /// What the coordinator wishes of a group: only its leader heeds it.
    pub fn order(&self, group: GroupId, changes: Vec<Change>) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Change(changes));
        }
    }

    /// Has the leader, if it is here, propose a cut of the partition.
    pub fn split(&self, group: GroupId, split: SplitEntry) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Split(split));
        }
    }

    /// Has the leader, if it is here, hand the lead over.
    pub fn transfer(&self, group: GroupId, to: PeerId) {
        if let Some(group) = self.get(group) {
            group.notify(Event::Transfer { to });
        }
    }

    /// Who leads a group, as its replica here knows.
    pub fn leader(&self, group: GroupId) -> Option<PeerId> {
        let groups = self.shared.groups.load();
        groups.get(&group)?.leader()
    }

    /// Whether a replica is here that knows of nobody who leads its group.
    pub fn lacks_leader(&self) -> bool {
        let groups = self.shared.groups.load();
        let mut running = groups.values().filter(|group| !group.is_halted());
        running.any(|group| group.leader().is_none())
    }

    /// Whether a replica of the group is here, and has not ended by itself.
    pub fn runs(&self, group: GroupId) -> bool {
        let groups = self.shared.groups.load();
        groups.get(&group).is_some_and(|group| !group.is_halted())
    }

    /// What damage was met in what is here of a group: another replica is to take the place of this
    /// one, and to lead meanwhile.
    pub fn fall_ill(&self, group: GroupId, why: &str) {
        if let Some(group) = self.get(group) {
            group.fall_ill(why);
        }
    }

    /// Whether a replica is here that may be read although it does not lead.
    pub fn may_follow(&self, group: GroupId) -> bool {
        let groups = self.shared.groups.load();
        let group = groups.get(&group);
        group.is_some_and(|group| !group.is_halted() && !group.is_unhealthy())
    }

    pub fn facts(&self, group: GroupId) -> Option<GroupFacts> {
        self.get(group).map(|group| group.facts())
    }

    /// How the peers of a group stand; `None`: it is not led here.
    pub fn standing(&self, group: GroupId) -> Option<GroupStanding> {
        self.get(group)?.standing()
    }

    pub fn counts(&self) -> &HostCounts {
        &self.shared.core.counts
    }

    pub fn groups(&self) -> Vec<GroupId> {
        self.shared.groups.load().keys().copied().collect()
    }

    /// Ends all replicas, and the host's threads. What was acknowledged is in the logs, to which
    /// nothing is written from here any more. None is taken in afterwards.
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
