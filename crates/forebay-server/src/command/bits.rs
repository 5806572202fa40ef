//! SETBIT, GETBIT, BITCOUNT. Bit 0 is the highest of the first byte.

use forebay_engine::live::MAX_VALUE_BYTES;

use super::call::Call;
use super::put::only_bytes;
use super::string::span;
use super::txn::Edit;
use super::value::text;
use super::{Answer, CommandError, integer};

/// The byte that a bit lies in, and the bit there.
fn place(argument: &[u8]) -> Result<(usize, u8), CommandError> {
    let offset = integer(argument)
        .ok()
        .and_then(|bit| u64::try_from(bit).ok());
    let place = offset.map(|bit| ((bit >> 3) as usize, 0x80 >> (bit & 7)));
    place
        .filter(|(byte, _)| *byte < MAX_VALUE_BYTES)
        .ok_or_else(|| CommandError::error("ERR bit offset is not an integer or out of range"))
}

/// SETBIT key offset 0|1: the bit as it was.
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

/// Of the first `bits` bits.
fn ones_before(bytes: &[u8], bits: usize) -> usize {
    let (whole, rest) = (bits / 8, bits % 8);
    let part = match rest {
        0 => 0,
        _ => (bytes[whole] >> (8 - rest)).count_ones() as usize,
    };
    ones(&bytes[..whole]) + part
}
