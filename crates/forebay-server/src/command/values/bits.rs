//! SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. Bit 0 is the highest bit of the first byte.

use forebay_engine::live::MAX_VALUE_BYTES;

use super::string::span;
use crate::command::keys::put::{has_room, only_bytes};
use crate::command::running::call::Call;
use crate::command::running::txn::Edit;
use crate::command::running::value::text;
use crate::command::{Answer, CommandError, clamp, integer};

/// Returns the index of a bit's byte, and the bit in the byte.
fn place(argument: &[u8]) -> Result<(usize, u8), CommandError> {
    let offset = integer(argument)
        .ok()
        .and_then(|bit| u64::try_from(bit).ok());
    let place = offset.map(|bit| ((bit >> 3) as usize, 0x80 >> (bit & 7)));
    place
        .filter(|(byte, _)| *byte < MAX_VALUE_BYTES)
        .ok_or_else(out_of_range)
}

fn out_of_range() -> CommandError {
    CommandError::error("ERR bit offset is not an integer or out of range")
}

/// SETBIT key offset 0|1: replies with the old bit.
pub fn setbit(edit: &mut Edit<'_, '_>) -> Answer {
    let (byte, mask) = place(edit.args.get(2))?;
    let bit = match integer(edit.args.get(3)) {
        Ok(0) => 0,
        Ok(1) => mask,
        _ => {
            return Err(CommandError::error(
                "ERR bit is not an integer or out of range",
            ));
        }
    };
    only_bytes(edit)?;
    let mut value = edit.old_bytes();
    if !has_room(&value, byte + 1) {
        return Err(out_of_range());
    }
    value.resize(value.len().max(byte + 1), 0);
    edit.reply.int(i64::from(value[byte] & mask != 0));
    value[byte] = value[byte] & !mask | bit;
    edit.txn.rewrite(edit.key(), value)
}

pub fn getbit(call: &mut Call<'_>) -> Answer {
    let (byte, mask) = place(call.args.get(2))?;
    let (source, value) = call.fetch(call.args.get(1))?;
    let text = value.map(|value| text(source, value)).transpose()?;
    let byte = text.and_then(|text| text.get(byte).copied()).unwrap_or(0);
    call.reply.int(i64::from(byte & mask != 0));
    Ok(())
}

/// BITCOUNT key [start end [BYTE | BIT]].
pub fn bitcount(call: &mut Call<'_>) -> Answer {
    let args = call.args;
    let bits = match args.len() {
        2 | 4 => false,
        5 if args.is(4, "bit") => true,
        5 if args.is(4, "byte") => false,
        _ => return Err(CommandError::syntax()),
    };
    let (start, end) = match args.len() {
        2 => (0, -1),
        _ => (integer(args.get(2))?, integer(args.get(3))?),
    };
    let (source, value) = call.fetch(args.get(1))?;
    let text = value.map(|value| text(source, value)).transpose()?;
    let text = text.unwrap_or_default();
    let count = match bits {
        true => {
            let range = span(start, end, text.len() * 8);
            ones_before(&text, range.end) - ones_before(&text, range.start)
        }
        false => ones(&text[span(start, end, text.len())]),
    };
    call.reply.count(count);
    Ok(())
}

fn ones(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| byte.count_ones() as usize).sum()
}

/// Counts the ones in the first `bits` bits.
fn ones_before(bytes: &[u8], bits: usize) -> usize {
    let (whole, rest) = (bits / 8, bits % 8);
    let part = match rest {
        0 => 0,
        _ => (bytes[whole] >> (8 - rest)).count_ones() as usize,
    };
    ones(&bytes[..whole]) + part
}

/// BITPOS key bit [start [end [BYTE | BIT]]]: the first bit that is `bit`. Without an end, the
/// string counts as followed by zeros.
pub fn bitpos(call: &mut Call<'_>) -> Answer {
    let args = call.args;
    let wanted = match integer(args.get(2))? {
        bit @ (0 | 1) => bit == 1,
        _ => return Err(CommandError::error("ERR The bit argument must be 1 or 0.")),
    };
    let bits = match args.len() {
        3..=5 => false,
        6 if args.is(5, "bit") => true,
        6 if args.is(5, "byte") => false,
        _ => return Err(CommandError::syntax()),
    };
    let bound = |at: usize, or: i64| match args.len() > at {
        true => integer(args.get(at)),
        false => Ok(or),
    };
    let (start, end) = (bound(3, 0)?, bound(4, -1)?);
    let (source, value) = call.fetch(args.get(1))?;
    let Some(value) = value else {
        call.reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let text = text(source, value)?;
    let unit = if bits { 1 } else { 8 };
    let len = text.len() * 8 / unit;
    // Unlike in a span, both may be before the beginning, and then mean the first.
    let from_start = |place: i64| match place {
        ..0 => place.saturating_add(len as i64).max(0),
        _ => place,
    };
    let range = clamp(from_start(start), from_start(end), len);
    let (first, last) = (range.start * unit, range.end * unit);
    call.reply.int(match first_bit(&text, first, last, wanted) {
        Some(bit) => bit as i64,
        None if !wanted && args.len() < 5 && first < last => last as i64,
        None => -1,
    });
    Ok(())
}

fn first_bit(bytes: &[u8], first: usize, last: usize, wanted: bool) -> Option<usize> {
    let nothing = if wanted { 0 } else { 0xff };
    let mut bit = first;
    while bit < last {
        let byte = bytes[bit / 8];
        if bit.is_multiple_of(8) && byte == nothing {
            bit += 8;
        } else if (byte & (0x80 >> (bit % 8)) != 0) == wanted {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
}

/// BITOP AND | OR | XOR | NOT destination key ...: the length of the stored value. Shorter strings
/// are padded with zeros.
pub fn bitop(edit: &mut Edit<'_, '_>) -> Answer {
    let args = edit.args;
    let join: fn(u8, u8) -> u8 = match () {
        () if args.is(1, "and") => |one, other| one & other,
        () if args.is(1, "or") => |one, other| one | other,
        () if args.is(1, "xor") => |one, other| one ^ other,
        () if args.is(1, "not") && args.len() == 4 => |one, _| !one,
        () if args.is(1, "not") => {
            return Err(CommandError::error(
                "ERR BITOP NOT must be called with a single source key.",
            ));
        }
        () => return Err(CommandError::syntax()),
    };
    only_bytes(edit)?;
    let value = |place| edit.txn.look(edit.key_at(place));
    let mut joined = value(3)?.map_or_else(Vec::new, |stored| stored.value);
    if args.is(1, "not") {
        joined.iter_mut().for_each(|byte| *byte = join(*byte, 0));
    }
    // One at a time, because there may be many large ones. Missing keys count as zeros.
    for place in 4..args.len() {
        let next = value(place)?.map_or_else(Vec::new, |stored| stored.value);
        joined.resize(joined.len().max(next.len()), 0);
        for (at, sum) in joined.iter_mut().enumerate() {
            *sum = join(*sum, next.get(at).copied().unwrap_or(0));
        }
    }
    let len = joined.len();
    let destination = edit.key_at(2);
    edit.reply.count(len);
    match len {
        0 => edit.txn.delete(destination),
        _ => edit.txn.set(destination, joined)?,
    }
    Ok(())
}
