//! Pushes onto another version: keeps its runs, and adds a small run to each changed partition.
//!
//! The version's declarations apply: order, key, value, columns, kind of deltas, expiry. One thread
//! reads the sources, so that records of one key are composed in their order. The push reads
//! nothing of the older runs, with two exceptions. If rows expire, it looks up the keys of inserts.
//! Partitions with too many runs (`forebay_engine::due`) are merged.

use std::sync::Arc;

use arrow_schema::FieldRef;
use forebay_engine::{Manifest, ManifestDraft, Push, RunRef, Table, Ttl, ValueKind, Version, due};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::times::Times;

use super::fit::{fit, open_typed, own_operation, text_field};
use super::rows::expiry_of;
use super::source_reader::OpenSources;
use super::{BaseVersion, PushError, PushRequest};
use crate::encode::{OperationChoice, ValueChoice};
use crate::key::KeyTemplate;
use crate::progress::{Progress, Unit};
use crate::sort::{Boundaries, Finish, SortError};
use crate::sources::{SourceOptions, SourceSet};
use crate::types::arrow_field;

/// The version onto which a push adds its records.
pub struct Layer {
    pub base: Arc<Version>,
    now_ms: u64,
}

impl Layer {
    /// Checks that the request does not contradict the table's declarations.
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

    /// Opens the request's sources with these options and the table's columns, and creates the
    /// encoder of their rows.
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
            problem: format!("its key template '{text}' is not one that this program knows"),
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

    /// Refuses columns that the table does not have, because their values would be lost.
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

    /// Returns the kind of deltas by which the operations of a key are composed.
    pub fn kind(&self) -> DeltaKind {
        // A table without a kind of deltas has no deltas, so any kind works.
        self.manifest().delta.unwrap_or(DeltaKind::Append)
    }

    /// Returns the manifest with the existing runs and the new ones. Runs are merged in partitions
    /// that have too many.
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
        // Without older runs, deletes need not be kept.
        if !self.wants_filter(partition) {
            return Ok(operation.value().map(update));
        }
        let inserts = matches!(
            operation.plain(),
            Operation::Insert(_) | Operation::InsertDelta { .. }
        );
        // An insert treats any record it meets as live. Expired records must therefore not remain
        // for it to meet.
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
