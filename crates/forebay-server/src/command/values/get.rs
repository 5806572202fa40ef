//! GET and MGET, and [`reply_values`], which every reply with values of keys uses.
//!
//! Its callers are a GET, consecutive GETs of a pipeline, a GET in MULTI, a GET on a thread that
//! may wait, and MGET.

use forebay_engine::{Lookup, Source, SourceError};

use crate::command::running::call::{Call, Reading};
use crate::command::running::value::reply_value;
use crate::command::{Answer, CommandError};
use crate::resp::Reply;

/// The number of keys that are looked up together.
pub const KEYS_AT_ONCE: usize = 64;

pub fn get(call: &mut Call<'_>) -> Answer {
    let (source, key) = call.locate(call.args.get(1))?;
    reply_values(source, &[key], &call.reading(), call.reply).1
}

/// MGET of keys of any tables and slots. Each table is read in batches.
pub fn mget(call: &mut Call<'_>) -> Answer {
    call.reply.array(call.args.len() - 1);
    let mut keys = Vec::with_capacity(16);
    let mut place = 1;
    let mut next = Some(call.locate(call.args.get(place))?);
    while let Some((source, key)) = next.take() {
        keys.clear();
        keys.push(key);
        place += 1;
        while place < call.args.len() {
            let (table, key) = call.locate(call.args.get(place))?;
            if keys.len() == KEYS_AT_ONCE || table.table() != source.table() {
                next = Some((table, key));
                break;
            }
            keys.push(key);
            place += 1;
        }
        reply_values(source, &keys, &call.reading(), call.reply).1?;
    }
    Ok(())
}

/// Appends the replies to GETs of keys of one table, in their order. Stops at the first that fails
/// or has to wait, for which nothing is written, and where the replies are full. Returns how many
/// were answered, and the result of the last one.
#[inline]
pub fn reply_values(
    source: Source<'_>,
    keys: &[&[u8]],
    reading: &Reading<'_>,
    reply: &mut Reply,
) -> (usize, Answer) {
    let (mut answered, mut outcome) = (0, Ok(()));
    let mut take = |value: Option<&[u8]>, reply: &mut Reply| {
        let start = reply.len();
        let answer = reply_value(reply, source, value).and_then(|()| reading.check(reply, start));
        match &answer {
            Ok(()) => answered += 1,
            Err(_) => reply.truncate(start),
        }
        answer
    };
    match source {
        Source::Batch(version) if reading.finds_many() => {
            let looked_up = version.try_get_many(keys, |_, found| {
                if outcome.is_ok() && reply.len() < reading.full_bytes {
                    outcome = match &found {
                        Lookup::Found(value) => take(Some(value), reply),
                        Lookup::Absent => take(None, reply),
                        Lookup::NotResident => Err(CommandError::NotResident),
                    };
                }
            });
            if let Err(error) = looked_up
                && outcome.is_ok()
            {
                outcome = Err(CommandError::from(SourceError::from(error)));
            }
        }
        _ => {
            outcome = keys.iter().try_for_each(|key| {
                if reply.len() >= reading.full_bytes {
                    return Ok(());
                }
                let value = reading.value(source, key)?;
                take(value.as_deref(), reply)
            });
        }
    }
    (answered, outcome)
}
