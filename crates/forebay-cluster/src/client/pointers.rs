//! The pointers of a cluster's tables, as commands on its store use them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use forebay_engine::{
    LastRollback, Pointer, PointerMove, Pointers, StoreError, SwapReport, TableName,
    check_not_just_rolled_back,
};
use parking_lot::Mutex;

use super::{ClientError, ClusterClient, RequestEnd};
use crate::model::{Model, Phase, Rollout, RolloutOptions, RolloutRole, RolloutTable};
use crate::request::{Request, SwapTo};

/// The settings of the rollouts that a command asks for.
#[derive(Debug, Clone)]
pub struct RolloutDraft {
    pub options: RolloutOptions,
    pub replicas: Option<usize>,
    pub keep: usize,
    pub force: bool,
}

impl Default for RolloutDraft {
    fn default() -> Self {
        Self {
            options: RolloutOptions::default(),
            replicas: None,
            keep: 3,
            force: false,
        }
    }
}

/// The pointers of a cluster's tables. Each change is a rollout.
pub struct ClusterPointers {
    client: ClusterClient,
    goal: Mutex<RolloutDraft>,
    /// The rollouts that were carried out.
    rollouts: Mutex<Vec<Rollout>>,
}

impl fmt::Debug for ClusterPointers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterPointers({:?})", self.client)
    }
}

impl ClusterPointers {
    pub fn new(client: ClusterClient) -> Self {
        Self {
            client,
            goal: Mutex::default(),
            rollouts: Mutex::default(),
        }
    }

    pub fn client(&self) -> &ClusterClient {
        &self.client
    }

    /// Sets the settings of all later rollouts.
    pub fn goal(&self, goal: RolloutDraft) {
        *self.goal.lock() = goal;
    }

    /// Returns the rollouts that were carried out, the latest one last.
    pub fn rollouts(&self) -> Vec<Rollout> {
        self.rollouts.lock().clone()
    }

    /// Swaps several tables to other versions, all or none.
    pub fn swap(&self, tables: &BTreeMap<TableName, u64>) -> Result<Rollout, StoreError> {
        let goal = self.goal.lock().clone();
        let to = |version| SwapTo {
            version,
            replicas: goal.replicas,
            keep: goal.keep,
            replaces: None,
        };
        let tables = tables
            .iter()
            .map(|(table, version)| (table.clone(), to(*version)));
        let request = Request::Swap {
            tables: tables.collect(),
            options: goal.options.clone(),
            force: goal.force,
        };
        self.roll_out(&request)
    }

    /// Rolls several tables back to their previous versions, all or none. If one of them was rolled
    /// back within the last minute, this refuses.
    pub fn rollback(&self, tables: &BTreeSet<TableName>) -> Result<Rollout, StoreError> {
        let now_unix_ms = self.client.unix_ms();
        for table in tables {
            let Some(pointer) = self.read(table)? else {
                continue;
            };
            if let Some(serving) = pointer.serving {
                check_not_just_rolled_back(table.clone(), serving, &pointer, now_unix_ms)?;
            }
        }
        let request = Request::Rollback {
            tables: tables.clone(),
            options: self.goal.lock().options.clone(),
        };
        self.roll_out(&request)
    }

    /// Rolls one table back, if version `from` serves.
    pub fn rollback_from(&self, table: &TableName, from: u64) -> Result<Rollout, StoreError> {
        self.roll_out(&Request::RollbackFrom {
            table: table.clone(),
            from,
            options: self.goal.lock().options.clone(),
        })
    }

    fn replace(&self, table: &TableName, from: u64, to: u64) -> Result<Rollout, StoreError> {
        let goal = self.goal.lock().clone();
        let to = SwapTo {
            version: to,
            replicas: None,
            keep: usize::MAX,
            replaces: Some(from),
        };
        let request = Request::Swap {
            tables: BTreeMap::from([(table.clone(), to)]),
            options: goal.options,
            force: goal.force,
        };
        self.roll_out(&request)
    }

    fn roll_out(&self, request: &Request) -> Result<Rollout, StoreError> {
        let failed = |problem: String, gave_way| StoreError::NotRolledOut { problem, gave_way };
        let ended = self.client.carry_out(request);
        if let Err(error @ (ClientError::Catalog(_) | ClientError::Deserted { .. })) = ended {
            return Err(StoreError::Unheard {
                problem: error.to_string(),
            });
        }
        let rollout = match ended.map_err(refused)? {
            RequestEnd::Rollout(rollout) => *rollout,
            RequestEnd::Done
            | RequestEnd::Rebalance(_)
            | RequestEnd::Load(_)
            | RequestEnd::Survey(_)
            | RequestEnd::Reads(_)
            | RequestEnd::LiveState(_) => {
                return Err(failed("it was taken for another request".to_owned(), false));
            }
        };
        let reason = rollout.reason.clone().unwrap_or_default();
        let to: Vec<String> = rollout
            .tables
            .iter()
            .map(|(table, part)| format!("version {} of table {table}", part.to))
            .collect();
        let to = to.join(", ");
        let outcome = match rollout.phase {
            Phase::Confirmed => Ok(rollout.clone()),
            Phase::Reverted => Err(failed(
                format!("{to} was taken back everywhere: {reason}"),
                false,
            )),
            _ => {
                // Another command may have made the rollback's version the serving one.
                let is_rollback = |part: &RolloutTable| part.role == RolloutRole::Rollback;
                let what = match rollout.tables.values().any(is_rollback) {
                    true => "was not made the serving version by this command",
                    false => "serves nowhere",
                };
                Err(failed(format!("{to} {what}: {reason}"), rollout.gave_way))
            }
        };
        self.rollouts.lock().push(rollout);
        outcome
    }
}

impl Pointers for ClusterPointers {
    fn read(&self, table: &TableName) -> Result<Option<Pointer>, StoreError> {
        let unknown = |problem: String| StoreError::Catalog {
            table: table.clone(),
            problem,
        };
        let (head, model) = self
            .client
            .model()
            .map_err(|error| unknown(error.to_string()))?;
        let Some(entry) = model.table(table) else {
            return Ok(None);
        };
        let mut pointer = Pointer::unset();
        pointer.sequence = head.revision;
        pointer.serving = entry.serving;
        pointer.history.clone_from(&entry.history);
        pointer.last_rollback = last_rollback(&model, table);
        Ok(Some(pointer))
    }

    fn change(&self, table: &TableName, change: PointerMove) -> Result<SwapReport, StoreError> {
        let rollout = match change {
            PointerMove::Swap { to } => self.swap(&BTreeMap::from([(table.clone(), to)]))?,
            PointerMove::Rollback { from: None } => {
                self.rollback(&BTreeSet::from([table.clone()]))?
            }
            PointerMove::Rollback { from: Some(from) } => self.rollback_from(table, from)?,
            PointerMove::Replace { from, to } => self.replace(table, from, to)?,
            PointerMove::Drop => return self.drop_table(table),
        };
        let part = rollout.tables.get(table);
        Ok(SwapReport {
            from: part.and_then(|part| part.from),
            to: part.map_or(0, |part| part.to),
        })
    }
}

impl ClusterPointers {
    /// Drops a table. If the catalog has no such table, this succeeds, so that an interrupted drop
    /// can continue. A table whose first version is being rolled out is in the catalog, and the
    /// drop is refused.
    fn drop_table(&self, table: &TableName) -> Result<SwapReport, StoreError> {
        let Some(pointer) = self.read(table)? else {
            return Ok(SwapReport { from: None, to: 0 });
        };
        let from = pointer.serving;
        let swapped = SwapReport { from, to: 0 };
        let request = Request::Drop {
            table: table.clone(),
        };
        match self.client.carry_out(&request) {
            Ok(_) => Ok(swapped),
            Err(error) => Err(refused(error)),
        }
    }
}

/// Returns the last move of the table's pointer, if it was a rollback.
fn last_rollback(model: &Model, table: &TableName) -> Option<LastRollback> {
    let confirmed = model.work.rollouts.values().rev();
    let (rollout, part) = confirmed
        .filter(|rollout| rollout.phase == Phase::Confirmed)
        .find_map(|rollout| Some((rollout, rollout.tables.get(table)?)))?;
    let is_rollback = part.role == RolloutRole::Rollback;
    is_rollback.then_some(LastRollback {
        from: part.from?,
        unix_ms: rollout.begun_unix_ms,
    })
}

/// Converts the reason why a request was refused.
fn refused(error: ClientError) -> StoreError {
    StoreError::Refused {
        is_busy: matches!(error, ClientError::Busy(_)),
        problem: error.to_string(),
    }
}
