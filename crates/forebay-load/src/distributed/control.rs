//! Defines control rows: what a source sent to each partition, and in total.
//!
//! A source sends one to each partition at its end. A partition is complete if it received
//! everything that was sent.

use forebay_run::content::ContentSum;
use serde::{Deserialize, Serialize};

use super::{DistributedError, Sources, Sum};
use crate::column_profile::TableProfile;

/// The format number of control rows.
const CONTROL_FORMAT: u64 = 2;

/// The content of a control row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Control {
    forebay_control: u64,
    /// The stamp of the push.
    pub stamp: u64,
    pub source: u32,
    /// What this source sent to this partition.
    pub sent: Sum,
    pub whole: WholeLoad,
    /// The profile of all rows of this source; to the first partition only, and not in loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TableProfile>,
}

/// The totals that sources sent to all partitions, and left out.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WholeLoad {
    pub sent: Sum,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Changed values, by the recipe's losses.
    pub lossy: Vec<u64>,
}

impl Control {
    pub fn new(stamp: u64, source: u32, sent: Sum, whole: WholeLoad) -> Self {
        Self {
            forebay_control: CONTROL_FORMAT,
            stamp,
            source,
            sent,
            whole,
            profile: None,
        }
    }

    pub fn with_profile(self, profile: Option<TableProfile>) -> Self {
        Self { profile, ..self }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        // The structure contains only numbers.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let control: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match control.forebay_control {
            CONTROL_FORMAT => Ok(control),
            other => Err(format!(
                "a control row of format {other}, where this program knows {CONTROL_FORMAT}: use one version \
                 of forebay in all tasks"
            )),
        }
    }
}

impl WholeLoad {
    /// Adds the totals of another source; `None` if the numbers are impossible.
    pub fn add(&mut self, other: &Self) -> Option<()> {
        self.sent = self.sent.plus(other.sent)?;
        self.rejected = self.rejected.checked_add(other.rejected)?;
        add_each(&mut self.lossy, &other.lossy)
    }
}

fn add_each(sums: &mut [u64], counts: &[u64]) -> Option<()> {
    if sums.len() != counts.len() {
        return None;
    }
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum.checked_add(*count)?;
    }
    Some(())
}

/// The sum of the control rows of one partition.
#[derive(Debug, Clone)]
pub(super) struct Controls {
    seen: std::collections::HashSet<u32>,
    pub sources: Sources,
    /// The records sent to this partition.
    pub sent: Sum,
    pub whole: WholeLoad,
    /// The profile of all rows, if this is the first partition of a push.
    pub profile: Option<TableProfile>,
}

impl Controls {
    pub fn new(losses: usize) -> Self {
        Self {
            seen: Default::default(),
            sources: Sources::default(),
            sent: Sum::default(),
            whole: WholeLoad {
                lossy: vec![0; losses],
                ..WholeLoad::default()
            },
            profile: None,
        }
    }

    /// Adds a control row. `bytes` is its content as received.
    pub fn add(&mut self, partition: u32, control: &Control) -> Result<(), DistributedError> {
        let bad = |problem: String| DistributedError::Control { partition, problem };
        let source = control.source;
        if !self.seen.insert(source) {
            return Err(bad(format!("source {source} ended twice")));
        }
        let sums = self.sent.plus(control.sent);
        let (Some(sent), Some(())) = (sums, self.whole.add(&control.whole)) else {
            return Err(bad(format!("source {source} reports impossible counts")));
        };
        let merged = match (&mut self.profile, &control.profile) {
            (Some(profile), Some(more)) => profile.merge(more),
            (None, Some(first)) => {
                self.profile = Some(first.clone());
                Some(())
            }
            (_, None) => Some(()),
        };
        if merged.is_none() {
            return Err(bad(format!("source {source} counted other columns")));
        }
        self.sent = sent;
        self.sources.count += 1;
        // The content is the same for all partitions if the source was the same in every run.
        let whole = serde_json::to_vec(&control.whole).unwrap_or_default();
        self.sources.digest += ContentSum::of(&source.to_le_bytes(), &whole);
        Ok(())
    }
}
