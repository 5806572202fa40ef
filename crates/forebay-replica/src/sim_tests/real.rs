//! State and log as in production, on a simulated disk: a live table of one partition, and its log.
//!
//! The table has no threads. The crate forebay-host combines state and log in the same way.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::live::{
    AppliedPlace, Budget, Durability as LogDurability, Expiry, LiveDraft, LiveError, LiveTable,
    LogError, PartitionContent, PartitionCopy, Replication,
};
use forebay_engine::replica_log::{
    EntryPlace, GroupRecords, OpenedLog, ReplicaLog, ReplicaLogError, ReplicaLogOptions,
};
use forebay_engine::{OpenPartitions, PartitionId, Store as EngineStore, TableName};
use forebay_io::sim::{Fault, HandClock, Rng, SeedCounts, SeededRandom, SimDisk};
use forebay_io::{Disk, may_pass};
use forebay_run::operation::DeltaKind;

use super::store::Trouble;
use crate::events::Promise;
use crate::ids::Place;
use crate::membership::Membership;
use crate::memory::{Durability, FoundMemory};
use crate::start::Start;
use crate::tail::SnapshotFacts;

pub const FIRST: PartitionId = PartitionId(0);
const ROOT: &str = "/s";
const LOG: &str = "/s/replicas";
/// Short, so that segments are added and removed often.
const SEGMENT_BYTES: u64 = 1024;
const BUDGET_BYTES: usize = 1 << 20;

/// A defect in how state and log are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBug {
    /// The applied place is not stored in one step with its runs.
    PlacesApart,
    /// A copy is installed, and the log does not restart after it.
    LogContinues,
    /// Acknowledged writes are not synced.
    SyncsNothing,
    /// Entries are trimmed whose writes are in memory only.
    TrimsApplied,
}

/// The settings that all stores of a run share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealKind {
    pub is_ordered: bool,
    pub bug: Option<StoreBug>,
}

#[derive(Debug)]
pub struct RealStore {
    pub(super) disk: SimDisk,
    is_full: bool,
    durability: Durability,
    pub(super) rng: Rng,
    pub(super) bug: Option<StoreBug>,
    /// The table and log that a process has open.
    pub(super) open: Option<OpenStore>,
    /// With [`StoreBug::PlacesApart`]: the place that is stored separately.
    pub(super) place_apart: Option<SnapshotFacts>,
    /// Counts of events, for people.
    pub(super) counts: SeedCounts,
}

#[derive(Debug)]
pub(super) struct OpenStore {
    pub table: LiveTable,
    pub log: ReplicaLog,
    pub opened: OpenedLog,
    /// A copy that arrived and is not installed.
    pub fetched: Option<PartitionContent>,
    /// A copy of the state within an entry, for the next peer that asks.
    pub early: Option<RealCopy>,
}

/// A copy that a process has made, whose files another one reads.
#[derive(Debug)]
pub struct RealCopy {
    pub copy: PartitionCopy,
    pub disk: SimDisk,
}

impl RealStore {
    /// Creates an empty partition at the place where the replica begins.
    pub fn new(start: &Start, durability: Durability, seed: u64, kind: RealKind) -> Self {
        let mut store = Self {
            disk: SimDisk::new(),
            is_full: false,
            durability,
            rng: Rng(seed),
            bug: kind.bug,
            open: None,
            place_apart: None,
            counts: SeedCounts::new(),
        };
        store
            .create(start, kind.is_ordered)
            .expect("a new disk has no fault");
        store
    }

    fn create(&mut self, start: &Start, is_ordered: bool) -> Result<(), LiveError> {
        let draft = match is_ordered {
            false => LiveDraft::hashed().partitions(1),
            true => LiveDraft::ordered(Vec::new()),
        };
        let draft = draft
            .delta(DeltaKind::AddI64)
            .expiry(Expiry::PerRecord)
            .factor(2)
            .replicated(Replication::Leader);
        let range = draft.partitions[0].clone();
        let draft = draft.holding(&OpenPartitions::Only([].into()));
        let store = self.engine_store()?;
        let table = store.create_live(&name(), draft, &Budget::by_hand(BUDGET_BYTES))?;
        table.install(PartitionContent {
            applied: Some(place_of(&start.applied)),
            ..PartitionContent::empty(range)
        })
    }

    pub(super) fn engine_store(&mut self) -> Result<EngineStore, LiveError> {
        let random = Arc::new(SeededRandom::new(self.rng.next_u64()));
        let (disk, clock) = (Arc::new(self.disk.clone()), Arc::new(HandClock::at(1)));
        Ok(EngineStore::open_or_create(
            disk,
            clock,
            random,
            Path::new(ROOT),
        )?)
    }

    /// Opens both; returns `None` if a log that lost data by power loss is detected as damaged.
    pub(super) fn open_both(&mut self, found: &FoundMemory) -> Result<Option<&OpenStore>, Trouble> {
        let store = self.engine_store().map_err(of_table)?;
        let table = store.live_table(&name(), &Budget::by_hand(BUDGET_BYTES));
        let table = table.map_err(of_table)?;
        let options = ReplicaLogOptions {
            table: name(),
            table_id: 1,
            durability: match self.durability {
                Durability::Sync => LogDurability::Sync,
                // Synced by simulated time, not by a thread.
                Durability::Os | Durability::EveryMs(_) => LogDurability::Os,
            },
            boot_id: found.boot_now,
            segment_bytes: SEGMENT_BYTES,
        };
        let (disk, clock) = (Arc::new(self.disk.clone()), Arc::new(HandClock::at(1)));
        let opened = ReplicaLog::open(disk, clock, Path::new(LOG), options);
        let may_lack = self.durability != Durability::Sync && found.boot_then != found.boot_now;
        if may_lack && opened.as_ref().is_err_and(ReplicaLogError::is_damage) {
            return Ok(None);
        }
        let (log, opened) = opened.map_err(of_log)?;
        Ok(Some(self.open.insert(OpenStore {
            table,
            log,
            opened,
            fetched: None,
            early: None,
        })))
    }

    pub(super) fn is_open(&mut self) -> Result<&mut OpenStore, Trouble> {
        let open = self.open.as_mut();
        open.ok_or_else(|| Trouble::Broken("the store is not open".to_owned()))
    }

    /// Kills the process; its disk stays as it is.
    pub(super) fn kill(&mut self) {
        if self.open.is_some() {
            // Further work of the dropped objects goes to a disk that no other process sees.
            let left = self.disk.after_kill();
            self.open = None;
            self.change_disk(left);
        }
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    pub(super) fn change_disk(&mut self, disk: SimDisk) {
        self.disk = disk;
        self.fill(self.is_full);
    }

    pub(super) fn fill(&mut self, is_full: bool) {
        self.is_full = is_full;
        match is_full {
            true => self.disk.fill_up(),
            false => self.disk.make_room(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn plan_death(&self, calls: u64) {
        self.disk.plan(calls, Fault::Dead);
    }

    pub(super) fn has_died(&self) -> bool {
        self.disk.exists(Path::new(ROOT)).is_err()
    }
}

impl OpenStore {
    /// Returns the facts of the state; `done` is how much of the next entry is applied.
    pub fn applied(&self) -> Result<(SnapshotFacts, u32), Trouble> {
        let applied = self.table.applied(FIRST).map_err(of_table)?;
        Ok((facts_of(&applied)?, applied.done))
    }

    /// Records where the group's log begins, and what the replica promised.
    pub fn begin(&self, group: u64, behind: Place, promise: &Promise) -> Result<(), Trouble> {
        let promise = promise.to_bytes();
        let records = GroupRecords {
            group,
            begins: Some(entry_place(behind)),
            promise: Some(&promise),
            ..GroupRecords::default()
        };
        let written = self.log.append(&[records]).map_err(of_log)?;
        self.log.wait_durable(written).map_err(of_log)
    }
}

fn name() -> TableName {
    TableName::new("t").expect("a name")
}

pub(super) fn of_table(error: LiveError) -> Trouble {
    match error.may_pass() {
        true => Trouble::NoRoom,
        false => Trouble::Broken(error.to_string()),
    }
}

pub(super) fn of_log(error: ReplicaLogError) -> Trouble {
    match &error {
        ReplicaLogError::Log(LogError::Full { .. }) => Trouble::NoRoom,
        // While it is opened.
        ReplicaLogError::Log(LogError::Io { source, .. }) if may_pass(source) => Trouble::NoRoom,
        _ => Trouble::Broken(error.to_string()),
    }
}

pub(super) fn entry_place(place: Place) -> EntryPlace {
    EntryPlace {
        term: place.term,
        index: place.index,
    }
}

pub(super) fn place_of(facts: &SnapshotFacts) -> AppliedPlace {
    AppliedPlace {
        term: facts.place.term,
        index: facts.place.index,
        stamp_ms: facts.stamp_ms,
        members: facts.membership.to_bytes().as_ref().into(),
        done: 0,
        loaded: 0,
    }
}

pub(super) fn facts_of(applied: &AppliedPlace) -> Result<SnapshotFacts, Trouble> {
    let members = Bytes::copy_from_slice(&applied.members);
    let members = Membership::from_bytes(members);
    let members = members.map_err(|error| Trouble::Broken(error.to_string()))?;
    Ok(SnapshotFacts {
        place: Place {
            term: applied.term,
            index: applied.index,
        },
        membership: Arc::new(members),
        stamp_ms: applied.stamp_ms,
    })
}
