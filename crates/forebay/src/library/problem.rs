//! Problems of values that a program writes and reads.

use forebay_run::row::RowError;

/// A problem of a value.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The given value does not fit the table.
    #[error("table {table} holds {holds}: {given} is not one; give {give}")]
    NoValue {
        table: String,
        holds: &'static str,
        given: String,
        give: &'static str,
    },
    #[error("table {table} has no column '{column}'; it has: {}", columns.join(", "))]
    NoColumn {
        table: String,
        column: String,
        columns: Vec<String>,
    },
    #[error("table {table}: the column '{column}' cannot be null: give it a value")]
    NullColumn { table: String, column: String },
    #[error("table {table}: {datum} does not fit the column '{column}', which is {kind}")]
    NotOfColumn {
        table: String,
        column: String,
        datum: String,
        kind: String,
    },
    #[error(
        "table {table}: the column '{column}' holds {datum}, which is no {wanted}: read it as another type"
    )]
    NotWanted {
        table: String,
        column: String,
        datum: String,
        wanted: &'static str,
    },
    /// The given value cannot be stored at all.
    #[error("table {table}: the value cannot be stored: {source}")]
    Fit { table: String, source: RowError },
    #[error(
        "table {table} is there already, with {there} where {wanted} was asked for: open it by its name \
         alone, or drop it first"
    )]
    OtherTable {
        table: String,
        there: String,
        wanted: String,
    },
    #[error("a time to live of 0 ms: give at least a millisecond, or delete the key")]
    NoTime,
    /// The command-line arguments are wrong; the options of a push are such arguments.
    #[error("{0}")]
    Words(String),
    /// The stored value does not fit the table.
    #[error("table {table}: a stored value cannot be read: {problem}; verify the table")]
    Unreadable { table: String, problem: String },
}

impl Problem {
    /// Returns whether stored data is at fault, not the request.
    pub fn is_damage(&self) -> bool {
        matches!(self, Problem::Unreadable { .. })
    }
}
