//! SCAN over all tables, with cursors that survive swaps.
//!
//! Tables are walked in the order of small numbers made from their names, and each table in its own
//! order. In a hashed table the cursor is a place among the hashes, which means the same in every
//! version. So a key that exists throughout is returned, whatever swaps happen.
//!
//! Tables whose names get the same number are an exception. Among 54 tables two do with odds of
//! about one half. [`numbered`] gives the later one the next free number. If one of the two is
//! added or dropped during a walk, the other one's number can change. Its keys can then be missed
//! or returned twice.
//!
//! In an ordered table the place is a key, which is too long for a cursor. The server keeps the key
//! under the number in the cursor, for a bounded number of cursors. If the key was forgotten, the
//! walk restarts at the table's beginning. The same happens if a version of the other order serves
//! now, in which the place has no meaning. So a key can be returned twice, which SCAN allows, but
//! none is left out.
//!
//! Cursors are below 2^53, because some clients keep them in floats. They have 11 bits for the
//! table (from 1), one bit for whether the server keeps the place, and 41 for the place. If names
//! collide at the last number, 2,047, the later tables have numbers, and cursors, beyond that.

use forebay_io::Random;
use forebay_run::Order;
use forebay_run::scan::{Direction, ScanRange};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64;

use super::keyspace::type_name;
use crate::command::running::call::{Call, Scope};
use crate::command::running::names::ShownKeys;
use crate::command::{Answer, CommandError, positive};
use crate::resp::{Args, Reply};
use forebay_engine::{Source, TableName, ValueKind};

const PLACE_BITS: u32 = 42;
/// Set in the place of an ordered table.
const KEPT: u64 = 1 << (PLACE_BITS - 1);
const TABLE_NUMBERS: u64 = (1 << 11) - 1;
/// The bits of a hash64 that the place leaves out.
const CUT_BITS: u32 = 65 - PLACE_BITS;
/// The approximate limit of keys that one SCAN reads.
const MAX_COUNT: usize = 10_000;
/// The number of kept places in ordered tables.
const KEPT_PLACES: usize = 16_384;

/// The places where walks through ordered tables continue.
#[derive(Debug, Default)]
pub struct ScanCursors {
    /// Oldest first: a number below 2^41, with [`KEPT`], and the key to continue from.
    places: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

/// The arguments of a SCAN.
pub struct ScanRequest<'a> {
    pub cursor: ScanCursor,
    pub shown: ShownKeys<'a>,
    pub count: usize,
    kind: Option<&'a [u8]>,
}

/// The place where a SCAN begins or the next one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanCursor {
    /// The number of the first table.
    pub table: u64,
    /// The place in that table.
    pub place: u64,
}

impl ScanCursors {
    /// Keeps the next key and returns its place in an ordered table.
    pub fn keep(&self, random: &dyn Random, key: &[u8]) -> u64 {
        let number = random.next_u64() >> CUT_BITS | KEPT;
        let mut places = self.places.lock();
        if places.len() >= KEPT_PLACES {
            places.pop_front();
        }
        places.push_back((number, key.to_vec()));
        number
    }

    /// Returns the key of a place in an ordered table, if it is known.
    pub fn find(&self, number: u64) -> Option<Vec<u8>> {
        if number & KEPT == 0 {
            return None;
        }
        let places = self.places.lock();
        places
            .iter()
            .rev()
            .find(|(kept, _)| *kept == number)
            .map(|(_, key)| key.clone())
    }
}

/// SCAN cursor [MATCH pattern] [COUNT n] [TYPE type].
pub fn scan(call: &mut Call<'_>) -> Answer {
    let options = ScanRequest::parse(&call.args, call.scope())?;
    let tables = numbered(call.scope().readable(), |source| source.table());
    let ScanCursor { table, place } = options.cursor;
    let (mut keys, mut seen, mut next) = (Vec::new(), 0, ScanCursor::default());
    for (number, source) in tables.into_iter().filter(|(number, _)| *number >= table) {
        if seen >= options.count {
            next = ScanCursor::table(number);
            break;
        }
        let from = if number == table { place } else { 0 };
        if !options.accepts(source.table(), source.kind()) {
            continue;
        }
        let stopped = match source.order() {
            Order::Hashed => walk_hashed(source, from, &options, &mut seen, &mut keys)?,
            Order::Ordered => walk_ordered(call, source, from, &options, &mut seen, &mut keys)?,
        };
        if let Some(place) = stopped {
            next = ScanCursor {
                table: number,
                place,
            };
            break;
        }
    }
    next.reply(&keys, call.reply);
    Ok(())
}

impl ScanCursor {
    /// Returns the beginning of a table.
    pub fn table(number: u64) -> Self {
        Self {
            table: number,
            place: 0,
        }
    }

    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let text = std::str::from_utf8(text).ok();
        let cursor: Option<u64> = text.and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or_else(|| CommandError::error("ERR invalid cursor"))?;
        Ok(Self {
            table: cursor >> PLACE_BITS,
            place: cursor & ((1 << PLACE_BITS) - 1),
        })
    }

    /// Writes the reply of a SCAN that found these keys and continues at this place.
    pub fn reply(self, keys: &[Vec<u8>], reply: &mut Reply) {
        let cursor = self.table << PLACE_BITS | self.place;
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
    }
}

impl<'a> ScanRequest<'a> {
    pub fn parse(args: &Args<'a>, scope: Scope<'a>) -> Result<Self, CommandError> {
        let mut request = Self {
            cursor: ScanCursor::parse(args.get(1))?,
            shown: scope.shown_keys(None),
            count: 10,
            kind: None,
        };
        for at in (2..args.len()).step_by(2) {
            if at + 1 >= args.len() {
                return Err(CommandError::syntax());
            }
            let value = args.get(at + 1);
            if args.is(at, "match") {
                request.shown = scope.shown_keys(Some(value));
            } else if args.is(at, "count") {
                request.count = positive(value)?.min(MAX_COUNT);
            } else if args.is(at, "type") {
                request.kind = Some(value);
            } else {
                return Err(CommandError::syntax());
            }
        }
        Ok(request)
    }

    pub fn accepts(&self, table: &TableName, kind: &ValueKind) -> bool {
        let kind = type_name(kind).as_bytes();
        self.kind
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.shown.may_match(table)
    }
}

/// Gives every table its number, and sorts by it. A table keeps its number when others are added or
/// removed, unless their names hash to the same number: of 2,047 numbers, two of 54 tables want the
/// same one with odds of about one half. The one whose name sorts later gets the next free number.
pub fn numbered<T>(tables: Vec<T>, name: impl Fn(&T) -> &TableName) -> Vec<(u64, T)> {
    let wanted = |name: &TableName| 1 + xxh3_64(name.as_str().as_bytes()) % TABLE_NUMBERS;
    let mut numbered: Vec<(u64, T)> = tables
        .into_iter()
        .map(|table| (wanted(name(&table)), table))
        .collect();
    numbered.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| name(x).cmp(name(y))));
    let mut least = 0;
    for (number, _) in &mut numbered {
        *number = (*number).max(least);
        least = *number + 1;
    }
    numbered
}

/// Returns the first hash of a place of a hashed table.
pub fn first_hash(place: u64) -> u64 {
    if place & KEPT == 0 {
        place << CUT_BITS
    } else {
        0
    }
}

/// Returns the place of a hash.
pub fn place_of_hash(hash: u64) -> u64 {
    hash >> CUT_BITS
}

/// Walks from `place` until enough keys were seen. Returns where to continue, `None` at the end.
/// Keys of one place stay together.
fn walk_hashed(
    source: Source<'_>,
    place: u64,
    options: &ScanRequest<'_>,
    seen: &mut usize,
    keys: &mut Vec<Vec<u8>>,
) -> Result<Option<u64>, CommandError> {
    let range = ScanRange::hashes(first_hash(place), None);
    let mut scan = source.scan(range, Direction::Forward);
    let mut last = None;
    while scan.advance()? {
        let place = place_of_hash(scan.hash());
        if *seen >= options.count && last != Some(place) {
            return Ok(Some(place));
        }
        last = Some(place);
        *seen += 1;
        keys.extend(options.shown.show(source.table(), scan.key()));
    }
    Ok(None)
}

fn walk_ordered(
    call: &Call<'_>,
    source: Source<'_>,
    place: u64,
    options: &ScanRequest<'_>,
    seen: &mut usize,
    keys: &mut Vec<Vec<u8>>,
) -> Result<Option<u64>, CommandError> {
    let cursors = &call.shared.scan_cursors;
    let first = cursors.find(place);
    let from = first.as_deref().map_or(Bound::Unbounded, Bound::Included);
    // Not `scan_keys`: other nodes return the keys that this one lacks.
    let range = ScanRange::keys(from, Bound::Unbounded);
    let mut scan = source.scan(range, Direction::Forward);
    while scan.advance()? {
        if *seen >= options.count {
            return Ok(Some(
                cursors.keep(&**call.shared.store.random(), scan.key()),
            ));
        }
        *seen += 1;
        keys.extend(options.shown.show(source.table(), scan.key()));
    }
    Ok(None)
}
