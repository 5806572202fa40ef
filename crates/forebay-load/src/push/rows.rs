//! Turns the rows of a table that is pushed as a whole into keys, values and expiry.

use arrow_schema::SchemaRef;
use forebay_engine::{ManifestDraft, RunRef, Ttl, ValueKind};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use super::source_reader::OpenSources;
use super::{PushError, PushRequest, partitions};
use crate::column_profile::TableProfile;
use crate::encode::{EncodeError, Encoded, Expiry, OperationChoice, RowEncoder, ValueChoice};
use crate::key::KeyTemplate;
use crate::sort::Boundaries;
use crate::sources::{Input, SourceOptions, SourceSet};

/// The rules for the rows of such a table.
#[derive(Debug, Clone)]
pub struct PushRows {
    pub key: KeyTemplate,
    /// The value as stored: numbers if deltas add to them.
    pub value: ValueChoice,
    pub delta: Option<DeltaKind>,
    pub ttl: Option<Ttl>,
    /// The time of the push, in milliseconds since 1970-01-01 UTC.
    pub now_ms: u64,
}

/// The counts made while rows were read and their runs written.
#[derive(Debug)]
pub struct RowCounts<'a> {
    /// The runs at the indices of their partitions; `None` for a partition without rows.
    pub runs: Vec<Option<RunRef>>,
    /// The number of records in the runs.
    pub records: u64,
    /// The profile of the rows read, of which some may have been left out.
    pub profile: &'a TableProfile,
}

impl PushRows {
    pub fn of(request: &PushRequest, now_ms: u64) -> Result<Self, PushError> {
        Ok(Self {
            key: request.key.clone().ok_or(PushError::NoKey)?,
            value: value_choice(request)?,
            delta: request.delta,
            ttl: request.ttl.clone(),
            now_ms,
        })
    }

    /// Opens the sources, and creates the encoder of their rows.
    pub fn open(&self, sources: &Input, options: &SourceOptions) -> Result<OpenSources, PushError> {
        let mut sources = SourceSet::open(sources, options)?;
        // Uses all existing columns, so that errors list them.
        let encoder = self.encoder(&sources.schema);
        let encoder = encoder.map_err(|error| error.explained(|name| sources.why_lacking(name)))?;
        if self.delta == Some(DeltaKind::Append)
            && !matches!(encoder.encoded(), Encoded::Bytes { .. })
        {
            return Err(PushError::AppendToNested { values: "lists" });
        }
        let Some(column) = self.value.column() else {
            return Ok((sources, encoder));
        };
        let mut needed: Vec<&str> = self.key.columns().collect();
        needed.push(column);
        if let Some(Ttl::Column(name)) = &self.ttl {
            needed.push(name);
        }
        sources.keep_columns(&needed)?;
        let encoder = self.encoder(&sources.schema)?;
        Ok((sources, encoder))
    }

    /// Creates the encoder of rows of these columns, which are those that the table needs.
    pub fn encoder(&self, schema: &SchemaRef) -> Result<RowEncoder, EncodeError> {
        let choice = self.ttl.as_ref().map(|ttl| OperationChoice {
            delta: self.delta,
            expiry: expiry_of(Some(ttl)),
            now_ms: self.now_ms,
            ..OperationChoice::default()
        });
        RowEncoder::beside(schema, Vec::new(), &self.key, &self.value, choice.as_ref())
    }

    /// Returns the manifest of the version.
    pub fn draft(
        &self,
        encoder: &RowEncoder,
        order: Order,
        boundaries: &Boundaries,
        counted: RowCounts<'_>,
        source: String,
    ) -> ManifestDraft {
        ManifestDraft {
            order,
            value: value_kind(encoder),
            schema: encoder.schema().clone(),
            key: encoder.template().to_string(),
            delta: self.delta,
            ttl: self.ttl.clone(),
            onto: None,
            partitions: partitions::of_runs(boundaries, counted.runs),
            stats: counted
                .profile
                .stats(encoder.schema(), encoder.batch_schema(), counted.records),
            source,
        }
    }
}

fn value_choice(request: &PushRequest) -> Result<ValueChoice, PushError> {
    match (request.delta, request.value.column()) {
        (None, _) => Ok(request.value.clone()),
        (Some(DeltaKind::Append), None) => Err(PushError::AppendToNested {
            values: "whole rows",
        }),
        (Some(_), None) => Err(PushError::DeltaOfRows),
        (Some(kind), Some(column)) => Ok(match kind.number() {
            None => request.value.clone(),
            Some(number) => ValueChoice::Number {
                column: column.to_owned(),
                number,
            },
        }),
    }
}

pub fn expiry_of(ttl: Option<&Ttl>) -> Expiry {
    match ttl {
        None => Expiry::Never,
        Some(Ttl::AfterMs(ms)) => Expiry::AfterMs(*ms),
        Some(Ttl::Column(column)) => Expiry::Column {
            name: column.clone(),
            else_ms: u64::MAX,
        },
    }
}

fn value_kind(encoder: &RowEncoder) -> ValueKind {
    match encoder.encoded().clone() {
        Encoded::Row => ValueKind::Row,
        Encoded::Bytes { column } => ValueKind::Bytes { column },
        Encoded::Number { column, number } => ValueKind::Number { column, number },
        Encoded::List { column, item } => ValueKind::List { column, item },
    }
}
