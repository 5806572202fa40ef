//! SCAN over all tables, in a form that survives swaps.
//!
//! The tables are walked in the order of small numbers made from their names, and each of them in
//! its own order. In a hashed table the cursor is a place among the hashes, which means the same in
//! every version: a key that is there throughout is returned, whatever swaps come between. In an
//! ordered table the place is a key, too long for a cursor: the server keeps it, under the number
//! that the cursor is; when it was forgotten (the server keeps a bounded number of them), the table
//! is walked again from its beginning; so it is when a version of the other order has come to
//! serve, where the place means nothing. So a key can come twice, which SCAN allows, but none is
//! left out.
//!
//! Cursors stay below 2^53, for some clients keep them in floats: 11 bits for the table (from 1),
//! one that says whether the place is kept here, 41 for the place.

use forebay_io::Random;
use forebay_run::Order;
use forebay_run::scan::{Direction, ScanRange};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64;

use super::call::{Call, Scope};
use super::keyspace::type_name;
use super::names::ShownKeys;
use super::{Answer, CommandError, positive};
use crate::resp::{Args, Reply};
use forebay_engine::{Source, TableName, ValueKind};

const PLACE_BITS: u32 = 42;
/// Set in the place of an ordered table.
const KEPT: u64 = 1 << (PLACE_BITS - 1);
const TABLE_NUMBERS: u64 = (1 << 11) - 1;
/// Bits of a hash64 that the place leaves out.
const CUT_BITS: u32 = 65 - PLACE_BITS;
/// The most keys that one SCAN looks at, more or less.
const MAX_COUNT: usize = 10_000;
/// How many places in ordered tables are kept.
const KEPT_PLACES: usize = 16_384;

/// Where walks through ordered tables go on.
#[derive(Debug, Default)]
pub struct ScanCursors {
    /// Oldest first: a number below 2^41, with [`KEPT`], and the key to go on from.
    places: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

/// What a SCAN asks for.
pub struct ScanRequest<'a> {
    pub cursor: ScanCursor,
    pub shown: ShownKeys<'a>,
    pub count: usize,
    kind: Option<&'a [u8]>,
}

/// Where a SCAN begins, or the next one goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanCursor {
    /// A table's number; from it on.
    pub table: u64,
    /// In that table.
    pub place: u64,
}

impl ScanCursors {
    /// The place in an ordered table from which a key is the next.
    pub fn keep(&self, random: &dyn Random, key: &[u8]) -> u64 {
        let number = random.next_u64() >> CUT_BITS | KEPT;
        let mut places = self.places.lock();
        if places.len() >= KEPT_PLACES {
            places.pop_front();
        }
        places.push_back((number, key.to_vec()));
        number
    }

    /// The key that a place of an ordered table begins with, if it is known.
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
    /// The beginning of a table.
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

    /// The reply of a SCAN that found these keys and goes on here.
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

/// Gives every table its number, and sorts by it. A table keeps its number when others come and go,
/// but for the rare case that two names want the same one.
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

/// The hash that a place begins with; that of an ordered table is none here.
pub fn first_hash(place: u64) -> u64 {
    if place & KEPT == 0 {
        place << CUT_BITS
    } else {
        0
    }
}

/// The place of a hash.
pub fn place_of_hash(hash: u64) -> u64 {
    hash >> CUT_BITS
}

/// Walks on from `place` until enough keys were seen; answers where to go on, `None` at the end.
/// Keys of one place are never parted.
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
    // Not `scan_keys`: what is not here is for others to tell.
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
