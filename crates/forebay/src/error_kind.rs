//! The kinds of errors, for exit codes and for programs.

use std::io;

use forebay_cluster::client::ClientError;
use forebay_cluster::planning::PlanningError;
use forebay_engine::backup::BackupError;
use forebay_engine::live::{CheckpointError, LiveError, LoadError as EngineLoadError, LogError};
use forebay_engine::{PushError as EngineError, ReadError, SourceError as TableError, StoreError};
use forebay_load::distributed::DistributedError;
use forebay_load::load::LoadError;
use forebay_load::push::PushError;
use forebay_load::sort::SortError;
use forebay_load::sources::SourceError;
use forebay_objects::{OpenError, PullError};
use forebay_run::RunError;

use crate::inserting::{InsertEnd, InsertError};
use crate::library::problem::Problem;

/// A kind of error, by what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another operation on the table is running: try again.
    Busy,
    /// A live table is open in another process.
    InUse,
    /// A store, table, version or source does not exist.
    Missing,
    /// The options, or the request to the table, are wrong.
    Usage,
    /// The rows of the sources are wrong.
    Data,
    /// Stored data is damaged.
    Damaged,
    /// A cluster did not let a version serve, or reverted it: the previous version serves.
    NotRolledOut,
    /// As `NotRolledOut`, because an operator's rollback took precedence.
    GaveWay,
    /// The command was asked to stop.
    Cancelled,
    /// Any other error: the device, the system, the network.
    Other,
}

/// An error in a command line that its parser does not see: options that conflict, or values that
/// depend on other options.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongLine(pub String);

/// A problem that `forebay verify` found in stored data.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FoundDamage(pub String);

/// Formats an error with its causes, for people. Most messages include the text of their cause; it
/// is not repeated.
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

impl ErrorKind {
    /// Returns the name of the kind, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::InUse => "in-use",
            Self::Missing => "missing",
            Self::Usage => "usage",
            Self::Data => "data",
            Self::Damaged => "damaged",
            Self::NotRolledOut => "not-rolled-out",
            Self::GaveWay => "gave-way",
            Self::Cancelled => "cancelled",
            Self::Other => "other",
        }
    }

    /// Returns the kind of an error of stores.
    pub fn of_store(error: &StoreError) -> Self {
        of_store(error)
    }

    /// Returns the kind of an error of the libraries.
    #[doc(hidden)]
    pub fn of(error: &anyhow::Error) -> Self {
        let found = (error.downcast_ref().map(of_push))
            .or_else(|| error.downcast_ref().map(of_engine))
            .or_else(|| error.downcast_ref().map(of_load))
            .or_else(|| error.downcast_ref().map(of_engine_load))
            .or_else(|| error.downcast_ref().map(of_distributed))
            .or_else(|| error.downcast_ref().map(of_store))
            .or_else(|| error.downcast_ref().map(of_read))
            .or_else(|| error.downcast_ref().map(of_live))
            .or_else(|| error.downcast_ref().map(of_checkpoint))
            .or_else(|| error.downcast_ref().map(of_backup))
            .or_else(|| error.downcast_ref().map(of_open))
            .or_else(|| error.downcast_ref().map(of_pull))
            .or_else(|| error.downcast_ref().map(of_problem))
            .or_else(|| error.downcast_ref().map(of_insert))
            .or_else(|| error.downcast_ref().map(of_client))
            .or_else(|| error.downcast_ref().map(of_planning))
            .or_else(|| error.is::<WrongLine>().then_some(Self::Usage))
            .or_else(|| error.is::<FoundDamage>().then_some(Self::Damaged))
            .or_else(|| match error.downcast_ref()? {
                TableError::Batch(error) => Some(of_read(error)),
                TableError::Live(error) => Some(of_live(error)),
            });
        found.unwrap_or(Self::Other)
    }
}

fn of_push(error: &PushError) -> ErrorKind {
    match error {
        PushError::Source(SourceError::Missing { .. } | SourceError::NoMatch { .. }) => {
            ErrorKind::Missing
        }
        PushError::Source(
            SourceError::Io { .. }
            | SourceError::Runtime(_)
            | SourceError::Remote { .. }
            | SourceError::SpoolFull { .. }
            | SourceError::Spool { .. },
        ) => ErrorKind::Other,
        PushError::Source(
            SourceError::NoSource
            | SourceError::ColumnType { .. }
            | SourceError::Columns { .. }
            | SourceError::Scheme { .. }
            | SourceError::Address { .. }
            | SourceError::NoFile { .. }
            | SourceError::Name { .. }
            | SourceError::Lake { .. }
            | SourceError::Terminal,
        )
        | PushError::NoKey
        | PushError::Gate(_)
        | PushError::DeltaOfRows
        | PushError::AppendToNested { .. }
        | PushError::Boundaries(_)
        | PushError::Onto { .. } => ErrorKind::Usage,
        PushError::Source(_)
        | PushError::Encode(_)
        | PushError::BadRow { .. }
        | PushError::NothingLeft
        | PushError::SortOf { .. }
        | PushError::Sort(SortError::Duplicate { .. }) => ErrorKind::Data,
        PushError::Sort(SortError::Run(error)) => of_run(error),
        PushError::Sort(SortError::Base(error)) => of_read(error),
        PushError::Sort(SortError::LongKey { .. }) => ErrorKind::Usage,
        PushError::Sort(SortError::Stopped) => ErrorKind::Cancelled,
        PushError::Sort(SortError::NotHere { .. }) => ErrorKind::Missing,
        PushError::Engine(error) => of_engine(error),
        PushError::Mismatch { .. } => ErrorKind::Damaged,
        PushError::Rejects { .. } | PushError::Sort(SortError::Scratch { .. }) => ErrorKind::Other,
    }
}

fn of_client(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::Busy(_) => ErrorKind::Busy,
        ClientError::Catalog(_)
        | ClientError::Refused(_)
        | ClientError::NobodyHome { .. }
        | ClientError::Deserted { .. } => ErrorKind::Other,
    }
}

fn of_planning(error: &PlanningError) -> ErrorKind {
    match error {
        PlanningError::Moving(_) => ErrorKind::Busy,
        PlanningError::NoTable(_) | PlanningError::NoLiveTable(_) => ErrorKind::Missing,
        PlanningError::NoTables
        | PlanningError::HoldsAlready(_)
        | PlanningError::HoldsNothing(_)
        | PlanningError::NobodyLeft
        | PlanningError::Unsurveyed { .. }
        | PlanningError::SameReplicas { .. }
        | PlanningError::Replicas(_)
        | PlanningError::Planner(_) => ErrorKind::Other,
    }
}

fn of_distributed(error: &DistributedError) -> ErrorKind {
    match error {
        DistributedError::Push(error) => of_push(error),
        DistributedError::Load(error) => of_load(error),
        DistributedError::Option { .. }
        | DistributedError::NoBoundaries
        | DistributedError::Recipe(_)
        | DistributedError::BadRecipe(_)
        | DistributedError::Source { .. }
        | DistributedError::Batch(_) => ErrorKind::Usage,
        DistributedError::Samples { .. }
        | DistributedError::BadRow { .. }
        | DistributedError::Columns { .. }
        | DistributedError::Shuffle { .. }
        | DistributedError::Control { .. }
        | DistributedError::Report { .. }
        | DistributedError::Reports { .. }
        | DistributedError::Sources { .. }
        | DistributedError::Total { .. } => ErrorKind::Data,
        DistributedError::Scratch { .. } | DistributedError::Gap { .. } => ErrorKind::Other,
    }
}

fn of_engine(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::Busy { .. } => ErrorKind::Busy,
        EngineError::NotRising { .. } | EngineError::NoNumberLeft { .. } => ErrorKind::Usage,
        EngineError::BadManifest { .. } => ErrorKind::Other,
        EngineError::Store(error) => of_store(error),
        EngineError::Read(error) => of_read(error),
    }
}

fn of_open(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::Address(_) | OpenError::NoWorkDir => ErrorKind::Usage,
        OpenError::Connect { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            ErrorKind::Usage
        }
        OpenError::Connect { .. } => ErrorKind::Other,
        OpenError::Pull(error) => of_pull(error),
        OpenError::Store(error) => of_store(error),
    }
}

fn of_pull(error: &PullError) -> ErrorKind {
    match error {
        PullError::Damaged { .. } | PullError::Unsound { .. } => ErrorKind::Damaged,
        PullError::NotACache { .. } => ErrorKind::Usage,
        PullError::Push(error) => of_engine(error),
        PullError::Store(error) => of_store(error),
        PullError::Request { .. }
        | PullError::Superseded
        | PullError::BrokenThread
        | PullError::Disk { .. } => ErrorKind::Other,
    }
}

fn of_load(error: &LoadError) -> ErrorKind {
    match error {
        LoadError::Rows(error) => of_push(error),
        LoadError::Fit { .. } => ErrorKind::Usage,
        LoadError::Engine(error) => of_engine_load(error),
    }
}

fn of_insert(error: &InsertEnd) -> ErrorKind {
    match error {
        InsertEnd::Rows(error) => of_load(error),
        InsertEnd::Sent(InsertError::InsertStopped { .. }) => ErrorKind::Cancelled,
        InsertEnd::Sent(InsertError::RowRefused { .. }) => ErrorKind::Data,
        InsertEnd::Sent(InsertError::NotLetIn { .. }) => ErrorKind::Usage,
        InsertEnd::Sent(
            InsertError::Uncertain { .. }
            | InsertError::NoProgress { .. }
            | InsertError::OldProgram { .. }
            | InsertError::NoRoutes { .. }
            | InsertError::NoThreads { .. },
        ) => ErrorKind::Other,
    }
}

fn of_engine_load(error: &EngineLoadError) -> ErrorKind {
    match error {
        EngineLoadError::Busy { .. } => ErrorKind::Busy,
        EngineLoadError::NotTaken { .. } => ErrorKind::InUse,
        EngineLoadError::Batch { .. } => ErrorKind::Usage,
        EngineLoadError::Refused { .. } => ErrorKind::Other,
        EngineLoadError::Live(error) => of_live(error),
        EngineLoadError::Store(error) => of_store(error),
    }
}

fn of_backup(error: &BackupError) -> ErrorKind {
    match error {
        BackupError::Busy { .. } => ErrorKind::Busy,
        BackupError::Empty { .. }
        | BackupError::NoPlace { .. }
        | BackupError::NoMarker { .. }
        | BackupError::NoBackup { .. }
        | BackupError::NoTable { .. } => ErrorKind::Missing,
        BackupError::Inside { .. }
        | BackupError::NotEmpty { .. }
        | BackupError::OtherKind { .. } => ErrorKind::Usage,
        BackupError::DamagedRun { .. }
        | BackupError::Marker { .. }
        | BackupError::Damaged { .. }
        | BackupError::DamagedTable { .. }
        | BackupError::Copy { .. }
        | BackupError::Restored { .. } => ErrorKind::Damaged,
        BackupError::OtherVersion { .. } => ErrorKind::Other,
        BackupError::Store(error) => of_store(error),
        BackupError::Push(error) => of_engine(error),
        BackupError::Live(error) => of_live(error),
        BackupError::Checkpoint(error) => of_checkpoint(error),
    }
}

fn of_checkpoint(error: &CheckpointError) -> ErrorKind {
    match error {
        CheckpointError::NotTaken { .. } => ErrorKind::InUse,
        CheckpointError::Inside { .. } => ErrorKind::Usage,
        CheckpointError::Refused { .. } => ErrorKind::Other,
        CheckpointError::Live(error) => of_live(error),
        CheckpointError::Store(error) => of_store(error),
    }
}

fn of_store(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::Locked { .. }
        | StoreError::PushRuns { .. }
        | StoreError::Refused { is_busy: true, .. } => ErrorKind::Busy,
        StoreError::InUse { .. } => ErrorKind::InUse,
        StoreError::NoStore { .. }
        | StoreError::NoTable { .. }
        | StoreError::NoVersion { .. }
        | StoreError::NothingServes { .. }
        | StoreError::NotKept { .. }
        | StoreError::NothingBefore { .. } => ErrorKind::Missing,
        StoreError::Name(_)
        | StoreError::IsLive { .. }
        | StoreError::InCluster { .. }
        | StoreError::Refused { .. }
        | StoreError::OfAnother { .. }
        | StoreError::ServesOther { .. }
        | StoreError::JustRolledBack { .. }
        | StoreError::NotKeeping { .. }
        | StoreError::NameTaken { .. }
        | StoreError::NotEmpty { .. } => ErrorKind::Usage,
        StoreError::NotRolledOut { gave_way: true, .. } => ErrorKind::GaveWay,
        StoreError::NotRolledOut { .. } => ErrorKind::NotRolledOut,
        StoreError::Damaged { .. }
        | StoreError::DamagedPointer { .. }
        | StoreError::LostManifest { .. }
        | StoreError::Incomplete { .. } => ErrorKind::Damaged,
        StoreError::Io { .. }
        | StoreError::Catalog { .. }
        | StoreError::Unheard { .. }
        | StoreError::NotSynced { .. }
        | StoreError::Remains { .. }
        | StoreError::Thread(_) => ErrorKind::Other,
    }
}

fn of_read(error: &ReadError) -> ErrorKind {
    match error {
        ReadError::Run { source, .. } => of_run(source),
        ReadError::NoKeyOrder { .. } => ErrorKind::Usage,
        ReadError::NotHere { .. } => ErrorKind::Missing,
        ReadError::Value { .. } => ErrorKind::Damaged,
        ReadError::Store(error) => of_store(error),
    }
}

fn of_live(error: &LiveError) -> ErrorKind {
    match error {
        LiveError::NoTable { .. } | LiveError::NotHere { .. } => ErrorKind::Missing,
        LiveError::Exists { .. }
        | LiveError::Batch { .. }
        | LiveError::Options { .. }
        | LiveError::Key { .. }
        | LiveError::Value { .. }
        | LiveError::NoDelta { .. }
        | LiveError::NoExpiry { .. }
        | LiveError::Operand { .. }
        | LiveError::AcrossPartitions { .. }
        | LiveError::NoKeyOrder { .. } => ErrorKind::Usage,
        LiveError::Run { source, .. } => of_run(source),
        LiveError::Log(
            LogError::Damaged { .. }
            | LogError::Missing { .. }
            | LogError::Lost { .. }
            | LogError::Note { .. },
        ) => ErrorKind::Damaged,
        LiveError::Store(error) => of_store(error),
        _ => ErrorKind::Other,
    }
}

fn of_problem(problem: &Problem) -> ErrorKind {
    match problem.is_damage() {
        true => ErrorKind::Damaged,
        false => ErrorKind::Usage,
    }
}

fn of_run(error: &RunError) -> ErrorKind {
    match error {
        RunError::Damaged { .. } | RunError::Unsupported { .. } => ErrorKind::Damaged,
        RunError::Duplicate { .. } | RunError::Operand { .. } => ErrorKind::Data,
        RunError::Io { .. } | RunError::Refused { .. } => ErrorKind::Other,
    }
}
