//! What kind of failure an error is, for exit codes and for programs.

use forebay_engine::live::{CheckpointError, LiveError, LoadError as EngineLoadError, LogError};
use forebay_engine::{PushError as EngineError, ReadError, SourceError as TableError, StoreError};
use forebay_load::distributed::DistributedError;
use forebay_load::load::LoadError;
use forebay_load::push::PushError;
use forebay_load::sort::SortError;
use forebay_load::sources::SourceError;
use forebay_objects::{OpenError, PullError};
use forebay_run::RunError;

/// What whoever gets an error can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Something else is at work on the table: try again.
    Busy,
    /// A live table is open in another process.
    InUse,
    /// A store, table, version or source that is not there.
    Missing,
    /// The options, or what is asked of the table, are wrong.
    Usage,
    /// The rows that came in are.
    Data,
    /// What is stored is damaged.
    Damaged,
    /// It was asked to stop.
    Cancelled,
    Other,
}

/// An error with its causes, for people. Most of our messages hold the words of their cause; those
/// are said once.
pub fn words(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
    }
    words
}

impl Failure {
    pub fn of(error: &anyhow::Error) -> Self {
        let found = (error.downcast_ref().map(of_push))
            .or_else(|| error.downcast_ref().map(of_engine))
            .or_else(|| error.downcast_ref().map(of_load))
            .or_else(|| error.downcast_ref().map(of_distributed))
            .or_else(|| error.downcast_ref().map(of_store))
            .or_else(|| error.downcast_ref().map(of_read))
            .or_else(|| error.downcast_ref().map(of_live))
            .or_else(|| error.downcast_ref().map(of_checkpoint))
            .or_else(|| error.downcast_ref().map(of_open))
            .or_else(|| error.downcast_ref().map(of_pull))
            .or_else(|| match error.downcast_ref()? {
                TableError::Batch(error) => Some(of_read(error)),
                TableError::Live(error) => Some(of_live(error)),
            });
        found.unwrap_or(Self::Other)
    }
}

fn of_push(error: &PushError) -> Failure {
    match error {
        PushError::Source(SourceError::Missing { .. } | SourceError::NoMatch { .. }) => {
            Failure::Missing
        }
        PushError::Source(
            SourceError::Io { .. }
            | SourceError::Runtime(_)
            | SourceError::Remote { .. }
            | SourceError::SpoolFull { .. }
            | SourceError::Spool { .. },
        ) => Failure::Other,
        PushError::Source(
            SourceError::NoSource
            | SourceError::ColumnType { .. }
            | SourceError::Scheme { .. }
            | SourceError::Address { .. }
            | SourceError::NoFile { .. }
            | SourceError::Name { .. }
            | SourceError::Lake { .. }
            | SourceError::Terminal,
        )
        | PushError::NoKey
        | PushError::DeltaOfRows
        | PushError::AppendToNested { .. }
        | PushError::Boundaries(_)
        | PushError::Onto { .. } => Failure::Usage,
        PushError::Source(_)
        | PushError::Encode(_)
        | PushError::BadRow { .. }
        | PushError::NothingLeft
        | PushError::SortOf { .. }
        | PushError::Sort(SortError::Duplicate { .. }) => Failure::Data,
        PushError::Sort(SortError::Run(error)) => of_run(error),
        PushError::Sort(SortError::Base(error)) => of_read(error),
        PushError::Sort(SortError::Stopped) => Failure::Cancelled,
        PushError::Sort(SortError::NotHere { .. }) => Failure::Missing,
        PushError::Engine(error) => of_engine(error),
        PushError::Mismatch { .. } => Failure::Damaged,
        PushError::Rejects { .. } | PushError::Sort(SortError::Scratch { .. }) => Failure::Other,
    }
}

fn of_distributed(error: &DistributedError) -> Failure {
    match error {
        DistributedError::Push(error) => of_push(error),
        DistributedError::Option { .. }
        | DistributedError::NoBoundaries
        | DistributedError::Recipe(_)
        | DistributedError::BadRecipe(_)
        | DistributedError::Source { .. }
        | DistributedError::Batch(_) => Failure::Usage,
        DistributedError::Samples { .. }
        | DistributedError::Columns { .. }
        | DistributedError::Shuffle { .. }
        | DistributedError::Control { .. }
        | DistributedError::Report { .. }
        | DistributedError::Reports { .. }
        | DistributedError::Sources { .. }
        | DistributedError::Total { .. } => Failure::Data,
        DistributedError::Scratch { .. } => Failure::Other,
    }
}

fn of_engine(error: &EngineError) -> Failure {
    match error {
        EngineError::Busy { .. } => Failure::Busy,
        EngineError::NotRising { .. } | EngineError::NoNumberLeft { .. } => Failure::Usage,
        EngineError::BadManifest { .. } => Failure::Other,
        EngineError::Store(error) => of_store(error),
        EngineError::Read(error) => of_read(error),
    }
}

fn of_open(error: &OpenError) -> Failure {
    match error {
        OpenError::Address(_) | OpenError::NoWorkDir => Failure::Usage,
        OpenError::Connect { .. } => Failure::Other,
        OpenError::Pull(error) => of_pull(error),
        OpenError::Store(error) => of_store(error),
    }
}

fn of_pull(error: &PullError) -> Failure {
    match error {
        PullError::Damaged { .. } | PullError::Unsound { .. } => Failure::Damaged,
        PullError::NotACache { .. } => Failure::Usage,
        PullError::Push(error) => of_engine(error),
        PullError::Store(error) => of_store(error),
        PullError::Request { .. } | PullError::Superseded | PullError::Disk { .. } => {
            Failure::Other
        }
    }
}

fn of_load(error: &LoadError) -> Failure {
    match error {
        LoadError::Rows(error) => of_push(error),
        LoadError::Fit { .. } => Failure::Usage,
        LoadError::Engine(error) => match error {
            EngineLoadError::Busy { .. } => Failure::Busy,
            EngineLoadError::NotTaken { .. } => Failure::InUse,
            EngineLoadError::Batch { .. } => Failure::Usage,
            EngineLoadError::Refused { .. } => Failure::Other,
            EngineLoadError::Live(error) => of_live(error),
            EngineLoadError::Store(error) => of_store(error),
        },
    }
}

fn of_checkpoint(error: &CheckpointError) -> Failure {
    match error {
        CheckpointError::NotTaken { .. } => Failure::InUse,
        CheckpointError::Refused { .. } => Failure::Other,
        CheckpointError::Live(error) => of_live(error),
        CheckpointError::Store(error) => of_store(error),
    }
}

fn of_store(error: &StoreError) -> Failure {
    match error {
        StoreError::Locked { .. } | StoreError::PushRuns { .. } => Failure::Busy,
        StoreError::InUse { .. } => Failure::InUse,
        StoreError::NoStore { .. }
        | StoreError::NoTable { .. }
        | StoreError::NoVersion { .. }
        | StoreError::NothingServes { .. }
        | StoreError::NothingBefore { .. } => Failure::Missing,
        StoreError::Name(_) | StoreError::IsLive { .. } | StoreError::NotEmpty { .. } => {
            Failure::Usage
        }
        StoreError::Damaged { .. }
        | StoreError::DamagedPointer { .. }
        | StoreError::Incomplete { .. } => Failure::Damaged,
        StoreError::Io { .. }
        | StoreError::NotSynced { .. }
        | StoreError::Remains { .. }
        | StoreError::Thread(_) => Failure::Other,
    }
}

fn of_read(error: &ReadError) -> Failure {
    match error {
        ReadError::Run { source, .. } => of_run(source),
        ReadError::NoKeyOrder { .. } => Failure::Usage,
        ReadError::NotHere { .. } => Failure::Missing,
        ReadError::Value { .. } => Failure::Damaged,
        ReadError::Store(error) => of_store(error),
    }
}

fn of_live(error: &LiveError) -> Failure {
    match error {
        LiveError::NoTable { .. } | LiveError::NotHere { .. } => Failure::Missing,
        LiveError::Exists { .. }
        | LiveError::Batch { .. }
        | LiveError::Options { .. }
        | LiveError::Key { .. }
        | LiveError::Value { .. }
        | LiveError::NoDelta { .. }
        | LiveError::NoExpiry { .. }
        | LiveError::Operand { .. }
        | LiveError::AcrossPartitions { .. }
        | LiveError::NoKeyOrder { .. } => Failure::Usage,
        LiveError::Run { source, .. } => of_run(source),
        LiveError::Log(
            LogError::Damaged { .. }
            | LogError::Missing { .. }
            | LogError::Lost { .. }
            | LogError::Note { .. },
        ) => Failure::Damaged,
        LiveError::Store(error) => of_store(error),
        _ => Failure::Other,
    }
}

fn of_run(error: &RunError) -> Failure {
    match error {
        RunError::Damaged { .. } | RunError::Unsupported { .. } => Failure::Damaged,
        RunError::Duplicate { .. } | RunError::Operand { .. } => Failure::Data,
        RunError::Io { .. } | RunError::Refused { .. } => Failure::Other,
    }
}
