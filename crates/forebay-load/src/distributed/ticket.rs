//! Defines the ticket of a task's runs: the unpublished version or the load they belong to.

use std::fmt;

use forebay_engine::live::LoadTicket;
use forebay_engine::{NewRun, RunId, Store, StoreError, TableName, Ticket};
use serde::{Deserialize, Serialize};

/// The unpublished version or the load that tasks write runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TaskTicket {
    Push(Ticket),
    Load(LoadTicket),
}

impl TaskTicket {
    pub fn table(&self) -> &TableName {
        match self {
            Self::Push(ticket) => &ticket.table,
            Self::Load(ticket) => &ticket.table,
        }
    }

    /// Returns a random number that is unique to this push or load.
    pub fn stamp(&self) -> u64 {
        match self {
            Self::Push(ticket) => ticket.stamp,
            Self::Load(ticket) => ticket.stamp,
        }
    }

    pub fn created_unix_ms(&self) -> u64 {
        match self {
            Self::Push(ticket) => ticket.created_unix_ms,
            Self::Load(ticket) => ticket.created_unix_ms,
        }
    }

    pub fn new_run(&self, store: &Store, partition: usize) -> NewRun {
        match self {
            Self::Push(ticket) => ticket.new_run(store, partition),
            Self::Load(ticket) => ticket.new_run(store, partition),
        }
    }

    pub fn is_of(&self, id: &RunId, partition: usize) -> bool {
        match self {
            Self::Push(ticket) => ticket.is_of(id, partition),
            Self::Load(ticket) => ticket.is_of(id, partition),
        }
    }

    pub fn sync(&self, store: &Store) -> Result<(), StoreError> {
        match self {
            Self::Push(ticket) => ticket.sync(store),
            Self::Load(ticket) => ticket.sync(store),
        }
    }
}

impl fmt::Display for TaskTicket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, stamp) = (self.table(), self.stamp());
        match self {
            Self::Push(Ticket { version, .. }) => {
                write!(
                    formatter,
                    "version {version} of table {table}, push {stamp:016x}"
                )
            }
            Self::Load(_) => write!(formatter, "load {stamp:016x} of table {table}"),
        }
    }
}
