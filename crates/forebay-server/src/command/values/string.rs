//! GET's relatives. Of a row or a list they see the JSON text.

use std::ops::Range;

use crate::command::running::call::Call;
use crate::command::running::value::text;
use crate::command::{Answer, clamp, integer};

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
    call.reply.bulk(&text[span(start, end, text.len())]);
    call.check_size()
}

/// Returns the part of a string of `len` bytes or bits from `start` to `end`, as [`clamp`] does.
/// Unlike [`clamp`], it takes an end before the beginning as the beginning.
pub fn span(start: i64, end: i64, len: usize) -> Range<usize> {
    match (start, end) {
        (..0, ..0) if start > end => 0..0,
        (_, ..0) => clamp(start, end.saturating_add(len as i64).max(0), len),
        _ => clamp(start, end, len),
    }
}
