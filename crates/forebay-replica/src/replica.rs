//! One replica of a partition, without I/O: it takes the time and an event, and returns actions.
//!
//! There is one for each group, and not one for a node. Groups share only the frames of their
//! messages and the log of their entries. The shell has both: it collects the messages of all
//! groups to one node into a frame ([`crate::encode`]), and syncs once for all groups.
//!
//! At most one [`Action::Persist`](crate::Action) is awaited at a time. Proposals that arrive
//! meanwhile are gathered and become one entry: group commit. Messages also wait for it, both
//! promises and heartbeats: a leader whose disk hangs soon loses leadership.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use forebay_io::sim::Rng;
use raft::eraftpb::Message;
use raft::{Config, RawNode, StateRole};

use crate::basis::{BasisState, NewProposal};
use crate::bugs::{Bug, is_planted};
use crate::events::{Action, Event, Permit, Refusal};
use crate::ids::{GroupId, PeerId, Place, RequestId};
use crate::membership::Membership;
use crate::reads::Reads;
use crate::start::{Start, StartError};
use crate::tail::{SnapshotFacts, Tail};
use crate::time::{
    ACTIVE_TICKS, ELECTION_TICKS, FIRST_ELECTION_TICKS, FIRST_TRIES_TICKS, LEASE, Now, PROMISE,
    PartitionClock, TICK,
};

/// The most bytes of entries in one message, unless one entry has more. The group waits while these
/// bytes are received and forwarded.
pub(crate) const MOST_MESSAGE_BYTES: u64 = 256 << 10;
/// The most undecided bytes: beyond this, a leader accepts no proposals.
const MOST_UNDECIDED_BYTES: u64 = 256 << 20;
/// An election timeout of the library that never passes. The library draws its timeouts from a
/// generator without a seed, so this crate calls elections itself.
const NEVER_TICKS: usize = 1 << 30;

pub struct Replica {
    pub(crate) group: GroupId,
    pub(crate) me: PeerId,
    pub(crate) raw: RawNode<Tail>,
    pub(crate) rng: Rng,
    /// Until this time, the replica helps no other peer to lead.
    pub(crate) promised_until: Duration,
    pub(crate) election_ticks: u64,
    pub(crate) last_tick: Duration,
    pub(crate) ticks: u64,
    /// The last tick at which each peer was heard from.
    pub(crate) received: BTreeMap<PeerId, u64>,
    /// The last tick at which a client asked something.
    pub(crate) asked_at_tick: u64,
    pub(crate) clock: PartitionClock,
    /// The write in progress, and the messages that wait for it.
    pub(crate) writing: Option<Writing>,
    /// Proposals that are not logged yet.
    pub(crate) gathered: Vec<NewProposal>,
    pub(crate) basis: BasisState,
    /// Proposals that are logged as the leader of this term, and not decided.
    pub(crate) logged: VecDeque<Logged>,
    pub(crate) reads: Reads,
    pub(crate) seen: SeenLeader,
    /// The term in which leadership was handed over: the target may take it at any time.
    pub(crate) handed_over_in: u64,
    /// Entries are being fetched from the log's files.
    pub(crate) is_reading_log: bool,
    /// The start of the last such fetch.
    pub(crate) read_log_at: Duration,
    /// The peer that was asked for a copy, and when.
    pub(crate) fetching: Option<(PeerId, Duration)>,
    pub(crate) came: Option<SnapshotFacts>,
    pub(crate) installing: Option<SnapshotFacts>,
    /// The facts at the last entry that was passed on to be applied, and at all that are not
    /// applied.
    pub(crate) handed: SnapshotFacts,
    pub(crate) unapplied: VecDeque<SnapshotFacts>,
    /// The time since which peers wait for a copy.
    pub(crate) copying: BTreeMap<u64, Duration>,
    /// Its state is damaged.
    pub(crate) is_unhealthy: bool,
    /// The leader's request that this replica lead, with the time of its arrival.
    pub(crate) asked_to_lead: Option<(Message, Duration)>,
    /// The replica is the first of its group's founders, and has never heard from a leader.
    pub(crate) stands_first: bool,
    /// The tick of its last hand-over.
    pub(crate) handed_over_at_tick: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Writing {
    pub number: u64,
    pub messages: Vec<Message>,
    /// A copy replaces the state.
    pub installs: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Logged {
    pub place: Place,
    pub requests: Vec<RequestId>,
}

/// The leader at the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenLeader {
    pub term: u64,
    pub leader: Option<PeerId>,
    pub since: Duration,
}

/// The progress of a peer, as its leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProgress {
    /// The peer has the log up to this index.
    pub matched: u64,
    /// The peer has answered within the last seconds.
    pub is_active: bool,
}

impl Replica {
    pub fn new(now: Now, start: &Start) -> Result<Self, StartError> {
        let (tail, clock) = start.tail()?;
        let config = Config {
            applied: start.applied.place.index,
            ..Self::config(start.me)
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, tail, &logger).map_err(|error| StartError::Library {
            group: start.group.0,
            problem: error.to_string(),
        })?;
        debug_assert!(
            LEASE + LEASE / 10 <= PROMISE,
            "a lease of {LEASE:?} may outlast the promise of {PROMISE:?} that it hangs on"
        );
        let mut rng = Rng(start.seed);
        // Promises from before the restart are unknown, so it helps no peer for that long.
        let promised_until = match start.is_fresh() {
            true => now.monotonic,
            false => now.monotonic + PROMISE,
        };
        let mut replica = Self {
            group: start.group,
            me: start.me,
            seen: SeenLeader {
                term: raw.raft.term,
                leader: None,
                since: now.monotonic,
            },
            raw,
            promised_until,
            election_ticks: 0,
            last_tick: now.monotonic,
            ticks: 0,
            received: BTreeMap::new(),
            asked_at_tick: 0,
            clock,
            writing: None,
            gathered: Vec::new(),
            basis: BasisState::default(),
            logged: VecDeque::new(),
            reads: Reads::new(rng.next_u64()),
            rng,
            handed_over_in: 0,
            is_reading_log: false,
            read_log_at: Duration::ZERO,
            fetching: None,
            came: None,
            installing: None,
            handed: start.applied.clone(),
            unapplied: VecDeque::new(),
            copying: BTreeMap::new(),
            is_unhealthy: false,
            asked_to_lead: None,
            stands_first: false,
            handed_over_at_tick: None,
        };
        let first = start.applied.membership.voters.first();
        // Of replicas that start together, one need not wait for another to lead.
        replica.stands_first = start.is_fresh() && first == Some(&start.me);
        // Nor need it wait for a tick.
        if replica.stands_first {
            replica.last_tick = now.monotonic.saturating_sub(TICK);
        }
        replica.draw_election();
        Ok(replica)
    }

    fn config(me: PeerId) -> Config {
        Config {
            id: me.0,
            election_tick: ELECTION_TICKS.start as usize,
            // Heartbeats are rounds; the library sends its own only if there are no rounds.
            heartbeat_tick: ELECTION_TICKS.start as usize - 1,
            min_election_tick: NEVER_TICKS,
            max_election_tick: NEVER_TICKS + 1,
            max_size_per_msg: MOST_MESSAGE_BYTES,
            max_inflight_msgs: 64,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: MOST_UNDECIDED_BYTES,
            ..Config::default()
        }
    }

    pub(crate) fn draw_election(&mut self) {
        let span = ELECTION_TICKS.end - ELECTION_TICKS.start;
        let drawn = ELECTION_TICKS.start + self.rng.below(span);
        self.election_ticks = match self.stands_first && self.ticks < FIRST_TRIES_TICKS {
            true => FIRST_ELECTION_TICKS,
            false => drawn,
        };
        // Others stand first. If none of them can lead, this replica may have entries that they
        // lack.
        if self.is_unhealthy {
            self.election_ticks += ELECTION_TICKS.end;
        }
    }

    /// Handles an event. The caller carries out the actions in their order; only persisting,
    /// applying and reading may take time.
    ///
    /// REQUIRES: the clock was read after a tick or message arrived, or promises would end early.
    /// For requests it may be older: that is why [`Replica::permits`] checks again.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => self.tick(now, &mut actions),
            Event::Message(message) if message.group == self.group => {
                self.receive(now, message.raft, &mut actions);
            }
            Event::Message(_) => {}
            Event::Propose(proposals) => self.take_proposals(now, proposals, &mut actions),
            Event::Read { request } => self.take_read(now, request, &mut actions),
            Event::Persisted { number } => self.take_persisted(number, &mut actions),
            Event::Applied { index } => self.take_applied(index),
            Event::Trim { .. } if is_planted(Bug::AppliesBeforeCommit) => {}
            Event::Trim { through } => self.raw.mut_store().trim(through),
            Event::EntriesCame(entries) => self.take_entries(&entries),
            Event::EntriesGone { through } => self.lack_entries(through),
            Event::SnapshotCame(facts) => self.came = Some(facts),
            Event::SnapshotFailed => self.fetching = None,
            Event::Change(changes) => self.propose_changes(&changes),
            Event::Split(split) => self.propose_split(now, split, &mut actions),
            Event::FallIll => self.fall_ill(),
            Event::Transfer { to } => self.hand_over(to),
        }
        self.settle(now, &mut actions);
        self.fetch_entries(now, &mut actions);
        self.check();
        actions
    }

    /// Checks the invariants that hold whenever everything waits for other peers or the caller.
    fn check(&self) {
        let (raft, applied) = (&self.raw.raft, self.applied().place);
        let (last, committed) = (raft.raft_log.last_index(), raft.raft_log.committed);
        debug_assert!(
            committed <= last,
            "entries up to {committed} are decided, and the log ends at {last}"
        );
        debug_assert!(
            self.handed.place.index <= committed || is_planted(Bug::AppliesBeforeCommit),
            "entry {} was handed out, and {committed} is the last that is decided",
            self.handed.place
        );
        debug_assert!(
            applied <= self.handed.place,
            "entry {applied} is applied, and {} was handed out last",
            self.handed.place
        );
        debug_assert_eq!(
            applied.index + self.unapplied.len() as u64,
            self.handed.place.index,
            "some entries after {applied} were handed out, but are not awaited"
        );
        debug_assert!(
            self.unapplied
                .back()
                .is_none_or(|last| *last == self.handed),
            "the last unapplied entry is {:?}, but the last one handed out is {:?}",
            self.unapplied.back(),
            self.handed
        );
        debug_assert!(
            raft.term >= self.handed.place.term,
            "in term {} an entry of term {} is decided",
            raft.term,
            self.handed.place.term
        );
        self.check_leader();
    }

    fn check_leader(&self) {
        let term = self.raw.raft.term;
        debug_assert!(
            (self.seen.term, self.seen.leader) == (term, self.leader()),
            "{:?} leads in term {term}, and {:?} was noticed",
            self.leader(),
            self.seen
        );
        debug_assert!(
            self.is_leader() || (self.gathered.is_empty() && self.logged.is_empty()),
            "peer {} does not lead, and keeps {} proposals and {} entries of its own",
            self.me.0,
            self.gathered.len(),
            self.logged.len()
        );
        debug_assert!(
            self.logged
                .front()
                .is_none_or(|first| first.place.index > self.handed.place.index),
            "entry {:?} is handed out, and {:?} waits for its decision",
            self.handed.place,
            self.logged.front()
        );
        debug_assert!(
            self.logged
                .back()
                .is_none_or(|logged| logged.place.term == term),
            "in term {term} {:?} waits for its decision",
            self.logged.back()
        );
        debug_assert!(
            self.handed_over_in <= term,
            "the lead was handed over in term {}, and this is term {term}",
            self.handed_over_in
        );
        debug_assert!(
            self.received.values().all(|at| *at <= self.ticks),
            "a peer was heard of after tick {}: {:?}",
            self.ticks,
            self.received
        );
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Returns the leader that this replica follows, or itself.
    pub fn leader(&self) -> Option<PeerId> {
        Some(PeerId(self.raw.raft.leader_id)).filter(|peer| peer.0 != 0)
    }

    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the group's members as of the last entry that was passed on to be applied.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.handed.membership
    }

    /// Returns the facts at the last entry that the engine has reported as applied.
    pub fn applied(&self) -> &SnapshotFacts {
        self.raw.store().applied()
    }

    /// Returns the end of its log.
    pub fn last(&self) -> Place {
        let log = &self.raw.raft.raft_log;
        Place {
            term: log.last_term(),
            index: log.last_index(),
        }
    }

    /// Returns the last entry that this replica knows to be decided.
    pub fn committed(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Returns the time until which this replica leads alone. Everything that was decided under
    /// other leaders has to be applied on it, as far as its engine has reported. A read also needs
    /// all decided entries to be applied.
    pub fn lease(&self) -> Option<Duration> {
        let is_caught_up = self.applied().place.term == self.raw.raft.term;
        self.lease_end().filter(|_| is_caught_up)
    }

    /// Returns the entry up to which the log may be trimmed so that at most this many bytes of
    /// applied entries stay for peers. `None`: nothing.
    pub fn trim_to(&self, most_bytes: u64) -> Option<u64> {
        self.raw.store().trim_to(most_bytes)
    }

    /// Returns the progress of a peer, if this replica leads.
    pub fn progress(&self, peer: PeerId) -> Option<PeerProgress> {
        let progress = self.raw.raft.prs().get(peer.0);
        let progress = progress.filter(|_| self.is_leader())?;
        Some(PeerProgress {
            matched: progress.matched,
            is_active: progress.recent_active || self.was_received(peer),
        })
    }

    /// Returns whether a peer was heard from lately. The library forgets the peers that answered
    /// whenever it has counted them, and heartbeats of idle groups are rare.
    fn was_received(&self, peer: PeerId) -> bool {
        let received = self.received.get(&peer);
        received.is_some_and(|at| self.ticks <= at + ACTIVE_TICKS)
    }

    /// Returns, after the read, whether its answer may be given. If not, ask by [`Event::Read`]
    /// again.
    pub fn permits(&self, now: Now, permit: &Permit) -> bool {
        match permit.lease {
            None => true,
            Some(_) if is_planted(Bug::LooksOnce) || is_planted(Bug::ReadsWhenStale) => true,
            Some(term) => self.raw.raft.term == term && self.holds_lease(now),
        }
    }

    /// Returns the time until which no other peer leads, and none has been elected.
    pub(crate) fn lease_end(&self) -> Option<Duration> {
        let raft = &self.raw.raft;
        let may_hold =
            self.is_leader() && self.handed_over_in != raft.term && !raft.has_pending_conf();
        self.reads.lease_end().filter(|_| may_hold)
    }

    pub(crate) fn holds_lease(&self, now: Now) -> bool {
        match is_planted(Bug::ReadsWhenStale) {
            true => self.is_leader(),
            false => self.lease_end().is_some_and(|end| now.monotonic < end),
        }
    }

    /// Returns whether a majority answered lately, or may still answer for the first time.
    pub(crate) fn has_majority(&self, now: Now) -> bool {
        let since = self.reads.confirmed().max(Some(self.seen.since));
        since.is_some_and(|since| now.monotonic < since + PROMISE)
    }

    pub(crate) fn refuse(&self, request: RequestId, why: Refusal) -> Action {
        Action::Refuse { request, why }
    }

    /// Returns whether a tick is due. A tick that comes early proves nothing about time.
    pub(crate) fn is_tick_due(&self, now: Now) -> bool {
        now.monotonic >= self.last_tick + TICK
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let raft = &self.raw.raft;
        f.debug_struct("Replica")
            .field("group", &self.group)
            .field("me", &self.me)
            .field("role", &raft.state)
            .field("term", &raft.term)
            .field("last", &raft.raft_log.last_index())
            .field("committed", &raft.raft_log.committed)
            .field(
                "writing",
                &self.writing.as_ref().map(|writing| writing.number),
            )
            .field("members", self.membership())
            .finish_non_exhaustive()
    }
}
