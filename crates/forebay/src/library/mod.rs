//! Stores and tables for Rust programs.
//!
//! The types are thin handles over the engine and the loader, with typed values in place of bytes
//! and one error type.

mod batch;
mod batch_table;
mod error;
mod job;
mod live_options;
mod live_table;
mod load;
mod open_table;
mod operand;
mod options;
pub(crate) mod problem;
mod push;
mod record_value;
mod records;
mod row;
mod shape;
mod snapshot;
mod store;
mod value;

pub use arrow_array;
pub use arrow_schema;
pub use forebay_engine::live::{CheckpointCopy, Durability, Expiry, LiveStats};
pub use forebay_engine::{
    ColumnProfile, ColumnStats, MeasuredColumn, SwapReport, TableName, ValueRange, VersionInfo,
};
pub use forebay_load::convert::{Loss, Lossy};
pub use forebay_load::gate::Finding;
pub use forebay_load::load::LoadReport;
pub use forebay_load::progress::{Progress, Unit};
pub use forebay_load::push::{ComposedRows, PushReport};
pub use forebay_run::content::ContentSum;
pub use forebay_run::operation::DeltaKind;
pub use forebay_run::row::{Column, Datum, Kind, ListView, RowView, Schema, TimeUnit};
pub use forebay_run::{Compression, Order};

pub use self::batch::Batch;
pub use self::batch_table::BatchTable;
pub use self::error::Error;
pub use self::live_options::LiveOptions;
pub use self::live_table::LiveTable;
pub use self::load::LoadBuilder;
pub use self::operand::Operand;
pub use self::options::{Options, open, open_or_create};
pub use self::push::PushBuilder;
pub use self::record_value::RecordValue;
pub use self::records::Records;
pub use self::row::{FromDatum, List, Row};
pub use self::snapshot::Snapshot;
pub use self::store::Store;
pub use self::value::{Lifetime, Value};
