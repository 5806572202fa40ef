//! Checks the reports of all partitions against each other and against their push or load.

use forebay_engine::RunRef;

use super::control::WholeLoad;
use super::recipe::PlacedLoss;
use super::report::Report;
use super::ticket::TaskTicket;
use super::{DistributedError, Sources, Sum};
use crate::column_profile::TableProfile;
use crate::convert::{Loss, Lossy};
use crate::push::PushError;
use crate::sort::Duplicates;
use crate::sources::SourceOptions;

/// The expectations that reports have to meet.
pub(super) struct ExpectedReports<'a> {
    pub ticket: &'a TaskTicket,
    pub duplicates: Duplicates,
    pub losses: &'a [PlacedLoss],
    /// The number of columns with a profile; none in loads.
    pub columns: usize,
}

/// The combined result of the reports of all partitions.
pub(super) struct SettledReports {
    /// The runs at the indices of their partitions; `None` for a partition without records.
    pub runs: Vec<Option<RunRef>>,
    /// The sum of the records in the runs.
    pub kept: Sum,
    /// Rows that were left out, or composed with others.
    pub duplicates: u64,
    /// The totals that the sources sent.
    pub whole: WholeLoad,
    /// The profile of all rows; empty in a load.
    pub profile: TableProfile,
}

/// Returns places of the needed columns, and the losses allowed there.
pub(super) fn losses_of(options: &SourceOptions) -> Vec<PlacedLoss> {
    let given = options.columns.iter();
    let lossy = given.filter(|given| given.loss != Loss::None);
    lossy
        .map(|given| (given.path.clone(), given.loss))
        .collect()
}

/// Returns the losses that happened at these places.
pub(super) fn lossy(losses: Vec<PlacedLoss>, whole: &WholeLoad) -> Vec<Lossy> {
    let counted = losses.into_iter().zip(&whole.lossy);
    let lossy = counted.map(|((column, how), values)| Lossy {
        column,
        how,
        values: *values,
    });
    lossy.collect()
}

impl ExpectedReports<'_> {
    /// Accepts the reports, one for each partition, if all come from the same sources and nothing
    /// that these sent is missing.
    pub fn settle(
        &self,
        texts: &[String],
        partitions: usize,
    ) -> Result<SettledReports, DistributedError> {
        let mut reports = self.read(texts, partitions)?;
        let first = reports.first_mut();
        let profile = first.and_then(|report| report.profile.take());
        let whole = whole_of(&reports)?;
        let (mut kept, mut duplicates) = (Sum::default(), 0);
        for report in &reports {
            let sum = report.kept().and_then(|part| kept.plus(part));
            kept = sum.unwrap_or(kept);
            duplicates += report.dropped.records;
        }
        if kept.records == 0 && whole.rejected > 0 {
            return Err(PushError::NothingLeft.into());
        }
        Ok(SettledReports {
            runs: reports.into_iter().map(|report| report.run).collect(),
            kept,
            duplicates,
            whole,
            profile: profile.unwrap_or_else(|| TableProfile::new(self.columns)),
        })
    }

    /// Reads the reports, one for each partition, in the order of partitions.
    fn read(&self, texts: &[String], partitions: usize) -> Result<Vec<Report>, DistributedError> {
        let of = texts.len();
        let mut found: Vec<Option<Report>> = (0..partitions).map(|_| None).collect();
        let mut counts = vec![0; partitions];
        for (index, text) in texts.iter().enumerate() {
            let bad = |problem| DistributedError::Report {
                number: index + 1,
                of,
                problem,
            };
            let report = Report::parse(text).map_err(bad)?;
            let checked = report.check(self.ticket, partitions, self.duplicates);
            checked.map_err(bad)?;
            if report.whole.lossy.len() != self.losses.len() {
                return Err(bad("it counts losses of other columns".to_owned()));
            }
            let columns = report.profile.as_ref().map_or(0, TableProfile::columns);
            if report.partition == 0 && columns != self.columns {
                return Err(bad("it counts values of other columns".to_owned()));
            }
            let partition = report.partition as usize;
            counts[partition] += 1;
            found[partition] = Some(report);
        }
        let reports: Vec<Report> = found.into_iter().flatten().collect();
        match counts.iter().position(|count| *count != 1) {
            None => Ok(reports),
            Some(partition) => Err(DistributedError::Reports {
                partition: partition as u32,
                found: counts[partition],
                reports: of,
                partitions,
            }),
        }
    }
}

/// Returns the sources' totals, if all partitions were built from the same sources and nothing was
/// lost.
fn whole_of(reports: &[Report]) -> Result<WholeLoad, DistributedError> {
    let (mut whole, mut sources) = (WholeLoad::default(), Sources::default());
    let mut came = Some(Sum::default());
    for report in reports {
        if report.partition == 0 {
            (whole, sources) = (report.whole.clone(), report.sources);
        }
        if (&report.whole, report.sources) != (&whole, sources) {
            return Err(DistributedError::Sources {
                partition: report.partition,
                found: report.sources,
                other: 0,
                others: sources,
            });
        }
        came = came.and_then(|sum| sum.plus(report.came));
    }
    match came {
        Some(came) if came == whole.sent => Ok(whole),
        came => Err(DistributedError::Total {
            sent: whole.sent,
            came: came.unwrap_or_default(),
        }),
    }
}
