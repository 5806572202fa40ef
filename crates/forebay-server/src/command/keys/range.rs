//! KV.RANGE: reads the keys of an ordered table between two bounds. KV.DELRANGE deletes them.
//!
//! `KV.RANGE start end [LIMIT n] [REV] [KEYS|VALUES]`. A bound is a wire key after `[` (inclusive)
//! or `(` (exclusive); without either it is inclusive. `-` is the beginning and `+` the end of the
//! table that the other bound names. A wire key without a key, `table:`, is the table's beginning
//! as start and its end as end. As end, `*table:prefix` is the place after all keys with that
//! prefix. So `KV.RANGE log: +` is all of `log`, `KV.RANGE [log:2026-11 (log:2026-12` a month.
//!
//! The reply is `[next, items]`. Items are key, value, key, value, ...; only one of the two with
//! KEYS or VALUES. `next` replaces start (with REV, end) in the next command, and is null at the
//! end.

use std::borrow::Cow;
use std::ops::Bound;

use forebay_run::Order;
use forebay_run::scan::{Direction, ScanRange};

use crate::command::running::call::{Call, split};
use crate::command::running::names::wire_key;
use crate::command::running::value::reply_value;
use crate::command::running::write::RangeDelete;
use crate::command::{Answer, CommandError, find_source, positive, shown};
use crate::resp::{Args, OwnedArgs, Reply};
use forebay_engine::{Bound as PartBound, Bounds, Source, TableName};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 10_000;
const WRONG_LIMIT: &str = "ERR LIMIT is a number of keys, 1 at least";
/// A reply of this size ends early, with a `next`.
pub const REPLY_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RangeOptions {
    limit: usize,
    reverse: bool,
    keys: bool,
    values: bool,
}

/// A parsed KV.RANGE, so that several nodes can be asked for their parts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest<'a> {
    pub table: &'a [u8],
    start: Bound<Cow<'a, [u8]>>,
    end: Bound<Cow<'a, [u8]>>,
    options: RangeOptions,
}

/// A part of a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangePiece {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

impl<'a> RangeRequest<'a> {
    pub fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let options = options(args)?;
        let (table, start, end) = bounds(args)?;
        Ok(Self {
            table,
            start,
            end,
            options,
        })
    }

    pub fn limit(&self) -> usize {
        self.options.limit
    }

    /// Returns the number of items of a record in the reply.
    pub fn parts(&self) -> usize {
        usize::from(self.options.keys) + usize::from(self.options.values)
    }

    /// Returns its part from `lower` up to but not including `upper`, or to the end. `None` if it
    /// has none.
    pub fn piece(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<RangePiece> {
        let owned = |bound: &Bound<Cow<'_, [u8]>>| bound.as_ref().map(|key| key.to_vec());
        let start = match &self.start {
            Bound::Included(key) | Bound::Excluded(key) if **key >= *lower => owned(&self.start),
            _ if lower.is_empty() => Bound::Unbounded,
            _ => Bound::Included(lower.to_vec()),
        };
        let end = match (&self.end, upper) {
            (Bound::Included(key), Some(upper)) if **key >= *upper => {
                Bound::Excluded(upper.to_vec())
            }
            (Bound::Excluded(key), Some(upper)) if **key > *upper => {
                Bound::Excluded(upper.to_vec())
            }
            (Bound::Unbounded, Some(upper)) => Bound::Excluded(upper.to_vec()),
            (end, _) => owned(end),
        };
        let is_any = !is_empty(
            &start.as_ref().map(Vec::as_slice),
            &end.as_ref().map(Vec::as_slice),
        );
        is_any.then_some(RangePiece { start, end })
    }

    /// Returns its part of a partition of an ordered table.
    pub fn piece_within(&self, bounds: &Bounds) -> Option<RangePiece> {
        let key = |bound: &PartBound| match bound {
            PartBound::Key(key) => key.clone(),
            PartBound::Slot(_) => Vec::new(),
        };
        let upper = bounds.upper.as_ref().map(key);
        self.piece(&key(&bounds.lower), upper.as_deref())
    }

    /// Returns whether all of it is in a partition.
    pub fn lies_within(&self, bounds: &Bounds) -> bool {
        let all = self.piece(&[], None);
        all.is_none() || self.piece_within(bounds) == all
    }

    /// Returns the bounds of its keys.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let start = self.start.as_ref().map(|key| &**key);
        (start, self.end.as_ref().map(|key| &**key))
    }

    /// Returns whether it ends before it begins.
    pub fn is_empty(&self) -> bool {
        let (start, end) = self.bounds();
        is_empty(&start, &end)
    }

    pub fn is_reverse(&self) -> bool {
        self.options.reverse
    }

    /// Returns the command that asks for at most `limit` records of a piece.
    pub fn args_of(&self, piece: &RangePiece, limit: usize) -> OwnedArgs {
        let bound = |bound: &Bound<Vec<u8>>| {
            let (mark, key): (&[u8], &[u8]) = match bound {
                Bound::Unbounded => (b"", b""),
                Bound::Included(key) => (b"[", key),
                Bound::Excluded(key) => (b"(", key),
            };
            [mark, self.table, b":", key].concat()
        };
        let mut args = OwnedArgs::default();
        for arg in [
            b"KV.RANGE",
            &bound(&piece.start)[..],
            &bound(&piece.end),
            b"LIMIT",
        ] {
            args.push(arg);
        }
        args.push(limit.to_string().as_bytes());
        let RangeOptions {
            reverse,
            keys,
            values,
            ..
        } = self.options;
        for (word, is_given) in [("REV", reverse), ("KEYS", !values), ("VALUES", !keys)] {
            if is_given {
                args.push(word.as_bytes());
            }
        }
        args
    }

    /// Returns `next` for a reply that ends with the piece before this one.
    pub fn next_at(&self, piece: &RangePiece) -> Vec<u8> {
        let (mark, key): (&[u8], &[u8]) = match (self.options.reverse, &piece.start, &piece.end) {
            (false, Bound::Included(key), _) => (b"[", key),
            (false, Bound::Excluded(key), _) => (b"(", key),
            (true, _, Bound::Included(key)) => (b"[", key),
            (true, _, Bound::Excluded(key)) => (b"(", key),
            _ => (b"", b""),
        };
        [mark, self.table, b":", key].concat()
    }
}

/// A parsed command that deletes a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRequest<'a> {
    pub table: &'a [u8],
    /// `None` for all keys.
    pub range: Option<RangeRequest<'a>>,
    /// Whether it replies with the number of deleted keys.
    pub is_counted: bool,
}

impl<'a> DeleteRequest<'a> {
    /// Parses a KV.DELRANGE or a FLUSHDB.
    pub fn parse(args: &Args<'a>, default: Option<&'a TableName>) -> Result<Self, CommandError> {
        match args.is(0, "flushdb") {
            true => Ok(Self {
                table: flushed(args, default)?,
                range: None,
                is_counted: false,
            }),
            false => Self::of_range(args),
        }
    }

    fn of_range(args: &Args<'a>) -> Result<Self, CommandError> {
        let is_counted = match args.len() {
            3 => true,
            4 if args.is(3, "nocount") => false,
            _ => return Err(CommandError::syntax()),
        };
        let (table, start, end) = bounds(args)?;
        let options = RangeOptions::default();
        let range = RangeRequest {
            table,
            start,
            end,
            options,
        };
        Ok(Self {
            table,
            range: Some(range),
            is_counted,
        })
    }
}

impl Default for RangeOptions {
    fn default() -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            reverse: false,
            keys: true,
            values: true,
        }
    }
}

/// One bound: its table, if it names one, and the place in it.
struct Edge<'a> {
    table: Option<&'a [u8]>,
    place: Bound<Cow<'a, [u8]>>,
}

pub fn range(call: &mut Call<'_>) -> Answer {
    let options = options(&call.args)?;
    let (table, start, end) = bounds(&call.args)?;
    let (start, end) = (
        start.as_ref().map(|key| &**key),
        end.as_ref().map(|key| &**key),
    );
    let source = find_source(call.tables, call.user, table)?;
    call.first = Some(source.table());
    let direction = if options.reverse {
        Direction::Backward
    } else {
        Direction::Forward
    };
    let mut items = Reply::new(call.reply.is_resp3());
    let (mut count, mut more, mut last) = (0, false, Vec::new());
    check_ordered(source)?;
    // A range that ends before it begins is empty.
    if is_empty(&start, &end) {
        return reply(call, None, 0, &items);
    }
    let mut scan = source.scan_keys(start, end, direction)?;
    while scan.advance()? {
        if count >= options.limit || items.len() >= REPLY_BYTES {
            more = true;
            break;
        }
        count += 1;
        last.clear();
        last.extend_from_slice(scan.key());
        if options.keys {
            items.bulk(&wire_key(source.table(), scan.key()));
        }
        if options.values {
            reply_value(&mut items, source, Some(scan.value()))?;
        }
    }
    let next = more.then(|| [b"(", &wire_key(source.table(), &last)[..]].concat());
    let parts = usize::from(options.keys) + usize::from(options.values);
    reply(call, next, count * parts, &items)
}

/// The table and the two bounds in it.
type NamedBounds<'a> = (&'a [u8], Bound<Cow<'a, [u8]>>, Bound<Cow<'a, [u8]>>);

/// Parses the bounds in the first two arguments.
fn bounds<'a>(args: &Args<'a>) -> Result<NamedBounds<'a>, CommandError> {
    if args.get(1).starts_with(b"*") {
        return Err(CommandError::error(
            "ERR '*table:prefix' ends a range: its start is 'table:prefix'",
        ));
    }
    let (start, end) = (edge(args.get(1))?, edge(args.get(2))?);
    let table = match (start.table, end.table) {
        (Some(a), Some(b)) if a != b => {
            return Err(CommandError::error(
                "ERR both bounds must be of the same table",
            ));
        }
        (Some(table), _) | (None, Some(table)) => table,
        (None, None) => {
            return Err(CommandError::error(
                "ERR one bound must name the table: 'table:key'",
            ));
        }
    };
    Ok((table, start.place, end.place))
}

fn check_ordered(source: Source<'_>) -> Answer {
    match source {
        _ if source.order() == Order::Ordered => Ok(()),
        Source::Batch(_) => Err(no_key_order(source.table().as_str().as_bytes(), "push")),
        Source::Live(_) => Err(no_key_order(source.table().as_str().as_bytes(), "create")),
    }
}

/// Returns the error for a table without ranges; `how` says how to create one with ranges.
pub fn no_key_order(table: &[u8], how: &str) -> CommandError {
    let table = shown(table);
    CommandError::error(format!(
        "ERR table '{table}' is hashed and has no key order: {how} it with --order ordered for ranges"
    ))
}

/// KV.DELRANGE start end [NOCOUNT]: deletes the keys of a live ordered table at one moment. It
/// reads them only to count them.
pub fn delete_range(range_delete: &mut RangeDelete<'_>) -> Answer {
    let args = range_delete.args;
    let DeleteRequest {
        range: Some(range),
        is_counted,
        ..
    } = DeleteRequest::of_range(&args)?
    else {
        return Err(CommandError::syntax());
    };
    let (start, end) = range.bounds();
    let table = range_delete.live(range.table)?;
    check_ordered(Source::Live(table))?;
    if !is_counted {
        if !range.is_empty() {
            let commit = table.delete_range(start, end)?;
            range_delete.commits.add(table, &commit);
        }
        range_delete.reply.ok();
        return Ok(());
    }
    let mut keys = 0;
    if !range.is_empty() {
        let (deleted, commit) = table.delete_range_counted(start, end)?;
        range_delete.commits.add(table, &commit);
        keys = i64::try_from(deleted).unwrap_or(i64::MAX);
    }
    range_delete.reply.int(keys);
    Ok(())
}

/// FLUSHDB [table] [ASYNC | SYNC]: deletes the keys of a live table at one moment.
pub fn flush(range_delete: &mut RangeDelete<'_>) -> Answer {
    let (args, shared) = (range_delete.args, range_delete.shared);
    let table = flushed(&args, shared.config.default_table.as_ref())?;
    let table = range_delete.live(table)?;
    let commit = table.delete_all()?;
    range_delete.commits.add(table, &commit);
    range_delete.reply.ok();
    Ok(())
}

/// Returns the table of a FLUSHDB.
fn flushed<'a>(args: &Args<'a>, default: Option<&'a TableName>) -> Result<&'a [u8], CommandError> {
    let is_mode = |at: usize| args.is(at, "async") || args.is(at, "sync");
    let named = match args.len() {
        1 => None,
        2 if is_mode(1) => None,
        2 => Some(args.get(1)),
        3 if is_mode(2) => Some(args.get(1)),
        _ => return Err(CommandError::syntax()),
    };
    let table = named.or(default.map(|table| table.as_str().as_bytes()));
    table.ok_or_else(|| {
        CommandError::error(
            "ERR FLUSHDB here empties one table: FLUSHDB TABLE, or without a name that of \
             --default-table",
        )
    })
}

fn reply(call: &mut Call<'_>, next: Option<Vec<u8>>, count: usize, items: &Reply) -> Answer {
    call.reply.array(2);
    match next {
        Some(next) => call.reply.bulk(&next),
        None => call.reply.null(),
    }
    call.reply.array(count);
    call.reply.append(items.bytes());
    call.check_size()
}

fn options(args: &Args<'_>) -> Result<RangeOptions, CommandError> {
    let mut options = RangeOptions::default();
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "limit") && at + 1 < args.len() {
            let limit = positive(args.get(at + 1));
            let limit = limit.map_err(|_| CommandError::error(WRONG_LIMIT))?;
            options.limit = limit.min(MAX_LIMIT);
            at += 1;
        } else if args.is(at, "rev") {
            options.reverse = true;
        } else if args.is(at, "keys") && options.keys {
            options.values = false;
        } else if args.is(at, "values") && options.values {
            options.keys = false;
        } else {
            return Err(CommandError::syntax());
        }
        at += 1;
    }
    Ok(options)
}

fn edge(argument: &[u8]) -> Result<Edge<'_>, CommandError> {
    let (exclusive, wire) = match argument {
        b"-" | b"+" => {
            return Ok(Edge {
                table: None,
                place: Bound::Unbounded,
            });
        }
        [b'*', wire @ ..] => {
            let (table, prefix) = named(wire)?;
            return Ok(Edge {
                table: Some(table),
                place: ScanRange::behind_prefix(prefix).map(Cow::Owned),
            });
        }
        [b'[', wire @ ..] => (false, wire),
        [b'(', wire @ ..] => (true, wire),
        wire => (false, wire),
    };
    let (table, key) = named(wire)?;
    let place = match (key, exclusive) {
        ([], _) => Bound::Unbounded,
        (key, true) => Bound::Excluded(Cow::Borrowed(key)),
        (key, false) => Bound::Included(Cow::Borrowed(key)),
    };
    Ok(Edge {
        table: Some(table),
        place,
    })
}

fn is_empty(start: &Bound<&[u8]>, end: &Bound<&[u8]>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (start, end) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
    }
}

/// Bounds do not use the default table: the range's end would depend on which tables exist.
fn named(wire: &[u8]) -> Result<(&[u8], &[u8]), CommandError> {
    split(wire).map_err(|_| {
        CommandError::error(format!(
            "ERR bound '{}' names no table, as bounds have to, with a default table too: 'table:key'",
            shown(wire)
        ))
    })
}
