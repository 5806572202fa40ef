//! What clients ask of a cluster: documents `requests/ID` of the catalog.

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
    /// Other versions are to serve, all of them or none.
    Swap {
        tables: BTreeMap<TableName, SwapTo>,
        options: RolloutOptions,
        /// Also to versions that were rolled back from.
        force: bool,
    },
    /// What served before is to serve again, of all these tables or of none.
    Rollback {
        tables: BTreeSet<TableName>,
        options: RolloutOptions,
    },
    /// What served before is to serve again, if version `from` serves.
    RollbackFrom {
        table: TableName,
        from: u64,
        options: RolloutOptions,
    },
    /// A node that shows a certificate wants to be let in: other nodes let in only those that the
    /// catalog names.
    Join { who: Box<Introduction> },
    /// Parts of tables are to be held by other nodes.
    Rebalance { plan: Box<MovePlan> },
    /// The catalog is to be of this format from now on.
    Upgrade { format: u64 },
    /// A rollout is given up, unless it was committed, and a load, unless it is being added; a plan
    /// ends with what is done.
    Cancel { rollout: RequestId },
    /// Tables cease to be.
    Drop { table: TableName },
    /// A live table is to be made. `lowers`: where its partitions begin, the first where the order
    /// does. None: three replicas.
    MakeLive {
        table: TableName,
        live: Box<LiveEntry>,
        lowers: Vec<Bound>,
        replicas: Option<usize>,
    },
    /// A load that the store has whole is to be added to a live table.
    Load {
        table: TableName,
        load: Box<LoadDraft>,
    },
    /// These partitions of a live table have lost their majority for good: a replica that is left
    /// of each goes on alone, and what only the others had is lost.
    ForceRecover {
        table: TableName,
        partitions: Vec<PartitionId>,
    },
    /// How do live tables stand, as the coordinator knows? Nothing is changed.
    LiveState {},
    /// How much do these live tables hold? Nothing is changed.
    Survey { tables: BTreeSet<TableName> },
    /// How much are batch tables read? Nothing is changed.
    Reads {},
    /// A partition of a live table is to be split at this place.
    Split { table: TableName, at: Bound },
    /// A node is worked on: for so long it is not taken for lost.
    Pause { node: NodeName, for_ms: u64 },
    /// A node that is down, and holds nothing, is forgotten.
    Remove { node: NodeName },
    /// The protocols wait by this node timeout from now on.
    SetTiming { timing: Timing },
}

/// What a swap makes of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapTo {
    pub version: u64,
    /// From now on; none: as it was, three for a new table.
    pub replicas: Option<usize>,
    /// How many versions are kept, the serving one among them.
    pub keep: usize,
    /// The version that has to serve still: this one takes its place, and has its rows.
    pub replaces: Option<u64>,
}

/// How many replicas a table has unless somebody says otherwise.
pub const REPLICAS: usize = 3;
