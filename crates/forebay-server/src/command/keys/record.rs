//! KV.WRITE: writes one record in the form that a load produces, without reading.
//!
//! `KV.WRITE key UPDATE value`, `INSERT value`, `DELTA amount`, `INSERT value DELTA amount`, each
//! followed by `PXAT unix-ms` if it has an expiry of its own, or `DELETE`. Values and amounts have
//! the form in which tables store them (docs/reference/run-format.md). So rows, lists and numbers
//! are, byte for byte, the same as in runs built from the same records. The server validates them
//! first.

use forebay_engine::ValueKind;
use forebay_run::operation::Operation;
use forebay_run::row::{Datum, ListView, RowView};

use super::expire::{ExpiryChange, ExpiryTime};
use crate::command::running::txn::Edit;
use crate::command::{Answer, CommandError};
use crate::resp::Args;

/// Returns the command's operation, and the index of the argument with its expiry.
fn parse<'a>(args: &Args<'a>) -> Option<(Operation<'a>, usize)> {
    let has_operand = args.len() > 3;
    if args.is(2, "delete") {
        return (args.len() == 3).then_some((Operation::Delete, 3));
    }
    if !has_operand {
        return None;
    }
    let value = args.get(3);
    if args.is(2, "update") {
        Some((Operation::Update(value), 4))
    } else if args.is(2, "delta") {
        Some((Operation::Delta(value), 4))
    } else if args.is(2, "insert") && args.len() > 5 && args.is(4, "delta") {
        let delta = args.get(5);
        Some((Operation::InsertDelta { value, delta }, 6))
    } else if args.is(2, "insert") {
        Some((Operation::Insert(value), 4))
    } else {
        None
    }
}

/// KV.WRITE key operation.
pub fn write(edit: &mut Edit<'_, '_>) -> Answer {
    let args = edit.args;
    let (operation, at) = parse(&args).ok_or_else(CommandError::syntax)?;
    let expiry = match (at == args.len(), args.is(at, "pxat")) {
        (true, _) => ExpiryChange::Fresh,
        (false, true) if at + 2 == args.len() => {
            let parsed = ExpiryChange::parse(&args, at).ok_or_else(CommandError::syntax)?;
            parsed.0
        }
        _ => return Err(CommandError::syntax()),
    };
    let until = match expiry.until(edit, "kv.write")? {
        ExpiryTime::At(moment_ms) => Some(moment_ms),
        _ => None,
    };
    match operation {
        Operation::Update(value) | Operation::Insert(value) => check_value(edit, value)?,
        Operation::InsertDelta { value, .. } => check_value(edit, value)?,
        _ => {}
    }
    edit.txn.write(edit.key(), operation, until)?;
    edit.reply.ok();
    Ok(())
}

/// Refuses an invalid value of the table. The table itself checks numbers and amounts.
fn check_value(edit: &Edit<'_, '_>, value: &[u8]) -> Answer {
    let source = edit.source();
    let checked = match source.kind() {
        ValueKind::Row => {
            RowView::new(source.schema(), value).and_then(|row| Datum::Row(row).check())
        }
        ValueKind::List { item, .. } => {
            ListView::new(item, value).and_then(|list| Datum::List(list).check())
        }
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => return Ok(()),
    };
    checked.map_err(|error| {
        CommandError::error(format!(
            "ERR this is no value of table '{}' in the form in which it stores them: {error}",
            source.table()
        ))
    })
}
