//! What Redis tells of keys: type, time to live, encoding; how many there are.

use forebay_engine::{ValueKind, Version};
use forebay_run::scan::{Direction, ScanRange};

use super::call::Call;
use super::{Answer, Stop, shown};
use crate::glob;
use crate::users::Verb;

/// KEYS walks at most so many keys.
const KEYS_LIMIT: u64 = 100_000;

/// What Redis calls the type of a table's values.
pub fn type_name(version: &Version) -> &'static str {
    match version.manifest().value {
        ValueKind::Row => "hash",
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => "string",
        ValueKind::List { .. } => "list",
    }
}

pub fn type_of(call: &mut Call<'_>) -> Answer {
    let (version, value) = call.fetch(call.args.get(1))?;
    call.reply.simple(if value.is_some() {
        type_name(version)
    } else {
        "none"
    });
    Ok(())
}

/// TTL, PTTL, EXPIRETIME, PEXPIRETIME: -1 for a key that does not expire, -2 for an absent one.
pub fn ttl(call: &mut Call<'_>) -> Answer {
    let (version, value) = call.fetch(call.args.get(1))?;
    let there = value.is_some();
    if !there || version.manifest().ttl.is_none() {
        call.reply.int(if there { -1 } else { -2 });
        return Ok(());
    }
    if !call.may_wait {
        return Err(Stop::NotResident);
    }
    let (_, key) = call.locate(call.args.get(1))?;
    let now_ms = call.shared.store.clock().unix_ms();
    let expires_ms = match version.expires_ms(key)? {
        Some(expires_ms) => expires_ms,
        None => {
            call.reply.int(-2);
            return Ok(());
        }
    };
    let name = call.args.get(0).to_ascii_lowercase();
    let left_ms = expires_ms.saturating_sub(now_ms);
    let (ms, in_seconds) = match &name[..] {
        b"ttl" => (left_ms, true),
        b"pttl" => (left_ms, false),
        b"expiretime" => (expires_ms, true),
        _ => (expires_ms, false),
    };
    let shown = if in_seconds {
        ms.saturating_add(500) / 1000
    } else {
        ms
    };
    let shown = i64::try_from(shown).unwrap_or(i64::MAX);
    call.reply
        .int(if expires_ms == u64::MAX { -1 } else { shown });
    Ok(())
}

/// OBJECT ENCODING | REFCOUNT | IDLETIME | FREQ key.
pub fn object(call: &mut Call<'_>) -> Answer {
    if call.args.is(1, "help") && call.args.len() == 2 {
        call.reply.array(2);
        call.reply
            .bulk(b"OBJECT ENCODING <key>: raw, listpack (rows) or quicklist (lists).");
        call.reply
            .bulk(b"OBJECT REFCOUNT <key> | IDLETIME <key>: 1 and 0, for every key there is.");
        return Ok(());
    }
    let known = ["encoding", "refcount", "idletime"];
    if call.args.len() != 3 || !known.iter().any(|word| call.args.is(1, word)) {
        return Err(Stop::unknown_subcommand("OBJECT", call.args.get(1)));
    }
    let (version, value) = call.fetch(call.args.get(2))?;
    if value.is_none() {
        call.reply.null();
    } else if call.args.is(1, "encoding") {
        call.reply.bulk(match version.manifest().value {
            ValueKind::Row => b"listpack",
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => b"raw",
            ValueKind::List { .. } => b"quicklist",
        });
    } else {
        call.reply.int(i64::from(call.args.is(1, "refcount")));
    }
    Ok(())
}

/// MEMORY USAGE key: the bytes of key and value.
pub fn memory(call: &mut Call<'_>) -> Answer {
    if !call.args.is(1, "usage") || call.args.len() < 3 {
        let only = "ERR MEMORY here knows only USAGE: see the metrics for the server's own";
        return Err(Stop::error(only));
    }
    let wire = call.args.get(2);
    match call.fetch(wire)?.1 {
        Some(value) => call.reply.count(wire.len() + value.len()),
        None => call.reply.null(),
    }
    Ok(())
}

/// The tables that the user may read.
pub fn readable<'a>(call: &Call<'a>) -> Vec<&'a std::sync::Arc<Version>> {
    let user = call.user;
    let may = |name: &str| user.may(Verb::Read, name.as_bytes());
    call.tables
        .iter()
        .filter(|(name, _)| may(name.as_str()))
        .map(|(_, version)| version)
        .collect()
}

pub fn dbsize(call: &mut Call<'_>) -> Answer {
    let tables = readable(call);
    let rows = tables
        .iter()
        .map(|version| version.manifest().rows())
        .fold(0, u64::saturating_add);
    call.reply.int(i64::try_from(rows).unwrap_or(i64::MAX));
    Ok(())
}

/// A key of a table chosen by its share of all keys: the first one behind a random place.
pub fn randomkey(call: &mut Call<'_>) -> Answer {
    let tables = readable(call);
    let rows: u64 = tables.iter().map(|version| version.manifest().rows()).sum();
    if rows == 0 {
        call.reply.null();
        return Ok(());
    }
    let random = call.shared.store.random();
    let mut place = random.next_u64() % rows;
    for version in tables {
        let rows = version.manifest().rows();
        if place >= rows {
            place -= rows;
            continue;
        }
        let from = match version.order() {
            forebay_run::Order::Hashed => ScanRange::hashes(random.next_u64(), None),
            forebay_run::Order::Ordered => random_partition(version, random.next_u64()),
        };
        for range in [from, ScanRange::all()] {
            let mut scan = version.scan_range(range, Direction::Forward);
            if scan.advance()? {
                call.first = Some(version);
                call.reply.bulk(&wire_key(version, scan.key()));
                return Ok(());
            }
        }
    }
    call.reply.null();
    Ok(())
}

/// An ordered table has no place that a number alone could choose, but its partitions' bounds.
fn random_partition(version: &Version, random: u64) -> ScanRange {
    use std::ops::Bound::{Included, Unbounded};
    let partitions = &version.manifest().partitions;
    let chosen = partitions.get((random % partitions.len().max(1) as u64) as usize);
    match chosen.map(|partition| &partition.lower) {
        Some(forebay_engine::Bound::Key(key)) => ScanRange::keys(Included(key), Unbounded),
        _ => ScanRange::all(),
    }
}

/// KEYS pattern, where few enough keys have to be looked at.
pub fn keys(call: &mut Call<'_>) -> Answer {
    let pattern = call.args.get(1);
    let tables: Vec<_> = readable(call)
        .into_iter()
        .filter(|version| may_match(pattern, version))
        .collect();
    let rows: u64 = tables.iter().map(|version| version.manifest().rows()).sum();
    if rows > KEYS_LIMIT {
        return Err(Stop::error(format!(
            "ERR KEYS '{}' would walk {rows} keys, more than {KEYS_LIMIT}: use SCAN with MATCH",
            shown(pattern)
        )));
    }
    let mut found = Vec::new();
    for version in tables {
        let mut scan = version.scan(Direction::Forward);
        while scan.advance()? {
            let key = wire_key(version, scan.key());
            if glob::matches(pattern, &key) {
                found.push(key);
            }
        }
    }
    call.reply.array(found.len());
    found.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

/// Whether any wire key of the table could match, by what the pattern begins with.
pub fn may_match(pattern: &[u8], version: &Version) -> bool {
    let prefix = glob::literal_prefix(pattern);
    let table = [version.table().as_str().as_bytes(), b":"].concat();
    let common = prefix.len().min(table.len());
    prefix[..common] == table[..common]
}

/// `table:key`.
pub fn wire_key(version: &Version, key: &[u8]) -> Vec<u8> {
    [version.table().as_str().as_bytes(), b":", key].concat()
}
