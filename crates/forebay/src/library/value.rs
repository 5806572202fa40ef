//! Values that a program reads.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::ValueKind;
use forebay_run::number::Number;

use super::error::Error;
use super::row::{List, Row};
use super::shape::Shape;

/// A value, with the type of its table. A value of a batch table borrows from its file if it is
/// contiguous there; [`Value::into_owned`] copies it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Value<'v> {
    /// A value of a table of bytes; text is its UTF-8.
    Bytes(Cow<'v, [u8]>),
    /// A value of a table of whole numbers.
    I64(i64),
    /// A value of a table of floats.
    F64(f64),
    /// A value of a table of rows.
    Row(Row<'v>),
    /// A value of a table of lists.
    List(List<'v>),
}

impl<'v> Value<'v> {
    /// Returns the value for stored bytes.
    pub(super) fn of(shape: &Arc<Shape>, stored: Cow<'v, [u8]>) -> Result<Self, Error> {
        if let Some(number) = shape.number {
            let bytes: Result<[u8; 8], _> = (&*stored).try_into();
            let bytes = bytes.map_err(|_| {
                shape.unreadable(format!("a number has 8 bytes, not {}", stored.len()))
            })?;
            return Ok(match number {
                Number::I64 => Value::I64(i64::from_le_bytes(bytes)),
                Number::F64 => Value::F64(f64::from_le_bytes(bytes)),
            });
        }
        Ok(match &shape.kind {
            ValueKind::Row => Value::Row(Row::new(Arc::clone(shape), stored)),
            ValueKind::List { .. } => Value::List(List::new(Arc::clone(shape), stored)),
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => Value::Bytes(stored),
        })
    }

    /// Returns the bytes of a value of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text of a value of bytes, if they are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// Returns a whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::I64(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns a float.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::F64(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns a row.
    pub fn as_row(&self) -> Option<&Row<'v>> {
        match self {
            Value::Row(row) => Some(row),
            _ => None,
        }
    }

    /// Returns a list.
    pub fn as_list(&self) -> Option<&List<'v>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the bytes of a value of bytes, without a copy if the value owns them.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Value::Bytes(bytes) => Some(bytes.into_owned()),
            _ => None,
        }
    }

    /// Returns the text of a value of bytes, if they are UTF-8.
    pub fn into_text(self) -> Option<String> {
        String::from_utf8(self.into_bytes()?).ok()
    }

    /// Returns the value with its own data, so that it can outlive its table.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::I64(number) => Value::I64(number),
            Value::F64(number) => Value::F64(number),
            Value::Row(row) => Value::Row(row.into_owned()),
            Value::List(list) => Value::List(list.into_owned()),
        }
    }
}

/// How long a key lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The key does not exist.
    Absent,
    /// The key lasts until it is deleted or replaced.
    Forever,
    /// The key lasts for this time.
    For(Duration),
}

impl Lifetime {
    /// Returns the lifetime for an expiry time, where `u64::MAX` is never and `None` an absent key.
    pub(super) fn of(expires_ms: Option<u64>, now_ms: u64) -> Self {
        match expires_ms {
            None => Lifetime::Absent,
            // One less than never is the result of an endless time to live.
            Some(expires_ms) if expires_ms >= u64::MAX - 1 => Lifetime::Forever,
            Some(expires_ms) => {
                Lifetime::For(Duration::from_millis(expires_ms.saturating_sub(now_ms)))
            }
        }
    }
}
