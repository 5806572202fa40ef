//! GET and its relatives. Of a row or a list they see its JSON text.

use std::borrow::Cow;

use forebay_engine::{Lookup, Value, ValueKind, Version};
use forebay_run::row::{ListView, RowView};

use super::call::Call;
use super::{Answer, Stop, clamp, integer};
use crate::resp::Reply;

/// Replies with a value as GET does: bytes as they are, rows and lists as JSON, null when absent.
#[inline]
pub fn reply_value(reply: &mut Reply, version: &Version, value: Option<&[u8]>) -> Answer {
    match (value, &version.manifest().value) {
        (None, _) => reply.null(),
        (Some(value), ValueKind::Bytes { .. }) => reply.bulk(value),
        (Some(value), _) => {
            reply.bulk_by(|out| json(version, value, out).map(|()| true))?;
        }
    }
    Ok(())
}

/// Appends a row or a list as JSON, a number as decimal text.
pub fn json(version: &Version, value: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let manifest = version.manifest();
    match &manifest.value {
        ValueKind::Row => RowView::new(&manifest.schema, value)?.json(out)?,
        ValueKind::List { item, .. } => ListView::new(item, value)?.json(out)?,
        ValueKind::Number { number, .. } => number
            .write_text(value, out)
            .map_err(|error| Stop::error(format!("ERR the stored value is damaged: {error}")))?,
        ValueKind::Bytes { .. } => out.extend_from_slice(value),
    }
    Ok(())
}

/// What GET would reply, for commands that look into it.
fn text<'a>(version: &Version, value: Value<'a>) -> Result<Cow<'a, [u8]>, Stop> {
    if matches!(version.manifest().value, ValueKind::Bytes { .. }) {
        return Ok(value);
    }
    let mut out = Vec::new();
    json(version, &value, &mut out)?;
    Ok(Cow::Owned(out))
}

pub fn get(call: &mut Call<'_>) -> Answer {
    let (version, value) = call.fetch(call.args.get(1))?;
    reply_value(call.reply, version, value.as_deref())?;
    call.check_size()
}

/// Keys of any tables and slots; each table is read in batches.
pub fn mget(call: &mut Call<'_>) -> Answer {
    call.reply.array(call.args.len() - 1);
    let mut keys = Vec::with_capacity(16);
    let mut place = 1;
    while place < call.args.len() {
        let (version, key) = call.locate(call.args.get(place))?;
        keys.clear();
        keys.push(key);
        place += 1;
        while keys.len() < 64 && place < call.args.len() {
            let (next, key) = call.locate(call.args.get(place))?;
            if !std::ptr::eq(next, version) {
                break;
            }
            keys.push(key);
            place += 1;
        }
        reply_values(call, version, &keys)?;
    }
    Ok(())
}

fn reply_values<'a>(call: &mut Call<'a>, version: &'a Version, keys: &[&[u8]]) -> Answer {
    if call.may_wait {
        for key in keys {
            let value = call.value(version, key)?;
            reply_value(call.reply, version, value.as_deref())?;
            call.check_size()?;
        }
        return Ok(());
    }
    let (reply, mut outcome) = (&mut *call.reply, Ok(()));
    version.try_get_many(keys, |_, found| {
        if outcome.is_ok() {
            outcome = reply_found(reply, version, &found);
        }
    })?;
    outcome?;
    call.check_size()
}

/// [`reply_value`] of what a look-up that does not wait found.
#[inline]
pub fn reply_found(reply: &mut Reply, version: &Version, found: &Lookup<'_>) -> Answer {
    match found {
        Lookup::Found(value) => reply_value(reply, version, Some(value)),
        Lookup::Absent => reply_value(reply, version, None),
        Lookup::NotResident => Err(Stop::NotResident),
    }
}

pub fn exists(call: &mut Call<'_>) -> Answer {
    let mut found = 0;
    for wire in call.args.skip(1).iter() {
        found += usize::from(call.fetch(wire)?.1.is_some());
    }
    call.reply.count(found);
    Ok(())
}

pub fn strlen(call: &mut Call<'_>) -> Answer {
    let (version, value) = call.fetch(call.args.get(1))?;
    let len = value
        .map(|value| text(version, value).map(|text| text.len()))
        .transpose()?;
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

pub fn getrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (integer(call.args.get(2))?, integer(call.args.get(3))?);
    let (version, value) = call.fetch(call.args.get(1))?;
    let text = value
        .map(|value| text(version, value))
        .transpose()?
        .unwrap_or_default();
    call.reply.bulk(&text[clamp(start, end, text.len())]);
    call.check_size()
}
