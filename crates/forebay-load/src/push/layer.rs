//! A push onto another version: its runs, and one small run more in each partition that has news.
//!
//! What the version declares holds: order, key, value, columns, kind of deltas, expiry. The sources
//! are read by one thread, so that records of one key are composed in the order in which they come.
//! Nothing of the older runs is read, but for inserts where rows expire, which are settled by
//! looking up; and for partitions in which too many runs have gathered (`forebay_engine::due`),
//! which are merged on the way.

use std::sync::Arc;

use arrow_schema::FieldRef;
use forebay_engine::{Manifest, ManifestDraft, Push, RunRef, Table, Ttl, ValueKind, Version, due};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::times::Times;

use super::fit::{fit, open_typed, own_operation, text_field};
use super::looking::OpenSources;
use super::rows::expiry_of;
use super::{BaseVersion, PushError, PushRequest};
use crate::encode::{OperationChoice, ValueChoice};
use crate::key::KeyTemplate;
use crate::progress::{Progress, Unit};
use crate::sort::{Boundaries, Finish, SortError};
use crate::sources::{SourceOptions, SourceSet};
use crate::types::arrow_field;

/// The version that a push goes on with.
pub struct Layer {
    pub base: Arc<Version>,
    now_ms: u64,
}

impl Layer {
    /// Fails where the request contradicts what the table declares.
    pub fn new(
        request: &PushRequest,
        onto: BaseVersion,
        table: &Table,
        now_ms: u64,
    ) -> Result<Self, PushError> {
        let version = match onto {
            BaseVersion::Current => table.serving()?,
            BaseVersion::Version(version) => version,
        };
        let base = table.open_version(version)?;
        check(request, base.manifest())?;
        Ok(Self { base, now_ms })
    }

    fn manifest(&self) -> &Manifest {
        self.base.manifest()
    }

    /// Opens the request's sources by these options with the table's columns, and what encodes
    /// their rows.
    pub fn open(
        &self,
        request: &PushRequest,
        options: &SourceOptions,
    ) -> Result<OpenSources, PushError> {
        let columns = self.manifest().schema.columns().iter();
        let stored: Vec<FieldRef> = columns.map(arrow_field).collect();
        let operation = request.operation_column.as_deref();
        let extra: Vec<FieldRef> = operation.into_iter().map(text_field).collect();
        let typed = stored.iter().chain(&extra).cloned();
        if let Some(name) = operation
            && stored.iter().any(|field| field.name() == name)
        {
            let problem = own_operation(name);
            return Err(PushError::Onto { problem });
        }
        let sources = open_typed(&request.sources, options, typed)?;
        self.sources_show(&sources, operation)?;
        self.check_columns(&sources, operation)?;
        let manifest = self.manifest();
        let choice = OperationChoice {
            column: request.operation_column.clone(),
            delta: manifest.delta,
            expiry: expiry_of(manifest.ttl.as_ref()),
            now_ms: self.now_ms,
            may_lack_values: true,
            ..OperationChoice::default()
        };
        let (key, value) = (self.key()?, value_choice(manifest));
        fit(sources, stored, extra, &key, &value, &choice)
    }

    pub fn key(&self) -> Result<KeyTemplate, PushError> {
        let text = &self.manifest().key;
        text.parse().map_err(|_| PushError::Onto {
            problem: format!("its key template '{text}' is none that this program knows"),
        })
    }

    fn sources_show(&self, sources: &SourceSet, operation: Option<&str>) -> Result<(), PushError> {
        match operation {
            Some(name) if !sources.shows(name) => Err(PushError::Onto {
                problem: format!(
                    "--op names the column '{name}', which no record at the beginning of the sources has"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// A column of rows that the table does not have would be lost.
    fn check_columns(&self, sources: &SourceSet, operation: Option<&str>) -> Result<(), PushError> {
        if self.manifest().value != ValueKind::Row {
            return Ok(());
        }
        let unknown = sources.schema.fields().iter().find(|field| {
            let name = field.name().as_str();
            Some(name) != operation && self.manifest().schema.column_index(name).is_none()
        });
        match unknown {
            None => Ok(()),
            Some(field) => Err(PushError::Onto {
                problem: format!(
                    "the sources have the column '{}', which its rows do not: leave it out, or push the \
                     table whole",
                    field.name()
                ),
            }),
        }
    }

    pub fn boundaries(&self) -> Boundaries {
        let partitions = self.manifest().partitions.iter();
        Boundaries::at(partitions.map(|part| part.bounds.lower.clone()).collect())
    }

    /// What the operations of a key compose by.
    pub fn kind(&self) -> DeltaKind {
        // A table without a kind of deltas has none, so that any will do.
        self.manifest().delta.unwrap_or(DeltaKind::Append)
    }

    /// The manifest of the runs there were and those that were built, with runs merged where too
    /// many have gathered.
    pub fn finish(
        &self,
        request: &PushRequest,
        push: &Push,
        built: Vec<Option<RunRef>>,
        progress: &dyn Progress,
    ) -> Result<Manifest, PushError> {
        let mut partitions = self.manifest().partitions.clone();
        for (partition, built) in partitions.iter_mut().zip(built) {
            let mut runs = partition.runs.clone();
            runs.extend(built);
            *partition = partition.with_runs(runs);
        }
        let source = request.sources.to_string();
        let draft = ManifestDraft::like(self.manifest(), partitions, source);
        let manifest = push.manifest(draft)?;
        let due: Vec<_> = (manifest.partitions.iter().enumerate())
            .filter_map(|(at, partition)| due(&partition.runs).map(|range| (at, range)))
            .collect();
        if due.is_empty() {
            return Ok(manifest);
        }
        progress.stage("merging", None, Unit::Rows);
        let advance = |rows| progress.advance(rows);
        Ok(push.merge_many(&manifest, &due, request.threads, &advance)?)
    }
}

impl Finish for Layer {
    fn finish<'a>(
        &self,
        partition: usize,
        key: &[u8],
        operation: Operation<'a>,
    ) -> Result<Option<Operation<'a>>, SortError> {
        let update =
            |(value, expires_ms)| Operation::Update(value).with_times(Times::until(expires_ms));
        // Where nothing older is, nothing has to be kept for it.
        if !self.wants_filter(partition) {
            return Ok(operation.value().map(update));
        }
        let inserts = matches!(
            operation.plain(),
            Operation::Insert(_) | Operation::InsertDelta { .. }
        );
        // An insert takes what it meets for alive, so what has expired must not be left for it to
        // meet.
        if inserts && self.manifest().ttl.is_some() && !self.base.exists(key)? {
            return Ok(operation.value().map(update));
        }
        Ok(Some(operation))
    }

    fn wants_filter(&self, partition: usize) -> bool {
        !self.manifest().partitions[partition].runs.is_empty()
    }
}

fn value_choice(manifest: &Manifest) -> ValueChoice {
    match &manifest.value {
        ValueKind::Row => ValueChoice::Row,
        ValueKind::Bytes { column } | ValueKind::List { column, .. } => {
            ValueChoice::Column(column.clone())
        }
        ValueKind::Number { column, number } => ValueChoice::Number {
            column: column.clone(),
            number: *number,
        },
    }
}

fn check(request: &PushRequest, base: &Manifest) -> Result<(), PushError> {
    let differs = |what: &str, has: String| {
        Err(PushError::Onto {
            problem: format!("{what} there is {has}, and cannot be another: push the table whole"),
        })
    };
    if let Some(key) = &request.key
        && key.to_string() != base.key
        && !(base.key.parse()).is_ok_and(|settled| key.may_settle_as(&settled))
    {
        return differs("the key", format!("'{}'", base.key));
    }
    if let Some(delta) = request.delta
        && Some(delta) != base.delta
    {
        let has = base
            .delta
            .map_or("none".to_owned(), |kind| format!("{kind:?}"));
        return differs("the kind of deltas", has);
    }
    if let Some(ttl) = &request.ttl
        && Some(ttl) != base.ttl.as_ref()
    {
        let has = match &base.ttl {
            None => "never".to_owned(),
            Some(Ttl::AfterMs(ms)) => format!("{ms} ms after the push"),
            Some(Ttl::Column(column)) => format!("what the column '{column}' says"),
        };
        return differs("the time at which rows expire", has);
    }
    Ok(())
}

impl From<forebay_engine::ReadError> for SortError {
    fn from(error: forebay_engine::ReadError) -> Self {
        Self::Base(Box::new(error))
    }
}
