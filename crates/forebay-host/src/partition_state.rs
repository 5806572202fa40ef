//! The state of a replica as a partition of a live table.

use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::PartitionId;
use forebay_engine::live::{
    AppliedPlace, DecidedEntry, EntryWrite, LiveError, LiveTable, PartitionContent, PartitionCopy,
};
use forebay_replica::{
    CodecError, Committed, Content, GroupId, Membership, PeerId, Place, SnapshotFacts,
};
use parking_lot::Mutex;
use tracing::error;

use crate::effects::{Answer, Effect, EffectError, LoadedRuns};
use crate::environment::{ChildReplicas, GroupState, StateError};

/// The client that fetches copies of partitions from other nodes.
pub trait CopyFetcher: std::fmt::Debug + Send + Sync {
    /// Fetches the partition from a peer, at this place of its log or a later one. The files of its
    /// runs are finished and synced among the table's files, under ids of this node.
    fn fetch_copy(
        &self,
        group: GroupId,
        from: PeerId,
        at_least: Place,
    ) -> Result<PartitionContent, String>;
}

/// The services that apply a partition's entries.
#[derive(Debug, Clone)]
pub struct StateParts {
    pub copy_fetcher: Arc<dyn CopyFetcher>,
    pub loads: Arc<dyn LoadedRuns>,
}

/// The state of one partition's replica in the engine.
#[derive(Debug)]
pub struct PartitionState {
    table: LiveTable,
    partition: PartitionId,
    group: GroupId,
    parts: StateParts,
    /// This replica's peer number, and the store of its children's replicas.
    children: Option<(PeerId, Arc<dyn ChildReplicas>)>,
    /// The answers of an entry that is applied in part.
    answers: Mutex<PartialAnswers>,
    /// The copies that were fetched, among them the one to install.
    fetched: Mutex<Vec<PartitionContent>>,
}

#[derive(Debug, Default)]
struct PartialAnswers {
    index: u64,
    answers: Vec<Answer>,
}

impl PartitionState {
    /// Wraps a local partition of a replicated table.
    pub fn new(
        table: LiveTable,
        partition: PartitionId,
        group: GroupId,
        parts: StateParts,
    ) -> Self {
        Self {
            table,
            partition,
            group,
            parts,
            children: None,
            answers: Mutex::default(),
            fetched: Mutex::default(),
        }
    }

    /// Sets the peer number, and the store of the children's replicas. Without it, a split creates
    /// no replicas on this node.
    #[must_use]
    pub fn split_for(mut self, me: PeerId, children: Arc<dyn ChildReplicas>) -> Self {
        self.children = Some((me, children));
        self
    }

    pub(crate) fn table(&self) -> &LiveTable {
        &self.table
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    pub(crate) fn children(&self) -> Option<&(PeerId, Arc<dyn ChildReplicas>)> {
        self.children.as_ref()
    }

    /// Returns a copy of the partition as it is now, for a peer that lags.
    pub fn copy(&self) -> Result<PartitionCopy, LiveError> {
        self.table.copy_of(self.partition)
    }

    fn discard(&self, content: &PartitionContent) {
        let runs = content.runs.iter().map(|run| &run.id);
        self.table.discard_runs(runs);
    }

    fn apply_proposals(
        &self,
        (decided, done): (&DecidedEntry, u32),
        content: &Content,
        may_wait: bool,
    ) -> Result<Vec<Answer>, StateError> {
        let proposals = match content {
            Content::Batch { proposals, .. } if !proposals.is_empty() => proposals,
            _ => {
                let passed = self.table.pass(self.partition, decided);
                return passed.map(|()| Vec::new()).map_err(of_this_machine);
            }
        };
        let mut partial = self.answers.lock();
        if partial.index != decided.place.index {
            // An earlier process applied these proposals, so no client waits for their answers.
            let answers = vec![Answer::Done; done as usize];
            *partial = PartialAnswers {
                index: decided.place.index,
                answers,
            };
        }
        debug_assert_eq!(
            partial.answers.len(),
            done as usize,
            "the answers to entry {} of group {} are not those of what is applied",
            decided.place.index,
            self.group
        );
        for (number, proposal) in (0..).zip(proposals).skip(done as usize) {
            let answer = self.apply_one(decided, number, &proposal.effect, may_wait)?;
            partial.answers.push(answer);
        }
        Ok(std::mem::take(&mut partial.answers))
    }

    fn apply_one(
        &self,
        decided: &DecidedEntry,
        number: u32,
        effect: &[u8],
        may_wait: bool,
    ) -> Result<Answer, StateError> {
        let effect = Effect::decode(effect).map_err(|error| match error {
            EffectError::Newer(_) => StateError::Later(error.to_string()),
            EffectError::Damaged => StateError::Never(error.to_string()),
        })?;
        if let Effect::Load(load) = effect {
            let added = self.add_load(decided, number, load);
            return added.map(|()| Answer::Done);
        }
        let handle = self.table.entry(self.partition, decided, number);
        let handle = handle.map_err(of_this_machine)?;
        let answer = match change(&handle, &effect, may_wait) {
            Ok(answer) => answer.ok_or(StateError::Waits)?,
            Err(error) if error.is_of_this_machine() => return Err(of_this_machine(error)),
            // Every replica refuses it.
            Err(error) => {
                error!(group = self.group.0, %error, "an effect cannot be applied");
                Answer::Refused(error.to_string())
            }
        };
        handle.finish().map_err(of_this_machine)?;
        Ok(answer)
    }

    fn add_load(&self, decided: &DecidedEntry, number: u32, load: u64) -> Result<(), StateError> {
        let (id, loads) = (self.partition, &self.parts.loads);
        let applied = self.table.applied(id).map_err(of_this_machine)?;
        let runs = match loads.find(self.table.name(), id, load) {
            Some(run) => vec![run],
            // The load was added before, and adds nothing.
            None if applied.loaded >= load => Vec::new(),
            None => {
                let problem = format!("the run of load {load} has not come");
                return Err(StateError::Later(problem));
            }
        };
        let added = self.table.apply_load(id, decided, number, load, &runs);
        if added.as_ref().err().is_none_or(|error| !error.may_pass()) {
            loads.taken(self.table.name(), id, load);
        }
        added.map_err(of_this_machine)
    }
}

impl GroupState for PartitionState {
    fn apply(&self, committed: &Committed, may_wait: bool) -> Result<Vec<Answer>, StateError> {
        let applied = self
            .table
            .applied(self.partition)
            .map_err(of_this_machine)?;
        let decided = DecidedEntry {
            place: place_of(&committed.facts),
            proposals: match &committed.entry.content {
                Content::Batch { proposals, .. } => proposals.len() as u32,
                Content::Empty | Content::Changes(_) | Content::Split(_) => 0,
            },
        };
        if applied.index >= decided.place.index {
            return Ok(Vec::new());
        }
        debug_assert!(
            applied.index + 1 == decided.place.index && applied.term <= decided.place.term,
            "entry {} arrives at group {}, whose state is at {applied:?}",
            committed.entry.place,
            self.group
        );
        if let Content::Split(split) = &committed.entry.content {
            self.apply_split(&decided, &committed.facts, split)?;
            return Ok(Vec::new());
        }
        let content = &committed.entry.content;
        self.apply_proposals((&decided, applied.done), content, may_wait)
    }

    fn fetch_copy(&self, from: PeerId, at_least: Place) -> Result<SnapshotFacts, StateError> {
        let fetched = self
            .parts
            .copy_fetcher
            .fetch_copy(self.group, from, at_least);
        let content = fetched.map_err(StateError::Later)?;
        let facts = content.applied.as_ref().map(facts_of);
        let Some(Ok(facts)) = facts else {
            let problem = format!("the copy from peer {from} does not say where it is in the log");
            return Err(StateError::Later(problem));
        };
        self.fetched.lock().push(content);
        Ok(facts)
    }

    fn install(&self, facts: &SnapshotFacts) -> Result<(), StateError> {
        let is_it = |content: &&PartitionContent| {
            let applied = content.applied.as_ref();
            applied.is_some_and(|applied| is_at(applied, facts))
        };
        let mut fetched = self.fetched.lock();
        let content = fetched.iter().find(is_it).cloned();
        let Some(content) = content else {
            let applied = self
                .table
                .applied(self.partition)
                .map_err(of_this_machine)?;
            // The copy was installed before the log recorded it.
            return match is_at(&applied, facts) {
                true => Ok(()),
                false => Err(StateError::Never("the fetched copy is missing".to_owned())),
            };
        };
        self.table.install(content).map_err(of_this_machine)?;
        debug_assert!(
            (self.table.applied(self.partition)).is_ok_and(|applied| is_at(&applied, facts)),
            "a copy of group {} at {} is in place, and the partition is at {:?}",
            self.group,
            facts.place,
            self.table.applied(self.partition)
        );
        // Keep the runs that the table has now.
        let is_past = |content: &mut PartitionContent| {
            let applied = content.applied.as_ref();
            applied.is_none_or(|applied| applied.index <= facts.place.index)
        };
        let past: Vec<PartitionContent> = fetched.extract_if(.., is_past).collect();
        past.iter().for_each(|content| self.discard(content));
        Ok(())
    }

    fn drop_copy(&self) {
        let fetched = std::mem::take(&mut *self.fetched.lock());
        fetched.iter().for_each(|content| self.discard(content));
    }

    fn kept_through(&self) -> u64 {
        let applied = self.table.applied_in_runs(self.partition);
        applied.map_or(0, |applied| applied.index)
    }

    fn keep(&self) -> Result<(), StateError> {
        self.table.flush().map_err(of_this_machine)
    }
}

/// Writes an effect other than a load to the partition of a handle. The log that has the entry
/// makes it durable. Returns `None` if it would have to wait and may not.
fn change(
    handle: &EntryWrite,
    effect: &Effect,
    may_wait: bool,
) -> Result<Option<Answer>, LiveError> {
    match effect {
        Effect::AdvanceTime | Effect::Load(_) => {}
        Effect::Operations(batch) => {
            // Leaders propose no such batch: a split makes an evaluation before it invalid.
            if !batch.records().all(|(key, _)| handle.is_of_entry(key)) {
                return Ok(Some(Answer::OtherPartition));
            }
            let written = match may_wait {
                true => Some(handle.write(batch)?),
                false => handle.try_write(batch)?,
            };
            return Ok(written.map(|_| Answer::Done));
        }
        // They sort memory, and count keys.
        Effect::RemoveRange { .. } | Effect::RemoveAll if !may_wait => return Ok(None),
        Effect::RemoveRange {
            start,
            end,
            is_counted,
        } => {
            let (start, end) = (start.as_ref(), end.as_ref());
            let (start, end) = (start.map(Vec::as_slice), end.map(Vec::as_slice));
            if *is_counted {
                let counted = handle.delete_range_counted(start, end)?;
                return Ok(Some(Answer::Count(counted.0)));
            }
            let _ = handle.delete_range(start, end)?;
        }
        Effect::RemoveAll => {
            let _ = handle.delete_all()?;
        }
    }
    Ok(Some(Answer::Done))
}

/// Maps an error of the engine during an apply to a state error. Transient errors are tried again.
pub(crate) fn of_this_machine(error: LiveError) -> StateError {
    match error.may_pass() {
        true => StateError::Later(error.to_string()),
        false if error.is_damage() => StateError::Damaged(error.to_string()),
        false => StateError::Never(error.to_string()),
    }
}

/// Returns whether this is the last entry that is applied as a whole. Some proposals of the next
/// entry may be applied, also in a copy that was made meanwhile.
fn is_at(applied: &AppliedPlace, facts: &SnapshotFacts) -> bool {
    (applied.term, applied.index) == (facts.place.term, facts.place.index)
}

/// Returns the facts at a place in the engine's form.
pub fn place_of(facts: &SnapshotFacts) -> AppliedPlace {
    AppliedPlace {
        term: facts.place.term,
        index: facts.place.index,
        stamp_ms: facts.stamp_ms,
        members: facts.membership.to_bytes().as_ref().into(),
        done: 0,
        loaded: 0,
    }
}

/// Returns the facts at a place whose last entry is applied as a whole.
pub fn facts_of(applied: &AppliedPlace) -> Result<SnapshotFacts, CodecError> {
    let members = Bytes::copy_from_slice(&applied.members);
    Ok(SnapshotFacts {
        place: Place {
            term: applied.term,
            index: applied.index,
        },
        membership: Arc::new(Membership::from_bytes(members)?),
        stamp_ms: applied.stamp_ms,
    })
}
