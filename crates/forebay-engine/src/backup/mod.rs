//! Backups: copies of tables at one moment, in a directory or a bucket that is not a store.
//!
//! ```text
//! BACKUP/forebay-backup.json           marks the place
//! BACKUP/backup.lock                   held while a backup is made or removed
//! BACKUP/backups/NAME.json             a backup: its time, and the tables that are in it
//! BACKUP/tables/T/backups/NAME.backup  for one table: the manifest that was copied
//! BACKUP/tables/T/runs/ID.run, ID.ext  the files that these manifests name
//! BACKUP/tables/T/push.lock            held while files of the table are copied
//! ```
//!
//! Runs never change and their ids are random, so a backup copies only those that no earlier one
//! has. `NAME.json` is written last: until then the backup does not exist. If the process dies, the
//! next backup removes the files that it left. Files are copied, never linked, and each run is
//! verified before it counts.

mod error;
mod last;
mod new;
mod place;
mod restore;

use std::collections::BTreeMap;

use forebay_run::Order;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::BackupError;
pub use last::LastBackup;
pub use new::{BackupProgress, BackupReport, NewBackup};
pub use place::{BackupPlace, Documents};
pub use restore::Backup;

use crate::documents::seal::DocumentError;
use crate::name::TableName;

/// The format number of backups that this program writes and reads.
pub const BACKUP_FORMAT: u64 = 1;

/// The content of `NAME.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupDocument {
    forebay_backup: u64,
    pub name: String,
    /// Its start, in milliseconds since 1970-01-01 UTC.
    pub taken_unix_ms: u64,
    /// The backed-up store, as given to the command.
    pub source: String,
    pub tables: BTreeMap<TableName, TableSummary>,
    /// The status of a cluster, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Value>,
}

/// The entry of a table in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSummary {
    /// The copied version of a batch table; a live table has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The records of all runs; several of one key count separately.
    pub records: u64,
    pub file_bytes: u64,
    /// The checksum of the table's document.
    sum: u64,
    /// The files that its manifest names, with their lengths.
    files: BTreeMap<String, u64>,
}

/// The content of `NAME.backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableDocument {
    forebay_table_backup: u64,
    table: TableName,
    order: Order,
    /// A version's manifest, or a live table's, as in a store.
    manifest: ManifestText,
}

/// A sealed manifest, by kind of table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ManifestText {
    Batch(String),
    Live(String),
}

fn unseal<T: serde::de::DeserializeOwned>(
    bytes: &[u8],
    field: &str,
) -> Result<(T, u64), DocumentError> {
    crate::documents::seal::unseal(bytes, field, BACKUP_FORMAT)
}
