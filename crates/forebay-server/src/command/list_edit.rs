//! RPUSH, LPUSH, RPOP, LPOP on lists: the server reads the packed list, and writes the new one.

use forebay_engine::ValueKind;
use forebay_run::row::{Kind, ListView, ListWriter};

use super::cell::Cell;
use super::txn::Edit;
use super::{Answer, CommandError, integer};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

fn item<'t>(edit: &Edit<'_, 't>) -> Result<&'t Kind, CommandError> {
    match edit.source().kind() {
        ValueKind::List { item, .. } => Ok(item),
        _ => Err(CommandError::wrong_type(edit.source(), "lists")),
    }
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
    let mut cells: Vec<Cell> = cells.collect::<Result<_, _>>()?;
    let old = edit.old().map_or(&[][..], |stored| &stored.value);
    let view = ListView::new(kind, old)?;
    let mut writer = ListWriter::new(kind);
    writer.begin();
    if end == End::Left {
        cells.reverse();
        cells
            .iter()
            .try_for_each(|cell| writer.datum(kind, &cell.datum()))?;
    }
    view.items()
        .try_for_each(|item| writer.datum(kind, &item?))?;
    if end == End::Right {
        cells
            .iter()
            .try_for_each(|cell| writer.datum(kind, &cell.datum()))?;
    }
    edit.reply.count(writer.len());
    let mut packed = Vec::new();
    writer.finish(&mut packed)?;
    edit.txn.rewrite(edit.key(), packed)
}

pub fn rpop(edit: &mut Edit<'_, '_>) -> Answer {
    pop(edit, End::Right)
}

pub fn lpop(edit: &mut Edit<'_, '_>) -> Answer {
    pop(edit, End::Left)
}

/// LPOP, RPOP key [count].
fn pop(edit: &mut Edit<'_, '_>, end: End) -> Answer {
    let kind = item(edit)?;
    let count = match edit.args.len() {
        2 => None,
        3 => Some(
            usize::try_from(integer(edit.args.get(2))?)
                .map_err(|_| CommandError::error("ERR value is out of range, must be positive"))?,
        ),
        _ => return Err(CommandError::syntax()),
    };
    let Some(old) = edit.old().map(|stored| stored.value.clone()) else {
        match count {
            Some(_) => edit.reply.null_array(),
            None => edit.reply.null(),
        }
        return Ok(());
    };
    let view = ListView::new(kind, &old)?;
    if view.is_empty() && count.is_none() {
        edit.reply.null();
        return Ok(());
    }
    let taken = count.unwrap_or(1).min(view.len());
    if count.is_some() {
        edit.reply.array(taken);
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
    if left.is_empty() {
        edit.txn.delete(edit.key());
        return Ok(());
    }
    let mut writer = ListWriter::new(kind);
    writer.begin();
    left.into_iter()
        .try_for_each(|index| writer.datum(kind, &view.datum(index)?))?;
    let mut packed = Vec::new();
    writer.finish(&mut packed)?;
    edit.txn.rewrite(edit.key(), packed)
}
