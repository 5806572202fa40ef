//! Determines the operation and the expiry of a row.

use std::sync::Arc;

use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::row::{Datum, Kind, Schema};
use forebay_run::times::Times;
use serde::{Deserialize, Serialize};

use super::bad_row::BadRow;
use super::{EncodeError, find};
use crate::convert::cells::Cells;
use crate::convert::scalar::scalar;

/// The rules that turn rows into operations other than updates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationChoice {
    /// The column with a row's operation: insert, update, delete or delta.
    pub column: Option<String>,
    /// The operation of rows if there is no such column.
    pub verb: Verb,
    /// If set, inserts are bad rows; the text names the command that inserts instead.
    pub refuse_inserts: Option<String>,
    /// The kind of deltas that the table accepts, if any.
    pub delta: Option<DeltaKind>,
    pub expiry: Expiry,
    /// The time of the push, in milliseconds since 1970-01-01 UTC.
    pub now_ms: u64,
    /// Whether each row is checked for values in columns that cannot be null. A delete needs only
    /// those of its key.
    pub may_lack_values: bool,
}

/// The expiry of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    #[default]
    Never,
    /// This many milliseconds after the push.
    AfterMs(u64),
    /// The moment in this column: a time, or a number of seconds after the push. If it is null,
    /// `else_ms` milliseconds after the push.
    Column { name: String, else_ms: u64 },
}

/// The kind of operation of a row, before its value is known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    #[default]
    Update,
    Insert,
    Delete,
    Delta,
}

/// An [`OperationChoice`] bound to the columns of a schema.
#[derive(Debug, Clone)]
pub(super) struct Operations {
    column: Option<OperandPlace>,
    verb: Verb,
    refuse_inserts: Option<Arc<str>>,
    delta: Option<DeltaKind>,
    expiry: BoundExpiry,
    now_ms: u64,
    /// Columns that cannot be null.
    required: Vec<(usize, Arc<str>)>,
}

#[derive(Debug, Clone)]
struct OperandPlace {
    index: usize,
    name: Arc<str>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum BoundExpiry {
    Never,
    At(u64),
    Column { place: OperandPlace, else_ms: u64 },
}

impl Operations {
    /// Binds the choice. `all` has the columns of batches; `stored` those of the rows, which come
    /// first.
    pub fn new(
        all: &Schema,
        stored: &Schema,
        choice: &OperationChoice,
    ) -> Result<Operations, EncodeError> {
        let place = |column: &String, what| -> Result<OperandPlace, EncodeError> {
            let index = find(all, column, what)?;
            Ok(OperandPlace {
                index,
                name: Arc::from(column.as_str()),
                kind: all.columns()[index].kind.clone(),
            })
        };
        let column = choice.column.as_ref().map(|column| place(column, "--op"));
        let column = column.transpose()?;
        if let Some(column) = &column
            && column.kind != Kind::Text
        {
            return Err(EncodeError::OperationType {
                column: column.name.to_string(),
            });
        }
        let expiry = match &choice.expiry {
            Expiry::Never => BoundExpiry::Never,
            Expiry::AfterMs(ms) => BoundExpiry::At(choice.now_ms.saturating_add(*ms)),
            Expiry::Column { name, else_ms } => {
                let place = place(name, "--ttl-column")?;
                check_expiry(&place)?;
                let else_ms = choice.now_ms.saturating_add(*else_ms);
                BoundExpiry::Column { place, else_ms }
            }
        };
        let columns = stored.columns().iter().enumerate();
        let required = columns
            .filter(|(_, column)| choice.may_lack_values && !column.nullable)
            .map(|(index, column)| (index, Arc::from(column.name.as_str())));
        Ok(Operations {
            column,
            verb: choice.verb,
            refuse_inserts: choice.refuse_inserts.as_deref().map(Arc::from),
            delta: choice.delta,
            expiry,
            now_ms: choice.now_ms,
            required: required.collect(),
        })
    }

    /// Returns whether this checks nulls row by row.
    pub fn checks_nulls(&self) -> bool {
        !self.required.is_empty()
    }

    /// Returns the kind of operation of the row.
    pub fn verb(&self, cells: &[Cells<'_>], row: usize) -> Result<Verb, BadRow> {
        let Some(place) = &self.column else {
            return Ok(self.verb);
        };
        let unreadable = |error: forebay_run::row::RowError| BadRow::Unreadable {
            reason: error.to_string(),
        };
        let word = match scalar(&cells[place.index], &place.kind, row).map_err(unreadable)? {
            Datum::Text(word) => word,
            _ => "",
        };
        let verbs = [
            ("update", Verb::Update),
            ("insert", Verb::Insert),
            ("delete", Verb::Delete),
            ("delta", Verb::Delta),
        ];
        let found = verbs
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name));
        match (found, &self.refuse_inserts) {
            (Some((_, Verb::Delta)), _) if self.delta.is_none() => Err(BadRow::NoDelta),
            (Some((_, Verb::Insert)), Some(instead)) => Err(BadRow::NoInsert {
                instead: Arc::clone(instead),
            }),
            (Some((_, verb)), _) => Ok(*verb),
            (None, _) => Err(BadRow::Operation {
                column: place.name.clone(),
                word: word.chars().take(40).collect(),
            }),
        }
    }

    /// Checks that all columns are present that a row with a value needs.
    pub fn check_nulls(&self, cells: &[Cells<'_>], row: usize) -> Result<(), BadRow> {
        match self
            .required
            .iter()
            .find(|(index, _)| cells[*index].is_null(row))
        {
            None => Ok(()),
            Some((_, column)) => Err(BadRow::NullColumn {
                column: column.clone(),
            }),
        }
    }

    /// Returns the operation of a row with this value.
    pub fn operation<'v>(
        &self,
        verb: Verb,
        value: &'v [u8],
        cells: &[Cells<'_>],
        row: usize,
    ) -> Result<Operation<'v>, BadRow> {
        let plain = match verb {
            Verb::Update => Operation::Update(value),
            Verb::Insert => Operation::Insert(value),
            Verb::Delta => Operation::Delta(value),
            Verb::Delete => return Ok(Operation::Delete),
        };
        let expires_ms = match &self.expiry {
            BoundExpiry::Never => return Ok(plain),
            BoundExpiry::At(ms) => *ms,
            BoundExpiry::Column { place, else_ms } => {
                self.expires_ms(place, *else_ms, cells, row)?
            }
        };
        Ok(plain.with_times(Times {
            written_ms: self.now_ms,
            expires_ms,
        }))
    }

    fn expires_ms(
        &self,
        place: &OperandPlace,
        else_ms: u64,
        cells: &[Cells<'_>],
        row: usize,
    ) -> Result<u64, BadRow> {
        let bad = || BadRow::Expiry {
            column: place.name.clone(),
        };
        let datum = scalar(&cells[place.index], &place.kind, row).map_err(|_| bad())?;
        let after = |seconds: f64| {
            let ms = self.now_ms as f64 + seconds * 1000.0;
            (!ms.is_nan()).then_some(ms.max(0.0) as u64)
        };
        // An expiry at the maximum time means never, which is stored in another form.
        let moment = match datum {
            Datum::Null => return Ok(else_ms),
            Datum::Int(seconds) => after(seconds as f64),
            Datum::UInt(seconds) => after(seconds as f64),
            Datum::Float32(seconds) => after(f64::from(seconds)),
            Datum::Float64(seconds) => after(seconds),
            Datum::Date(days) => Some((i64::from(days) * 86_400_000).max(0) as u64),
            Datum::Date64(ms) => Some(ms.max(0) as u64),
            Datum::Timestamp { value, unit, .. } => {
                let ms = i128::from(value) * 1000 / i128::from(unit.per_second());
                Some(ms.clamp(0, i128::from(u64::MAX)) as u64)
            }
            _ => None,
        };
        moment.ok_or_else(bad)
    }
}

fn check_expiry(place: &OperandPlace) -> Result<(), EncodeError> {
    let kind = &place.kind;
    let time = matches!(kind, Kind::Date32 | Kind::Date64 | Kind::Timestamp { .. });
    let seconds = kind.integer().is_some() || matches!(kind, Kind::Float32 | Kind::Float64);
    if time || seconds {
        Ok(())
    } else {
        Err(EncodeError::ExpiryType {
            column: place.name.to_string(),
        })
    }
}
