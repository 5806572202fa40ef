//! The coordinator: the one node that changes the catalog.
//!
//! The coordinator has the model as of the last commit. Events change what it knows beyond the
//! catalog. Each step works on a copy of the model. If the copy differs, one conditional write of
//! the head commits it. While a commit is under way, the coordinator decides nothing. It decides
//! about all events of that time together afterwards, so one commit covers many events.
//!
//! A new coordinator first raises the head's term. From then on no write of an earlier coordinator
//! can succeed.

mod balancing;
mod events;
mod force_recover;
mod groups;
mod layouts;
mod live_moves;
mod live_tables;
mod loads;
mod lost;
mod members;
mod move_splits;
mod plan_checks;
mod rebalance;
mod requests;
mod rollouts;
mod splits;
mod survey;
#[cfg(test)]
mod tests;
mod upgrades;

use forebay_io::sim::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;

use crate::catalog::SeenTag;
use crate::ids::NodeId;
use crate::measures::reads::ReceivedReads;
use crate::message::Beat;
use crate::model::{DocRef, Documents, Head, Model, RequestId, RolloutId};
use crate::request::Request;
use crate::routing::version::VersionSummary;
use crate::time::{Now, Timing};

use balancing::Balancing;
pub use events::{CommitOutcome, CoordinatorAction, CoordinatorEvent, CoordinatorSettings};
pub use groups::GroupWatch;
pub use live_moves::MovesLeft;
pub use loads::LoadProgress;
use loads::LoadWatch;
use lost::Replacing;
use members::{NodeIds, NodeReport};
pub use move_splits::{splits_wait_for, unfinished_splits};
use rebalance::MoveWatch;
use rollouts::Watch;
pub use survey::serving_reads;

/// The least time between two steps for heartbeats.
const STEP: Duration = Duration::from_millis(20);

/// The state machine of the node that changes the catalog.
#[derive(Debug)]
pub struct Coordinator {
    rng: Rng,
    settings: CoordinatorSettings,
    state: State,
    received: BTreeMap<NodeId, NodeReport>,
    /// Nodes that are not in the model yet.
    strangers: Vec<(u64, Beat)>,
    requests: BTreeMap<RequestId, Request>,
    summaries: BTreeMap<(TableName, u64), Summary>,
    watches: BTreeMap<RolloutId, Watch>,
    moves: MoveWatch,
    replacing: Replacing,
    balancing: Balancing,
    groups: GroupWatch,
    loads: LoadWatch,
    reads: ReceivedReads,
    /// Nodes that send no heartbeats.
    suspects: BTreeSet<NodeId>,
    /// Since when most nodes send no heartbeats.
    receives_few_since: Option<Duration>,
    took_over: Duration,
    names: u64,
    /// The newest revision that any node has reported.
    newest: u64,
    /// The catalog's revision, if it is older than `newest`. Then the catalog is an old copy, and
    /// the coordinator commits nothing on it.
    behind: Option<u64>,
    /// When to read the requests again, if they could not be read.
    list_at: Option<Duration>,
    ids: NodeIds,
    /// Whether there is something to decide, and the time of the last step.
    is_due: bool,
    stepped: Duration,
}

#[derive(Debug)]
enum State {
    /// The coordinator waits for the catalog's content.
    Loading {
        retry: Option<Duration>,
    },
    Standing(Box<Standing>),
}

#[derive(Debug)]
struct Standing {
    head: Head,
    seen: SeenTag,
    model: Model,
    /// Whether the head in the catalog has this coordinator's term.
    is_own_term: bool,
    /// The head that is being written, with its model and the time of the next try.
    writing: Option<Box<Writing>>,
}

#[derive(Debug)]
struct Writing {
    head: Head,
    model: Model,
    documents: Documents,
    retry: Option<Duration>,
}

#[derive(Debug)]
enum Summary {
    Asked,
    Known(VersionSummary),
    Failed(String),
}

/// The reports that a coordinator has received about nodes and groups.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedReports<'a> {
    pub nodes: &'a BTreeMap<NodeId, NodeReport>,
    pub groups: &'a GroupWatch,
    pub reads: &'a ReceivedReads,
}

/// The state that a step works on: a copy of the model, and what is known beyond the catalog.
struct Step<'a> {
    now: Now,
    model: Model,
    /// The catalog's format.
    format: u64,
    /// The term of this coordinator.
    term: u64,
    /// The revision that a commit of this step makes.
    revision: u64,
    took_over: Duration,
    /// The first rollout that begins with this step. No node knows of it or of later ones.
    first_new: RolloutId,
    received: &'a mut BTreeMap<NodeId, NodeReport>,
    watches: &'a mut BTreeMap<RolloutId, Watch>,
    moves: &'a mut MoveWatch,
    replacing: &'a mut Replacing,
    balancing: &'a mut Balancing,
    groups: &'a mut GroupWatch,
    loads: &'a mut LoadWatch,
    reads: &'a ReceivedReads,
    summaries: &'a mut BTreeMap<(TableName, u64), Summary>,
    actions: &'a mut Vec<CoordinatorAction>,
}

impl Coordinator {
    /// Creates a coordinator, which asks for the catalog first.
    pub fn new(
        now: Now,
        seed: u64,
        settings: CoordinatorSettings,
    ) -> (Self, Vec<CoordinatorAction>) {
        let coordinator = Self {
            rng: Rng(seed),
            settings,
            state: State::Loading { retry: None },
            received: BTreeMap::new(),
            strangers: Vec::new(),
            requests: BTreeMap::new(),
            summaries: BTreeMap::new(),
            watches: BTreeMap::new(),
            moves: MoveWatch::default(),
            replacing: Replacing::default(),
            balancing: Balancing::default(),
            groups: GroupWatch::default(),
            loads: LoadWatch::default(),
            reads: ReceivedReads::default(),
            suspects: BTreeSet::new(),
            receives_few_since: None,
            took_over: now.monotonic,
            names: 0,
            newest: 0,
            behind: None,
            list_at: None,
            ids: NodeIds::default(),
            is_due: true,
            stepped: Duration::ZERO,
        };
        let actions = vec![CoordinatorAction::Load, CoordinatorAction::ListRequests];
        (coordinator, actions)
    }

    /// Returns the model as of the last commit.
    pub fn standing(&self) -> Option<(&Head, &Model)> {
        match &self.state {
            State::Standing(standing) => Some((&standing.head, &standing.model)),
            State::Loading { .. } => None,
        }
    }

    /// Returns the timing that the catalog sets.
    pub fn timing(&self) -> Timing {
        let standing = self.standing();
        standing
            .map(|(_, model)| model.timing())
            .unwrap_or_default()
    }

    /// Returns why the partitions of lost nodes do not move to other nodes.
    pub fn replace_problem(&self) -> Option<&str> {
        self.replacing.problem.as_deref()
    }

    /// Returns the last decision about uneven load, and why no balancing plan begins now.
    pub fn balance_reported(&self) -> impl Iterator<Item = &str> {
        let reported = [&self.balancing.reported, &self.balancing.waits];
        reported.into_iter().flatten().map(String::as_str)
    }

    /// Records that such a revision exists.
    pub fn expect(&mut self, revision: u64) {
        self.newest = self.newest.max(revision);
    }

    /// If the catalog is an old copy: returns its revision and the newest known one.
    pub fn behind(&self) -> Option<(u64, u64)> {
        self.behind.map(|found| (found, self.newest))
    }

    /// Returns since when this coordinator has received reports.
    pub fn took_over(&self) -> Duration {
        self.took_over
    }

    pub fn received_reports(&self) -> ReceivedReports<'_> {
        ReceivedReports {
            nodes: &self.received,
            groups: &self.groups,
            reads: &self.reads,
        }
    }

    /// Returns the reports about the groups of live tables.
    pub fn groups(&self) -> &GroupWatch {
        &self.groups
    }

    /// Returns the nodes that should send heartbeats, and do not.
    pub fn suspects(&self) -> &BTreeSet<NodeId> {
        &self.suspects
    }

    pub fn handle(&mut self, now: Now, event: CoordinatorEvent) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        let is_beat = matches!(event, CoordinatorEvent::Beat { .. });
        self.is_due |= !is_beat;
        match event {
            CoordinatorEvent::Tick => self.tick(now, &mut actions),
            CoordinatorEvent::Loaded { head, seen, model } => self.loaded(now, *head, seen, *model),
            CoordinatorEvent::NotLoaded => {
                let again = now.monotonic + self.timing().retry();
                if let State::Loading { retry } = &mut self.state {
                    *retry = Some(again);
                }
            }
            CoordinatorEvent::Beat { token, beat } => {
                self.compare(&beat, &mut actions);
                self.receive(now, token, *beat, &mut actions);
            }
            CoordinatorEvent::Wrote { stamp, outcome } => {
                self.wrote(now, stamp, outcome, &mut actions)
            }
            CoordinatorEvent::NotListed => {
                self.list_at = Some(now.monotonic + self.timing().retry());
            }
            CoordinatorEvent::Requests(found) => self.take_requests(found),
            CoordinatorEvent::Summary {
                table,
                version,
                summary,
            } => {
                let summary = match summary {
                    Ok(summary) => Summary::Known(summary),
                    Err(problem) => Summary::Failed(problem),
                };
                self.summaries.insert((table, version), summary);
            }
            CoordinatorEvent::Planned { goal, plan } => {
                self.replacing.planned(&goal, plan.map(|plan| *plan));
            }
            CoordinatorEvent::Balanced { table, made } => {
                self.balancing.planned(&table, made.map(|made| *made));
            }
        }
        // One step decides about many heartbeats that arrive together.
        if self.is_due && (!is_beat || now.since(self.stepped) >= STEP) {
            (self.is_due, self.stepped) = (false, now.monotonic);
            self.step(now, &mut actions);
            self.answer(now, &mut actions);
        }
        actions
    }

    fn tick(&mut self, now: Now, actions: &mut Vec<CoordinatorAction>) {
        let is_due = |at: &mut Option<Duration>| at.take_if(|at| *at <= now.monotonic).is_some();
        if is_due(&mut self.list_at) {
            actions.push(CoordinatorAction::ListRequests);
        }
        match &mut self.state {
            State::Loading { retry } => {
                if is_due(retry) {
                    actions.push(CoordinatorAction::Load);
                }
            }
            State::Standing(standing) => {
                if let Some(writing) = &mut standing.writing
                    && is_due(&mut writing.retry)
                {
                    let action = writing.action(&standing.seen);
                    actions.push(action);
                }
            }
        }
    }

    /// If a node knows a newer revision than this coordinator could have written, reads the catalog
    /// again. Either another node is the coordinator by now, or the catalog is an old copy.
    fn compare(&mut self, beat: &Beat, actions: &mut Vec<CoordinatorAction>) {
        let State::Standing(standing) = &self.state else {
            return;
        };
        let own = standing.head.revision + u64::from(standing.writing.is_some());
        if beat.cluster == standing.head.cluster && beat.revision > own {
            self.expect(beat.revision);
            self.state = State::Loading { retry: None };
            actions.push(CoordinatorAction::Load);
        }
    }

    fn loaded(&mut self, now: Now, head: Head, seen: SeenTag, model: Model) {
        let State::Loading { retry } = &mut self.state else {
            return;
        };
        let is_old = head.revision < self.newest;
        self.behind = is_old.then_some(head.revision);
        if is_old {
            *retry = Some(now.monotonic + model.timing().retry());
            return;
        }
        self.newest = head.revision;
        self.took_over = now.monotonic;
        // Waiting requests are decided again, by the newly read catalog.
        self.watches.clear();
        self.moves = MoveWatch::default();
        self.replacing = Replacing::default();
        self.balancing = Balancing::default();
        self.groups = GroupWatch::default();
        self.loads = LoadWatch::default();
        self.state = State::Standing(Box::new(Standing {
            head: Head {
                // The term is raised before anything else is written, so that no write of an
                // earlier coordinator succeeds.
                term: head.term + 1,
                ..head
            },
            seen,
            model,
            is_own_term: false,
            writing: None,
        }));
    }

    fn wrote(
        &mut self,
        now: Now,
        stamp: u64,
        outcome: CommitOutcome,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let State::Standing(standing) = &mut self.state else {
            return;
        };
        let Some(mut writing) = standing
            .writing
            .take_if(|writing| writing.head.stamp == stamp)
        else {
            return;
        };
        match outcome {
            CommitOutcome::Done(seen) => {
                debug_assert!(
                    writing.head.revision == standing.head.revision + 1
                        && writing.head.term == standing.head.term,
                    "revision {} of term {} was written behind {} of term {}",
                    writing.head.revision,
                    writing.head.term,
                    standing.head.revision,
                    standing.head.term
                );
                self.newest = self.newest.max(writing.head.revision);
                standing.head = writing.head;
                standing.model = writing.model;
                standing.seen = seen;
                standing.is_own_term = true;
            }
            CommitOutcome::Conflict => {
                self.state = State::Loading { retry: None };
                actions.push(CoordinatorAction::Load);
            }
            CommitOutcome::Unknown => {
                writing.retry = Some(now.monotonic + standing.model.timing().retry());
                standing.writing = Some(writing);
            }
        }
    }

    /// Adds the requests that were found. A listing may be older than one already seen, so it
    /// removes no request. Only an answer does.
    fn take_requests(&mut self, found: BTreeMap<RequestId, Request>) {
        self.requests.extend(found);
    }

    /// Decides everything that can be decided now, and begins the commit.
    fn step(&mut self, now: Now, actions: &mut Vec<CoordinatorAction>) {
        let State::Standing(standing) = &mut self.state else {
            return;
        };
        if standing.writing.is_some() {
            return;
        }
        let mut step = Step {
            now,
            model: standing.model.clone(),
            format: standing.head.forebay_head,
            term: standing.head.term,
            revision: standing.head.revision + 1,
            took_over: self.took_over,
            first_new: RolloutId(standing.model.work.next_rollout),
            received: &mut self.received,
            watches: &mut self.watches,
            moves: &mut self.moves,
            replacing: &mut self.replacing,
            balancing: &mut self.balancing,
            groups: &mut self.groups,
            loads: &mut self.loads,
            reads: &self.reads,
            summaries: &mut self.summaries,
            actions: &mut *actions,
        };
        step.admit(&self.strangers);
        step.expire();
        step.lay_out();
        step.take_up(&mut self.requests);
        step.drive();
        step.replace_lost(&self.settings);
        step.keep_balanced(&self.settings);
        step.move_on();
        step.take_children();
        step.keep_groups();
        step.keep_loads();
        step.tidy(&self.requests);
        let (model, format) = (step.model, step.format);
        // The first commit of a term is always written, even if nothing has changed.
        if !standing.is_own_term || model.is_changed(&standing.head) {
            self.write(model, format, actions);
        }
    }

    fn write(&mut self, mut model: Model, format: u64, actions: &mut Vec<CoordinatorAction>) {
        let State::Standing(standing) = &mut self.state else {
            return;
        };
        debug_assert!(
            standing.writing.is_none(),
            "revision {} is being written, and another would be",
            standing.head.revision + 1
        );
        model.check_next(&standing.model);
        let (term, revision) = (standing.head.term, standing.head.revision + 1);
        let (rng, names) = (&mut self.rng, &mut self.names);
        let next_name = || {
            *names += 1;
            DocRef::new(&format!(
                "{term}-{revision}-{names}-{:08x}",
                rng.next_u64() as u32
            ))
        };
        // If a document cannot be written as JSON, another try would fail, too. The coordinator
        // keeps the committed model.
        let Ok((documents, roots)) = model.write(format, next_name) else {
            return;
        };
        debug_assert!(
            standing
                .model
                .references()
                .iter()
                .all(|known| !documents.contains_key(known)),
            "a document of revision {revision} has the name of one that is there"
        );
        debug_assert!(
            !roots.values().any(|root| !documents.contains_key(root)
                && !standing.head.roots.values().any(|known| known == root)),
            "revision {revision} names a document that was not written"
        );
        let head = Head {
            forebay_head: format,
            revision,
            stamp: self.rng.next_u64() | 1,
            roots,
            ..standing.head.clone()
        };
        let writing = Writing {
            head,
            model,
            documents,
            retry: None,
        };
        actions.push(writing.action(&standing.seen));
        standing.writing = Some(Box::new(writing));
    }
}

impl Writing {
    fn action(&self, seen: &SeenTag) -> CoordinatorAction {
        CoordinatorAction::Commit {
            documents: self.documents.clone(),
            head: Box::new(self.head.clone()),
            seen: seen.clone(),
        }
    }
}

impl Step<'_> {
    /// Returns a version's summary. If it is not known, asks for it. Fails if it cannot be read.
    fn summary(
        &mut self,
        table: &TableName,
        version: u64,
    ) -> Result<Option<VersionSummary>, String> {
        let place = (table.clone(), version);
        match self.summaries.get(&place) {
            Some(Summary::Known(summary)) => Ok(Some(summary.clone())),
            Some(Summary::Failed(problem)) => Err(problem.clone()),
            Some(Summary::Asked) => Ok(None),
            None => {
                self.summaries.insert(place, Summary::Asked);
                self.actions.push(CoordinatorAction::ReadSummary {
                    table: table.clone(),
                    version,
                });
                Ok(None)
            }
        }
    }
}
