//! RPUSH, LPOP, LSET, LREM and their relatives.
//!
//! The server reads the packed list and writes a new one.

use std::ops::Range;

use forebay_engine::ValueKind;
use forebay_run::row::{Datum, Kind, ListView, ListWriter, RowError};

use super::list::{index_of, is_item};
use crate::command::hashes::cell::Cell;
use crate::command::running::txn::Edit;
use crate::command::{Answer, CommandError, clamp, integer};

/// A packed list as it is stored, and its number of items.
pub struct PackedList {
    len: usize,
    bytes: Vec<u8>,
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Left,
    Right,
}

pub fn item<'t>(edit: &Edit<'_, 't>) -> Result<&'t Kind, CommandError> {
    match edit.source().kind() {
        ValueKind::List { item, .. } => Ok(item),
        _ => Err(CommandError::wrong_type(edit.source(), "lists")),
    }
}

/// Returns the list that the key holds. REQUIRES: the table's values are lists.
fn old<'e>(edit: &'e Edit<'_, '_>, kind: &'e Kind) -> Result<Option<ListView<'e>>, CommandError> {
    let view = |stored: &'e Vec<u8>| ListView::new(kind, stored);
    let stored = edit.old().map(|stored| &stored.value);
    Ok(stored.map(view).transpose()?)
}

pub fn pack<'v>(
    kind: &Kind,
    mut items: impl Iterator<Item = Result<Datum<'v>, RowError>>,
) -> Result<PackedList, RowError> {
    let mut writer = ListWriter::new(kind);
    writer.begin();
    items.try_for_each(|item| writer.datum(kind, &item?))?;
    let (len, mut bytes) = (writer.len(), Vec::new());
    writer.finish(&mut bytes)?;
    Ok(PackedList { len, bytes })
}

/// Stores a key's new list. An empty list deletes the key.
pub fn put(edit: &mut Edit<'_, '_>, key: &[u8], list: PackedList) -> Answer {
    match list.len {
        0 => edit.txn.delete(key),
        _ => edit.txn.rewrite(key, list.bytes)?,
    }
    Ok(())
}

pub fn rpush(edit: &mut Edit<'_, '_>) -> Answer {
    push(edit, End::Right)
}

pub fn lpush(edit: &mut Edit<'_, '_>) -> Answer {
    push(edit, End::Left)
}

pub fn rpushx(edit: &mut Edit<'_, '_>) -> Answer {
    push_if_there(edit, End::Right)
}

pub fn lpushx(edit: &mut Edit<'_, '_>) -> Answer {
    push_if_there(edit, End::Left)
}

fn push_if_there(edit: &mut Edit<'_, '_>, end: End) -> Answer {
    if edit.old().is_some() {
        return push(edit, end);
    }
    item(edit)?;
    edit.reply.int(0);
    Ok(())
}

fn push(edit: &mut Edit<'_, '_>, end: End) -> Answer {
    let kind = item(edit)?;
    let texts = edit.args.skip(2);
    let cells = texts.iter().map(|text| Cell::parse("value", kind, text));
    let cells: Vec<Cell> = cells.collect::<Result<_, _>>()?;
    let new = cells.iter().map(|cell| Ok(cell.datum()));
    let view = old(edit, kind)?;
    let there = view.iter().flat_map(ListView::items);
    let list = match end {
        End::Left => pack(kind, new.rev().chain(there))?,
        End::Right => pack(kind, there.chain(new))?,
    };
    edit.reply.count(list.len);
    put(edit, edit.key(), list)
}

pub fn rpop(edit: &mut Edit<'_, '_>) -> Answer {
    pop(edit, End::Right, "rpop")
}

pub fn lpop(edit: &mut Edit<'_, '_>) -> Answer {
    pop(edit, End::Left, "lpop")
}

/// LPOP, RPOP key [count].
fn pop(edit: &mut Edit<'_, '_>, end: End, name: &str) -> Answer {
    let kind = item(edit)?;
    let many = || {
        integer(edit.args.get(2))
            .ok()
            .and_then(|count| usize::try_from(count).ok())
    };
    let count =
        match edit.args.len() {
            2 => None,
            3 => Some(many().ok_or_else(|| {
                CommandError::error("ERR value is out of range, must be positive")
            })?),
            _ => {
                return Err(CommandError::error(format!(
                    "ERR wrong number of arguments for '{name}' command"
                )));
            }
        };
    let Some(bytes) = edit.old().map(|stored| stored.value.clone()) else {
        match count {
            Some(_) => edit.reply.null_array(),
            None => edit.reply.null(),
        }
        return Ok(());
    };
    let view = ListView::new(kind, &bytes)?;
    let taken = count.unwrap_or(1).min(view.len());
    match count {
        Some(_) => edit.reply.array(taken),
        None if taken == 0 => edit.reply.null(),
        None => {}
    }
    if taken == 0 {
        return Ok(());
    }
    for place in 0..taken {
        let index = match end {
            End::Left => place,
            End::Right => view.len() - 1 - place,
        };
        edit.reply.bulk_by(|out| view.text(index, out))?;
    }
    let left = match end {
        End::Left => taken..view.len(),
        End::Right => 0..view.len() - taken,
    };
    put(edit, edit.key(), part(kind, &view, left)?)
}

fn part(kind: &Kind, view: &ListView<'_>, range: Range<usize>) -> Result<PackedList, RowError> {
    pack(kind, range.map(|index| view.datum(index)))
}

/// LTRIM key start stop: keeps the items that LRANGE would return.
pub fn ltrim(edit: &mut Edit<'_, '_>) -> Answer {
    let (start, stop) = (integer(edit.args.get(2))?, integer(edit.args.get(3))?);
    let kind = item(edit)?;
    if let Some(view) = old(edit, kind)? {
        let range = clamp(start, stop, view.len());
        if range.len() < view.len() {
            let kept = part(kind, &view, range)?;
            put(edit, edit.key(), kept)?;
        }
    }
    edit.reply.ok();
    Ok(())
}

/// LSET key index value.
pub fn lset(edit: &mut Edit<'_, '_>) -> Answer {
    let kind = item(edit)?;
    let view = old(edit, kind)?;
    let view = view.ok_or_else(|| CommandError::error("ERR no such key"))?;
    let index = index_of(integer(edit.args.get(2))?, view.len());
    let index = index.ok_or_else(|| CommandError::error("ERR index out of range"))?;
    let cell = Cell::parse("value", kind, edit.args.get(3))?;
    let new = |at| match at == index {
        true => Ok(cell.datum()),
        false => view.datum(at),
    };
    let list = pack(kind, (0..view.len()).map(new))?;
    edit.reply.ok();
    put(edit, edit.key(), list)
}

/// LREM key count value: deletes the first items equal to `value`, from the end if `count` is
/// negative, all if it is 0.
pub fn lrem(edit: &mut Edit<'_, '_>) -> Answer {
    let count = integer(edit.args.get(2))?;
    let kind = item(edit)?;
    let Some(view) = old(edit, kind)? else {
        edit.reply.int(0);
        return Ok(());
    };
    let mut equal = Vec::new();
    for index in 0..view.len() {
        if is_item(&view, index, edit.args.get(3))? {
            equal.push(index);
        }
    }
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let gone = match count {
        0 => &equal[..],
        1.. => &equal[..most.min(equal.len())],
        _ => &equal[equal.len().saturating_sub(most)..],
    };
    let left = (0..view.len()).filter(|index| gone.binary_search(index).is_err());
    let list = pack(kind, left.map(|index| view.datum(index)))?;
    let removed = gone.len();
    edit.reply.count(removed);
    match removed {
        0 => Ok(()),
        _ => put(edit, edit.key(), list),
    }
}

/// LINSERT key BEFORE | AFTER pivot value: the length, or -1 if no item equals `pivot`.
pub fn linsert(edit: &mut Edit<'_, '_>) -> Answer {
    let args = edit.args;
    let behind = args.is(2, "after");
    if !behind && !args.is(2, "before") {
        return Err(CommandError::syntax());
    }
    let kind = item(edit)?;
    let Some(view) = old(edit, kind)? else {
        edit.reply.int(0);
        return Ok(());
    };
    let mut pivot = None;
    for index in 0..view.len() {
        if is_item(&view, index, args.get(3))? {
            pivot = Some(index);
            break;
        }
    }
    let Some(pivot) = pivot else {
        edit.reply.int(-1);
        return Ok(());
    };
    let cell = Cell::parse("value", kind, args.get(4))?;
    let at = pivot + usize::from(behind);
    let items = |range: Range<usize>| range.map(|index| view.datum(index));
    let new = std::iter::once(Ok(cell.datum()));
    let list = pack(kind, items(0..at).chain(new).chain(items(at..view.len())))?;
    edit.reply.count(list.len);
    put(edit, edit.key(), list)
}
