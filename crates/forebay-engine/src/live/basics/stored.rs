//! Reads a live table's manifest, whether a process has the table open or not, in any known format.
//!
//! Every process can read a manifest of an older format. A process that opens the table first
//! rewrites it in the current format. This replaces the one file that differs, so that a crash
//! leaves a table of the old format, or of the current one.

use std::io;

use forebay_io::{may_pass, replace_file};
use forebay_run::format::RunSummary;
use tracing::{info, warn};

use crate::documents::layout::TableFiles;
use crate::documents::seal::DocumentError;
use crate::error::{At, StoreError};
use crate::live::basics::content::PartitionContent;
use crate::live::basics::manifest::{LIVE_MANIFEST_FORMAT, LiveManifest};
use crate::live::basics::options::LiveOptions;
use crate::name::TableName;
use crate::tables::store::Store;

/// The content of a live table's manifest, as [`Store::live_info`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveInfo {
    pub options: LiveOptions,
    /// The partitions that the table holds, in the table's order.
    pub partitions: Vec<PartitionContent>,
    pub created_unix_ms: u64,
    /// Records in the files of runs; duplicate keys are counted separately. Records that are only
    /// in the log are not counted.
    pub run_records: u64,
    /// The number of runs of which a partition sees a part: see
    /// [`LiveStats`](crate::live::LiveStats).
    pub split_runs: usize,
    /// The length of the runs' files.
    pub file_bytes: u64,
}

impl Store {
    /// Reads the manifest of a live table, whether a process has it open or not.
    pub fn live_info(&self, name: &TableName) -> Result<LiveInfo, StoreError> {
        let files = TableFiles::new(self.root(), name);
        let manifest = self.read_live_manifest(name, &files)?;
        let manifest = manifest.ok_or_else(|| StoreError::NoTable {
            table: name.clone(),
        })?;
        let sum = |of: fn(&RunSummary) -> u64| manifest.files().map(|run| of(&run.summary)).sum();
        let partitions = manifest.partitions.iter();
        Ok(LiveInfo {
            created_unix_ms: manifest.created_unix_ms,
            split_runs: manifest.split_runs(),
            run_records: sum(|summary| summary.records),
            file_bytes: sum(|summary| summary.file_bytes + summary.ext_bytes),
            partitions: partitions.map(PartitionContent::from).collect(),
            options: manifest.options,
        })
    }

    /// Reads the manifest; `None` if there is none.
    pub(crate) fn read_live_manifest(
        &self,
        name: &TableName,
        files: &TableFiles,
    ) -> Result<Option<LiveManifest>, StoreError> {
        let read = self.read_with_format(name, files)?;
        Ok(read.map(|(manifest, _)| manifest))
    }

    /// Like the above, for a process that has locked the table: the manifest on the disk has the
    /// current format afterwards. Without room for that, the table is opened all the same, and its
    /// next change writes the current format.
    pub(crate) fn live_manifest_converted(
        &self,
        name: &TableName,
        files: &TableFiles,
    ) -> Result<Option<LiveManifest>, StoreError> {
        let Some((manifest, format)) = self.read_with_format(name, files)? else {
            return Ok(None);
        };
        if format == LIVE_MANIFEST_FORMAT {
            return Ok(Some(manifest));
        }
        let path = files.live_manifest();
        let bytes = manifest.to_bytes().map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        })?;
        match replace_file(&**self.disk(), &path, &bytes) {
            Err(error) if may_pass(&error) => {
                warn!(table = %name, %error, format, "a table stays in its old format for now");
            }
            replaced => {
                replaced.at("write", &path)?;
                let now = LIVE_MANIFEST_FORMAT;
                info!(table = %name, was = format, now, "a table was converted to another format");
            }
        }
        Ok(Some(manifest))
    }

    /// Reads the manifest, and returns its format.
    fn read_with_format(
        &self,
        name: &TableName,
        files: &TableFiles,
    ) -> Result<Option<(LiveManifest, u64)>, StoreError> {
        let path = files.live_manifest();
        let bytes = match self.disk().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.at("read", &path)?,
        };
        let parsed = LiveManifest::parse(&bytes).and_then(|(manifest, format)| {
            if manifest.table == *name {
                return Ok((manifest, format));
            }
            let problem = format!("it is that of table {}", manifest.table);
            Err(DocumentError::Inconsistent(problem))
        });
        let parsed = parsed.map_err(|problem| StoreError::Damaged { path, problem })?;
        Ok(Some(parsed))
    }
}
