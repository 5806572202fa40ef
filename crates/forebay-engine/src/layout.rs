//! Where a store keeps what.
//!
//! ```text
//! STORE/forebay.json                  {"forebay_store": 1}
//! STORE/history/TIME-RANDOM.json      who moved which table's pointer, when (`crate::history`)
//! STORE/tables/T/current              the pointer: which version serves
//! STORE/tables/T/current.reserve      space for the next pointer on a full disk
//! STORE/tables/T/versions/V.manifest  a version; it exists when its manifest does
//! STORE/tables/T/versions/V.verified  what was verified of a version that came from elsewhere
//! STORE/tables/T/runs/ID.run, ID.ext  the runs that manifests name; any other file is debris
//! STORE/tables/T/live                 a live table's manifest; the table is live when it is there
//! STORE/tables/T/live.dropped         what lies here is the rest of a drop, or of a table not made
//! STORE/tables/T/live.lock            held while a live table is open
//! STORE/tables/T/log/N.log            its log
//! STORE/tables/T/asks/ID/             what another process asks of who has a live table open
//! STORE/tables/T/drop.lock            held by who drops a live table that another process has open
//! STORE/tables/T/asks.lock            held by who has it open and does what is asked
//! STORE/tables/T/log.durable          how far that is known to be durable
//! STORE/tables/T/replicas/N.log       the log of the replicas that a node has of a live table
//! STORE/tables/T/replicas.durable     its note
//! STORE/tables/T/replicas.state       how it was left
//! STORE/tables/T/replicas.spare       room for shortening it on a full disk
//! STORE/tables/T/replicas.json        which replicas are here (crates/forebay-cluster)
//! STORE/tables/T/load-ID.*            how far a load of a live table is
//! STORE/tables/T/load-ID.staged       the runs of a load of a live table of the store's cluster
//! STORE/tables/T/runs/load-ID.*       its runs, until they are added
//! STORE/tables/T/uploads/             notes of runs on their way, in object storage
//! STORE/tables/T/scratch/             a push's or load's spill files; debris once that is gone
//! STORE/tables/T/push.lock            held while a push, a load or a drop is under way
//! STORE/tables/T/pointer.lock         held for the moment of a swap, rollback, commit or removal
//! STORE/dropped/T@FROM@UNTIL/         the directory of a dropped table that is kept until then
//! ```

use std::path::{Path, PathBuf};

use crate::name::{RunId, TableName};

/// The files of one table.
#[derive(Debug, Clone)]
pub(crate) struct TableFiles {
    pub dir: PathBuf,
}

/// Says of what kind and format a store is.
pub const STORE_FILE: &str = "forebay.json";

pub(crate) fn store_file(root: &Path) -> PathBuf {
    root.join(STORE_FILE)
}

/// Dropped tables that are kept.
pub(crate) fn dropped_dir(root: &Path) -> PathBuf {
    root.join("dropped")
}

pub(crate) fn tables_dir(root: &Path) -> PathBuf {
    root.join("tables")
}

impl TableFiles {
    pub fn new(root: &Path, table: &TableName) -> Self {
        Self {
            dir: tables_dir(root).join(table.as_str()),
        }
    }

    pub fn pointer(&self) -> PathBuf {
        self.dir.join("current")
    }

    pub fn versions(&self) -> PathBuf {
        self.dir.join("versions")
    }

    pub fn manifest(&self, version: u64) -> PathBuf {
        self.versions().join(format!("{version}.manifest"))
    }

    pub fn proof(&self, version: u64) -> PathBuf {
        self.versions().join(format!("{version}.verified"))
    }

    pub fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    pub fn run(&self, id: &RunId) -> PathBuf {
        self.runs().join(run_file(id))
    }

    pub fn extent(&self, id: &RunId) -> PathBuf {
        self.runs().join(extent_file(id))
    }

    pub fn live_manifest(&self) -> PathBuf {
        self.dir.join("live")
    }

    /// See the module `live::drop`.
    pub fn dropped_mark(&self) -> PathBuf {
        self.dir.join("live.dropped")
    }

    pub fn live_lock(&self) -> PathBuf {
        self.dir.join("live.lock")
    }

    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub fn asks(&self) -> PathBuf {
        self.dir.join("asks")
    }

    pub fn drop_lock(&self) -> PathBuf {
        self.dir.join("drop.lock")
    }

    pub fn asks_lock(&self) -> PathBuf {
        self.dir.join("asks.lock")
    }

    pub fn log_note(&self) -> PathBuf {
        self.dir.join("log.durable")
    }

    pub fn uploads(&self) -> PathBuf {
        self.dir.join("uploads")
    }

    pub fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    pub fn push_lock(&self) -> PathBuf {
        self.dir.join("push.lock")
    }

    pub fn pointer_lock(&self) -> PathBuf {
        self.dir.join("pointer.lock")
    }
}

pub(crate) fn run_file(id: &RunId) -> String {
    format!("{id}.run")
}

pub(crate) fn extent_file(id: &RunId) -> String {
    format!("{id}.ext")
}

/// The run that a file in the directory of runs is of.
pub(crate) fn run_of(path: &Path) -> Option<RunId> {
    let name = path.file_name()?.to_str()?;
    let id = name
        .strip_suffix(".run")
        .or_else(|| name.strip_suffix(".ext"))?;
    RunId::new(id).ok()
}

/// The version that a manifest's file name stands for; `None` for any other file. Only the one way
/// in which we write a number counts, so two files never stand for one version.
pub(crate) fn version_of(file_name: &str) -> Option<u64> {
    number_before(file_name, ".manifest")
}

/// The version that a note of its verification is of.
pub(crate) fn proven_version(file_name: &str) -> Option<u64> {
    number_before(file_name, ".verified")
}

fn number_before(file_name: &str, ending: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(ending)?;
    let version: u64 = digits.parse().ok()?;
    (version.to_string() == digits).then_some(version)
}

/// Whether this is a half-written replacement that `replace_file` left when it died.
pub(crate) fn is_unfinished(file_name: &str) -> bool {
    file_name.starts_with('.') && file_name.ends_with(".new")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_written_one_way() {
        assert_eq!(version_of("20261121.manifest"), Some(20_261_121));
        assert_eq!(version_of("18446744073709551615.manifest"), Some(u64::MAX));
        for other in [
            "007.manifest",
            "+7.manifest",
            "7",
            "x.manifest",
            ".7.manifest.new",
            "",
        ] {
            assert_eq!(version_of(other), None, "{other}");
        }
    }
}
