//! SET, DEL, APPEND and their relatives, on values of bytes and on numbers as decimal text.

use forebay_run::number::Number;

use super::expire::{self, ExpiryChange, Unit};
use crate::command::running::txn::{Edit, number};
use crate::command::{Answer, CommandError, integer};
use crate::resp::{Args, Reply};

/// The options of SET.
#[derive(Debug, Default)]
struct SetOptions<'a> {
    only: Option<PutOnly<'a>>,
    get: bool,
    expiry: ExpiryChange<'a>,
}

/// The condition under which SET sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutOnly<'a> {
    Absent,
    Present,
    Equal(&'a [u8]),
}

impl<'a> SetOptions<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < args.len() {
            let only = if args.is(at, "nx") {
                Some(PutOnly::Absent)
            } else if args.is(at, "xx") {
                Some(PutOnly::Present)
            } else if args.is(at, "ifeq") && at + 1 < args.len() {
                at += 1;
                Some(PutOnly::Equal(args.get(at)))
            } else {
                None
            };
            match (only, ExpiryChange::parse(args, at)) {
                (Some(_), _) if options.only.is_some_and(|other| Some(other) != only) => {
                    return Err(CommandError::syntax());
                }
                (Some(_), _) => options.only = only,
                (None, Some((ExpiryChange::Persist, _))) => return Err(CommandError::syntax()),
                (None, Some((change, arguments))) => {
                    options.expiry = options.expiry.and(change)?;
                    at += arguments - 1;
                }
                (None, None) if args.is(at, "get") => options.get = true,
                (None, None) => return Err(CommandError::syntax()),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns whether a SET reads the value that it overwrites.
pub fn set_reads(args: &Args<'_>) -> bool {
    if args.len() == 3 {
        return false;
    }
    SetOptions::parse(args).is_ok_and(|options| {
        options.only.is_some() || options.get || matches!(options.expiry, ExpiryChange::Keep)
    })
}

/// SET key value [NX | XX | IFEQ value] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL].
pub fn set(edit: &mut Edit<'_, '_>) -> Answer {
    let options = SetOptions::parse(&edit.args)?;
    let until = options.expiry.until(edit, "set")?;
    let value = edit.encode(edit.args.get(2))?;
    let sets = match options.only {
        None => true,
        Some(PutOnly::Absent) => edit.old().is_none(),
        Some(PutOnly::Present) => edit.old().is_some(),
        Some(PutOnly::Equal(wanted)) => edit.old_text()?.as_deref() == Some(wanted),
    };
    match (options.get, sets) {
        (true, _) => edit.reply_old()?,
        (false, true) => edit.reply.ok(),
        (false, false) => edit.reply.null(),
    }
    match sets {
        true => expire::put(edit, value, until),
        false => Ok(()),
    }
}

pub fn setex(edit: &mut Edit<'_, '_>) -> Answer {
    set_for(edit, expire::EX, "setex")
}

pub fn psetex(edit: &mut Edit<'_, '_>) -> Answer {
    set_for(edit, expire::PX, "psetex")
}

/// SETEX key time value.
fn set_for(edit: &mut Edit<'_, '_>, unit: Unit, command: &str) -> Answer {
    let until = ExpiryChange::At(unit, edit.args.get(2)).until(edit, command)?;
    let value = edit.encode(edit.args.get(3))?;
    expire::put(edit, value, until)?;
    edit.reply.ok();
    Ok(())
}

pub fn setnx(edit: &mut Edit<'_, '_>) -> Answer {
    let value = edit.encode(edit.args.get(2))?;
    let sets = edit.old().is_none();
    if sets {
        edit.txn.set(edit.key(), value)?;
    }
    edit.reply.int(i64::from(sets));
    Ok(())
}

pub fn getset(edit: &mut Edit<'_, '_>) -> Answer {
    let value = edit.encode(edit.args.get(2))?;
    edit.reply_old()?;
    edit.txn.set(edit.key(), value)
}

pub fn getdel(edit: &mut Edit<'_, '_>) -> Answer {
    edit.reply_old()?;
    if edit.old().is_some() {
        edit.txn.delete(edit.key());
    }
    Ok(())
}

/// Refuses commands that change a part of a value if values are not strings of bytes.
pub fn only_bytes(edit: &Edit<'_, '_>) -> Answer {
    if edit.source().number().is_some() {
        return Err(CommandError::error(format!(
            "WRONGTYPE table '{}' holds numbers: KV.DELTA and INCRBY add to them",
            edit.source().table()
        )));
    }
    edit.encode(b"").map(|_| ())
}

/// The longest value that a write far past the end of a shorter one may create. By default no
/// client can send a longer value at once, and such a request costs the client almost nothing.
const MAX_GROWN_BYTES: usize = 16 << 20;

/// Returns whether a value can be changed, and made longer, up to `end`.
pub fn has_room(value: &[u8], end: usize) -> bool {
    end <= value.len().max(MAX_GROWN_BYTES)
}

/// SETRANGE key offset value: zeros fill the gap between the old value and the offset.
pub fn setrange(edit: &mut Edit<'_, '_>) -> Answer {
    let (offset, part) = (integer(edit.args.get(2))?, edit.args.get(3));
    let offset =
        usize::try_from(offset).map_err(|_| CommandError::error("ERR offset is out of range"))?;
    only_bytes(edit)?;
    let mut value = edit.old_bytes();
    if !part.is_empty() {
        let end = offset.saturating_add(part.len());
        if !has_room(&value, end) {
            return Err(CommandError::error(
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ));
        }
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(part);
    }
    edit.reply.count(value.len());
    match part {
        b"" => Ok(()),
        _ => edit.txn.rewrite(edit.key(), value),
    }
}

/// APPEND key value: a table with the delta of joining bytes writes only the new bytes.
pub fn append(edit: &mut Edit<'_, '_>) -> Answer {
    only_bytes(edit)?;
    let more = edit.encode(edit.args.get(2))?;
    let length = edit.old().map_or(0, |stored| stored.value.len()) + more.len();
    if edit.joins() {
        edit.txn.delta_on(edit.key(), &more)?;
    } else {
        edit.txn.extend(edit.key(), &more)?;
    }
    edit.reply.count(length);
    Ok(())
}

/// KV.DELTA key amount: adds by the table's kind of deltas, without reading.
pub fn delta(edit: &mut Edit<'_, '_>) -> Answer {
    let text = edit.args.get(2);
    let operand = edit.encode(text)?;
    // An infinity plus the opposite one would be NaN for good.
    if edit.source().number() == Some(Number::F64)
        && number(text).is_some_and(|number| !number.is_finite())
    {
        return Err(CommandError::error(
            "ERR increment would produce NaN or Infinity",
        ));
    }
    edit.txn.delta(edit.key(), &operand)?;
    edit.reply.ok();
    Ok(())
}

/// MSET: sets the pairs of one partition.
pub fn mset(edit: &mut Edit<'_, '_>, places: &[usize]) -> Result<i64, CommandError> {
    if edit.args.len().is_multiple_of(2) {
        return Err(CommandError::error(
            "ERR wrong number of arguments for 'mset' command",
        ));
    }
    let encode = |&place: &usize| Ok((place, edit.encode(edit.args.get(place + 1))?));
    let values: Vec<_> = places
        .iter()
        .map(encode)
        .collect::<Result<_, CommandError>>()?;
    for (place, value) in values {
        edit.txn.set(edit.key_at(place), value)?;
    }
    Ok(0)
}

pub fn mset_done(reply: &mut Reply, _: i64) {
    reply.ok();
}

/// MSETNX: sets all of the pairs, or none if any of the keys exists.
pub fn msetnx(edit: &mut Edit<'_, '_>) -> Answer {
    let places: Vec<usize> = (1..edit.args.len()).step_by(2).collect();
    if edit.args.len().is_multiple_of(2) {
        return Err(CommandError::error(
            "ERR wrong number of arguments for 'msetnx' command",
        ));
    }
    let values = places
        .iter()
        .map(|place| edit.encode(edit.args.get(place + 1)));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let free = |&place: &usize| edit.txn.get(edit.key_at(place)).is_none();
    let sets = places.iter().all(free);
    if sets {
        for (place, value) in places.into_iter().zip(values) {
            edit.txn.set(edit.key_at(place), value)?;
        }
    }
    edit.reply.int(i64::from(sets));
    Ok(())
}

/// DEL, UNLINK: the number of keys that existed.
pub fn del(edit: &mut Edit<'_, '_>, places: &[usize]) -> Result<i64, CommandError> {
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
