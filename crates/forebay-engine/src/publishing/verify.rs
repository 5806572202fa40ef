//! Verifies a version by reading all of it.

use std::sync::Arc;

use forebay_run::Order;
use forebay_run::RunError;
use forebay_run::content::ContentSum;
use forebay_run::record::encode;
use forebay_run::run::Run;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use serde::{Deserialize, Serialize};

use crate::documents::manifest::{Manifest, Partition, Totals};
use crate::error::{ReadError, StoreError};
use crate::keys::key_text::show_key;
use crate::keys::partition::{OpenPartitions, PartitionId};
use crate::keys::route::Router;
use crate::name::RunId;
use crate::publishing::compact::{NOTHING_EXPIRED, merged};
use crate::tables::table::Table;
use crate::tables::version::open_run;

/// The result of a verification.
#[derive(Debug)]
pub struct VerifyReport {
    pub version: u64,
    /// Runs that were read, sound or not.
    pub runs: usize,
    /// The rows that readers find in sound partitions, expired ones included. Several runs are
    /// composed before they are counted, and the content is that of the composed records.
    pub totals: Totals,
    /// The counts of each sound partition.
    pub partitions: Vec<PartitionProof>,
    /// One error for each damaged run. The version is sound if there is none.
    pub problems: Vec<ReadError>,
    /// The damaged runs.
    pub damaged: Vec<RunId>,
}

/// The contents of a partition that was read completely from this store's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionProof {
    pub id: PartitionId,
    /// The rows that readers find, expired ones included: several runs are composed.
    pub rows: u64,
    /// The content of those rows.
    pub content: ContentSum,
    /// The records of all its runs, and their content, each run by itself, as in a manifest.
    pub records: u64,
    pub records_content: ContentSum,
    /// The time of the read, in milliseconds since 1970-01-01 UTC.
    pub read_unix_ms: u64,
}

impl Table {
    /// Reads every run of a version that this store is to have from its device and checks it. Each
    /// run must be the file that the manifest describes. The checks cover every checksum, that
    /// records rise and are found by look-ups, that keys belong to their partition, and counts and
    /// content. A damaged run does not stop the verification. `advance` receives the number of
    /// pages read, out of [`pages`](crate::Manifest::pages).
    pub fn verify(
        &self,
        version: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport, StoreError> {
        let manifest = self.manifest(version)?;
        let held = self.store().held(&manifest);
        let wanted = |partition: &Partition| held.holds(partition.id);
        Ok(self.verify_some(&manifest, &wanted, true, advance))
    }

    /// Does [`Table::verify`] for a version that need not be committed, and for its `wanted`
    /// partitions. Without `uncached`, pages in memory are not read from the device again, and stay
    /// in memory.
    pub(crate) fn verify_some(
        &self,
        manifest: &Manifest,
        wanted: &dyn Fn(&Partition) -> bool,
        uncached: bool,
        advance: &mut dyn FnMut(u64),
    ) -> VerifyReport {
        let router = manifest.router(&OpenPartitions::All);
        let mut report = VerifyReport {
            version: manifest.version,
            runs: 0,
            totals: Totals::default(),
            partitions: Vec::new(),
            problems: Vec::new(),
            damaged: Vec::new(),
        };
        let partitions = manifest.partitions.iter().enumerate();
        for (index, partition) in partitions.filter(|(_, partition)| wanted(partition)) {
            let mut sound = Vec::new();
            for reference in &partition.runs {
                report.runs += 1;
                let run = open_run(
                    self.disk(),
                    &self.files,
                    manifest,
                    reference,
                    &router,
                    uncached,
                );
                let checked = run.map(Arc::new).and_then(|run| {
                    check_run(manifest, &run, &router, index, advance).map(|()| run)
                });
                match checked {
                    Ok(run) => sound.push(run),
                    Err(problem) => {
                        report.problems.push(problem);
                        report.damaged.push(reference.id.clone());
                    }
                }
            }
            let found = match &sound[..] {
                runs if runs.len() < partition.runs.len() => continue,
                [run] => Ok(Totals::of_run(run.summary())),
                several => check_together(manifest, index, several),
            };
            let records = sound.iter().map(|run| Totals::of_run(run.summary()));
            let records: Totals = records.collect::<Vec<_>>().iter().collect();
            match found {
                Ok(totals) => {
                    report.totals.add(&totals);
                    report.partitions.push(PartitionProof {
                        id: partition.id,
                        rows: totals.rows,
                        content: totals.content,
                        records: records.rows,
                        records_content: records.content,
                        read_unix_ms: self.store().clock().unix_ms(),
                    });
                }
                Err(problem) => report.problems.push(problem),
            }
        }
        report
    }
}

/// Checks that the records of several sound runs compose, and counts the resulting rows.
fn check_together(
    manifest: &Manifest,
    partition: usize,
    runs: &[Arc<Run>],
) -> Result<Totals, ReadError> {
    let (least, most) = manifest.partitions[partition].rows_between();
    match sum_of(manifest, runs) {
        Ok(found) if (least..=most).contains(&found.rows) => Ok(found),
        Ok(found) => Err(ReadError::Store(StoreError::Incomplete {
            table: manifest.table.clone(),
            version: manifest.version,
            problem: format!(
                "the runs of partition {partition} make {} rows, and the manifest says {least} to \
                 {most}",
                found.rows
            ),
        })),
        Err(source) => Err(ReadError::Run {
            table: manifest.table.clone(),
            version: manifest.version,
            source,
        }),
    }
}

/// Returns the totals of a partition's runs after a merge.
fn sum_of(manifest: &Manifest, runs: &[Arc<Run>]) -> Result<Totals, RunError> {
    let mut merged = merged(manifest, runs, NOTHING_EXPIRED);
    let mut totals = Totals::default();
    while merged.advance()? {
        let (_, payload) = encode(merged.operation());
        totals.add(&Totals {
            rows: 1,
            bytes: (merged.key().len() + payload.len()) as u64,
            content: ContentSum::of(merged.key(), &payload),
        });
    }
    Ok(totals)
}

fn check_run(
    manifest: &Manifest,
    run: &Arc<Run>,
    router: &Router,
    partition: usize,
    advance: &mut dyn FnMut(u64),
) -> Result<(), ReadError> {
    let explain = |source| ReadError::Run {
        table: manifest.table.clone(),
        version: manifest.version,
        source,
    };
    run.verify(advance).map_err(explain)?;
    // Records rise, so if the first and the last key belong to the partition, all keys do.
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = run.scan(ScanRange::all(), direction);
        if scan.advance().map_err(explain)?
            && router.partition(router.hash(scan.key()), scan.key()) != Some(partition)
        {
            let (table, version) = (manifest.table.clone(), manifest.version);
            let (key, path) = (show_key(scan.key()), run.path().display());
            let place = if manifest.order == Order::Hashed {
                "slot"
            } else {
                "range"
            };
            let problem = format!(
                "{path}: key {key} does not belong to partition {partition}, by its {place}"
            );
            return Err(StoreError::Incomplete {
                table,
                version,
                problem,
            }
            .into());
        }
    }
    Ok(())
}
