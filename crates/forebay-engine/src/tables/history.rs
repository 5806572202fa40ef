//! The history of a store: each swap, rollback and drop, with its actor and time.
//!
//! Each entry is a file of its own, `history/TIME-RANDOM.json`, so that writers never wait for each
//! other. An entry is written after the action. If that fails, the action stands, and a warning
//! says that the history lacks an entry.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::put_file;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::documents::pointers::SwapReport;
use crate::error::{At, StoreError};
use crate::name::TableName;
use crate::tables::store::Store;

/// The approximate number of entries that a store keeps.
pub const HISTORY_ENTRIES: usize = 1000;
/// In object storage, where a listing is a request, one write in this many removes old entries.
const REMOVAL_TURN: u64 = 32;
/// The greatest length of the text of a problem.
const PROBLEM_BYTES: usize = 2000;

/// An action on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryAction {
    Push,
    Swap,
    Rollback,
    /// A version with the same rows replaced the serving version.
    Compact,
    Drop,
    Undrop,
    /// The gate held a new version; the previous version still serves.
    Held,
    /// An action of a later program.
    #[serde(other)]
    Other,
}

/// One entry of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub unix_ms: u64,
    pub table: TableName,
    pub action: HistoryAction,
    /// The version that served before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The version that serves, or was to serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    pub user: String,
    pub host: String,
    /// The reason that the action failed; `None` if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The versions and the problem of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryNote {
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub problem: Option<String>,
}

impl From<SwapReport> for HistoryNote {
    fn from(SwapReport { from, to }: SwapReport) -> Self {
        Self {
            from,
            to: Some(to),
            problem: None,
        }
    }
}

impl Store {
    /// Adds an entry to the history; does nothing if no actor was given ([`Store::acting_as`]).
    pub fn note(&self, table: &TableName, action: HistoryAction, note: impl Into<HistoryNote>) {
        let Some(actor) = self.actor() else {
            return;
        };
        let HistoryNote { from, to, problem } = note.into();
        let entry = HistoryEntry {
            unix_ms: self.clock().unix_ms(),
            table: table.clone(),
            action,
            from,
            to,
            user: actor.user.clone(),
            host: actor.host.clone(),
            problem: problem.map(|text| shortened(text, PROBLEM_BYTES)),
        };
        if let Err(error) = self.write_entry(&entry) {
            warn!(%table, ?action, %error, "the history of the store lacks an entry");
            *actor.problem.lock() = Some(error.to_string());
        }
    }

    fn write_entry(&self, entry: &HistoryEntry) -> Result<(), StoreError> {
        let (disk, dir) = (&**self.disk(), self.history_dir());
        let chance = self.random().next_u64();
        disk.create_dir_all(&dir).at("create", &dir)?;
        if !disk.is_object_storage() || chance.is_multiple_of(REMOVAL_TURN) {
            self.remove_old_entries(&dir)?;
        }
        let path = dir.join(format!("{:014}-{chance:016x}.json", entry.unix_ms));
        let bytes = serde_json::to_vec(entry).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| put_file(disk, &path, &bytes));
        written.at("write", &path)
    }

    /// Makes room for one more entry; unfinished entries count, too.
    fn remove_old_entries(&self, dir: &Path) -> Result<(), StoreError> {
        let mut names = self.names_in(dir)?;
        names.retain(|name| time_of(finished(name)).is_some());
        names.sort_unstable_by(|one, other| finished(one).cmp(finished(other)));
        let old = names.len().saturating_sub(HISTORY_ENTRIES - 1);
        for name in &names[..old] {
            let path = dir.join(name);
            match self.disk().remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).at("remove", &path);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the names of the entries since that time, the oldest first.
    pub fn history_names(&self, since_unix_ms: u64) -> Result<Vec<String>, StoreError> {
        let mut names = self.names_in(&self.history_dir())?;
        let is_since = |name: &String| time_of(name).is_some_and(|time| time >= since_unix_ms);
        names.retain(is_since);
        names.sort_unstable();
        Ok(names)
    }

    fn names_in(&self, dir: &Path) -> Result<Vec<String>, StoreError> {
        match self.disk().list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.at("list", dir),
        }
    }

    /// Returns the entry of that name; `None` if it was removed meanwhile.
    pub fn history_entry(&self, name: &str) -> Result<Option<HistoryEntry>, StoreError> {
        let path = self.history_dir().join(name);
        match self.disk().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => {
                let entry = bytes.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
                entry.map(Some).at("read", &path)
            }
        }
    }

    fn history_dir(&self) -> PathBuf {
        self.root().join("history")
    }
}

/// Returns the name that a file gets when it is finished.
fn finished(name: &str) -> &str {
    let unfinished = name.strip_prefix('.');
    unfinished
        .and_then(|name| name.strip_suffix(".new"))
        .unwrap_or(name)
}

/// Returns the time of an entry from its name; `None` for any other file.
fn time_of(name: &str) -> Option<u64> {
    let (time, _) = name.strip_suffix(".json")?.split_once('-')?;
    time.parse().ok()
}

/// Returns the text, shortened to about so many bytes.
pub fn shortened(mut text: String, most_bytes: usize) -> String {
    if text.len() > most_bytes {
        let starts = text.char_indices().map(|(at, _)| at);
        let end = starts.take_while(|at| *at <= most_bytes).last();
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_io::sim::{HandClock, SeededRandom, SimDisk};

    use super::*;
    use crate::tables::store::Actor;

    fn store(disk: &SimDisk) -> (Store, Arc<HandClock>) {
        let clock = Arc::new(HandClock::at(1_000_000));
        let random = Arc::new(SeededRandom::new(7));
        let disk = Arc::new(disk.clone());
        let store = Store::open_or_create(disk, clock.clone(), random, Path::new("/s"));
        let actor = Actor {
            user: "ada".to_owned(),
            host: "build-1".to_owned(),
            ..Actor::default()
        };
        (store.expect("a store").acting_as(actor), clock)
    }

    fn entries(store: &Store) -> Vec<HistoryEntry> {
        let names = store.history_names(0).unwrap();
        let read = |name: &String| store.history_entry(name).expect("an entry");
        names.iter().filter_map(read).collect()
    }

    #[test]
    fn entries_are_read_as_they_were_written_and_old_ones_are_removed() {
        let (store, clock) = store(&SimDisk::new());
        let table = TableName::new("people").unwrap();
        assert_eq!(store.history_names(0).unwrap().len(), 0);
        // Left by a process that died.
        let died = store.history_dir().join(".00000000000001-0.json.new");
        store.disk().create_dir_all(&store.history_dir()).unwrap();
        put_file(&**store.disk(), &died, b"{").unwrap();
        for to in 1..=HISTORY_ENTRIES as u64 + 5 {
            clock.advance(std::time::Duration::from_millis(1));
            let swapped = SwapReport {
                from: to.checked_sub(1),
                to,
            };
            store.note(&table, HistoryAction::Swap, swapped);
        }
        let all = entries(&store);
        assert_eq!(all.len(), HISTORY_ENTRIES);
        assert!(!store.disk().exists(&died).unwrap());
        let last = all.last().unwrap();
        assert_eq!(
            (last.to, last.user.as_str(), last.host.as_str()),
            (Some(1005), "ada", "build-1")
        );
        assert_eq!(all[0].to, Some(6));
        assert_eq!(store.history_names(last.unix_ms).unwrap().len(), 1);
    }

    #[test]
    fn entries_of_a_later_program_are_read_and_a_long_problem_is_truncated() {
        let (store, _) = store(&SimDisk::new());
        let table = TableName::new("people").unwrap();
        let note = HistoryNote {
            problem: Some("x".repeat(9000)),
            ..HistoryNote::default()
        };
        store.note(&table, HistoryAction::Held, note);
        let name = store.history_names(0).unwrap().remove(0);
        let path = store.history_dir().join(&name);
        let text = String::from_utf8(store.disk().read(&path).unwrap()).unwrap();
        assert!(text.len() < 3000, "{}", text.len());
        let later = text.replace("held", "undropped");
        put_file(&**store.disk(), &path, later.as_bytes()).unwrap();
        assert_eq!(entries(&store)[0].action, HistoryAction::Other);
        put_file(&**store.disk(), &path, b"{").unwrap();
        let damaged = store.history_entry(&name).unwrap_err().to_string();
        assert!(damaged.contains(&name), "{damaged}");
    }
}
