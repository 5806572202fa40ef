//! Records the time of each table's last backup in its store, to monitor the age of backups.

use std::collections::BTreeMap;
use std::io;

use forebay_io::replace_file;
use serde::{Deserialize, Serialize};

use super::{BACKUP_FORMAT, BackupDocument, unseal};
use crate::documents::seal::seal;
use crate::error::{At, StoreError};
use crate::name::TableName;
use crate::tables::store::Store;

/// The file in the store's directory.
const FILE: &str = "backups.json";

/// The last backup of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastBackup {
    /// Its start, in milliseconds since 1970-01-01 UTC.
    pub taken_unix_ms: u64,
    pub name: String,
    /// The place, as given to the command.
    pub to: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastBackups {
    forebay_last_backups: u64,
    tables: BTreeMap<TableName, LastBackup>,
}

impl Store {
    /// Returns the last backup of each table that was ever backed up.
    pub fn last_backups(&self) -> Result<BTreeMap<TableName, LastBackup>, StoreError> {
        let path = self.root().join(FILE);
        // A read of a pipe would block.
        let read = self
            .disk()
            .open(&path)
            .and_then(|_| self.disk().read(&path));
        let bytes = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            bytes => bytes.at("read", &path)?,
        };
        let unsealed = unseal::<LastBackups>(&bytes, "forebay_last_backups");
        let (noted, _) = unsealed.map_err(|problem| StoreError::Damaged { path, problem })?;
        Ok(noted.tables)
    }

    /// Records a finished backup. `tables` are the existing tables; records of others are removed.
    pub fn note_backup(
        &self,
        document: &BackupDocument,
        to: &str,
        tables: &[TableName],
    ) -> Result<(), StoreError> {
        let mut noted = self.last_backups().unwrap_or_default();
        let last = LastBackup {
            taken_unix_ms: document.taken_unix_ms,
            name: document.name.clone(),
            to: to.to_owned(),
        };
        noted.extend(
            document
                .tables
                .keys()
                .map(|table| (table.clone(), last.clone())),
        );
        noted.retain(|table, _| tables.contains(table));
        let path = self.root().join(FILE);
        let noted = LastBackups {
            forebay_last_backups: BACKUP_FORMAT,
            tables: noted,
        };
        let sealed = seal(&noted).map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        });
        replace_file(&**self.disk(), &path, &sealed?.0).at("write", &path)
    }
}
