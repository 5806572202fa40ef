//! The events that a coordinator handles, and the actions that it requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;

use crate::catalog::SeenTag;
use crate::measures::reads::BatchReads;
use crate::message::{Beat, BeatReply};
use crate::model::{Documents, Head, Model, MovePlan, PlanGoal, RequestId, Survey};
use crate::planning::{BalanceBounds, BalanceProposal};
use crate::request::Request;
use crate::routing::version::VersionSummary;

/// The settings that an operator chose for any node that is the coordinator.
#[derive(Debug, Clone, Default)]
pub struct CoordinatorSettings {
    /// The time after which the partitions of a node that is down move to other nodes. `None`: only
    /// an operator moves them.
    pub replace_after: Option<Duration>,
    /// The most bytes an hour that automatic balancing may copy. `None`: only an operator balances
    /// the load.
    pub keep_balanced: Option<u64>,
}

/// An event that a coordinator handles.
#[derive(Debug, Clone)]
pub enum CoordinatorEvent {
    Tick,
    /// The content of the catalog.
    Loaded {
        head: Box<Head>,
        seen: SeenTag,
        model: Box<Model>,
    },
    /// The catalog cannot be read now.
    NotLoaded,
    /// A node's heartbeat. The answer returns the token.
    Beat {
        token: u64,
        beat: Box<Beat>,
    },
    /// The outcome of the commit of the head with this stamp. A commit that an earlier coordinator
    /// of this process began may end only now.
    Wrote {
        stamp: u64,
        outcome: CommitOutcome,
    },
    /// The requests that are in the catalog.
    Requests(BTreeMap<RequestId, Request>),
    /// The requests cannot be read now.
    NotListed,
    Summary {
        table: TableName,
        version: u64,
        /// The summary, or why it cannot be read.
        summary: Result<VersionSummary, String>,
    },
    /// The requested plan, or why there is none.
    Planned {
        goal: PlanGoal,
        plan: Result<Box<MovePlan>, String>,
    },
    /// The result for a plan that balances the load of a table.
    Balanced {
        table: TableName,
        made: Result<Box<BalanceProposal>, String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    Done(SeenTag),
    /// The head has changed since it was read.
    Conflict,
    /// The write may or may not have been done.
    Unknown,
}

/// An action for the coordinator's caller.
#[derive(Debug, Clone, PartialEq)]
pub enum CoordinatorAction {
    Load,
    /// Write the documents. Then write the head, if it has not changed since `seen`.
    Commit {
        documents: Documents,
        head: Box<Head>,
        seen: SeenTag,
    },
    Reply {
        token: u64,
        reply: Box<BeatReply>,
    },
    ReadSummary {
        table: TableName,
        version: u64,
    },
    ListRequests,
    /// Make a plan.
    Plan {
        goal: PlanGoal,
        model: Box<Model>,
        survey: Survey,
    },
    /// Make a plan that balances the load of a table.
    Balance {
        table: TableName,
        bounds: BalanceBounds,
        model: Box<Model>,
        reads: BatchReads,
        survey: Survey,
    },
    /// Remove the documents of these requests. They are answered.
    ForgetRequests(BTreeSet<RequestId>),
}
