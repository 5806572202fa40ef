//! What the writer of a partition reports to the driver: a sealed document.

use forebay_engine::{RunRef, seal, unseal};
use serde::{Deserialize, Serialize};

use super::control::WholeLoad;
use super::ticket::TaskTicket;
use super::{Sources, Sum};
use crate::column_profile::TableProfile;
use crate::sort::Duplicates;

/// The format number of reports that this program writes and reads.
const REPORT_FORMAT: u64 = 2;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    forebay_report: u64,
    pub ticket: TaskTicket,
    pub partition: u32,
    /// The sources that sent something, if only that they had nothing.
    pub sources: Sources,
    /// What these sources sent to all partitions.
    pub whole: WholeLoad,
    /// Of all rows; in the report of a push's first partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TableProfile>,
    /// What came to this partition.
    pub came: Sum,
    /// What of it was left out because of another record of the same key.
    pub dropped: Sum,
    /// The rest; none where nothing came.
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

    /// What the run holds.
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

    /// Notes what of all that came is not in the run: of composed records only how many, since
    /// their content is another one then.
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

    /// Whether it fits the push or load and itself; the text says what does not.
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
