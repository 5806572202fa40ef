//! Why an insert failed, and what is known of the rows that were sent.

use forebay_engine::TableName;
use forebay_run::error::named_key;

/// What is known when an insert ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    pub table: TableName,
    /// Rows that were written and acknowledged.
    pub done: u64,
    pub all: u64,
    /// Some of the rows may not be sent twice.
    pub has_deltas: bool,
}

/// Rows of one request, in the order in which they were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub rows: usize,
    pub first: Vec<u8>,
    pub last: Vec<u8>,
}

/// An error that ended an insert.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// A node refused a row.
    #[error(
        "a node does not take the row of key {}: {words}. {inserted}",
        named_key(key)
    )]
    RowRefused {
        key: Vec<u8>,
        words: String,
        inserted: Inserted,
    },
    #[error(
        "nobody knows whether these were added: {keys} ({words}). Deltas are not sent again, as they may count twice. \
         {inserted}. Read those keys, and load only what is missing; --insert runs adds each delta once whatever dies"
    )]
    Uncertain {
        keys: UnknownRows,
        words: String,
        inserted: Inserted,
    },
    #[error("no row was taken for {seconds} s: {words}. {inserted}")]
    NoProgress {
        seconds: u64,
        words: String,
        inserted: Inserted,
    },
    #[error("{words}: give a user who may read and write the table by --login. {inserted}")]
    NotLetIn { words: String, inserted: Inserted },
    #[error(
        "the program of the node at {node} does not know KV.WRITE, by which rows are inserted: have all nodes run the \
         same program; nothing was written"
    )]
    OldProgram { node: String },
    #[error(
        "no node of the cluster reports where the table's partitions are: {words}; nothing was written"
    )]
    NoRoutes { words: String },
    #[error("the operation was stopped. {inserted}")]
    InsertStopped { inserted: Inserted },
    #[error("{clients} clients cannot be started: {words}. {inserted}")]
    NoThreads {
        clients: usize,
        words: String,
        inserted: Inserted,
    },
}

/// Rows of which it is unknown whether they were added, by requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRows(pub Vec<KeyRange>);

impl InsertError {
    /// Returns the error with what is known after all clients have ended.
    #[must_use]
    pub fn counted(mut self, known: Inserted) -> Self {
        match &mut self {
            InsertError::RowRefused { inserted, .. }
            | InsertError::Uncertain { inserted, .. }
            | InsertError::NoProgress { inserted, .. }
            | InsertError::NotLetIn { inserted, .. }
            | InsertError::InsertStopped { inserted }
            | InsertError::NoThreads { inserted, .. } => *inserted = known,
            InsertError::OldProgram { .. } | InsertError::NoRoutes { .. } => {}
        }
        self
    }
}

impl std::fmt::Display for UnknownRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [one] = &self.0[..] {
            return write!(f, "{one}");
        }
        let rows: usize = self.0.iter().map(|range| range.rows).sum();
        write!(f, "{rows} rows of {} requests: ", self.0.len())?;
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for KeyRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rows {
            1 => write!(f, "the row of key {}", named_key(&self.first)),
            rows => write!(
                f,
                "{rows} rows, from key {} to key {}",
                named_key(&self.first),
                named_key(&self.last)
            ),
        }
    }
}

impl std::fmt::Display for Inserted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inserted {
            table, done, all, ..
        } = self;
        write!(f, "{done} of {all} rows are in {table}, and stay")?;
        match self.has_deltas {
            true => write!(f, "; given again, all deltas would be added again"),
            false => write!(f, "; give the same command again, which writes all of them"),
        }
    }
}
