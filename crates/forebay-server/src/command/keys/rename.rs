//! RENAME, RENAMENX and COPY, within a partition of a live table. They keep a key's expiry.

use crate::command::running::txn::Edit;
use crate::command::{Answer, CommandError, integer};

pub fn rename(edit: &mut Edit<'_, '_>) -> Answer {
    move_key(edit, true)?;
    edit.reply.ok();
    Ok(())
}

/// RENAMENX: only if the new key does not exist.
pub fn renamenx(edit: &mut Edit<'_, '_>) -> Answer {
    let moved = move_key(edit, false)?;
    edit.reply.int(i64::from(moved));
    Ok(())
}

fn move_key(edit: &mut Edit<'_, '_>, replace: bool) -> Result<bool, CommandError> {
    if edit.old().is_none() {
        return Err(CommandError::error("ERR no such key"));
    }
    if edit.key() == edit.key_at(2) {
        return Ok(replace);
    }
    let copied = copy_key(edit, replace)?;
    if copied {
        edit.txn.delete(edit.key());
    }
    Ok(copied)
}

/// Copies a key. Returns `false` if the source is absent, or the destination exists and `replace`
/// is not set.
fn copy_key(edit: &mut Edit<'_, '_>, replace: bool) -> Result<bool, CommandError> {
    let to = edit.key_at(2);
    let Some(stored) = edit.old().cloned() else {
        return Ok(false);
    };
    if !replace && edit.txn.get(to).is_some() {
        return Ok(false);
    }
    edit.txn.set_until(to, stored.value, stored.expires_ms)?;
    Ok(true)
}

/// COPY source destination [DB 0] [REPLACE].
pub fn copy(edit: &mut Edit<'_, '_>) -> Answer {
    let (args, mut at, mut replace) = (edit.args, 3, false);
    while at < args.len() {
        if args.is(at, "replace") {
            replace = true;
        } else if args.is(at, "db") && at + 1 < args.len() {
            at += 1;
            if integer(args.get(at))? != 0 {
                return Err(CommandError::error("ERR DB index is out of range"));
            }
        } else {
            return Err(CommandError::syntax());
        }
        at += 1;
    }
    if edit.key() == edit.key_at(2) {
        return Err(CommandError::error(
            "ERR source and destination objects are the same",
        ));
    }
    let copied = copy_key(edit, replace)?;
    edit.reply.int(i64::from(copied));
    Ok(())
}
