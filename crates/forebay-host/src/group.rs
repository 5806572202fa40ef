//! One replica with what waits for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_io::start_thread;
use forebay_replica::{
    Committed, Event, Freshness, GroupId, Membership, Outline, PeerId, Permit, Persist, Place,
    Proposal, QuietTicks, Refusal, Replica, RequestId, Standing,
};
use parking_lot::Mutex;
use tracing::{debug, error, warn};

use crate::core::HostCore;
use crate::hold::HeldProposals;
use crate::lease::{Lease, LeaseWord};
use crate::log_writer::{LogUser, TableLog};
use crate::outside::{GroupState, NodeKey};
use crate::pool::{StateKeeper, TaskOutcome};

/// What a proposal's asker is told: what the state answered, or why it did not.
pub type WriteDone = Box<dyn FnOnce(Result<Bytes, Refusal>) + Send>;
/// What a read's asker is told. It reads then, and asks the leave afterwards.
pub type ReadCallback = Box<dyn FnOnce(Result<ReadPermit, Refusal>) + Send>;

/// Who waits for a request.
pub(crate) enum Requester {
    Write(WriteDone),
    /// Asked for then, by the host's clock.
    Read(Duration, ReadCallback),
}

/// What is done with a state, in order.
#[derive(Debug)]
pub(crate) enum StateWork {
    Apply(VecDeque<Committed>),
    /// A copy takes the place of state and log.
    Install(Persist),
}

/// See the module's text.
pub struct HostedGroup {
    id: GroupId,
    me: PeerId,
    pub(crate) core: Arc<HostCore>,
    pub(crate) log: Arc<TableLog>,
    pub(crate) state: Arc<dyn GroupState>,
    replica: Mutex<Replica>,
    /// How it stood when it was looked at last.
    outline: Mutex<Outline>,
    quiet: QuietTicks,
    pub(crate) requesters: Mutex<HashMap<RequestId, Requester>>,
    pub(crate) work: Mutex<VecDeque<StateWork>>,
    /// It is in the crew's line, or a thread of it is at it.
    pub(crate) is_lined_up: AtomicBool,
    applied: AtomicU64,
    /// A copy is being brought.
    pub(crate) is_fetching: AtomicBool,
    /// What is decided could not be applied the last time.
    pub(crate) is_short: AtomicBool,
    /// Reads whose entries are not all applied yet.
    pub(crate) early_reads: Mutex<Vec<Permit>>,
    pub(crate) nodes: Mutex<BTreeMap<PeerId, NodeKey>>,
    pub(crate) lease: LeaseWord,
    /// When what is here was the newest.
    pub(crate) fresh: Mutex<Freshness>,
    /// That is being asked anew.
    pub(crate) is_asking: AtomicBool,
    /// Why it ended here, if it did.
    halted: Mutex<Option<String>>,
    /// What damage its state met, if it did.
    is_unhealthy: OnceLock<String>,
    held: HeldProposals,
}

/// Leave to read: what was read counts if [`ReadPermit::holds`] says so afterwards.
#[derive(Debug)]
pub struct ReadPermit {
    group: Arc<HostedGroup>,
    by: PermitMode,
}

#[derive(Debug)]
enum PermitMode {
    Lease(Lease),
    Permit(Permit),
    /// Until then what is here is within the bound that the read bears.
    Bound(Duration),
}

impl ReadPermit {
    /// By lease, where all that is decided is applied here. Without the replica's lock.
    pub(crate) fn at_once(group: &Arc<HostedGroup>) -> Option<Self> {
        let lease = group.lease.get();
        let is_there = group.applied() >= group.lease.committed();
        (is_there && lease.holds(group.core.monotonic())).then(|| Self {
            group: Arc::clone(group),
            by: PermitMode::Lease(lease),
        })
    }

    pub(crate) fn by(group: &Arc<HostedGroup>, permit: Permit) -> Self {
        Self {
            group: Arc::clone(group),
            by: PermitMode::Permit(permit),
        }
    }

    pub(crate) fn until(group: &Arc<HostedGroup>, end: Duration) -> Self {
        Self {
            group: Arc::clone(group),
            by: PermitMode::Bound(end),
        }
    }

    /// After the read: whether its answer may be given. Else it is to be asked for again.
    pub fn holds(&self) -> bool {
        let group = &self.group;
        match &self.by {
            PermitMode::Lease(then) => {
                let lease = group.lease.get();
                lease.is_of_the_same_term(*then) && lease.holds(group.core.monotonic())
            }
            PermitMode::Permit(permit) => {
                let replica = group.replica.lock();
                replica.permits(group.core.now(), permit)
            }
            // The process may have stood still since.
            PermitMode::Bound(end) => group.core.monotonic() < *end,
        }
    }
}

/// How a replica does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    pub me: PeerId,
    pub term: u64,
    pub leader: Option<PeerId>,
    pub applied: Place,
    /// The partition's time there.
    pub stamp_ms: u64,
    /// The end of its log.
    pub last: Place,
    pub committed: u64,
    pub membership: Arc<Membership>,
    /// Of a leader: up to where its peers have the log.
    pub matched: BTreeMap<PeerId, u64>,
    /// Of a leader: its peers that do not answer.
    pub unreachable: Vec<PeerId>,
    /// Why it ended here, if it did.
    pub halted: Option<String>,
    /// What damage its state met, if it did: it goes on as far as it can, until another takes its
    /// place.
    pub is_unhealthy: Option<String>,
}

/// What a leader knows of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStanding {
    pub me: PeerId,
    pub members: Arc<Membership>,
    pub standing: Standing,
    /// Another is to lead.
    pub is_unhealthy: bool,
}

impl HostedGroup {
    pub(crate) fn new(
        core: Arc<HostCore>,
        log: Arc<TableLog>,
        state: Arc<dyn GroupState>,
        replica: Replica,
        nodes: BTreeMap<PeerId, NodeKey>,
    ) -> Self {
        Self {
            id: replica.group(),
            me: replica.me(),
            core,
            log,
            state,
            applied: AtomicU64::new(replica.applied().place.index),
            outline: Mutex::new(replica.outline()),
            replica: Mutex::new(replica),
            quiet: QuietTicks::default(),
            requesters: Mutex::default(),
            work: Mutex::default(),
            is_lined_up: AtomicBool::new(false),
            is_fetching: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            early_reads: Mutex::default(),
            nodes: Mutex::new(nodes),
            lease: LeaseWord::default(),
            fresh: Mutex::default(),
            is_asking: AtomicBool::new(false),
            halted: Mutex::default(),
            is_unhealthy: OnceLock::new(),
            held: HeldProposals::default(),
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.id
    }

    pub(crate) fn me(&self) -> PeerId {
        self.me
    }

    /// The last entry that is applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn set_applied(&self, index: u64) {
        let before = self.applied.fetch_max(index, Ordering::AcqRel);
        debug_assert!(
            before <= index,
            "the state of group {} is at entry {before}, and goes back to {index}",
            self.id
        );
    }

    /// Tells the replica what happened, and carries out what it wants. Waits for nothing. One that
    /// ended hears and says nothing.
    pub(crate) fn notify(self: &Arc<Self>, event: Event) {
        if self.is_halted() {
            return;
        }
        let (after, has_changed) = {
            let mut replica = self.replica.lock();
            replica.pass_ticks(self.quiet.take_passed());
            // Read under the lock: behind whatever came in.
            let actions = replica.handle(self.core.now(), event);
            self.quiet.set_may_pass(replica.quiet_ticks());
            self.lease.publish(&replica);
            (self.carry_out(actions), self.has_changed(&replica))
        };
        after.carry_out(self);
        if has_changed {
            self.core.watch.changed();
        }
    }

    /// REQUIRES: the replica's lock.
    fn has_changed(&self, replica: &Replica) -> bool {
        let (outline, mut known) = (replica.outline(), self.outline.lock());
        let is_new = outline != *known;
        if is_new {
            debug!(
                group = self.id.0,
                me = self.me.0,
                ?outline,
                "a replica changed"
            );
            *known = outline;
        }
        is_new
    }

    /// The time of a tick has passed.
    pub(crate) fn tick(self: &Arc<Self>) {
        if self.held.is_over(self.core.monotonic()) {
            self.release();
        }
        if self.quiet.tick() {
            self.notify(Event::Tick);
        }
    }

    /// See the module `hold`. Gives the term in which this replica leads.
    pub(crate) fn hold(self: &Arc<Self>, within: Duration) -> Option<u64> {
        if !self.held.begin(self.core.monotonic(), within) {
            return None;
        }
        // After the hold began: what is proposed in this term from now on waits.
        let term = self.leads_in();
        if term.is_none() {
            self.release();
        }
        term
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_on(self.core.monotonic())
    }

    pub(crate) fn release(self: &Arc<Self>) {
        let now = self.core.monotonic();
        self.held.release(now, |waiting| self.propose_now(waiting));
    }

    /// The term in which this replica leads, as far as it knows.
    fn leads_in(&self) -> Option<u64> {
        let facts = (!self.is_halted()).then(|| self.facts())?;
        (facts.leader == Some(self.me)).then_some(facts.term)
    }

    pub(crate) fn propose(self: &Arc<Self>, all: Vec<(Bytes, WriteDone)>) {
        if let Some(all) = self.held.admit(all) {
            self.propose_now(all);
        }
    }

    fn propose_now(self: &Arc<Self>, all: Vec<(Bytes, WriteDone)>) {
        let mut proposals = Vec::with_capacity(all.len());
        {
            let mut requesters = self.requesters.lock();
            for (operations, done) in all {
                let request = self.core.next_request();
                let other = requesters.insert(request, Requester::Write(done));
                debug_assert!(other.is_none(), "two proposals have the number {request:?}");
                proposals.push(Proposal {
                    request,
                    operations,
                });
            }
        }
        self.unless_halted(Event::Propose(proposals));
    }

    pub(crate) fn read(self: &Arc<Self>, done: ReadCallback) {
        if let Some(leave) = ReadPermit::at_once(self) {
            return done(Ok(leave));
        }
        let request = self.core.next_request();
        let requester = Requester::Read(self.core.now().monotonic, done);
        let other = self.requesters.lock().insert(request, requester);
        debug_assert!(other.is_none(), "two reads have the number {request:?}");
        self.unless_halted(Event::Read { request });
    }

    fn unless_halted(self: &Arc<Self>, event: Event) {
        match self.is_halted() {
            true => self.refuse_all(Refusal::NotLeader(None)),
            false => self.notify(event),
        }
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted.lock().is_some()
    }

    /// Ends the replica here: its state or log is of no more use. Nobody is told what became of a
    /// proposal that was logged.
    pub(crate) fn halt(&self, why: &str) {
        if self.end(why) {
            error!(group = self.id.0, why, "a replica ends here");
            self.core.watch.changed();
        }
    }

    /// Its state met damage. It votes on, so that the group has as many voters as before, and has
    /// another one lead. What it still answers is right: what is read is held against checksums.
    pub(crate) fn fall_ill(self: &Arc<Self>, why: &str) {
        if self.is_unhealthy.set(why.to_owned()).is_ok() {
            error!(
                group = self.id.0,
                why, "a replica met damage: another is to take its place"
            );
            self.notify(Event::FallIll);
            self.core.watch.changed();
        }
    }

    pub(crate) fn is_unhealthy(&self) -> bool {
        self.is_unhealthy.get().is_some()
    }

    /// Hears, says and writes nothing any more. Returns whether it did until now.
    pub(crate) fn end(&self, why: &str) -> bool {
        let before = self.halted.lock().replace(why.to_owned());
        self.refuse_all(Refusal::Uncertain);
        // What was held back was never proposed.
        let refuse = |(_, done): (Bytes, WriteDone)| done(Err(Refusal::NotLeader(None)));
        let now = self.core.monotonic();
        self.held
            .release(now, |waiting| waiting.into_iter().for_each(refuse));
        before.is_none()
    }

    pub(crate) fn refuse_all(&self, why: Refusal) {
        let requesters = std::mem::take(&mut *self.requesters.lock());
        requesters
            .into_values()
            .for_each(|requester| requester.refuse(why));
    }

    /// Waits until no thread is at its state. REQUIRES: it ended, and this is no thread of the
    /// crew.
    pub(crate) fn settle_state(&self) {
        debug_assert!(
            self.is_halted(),
            "group {} did not end, and would be worked on anew",
            self.id
        );
        while self.is_lined_up.load(Ordering::Acquire) && !self.core.pool.is_closed() {
            self.core.clock.sleep(SETTLE);
        }
    }

    pub(crate) fn standing(&self) -> Option<GroupStanding> {
        if self.is_halted() {
            return None;
        }
        let replica = self.replica.lock();
        Some(GroupStanding {
            me: self.me,
            members: Arc::clone(replica.membership()),
            standing: replica.standing()?,
            is_unhealthy: self.is_unhealthy(),
        })
    }

    /// Who leads, as far as is known here. One that ended knows nothing.
    pub(crate) fn leader(&self) -> Option<PeerId> {
        match self.is_halted() {
            true => None,
            false => self.replica.lock().leader(),
        }
    }

    pub(crate) fn facts(&self) -> GroupFacts {
        let replica = self.replica.lock();
        let membership = Arc::clone(replica.membership());
        let others = membership.voters.iter().chain(&membership.learners);
        let others = others.filter(|peer| **peer != self.me);
        let progress: Vec<_> = others
            .filter_map(|peer| Some((*peer, replica.progress(*peer)?)))
            .collect();
        let unreachable = progress.iter().filter(|(_, progress)| !progress.is_active);
        GroupFacts {
            me: self.me,
            term: replica.term(),
            leader: replica.leader(),
            applied: replica.applied().place,
            stamp_ms: replica.applied().stamp_ms,
            last: replica.last(),
            committed: replica.committed(),
            unreachable: unreachable.map(|(peer, _)| *peer).collect(),
            matched: progress
                .iter()
                .map(|(peer, progress)| (*peer, progress.matched))
                .collect(),
            membership,
            halted: self.halted.lock().clone(),
            is_unhealthy: self.is_unhealthy.get().cloned(),
        }
    }

    pub(crate) fn is_log_short(&self) -> bool {
        self.log.log().is_short()
    }

    /// Entries that the state keeps are needed by nobody but peers that are behind: what is held in
    /// memory for them is bounded.
    pub(crate) fn trim(self: &Arc<Self>) {
        let kept = self.state.kept_through();
        if self.log.log().trim(self.id, kept) && self.log.begin_keeping() {
            self.keep();
        }
        let through = self.replica.lock().trim_to(MOST_TAIL_BYTES);
        if let Some(through) = through {
            debug_assert!(
                through <= self.applied(),
                "group {} would forget entries up to {through}, and applied up to {}",
                self.id,
                self.applied()
            );
            self.notify(Event::Trim { through });
        }
    }
}

impl HostedGroup {
    /// REQUIRES: [`TableLog::begin_keeping`].
    fn keep(self: &Arc<Self>) {
        let group = Arc::clone(self);
        let keeping = start_thread("forebay-keep", move || {
            if let Err(error) = group.state.keep() {
                warn!(group = group.id.0, %error, "the log of replicas stays long for now");
            }
            group.log.end_keeping();
        });
        if let Err(error) = keeping {
            warn!(group = self.id.0, %error, "no thread to shorten the log of replicas");
            self.log.end_keeping();
        }
    }
}

/// Between two looks whether a thread is still at a state.
const SETTLE: Duration = Duration::from_millis(1);

/// What is kept in memory of a group's log for peers that are behind.
const MOST_TAIL_BYTES: u64 = 4 << 20;

impl LogUser for HostedGroup {
    fn id(&self) -> GroupId {
        self.id
    }

    fn is_ended(&self) -> bool {
        self.is_halted()
    }

    fn persisted(self: Arc<Self>, number: u64) {
        self.notify(Event::Persisted { number });
    }

    fn log_broke(&self, problem: &str) {
        self.halt(problem);
    }
}

impl StateKeeper for HostedGroup {
    fn work(self: Arc<Self>, may_take_long: bool) -> TaskOutcome {
        self.do_work(may_take_long)
    }
}

impl Requester {
    pub fn refuse(self, why: Refusal) {
        match self {
            Self::Write(done) => done(Err(why)),
            // Nothing is uncertain of a read.
            Self::Read(_, done) => done(Err(match why {
                Refusal::Uncertain => Refusal::NotLeader(None),
                why => why,
            })),
        }
    }
}

impl fmt::Debug for HostedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedGroup")
            .field("id", &self.id)
            .field("me", &self.me)
            .field("applied", &self.applied())
            .finish_non_exhaustive()
    }
}
