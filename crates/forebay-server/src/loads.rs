//! Requests of other processes for the open live tables.
//!
//! They are loads to be added (`forebay load`), checkpoints, and giving a table up (`forebay
//! drop`). A separate thread handles them: it mostly waits for memtables to be written, while the
//! server looks for new tables and serves clients.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_engine::live::{CheckpointRequest, LoadOutcome};
use tracing::{error, info, warn};

use crate::live::LiveTables;

/// The requests of other processes for live tables.
#[derive(Debug, Default)]
pub struct Loads {
    /// Reported problems of tables whose loads could not be listed, so that each is reported once.
    problems: BTreeMap<TableName, String>,
}

impl Loads {
    /// Handles waiting requests, one load per table.
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

/// Logs the end of another process's request. A table that is to be given up is closed.
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
