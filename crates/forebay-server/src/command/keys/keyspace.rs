//! Redis's commands about keys: type, encoding, a random key, the number of keys.

use forebay_engine::{RandomPlace, ValueKind};
use forebay_io::Random;
use forebay_run::scan::{Direction, ScanRange};

use crate::command::running::call::Call;
use crate::command::{Answer, CommandError, shown as printable};
use forebay_engine::Source;

/// The most keys that KEYS walks.
const KEYS_LIMIT: u64 = 100_000;

/// Returns Redis's name for the type of a table's values.
pub fn type_name(kind: &ValueKind) -> &'static str {
    match kind {
        ValueKind::Row => "hash",
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => "string",
        ValueKind::List { .. } => "list",
    }
}

pub fn type_of(call: &mut Call<'_>) -> Answer {
    let (source, value) = call.fetch(call.args.get(1))?;
    call.reply.simple(if value.is_some() {
        type_name(source.kind())
    } else {
        "none"
    });
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
        return Err(CommandError::unknown_subcommand("OBJECT", call.args.get(1)));
    }
    let (source, value) = call.fetch(call.args.get(2))?;
    if value.is_none() {
        call.reply.null();
    } else if call.args.is(1, "encoding") {
        call.reply.bulk(match source.kind() {
            ValueKind::Row => b"listpack",
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => b"raw",
            ValueKind::List { .. } => b"quicklist",
        });
    } else {
        call.reply.int(i64::from(call.args.is(1, "refcount")));
    }
    Ok(())
}

pub fn dbsize(call: &mut Call<'_>) -> Answer {
    let tables = call.scope().readable();
    let rows = tables
        .iter()
        .map(|source| source.rows())
        .fold(0, u64::saturating_add);
    call.reply.int(i64::try_from(rows).unwrap_or(i64::MAX));
    Ok(())
}

/// Replies with a random key, of a table chosen by its share of all keys.
pub fn randomkey(call: &mut Call<'_>) -> Answer {
    let mut tables = call.scope().readable();
    // For replicas, the caller draws a key with their permit.
    let is_replica = |source: &Source<'_>| match source {
        Source::Batch(_) => false,
        Source::Live(table) => call.tables.is_replica(table),
    };
    tables.retain(|source| !is_replica(source));
    // A live table may have rows in memory only.
    let weight = |source: Source<'_>| match source {
        Source::Batch(_) => source.rows(),
        Source::Live(_) => source.rows().max(1),
    };
    let rows: u64 = tables.iter().copied().map(weight).sum();
    let random = &**call.shared.store.random();
    let mut place = random.next_u64() % rows.max(1);
    // A live table may turn out to be empty: then the next table is used.
    for &source in tables.iter().chain(&tables) {
        let rows = weight(source);
        if place >= rows {
            place -= rows;
            continue;
        }
        place = 0;
        if let Some(key) = some_key(source, random)? {
            call.first = Some(source.table());
            let key = call.scope().shown_keys(None).show(source.table(), &key);
            call.reply.bulk(&key.unwrap_or_default());
            return Ok(());
        }
    }
    call.reply.null();
    Ok(())
}

/// Returns a random key of a table. `None` if it is empty.
fn some_key(source: Source<'_>, random: &dyn Random) -> Result<Option<Vec<u8>>, CommandError> {
    let RandomPlace { range, keys } = source.random_place(random);
    let most = usize::try_from(keys).unwrap_or(usize::MAX);
    let mut drawn_from: Vec<Vec<u8>> = Vec::new();
    // After the end, the search continues at the beginning.
    for range in [range, ScanRange::all()] {
        let mut scan = source.scan(range, Direction::Forward);
        while drawn_from.len() < most && scan.advance()? {
            drawn_from.push(scan.key().to_vec());
        }
    }
    let drawn = random.next_u64() % (drawn_from.len().max(1) as u64);
    Ok(drawn_from.into_iter().nth(drawn as usize))
}

/// Refuses a KEYS that would walk too many keys.
pub fn check_walked(pattern: &[u8], rows: u64) -> Answer {
    match rows {
        0..=KEYS_LIMIT => Ok(()),
        _ => Err(CommandError::error(format!(
            "ERR KEYS '{}' would walk {rows} keys, more than {KEYS_LIMIT}: use SCAN with MATCH",
            printable(pattern)
        ))),
    }
}

/// KEYS pattern, if it has to walk few enough keys.
pub fn keys(call: &mut Call<'_>) -> Answer {
    let pattern = call.args.get(1);
    let shown = call.scope().shown_keys(Some(pattern));
    let mut tables = call.scope().readable();
    tables.retain(|source| shown.may_match(source.table()));
    let check = |rows| check_walked(pattern, rows);
    check(tables.iter().map(|source| source.rows()).sum())?;
    let (mut found, mut walked) = (Vec::new(), 0);
    for source in tables {
        let mut scan = source.scan(ScanRange::all(), Direction::Forward);
        while scan.advance()? {
            walked += 1;
            check(walked)?;
            found.extend(shown.show(source.table(), scan.key()));
        }
    }
    call.reply.array(found.len());
    found.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}
