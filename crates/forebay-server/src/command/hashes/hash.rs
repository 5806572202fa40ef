//! Reads a row as a Redis hash: its columns are the fields. A null is a field that does not exist.

use std::borrow::Cow;

use forebay_engine::{Value, ValueKind};
use forebay_run::row::{RowView, Schema};

use crate::command::running::call::Call;
use crate::command::{Answer, CommandError, integer};
use crate::glob;
use crate::resp::Reply;

/// A row that was found: its packed bytes and their schema.
struct Row<'a> {
    schema: &'a Schema,
    bytes: Value<'a>,
}

impl Row<'_> {
    fn view(&self) -> Result<RowView<'_>, CommandError> {
        Ok(RowView::new(self.schema, &self.bytes)?)
    }
}

/// Returns the row of a wire key. An absent key is no row, whatever the table holds, as in Redis.
fn fetch<'a>(call: &mut Call<'a>, wire: &'a [u8]) -> Result<Option<Row<'a>>, CommandError> {
    let (source, value) = call.fetch(wire)?;
    let Some(bytes) = value else { return Ok(None) };
    match source.kind() {
        ValueKind::Row => Ok(Some(Row {
            schema: source.schema(),
            bytes,
        })),
        ValueKind::Bytes { .. } | ValueKind::Number { .. } | ValueKind::List { .. } => {
            Err(CommandError::wrong_type(source, "rows"))
        }
    }
}

fn column(schema: &Schema, field: &[u8]) -> Option<usize> {
    std::str::from_utf8(field)
        .ok()
        .and_then(|name| schema.column_index(name))
}

/// Returns the columns of a row that are not null.
fn present(view: &RowView<'_>) -> impl Iterator<Item = usize> {
    (0..view.len()).filter(|&column| !view.is_null(column))
}

fn name<'a>(view: &RowView<'a>, column: usize) -> &'a [u8] {
    view.schema()
        .columns()
        .get(column)
        .map_or(&[], |column| column.name.as_bytes())
}

fn reply_field(reply: &mut Reply, view: &RowView<'_>, field: &[u8]) -> Answer {
    match column(view.schema(), field) {
        Some(column) => Ok(reply.bulk_by(|out| view.text(column, out))?),
        None => {
            reply.null();
            Ok(())
        }
    }
}

pub fn hget(call: &mut Call<'_>) -> Answer {
    match fetch(call, call.args.get(1))? {
        Some(row) => reply_field(call.reply, &row.view()?, call.args.get(2))?,
        None => call.reply.null(),
    }
    call.check_size()
}

pub fn hmget(call: &mut Call<'_>) -> Answer {
    let row = fetch(call, call.args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    let fields = call.args.skip(2);
    call.reply.array(fields.len());
    for field in fields.iter() {
        match &view {
            Some(view) => reply_field(call.reply, view, field)?,
            None => call.reply.null(),
        }
        call.check_size()?;
    }
    Ok(())
}

pub fn hgetall(call: &mut Call<'_>) -> Answer {
    let Some(row) = fetch(call, call.args.get(1))? else {
        call.reply.map(0);
        return Ok(());
    };
    let view = row.view()?;
    call.reply.map(present(&view).count());
    reply_pairs(call, &view, |_| true)
}

/// Appends names and texts of the columns that are not null and that `wanted` accepts.
fn reply_pairs(call: &mut Call<'_>, view: &RowView<'_>, wanted: impl Fn(&[u8]) -> bool) -> Answer {
    for column in present(view).filter(|&column| wanted(name(view, column))) {
        call.reply
            .pair_by(name(view, column), |out| view.text(column, out))?;
        call.check_size()?;
    }
    Ok(())
}

pub fn hkeys(call: &mut Call<'_>) -> Answer {
    let row = fetch(call, call.args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    call.reply
        .array(view.as_ref().map_or(0, |view| present(view).count()));
    for view in view.iter() {
        present(view).for_each(|column| call.reply.bulk(name(view, column)));
    }
    Ok(())
}

pub fn hvals(call: &mut Call<'_>) -> Answer {
    let row = fetch(call, call.args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    call.reply
        .array(view.as_ref().map_or(0, |view| present(view).count()));
    for view in view.iter() {
        for column in present(view) {
            call.reply.bulk_by(|out| view.text(column, out))?;
            call.check_size()?;
        }
    }
    Ok(())
}

pub fn hlen(call: &mut Call<'_>) -> Answer {
    let row = fetch(call, call.args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    call.reply
        .count(view.as_ref().map_or(0, |view| present(view).count()));
    Ok(())
}

/// Returns the text of one field. `None` if the row, the column or its value is missing.
fn field<'a>(call: &mut Call<'a>) -> Result<Option<Cow<'a, [u8]>>, CommandError> {
    let Some(row) = fetch(call, call.args.get(1))? else {
        return Ok(None);
    };
    let Some(column) = column(row.schema, call.args.get(2)) else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let there = row.view()?.text(column, &mut text)?;
    Ok(there.then_some(Cow::Owned(text)))
}

pub fn hexists(call: &mut Call<'_>) -> Answer {
    let row = fetch(call, call.args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    let there = view.is_some_and(|view| {
        column(view.schema(), call.args.get(2)).is_some_and(|column| !view.is_null(column))
    });
    call.reply.int(i64::from(there));
    Ok(())
}

pub fn hstrlen(call: &mut Call<'_>) -> Answer {
    let len = field(call)?.map_or(0, |text| text.len());
    call.reply.count(len);
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT n] [NOVALUES]: a row is small enough for one reply.
pub fn hscan(call: &mut Call<'_>) -> Answer {
    let args = call.args;
    if integer(args.get(2)).is_err() {
        return Err(CommandError::error("ERR invalid cursor"));
    }
    let (mut pattern, mut values, mut at) = (None, true, 3);
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if args.is(at, "match") && has_more {
            pattern = Some(args.get(at + 1));
            at += 2;
        } else if args.is(at, "count") && has_more {
            crate::command::positive(args.get(at + 1))?;
            at += 2;
        } else if args.is(at, "novalues") {
            values = false;
            at += 1;
        } else {
            return Err(CommandError::syntax());
        }
    }
    let row = fetch(call, args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    let wanted = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name));
    call.reply.array(2);
    call.reply.bulk(b"0");
    let Some(view) = view else {
        call.reply.array(0);
        return Ok(());
    };
    let count = present(&view)
        .filter(|&column| wanted(name(&view, column)))
        .count();
    call.reply.array(if values { count * 2 } else { count });
    if values {
        return reply_pairs(call, &view, wanted);
    }
    for column in present(&view).filter(|&column| wanted(name(&view, column))) {
        call.reply.bulk(name(&view, column));
    }
    Ok(())
}

/// HRANDFIELD key [count [WITHVALUES]]: a negative count may repeat fields.
pub fn hrandfield(call: &mut Call<'_>) -> Answer {
    /// The most fields of a reply with repetitions.
    const MOST: u64 = 10_000;
    let args = call.args;
    let with_values = args.len() > 3;
    if args.len() > 4 || (with_values && !args.is(3, "withvalues")) {
        return Err(CommandError::syntax());
    }
    let count = if args.len() > 2 {
        Some(integer(args.get(2))?)
    } else {
        None
    };
    let row = fetch(call, args.get(1))?;
    let view = row.as_ref().map(Row::view).transpose()?;
    let mut columns: Vec<usize> = view
        .as_ref()
        .map(|v| present(v).collect())
        .unwrap_or_default();
    let random = || call.shared.store.random().next_u64();
    let Some(count) = count else {
        match view.filter(|_| !columns.is_empty()) {
            Some(view) => {
                let pick = columns[(random() % columns.len() as u64) as usize];
                call.reply.bulk(name(&view, pick));
            }
            None => call.reply.null(),
        }
        return Ok(());
    };
    if count < 0 && !columns.is_empty() {
        let most = count.unsigned_abs();
        if most > MOST {
            return Err(CommandError::error(format!(
                "ERR at most {MOST} fields at a time"
            )));
        }
        let all = columns.len() as u64;
        columns = (0..most)
            .map(|_| columns[(random() % all) as usize])
            .collect();
    } else {
        for place in (1..columns.len()).rev() {
            columns.swap(place, (random() % (place as u64 + 1)) as usize);
        }
        columns.truncate(usize::try_from(count).unwrap_or(0));
    }
    reply_fields(call, view.as_ref(), &columns, with_values)
}

/// Appends some fields of a row; fields with values become pairs, which RESP3 nests.
fn reply_fields(
    call: &mut Call<'_>,
    view: Option<&RowView<'_>>,
    columns: &[usize],
    with_values: bool,
) -> Answer {
    let nested = call.reply.is_resp3() && with_values;
    let flat = if with_values && !nested { 2 } else { 1 };
    call.reply.array(columns.len() * flat);
    let Some(view) = view else { return Ok(()) };
    for &column in columns {
        if nested {
            call.reply.array(2);
        }
        call.reply.bulk(name(view, column));
        if with_values {
            call.reply.bulk_by(|out| view.text(column, out))?;
        }
        call.check_size()?;
    }
    Ok(())
}
