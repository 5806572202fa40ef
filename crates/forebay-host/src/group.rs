//! One replica on a host, with the callers that wait for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_io::start_thread;
use forebay_replica::{
    Basis, Committed, Event, Freshness, GroupId, Membership, NewProposal, Outline, PeerId, Permit,
    Persist, Place, QuietTicks, Refusal, Replica, RequestId, Standing,
};
use parking_lot::Mutex;
use tracing::{debug, error, warn};

use crate::core::HostCore;
use crate::effects::WriteDone;
use crate::environment::{GroupState, NodeKey};
use crate::hold::HeldProposals;
use crate::leader_state::LeaderState;
use crate::lease::{Lease, LeaseWord};
use crate::log_writer::{LogUser, TableLog};
use crate::pool::{Patience, StateKeeper, TaskOutcome};

/// The callback of a read. It reads, and then checks that the permit still holds.
pub type ReadCallback = Box<dyn FnOnce(Result<ReadPermit, Refusal>) + Send>;

/// A caller that waits for a request.
pub(crate) enum Requester {
    Write(WriteDone),
    /// A read, with the time of its request by the host's clock.
    Read(Duration, ReadCallback),
}

/// The actions that are done without the replica's lock.
#[derive(Debug, Default)]
pub(crate) struct AfterUnlock {
    pub reads: Vec<Permit>,
    pub refused: Vec<(RequestId, Refusal)>,
    pub fetches: Vec<(PeerId, Place)>,
    pub drops_copy: bool,
    pub leaves: bool,
    /// The replica's leader or members have changed.
    pub has_changed: bool,
    /// The state has work, and no other thread does it.
    pub has_work: bool,
}

/// A step of work on a state. Steps are done in order.
#[derive(Debug)]
pub(crate) enum StateWork {
    Apply(VecDeque<Committed>),
    /// A copy replaces state and log.
    Install(Persist),
}

/// One replica on a host, with the callers that wait for it.
pub struct HostedGroup {
    id: GroupId,
    me: PeerId,
    pub(crate) core: Arc<HostCore>,
    pub(crate) log: Arc<TableLog>,
    pub(crate) state: Arc<dyn GroupState>,
    replica: Mutex<Replica>,
    /// The replica's state when it was last checked.
    outline: Mutex<Outline>,
    quiet: QuietTicks,
    pub(crate) requesters: Mutex<HashMap<RequestId, Requester>>,
    pub(crate) work: Mutex<VecDeque<StateWork>>,
    /// The group is queued in the worker pool, or one of its threads works on it.
    pub(crate) is_lined_up: AtomicBool,
    applied: AtomicU64,
    /// A copy is being fetched.
    pub(crate) is_fetching: AtomicBool,
    /// The last try to apply decided entries failed for a reason that may pass.
    pub(crate) is_blocked: AtomicBool,
    /// Reads whose entries are not all applied yet.
    pub(crate) early_reads: Mutex<Vec<Permit>>,
    pub(crate) leader_state: Mutex<LeaderState>,
    pub(crate) nodes: Mutex<BTreeMap<PeerId, NodeKey>>,
    pub(crate) lease: LeaseWord,
    /// The time at which this replica's data was last known to be current.
    pub(crate) fresh: Mutex<Freshness>,
    /// A request to confirm that the data is current is in progress.
    pub(crate) is_asking: AtomicBool,
    /// The reason why the replica ended, if it did.
    halted: Mutex<Option<String>>,
    /// The damage that its state met, if it did.
    is_unhealthy: OnceLock<String>,
    pub(crate) held: HeldProposals,
}

/// A read permit. What was read is valid only if [`ReadPermit::holds`] says so afterwards.
#[derive(Debug)]
pub struct ReadPermit {
    group: Arc<HostedGroup>,
    by: PermitMode,
}

#[derive(Debug)]
enum PermitMode {
    Lease(Lease),
    Permit(Permit),
    /// Until this time the replica's data is within the bound of the read.
    Bound(Duration),
}

impl ReadPermit {
    /// Returns a permit by lease, if all decided entries are applied on this replica. Does not take
    /// the replica's lock.
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

    /// Returns, after the read, whether its answer may be given. Otherwise the caller has to ask
    /// again.
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
            // The process may have been paused since.
            PermitMode::Bound(end) => group.core.monotonic() < *end,
        }
    }
}

/// The state of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    pub me: PeerId,
    pub term: u64,
    pub leader: Option<PeerId>,
    pub applied: Place,
    /// The partition's time at that place.
    pub stamp_ms: u64,
    /// The end of its log.
    pub last: Place,
    pub committed: u64,
    pub membership: Arc<Membership>,
    /// If it leads: the index up to which each peer has the log.
    pub matched: BTreeMap<PeerId, u64>,
    /// If it leads: the peers that do not answer.
    pub unreachable: Vec<PeerId>,
    /// The reason why the replica ended, if it did.
    pub halted: Option<String>,
    /// The damage that its state met, if it did. The replica keeps working as far as it can, until
    /// another one replaces it.
    pub is_unhealthy: Option<String>,
}

/// A leader's view of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStanding {
    pub me: PeerId,
    pub members: Arc<Membership>,
    pub standing: Standing,
    /// The replica is unhealthy: another one has to lead.
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
            is_blocked: AtomicBool::new(false),
            early_reads: Mutex::default(),
            leader_state: Mutex::default(),
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

    /// Returns the index of the last entry that is applied.
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

    /// Passes an event to the replica, and carries out its actions. Does not block. A replica that
    /// has ended ignores the event.
    pub(crate) fn notify(self: &Arc<Self>, event: Event) {
        if !self.is_halted() {
            self.handle(event).carry_out(self);
        }
    }

    /// Passes an event to the replica. The caller carries out the rest, without the lock of the
    /// leader's state.
    pub(crate) fn handle(self: &Arc<Self>, event: Event) -> AfterUnlock {
        let mut replica = self.replica.lock();
        replica.pass_ticks(self.quiet.take_passed());
        // Read the clock under the lock: the time must not be earlier than that of a prior event.
        let actions = replica.handle(self.core.now(), event);
        self.quiet.set_may_pass(replica.quiet_ticks());
        self.lease.publish(&replica);
        let mut after = self.carry_out(actions);
        after.has_changed = self.has_changed(&replica);
        after
    }

    /// Returns the basis for evaluations. `None` while an entry is awaited that evaluations must
    /// follow; an error if this replica does not lead.
    pub(crate) fn known_basis(&self) -> Result<Option<Basis>, ()> {
        if self.is_halted() {
            return Err(());
        }
        let replica = self.replica.lock();
        match replica.is_leader() {
            true => Ok(replica.basis()),
            false => Err(()),
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

    /// Counts a tick.
    pub(crate) fn tick(self: &Arc<Self>) {
        if self.held.is_over(self.core.monotonic()) {
            self.release();
        }
        if self.quiet.tick() {
            self.notify(Event::Tick);
        }
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

    /// Ends the replica: its state or log is of no more use. The callers of logged proposals do not
    /// learn their outcome.
    pub(crate) fn halt(&self, why: &str) {
        if self.end(why) {
            error!(group = self.id.0, why, "a replica ends here");
            self.core.watch.changed();
        }
    }

    /// Marks the replica as unhealthy: its state is damaged. It keeps voting, so that the group has
    /// as many voters as before, and hands over leadership. Answers that it still gives are
    /// correct, since reads verify checksums.
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

    /// Ends the replica: it ignores events, sends nothing and writes nothing. Returns whether it
    /// was running.
    pub(crate) fn end(&self, why: &str) -> bool {
        let before = self.halted.lock().replace(why.to_owned());
        self.refuse_all(Refusal::Uncertain);
        // The proposals that were held back were never proposed.
        let refuse = |(_, done): (NewProposal, WriteDone)| done(Err(Refusal::NotLeader(None)));
        let now = self.core.monotonic();
        self.held
            .release(now, |waiting| waiting.into_iter().for_each(refuse));
        self.wake_evaluations();
        before.is_none()
    }

    pub(crate) fn refuse_all(&self, why: Refusal) {
        let requesters = std::mem::take(&mut *self.requesters.lock());
        requesters
            .into_values()
            .for_each(|requester| requester.refuse(why));
    }

    /// Waits until no thread works on its state. REQUIRES: the replica has ended, and the caller is
    /// no thread of the pool.
    pub(crate) fn settle_state(&self) {
        debug_assert!(
            self.is_halted(),
            "group {} did not end, and threads would work on it again",
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

    /// Returns the leader, as far as this replica knows it. A replica that has ended knows none.
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

    /// Trims the entries that the state already has. Only lagging peers need these, so the memory
    /// that they take is bounded.
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

/// The time between two checks whether a thread still works on a state.
const SETTLE: Duration = Duration::from_millis(1);

/// The most bytes of a group's log that stay in memory for peers that lag.
const MOST_TAIL_BYTES: u64 = 4 << 20;

impl LogUser for HostedGroup {
    fn id(&self) -> GroupId {
        self.id
    }

    fn is_ended(&self) -> bool {
        self.is_halted()
    }

    fn persisted(self: Arc<Self>, number: u64) {
        if self.is_halted() {
            return;
        }
        let mut after = self.handle(Event::Persisted { number });
        // The next write of the log must not wait for the state.
        if std::mem::take(&mut after.has_work) {
            self.core.pool.line_up(Arc::clone(&self) as _);
        }
        after.carry_out(&self);
    }

    fn together(&self, work: &mut dyn FnMut()) {
        self.core.outbox.together(work);
    }

    fn log_broke(&self, problem: &str) {
        self.halt(problem);
    }
}

impl StateKeeper for HostedGroup {
    fn work(self: Arc<Self>, patience: Patience) -> TaskOutcome {
        self.do_work(patience)
    }
}

impl Requester {
    pub fn refuse(self, why: Refusal) {
        match self {
            Self::Write(done) => done(Err(why)),
            // A read has no effect, so its outcome is never uncertain.
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
