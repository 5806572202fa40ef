//! LMOVE and RPOPLPUSH, between two lists of a partition or within one.

use forebay_run::row::ListView;

use super::list_edit::{End, item, pack, put};
use crate::command::running::txn::Edit;
use crate::command::{Answer, CommandError};

/// RPOPLPUSH source destination.
pub fn rpoplpush(edit: &mut Edit<'_, '_>) -> Answer {
    move_item(edit, End::Right, End::Left)
}

/// LMOVE source destination LEFT|RIGHT LEFT|RIGHT.
pub fn lmove(edit: &mut Edit<'_, '_>) -> Answer {
    let (from, to) = (end(edit, 3)?, end(edit, 4)?);
    move_item(edit, from, to)
}

fn end(edit: &Edit<'_, '_>, at: usize) -> Result<End, CommandError> {
    match () {
        () if edit.args.is(at, "left") => Ok(End::Left),
        () if edit.args.is(at, "right") => Ok(End::Right),
        () => Err(CommandError::syntax()),
    }
}

fn move_item(edit: &mut Edit<'_, '_>, from: End, to: End) -> Answer {
    let kind = item(edit)?;
    let (source, destination) = (edit.key(), edit.key_at(2));
    let Some(source_bytes) = value(edit, source) else {
        edit.reply.null();
        return Ok(());
    };
    let source_view = ListView::new(kind, &source_bytes)?;
    let Some(last) = source_view.len().checked_sub(1) else {
        edit.reply.null();
        return Ok(());
    };
    let (moved, left) = match from {
        End::Left => (0, 1..last + 1),
        End::Right => (last, 0..last),
    };
    edit.reply.bulk_by(|out| source_view.text(moved, out))?;
    let (one, left) = (
        [source_view.datum(moved)?],
        left.map(|index| source_view.datum(index)),
    );
    let around = source == destination;
    if !around {
        let list = pack(kind, left.clone())?;
        put(edit, source, list)?;
    }
    let destination_bytes = value(edit, destination).filter(|_| !around);
    let there = destination_bytes
        .as_ref()
        .map(|bytes| ListView::new(kind, bytes))
        .transpose()?;
    let there = there.iter().flat_map(ListView::items);
    // If the item moves within one list, the rest of that list is the destination.
    let there = left.filter(|_| around).chain(there);
    let one = one.into_iter().map(Ok);
    let list = match to {
        End::Left => pack(kind, one.chain(there))?,
        End::Right => pack(kind, there.chain(one))?,
    };
    put(edit, destination, list)
}

fn value(edit: &Edit<'_, '_>, key: &[u8]) -> Option<Vec<u8>> {
    edit.txn.get(key).map(|stored| stored.value.clone())
}
