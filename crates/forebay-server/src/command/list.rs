//! A list-valued table as Redis lists.

use forebay_engine::{Value, ValueKind};
use forebay_run::row::{Kind, ListView};

use super::call::Call;
use super::{Answer, CommandError, clamp, integer};

/// A list that was found; its packed bytes and what they mean.
struct List<'a> {
    item: &'a Kind,
    bytes: Value<'a>,
}

impl List<'_> {
    fn view(&self) -> Result<ListView<'_>, CommandError> {
        Ok(ListView::new(self.item, &self.bytes)?)
    }
}

fn fetch<'a>(call: &mut Call<'a>, wire: &'a [u8]) -> Result<Option<List<'a>>, CommandError> {
    let (source, value) = call.fetch(wire)?;
    let Some(bytes) = value else { return Ok(None) };
    match source.kind() {
        ValueKind::List { item, .. } => Ok(Some(List { item, bytes })),
        ValueKind::Bytes { .. } | ValueKind::Number { .. } | ValueKind::Row => {
            Err(CommandError::wrong_type(source, "lists"))
        }
    }
}

/// The items between two places; a null item is a null.
pub fn lrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (integer(call.args.get(2))?, integer(call.args.get(3))?);
    let Some(list) = fetch(call, call.args.get(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let view = list.view()?;
    let range = clamp(start, end, view.len());
    call.reply.array(range.len());
    for index in range {
        call.reply.bulk_by(|out| view.text(index, out))?;
        call.check_size()?;
    }
    Ok(())
}

pub fn lindex(call: &mut Call<'_>) -> Answer {
    let index = integer(call.args.get(2))?;
    let Some(list) = fetch(call, call.args.get(1))? else {
        call.reply.null();
        return Ok(());
    };
    let view = list.view()?;
    let index = if index < 0 {
        index.saturating_add(view.len() as i64)
    } else {
        index
    };
    match usize::try_from(index) {
        Ok(index) if index < view.len() => call.reply.bulk_by(|out| view.text(index, out))?,
        _ => call.reply.null(),
    }
    call.check_size()
}

pub fn llen(call: &mut Call<'_>) -> Answer {
    let list = fetch(call, call.args.get(1))?;
    let view = list.as_ref().map(List::view).transpose()?;
    call.reply.count(view.map_or(0, |view| view.len()));
    Ok(())
}
