//! What other processes ask of the live tables that the server has open: loads to be added
//! (`forebay load`), checkpoints, and to give a table up (`forebay drop`).
//!
//! A thread of their own does it: most of it waits for what is in memory to be written, while new
//! tables are looked for and clients are served.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_engine::live::{CheckpointRequest, LoadOutcome};
use tracing::{error, info, warn};

use crate::live::LiveTables;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Loads {
    /// What was told of tables whose loads could not be looked for, so that it is told once.
    problems: BTreeMap<TableName, String>,
}

impl Loads {
    /// Takes what waits, one load a table.
    pub fn take(&mut self, live: &LiveTables) {
        let tables = live.load().clone();
        for (name, table) in tables.iter() {
            match table.take_all() {
                Ok((asked, load)) => {
                    self.problems.remove(name);
                    asked.iter().for_each(|asked| notify(live, name, asked));
                    match load {
                        None => {}
                        Some(LoadOutcome::Added { runs }) => {
                            info!(table = %name, runs, "a load was added")
                        }
                        Some(LoadOutcome::Refused { why }) => {
                            warn!(table = %name, why, "a load was refused");
                        }
                    }
                }
                Err(problem) => {
                    let text = problem.to_string();
                    if self.problems.get(name) != Some(&text) {
                        error!(table = %name, error = text, "cannot look for what others ask");
                    }
                    self.problems.insert(name.clone(), text);
                }
            }
        }
    }
}

/// Tells what was done for another process. A table that is to be given up is closed.
fn notify(live: &LiveTables, name: &TableName, asked: &CheckpointRequest) {
    match asked {
        CheckpointRequest::Checkpoint => info!(table = %name, "a checkpoint was made"),
        CheckpointRequest::Refused { why } => {
            warn!(table = %name, why, "a checkpoint was not made")
        }
        CheckpointRequest::GiveUp => {
            info!(table = %name, "given up, as another process is to have it");
            live.give_up(name);
        }
    }
}
