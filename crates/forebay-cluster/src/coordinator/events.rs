//! What a coordinator is told, and what it has done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;

use crate::catalog::SeenTag;
use crate::message::{Beat, BeatReply};
use crate::model::{Documents, Head, Model, MovePlan, PlanGoal, RequestId, Survey};
use crate::planning::{BalanceBounds, BalanceProposal};
use crate::reads::BatchReads;
use crate::request::Request;
use crate::version::VersionSummary;

/// What an operator has chosen for whoever is the coordinator.
#[derive(Debug, Clone, Default)]
pub struct CoordinatorSettings {
    /// What a node held that is away for so long comes to others; none: an operator says so.
    pub replace_after: Option<Duration>,
    /// Load that lies unevenly on the nodes is spread, and at most so many bytes are copied for
    /// that in an hour; none: an operator does that.
    pub keep_balanced: Option<u64>,
}

/// What a coordinator is told.
#[derive(Debug, Clone)]
pub enum CoordinatorEvent {
    Tick,
    /// The catalog as it is.
    Loaded {
        head: Box<Head>,
        seen: SeenTag,
        model: Box<Model>,
    },
    /// The catalog cannot be read now.
    NotLoaded,
    /// A node's heartbeat. The token is given back with the answer.
    Beat {
        token: u64,
        beat: Box<Beat>,
    },
    /// What came of the commit of the head with this stamp. One that an earlier coordinator of this
    /// process began may end only now.
    Wrote {
        stamp: u64,
        outcome: CommitOutcome,
    },
    /// What was found among the requests of the catalog.
    Requests(BTreeMap<RequestId, Request>),
    /// The requests cannot be read now.
    NotListed,
    Summary {
        table: TableName,
        version: u64,
        /// Else why it cannot be read.
        summary: Result<VersionSummary, String>,
    },
    /// The plan that was asked for, or why there is none.
    Planned {
        goal: PlanGoal,
        plan: Result<Box<MovePlan>, String>,
    },
    /// What came of a plan that is to spread the load of a table.
    Balanced {
        table: TableName,
        made: Result<Box<BalanceProposal>, String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    Done(SeenTag),
    /// The head is another one than was seen.
    Conflict,
    /// It was done or not.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum CoordinatorAction {
    Load,
    /// Write the documents, then the head if it is still what was seen.
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
    /// Make a plan that spreads the load of a table.
    Balance {
        table: TableName,
        bounds: BalanceBounds,
        model: Box<Model>,
        reads: BatchReads,
        survey: Survey,
    },
    /// They are answered: their documents can go.
    ForgetRequests(BTreeSet<RequestId>),
}
