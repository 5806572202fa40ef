//! The options for rolling a push out over the nodes of a cluster.

use std::time::Duration;

use clap::Args;
use forebay_cluster::client::RolloutDraft;
use forebay_cluster::model::{OnFailure, RolloutOptions};
use forebay_cluster::{MOST_REPLICAS, MOST_WAIT};

use crate::choices::ON_FAILURE;
use crate::printing::human;

#[derive(Debug, Args)]
pub struct RolloutArgs {
    /// The number of replicas of each partition of a new table, 1 to 5 [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_replicas, help_heading = "Cluster")]
    replicas: Option<usize>,

    /// How long a node may make no progress before it is excluded, or the push ends: 1s to 30d
    /// [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_deadline, help_heading = "Cluster")]
    deadline: Option<Duration>,

    /// How many nodes must have each partition ready before a node without progress is excluded: 1
    /// to all replicas [default: all replicas but one]
    #[arg(long, value_name = "N", value_parser = parse_min_replicas, help_heading = "Cluster")]
    min_replicas: Option<usize>,

    /// What to do if a node that was ready does not serve the version after the swap [default:
    /// revert]
    #[arg(long, value_parser = ON_FAILURE.parser(), help_heading = "Cluster")]
    on_failure: Option<OnFailure>,
}

/// Parses a number of replicas that a table can have.
pub fn parse_replicas(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(replicas) if (1..=MOST_REPLICAS).contains(&replicas) => Ok(replicas),
        _ => Err(format!("a table has 1 to {MOST_REPLICAS} replicas")),
    }
}

/// Parses how many nodes must have each partition ready.
fn parse_min_replicas(text: &str) -> Result<usize, String> {
    parse_replicas(text).map_err(|error| format!("{error}, and --min-replicas is at most as many"))
}

pub fn parse_deadline(text: &str) -> Result<Duration, String> {
    human::parse_within(text, Duration::from_secs(1), MOST_WAIT)
}

impl RolloutArgs {
    /// Returns whether an option was given that only a cluster supports.
    pub fn is_given(&self) -> bool {
        self.replicas.is_some()
            || self.deadline.is_some()
            || self.min_replicas.is_some()
            || self.on_failure.is_some()
    }

    pub fn draft(&self, keep: usize) -> RolloutDraft {
        let usual = RolloutOptions::default();
        let deadline = self.deadline.map(|time| time.as_millis() as u64);
        RolloutDraft {
            options: RolloutOptions {
                deadline_ms: deadline.unwrap_or(usual.deadline_ms),
                min_replicas: self.min_replicas,
                on_failure: self.on_failure.unwrap_or(usual.on_failure),
            },
            replicas: self.replicas,
            keep: keep.max(2),
            force: false,
        }
    }
}
