//! What is told of a rollout.

use forebay_cluster::model::{Model, Rollout};
use forebay_cluster::status::names;
use forebay_run::content::ContentSum;
use serde::Serialize;

use crate::human;

/// Which nodes proved what, and which were left out.
#[derive(Debug, Serialize)]
pub struct RolledOut {
    /// What each node read back before the commit, of every table.
    proved: Vec<ProvedBy>,
    /// Nodes that may still answer from the version before.
    left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProvedBy {
    node: String,
    table: String,
    partitions: u64,
    rows: u64,
    content: ContentSum,
}

impl RolledOut {
    pub fn of(rollout: &Rollout, model: &Model) -> Self {
        let name = |id| names(model, &[id].into()).into_iter().collect::<String>();
        let proved = rollout.proved.iter().flat_map(|(id, tables)| {
            let node = name(*id);
            tables.iter().map(move |(table, proof)| ProvedBy {
                node: node.clone(),
                table: table.to_string(),
                partitions: proof.partitions,
                rows: proof.rows,
                content: proof.content,
            })
        });
        Self {
            proved: proved.collect(),
            left_out: names(model, &rollout.left_out).into_iter().collect(),
        }
    }

    /// Whether a node may still answer from the version before.
    pub fn left_some_out(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let proved = self.proved.iter().map(|proof| {
            format!(
                "  {} proved {} of {} in {}, content {}\n",
                proof.node,
                human::counted(proof.rows, "row"),
                proof.table,
                human::counted(proof.partitions, "partition"),
                proof.content
            )
        });
        let proved: String = proved.collect();
        let left_out = self.left_out_text();
        proved + &left_out.map_or(String::new(), |left_out| format!("  {left_out}\n"))
    }

    pub fn left_out_text(&self) -> Option<String> {
        self.left_some_out().then(|| {
            format!(
                "left out: {}: what they answer may be the version before, until they hear of this",
                self.left_out.join(", ")
            )
        })
    }
}
