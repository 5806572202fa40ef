//! One replica of a partition, without I/O: it is told the time and an event, and says what is to
//! be done.
//!
//! One for each group, and not one for a node: groups have nothing in common but the frames their
//! messages go in and the log their entries lie in. Both are the shell's: it collects the messages
//! of all groups to one node into a frame ([`crate::encode`]), and syncs once for all groups.
//!
//! At most one [`Action::Persist`](crate::Action) is awaited at a time. Proposals that come
//! meanwhile are gathered and become one entry: group commit. Messages wait for it too, those that
//! promise something and heartbeats alike: a leader whose disk hangs is soon no leader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use forebay_io::sim::Rng;
use raft::eraftpb::Message;
use raft::{Config, RawNode, StateRole};

use crate::bugs::{Bug, is_planted};
use crate::entry::Proposal;
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

/// The most bytes of entries in one message, unless one entry has more. The group waits while as
/// much is taken in and passed on.
pub(crate) const MOST_MESSAGE_BYTES: u64 = 256 << 10;
/// A leader takes in no more while so much is not decided.
const MOST_UNDECIDED_BYTES: u64 = 256 << 20;
/// The library draws its election timeouts from a generator that no seed repeats. So it is given
/// one that never passes, and elections are called from here.
const NEVER_TICKS: usize = 1 << 30;

pub struct Replica {
    pub(crate) group: GroupId,
    pub(crate) me: PeerId,
    pub(crate) raw: RawNode<Tail>,
    pub(crate) rng: Rng,
    /// Until then no other peer is helped to lead.
    pub(crate) promised_until: Duration,
    pub(crate) election_ticks: u64,
    pub(crate) last_tick: Duration,
    pub(crate) ticks: u64,
    /// When each peer was heard of last, in ticks.
    pub(crate) received: BTreeMap<PeerId, u64>,
    /// When a client asked something last.
    pub(crate) asked_at_tick: u64,
    pub(crate) clock: PartitionClock,
    /// What is being written, and the messages that wait for it.
    pub(crate) writing: Option<Writing>,
    /// Not logged yet.
    pub(crate) gathered: Vec<Proposal>,
    /// Logged as the leader of this term, and not decided.
    pub(crate) logged: VecDeque<Logged>,
    pub(crate) reads: Reads,
    pub(crate) seen: SeenLeader,
    /// In this term the lead was to be handed over: whoever was told may take it at any time.
    pub(crate) handed_over_in: u64,
    /// Entries are being fetched from the log's files.
    pub(crate) is_reading_log: bool,
    /// When that began last.
    pub(crate) read_log_at: Duration,
    /// Who was asked for a copy, and when.
    pub(crate) fetching: Option<(PeerId, Duration)>,
    pub(crate) came: Option<SnapshotFacts>,
    pub(crate) installing: Option<SnapshotFacts>,
    /// Facts at what was handed out last, and at all that is not applied.
    pub(crate) handed: SnapshotFacts,
    pub(crate) unapplied: VecDeque<SnapshotFacts>,
    /// Since when peers wait for a copy.
    pub(crate) copying: BTreeMap<u64, Duration>,
    /// Its state met damage.
    pub(crate) is_unhealthy: bool,
    /// The leader's word that this replica is to lead, and when it came.
    pub(crate) asked_to_lead: Option<(Message, Duration)>,
    /// It is the first of its group's founders, and has never heard of a leader.
    pub(crate) stands_first: bool,
    /// When it handed the lead over last.
    pub(crate) handed_over_at_tick: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Writing {
    pub number: u64,
    pub messages: Vec<Message>,
    /// A copy takes the place of the state.
    pub installs: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Logged {
    pub place: Place,
    pub requests: Vec<RequestId>,
}

/// Who led when last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenLeader {
    pub term: u64,
    pub leader: Option<PeerId>,
    pub since: Duration,
}

/// How far a peer is, as its leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProgress {
    /// It has the log up to here.
    pub matched: u64,
    /// It has answered within the last seconds.
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
        // What was promised before the restart is not known: nobody is helped for as long.
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
        // Of those that begin together one need not wait for another to lead.
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
            // Heartbeats are rounds; the library's own come only where those do not.
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
        // Others come first; where none of them can lead, it may have what they lack.
        if self.is_unhealthy {
            self.election_ticks += ELECTION_TICKS.end;
        }
    }

    /// Takes notice of an event. Actions are carried out in their order; only persisting, applying
    /// and reading may take their time.
    ///
    /// REQUIRES: the clock was read after a tick or message came in, or promises would end early.
    /// With requests it may be older: that is why [`Replica::permits`] looks again.
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
            Event::Split(split) => self.propose_split(now, split),
            Event::FallIll => self.fall_ill(),
            Event::Transfer { to } => self.hand_over(to),
        }
        self.settle(now, &mut actions);
        self.fetch_entries(now, &mut actions);
        self.check();
        actions
    }

    /// What holds whenever everything waits for somebody else.
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
            "behind entry {applied} some of those handed out are not awaited"
        );
        debug_assert!(
            self.unapplied
                .back()
                .is_none_or(|last| *last == self.handed),
            "what holds behind the last entry is {:?}, and {:?}",
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

    /// Whom this replica follows, or itself.
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

    /// The group as of what was handed out to be applied.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.handed.membership
    }

    /// What the engine has said to have applied.
    pub fn applied(&self) -> &SnapshotFacts {
        self.raw.store().applied()
    }

    /// Where its log ends.
    pub fn last(&self) -> Place {
        let log = &self.raw.raft.raft_log;
        Place {
            term: log.last_term(),
            index: log.last_index(),
        }
    }

    /// Entries up to this one are decided, as far as this replica knows.
    pub fn committed(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Until when this replica leads alone, if all that was decided under others is applied here as
    /// far as its engine has said. A read needs all that is decided to be applied besides.
    pub fn lease(&self) -> Option<Duration> {
        let is_caught_up = self.applied().place.term == self.raw.raft.term;
        self.lease_end().filter(|_| is_caught_up)
    }

    /// What may be forgotten of the log so that no more than so many bytes of applied entries are
    /// kept for peers; `None`: nothing.
    pub fn trim_to(&self, most_bytes: u64) -> Option<u64> {
        self.raw.store().trim_to(most_bytes)
    }

    /// How far its peers are, if this replica leads.
    pub fn progress(&self, peer: PeerId) -> Option<PeerProgress> {
        let progress = self.raw.raft.prs().get(peer.0);
        let progress = progress.filter(|_| self.is_leader())?;
        Some(PeerProgress {
            matched: progress.matched,
            is_active: progress.recent_active || self.was_received(peer),
        })
    }

    /// The library forgets who answered whenever it has counted them, and heartbeats of idle groups
    /// are rare.
    fn was_received(&self, peer: PeerId) -> bool {
        let received = self.received.get(&peer);
        received.is_some_and(|at| self.ticks <= at + ACTIVE_TICKS)
    }

    /// After the read: whether its answer may be given. If not, ask by [`Event::Read`] again.
    pub fn permits(&self, now: Now, permit: &Permit) -> bool {
        match permit.lease {
            None => true,
            Some(_) if is_planted(Bug::LooksOnce) || is_planted(Bug::ReadsWhenStale) => true,
            Some(term) => self.raw.raft.term == term && self.holds_lease(now),
        }
    }

    /// Until then no other peer leads, and none has been elected.
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

    /// Whether a majority answered lately, or may yet do so for the first time.
    pub(crate) fn has_majority(&self, now: Now) -> bool {
        let since = self.reads.confirmed().max(Some(self.seen.since));
        since.is_some_and(|since| now.monotonic < since + PROMISE)
    }

    pub(crate) fn refuse(&self, request: RequestId, why: Refusal) -> Action {
        Action::Refuse { request, why }
    }

    /// A tick that comes early says nothing about time.
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
