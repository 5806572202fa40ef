//! SET, DEL, APPEND and their relatives: values of bytes, and numbers as decimal text.

use super::txn::Edit;
use super::{Answer, Stop};
use crate::resp::{Args, Reply};

/// What SET is told beside key and value.
#[derive(Debug, Default)]
struct SetOptions<'a> {
    only: Option<Only<'a>>,
    get: bool,
}

/// When SET sets.
#[derive(Debug, Clone, Copy)]
enum Only<'a> {
    Absent,
    Present,
    Equal(&'a [u8]),
}

impl<'a> SetOptions<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, Stop> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < args.len() {
            let only = if args.is(at, "nx") {
                Some(Only::Absent)
            } else if args.is(at, "xx") {
                Some(Only::Present)
            } else if args.is(at, "ifeq") && at + 1 < args.len() {
                at += 1;
                Some(Only::Equal(args.get(at)))
            } else {
                None
            };
            match only {
                Some(_) if options.only.is_some() => return Err(Stop::syntax()),
                Some(_) => options.only = only,
                None if args.is(at, "get") => options.get = true,
                None => return Err(Stop::syntax()),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Whether a SET looks at what it overwrites.
pub fn set_reads(args: &Args<'_>) -> bool {
    args.len() > 3
}

/// SET key value [NX | XX | IFEQ value] [GET].
pub fn set(edit: &mut Edit<'_, '_>) -> Answer {
    let options = SetOptions::parse(&edit.args)?;
    let value = edit.encode(edit.args.get(2))?;
    let sets = match options.only {
        None => true,
        Some(Only::Absent) => edit.old().is_none(),
        Some(Only::Present) => edit.old().is_some(),
        Some(Only::Equal(wanted)) => edit.old_text()?.as_deref() == Some(wanted),
    };
    match (options.get, sets) {
        (true, _) => edit.reply_old()?,
        (false, true) => edit.reply.ok(),
        (false, false) => edit.reply.null(),
    }
    if sets {
        edit.txn.set(edit.key(), value);
    }
    Ok(())
}

pub fn setnx(edit: &mut Edit<'_, '_>) -> Answer {
    let value = edit.encode(edit.args.get(2))?;
    let sets = edit.old().is_none();
    if sets {
        edit.txn.set(edit.key(), value);
    }
    edit.reply.int(i64::from(sets));
    Ok(())
}

pub fn getset(edit: &mut Edit<'_, '_>) -> Answer {
    let value = edit.encode(edit.args.get(2))?;
    edit.reply_old()?;
    edit.txn.set(edit.key(), value);
    Ok(())
}

pub fn getdel(edit: &mut Edit<'_, '_>) -> Answer {
    edit.reply_old()?;
    if edit.old().is_some() {
        edit.txn.delete(edit.key());
    }
    Ok(())
}

/// APPEND key value: a table that joins bytes writes only what is new.
pub fn append(edit: &mut Edit<'_, '_>) -> Answer {
    if edit.source().number().is_some() {
        return Err(Stop::error(format!(
            "WRONGTYPE table '{}' holds numbers: KV.DELTA and INCRBY add to them",
            edit.source().table()
        )));
    }
    let more = edit.encode(edit.args.get(2))?;
    let old = edit
        .old()
        .map(|stored| stored.value.clone())
        .unwrap_or_default();
    edit.reply.count(old.len() + more.len());
    if edit.joins() {
        return edit.txn.delta(edit.key(), &more);
    }
    edit.txn.set(edit.key(), [old, more].concat());
    Ok(())
}

/// KV.DELTA key amount: adds by the table's kind of deltas, without reading.
pub fn delta(edit: &mut Edit<'_, '_>) -> Answer {
    let operand = edit.encode(edit.args.get(2))?;
    edit.txn.delta(edit.key(), &operand)?;
    edit.reply.ok();
    Ok(())
}

/// MSET: the pairs of one partition.
pub fn mset(edit: &mut Edit<'_, '_>, places: &[usize]) -> Result<i64, Stop> {
    if edit.args.len().is_multiple_of(2) {
        return Err(Stop::error(
            "ERR wrong number of arguments for 'mset' command",
        ));
    }
    for &place in places {
        let value = edit.encode(edit.args.get(place + 1))?;
        edit.txn.set(edit.key_at(place), value);
    }
    Ok(0)
}

pub fn mset_done(reply: &mut Reply, _: i64) {
    reply.ok();
}

/// DEL, UNLINK: how many of the keys were there.
pub fn del(edit: &mut Edit<'_, '_>, places: &[usize]) -> Result<i64, Stop> {
    let mut deleted = 0;
    for &place in places {
        let key = edit.key_at(place);
        if edit.txn.get(key).is_some() {
            edit.txn.delete(key);
            deleted += 1;
        }
    }
    Ok(deleted)
}

pub fn del_done(reply: &mut Reply, deleted: i64) {
    reply.int(deleted);
}
