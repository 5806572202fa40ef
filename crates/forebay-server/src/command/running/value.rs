//! The values that GET returns.

use std::borrow::Cow;

use forebay_engine::{Source, Value, ValueKind};
use forebay_run::row::{ListView, RowView};

use crate::command::{Answer, CommandError};
use crate::resp::Reply;

/// Replies with a value as GET does: bytes as they are, numbers in decimal, rows and lists as JSON,
/// null if absent.
#[inline]
pub fn reply_value(reply: &mut Reply, source: Source<'_>, value: Option<&[u8]>) -> Answer {
    match (value, source.kind()) {
        (None, _) => reply.null(),
        (Some(value), ValueKind::Bytes { .. }) if source.number().is_none() => reply.bulk(value),
        (Some(value), _) => {
            reply.bulk_by(|out| write_text(source, value, out).map(|()| true))?;
        }
    }
    Ok(())
}

/// Appends a value's text as GET gives it.
pub fn write_text(source: Source<'_>, value: &[u8], out: &mut Vec<u8>) -> Result<(), CommandError> {
    match source.kind() {
        ValueKind::Row => RowView::new(source.schema(), value)?.json(out)?,
        ValueKind::List { item, .. } => ListView::new(item, value)?.json(out)?,
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => match source.number() {
            Some(number) => number.write_text(value, out)?,
            None => out.extend_from_slice(value),
        },
    }
    Ok(())
}

/// Returns GET's reply to a value, for commands that read into it.
pub fn text<'a>(source: Source<'_>, value: Value<'a>) -> Result<Cow<'a, [u8]>, CommandError> {
    if matches!(source.kind(), ValueKind::Bytes { .. }) && source.number().is_none() {
        return Ok(value);
    }
    let mut out = Vec::new();
    write_text(source, &value, &mut out)?;
    Ok(Cow::Owned(out))
}
