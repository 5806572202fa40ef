//! Forebay's engine: stores the versions of tables and reads them.
//!
//! A *store* is a directory of tables. A *version* of a table is a manifest and the runs that it
//! names. A push makes a version beside the serving one. A swap or a rollback moves a pointer.
//! Readers keep the version that they began with. Start with [`Store`]; the module `layout` lists
//! the files.
//!
//! Invariants that hold after any failure, crash or power loss:
//!
//! - A version is visible as a whole or not at all.
//! - The pointer names the old version or the new one.
//! - Nothing that a manifest names is removed before that manifest is.

pub mod backup;
mod documents;
mod error;
mod figures;
mod following;
mod keys;
pub mod live;
mod name;
mod publishing;
mod random_place;
pub mod replica_log;
mod source;
mod tables;

pub use documents::column_profile::{
    ColumnProfile, ColumnStats, MeasuredColumn, ProfilePair, QUANTILE_PERCENTS, ValueRange,
};
pub use documents::holder::{lock_within, utc};
pub use documents::layout::STORE_FILE;
pub use documents::manifest::{
    MANIFEST_FORMAT, Manifest, ManifestDraft, OperationCounts, Partition, RunRef, Totals, Ttl,
    ValueKind,
};
pub use documents::pins::PinnedVersion;
pub use documents::pointer::{LastRollback, POINTER_FORMAT, Pointer};
pub use documents::pointers::{PointerMove, Pointers, SwapReport};
pub use documents::seal::{DocumentError, seal, seal_text, unseal};
pub use error::{PushError, ReadError, StoreError};
pub use figures::compare::ColumnChange;
pub use figures::diff::{DiffReport, DiffSample, Difference, diff};
pub use figures::expect::{ExpectedVersion, KeyOutcome, compare_expected};
pub use figures::sample::{Comparison, NullShare, Share, compare_sampled, profiles_of};
pub use figures::sampled_pages::Advance;
pub use figures::schema_change::{Alteration, Altered, SchemaChange};
pub use following::activate::{ActivateError, Next};
pub use following::serving::{DEFAULT_POLL, Serving};
pub use following::serving_set::{Change, ServingState, TableState, Tables};
pub use keys::bound::Bound;
pub use keys::key_text::{from_hex, show_key, to_hex, write_hex};
pub use keys::partition::{Bounds, MAX_PARTITIONS, OpenPartitions, PartitionId, PartitionRange};
pub use keys::reads::PartitionReads;
pub use name::{MAX_NAME_BYTES, NameError, RunId, TableName};
pub use publishing::committed::Committed;
pub use publishing::compact::{CompactReport, Counting, MAX_RUNS, due};
pub use publishing::dropped::DroppedTable;
pub use publishing::install::{Install, VersionFile};
pub use publishing::proof::Proof;
pub use publishing::push::{NewRun, Push, PushOptions, Ticket};
pub use publishing::release::ReleaseReport;
pub use publishing::verify::{PartitionProof, VerifyReport};
pub use random_place::RandomPlace;
pub use source::{Scan, Source, SourceError};
pub use tables::history::{HISTORY_ENTRIES, HistoryAction, HistoryEntry, HistoryNote, shortened};
pub use tables::scan::VersionScan;
pub use tables::store::{
    Actor, CLUSTER_STORE_FORMAT, Holding, STORE_FORMAT, Store, cluster_store_file, open,
};
pub use tables::table::{Table, VersionInfo, check_not_just_rolled_back};
pub use tables::version::{Lookup, Value, Version};
