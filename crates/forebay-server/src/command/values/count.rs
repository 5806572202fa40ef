//! INCR and its relatives. They reply with the sum and therefore read; KV.DELTA does not.

use forebay_run::number::Number;

use crate::command::running::txn::Edit;
use crate::command::{Answer, CommandError, integer};

pub fn incr(edit: &mut Edit<'_, '_>) -> Answer {
    add_integer(edit, 1)
}

pub fn decr(edit: &mut Edit<'_, '_>) -> Answer {
    add_integer(edit, -1)
}

pub fn incrby(edit: &mut Edit<'_, '_>) -> Answer {
    let by = integer(edit.args.get(2))?;
    add_integer(edit, by)
}

pub fn decrby(edit: &mut Edit<'_, '_>) -> Answer {
    let by = integer(edit.args.get(2))?.checked_neg();
    let by = by.ok_or_else(|| CommandError::error("ERR decrement would overflow"))?;
    add_integer(edit, by)
}

fn add_integer(edit: &mut Edit<'_, '_>, by: i64) -> Answer {
    if edit.source().number() == Some(Number::F64) {
        return Err(CommandError::error(format!(
            "ERR value is not an integer or out of range: table '{}' holds floats, INCRBYFLOAT and \
             KV.DELTA add to them",
            edit.source().table()
        )));
    }
    let old = edit.old_text()?.map_or(Ok(0), |text| integer(&text))?;
    let sum = add(old, by)?;
    let value = edit.encode_made(sum.to_string().as_bytes())?;
    edit.txn.rewrite(edit.key(), value)?;
    edit.reply.int(sum);
    Ok(())
}

/// Returns the sum of a stored integer and another.
pub fn add(old: i64, by: i64) -> Result<i64, CommandError> {
    let overflow = || CommandError::error("ERR increment or decrement would overflow");
    old.checked_add(by).ok_or_else(overflow)
}

pub fn incrbyfloat(edit: &mut Edit<'_, '_>) -> Answer {
    if edit.source().number() == Some(Number::I64) {
        return Err(CommandError::error(format!(
            "ERR table '{}' holds whole numbers: INCRBY and KV.DELTA add to them",
            edit.source().table()
        )));
    }
    let by = float(edit.args.get(2))?;
    let old = edit.old_text()?.map_or(Ok(0.0), |text| float(&text))?;
    let text = add_floats(old, by)?;
    let value = edit.encode_made(text.as_bytes())?;
    edit.txn.rewrite(edit.key(), value)?;
    edit.reply.bulk(text.as_bytes());
    Ok(())
}

/// Returns the sum as text.
pub fn add_floats(old: f64, by: f64) -> Result<String, CommandError> {
    let sum = old + by;
    if !sum.is_finite() {
        return Err(CommandError::error(
            "ERR increment would produce NaN or Infinity",
        ));
    }
    // Negative zero becomes zero.
    Ok((sum + 0.0).to_string())
}

/// Parses an argument or a stored text as a float.
pub fn float(text: &[u8]) -> Result<f64, CommandError> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| !number.is_nan());
    number.ok_or_else(|| CommandError::error("ERR value is not a valid float"))
}
