//! HSET, HDEL and their relatives on rows.
//!
//! A field is a column of the table. To delete a field is to make it null. A row of nulls only does
//! not exist.

use forebay_engine::ValueKind;
use forebay_run::row::{Datum, Kind, RowView, RowWriter, Schema};

use super::cell::Cell;
use crate::command::running::txn::Edit;
use crate::command::values::count::{add, add_floats, float};
use crate::command::{Answer, CommandError, integer, shown};

/// A column's new value; `None` for null.
type HashChange = (usize, Option<Cell>);

fn schema<'t>(edit: &Edit<'_, 't>) -> Result<&'t Schema, CommandError> {
    match edit.source().kind() {
        ValueKind::Row => Ok(edit.source().schema()),
        _ => Err(CommandError::wrong_type(edit.source(), "rows")),
    }
}

fn column(edit: &Edit<'_, '_>, schema: &Schema, field: &[u8]) -> Result<usize, CommandError> {
    let name = std::str::from_utf8(field).ok();
    name.and_then(|name| schema.column_index(name))
        .ok_or_else(|| {
            let (table, field) = (edit.source().table(), shown(field));
            CommandError::error(format!("ERR table '{table}' has no column '{field}'"))
        })
}

fn cell(schema: &Schema, column: usize, text: &[u8]) -> Result<Cell, CommandError> {
    let column = &schema.columns()[column];
    Cell::parse(&column.name, &column.kind, text)
}

/// Stores the row with some columns changed. Returns how many of these were null before.
fn rewrite(
    edit: &mut Edit<'_, '_>,
    schema: &Schema,
    changes: &[HashChange],
) -> Result<i64, CommandError> {
    let old = edit.old();
    let view = old
        .map(|stored| RowView::new(schema, &stored.value))
        .transpose()?;
    let mut writer = RowWriter::new(schema);
    writer.begin();
    let (mut nulls_before, mut any) = (0, false);
    for (index, column) in schema.columns().iter().enumerate() {
        let before = match &view {
            Some(view) => view.datum(index)?,
            None => Datum::Null,
        };
        let change = changes.iter().rev().find(|(changed, _)| *changed == index);
        let after = match change {
            Some((_, cell)) => cell.as_ref().map_or(Datum::Null, Cell::datum),
            None => before,
        };
        if change.is_some() {
            nulls_before += i64::from(before.is_null());
        }
        if after.is_null() && !column.nullable && (change.is_none() || view.is_none()) {
            return Err(CommandError::error(format!(
                "ERR column '{}' cannot be null: give it a value in the same command",
                column.name
            )));
        }
        any |= !after.is_null();
        writer.datum(index, &column.kind, &after)?;
    }
    let required = schema.columns().iter().enumerate().find(|(index, column)| {
        !column.nullable
            && changes
                .iter()
                .any(|(changed, cell)| changed == index && cell.is_none())
    });
    if any && let Some((_, column)) = required {
        let name = &column.name;
        return Err(CommandError::error(format!(
            "ERR column '{name}' cannot be null: delete the key instead"
        )));
    }
    if any {
        let mut packed = Vec::new();
        writer.finish(&mut packed)?;
        edit.txn.rewrite(edit.key(), packed)?;
    } else if old.is_some() {
        edit.txn.delete(edit.key());
    }
    Ok(nulls_before)
}

/// Returns the pairs of field and value from the third argument on.
fn pairs(edit: &Edit<'_, '_>, schema: &Schema) -> Result<Vec<HashChange>, CommandError> {
    let args = edit.args;
    if args.len() < 4 || !args.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(args.get(0)).to_lowercase();
        return Err(CommandError::error(format!(
            "ERR wrong number of arguments for '{name}' command"
        )));
    }
    let pair = |at: usize| {
        let column = column(edit, schema, args.get(at))?;
        Ok((column, Some(cell(schema, column, args.get(at + 1))?)))
    };
    (2..args.len()).step_by(2).map(pair).collect()
}

/// HSET key field value ...: the number of fields that did not exist.
pub fn hset(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    let changes = pairs(edit, schema)?;
    let new = rewrite(edit, schema, &changes)?;
    edit.reply.int(new);
    Ok(())
}

pub fn hmset(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    let changes = pairs(edit, schema)?;
    rewrite(edit, schema, &changes)?;
    edit.reply.ok();
    Ok(())
}

pub fn hsetnx(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    let changes = pairs(edit, schema)?;
    let sets = old_text(edit, schema, changes[0].0)?.is_none();
    if sets {
        rewrite(edit, schema, &changes)?;
    }
    edit.reply.int(i64::from(sets));
    Ok(())
}

/// HDEL key field ...: the number of fields that existed.
pub fn hdel(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    if edit.old().is_none() {
        edit.reply.int(0);
        return Ok(());
    }
    // A field without a column does not exist.
    let known = edit
        .args
        .skip(2)
        .iter()
        .filter_map(|field| column(edit, schema, field).ok());
    let mut changes: Vec<HashChange> = known.map(|column| (column, None)).collect();
    changes.sort_by_key(|(column, _)| *column);
    changes.dedup_by_key(|(column, _)| *column);
    let mut present = Vec::new();
    for change in changes {
        if old_text(edit, schema, change.0)?.is_some() {
            present.push(change);
        }
    }
    if !present.is_empty() {
        rewrite(edit, schema, &present)?;
    }
    edit.reply.count(present.len());
    Ok(())
}

/// Returns the text of a column of the row before the change.
fn old_text(
    edit: &Edit<'_, '_>,
    schema: &Schema,
    column: usize,
) -> Result<Option<Vec<u8>>, CommandError> {
    let Some(stored) = edit.old() else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let there = RowView::new(schema, &stored.value)?.text(column, &mut text)?;
    Ok(there.then_some(text))
}

pub fn hincrby(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    let by = integer(edit.args.get(3))?;
    let column = column(edit, schema, edit.args.get(2))?;
    let not_integer = |_| CommandError::error("ERR hash value is not an integer");
    let old = old_text(edit, schema, column)?.map_or(Ok(0), |text| integer(&text));
    let sum = add(old.map_err(not_integer)?, by)?;
    let cell = cell(schema, column, sum.to_string().as_bytes())?;
    rewrite(edit, schema, &[(column, Some(cell))])?;
    edit.reply.int(sum);
    Ok(())
}

pub fn hincrbyfloat(edit: &mut Edit<'_, '_>) -> Answer {
    let schema = schema(edit)?;
    let by = float(edit.args.get(3))?;
    let column = column(edit, schema, edit.args.get(2))?;
    let not_float = |_| CommandError::error("ERR hash value is not a float");
    let old = old_text(edit, schema, column)?.map_or(Ok(0.0), |text| float(&text));
    let sum = add_floats(old.map_err(not_float)?, by)?;
    let (cell, sum) = sum_in(schema, column, sum)?;
    rewrite(edit, schema, &[(column, Some(cell))])?;
    edit.reply.bulk(sum.as_bytes());
    Ok(())
}

/// Returns a sum as its column stores it, and its text. A float is rounded; all else is exact.
fn sum_in(schema: &Schema, column: usize, sum: String) -> Result<(Cell, String), CommandError> {
    let overflow = || CommandError::error("ERR increment would produce NaN or Infinity");
    match schema.columns()[column].kind {
        Kind::Float32 => {
            let narrow = sum.parse::<f32>().ok().filter(|sum| sum.is_finite());
            let narrow = narrow.ok_or_else(overflow)?;
            Ok((Cell::Float32(narrow), narrow.to_string()))
        }
        Kind::Float64 => {
            let wide = sum.parse().map_err(|_| overflow())?;
            Ok((Cell::Float64(wide), sum))
        }
        _ => Ok((cell(schema, column, sum.as_bytes())?, sum)),
    }
}
