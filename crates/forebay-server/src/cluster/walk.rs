//! Answers walks over the nodes of a cluster: SCAN, KEYS, DBSIZE, RANDOMKEY.
//!
//! KV.RANGE is in [`super::range`]. A SCAN cursor is the same as a standalone server's: a table and
//! a place in its order. Its meaning does not depend on the node that has the place now.

use std::sync::Arc;

use forebay_engine::Version;
use forebay_run::hash::slot_of;

use super::ask::{Requester, Unanswered};
use super::coverage::Coverage;
use super::live::{PartAsk, PartWanted};
use super::page::Spot;
use super::split;
use super::walked::{LiveRows, WalkedTable};
use crate::command::{
    COMMANDS, ScanCursor, ScanRequest, check_walked, first_hash, numbered, place_of_hash,
};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};

/// The most pages that a SCAN requests, including those of parts without keys.
const MOST_PAGES: usize = 64;
/// The keys of a page if all are wanted.
const PAGE_KEYS: usize = 5000;

/// Answers a command that names no key.
pub async fn answer(
    requester: &Requester<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    requester.check_started()?;
    match COMMANDS[place].name {
        "scan" => scan(requester, &args.borrow()).await,
        "keys" => keys(requester, &args.borrow()).await,
        "dbsize" => dbsize(requester).await,
        "randomkey" => randomkey(requester, place, args).await,
        "kv.range" => super::range::answer(requester, place, &args.borrow()).await,
        _ => {
            let name = requester.name(place);
            Ok(requester.fail(&format!("ERR {name} is not answered over several nodes")))
        }
    }
}

/// A SCAN in progress.
struct ScanState {
    keys: Vec<Vec<u8>>,
    seen: usize,
    pages: usize,
}

async fn scan(requester: &Requester<'_>, args: &Args<'_>) -> Result<(Reply, Outcome), Unanswered> {
    let request = ScanRequest::parse(args, requester.scope())?;
    let coverage = Coverage::of(&requester.map, requester.work.client.port);
    let mut walked = ScanState {
        keys: Vec::new(),
        seen: 0,
        pages: 0,
    };
    let mut next = ScanCursor::default();
    let ScanCursor { table, place } = request.cursor;
    let live = requester.cluster.member().live();
    for (number, walked_table) in numbered(requester.walked(&live), |table| table.name()) {
        if number < table || !request.accepts(walked_table.name(), walked_table.kind()) {
            continue;
        }
        if walked.is_done(&request) {
            next = ScanCursor::table(number);
            break;
        }
        let place = if number == table { place } else { 0 };
        let goes_on = scan_table(
            requester,
            &coverage,
            &walked_table,
            place,
            &request,
            &mut walked,
        )
        .await?;
        if let Some(place) = goes_on {
            next = ScanCursor {
                table: number,
                place,
            };
            break;
        }
    }
    let mut reply = requester.work.reply();
    next.reply(&walked.keys, &mut reply);
    Ok((reply, Outcome::Answered))
}

impl ScanState {
    fn is_done(&self, request: &ScanRequest<'_>) -> bool {
        self.seen >= request.count || self.pages >= MOST_PAGES
    }
}

/// Walks through a table from a place. Returns where the next SCAN continues, `None` at the end.
async fn scan_table(
    requester: &Requester<'_>,
    coverage: &Coverage,
    table: &WalkedTable<'_>,
    place: u64,
    request: &ScanRequest<'_>,
    walked: &mut ScanState,
) -> Result<Option<u64>, Unanswered> {
    let cursors = &requester.work.shared.scan_cursors;
    let random = &**requester.work.shared.store.random();
    let first = cursors.find(place).map(Spot::Key);
    for segment in requester.segments(coverage, table) {
        let mut from = match &segment.from {
            Spot::Hash(_) => Spot::Hash(first_hash(place)),
            Spot::Key(_) => first.clone().unwrap_or(Spot::Key(Vec::new())),
        };
        from = from.max(segment.from.clone());
        if segment.until.as_ref().is_some_and(|until| *until <= from) {
            continue;
        }
        loop {
            if walked.is_done(request) {
                return Ok(Some(match &from {
                    Spot::Hash(hash) => place_of_hash(*hash),
                    Spot::Key(key) => cursors.keep(random, key),
                }));
            }
            let count = request.count.saturating_sub(walked.seen).max(1);
            let page = requester.page(table, &segment, from, count).await?;
            walked.pages += 1;
            walked.seen += page.keys.len();
            let shown = page
                .keys
                .iter()
                .filter_map(|key| request.shown.show(table.name(), key));
            walked.keys.extend(shown);
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    Ok(None)
}

async fn keys(requester: &Requester<'_>, args: &Args<'_>) -> Result<(Reply, Outcome), Unanswered> {
    let pattern = args.get(1);
    let shown = requester.scope().shown_keys(Some(pattern));
    let live = requester.cluster.member().live();
    let mut tables = requester.walked(&live);
    tables.retain(|table| shown.may_match(table.name()));
    let coverage = Coverage::of(&requester.map, requester.work.client.port);
    // For live tables the count becomes known during the walk.
    let known = tables.iter().map(|table| match table {
        WalkedTable::Batch(version) => rows(version, &coverage),
        WalkedTable::Live(..) => 0,
    });
    check_walked(pattern, known.sum())?;
    let (mut found, mut walked) = (Vec::new(), 0);
    for table in tables {
        for segment in requester.segments(&coverage, &table) {
            let mut from = Some(segment.from.clone());
            while let Some(at) = from {
                let page = requester.page(&table, &segment, at, PAGE_KEYS).await?;
                walked += page.keys.len() as u64;
                check_walked(pattern, walked)?;
                let keys = page.keys.iter();
                found.extend(keys.filter_map(|key| shown.show(table.name(), key)));
                from = page.next;
            }
        }
    }
    let mut reply = requester.work.reply();
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok((reply, Outcome::Answered))
}

/// Returns the rows of a batch table's partitions that begin in the covered ranges.
fn rows(version: &Version, coverage: &Coverage) -> u64 {
    let partitions = version.manifest().partitions.iter();
    let covered = partitions.filter(|partition| coverage.covers(&partition.bounds.lower));
    covered.map(|partition| partition.totals.rows).sum()
}

/// Returns the rows of all covered batch tables.
fn batch_rows(requester: &Requester<'_>, coverage: &Coverage) -> u64 {
    let tables = requester.batch_tables().into_iter();
    tables.map(|version| rows(version, coverage)).sum()
}

async fn dbsize(requester: &Requester<'_>) -> Result<(Reply, Outcome), Unanswered> {
    let coverage = Coverage::of(&requester.map, requester.work.client.port);
    let live = requester.cluster.member().live();
    let of_live = requester.live_rows(&coverage, &live).await?;
    let of_live: u64 = of_live.iter().map(|part| part.rows).sum();
    let rows = batch_rows(requester, &coverage) + of_live;
    let mut reply = requester.work.reply();
    reply.int(i64::try_from(rows).unwrap_or(i64::MAX));
    Ok((reply, Outcome::Answered))
}

/// Returns a random key. A partition is drawn by its number of rows, and a node that has it draws
/// the key. At a port that does not cover everything, this node draws from batch tables.
async fn randomkey(
    requester: &Requester<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    let coverage = Coverage::of(&requester.map, requester.work.client.port);
    let live = requester.cluster.member().live();
    let of_live = requester.live_rows(&coverage, &live).await?;
    if let Some(found) = live_key(requester, batch_rows(requester, &coverage), &of_live).await? {
        return Ok(found);
    }
    let drawn = match requester.work.client.port {
        crate::port::Port::Gateway => requester.draw(),
        _ => None,
    };
    let replies = requester
        .run_at(drawn.as_deref(), place, args.clone(), "")
        .await?;
    Ok(requester.pass(replies.one()))
}

/// Returns a random key of a live table. `None` if a batch table is to be used, or there is no key.
async fn live_key(
    requester: &Requester<'_>,
    in_batch: u64,
    parts: &[LiveRows<'_>],
) -> Result<Option<(Reply, Outcome)>, Unanswered> {
    let in_live: u64 = parts.iter().map(|part| part.rows).sum();
    let random = requester.work.shared.store.random();
    let drawn = random.next_u64() % (in_batch + in_live).max(1);
    let Some(mut drawn) = drawn.checked_sub(in_batch) else {
        return Ok(None);
    };
    let first = parts
        .iter()
        .position(|part| match drawn.checked_sub(part.rows) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        });
    let first = first.unwrap_or(0);
    // If all keys of a partition were deleted, the next partition is used.
    for part in parts[first..].iter().chain(&parts[..first]) {
        if part.rows == 0 {
            continue;
        }
        let ask = PartAsk::new(part.table, part.from.clone(), PartWanted::Key);
        let replies = requester.read_part(&ask).await?;
        if let Some(key) = split::bulk(replies.one()) {
            let shown = requester.scope().shown_keys(None).show(part.table, key);
            let mut reply = requester.work.reply();
            reply.bulk(&shown.unwrap_or_default());
            return Ok(Some((reply, Outcome::Answered)));
        }
    }
    Ok(None)
}

impl Requester<'_> {
    /// Draws a random partition and returns its nodes. `None` for this node.
    fn draw(&self) -> Option<Vec<forebay_cluster::NodeId>> {
        let versions: Vec<&Arc<Version>> = self.batch_tables();
        let rows: u64 = versions
            .iter()
            .map(|version| version.manifest().rows())
            .sum();
        let mut drawn = self.work.shared.store.random().next_u64() % rows.max(1);
        for version in versions {
            let table = self.map.table(version.table())?;
            for partition in &version.manifest().partitions {
                if let Some(rest) = drawn.checked_sub(partition.totals.rows) {
                    drawn = rest;
                    continue;
                }
                let holders = match Spot::of(&partition.bounds.lower) {
                    Spot::Hash(hash) => table.of_slot(slot_of(hash)),
                    Spot::Key(key) => table.of_key(&key),
                };
                return (!holders.contains(&self.map.me)).then(|| holders.to_vec());
            }
        }
        None
    }
}
