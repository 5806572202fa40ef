//! The printed result of a rollout.

use forebay_cluster::model::{Model, Rollout};
use forebay_cluster::status::names;
use forebay_run::content::ContentSum;
use serde::Serialize;

use crate::printing::human;

/// The nodes that verified the version, and the excluded nodes.
#[derive(Debug, Serialize)]
pub struct RolloutResult {
    /// What each node read back before the commit, for every table.
    verified: Vec<VerifiedBy>,
    /// Nodes that may still answer from the previous version.
    excluded: Vec<String>,
}

#[derive(Debug, Serialize)]
struct VerifiedBy {
    node: String,
    table: String,
    partitions: u64,
    rows: u64,
    content: ContentSum,
}

impl RolloutResult {
    pub fn of(rollout: &Rollout, model: &Model) -> Self {
        let name = |id| names(model, &[id].into()).into_iter().collect::<String>();
        let verified = rollout.verified.iter().flat_map(|(id, tables)| {
            let node = name(*id);
            tables.iter().map(move |(table, proof)| VerifiedBy {
                node: node.clone(),
                table: table.to_string(),
                partitions: proof.partitions,
                rows: proof.rows,
                content: proof.content,
            })
        });
        Self {
            verified: verified.collect(),
            excluded: names(model, &rollout.excluded).into_iter().collect(),
        }
    }

    /// Returns whether a node may still answer from the previous version.
    pub fn left_some_out(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// Returns a few lines for people.
    pub fn text(&self) -> String {
        let verified = self.verified.iter().map(|proof| {
            format!(
                "  {} proved {} of {} in {}, content {}\n",
                proof.node,
                human::counted(proof.rows, "row"),
                proof.table,
                human::counted(proof.partitions, "partition"),
                proof.content
            )
        });
        let verified: String = verified.collect();
        let excluded = self.left_out_text();
        verified + &excluded.map_or(String::new(), |excluded| format!("  {excluded}\n"))
    }

    pub fn left_out_text(&self) -> Option<String> {
        self.left_some_out().then(|| {
            format!(
                "left out: {}: what they answer may be the version before, until they hear of this",
                self.excluded.join(", ")
            )
        })
    }
}
