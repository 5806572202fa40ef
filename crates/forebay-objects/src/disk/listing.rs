//! The listing of a table's directory, made once while a lock keeps others from changing it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use object_store::UpdateVersion;

use crate::lease::{KnownLocks, RELEASED_BYTES};
use crate::objects::Objects;

pub const PUSH_LOCK: &str = "push.lock";
pub const POINTER_LOCK: &str = "pointer.lock";
pub const POINTER: &str = "current";

/// The objects of a table, by their names below its directory. Objects that others may still write
/// (the pointer, the locks, runs of tasks) are never reported as absent.
#[derive(Debug)]
pub struct Listing(BTreeMap<String, (u64, UpdateVersion)>);

impl Listing {
    pub fn ask(objects: &Objects, table: &str) -> io::Result<Self> {
        let listed = objects.list_all(&format!("tables/{table}"))?;
        let entries = listed
            .into_iter()
            .map(|found| (found.name, (found.len_bytes, found.seen)));
        Ok(Self(entries.collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes which of a table's locks are free.
    pub fn notify_locks(&self, table: &str, known: &KnownLocks) {
        for lock in [PUSH_LOCK, POINTER_LOCK] {
            let name = format!("tables/{table}/{lock}");
            match self.0.get(lock) {
                // The locks of a table that was dropped meanwhile are gone, too.
                None if self.is_empty() || lock == POINTER_LOCK => known.note(&name, None),
                Some((RELEASED_BYTES, seen)) => known.note(&name, Some(seen.clone())),
                _ => known.forget(&name),
            }
        }
    }

    pub fn seen(&self, name: &str) -> Option<&UpdateVersion> {
        self.0.get(name).map(|(_, seen)| seen)
    }

    pub fn len_bytes(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|(len_bytes, _)| *len_bytes)
    }

    /// Returns the names directly below a directory of the table; "": its own directory.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let prefix = match dir {
            "" => String::new(),
            dir => format!("{dir}/"),
        };
        let below = self.0.range(prefix.clone()..);
        let below = below.map_while(|(name, _)| name.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below
            .filter_map(|name| name.split('/').next())
            .filter(|name| !name.is_empty())
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Returns whether there is an object of this name, if no other process creates or removes such
    /// objects.
    pub fn has(&self, name: &str) -> Option<bool> {
        let others = [PUSH_LOCK, POINTER_LOCK, POINTER].contains(&name);
        (!others && !name.starts_with("runs/")).then(|| self.0.contains_key(name))
    }

    pub fn wrote(&mut self, name: &str, len_bytes: u64) {
        let seen = UpdateVersion {
            e_tag: None,
            version: None,
        };
        self.0.insert(name.to_owned(), (len_bytes, seen));
    }

    pub fn removed(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_right_below() {
        let mut listing = Listing(BTreeMap::new());
        for name in [
            "current",
            "runs/1.run",
            "runs/2.run",
            "uploads/a.json",
            "versions/1.manifest",
        ] {
            listing.wrote(name, 7);
        }
        assert_eq!(
            listing.names(""),
            ["current", "runs", "uploads", "versions"]
        );
        assert_eq!(listing.names("runs"), ["1.run", "2.run"]);
        assert!(listing.names("scratch").is_empty() && listing.names("run").is_empty());
        let has = |name| listing.has(name);
        assert_eq!(has("versions/1.manifest"), Some(true));
        assert_eq!(
            (has("versions/2.manifest"), has("live")),
            (Some(false), Some(false))
        );
        assert_eq!(
            (has("runs/3.run"), has("push.lock"), has("current")),
            (None, None, None)
        );
        listing.removed("runs/1.run");
        assert_eq!(
            (listing.names("runs"), listing.len_bytes("runs/2.run")),
            (vec!["2.run".to_owned()], Some(7))
        );
    }
}
