//! The paths of a store's files.
//!
//! ```text
//! STORE/forebay.json                  {"forebay_store": 1}
//! STORE/history/TIME-RANDOM.json      pointer moves, with actor and time (`crate::tables::history`)
//! STORE/tables/T/current              the pointer: the serving version
//! STORE/tables/T/current.reserve      space for the next pointer on a full disk
//! STORE/tables/T/versions/V.manifest  a version; it exists when its manifest does
//! STORE/tables/T/versions/V.verified  the verified partitions of a version that was installed
//! STORE/tables/T/runs/ID.run, ID.ext  the runs that manifests name; any other file is debris
//! STORE/tables/T/live                 a live table's manifest; while it exists, the table is live
//! STORE/tables/T/live.dropped         marks the rest of a drop, or of an incomplete creation
//! STORE/tables/T/live.lock            held while a live table is open
//! STORE/tables/T/log/N.log            its log
//! STORE/tables/T/asks/ID/             requests to the process that has a live table open
//! STORE/tables/T/drop.lock            held during a drop of a live table that is open elsewhere
//! STORE/tables/T/asks.lock            held by the process that has it open and answers requests
//! STORE/tables/T/log.durable          how far the log is known to be durable
//! STORE/tables/T/replicas/N.log       the log of the replicas that a node has of a live table
//! STORE/tables/T/replicas.durable     how far that log is known to be durable
//! STORE/tables/T/replicas.state       how that log was last used
//! STORE/tables/T/replicas.spare       space to shorten it on a full disk
//! STORE/tables/T/replicas.json        the list of this node's replicas (crates/forebay-cluster)
//! STORE/tables/T/load-ID.*            the progress of a load of a live table
//! STORE/tables/T/load-ID.staged       the runs of a load of a live table of the store's cluster
//! STORE/tables/T/runs/load-ID.*       its runs, until they are added
//! STORE/tables/T/uploads/             notes of runs that are being uploaded, in object storage
//! STORE/tables/T/scratch/             spill files of a push or load; debris afterwards
//! STORE/tables/T/push.lock            held during a push, a load or a drop
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

/// The file with the store's kind and format.
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

    /// The mark of a drop (module `live::drop`).
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

/// Returns the version of a manifest's file name; `None` for any other file. Only the form in which
/// we write a number is valid, so two files never name one version.
pub(crate) fn version_of(file_name: &str) -> Option<u64> {
    number_before(file_name, ".manifest")
}

/// Returns the version of a verification note's file name.
pub(crate) fn proven_version(file_name: &str) -> Option<u64> {
    number_before(file_name, ".verified")
}

fn number_before(file_name: &str, ending: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(ending)?;
    let version: u64 = digits.parse().ok()?;
    (version.to_string() == digits).then_some(version)
}

/// Returns whether this is a half-written replacement of a `replace_file` that was interrupted.
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
