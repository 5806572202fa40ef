//! Requests of clients to a cluster: documents `requests/ID` of the catalog.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, PartitionId, TableName};
use serde::{Deserialize, Serialize};

use crate::ids::NodeName;
use crate::message::Introduction;
use crate::model::{LiveEntry, LoadDraft, MovePlan, RequestId, RolloutOptions};
use crate::time::Timing;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Makes other versions serve, all of them or none.
    Swap {
        tables: BTreeMap<TableName, SwapTo>,
        options: RolloutOptions,
        /// Allows versions that were rolled back from.
        force: bool,
    },
    /// Makes the previous versions serve again, of all these tables or of none.
    Rollback {
        tables: BTreeSet<TableName>,
        options: RolloutOptions,
    },
    /// Makes the previous version serve again if version `from` serves.
    RollbackFrom {
        table: TableName,
        from: u64,
        options: RolloutOptions,
    },
    /// Admits a node that shows a certificate. Nodes admit only other nodes that the catalog names.
    Join { who: Box<Introduction> },
    /// Moves parts of tables to other nodes.
    Rebalance { plan: Box<MovePlan> },
    /// Upgrades the catalog to this format.
    Upgrade { format: u64 },
    /// Cancels a rollout unless it was committed, or a load unless it is being added. A cancelled
    /// plan ends, and keeps its completed moves.
    Cancel { rollout: RequestId },
    /// Drops a table.
    Drop { table: TableName },
    /// Creates a live table. `lowers` has the lower bounds of its partitions; the first is the
    /// beginning of the order. `replicas`: three if none.
    MakeLive {
        table: TableName,
        live: Box<LiveEntry>,
        lowers: Vec<Bound>,
        replicas: Option<usize>,
    },
    /// Adds a load to a live table. The store has the complete load.
    Load {
        table: TableName,
        load: Box<LoadDraft>,
    },
    /// Recovers partitions of a live table that have lost their majority for good. One remaining
    /// replica of each continues alone. Data that only the other replicas had is lost.
    ForceRecover {
        table: TableName,
        partitions: Vec<PartitionId>,
    },
    /// Asks for the state of live tables, as the coordinator knows it. Changes nothing.
    LiveState {},
    /// Asks for the sizes of these live tables. Changes nothing.
    Survey { tables: BTreeSet<TableName> },
    /// Asks for the reads of batch tables. Changes nothing.
    Reads {},
    /// Splits a partition of a live table at this bound.
    Split { table: TableName, at: Bound },
    /// Marks a node as under maintenance: for this time it does not count as lost.
    Pause { node: NodeName, for_ms: u64 },
    /// Removes a node that is down and holds no data from the cluster.
    Remove { node: NodeName },
    /// Sets the node timeout from which all times of the protocols result.
    SetTiming { timing: Timing },
}

/// The changes that a swap makes to one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapTo {
    pub version: u64,
    /// The number of replicas from now on; none: unchanged, three for a new table.
    pub replicas: Option<usize>,
    /// The number of versions to keep, including the serving one.
    pub keep: usize,
    /// The version that must still be serving. The new version replaces it, and contains its rows.
    pub replaces: Option<u64>,
}

/// The default number of replicas of a table.
pub const REPLICAS: usize = 3;
