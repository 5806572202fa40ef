//! Fits the columns of sources to those of a live table.
//!
//! A table of rows takes its columns by name, cast to its types; the key may use further columns. A
//! table of bytes, numbers or lists takes one column. A table of bytes takes it from text as
//! written.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use forebay_engine::live::{self, LiveOptions};
use forebay_engine::{Ttl, ValueKind};
use forebay_run::number::Number;
use forebay_run::operation::DeltaKind;

use super::{LoadError, LoadRequest};
use crate::encode::{Encoded, Expiry, OperationChoice, RowEncoder, ValueChoice, Verb};
use crate::near;
use crate::push::PushError;
use crate::push::fit::{fit, open_typed, own_operation, text_field};
use crate::push::source_reader::OpenSources;
use crate::sources::{SourceOptions, SourceSet};
use crate::types::{arrow_field, arrow_type};

/// The command that inserts into a table of rows or lists, which SET does not support.
const STORED_INSERT: &str =
    "KV.WRITE KEY INSERT VALUE, with VALUE as the table stores it (docs/reference/run-format.md)";

/// A load's sources, with the table to fit them to.
pub struct TableFit<'a> {
    request: &'a LoadRequest,
    options: &'a LiveOptions,
    now_ms: u64,
    /// The value is text as written.
    keeps_text: bool,
}

impl<'a> TableFit<'a> {
    pub fn new(request: &'a LoadRequest, options: &'a LiveOptions, now_ms: u64) -> Self {
        Self {
            request,
            options,
            now_ms,
            keeps_text: false,
        }
    }

    /// Opens the request's sources with these options, and creates the encoder of their rows.
    pub fn open(&self, options: &SourceOptions) -> Result<OpenSources, LoadError> {
        let request = self.request;
        let choice = self.operations()?;
        let sources = self.sources(options)?;
        self.sources_show_operations(&sources)?;
        let types_one = matches!(self.options.value, ValueKind::List { .. });
        let types_one = types_one || self.number().is_some();
        let keeps_text = self.is_text_altered(&sources, options)?;
        if types_one && request.value_column.is_none() || keeps_text {
            // Once the remaining column is known, the table decides its type.
            let request = LoadRequest {
                value_column: Some(self.value_column(&sources)?),
                ..request.clone()
            };
            let fit = TableFit {
                keeps_text,
                ..TableFit::new(&request, self.options, self.now_ms)
            };
            return fit.open(options);
        }
        let (stored, value) = self.stored(&sources)?;
        let extra = self.extra(&sources, &stored)?;
        let key = request.key.settled(&sources.schema);
        let (sources, encoder) = fit(sources, stored, extra, &key, &value, &choice)?;
        self.check_values(&encoder)?;
        Ok((sources, encoder))
    }

    /// Returns the number type of the table's values, if they are numbers.
    fn number(&self) -> Option<Number> {
        match self.options.value {
            ValueKind::Row => None,
            _ => self.options.delta.and_then(DeltaKind::number),
        }
    }

    /// Returns whether the inferred type would not keep the value as written. In a table of bytes,
    /// the value has to be the text that a client would SET.
    fn is_text_altered(
        &self,
        sources: &SourceSet,
        options: &SourceOptions,
    ) -> Result<bool, LoadError> {
        let is_bytes = matches!(self.options.value, ValueKind::Bytes { .. });
        if self.keeps_text || !is_bytes || self.number().is_some() || !sources.is_text() {
            return Ok(false);
        }
        let column = self.value_column(sources)?;
        let is_given = options.columns.iter().any(|given| given.path == column);
        let field = sources.schema.field_with_name(&column);
        let alters = |kind: &DataType| kind.is_primitive() || *kind == DataType::Boolean;
        Ok(!is_given && field.is_ok_and(|field| alters(field.data_type())))
    }

    fn sources_show_operations(&self, sources: &SourceSet) -> Result<(), LoadError> {
        match &self.request.operation_column {
            Some(name) if !sources.shows(name) => Err(self.no_column("--op", name, sources)),
            _ => Ok(()),
        }
    }

    fn sources(&self, options: &SourceOptions) -> Result<SourceSet, LoadError> {
        let sources = open_typed(&self.request.sources, options, self.typed());
        sources.map_err(|error| self.lacks(error))
    }

    /// Returns the operations of the rows.
    pub fn operations(&self) -> Result<OperationChoice, LoadError> {
        let request = self.request;
        if let Some(name) = &request.operation_column
            && self.is_stored(name)
        {
            return Err(self.unfit(own_operation(name)));
        }
        if request.verb == Verb::Delta && self.options.delta.is_none() {
            return Err(self.unfit(
                "it was made without --delta, which says what deltas do: create it again with --delta, or \
                 let the rows update"
                    .to_owned(),
            ));
        }
        let own_ms = match self.options.expiry {
            live::Expiry::Never if request.ttl.is_some() => {
                return Err(self.unfit(
                    "it was made without expiry: create it again with expiry, or load without --ttl and \
                     --ttl-column"
                        .to_owned(),
                ));
            }
            live::Expiry::Never | live::Expiry::PerRecord => u64::MAX,
            live::Expiry::AfterMs(ms) => ms,
        };
        let expires = self.options.expiry != live::Expiry::Never;
        let insert = match self.options.value {
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => "SET KEY VALUE NX",
            ValueKind::Row | ValueKind::List { .. } => STORED_INSERT,
        };
        if expires && request.verb == Verb::Insert {
            return Err(self.unfit(format!(
                "its rows may expire, and a load does not look whether what an insert finds has expired: \
                 leave --as insert out, so that rows replace those of their keys; or send them to the \
                 server as {insert}; or create the table again by 'forebay create' with --ttl never"
            )));
        }
        Ok(OperationChoice {
            column: request.operation_column.clone(),
            verb: request.verb,
            refuse_inserts: expires.then(|| insert.to_owned()),
            delta: self.options.delta,
            expiry: match &request.ttl {
                None if !expires => Expiry::Never,
                None => Expiry::AfterMs(own_ms),
                Some(Ttl::AfterMs(ms)) => Expiry::AfterMs(*ms),
                Some(Ttl::Column(name)) => Expiry::Column {
                    name: name.clone(),
                    else_ms: own_ms,
                },
            },
            now_ms: self.now_ms,
            may_lack_values: request.operation_column.is_some(),
        })
    }

    /// Returns the columns whose types the table decides.
    fn typed(&self) -> Vec<FieldRef> {
        let columns = self.options.schema.columns();
        let mut typed: Vec<FieldRef> = match (&self.options.value, &self.request.value_column) {
            (ValueKind::Row, _) => columns.iter().map(arrow_field).collect(),
            (ValueKind::List { .. }, Some(name)) => {
                let lists = columns.iter().map(|column| arrow_type(&column.kind));
                lists
                    .map(|list| Arc::new(Field::new(name, list, true)))
                    .collect()
            }
            (_, Some(name)) if self.keeps_text => vec![text_field(name)],
            (_, Some(name)) => {
                let number = self.number().map(|number| match number {
                    Number::I64 => DataType::Int64,
                    Number::F64 => DataType::Float64,
                });
                let field = number.map(|number| Arc::new(Field::new(name, number, true)));
                field.into_iter().collect()
            }
            _ => Vec::new(),
        };
        typed.extend(
            self.request
                .operation_column
                .iter()
                .map(|name| text_field(name)),
        );
        typed
    }

    /// Returns whether a column of that name becomes a value, or a part of one.
    fn is_stored(&self, name: &str) -> bool {
        match self.options.value {
            ValueKind::Row => self.options.schema.column_index(name).is_some(),
            _ => self.request.value_column.as_deref() == Some(name),
        }
    }

    /// Returns the columns that are stored, and how.
    fn stored(&self, sources: &SourceSet) -> Result<(Vec<FieldRef>, ValueChoice), LoadError> {
        if self.options.value == ValueKind::Row {
            if self.request.value_column.is_some() {
                return Err(self.unfit("its values are rows: leave --value out".to_owned()));
            }
            let fields = self.options.schema.columns().iter().map(arrow_field);
            return Ok((fields.collect(), ValueChoice::Row));
        }
        let column = self.value_column(sources)?;
        let field = sources.schema.field_with_name(&column);
        let field = field.map_err(|_| self.no_column("--value", &column, sources))?;
        let value = match self.number() {
            Some(number) => ValueChoice::Number { column, number },
            None => ValueChoice::Column(column),
        };
        Ok((vec![Arc::new(field.clone())], value))
    }

    fn value_column(&self, sources: &SourceSet) -> Result<String, LoadError> {
        if let Some(column) = &self.request.value_column {
            return Ok(column.clone());
        }
        let others = self.other_columns();
        let names = sources.schema.fields().iter().map(|field| field.name());
        let left: Vec<&String> = names
            .filter(|name| !others.contains(&name.as_str()))
            .collect();
        match left[..] {
            [only] => Ok(only.clone()),
            _ => Err(self.unfit(format!(
                "a key has one value: say by --value COLUMN which; the sources have {}",
                names_of(sources.schema.fields())
            ))),
        }
    }

    /// Returns the columns that the key, --op and --ttl-column name.
    fn other_columns(&self) -> Vec<&str> {
        let request = self.request;
        let ttl = match &request.ttl {
            Some(Ttl::Column(name)) => Some(name.as_str()),
            _ => None,
        };
        let operation = request.operation_column.as_deref();
        request.key.columns().chain(operation).chain(ttl).collect()
    }

    /// Returns the columns that are needed and not stored. Refuses columns that the table does not
    /// have, because their values would be lost.
    fn extra(&self, sources: &SourceSet, stored: &[FieldRef]) -> Result<Vec<FieldRef>, LoadError> {
        let is_stored = |name: &str| stored.iter().any(|field| field.name() == name);
        let others = self.other_columns();
        if self.options.value == ValueKind::Row && !self.request.leaves_out {
            let fields = sources.schema.fields();
            let unknown = fields
                .iter()
                .find(|field| !is_stored(field.name()) && !others.contains(&field.name().as_str()));
            if let Some(field) = unknown {
                return Err(self.unfit(format!(
                    "the sources have the column '{}', which its rows do not ({}): leave it out of them",
                    field.name(),
                    names_of(stored)
                )));
            }
        }
        let mut extra: Vec<FieldRef> = Vec::new();
        for name in others {
            if is_stored(name) || extra.iter().any(|field| field.name() == name) {
                continue;
            }
            let field = sources.schema.field_with_name(name);
            let field = field.map_err(|_| self.no_column("an option", name, sources))?;
            extra.push(Arc::new(field.clone()));
        }
        Ok(extra)
    }

    /// Checks that the values have the kind of the table's values.
    fn check_values(&self, encoder: &RowEncoder) -> Result<(), LoadError> {
        let (wanted, fits) = match (&self.options.value, encoder.encoded()) {
            (ValueKind::Row, encoded) => ("rows", *encoded == Encoded::Row),
            (ValueKind::List { item, .. }, Encoded::List { item: comes, .. }) => {
                ("lists of items of another type", item == comes)
            }
            (ValueKind::List { .. }, _) => ("lists", false),
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, encoded) => {
                ("bytes", !matches!(encoded, Encoded::List { .. }))
            }
        };
        if fits {
            return Ok(());
        }
        Err(self.unfit(format!(
            "its values are {wanted}: give --value a column of such, or make a table for these"
        )))
    }

    fn no_column(&self, what: &str, name: &str, sources: &SourceSet) -> LoadError {
        self.unfit(format!(
            "{what} names the column '{name}', which the sources do not have; they have: {}{}",
            names_of(sources.schema.fields()),
            sources.why_lacking(name)
        ))
    }

    fn lacks(&self, error: PushError) -> LoadError {
        match error {
            PushError::Onto { problem } => self.unfit(problem),
            other => other.into(),
        }
    }

    fn unfit(&self, problem: String) -> LoadError {
        LoadError::Fit {
            table: self.request.table.clone(),
            problem,
        }
    }
}

fn names_of<'f>(fields: impl IntoIterator<Item = &'f FieldRef>) -> String {
    near::listed(fields.into_iter().map(|field| field.name().as_str()))
}
