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

mod activate;
mod actor;
pub mod backup;
mod batch;
mod bound;
mod cleanup;
mod column_profile;
mod committed;
mod compact;
mod compare;
mod diff;
mod dropped;
mod error;
mod expect;
mod follow;
mod followed_table;
mod history;
mod holder;
mod holding;
mod install;
mod key_text;
mod layout;
pub mod live;
mod manifest;
mod name;
mod partition;
mod pins;
mod pointer;
mod pointers;
mod proof;
mod push;
mod random_place;
mod reads;
mod release;
pub mod replica_log;
mod reserve;
mod route;
mod row_estimate;
mod run_description;
mod sample;
mod sampled_pages;
mod scan;
mod schema_change;
mod seal;
mod serving;
mod serving_set;
mod source;
mod store;
mod table;
mod upgrade;
mod verify;
mod version;
mod walk;

pub use activate::{ActivateError, Next};
pub use actor::Actor;
pub use bound::Bound;
pub use column_profile::{
    ColumnProfile, ColumnStats, MeasuredColumn, ProfilePair, QUANTILE_PERCENTS, ValueRange,
};
pub use committed::Committed;
pub use compact::{CompactReport, Counting, MAX_RUNS, due};
pub use compare::ColumnChange;
pub use diff::{DiffReport, DiffSample, Difference, diff};
pub use dropped::DroppedTable;
pub use error::{PushError, ReadError, StoreError};
pub use expect::{ExpectedVersion, KeyOutcome, compare_expected};
pub use history::{HISTORY_ENTRIES, HistoryAction, HistoryEntry, HistoryNote, shortened};
pub use holder::{lock_within, utc};
pub use holding::Holding;
pub use install::{Install, VersionFile};
pub use key_text::{from_hex, show_key, to_hex, write_hex};
pub use layout::STORE_FILE;
pub use manifest::{
    MANIFEST_FORMAT, Manifest, ManifestDraft, OperationCounts, Partition, RunRef, Totals, Ttl,
    ValueKind,
};
pub use name::{MAX_NAME_BYTES, NameError, RunId, TableName};
pub use partition::{Bounds, MAX_PARTITIONS, OpenPartitions, PartitionId, PartitionRange};
pub use pins::PinnedVersion;
pub use pointer::{LastRollback, POINTER_FORMAT, Pointer};
pub use pointers::{PointerMove, Pointers, SwapReport};
pub use proof::Proof;
pub use push::{NewRun, Push, PushOptions, Ticket};
pub use random_place::RandomPlace;
pub use reads::PartitionReads;
pub use release::ReleaseReport;
pub use sample::{Comparison, NullShare, Share, compare_sampled, profiles_of};
pub use sampled_pages::Advance;
pub use scan::VersionScan;
pub use schema_change::{Alteration, Altered, SchemaChange};
pub use seal::{DocumentError, seal, seal_text, unseal};
pub use serving::{DEFAULT_POLL, Serving};
pub use serving_set::{Change, ServingState, TableState, Tables};
pub use source::{Scan, Source, SourceError};
pub use store::{CLUSTER_STORE_FORMAT, STORE_FORMAT, Store, cluster_store_file, open};
pub use table::{Table, VersionInfo, check_not_just_rolled_back};
pub use verify::{PartitionProof, VerifyReport};
pub use version::{Lookup, Value, Version};
