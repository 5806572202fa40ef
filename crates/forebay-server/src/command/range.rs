//! KV.RANGE: the keys of an ordered table between two bounds.
//!
//! `KV.RANGE start end [LIMIT n] [REV] [KEYS|VALUES]`. A bound is a wire key behind `[` (inclusive) or
//! `(` (exclusive); without either it is inclusive. `-` is the beginning and `+` the end of the table
//! that the other bound names. A wire key without a key, `table:`, is the table's beginning as start and
//! its end as end. So `KV.RANGE log: +` is all of `log`, `KV.RANGE [log:2026-11 (log:2026-12` a month.
//!
//! The reply is `[next, items]`. Items are key, value, key, value, ...; only one of the two with KEYS or
//! VALUES. `next` takes start's place (with REV, end's) to go on, and is null at the end.

use std::ops::Bound;

use forebay_run::scan::Direction;

use super::call::{Call, split};
use super::keyspace::wire_key;
use super::string::reply_value;
use super::{Answer, Stop, find_version, positive};
use crate::resp::{Args, Reply};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 10_000;
/// A reply of this size ends early, with a `next`.
const REPLY_BYTES: usize = 4 << 20;

struct Options {
    limit: usize,
    reverse: bool,
    keys: bool,
    values: bool,
}

/// One bound: the table it names, if any, and the place in it.
struct Edge<'a> {
    table: Option<&'a [u8]>,
    place: Bound<&'a [u8]>,
}

pub fn range(call: &mut Call<'_>) -> Answer {
    let options = options(&call.args)?;
    let (start, end) = (edge(call.args.get(1))?, edge(call.args.get(2))?);
    let table = match (start.table, end.table) {
        (Some(a), Some(b)) if a != b => {
            return Err(Stop::error("ERR both bounds must be of the same table"));
        }
        (Some(table), _) | (None, Some(table)) => table,
        (None, None) => {
            return Err(Stop::error(
                "ERR one bound must name the table: 'table:key'",
            ));
        }
    };
    let version = find_version(call.tables, call.user, table)?;
    call.first = Some(version);
    let direction = if options.reverse {
        Direction::Backward
    } else {
        Direction::Forward
    };
    let mut items = Reply::new(call.reply.is_resp3());
    let (mut count, mut more, mut last) = (0, false, Vec::new());
    // A range that ends before it begins is empty.
    if is_empty(&start.place, &end.place) {
        return reply(call, None, 0, &items);
    }
    let mut scan = match version.scan_keys(start.place, end.place, direction) {
        Err(forebay_engine::ReadError::NoKeyOrder { table }) => {
            return Err(Stop::error(format!(
                "ERR table '{table}' is hashed and has no key order: push it with --order ordered \
                 for KV.RANGE"
            )));
        }
        scan => scan?,
    };
    while scan.advance()? {
        if count >= options.limit || items.len() >= REPLY_BYTES {
            more = true;
            break;
        }
        count += 1;
        last.clear();
        last.extend_from_slice(scan.key());
        if options.keys {
            items.bulk(&wire_key(version, scan.key()));
        }
        if options.values {
            reply_value(&mut items, version, Some(scan.value()))?;
        }
    }
    let next = more.then(|| [b"(", &wire_key(version, &last)[..]].concat());
    let parts = usize::from(options.keys) + usize::from(options.values);
    reply(call, next, count * parts, &items)
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

fn options(args: &Args<'_>) -> Result<Options, Stop> {
    let mut options = Options {
        limit: DEFAULT_LIMIT,
        reverse: false,
        keys: true,
        values: true,
    };
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "limit") && at + 1 < args.len() {
            options.limit = positive(args.get(at + 1))?.min(MAX_LIMIT);
            at += 1;
        } else if args.is(at, "rev") {
            options.reverse = true;
        } else if args.is(at, "keys") && options.keys {
            options.values = false;
        } else if args.is(at, "values") && options.values {
            options.keys = false;
        } else {
            return Err(Stop::syntax());
        }
        at += 1;
    }
    Ok(options)
}

fn edge(argument: &[u8]) -> Result<Edge<'_>, Stop> {
    let (exclusive, wire) = match argument {
        b"-" | b"+" => {
            return Ok(Edge {
                table: None,
                place: Bound::Unbounded,
            });
        }
        [b'[', wire @ ..] => (false, wire),
        [b'(', wire @ ..] => (true, wire),
        wire => (false, wire),
    };
    let (table, key) = split(wire)?;
    let place = match (key, exclusive) {
        ([], _) => Bound::Unbounded,
        (key, true) => Bound::Excluded(key),
        (key, false) => Bound::Included(key),
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
