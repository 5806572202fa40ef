//! Values as programs get them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::ValueKind;
use forebay_run::number::Number;

use super::error::Error;
use super::row::{List, Row};
use super::shape::Shape;

/// A value, as what its table holds. Values of a batch table are borrowed from its file where they
/// lie there in one piece; [`Value::into_owned`] parts them from it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Value<'v> {
    /// Of a table of bytes; text is its UTF-8.
    Bytes(Cow<'v, [u8]>),
    /// Of a table of whole numbers.
    I64(i64),
    /// Of a table of floats.
    F64(f64),
    /// Of a table of rows.
    Row(Row<'v>),
    /// Of a table of lists.
    List(List<'v>),
}

impl<'v> Value<'v> {
    /// A stored value of a table.
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

    /// The bytes of a value of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a value of bytes, where they are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// A whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::I64(number) => Some(*number),
            _ => None,
        }
    }

    /// A float.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::F64(number) => Some(*number),
            _ => None,
        }
    }

    /// A row.
    pub fn as_row(&self) -> Option<&Row<'v>> {
        match self {
            Value::Row(row) => Some(row),
            _ => None,
        }
    }

    /// A list.
    pub fn as_list(&self) -> Option<&List<'v>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The bytes of a value of bytes, without a copy where they are its own.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Value::Bytes(bytes) => Some(bytes.into_owned()),
            _ => None,
        }
    }

    /// The text of a value of bytes, where they are UTF-8.
    pub fn into_text(self) -> Option<String> {
        String::from_utf8(self.into_bytes()?).ok()
    }

    /// The value by itself, to be kept beyond its table.
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
    /// The key is not there.
    Absent,
    /// Until it is deleted or replaced.
    Forever,
    /// So much longer.
    For(Duration),
}

impl Lifetime {
    /// Of a key that expires at a moment, `u64::MAX` being never; of none, of an absent one.
    pub(super) fn of(expires_ms: Option<u64>, now_ms: u64) -> Self {
        match expires_ms {
            None => Lifetime::Absent,
            // One less than never is what an endless time to live comes to.
            Some(expires_ms) if expires_ms >= u64::MAX - 1 => Lifetime::Forever,
            Some(expires_ms) => {
                Lifetime::For(Duration::from_millis(expires_ms.saturating_sub(now_ms)))
            }
        }
    }
}
