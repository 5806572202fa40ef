//! Options for creating a live table.

use std::time::Duration;

use forebay_engine::live::{Durability, Expiry, LiveDraft};
use forebay_engine::{Source, ValueKind};
use forebay_load::push::PushError;
use forebay_load::sources::parse_schema;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use forebay_run::{Compression, Order};

use super::error::Error;
use super::problem::Problem;

/// The options of a new live table; they cannot be changed later. Begin with
/// [`LiveOptions::hashed`] or [`LiveOptions::ordered`]. The other options have the defaults of
/// `forebay create`.
///
/// ```
/// use forebay::{Durability, LiveOptions};
///
/// # fn main() -> Result<(), forebay::Error> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = forebay::open_or_create(dir.path())?;
/// let players = LiveOptions::ordered()
///     .columns(["name:text", "score:int64"])?
///     .durability(Durability::EveryMs(100));
/// let players = store.create_live("players", players)?;
/// players.put("p1", &[("name", "Ada".into()), ("score", 7.into())])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LiveOptions {
    draft: LiveDraft,
    expiry: Option<Expiry>,
}

impl LiveOptions {
    /// A table for look-ups by key: values are bytes, in four partitions. Every write is on the
    /// device before it returns.
    pub fn hashed() -> Self {
        Self::new(LiveDraft::hashed())
    }

    /// A table in key order, which also supports ranges. It has one partition unless
    /// [`LiveOptions::boundaries`] are given.
    pub fn ordered() -> Self {
        Self::new(LiveDraft::ordered(Vec::new()))
    }

    fn new(draft: LiveDraft) -> Self {
        Self {
            draft,
            expiry: None,
        }
    }

    /// Sets the number of partitions of a hashed table. Writes to different partitions do not wait
    /// for each other. A batch is atomic within one partition.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.draft = self.draft.partitions(partitions);
        self
    }

    /// Sets the first keys of the partitions of an ordered table, in ascending order, except for
    /// the first partition, which begins before all keys.
    #[must_use]
    pub fn boundaries<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = keys.into_iter().map(Into::into).collect();
        self.draft.partitions = LiveDraft::ordered(keys).partitions;
        self
    }

    /// Sets what deltas do to the values. The values are numbers, except for [`DeltaKind::Append`].
    #[must_use]
    pub fn delta(mut self, kind: DeltaKind) -> Self {
        self.draft = self.draft.delta(kind);
        self
    }

    /// Makes values rows of these columns, each with its type as in `score:int64`
    /// (docs/reference/commands-live.md has the types).
    pub fn columns<C: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = C>,
    ) -> Result<Self, Error> {
        let columns: Vec<String> = columns.into_iter().map(Into::into).collect();
        let schema = parse_schema(&columns);
        self.draft.options.schema = schema.map_err(PushError::from)?;
        self.draft.options.value = ValueKind::Row;
        Ok(self)
    }

    /// Makes values lists of items of this type, as in `text`.
    pub fn items(mut self, item: &str) -> Result<Self, Error> {
        let schema = parse_schema(&[format!("item:{item}")]).map_err(PushError::from)?;
        let item = schema.columns()[0].clone();
        let column = "value".to_owned();
        let list = Kind::List {
            item: Box::new(item.clone()),
            length: None,
        };
        self.draft.options.schema = Schema::new(vec![Column::new(&column, list, false)]);
        self.draft.options.value = ValueKind::List {
            column,
            item: item.kind,
        };
        Ok(self)
    }

    /// Sets when a write is acknowledged.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.draft = self.draft.durability(durability);
        self
    }

    /// Makes keys expire this long after their last write, unless they are written with a time of
    /// their own. Without this, or [`LiveOptions::expiry`], keys that are written with a time to
    /// live expire; in tables with deltas no key can.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.expiry(Expiry::AfterMs(ms))
    }

    /// Sets whether keys can expire.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Sets how many runs of a level are merged into one of the next. More runs cost less writing
    /// and more reading. From 2 to 32; the default is 4.
    #[must_use]
    pub fn factor(mut self, factor: u32) -> Self {
        self.draft = self.draft.factor(factor);
        self
    }

    /// Limits the bytes that merges write a second.
    #[must_use]
    pub fn merge_bytes_per_second(mut self, bytes: u64) -> Self {
        self.draft.options.merge_bytes_per_second = Some(bytes);
        self
    }

    /// Sets the compression of the runs' pages; the default is none.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.draft.options.compression = compression;
        self
    }

    pub(super) fn into_draft(mut self) -> LiveDraft {
        let default = match self.draft.options.delta {
            None => Expiry::PerRecord,
            Some(_) => Expiry::Never,
        };
        self.draft.options.expiry = self.expiry.unwrap_or(default);
        self.draft
    }

    /// Fails if an existing table has other values, another order or other deltas than these: a
    /// program would read and write it wrongly.
    pub(super) fn check(&self, there: &forebay_engine::live::LiveTable) -> Result<(), Error> {
        let wanted = &self.draft.options;
        let found = there.options();
        let differs = found.order != wanted.order
            || found.delta != wanted.delta
            || found.value != wanted.value
            || found.schema != wanted.schema;
        if !differs {
            return Ok(());
        }
        Err(Problem::OtherTable {
            table: Source::Live(there).table().to_string(),
            there: reported(found.order, found.delta, &found.value, &found.schema),
            wanted: reported(wanted.order, wanted.delta, &wanted.value, &wanted.schema),
        }
        .into())
    }
}

/// Describes the options that matter to readers and writers.
fn reported(order: Order, delta: Option<DeltaKind>, value: &ValueKind, schema: &Schema) -> String {
    let order = match order {
        Order::Hashed => "hashed",
        Order::Ordered => "ordered",
    };
    let columns = schema.columns().iter();
    let columns = columns.map(|column| format!("{}:{}", column.name, column.kind));
    let values = match value {
        ValueKind::Row => format!("rows of {}", columns.collect::<Vec<_>>().join(", ")),
        ValueKind::List { item, .. } => format!("lists of {item}"),
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => "bytes or numbers".to_owned(),
    };
    match delta {
        None => format!("order {order}, values {values}, no deltas"),
        Some(delta) => format!("order {order}, values {values}, deltas {delta:?}"),
    }
}
