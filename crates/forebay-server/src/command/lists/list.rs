//! Reads the values of a list-valued table as Redis lists.

use forebay_engine::{Value, ValueKind};
use forebay_run::row::{Kind, ListView};

use crate::command::running::call::Call;
use crate::command::{Answer, CommandError, clamp, integer};
use crate::resp::Args;

/// A list that was found: its packed bytes and their schema.
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

/// Replies with the items between two indexes; a null item is a null.
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
    let Some(list) = fetch(call, call.args.get(1))? else {
        call.reply.null();
        return Ok(());
    };
    let index = integer(call.args.get(2))?;
    let view = list.view()?;
    match index_of(index, view.len()) {
        Some(index) => call.reply.bulk_by(|out| view.text(index, out))?,
        None => call.reply.null(),
    }
    call.check_size()
}

pub fn llen(call: &mut Call<'_>) -> Answer {
    let list = fetch(call, call.args.get(1))?;
    let view = list.as_ref().map(List::view).transpose()?;
    call.reply.count(view.map_or(0, |view| view.len()));
    Ok(())
}

/// Returns the place of an index, which counts from the end if it is negative. `None` if there is
/// no such item.
pub fn index_of(index: i64, len: usize) -> Option<usize> {
    let index = match index {
        ..0 => index.saturating_add(len as i64),
        _ => index,
    };
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Returns whether LRANGE gives this text for an item.
pub fn is_item(view: &ListView<'_>, index: usize, wanted: &[u8]) -> Result<bool, CommandError> {
    let mut text = Vec::new();
    Ok(view.text(index, &mut text)? && text == wanted)
}

/// The options of LPOS.
struct PositionOptions {
    /// Which of the equal items is returned first, from 1; earlier ones are skipped.
    rank: usize,
    /// Whether the search runs from the list's end.
    reverse: bool,
    /// The most matches to return, 0: all. `None` for one match, not as an array.
    count: Option<usize>,
    /// The most items to compare, 0: all.
    most: usize,
}

impl PositionOptions {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self {
            rank: 1,
            reverse: false,
            count: None,
            most: 0,
        };
        for at in (3..args.len()).step_by(2) {
            let value = args.get(at + 1);
            if at + 1 == args.len() {
                return Err(CommandError::syntax());
            } else if args.is(at, "rank") {
                let rank = integer(value)?;
                if rank == 0 {
                    return Err(CommandError::error(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
                options.reverse = rank < 0;
                options.rank = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
            } else if args.is(at, "count") {
                options.count = Some(natural(value, "COUNT")?);
            } else if args.is(at, "maxlen") {
                options.most = natural(value, "MAXLEN")?;
            } else {
                return Err(CommandError::syntax());
            }
        }
        Ok(options)
    }
}

fn natural(argument: &[u8], name: &str) -> Result<usize, CommandError> {
    let number = integer(argument)
        .ok()
        .and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| CommandError::error(format!("ERR {name} can't be negative")))
}

/// LPOS key item [RANK rank] [COUNT n] [MAXLEN n]: the places of items that are equal to this one.
pub fn lpos(call: &mut Call<'_>) -> Answer {
    let options = PositionOptions::parse(&call.args)?;
    let list = fetch(call, call.args.get(1))?;
    let mut found = Vec::new();
    if let Some(list) = list {
        let view = list.view()?;
        let (len, mut rank) = (view.len(), options.rank);
        let most = match options.most {
            0 => len,
            most => most.min(len),
        };
        let wanted = match options.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        for step in 0..most {
            let index = if options.reverse {
                len - 1 - step
            } else {
                step
            };
            if found.len() == wanted {
                break;
            }
            if is_item(&view, index, call.args.get(2))? {
                match rank {
                    1 => found.push(index),
                    _ => rank -= 1,
                }
            }
        }
    }
    match (options.count, found.first()) {
        (None, Some(&index)) => call.reply.count(index),
        (None, None) => call.reply.null(),
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|&index| call.reply.count(index));
        }
    }
    Ok(())
}
