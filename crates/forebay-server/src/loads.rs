//! Loads that wait to be added to the live tables that the server has open (`forebay load`).
//!
//! A thread of their own takes them: adding one waits for what is in memory to be written, while
//! new tables are looked for and clients are served.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_engine::live::Taken;
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
            match table.take_load() {
                Ok(None) => {
                    self.problems.remove(name);
                }
                Ok(Some(Taken::Added { runs })) => info!(table = %name, runs, "a load was added"),
                Ok(Some(Taken::Refused { why })) => warn!(table = %name, why, "a load was refused"),
                Err(problem) => {
                    let text = problem.to_string();
                    if self.problems.get(name) != Some(&text) {
                        error!(table = %name, error = text, "cannot look for loads");
                    }
                    self.problems.insert(name.clone(), text);
                }
            }
        }
    }
}
