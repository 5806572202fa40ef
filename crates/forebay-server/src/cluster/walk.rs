//! Commands about all tables, or about ranges of keys, over the nodes of a cluster: SCAN, KEYS,
//! DBSIZE, RANDOMKEY. KV.RANGE is in [`super::range`].
//!
//! A cursor of SCAN is that of a server alone: a table and a place in its order, which mean the
//! same whichever node has that place now.

use std::sync::Arc;

use forebay_engine::{Source, Version};
use forebay_run::hash::slot_of;

use super::ask::{Asker, Unanswered};
use super::coverage::{Coverage, Segment};
use super::page::{KeyPage, PageRequest, Spot};
use crate::command::{
    COMMANDS, CommandError, ScanCursor, ScanRequest, Scope, check_walked, first_hash, numbered,
    place_of_hash,
};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};

/// How many pages a SCAN asks for, those of parts without keys too.
const MOST_PAGES: usize = 64;
/// Keys of a page where all are wanted.
const PAGE_KEYS: usize = 5000;

/// Answers a command that names no key.
pub async fn answer(
    asker: &Asker<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    asker.check_started()?;
    match COMMANDS[place].name {
        "scan" => scan(asker, &args.borrow()).await,
        "keys" => keys(asker, &args.borrow()).await,
        "dbsize" => Ok(dbsize(asker)),
        "randomkey" => randomkey(asker, place, args).await,
        "kv.range" => super::range::answer(asker, place, &args.borrow()).await,
        _ => {
            let name = asker.name(place);
            Ok(asker.fail(&format!("ERR {name} is not answered over several nodes")))
        }
    }
}

/// A SCAN under way.
struct Walked {
    keys: Vec<Vec<u8>>,
    seen: usize,
    pages: usize,
}

async fn scan(asker: &Asker<'_>, args: &Args<'_>) -> Result<(Reply, Outcome), Unanswered> {
    let request = ScanRequest::parse(args, asker.scope())?;
    let coverage = Coverage::of(&asker.map, asker.work.client.port);
    let mut walked = Walked {
        keys: Vec::new(),
        seen: 0,
        pages: 0,
    };
    let mut next = ScanCursor::default();
    let ScanCursor { table, place } = request.cursor;
    for (number, source) in numbered(asker.readable()) {
        let Source::Batch(version) = source else {
            continue;
        };
        if number < table || !request.accepts(source) {
            continue;
        }
        if walked.is_done(&request) {
            next = ScanCursor::table(number);
            break;
        }
        let place = if number == table { place } else { 0 };
        let goes_on = scan_table(asker, &coverage, version, place, &request, &mut walked).await?;
        if let Some(place) = goes_on {
            next = ScanCursor {
                table: number,
                place,
            };
            break;
        }
    }
    let mut reply = asker.work.reply();
    next.reply(&walked.keys, &mut reply);
    Ok((reply, Outcome::Answered))
}

impl Walked {
    fn is_done(&self, request: &ScanRequest<'_>) -> bool {
        self.seen >= request.count || self.pages >= MOST_PAGES
    }
}

/// Walks through a table from a place on; answers where the next SCAN goes on, `None` at the end.
async fn scan_table(
    asker: &Asker<'_>,
    coverage: &Coverage,
    version: &Arc<Version>,
    place: u64,
    request: &ScanRequest<'_>,
    walked: &mut Walked,
) -> Result<Option<u64>, Unanswered> {
    let cursors = &asker.work.shared.scan_cursors;
    let random = &**asker.work.shared.store.random();
    let first = cursors.find(place).map(Spot::Key);
    let source = Source::Batch(version);
    for segment in asker.segments(coverage, version) {
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
            let page = asker.page(version, &segment, from, count).await?;
            walked.pages += 1;
            walked.seen += page.keys.len();
            let shown = page
                .keys
                .iter()
                .filter_map(|key| request.shown.show(source, key));
            walked.keys.extend(shown);
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    Ok(None)
}

async fn keys(asker: &Asker<'_>, args: &Args<'_>) -> Result<(Reply, Outcome), Unanswered> {
    let pattern = args.get(1);
    let shown = asker.scope().shown_keys(Some(pattern));
    let mut tables = asker.readable();
    tables.retain(|source| shown.may_match(*source));
    let coverage = Coverage::of(&asker.map, asker.work.client.port);
    check_walked(
        pattern,
        tables.iter().map(|table| rows(*table, &coverage)).sum(),
    )?;
    let (mut found, mut walked) = (Vec::new(), 0);
    for source in tables {
        let Source::Batch(version) = source else {
            continue;
        };
        for segment in asker.segments(&coverage, version) {
            let mut from = Some(segment.from.clone());
            while let Some(at) = from {
                let page = asker.page(version, &segment, at, PAGE_KEYS).await?;
                walked += page.keys.len() as u64;
                check_walked(pattern, walked)?;
                found.extend(page.keys.iter().filter_map(|key| shown.show(source, key)));
                from = page.next;
            }
        }
    }
    let mut reply = asker.work.reply();
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok((reply, Outcome::Answered))
}

/// The rows of a table's partitions that begin in what is covered.
fn rows(source: Source<'_>, coverage: &Coverage) -> u64 {
    let Source::Batch(version) = source else {
        return 0;
    };
    let partitions = version.manifest().partitions.iter();
    let covered = partitions.filter(|partition| coverage.covers(&partition.bounds.lower));
    covered.map(|partition| partition.totals.rows).sum()
}

fn dbsize(asker: &Asker<'_>) -> (Reply, Outcome) {
    let coverage = Coverage::of(&asker.map, asker.work.client.port);
    let tables = asker.readable();
    let rows: u64 = tables.iter().map(|table| rows(*table, &coverage)).sum();
    let mut reply = asker.work.reply();
    reply.int(i64::try_from(rows).unwrap_or(i64::MAX));
    (reply, Outcome::Answered)
}

/// A key by chance: a partition is drawn by its rows, and who has it draws from what it has. At a
/// port that does not cover everything this node draws.
async fn randomkey(
    asker: &Asker<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    let drawn = match asker.work.client.port {
        crate::port::Port::Gateway => asker.draw(),
        _ => None,
    };
    let replies = asker
        .run_at(drawn.as_deref(), place, args.clone(), "")
        .await?;
    Ok(asker.pass(replies.one()))
}

impl<'w> Asker<'w> {
    fn scope(&self) -> Scope<'_> {
        Scope {
            tables: &self.tables,
            user: &self.work.user,
            shared: &self.work.shared,
        }
    }

    /// The tables of the cluster that the user may read.
    fn readable(&self) -> Vec<Source<'_>> {
        let mut tables = self.scope().readable();
        tables.retain(|source| self.map.table(source.table()).is_some());
        tables
    }

    fn segments(&self, coverage: &Coverage, version: &Version) -> Vec<Segment<'_>> {
        let table = self.map.table(version.table());
        table.map_or(Vec::new(), |table| coverage.segments(table))
    }

    /// A page of a segment, from here or from who has it.
    async fn page(
        &self,
        version: &Arc<Version>,
        segment: &Segment<'_>,
        from: Spot,
        count: usize,
    ) -> Result<KeyPage, Unanswered> {
        let request = PageRequest {
            table: version.table().as_str().as_bytes().to_vec(),
            from,
            until: segment.until.clone(),
            count,
        };
        if request.is_here(version) && self.reads_here(segment.holders) {
            let (version, failed) = (
                Arc::clone(version),
                "ERR internal error: see the server's log",
            );
            let read = tokio::task::spawn_blocking(move || request.read_here(&version)).await;
            return match read {
                Ok(read) => Ok(read?),
                Err(_) => Err(Unanswered::from(CommandError::error(failed))),
            };
        }
        let versions = self.version_of(&request.table);
        let replies = self
            .ask(segment.holders, &request.command(), 1, &versions)
            .await?;
        if let Some(differ) = self.not_there(&replies, replies.one()) {
            return Err(differ);
        }
        let page = KeyPage::read(replies.one(), version.order());
        page.ok_or_else(|| {
            let garbled = "ERR a node's reply is not what was asked for".to_owned();
            Unanswered::Told(super::split::error(replies.one()).unwrap_or(garbled))
        })
    }

    /// Who has a partition drawn by chance; `None`: this node.
    fn draw(&self) -> Option<Vec<forebay_cluster::NodeId>> {
        let tables = self.readable();
        let versions = tables.iter().filter_map(|source| match source {
            Source::Batch(version) => Some(*version),
            Source::Live(_) => None,
        });
        let versions: Vec<&Arc<Version>> = versions.collect();
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
