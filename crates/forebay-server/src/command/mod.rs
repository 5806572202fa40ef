//! The commands: one table lists all of them, and each family has a file.

mod admin;
mod hashes;
mod keys;
mod lists;
mod running;
mod table;
mod values;
mod watch;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use forebay_engine::{Source, ValueKind};

use crate::resp::{Args, Reply};
pub use keys::keyspace::check_walked;
pub use keys::range::{
    DeleteRequest, REPLY_BYTES as RANGE_BYTES, RangePiece, RangeRequest, no_key_order,
};
pub use keys::scan::{ScanCursor, ScanCursors, ScanRequest, first_hash, numbered, place_of_hash};
pub use running::call::{
    Call, Reading, Scope, SessionCall, find_source, no_permission, no_table, split,
};
pub use running::evaluation::Evaluation;
pub use running::held::KeyGuard;
pub use running::names::KeyNames;
pub use running::transaction::QueuedCommands;
use running::txn::Edit;
pub use running::value::write_text;
pub use running::write::{ManyFn, RangeDelete, batch_table, check_key, live_error, refuse_write};
pub use table::COMMANDS;
pub use values::compare::KeyVersion;
pub use values::get::{KEYS_AT_ONCE, reply_values};
pub use watch::{WatchAsk, Watches};

/// The outcome of a command. If `Ok`, its reply is complete, otherwise it is withdrawn.
pub type Answer = Result<(), CommandError>;

/// The reason why a command gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// It would have to wait for the device: it is to run again on a thread that may wait.
    NotResident,
    /// This node lacks some of its keys: it is to run on nodes that have them. The text is the
    /// error of a standalone server.
    NotHere(String),
    /// This node's data of the table, or the disk, is damaged. Other nodes may have replicas.
    Damaged(String),
    /// The keys are of a replicated live table: the command is proposed to the replicas, or needs
    /// their read permit.
    Replicas,
    /// This machine failed; another may succeed. Holds whether a retry may succeed later, and the
    /// reply.
    Machine { passes: bool, text: String },
    /// An error reply, beginning with its code.
    Error(Cow<'static, str>),
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// The number of arguments with the name; a negative value is a minimum.
    pub arity: i32,
    pub flags: &'static [&'static str],
    pub keys: Keys,
    pub group: &'static str,
    pub summary: &'static str,
    pub run: Run,
}

/// The arguments that are keys: the first, the last (negative: counted from the end), the step. All
/// 0 if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    pub first: i32,
    pub last: i32,
    pub step: i32,
}

/// How a command runs.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Reads tables: at once if all pages are in memory, else again on a thread that may wait.
    Read(fn(&mut Call<'_>) -> Answer),
    /// Walks through tables: always on a thread that may wait.
    Walk(fn(&mut Call<'_>) -> Answer),
    /// Concerns the connection or the server; never waits.
    Session(fn(&mut SessionCall<'_>) -> Answer),
    /// Changes the key that is its first argument. `reads` returns whether it reads the old value.
    Edit {
        run: fn(&mut Edit<'_, '_>) -> Answer,
        reads: fn(&Args<'_>) -> bool,
    },
    /// Changes several keys, those of each partition together. `done` replies with the sum of the
    /// results of `run`.
    Many {
        run: ManyFn,
        done: fn(&mut Reply, i64),
        reads: bool,
    },
    /// Changes several keys at one moment; they must be in one partition.
    Together(fn(&mut Edit<'_, '_>) -> Answer),
    /// Walks through a table and changes it: always on a thread that may wait.
    RangeDelete(fn(&mut RangeDelete<'_>) -> Answer),
    /// Would change a table in a way that no table allows.
    Refused,
}

/// Returns the place of a command in [`COMMANDS`] by its name in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], usize>> = LazyLock::new(|| {
        COMMANDS
            .iter()
            .enumerate()
            .map(|(place, command)| (command.name.as_bytes(), place))
            .collect()
    });
    let mut lower = [0u8; 24];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

impl Command {
    /// Returns whether the command accepts this number of arguments, the name included.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            arguments >= arity
        } else {
            arguments == arity
        }
    }

    /// Returns the places of the keys among this number of arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let Keys { first, last, step } = self.keys;
        let last = if last < 0 {
            arguments as i32 + last
        } else {
            last
        };
        let first = if first == 0 { last + 1 } else { first };
        (first..=last)
            .step_by(step.max(1) as usize)
            .filter_map(|place| usize::try_from(place).ok())
            .filter(move |place| *place < arguments)
    }

    /// Returns whether it changes a table that accepts it.
    pub fn writes(&self) -> bool {
        matches!(
            self.run,
            Run::Edit { .. } | Run::Many { .. } | Run::Together(_) | Run::RangeDelete(_)
        )
    }

    /// Returns whether a MULTI may have it though it is about no table: PING, ECHO, and UNWATCH.
    /// UNWATCH has no effect in a MULTI, because EXEC drops all watches.
    pub fn is_of_no_table(&self) -> bool {
        ["ping", "echo", "unwatch"].contains(&self.name)
    }

    /// Returns whether it is about all tables or about ranges of keys, so that no key decides which
    /// node answers.
    pub fn is_of_all_tables(&self) -> bool {
        self.keys.first == 0 && !self.is_of_no_table()
    }

    pub fn arity_error(&self) -> CommandError {
        CommandError::error(format!(
            "ERR wrong number of arguments for '{}' command",
            self.name
        ))
    }
}

impl CommandError {
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        CommandError::Error(text.into())
    }

    /// Returns the error on a connection that was dropped for its memory. No client reads it.
    pub fn dropped() -> Self {
        CommandError::error("ERR the connection was dropped")
    }

    pub fn syntax() -> Self {
        CommandError::error("ERR syntax error")
    }

    /// Returns the error of a command on `wanted` (rows, lists) if the table has other values.
    pub fn wrong_type(source: Source<'_>, wanted: &str) -> Self {
        let (holds, reads, writes) = match source.kind() {
            ValueKind::Row => ("rows", "HGETALL", "HSET"),
            ValueKind::List { .. } => ("lists", "LRANGE", "RPUSH"),
            _ if source.number().is_some() => ("numbers", "GET", "INCRBY"),
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => ("bytes", "GET", "SET"),
        };
        let changes = match source {
            Source::Live(_) => format!(", {writes} changes them"),
            Source::Batch(_) => String::new(),
        };
        let table = source.table();
        CommandError::error(format!(
            "WRONGTYPE table '{table}' holds {holds}, not {wanted}: {reads} reads them{changes}"
        ))
    }

    pub fn not_an_integer() -> Self {
        CommandError::error("ERR value is not an integer or out of range")
    }

    pub fn unknown_subcommand(command: &str, given: &[u8]) -> Self {
        let given = shown(given);
        CommandError::error(format!(
            "ERR unknown subcommand or wrong number of arguments for '{given}'. Try {command} HELP."
        ))
    }
}

/// Returns a client's bytes for a message: printable and short.
pub fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(128)]);
    let plain = |symbol: char| if symbol.is_control() { '?' } else { symbol };
    text.chars().map(plain).collect()
}

/// Parses an argument as an integer in its canonical form.
pub fn integer(argument: &[u8]) -> Result<i64, CommandError> {
    let text = std::str::from_utf8(argument).map_err(|_| CommandError::not_an_integer())?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let padded = text.starts_with('+') || (digits.starts_with('0') && text != "0");
    let value = text.parse().ok().filter(|_| !padded);
    value.ok_or_else(CommandError::not_an_integer)
}

/// Parses an argument as a count of at least one.
pub fn positive(argument: &[u8]) -> Result<usize, CommandError> {
    match integer(argument)? {
        count @ 1.. => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(CommandError::syntax()),
    }
}

/// Returns the part of a sequence of `len` from `start` to `end`, both inclusive, as in GETRANGE
/// and LRANGE. Negative ones count from the end.
pub fn clamp(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let at = |place: i64| {
        if place < 0 {
            (len.saturating_add(place)).max(0)
        } else {
            place
        }
    };
    let (start, end) = if end < 0 && end.saturating_add(len) < 0 {
        return 0..0;
    } else {
        (at(start), at(end).min(len - 1))
    };
    if start > end {
        0..0
    } else {
        start as usize..end as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_lower_case_and_found_in_any_case() {
        for (place, command) in COMMANDS.iter().enumerate() {
            assert_eq!(command.name, command.name.to_lowercase());
            assert_eq!(
                find(command.name.to_uppercase().as_bytes()),
                Some(place),
                "{}",
                command.name
            );
        }
        assert_eq!(find(b"nosuchcommand"), None);
        assert_eq!(find(&[b'x'; 100]), None);
    }

    #[test]
    fn integers_are_written_in_one_way() {
        for (text, value) in [("0", 0), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Ok(value));
        }
        for text in [
            "",
            "+5",
            "05",
            "-0",
            "-05",
            " 1",
            "1.5",
            "9223372036854775808",
            "x",
        ] {
            assert!(integer(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_are_those_of_redis() {
        assert_eq!(clamp(0, -1, 5), 0..5);
        assert_eq!(clamp(-3, -1, 5), 2..5);
        assert_eq!(clamp(1, 2, 5), 1..3);
        assert_eq!(clamp(0, 100, 5), 0..5);
        assert_eq!(clamp(-100, 1, 5), 0..2);
        assert_eq!(clamp(3, 1, 5), 0..0);
        assert_eq!(clamp(5, 9, 5), 0..0);
        assert_eq!(clamp(0, -6, 5), 0..0);
        assert_eq!(clamp(0, -1, 0), 0..0);
        assert_eq!(clamp(i64::MIN, i64::MAX, 5), 0..5);
        assert_eq!(clamp(i64::MIN, i64::MIN, 5), 0..0);
    }
}
