//! Operations of a process on the engine and its log: opening, writing, copies, ending.

use forebay_engine::live::PartitionContent;
use forebay_engine::replica_log::{
    EntryDraft, EntryPlace, GroupRecords, LoggedEntry, LoggedGroup, ReplicaLogError,
};
use forebay_io::sim::SeedCounts;
use forebay_io::{Disk, replace_file};

use super::model::Answer;
use super::real::{
    FIRST, OpenStore, RealCopy, RealStore, StoreBug, entry_place, facts_of, of_log, of_table,
};
use super::real_apply::{content, number};
use super::store::{StateCopy, Store, Trouble, WriteProgress};
use super::world::GROUP;
use crate::entry::{Content, LogEntry};
use crate::events::{Committed, Persist, Promise};
use crate::ids::{GroupId, PeerId, Place};
use crate::memory::FoundMemory;
use crate::older::OlderEntries;
use crate::start::Start;
use crate::tail::SnapshotFacts;

/// The bytes of entries to retain that restarts do not need.
const KEPT_BYTES: [u64; 3] = [0, 1 << 10, 16 << 10];

impl Store for RealStore {
    fn open(&mut self, found: &FoundMemory, _: u64) -> Result<FoundMemory, Trouble> {
        let Some(open) = self.open_both(found)? else {
            return Ok(FoundMemory {
                log_is_whole: false,
                ..found.clone()
            });
        };
        Ok(FoundMemory {
            boot_then: open.opened.boot_then.unwrap_or(found.boot_now),
            stopped_clean: open.opened.stopped_clean,
            ..found.clone()
        })
    }

    fn start(&mut self, group: GroupId, me: PeerId, seed: u64) -> Result<Start, Trouble> {
        let apart = self.place_apart.clone();
        let open = self.is_open()?;
        let (mut applied, done) = open.applied()?;
        if let Some(apart) = apart {
            applied = apart;
        }
        let known = open.opened.groups.get(&group.0);
        let promise = match known.and_then(|known| known.promise.clone()) {
            Some(promise) => Promise::from_bytes(promise.into()).map_err(broken)?,
            None => Promise {
                term: applied.place.term,
                vote: None,
                committed: applied.place.index,
            },
        };
        let entries = match known {
            Some(known) => entries_behind(open, known, applied.place)?,
            None => Vec::new(),
        };
        let older = older_entries(open, known, applied.place)?;
        let before = entry_place(applied.place);
        let is_passed = |known: &LoggedGroup| entries.is_empty() && known.last != before;
        if known.is_none_or(is_passed) {
            open.begin(group.0, applied.place, &promise)?;
        }
        if done > 0 {
            self.count("starts in the midst of an entry");
        }
        Ok(Start {
            group,
            me,
            promise,
            older,
            before: applied.place,
            applied,
            entries,
            seed,
        })
    }

    fn end(&mut self) {
        self.kill();
    }

    fn lose_power(&mut self, draw: u64) {
        let left = self.disk.after_power_cut(draw);
        self.change_disk(left);
    }

    fn stop_clean(&mut self) -> bool {
        let Some(OpenStore { table, log, .. }) = self.open.take() else {
            return false;
        };
        drop(table);
        let is_closed = log.close().is_ok();
        let left = self.disk.after_kill();
        self.change_disk(left);
        is_closed
    }

    fn set_full(&mut self, is_full: bool) {
        self.fill(is_full);
    }

    fn write(&mut self, persist: &Persist) -> Result<WriteProgress, Trouble> {
        let bug = self.bug;
        let open = self.is_open()?;
        if let Some(facts) = &persist.snapshot {
            if let Some(content) = open.fetched.clone() {
                self.put_in_place(content)?;
                self.place_apart = self.place_apart.take().map(|_| facts.clone());
                return Ok(WriteProgress::CopyOnly);
            }
            let (applied, _) = open.applied()?;
            if applied.place.index < facts.place.index {
                let problem = format!("the copy at {} is gone", facts.place);
                return Err(Trouble::Broken(problem));
            }
        }
        let begins = persist.snapshot.as_ref().map(|facts| facts.place);
        let begins = begins.filter(|_| bug != Some(StoreBug::LogContinues));
        let entries = persist.entries.iter();
        let entries: Vec<_> = entries
            .map(|entry| (entry_place(entry.place), entry.content.to_bytes()))
            .collect();
        let promise = persist.promise.as_ref().map(Promise::to_bytes);
        let drafts = entries.iter().map(|(place, bytes)| EntryDraft {
            place: *place,
            bytes,
        });
        let records = GroupRecords {
            group: GROUP.0,
            is_gone: false,
            begins: begins.map(entry_place),
            entries: drafts.collect(),
            promise: promise.as_ref().map(<[u8; 24]>::as_slice),
        };
        open.log.append(&[records]).map_err(of_log)?;
        Ok(WriteProgress::All { installs: false })
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        if self.bug == Some(StoreBug::SyncsNothing) {
            return Ok(());
        }
        self.is_open()?.log.sync().map_err(of_log)
    }

    fn apply(&mut self, committed: &Committed) -> Result<Vec<Answer>, Trouble> {
        self.apply_entry(committed)
    }

    fn get(&self, key: u8) -> Result<Option<i64>, Trouble> {
        let Some(open) = &self.open else {
            return Ok(None);
        };
        let value = open.table.get(&[key]).map_err(of_table)?;
        Ok(value.map(|value| number(&value)))
    }

    fn hash(&mut self) -> Result<Option<u64>, Trouble> {
        let walks = self.rng.below(8) == 0;
        let open = self.is_open()?;
        let (_, done) = open.applied()?;
        match done {
            0 => Ok(Some(content(&open.table, walks)?.hash())),
            _ => Ok(None),
        }
    }

    fn entries(
        &mut self,
        (from, to): (u64, u64),
        most_bytes: u64,
    ) -> Result<Option<Vec<LogEntry>>, Trouble> {
        // Few at a time, so that many parts are requested.
        let most_bytes = most_bytes >> 12;
        let found = self.is_open()?.log.entries(GROUP.0, from, most_bytes);
        let found = match found {
            Ok(found) => found,
            Err(ReplicaLogError::Trimmed { .. } | ReplicaLogError::NoGroup { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(of_log(error)),
        };
        let asked = found.into_iter().take_while(|entry| entry.place.index < to);
        let entries: Vec<LogEntry> = asked.map(log_entry).collect::<Result<_, _>>()?;
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    fn flush(&mut self, applied: &SnapshotFacts, _: u64) -> Result<(), Trouble> {
        let (bug, keeps) = (self.bug, KEPT_BYTES[self.rng.below(3) as usize]);
        let does_it = self.rng.below(2) == 0;
        let open = self.is_open()?;
        if does_it || bug != Some(StoreBug::TrimsApplied) {
            open.table.flush().map_err(of_table)?;
        }
        let in_runs = open.table.applied_in_runs(FIRST).map_err(of_table)?;
        let through = match bug {
            Some(StoreBug::TrimsApplied) => applied.place.index,
            Some(StoreBug::PlacesApart) => {
                let kept = self.place_apart.take().filter(|_| !does_it);
                let kept = self.place_apart.insert(kept.unwrap_or(applied.clone()));
                kept.place.index
            }
            _ => in_runs.index,
        };
        let open = self.is_open()?;
        open.log.trim(GROUP.0, through);
        let removed = open.log.remove_unneeded(keeps).map_err(of_log)?;
        self.count("flushes");
        if removed.removed_bytes > 0 {
            self.count("removals");
        }
        Ok(())
    }

    fn work(&mut self) -> Result<(), Trouble> {
        let (draw, mut is_merge) = (self.rng.below(60), false);
        let open = self.is_open()?;
        let worked = match draw {
            0 => open.table.compact(),
            1 | 2 => open.table.flush(),
            3..10 => open.table.step().map(|does| is_merge = does),
            _ => Ok(()),
        };
        if is_merge {
            self.count("merges");
        }
        worked.map_err(of_table)
    }

    fn copy(&mut self, _: &SnapshotFacts) -> Result<(SnapshotFacts, StateCopy), Trouble> {
        let disk = self.disk.clone();
        let open = self.is_open()?;
        let copy = match open.early.take() {
            Some(early) => early,
            None => {
                let copy = open.table.copy_of(FIRST).map_err(of_table)?;
                RealCopy { copy, disk }
            }
        };
        let applied = copy.copy.content().applied.as_ref();
        let applied = applied.ok_or_else(|| broken("a copy has no place"))?;
        let (facts, done) = (facts_of(applied)?, applied.done);
        if done > 0 {
            self.count("copies in the midst of an entry");
        }
        Ok((facts, StateCopy::Real(copy)))
    }

    fn fetch_copy(&mut self, copy: StateCopy) -> Result<(), Trouble> {
        self.drop_copy();
        let disk = self.disk.clone();
        let (StateCopy::Real(from), open) = (copy, self.is_open()?) else {
            return Err(Trouble::NoRoom);
        };
        let mut content = from.copy.content().clone();
        for at in 0..content.runs.len() {
            let run = &mut content.runs[at];
            // The source of the copy may have died.
            let bytes = from.disk.read(&from.copy.run_file(&run.id));
            let bytes = bytes.map_err(|_| Trouble::NoRoom)?;
            let new = open.table.new_run();
            if let Err(error) = replace_file(&disk, &new.path, &bytes) {
                let fetched = content.runs[..at].iter().map(|run| &run.id);
                open.table.discard_runs(fetched);
                return Err(match forebay_io::may_pass(&error) {
                    true => Trouble::NoRoom,
                    false => broken(error),
                });
            }
            run.id = new.id;
        }
        open.fetched = Some(content);
        Ok(())
    }

    fn drop_copy(&mut self) {
        if let Some(open) = &mut self.open
            && let Some(content) = open.fetched.take()
        {
            open.table
                .discard_runs(content.runs.iter().map(|run| &run.id));
        }
    }

    fn die_within(&mut self, calls: u64) {
        self.plan_death(calls);
    }

    fn is_dead(&self) -> bool {
        self.has_died()
    }

    fn calls(&self) -> u64 {
        self.disk.calls()
    }

    fn counts(&self) -> SeedCounts {
        self.counts.clone()
    }
}

impl RealStore {
    /// There may be no space at that moment, and some later.
    fn put_in_place(&mut self, content: PartitionContent) -> Result<(), Trouble> {
        let is_full = self.is_full();
        let lacks_room = self.rng.below(3) == 0;
        self.fill(is_full || lacks_room);
        let installed = self.is_open()?.table.install(content).map_err(of_table);
        self.fill(is_full);
        if installed.is_ok() {
            self.is_open()?.fetched = None;
        }
        installed
    }
}

/// Returns the log's entries after the applied one. If a copy was installed and the log does not
/// record it yet, the log has no entries that follow it.
fn entries_behind(
    open: &OpenStore,
    known: &LoggedGroup,
    place: Place,
) -> Result<Vec<LogEntry>, Trouble> {
    if known.before.index > place.index {
        let before = known.before;
        return Err(broken(format!(
            "the state is at {place}, but its log begins after {before}"
        )));
    }
    if known.last.index <= place.index || !continues_at(open, known, place)? {
        return Ok(Vec::new());
    }
    let found = open.log.entries(GROUP.0, place.index + 1, u64::MAX);
    found.map_err(of_log)?.into_iter().map(log_entry).collect()
}

fn log_entry(entry: LoggedEntry) -> Result<LogEntry, Trouble> {
    Ok(LogEntry {
        place: place_in_log(entry.place),
        content: Content::from_bytes(entry.bytes.into()).map_err(broken)?,
    })
}

fn place_in_log(EntryPlace { term, index }: EntryPlace) -> Place {
    Place { term, index }
}

/// Returns the log's entries up to the applied one, for peers.
fn older_entries(
    open: &OpenStore,
    known: Option<&LoggedGroup>,
    place: Place,
) -> Result<OlderEntries, Trouble> {
    let continues_at = match known {
        Some(known) => known.before.index < place.index && continues_at(open, known, place)?,
        None => false,
    };
    let terms = match continues_at {
        true => open.log.terms(GROUP.0, place.index),
        false => Vec::new(),
    };
    let mut terms = terms.into_iter().map(place_in_log);
    let before = terms.next().unwrap_or(place);
    OlderEntries::new(before, terms).ok_or_else(|| broken("the log's terms decrease"))
}

fn continues_at(open: &OpenStore, known: &LoggedGroup, place: Place) -> Result<bool, Trouble> {
    if known.before.index == place.index {
        return Ok(known.before == entry_place(place));
    }
    let found = open.log.entries(GROUP.0, place.index, 1).map_err(of_log)?;
    Ok(found
        .first()
        .is_some_and(|entry| entry.place == entry_place(place)))
}

fn broken(problem: impl std::fmt::Display) -> Trouble {
    Trouble::Broken(problem.to_string())
}
