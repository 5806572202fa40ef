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

use super::call::Call;
use super::keyspace::{readable, type_name};
use super::names::ShownKeys;
use super::{Answer, CommandError, positive};
use forebay_engine::Source;

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
    /// Oldest first: a number below 2^41, with [`KEPT`], and the last key that was returned.
    places: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

struct ScanOptions<'a> {
    shown: ShownKeys<'a>,
    count: usize,
    kind: Option<&'a [u8]>,
}

impl ScanCursors {
    fn keep(&self, random: &dyn Random, key: &[u8]) -> u64 {
        let number = random.next_u64() >> CUT_BITS | KEPT;
        let mut places = self.places.lock();
        if places.len() >= KEPT_PLACES {
            places.pop_front();
        }
        places.push_back((number, key.to_vec()));
        number
    }

    fn find(&self, number: u64) -> Option<Vec<u8>> {
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
    let cursor = std::str::from_utf8(call.args.get(1))
        .ok()
        .and_then(|text| text.parse().ok());
    let cursor: u64 = cursor.ok_or_else(|| CommandError::error("ERR invalid cursor"))?;
    let options = options(call)?;
    let tables = numbered(readable(call));
    let (table, mut place) = (cursor >> PLACE_BITS, cursor & ((1 << PLACE_BITS) - 1));
    let (mut keys, mut seen, mut next) = (Vec::new(), 0, 0);
    for (number, source) in tables.into_iter().filter(|(number, _)| *number >= table) {
        if seen >= options.count {
            next = number << PLACE_BITS;
            break;
        }
        let from = if number == table {
            std::mem::take(&mut place)
        } else {
            0
        };
        if !options.accepts(source) {
            continue;
        }
        let stopped = match source.order() {
            Order::Hashed => walk_hashed(source, from, &options, &mut seen, &mut keys)?,
            Order::Ordered => walk_ordered(call, source, from, &options, &mut seen, &mut keys)?,
        };
        if let Some(place) = stopped {
            next = number << PLACE_BITS | place;
            break;
        }
    }
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(keys.len());
    keys.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

fn options<'a>(call: &Call<'a>) -> Result<ScanOptions<'a>, CommandError> {
    let args = call.args;
    let mut options = ScanOptions {
        shown: call.shown_keys(None),
        count: 10,
        kind: None,
    };
    for at in (2..args.len()).step_by(2) {
        if at + 1 >= args.len() {
            return Err(CommandError::syntax());
        }
        let value = args.get(at + 1);
        if args.is(at, "match") {
            options.shown = call.shown_keys(Some(value));
        } else if args.is(at, "count") {
            options.count = positive(value)?.min(MAX_COUNT);
        } else if args.is(at, "type") {
            options.kind = Some(value);
        } else {
            return Err(CommandError::syntax());
        }
    }
    Ok(options)
}

impl ScanOptions<'_> {
    fn accepts(&self, source: Source<'_>) -> bool {
        let kind = type_name(source).as_bytes();
        self.kind
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.shown.may_match(source)
    }
}

/// Gives every table its number, and sorts by it. A table keeps its number when others come and go,
/// but for the rare case that two names want the same one.
fn numbered(tables: Vec<Source<'_>>) -> Vec<(u64, Source<'_>)> {
    let wanted =
        |source: Source<'_>| 1 + xxh3_64(source.table().as_str().as_bytes()) % TABLE_NUMBERS;
    let mut numbered: Vec<_> = tables
        .into_iter()
        .map(|table| (wanted(table), table))
        .collect();
    numbered.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.table().cmp(y.table())));
    let mut least = 0;
    for (number, _) in &mut numbered {
        *number = (*number).max(least);
        least = *number + 1;
    }
    numbered
}

/// Walks on from `place` until enough keys were seen; answers where to go on, `None` at the end.
/// Keys of one place are never parted.
fn walk_hashed(
    source: Source<'_>,
    place: u64,
    options: &ScanOptions<'_>,
    seen: &mut usize,
    keys: &mut Vec<Vec<u8>>,
) -> Result<Option<u64>, CommandError> {
    // A place of an ordered table is none here.
    let from = if place & KEPT == 0 { place } else { 0 };
    let range = ScanRange::hashes(from << CUT_BITS, None);
    let mut scan = source.scan(range, Direction::Forward);
    let mut last = None;
    while scan.advance()? {
        let place = scan.hash() >> CUT_BITS;
        if *seen >= options.count && last != Some(place) {
            return Ok(Some(place));
        }
        last = Some(place);
        *seen += 1;
        keys.extend(options.shown.show(source, scan.key()));
    }
    Ok(None)
}

fn walk_ordered(
    call: &Call<'_>,
    source: Source<'_>,
    place: u64,
    options: &ScanOptions<'_>,
    seen: &mut usize,
    keys: &mut Vec<Vec<u8>>,
) -> Result<Option<u64>, CommandError> {
    let cursors = &call.shared.scan_cursors;
    let after = (place & KEPT != 0).then(|| cursors.find(place)).flatten();
    let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    // Not `scan_keys`: what is not here is for others to tell.
    let range = ScanRange::keys(from, Bound::Unbounded);
    let mut scan = source.scan(range, Direction::Forward);
    let mut last = Vec::new();
    while scan.advance()? {
        if *seen >= options.count {
            return Ok(Some(cursors.keep(&**call.shared.store.random(), &last)));
        }
        *seen += 1;
        last.clear();
        last.extend_from_slice(scan.key());
        keys.extend(options.shown.show(source, scan.key()));
    }
    Ok(None)
}
