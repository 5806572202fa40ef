//! GET and its relatives. Of a row or a list they see its JSON text.

use forebay_engine::Lookup;

use super::call::Call;
use super::value::{reply_value, text};
use super::{Answer, CommandError, clamp, integer};
use crate::resp::Reply;
use forebay_engine::{Source, SourceError};

pub fn get(call: &mut Call<'_>) -> Answer {
    let (source, value) = call.fetch(call.args.get(1))?;
    reply_value(call.reply, source, value.as_deref())?;
    call.check_size()
}

/// Keys of any tables and slots; each table is read in batches.
pub fn mget(call: &mut Call<'_>) -> Answer {
    call.reply.array(call.args.len() - 1);
    let mut keys = Vec::with_capacity(16);
    let mut place = 1;
    while place < call.args.len() {
        let (source, key) = call.locate(call.args.get(place))?;
        keys.clear();
        keys.push(key);
        place += 1;
        while keys.len() < 64 && place < call.args.len() {
            let (next, key) = call.locate(call.args.get(place))?;
            if next.table() != source.table() {
                break;
            }
            keys.push(key);
            place += 1;
        }
        reply_values(call, source, &keys)?;
    }
    Ok(())
}

fn reply_values<'a>(call: &mut Call<'a>, source: Source<'a>, keys: &[&[u8]]) -> Answer {
    let Source::Batch(version) = source else {
        return reply_each(call, source, keys);
    };
    if call.may_wait {
        return reply_each(call, source, keys);
    }
    let (reply, mut outcome) = (&mut *call.reply, Ok(()));
    version
        .try_get_many(keys, |_, found| {
            if outcome.is_ok() {
                outcome = reply_found(reply, source, &found);
            }
        })
        .map_err(SourceError::from)?;
    outcome?;
    call.check_size()
}

fn reply_each<'a>(call: &mut Call<'a>, source: Source<'a>, keys: &[&[u8]]) -> Answer {
    for key in keys {
        let value = call.value(source, key)?;
        reply_value(call.reply, source, value.as_deref())?;
        call.check_size()?;
    }
    Ok(())
}

/// [`reply_value`] of what a look-up that does not wait found.
#[inline]
pub fn reply_found(reply: &mut Reply, source: Source<'_>, found: &Lookup<'_>) -> Answer {
    match found {
        Lookup::Found(value) => reply_value(reply, source, Some(value)),
        Lookup::Absent => reply_value(reply, source, None),
        Lookup::NotResident => Err(CommandError::NotResident),
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
    let (source, value) = call.fetch(call.args.get(1))?;
    let len = value
        .map(|value| text(source, value).map(|text| text.len()))
        .transpose()?;
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

pub fn getrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (integer(call.args.get(2))?, integer(call.args.get(3))?);
    let (source, value) = call.fetch(call.args.get(1))?;
    let text = value
        .map(|value| text(source, value))
        .transpose()?
        .unwrap_or_default();
    let range = match (start, end) {
        (..0, ..0) if start > end => 0..0,
        // An end before the beginning is the beginning, other than in a list.
        (_, ..0) => clamp(
            start,
            end.saturating_add(text.len() as i64).max(0),
            text.len(),
        ),
        _ => clamp(start, end, text.len()),
    };
    call.reply.bulk(&text[range]);
    call.check_size()
}
