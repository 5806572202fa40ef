//! What a source says at its end to each partition: how much it sent there, and how much in all. A
//! part is whole when what came is what was sent.

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
    /// Of all rows of this source; to the first partition only, and not of loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TableProfile>,
}

/// What sources sent to all partitions, and what they left out.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WholeLoad {
    pub sent: Sum,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Values that were changed, by the recipe's losses.
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
        // A structure of numbers.
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
    /// Adds another source's; `None` where the numbers are none that could be.
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

/// What the control rows of one partition come to.
#[derive(Debug, Clone)]
pub(super) struct Controls {
    seen: std::collections::HashSet<u32>,
    pub sources: Sources,
    /// To this partition.
    pub sent: Sum,
    pub whole: WholeLoad,
    /// Of all rows, if this is the first partition of a push.
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

    /// Takes a control row in. `bytes` is its content, as it came.
    pub fn add(&mut self, partition: u32, control: &Control) -> Result<(), DistributedError> {
        let bad = |problem: String| DistributedError::Control { partition, problem };
        let source = control.source;
        if !self.seen.insert(source) {
            return Err(bad(format!("source {source} ended twice")));
        }
        let sums = self.sent.plus(control.sent);
        let (Some(sent), Some(())) = (sums, self.whole.add(&control.whole)) else {
            return Err(bad(format!("source {source} tells of impossible numbers")));
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
        // The same for all partitions, as far as the source was the same when it ran for them.
        let whole = serde_json::to_vec(&control.whole).unwrap_or_default();
        self.sources.digest += ContentSum::of(&source.to_le_bytes(), &whole);
        Ok(())
    }
}
