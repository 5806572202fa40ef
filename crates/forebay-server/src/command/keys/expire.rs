//! Expiry of keys: EXPIRE and its relatives, PERSIST, GETEX, and TTL and its relatives.
//!
//! A live table stores the expiry beside the value, so a new expiry is a new record that repeats
//! the value. Times are milliseconds since 1970-01-01 UTC.

use forebay_engine::live::Expiry;

use crate::command::running::call::Call;
use crate::command::running::txn::{Edit, NEVER_MS, is_never};
use crate::command::{Answer, CommandError, integer, shown};
use crate::resp::Args;

/// The unit of a command's times, and whether they count from now.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    ms: i64,
    from_now: bool,
}

/// Seconds from now: EX.
pub const EX: Unit = Unit {
    ms: 1000,
    from_now: true,
};
/// Milliseconds from now: PX.
pub const PX: Unit = Unit {
    ms: 1,
    from_now: true,
};
const EXAT: Unit = Unit {
    ms: 1000,
    from_now: false,
};
const PXAT: Unit = Unit {
    ms: 1,
    from_now: false,
};

/// The expiry that a command asks for.
#[derive(Debug, Default, Clone, Copy)]
pub enum ExpiryChange<'a> {
    /// The table's default for a value that is set.
    #[default]
    Fresh,
    Keep,
    Persist,
    At(Unit, &'a [u8]),
}

/// A requested expiry, resolved to a moment.
#[derive(Debug, Clone, Copy)]
pub enum ExpiryTime {
    Fresh,
    Keep,
    Persist,
    At(u64),
}

impl Unit {
    /// Returns the moment that an argument means.
    fn moment_ms(self, argument: &[u8], now_ms: u64, command: &str) -> Result<i64, CommandError> {
        let base_ms = if self.from_now { now_ms as i64 } else { 0 };
        let ms = integer(argument)?.checked_mul(self.ms);
        ms.and_then(|ms| ms.checked_add(base_ms))
            .ok_or_else(|| invalid(command))
    }

    /// Returns the moment of an argument that has to be above zero.
    fn positive_ms(self, argument: &[u8], now_ms: u64, command: &str) -> Result<u64, CommandError> {
        if integer(argument)? <= 0 {
            return Err(invalid(command));
        }
        Ok(self.moment_ms(argument, now_ms, command)? as u64)
    }
}

fn invalid(command: &str) -> CommandError {
    CommandError::error(format!("ERR invalid expire time in '{command}' command"))
}

impl<'a> ExpiryChange<'a> {
    /// Parses the expiry option at `at`. Returns it with its number of arguments, or `None` if
    /// there is none.
    pub fn parse(args: &Args<'a>, at: usize) -> Option<(Self, usize)> {
        let units = [("ex", EX), ("px", PX), ("exat", EXAT), ("pxat", PXAT)];
        if args.is(at, "keepttl") {
            return Some((ExpiryChange::Keep, 1));
        }
        if args.is(at, "persist") {
            return Some((ExpiryChange::Persist, 1));
        }
        let (_, unit) = units.into_iter().find(|(word, _)| args.is(at, word))?;
        (at + 1 < args.len()).then(|| (ExpiryChange::At(unit, args.get(at + 1)), 2))
    }

    /// Combines it with an earlier option; two of different kinds are an error.
    pub fn and(self, later: Self) -> Result<Self, CommandError> {
        match (self, later) {
            (ExpiryChange::Fresh, later) => Ok(later),
            (ExpiryChange::Keep, ExpiryChange::Keep)
            | (ExpiryChange::Persist, ExpiryChange::Persist) => Ok(later),
            (ExpiryChange::At(unit, _), ExpiryChange::At(other, _))
                if (unit.ms, unit.from_now) == (other.ms, other.from_now) =>
            {
                Ok(later)
            }
            _ => Err(CommandError::syntax()),
        }
    }

    /// Resolves the moment. `command` is named in errors.
    pub fn until(self, edit: &Edit<'_, '_>, command: &str) -> Result<ExpiryTime, CommandError> {
        Ok(match self {
            ExpiryChange::Fresh => ExpiryTime::Fresh,
            ExpiryChange::Keep => ExpiryTime::Keep,
            ExpiryChange::Persist => ExpiryTime::Persist,
            ExpiryChange::At(unit, argument) => {
                let moment_ms = unit.positive_ms(argument, edit.txn.now_ms(), command)?;
                if edit.txn.table.options().expiry == Expiry::Never {
                    return Err(edit.txn.no_expiry());
                }
                ExpiryTime::At(moment_ms)
            }
        })
    }
}

pub fn expire(edit: &mut Edit<'_, '_>) -> Answer {
    set_moment(edit, EX, "expire")
}

pub fn pexpire(edit: &mut Edit<'_, '_>) -> Answer {
    set_moment(edit, PX, "pexpire")
}

pub fn expireat(edit: &mut Edit<'_, '_>) -> Answer {
    set_moment(edit, EXAT, "expireat")
}

pub fn pexpireat(edit: &mut Edit<'_, '_>) -> Answer {
    set_moment(edit, PXAT, "pexpireat")
}

/// The condition under which EXPIRE sets another moment.
#[derive(Debug, Default)]
struct ExpireOnly {
    /// Only if the key has no expiry.
    absent: bool,
    /// Only if the key has an expiry.
    present: bool,
    greater: bool,
    less: bool,
}

impl ExpireOnly {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut only = Self::default();
        for at in 3..args.len() {
            let named = [
                ("nx", &mut only.absent),
                ("xx", &mut only.present),
                ("gt", &mut only.greater),
                ("lt", &mut only.less),
            ];
            match named.into_iter().find(|(word, _)| args.is(at, word)) {
                Some((_, flag)) => *flag = true,
                None => {
                    let option = shown(args.get(at));
                    return Err(CommandError::error(format!(
                        "ERR Unsupported option {option}"
                    )));
                }
            }
        }
        if only.absent && (only.present || only.greater || only.less) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::error(text));
        }
        if only.greater && only.less {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(CommandError::error(text));
        }
        Ok(only)
    }

    /// Returns whether the condition holds. Never is later than any moment.
    fn lets(&self, old_ms: u64, moment_ms: i64) -> bool {
        let old_ms = (!is_never(old_ms)).then_some(i64::try_from(old_ms).unwrap_or(i64::MAX));
        !(self.absent && old_ms.is_some()
            || self.present && old_ms.is_none()
            || self.greater && old_ms.is_none_or(|old_ms| moment_ms <= old_ms)
            || self.less && old_ms.is_some_and(|old_ms| moment_ms >= old_ms))
    }
}

/// EXPIRE key time [NX | XX | GT | LT]: 1 if the moment was set, or if it has passed and the key
/// was deleted.
fn set_moment(edit: &mut Edit<'_, '_>, unit: Unit, command: &str) -> Answer {
    let only = ExpireOnly::parse(&edit.args)?;
    let now_ms = edit.txn.now_ms();
    let moment_ms = unit.moment_ms(edit.args.get(2), now_ms, command)?;
    if edit.txn.table.options().expiry == Expiry::Never {
        return Err(edit.txn.no_expiry());
    }
    let old = edit
        .old()
        .filter(|old| only.lets(old.expires_ms, moment_ms));
    let Some(value) = old.map(|old| old.value.clone()) else {
        edit.reply.int(0);
        return Ok(());
    };
    put(
        edit,
        value,
        ExpiryTime::At(u64::try_from(moment_ms).unwrap_or(0)),
    )?;
    edit.reply.int(1);
    Ok(())
}

/// Sets the first key to a value; a moment that has passed deletes it.
pub fn put(edit: &mut Edit<'_, '_>, value: Vec<u8>, until: ExpiryTime) -> Answer {
    let key = edit.key();
    match until {
        ExpiryTime::Fresh => edit.txn.set(key, value),
        ExpiryTime::Keep => edit.txn.rewrite(key, value),
        ExpiryTime::Persist => edit.txn.set_until(key, value, NEVER_MS),
        ExpiryTime::At(moment_ms) if moment_ms > edit.txn.now_ms() => {
            edit.txn.set_until(key, value, moment_ms)
        }
        ExpiryTime::At(_) => {
            edit.txn.delete(key);
            Ok(())
        }
    }
}

/// PERSIST key: 1 if the key had an expiry.
pub fn persist(edit: &mut Edit<'_, '_>) -> Answer {
    let expiring = edit.old().filter(|old| !is_never(old.expires_ms));
    let value = expiring.map(|old| old.value.clone());
    edit.reply.int(i64::from(value.is_some()));
    match value {
        Some(value) => edit.txn.set_until(edit.key(), value, NEVER_MS),
        None => Ok(()),
    }
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]: GET, and a new expiry.
pub fn getex(edit: &mut Edit<'_, '_>) -> Answer {
    let (mut change, mut at) = (ExpiryChange::Keep, 2);
    while at < edit.args.len() {
        let (later, arguments) =
            ExpiryChange::parse(&edit.args, at).ok_or_else(CommandError::syntax)?;
        change = match (change, later) {
            (_, ExpiryChange::Keep) => return Err(CommandError::syntax()),
            (ExpiryChange::Keep, later) => later,
            (earlier, later) => earlier.and(later)?,
        };
        at += arguments;
    }
    edit.reply_old()?;
    match (change, edit.old()) {
        (ExpiryChange::Keep, _) | (_, None) => Ok(()),
        (ExpiryChange::Persist, Some(old)) if is_never(old.expires_ms) => Ok(()),
        (change, Some(old)) => {
            let (value, until) = (old.value.clone(), change.until(edit, "getex")?);
            put(edit, value, until)
        }
    }
}

pub fn ttl(call: &mut Call<'_>) -> Answer {
    notify(call, EX)
}

pub fn pttl(call: &mut Call<'_>) -> Answer {
    notify(call, PX)
}

pub fn expiretime(call: &mut Call<'_>) -> Answer {
    notify(call, EXAT)
}

pub fn pexpiretime(call: &mut Call<'_>) -> Answer {
    notify(call, PXAT)
}

/// TTL, PTTL, EXPIRETIME, PEXPIRETIME: -1 for a key that does not expire, -2 for an absent one.
fn notify(call: &mut Call<'_>, unit: Unit) -> Answer {
    let (source, key) = call.locate(call.args.get(1))?;
    let reported = match call.expires_ms(source, key)? {
        None => -2,
        Some(expires_ms) if is_never(expires_ms) => -1,
        Some(expires_ms) => {
            let now_ms = call.clock.unix_ms();
            let ms = match unit.from_now {
                true => expires_ms.saturating_sub(now_ms),
                false => expires_ms,
            };
            let ms = i64::try_from(ms).unwrap_or(i64::MAX);
            ms.saturating_add(unit.ms / 2) / unit.ms
        }
    };
    call.reply.int(reported);
    Ok(())
}
