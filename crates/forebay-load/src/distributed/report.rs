//! Defines the report that the writer of a partition sends to the driver: a sealed document.

use forebay_engine::{RunRef, seal, unseal};
use serde::{Deserialize, Serialize};

use super::control::WholeLoad;
use super::ticket::TaskTicket;
use super::{Sources, Sum};
use crate::column_profile::TableProfile;
use crate::sort::Duplicates;

/// The format number of reports that this version writes and reads.
const REPORT_FORMAT: u64 = 2;

/// The report of one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    forebay_report: u64,
    pub ticket: TaskTicket,
    pub partition: u32,
    /// The sources that reported to this partition, even those that had no records for it.
    pub sources: Sources,
    /// The totals that these sources sent to all partitions.
    pub whole: WholeLoad,
    /// The profile of all rows, only in the report of a push's first partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TableProfile>,
    /// The records that this partition received.
    pub came: Sum,
    /// The records left out in favour of another record of the same key.
    pub dropped: Sum,
    /// The run of the remaining records; `None` if the partition received nothing.
    pub run: Option<RunRef>,
}

impl Report {
    pub fn new(ticket: &TaskTicket, partition: u32, sources: Sources, whole: WholeLoad) -> Self {
        Self {
            forebay_report: REPORT_FORMAT,
            ticket: ticket.clone(),
            partition,
            sources,
            whole,
            profile: None,
            came: Sum::default(),
            dropped: Sum::default(),
            run: None,
        }
    }

    pub fn to_text(&self) -> Result<String, String> {
        let (bytes, _) = seal(self).map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let report = unseal::<Self>(text.as_bytes(), "forebay_report", REPORT_FORMAT);
        report
            .map(|(report, _)| report)
            .map_err(|error| error.to_string())
    }

    /// Returns the sum of the records in the run.
    pub fn kept(&self) -> Option<Sum> {
        let Some(run) = &self.run else {
            return Some(Sum::default());
        };
        let summary = &run.summary;
        Some(Sum {
            records: summary.records,
            bytes: summary.key_bytes.checked_add(summary.value_bytes)?,
            content: summary.content,
        })
    }

    /// Records which of the received records are not in the run. Of composed records it counts only
    /// the number, because their content changes.
    pub fn note_dropped(&mut self, duplicates: Duplicates) {
        let kept = self.kept();
        let dropped = kept.and_then(|kept| match composes(duplicates) {
            true => Some(Sum {
                records: self.came.records.checked_sub(kept.records)?,
                ..Sum::default()
            }),
            false => self.came.minus(kept),
        });
        self.dropped = dropped.unwrap_or_default();
    }

    /// Checks the report against the push or load and for consistency; the error text says what
    /// does not fit.
    pub fn check(
        &self,
        ticket: &TaskTicket,
        partitions: usize,
        duplicates: Duplicates,
    ) -> Result<(), String> {
        let partition = self.partition;
        if self.ticket != *ticket {
            let of = &self.ticket;
            return Err(format!("it is one of {of}, and this is {ticket}"));
        }
        if partition as usize >= partitions {
            return Err(format!(
                "it is of partition {partition}, and there are {partitions}"
            ));
        }
        let bad = |problem: String| Err(format!("partition {partition}: {problem}"));
        if let Some(run) = &self.run
            && !ticket.is_of(&run.id, partition as usize)
        {
            return bad(format!("the run {} was not written for it", run.id));
        }
        if duplicates == Duplicates::Fail && self.dropped != Sum::default() {
            return bad(format!("{} were left out, and none may be", self.dropped));
        }
        let kept = self.kept();
        let composes = composes(duplicates);
        match kept.and_then(|kept| kept.plus(self.dropped)) {
            Some(sum) if sum == self.came || composes && sum.records == self.came.records => Ok(()),
            _ => bad(format!(
                "{} came, and {} are in its run, {} were left out",
                self.came,
                kept.unwrap_or_default(),
                self.dropped
            )),
        }
    }
}

fn composes(duplicates: Duplicates) -> bool {
    matches!(
        duplicates,
        Duplicates::Compose(_) | Duplicates::ComposeInAnyOrder(_)
    )
}
