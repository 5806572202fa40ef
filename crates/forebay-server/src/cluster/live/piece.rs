//! Requests that nodes send each other about one partition of a live table as a whole.
//!
//! ```text
//! fb.part TABLE PLACE page UNTIL COUNT
//! fb.part TABLE PLACE rows | key
//! fb.part TABLE PLACE range KV.RANGE ... | delete COMMAND ...
//! ```
//!
//! They are part of a forwarded frame. `PLACE` is in the partition ([`Spot::tagged`]); `UNTIL` is
//! in it or after it. A page never passes the partition's end, and contains the place to continue
//! from. The answer to a delete has the command's reply and the partition's end.

use forebay_engine::live::LiveTable;
use forebay_engine::{Bound, Bounds, PartitionRange, Source, TableName};
use forebay_run::scan::Direction;

use super::super::ask::{PeerReplies, Requester, Unanswered};
use super::super::frame::command;
use super::super::page::{KeyPage, PageRequest, Spot};
use super::super::split;
use super::key_spot::LiveAt;
use super::read::PartRead;
use crate::command::{Answer, CommandError, RangeRequest, find, no_permission};
use crate::commits::Commits;
use crate::execute::{Outcome, View, settle};
use crate::resp::{Args, OwnedArgs, Reply};
use crate::users::Verb;
use crate::work::Task;

const PART: &str = "fb.part";
/// The keys of a page from which a random key is drawn. The page is anywhere in a hashed partition,
/// and at the beginning if nothing else was found.
const DRAWN_KEYS: usize = 16;
const FIRST_KEYS: usize = 1000;
/// How often a key of an ordered table is drawn until one is in the partition.
const DRAWS: usize = 16;

/// A request about one partition of a live table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartAsk {
    pub table: Vec<u8>,
    pub from: Spot,
    /// The partition as the requester knows it, if it has to be exactly that one.
    pub whole: Option<Bounds>,
    pub wanted: PartWanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartWanted {
    Page {
        until: Option<Spot>,
        count: usize,
    },
    /// An upper bound of the number of keys.
    Rows,
    /// A random key.
    Key,
    /// A KV.RANGE within the partition.
    Range(OwnedArgs),
    /// The command that deletes keys.
    Delete(OwnedArgs),
}

impl PartAsk {
    pub fn new(table: &TableName, from: Spot, wanted: PartWanted) -> Self {
        Self {
            table: table.as_str().as_bytes().to_vec(),
            from,
            whole: None,
            wanted,
        }
    }

    pub fn page(request: PageRequest) -> Self {
        Self {
            table: request.table,
            from: request.from,
            whole: None,
            wanted: PartWanted::Page {
                until: request.until,
                count: request.count,
            },
        }
    }

    /// Encodes the request.
    pub fn command(&self) -> Vec<u8> {
        let mut args: OwnedArgs = [PART.as_bytes(), &self.table].into_iter().collect();
        args.push(&self.from.tagged());
        let mut push_all = |word: &[u8], more: &OwnedArgs| {
            args.push(word);
            more.borrow().iter().for_each(|arg| args.push(arg));
        };
        match &self.wanted {
            PartWanted::Page { until, count } => {
                let until = until.as_ref().map(Spot::tagged).unwrap_or_default();
                let count = count.to_string().into_bytes();
                push_all(b"page", &[until, count].iter().collect());
            }
            PartWanted::Rows => push_all(b"rows", &OwnedArgs::default()),
            PartWanted::Key => push_all(b"key", &OwnedArgs::default()),
            PartWanted::Range(more) => push_all(b"range", more),
            PartWanted::Delete(more) => push_all(b"delete", more),
        }
        command(args.borrow().iter())
    }

    /// Parses a request. `None` if the command is another one.
    pub fn parse(args: &Args<'_>) -> Option<Result<Self, CommandError>> {
        let garbled = || CommandError::error(format!("ERR {PART} is not understood"));
        args.is(0, PART).then(|| Self::of(args).ok_or_else(garbled))
    }

    fn of(args: &Args<'_>) -> Option<Self> {
        if args.len() < 4 {
            return None;
        }
        let more = || args.skip(4).iter().collect::<OwnedArgs>();
        let wanted = match (args.get(3), args.len()) {
            (b"page", 6) => PartWanted::Page {
                until: match args.get(4) {
                    b"" => None,
                    text => Some(Spot::parse_tagged(text)?),
                },
                count: crate::command::positive(args.get(5)).ok()?,
            },
            (b"rows", 4) => PartWanted::Rows,
            (b"key", 4) => PartWanted::Key,
            (b"range", 5..) => PartWanted::Range(more()),
            (b"delete", 5..) => PartWanted::Delete(more()),
            _ => return None,
        };
        Some(Self {
            table: args.get(1).to_vec(),
            from: Spot::parse_tagged(args.get(2))?,
            whole: None,
            wanted,
        })
    }

    pub fn at(&self) -> LiveAt {
        LiveAt::Place {
            table: self.table.clone(),
            spot: self.from.clone(),
            whole: self.whole.clone(),
        }
    }

    /// Refuses what the user may not do.
    pub fn check(&self, requester: &Requester<'_>) -> Result<(), Unanswered> {
        let (verb, does) = match self.wanted {
            PartWanted::Delete(_) => (Verb::Write, "write to"),
            _ => (Verb::Read, "read"),
        };
        match requester.work.user.may(verb, &self.table) {
            true => Ok(()),
            false => {
                let stop = no_permission(&requester.work.user, &self.table, does);
                Err(Unanswered::from(stop))
            }
        }
    }

    /// Answers from this node's data, with a permit that was granted.
    pub fn run(&self, view: &View<'_>, reply: &mut Reply) -> Outcome {
        let start = reply.len();
        let outcome = settle(self.read(view, reply), start, reply);
        view.lead_on(outcome, start, reply)
    }

    fn read(&self, view: &View<'_>, reply: &mut Reply) -> Answer {
        let elsewhere = || CommandError::NotHere("the partition is not here".to_owned());
        let table = view.tables.live(&self.table).ok_or_else(elsewhere)?;
        let place = self.from.bound();
        let mut partitions = table.partitions().into_iter();
        let partition = partitions.find(|partition| partition.bounds.holds(&place));
        let PartitionRange { id, bounds } = partition.ok_or_else(elsewhere)?;
        match &self.wanted {
            PartWanted::Page { until, count } => {
                self.read_page(table, &bounds, until.as_ref(), *count)?
                    .write(reply);
            }
            PartWanted::Rows => {
                let rows = i64::try_from(table.most_keys_of(id));
                reply.int(rows.unwrap_or(i64::MAX));
            }
            PartWanted::Key => match self.draw(view, table, &bounds)? {
                Some(key) => reply.bulk(&key),
                None => reply.null(),
            },
            PartWanted::Range(args) => return run_range(view, args, &bounds, reply),
            PartWanted::Delete(_) => {
                return Err(CommandError::error("ERR internal error: it is proposed"));
            }
        }
        Ok(())
    }

    fn read_page(
        &self,
        table: &LiveTable,
        bounds: &Bounds,
        until: Option<&Spot>,
        count: usize,
    ) -> Result<KeyPage, CommandError> {
        let upper = bounds.upper.as_ref().map(Spot::of);
        let is_cut = match (&upper, until) {
            (Some(upper), Some(until)) => upper < until,
            (upper, _) => upper.is_some(),
        };
        let request = PageRequest {
            table: Vec::new(),
            from: self.from.clone(),
            until: if is_cut {
                upper.clone()
            } else {
                until.cloned()
            },
            count,
        };
        let mut page = request.read(Source::Live(table))?;
        if page.next.is_none() && is_cut {
            page.next = upper;
        }
        Ok(page)
    }

    fn draw(
        &self,
        view: &View<'_>,
        table: &LiveTable,
        bounds: &Bounds,
    ) -> Result<Option<Vec<u8>>, CommandError> {
        let random = || view.shared.store.random().next_u64();
        let lower = Spot::of(&bounds.lower);
        let upper = bounds.upper.as_ref().map(Spot::of);
        let page = |from: Spot, count| {
            let until = upper.clone();
            let table_name = Vec::new();
            let request = PageRequest {
                table: table_name,
                from,
                until,
                count,
            };
            request.read(Source::Live(table)).map(|page| page.keys)
        };
        let mut keys = match (&lower, &upper) {
            (Spot::Hash(lower), upper) => {
                let end = match upper {
                    Some(Spot::Hash(upper)) => *upper,
                    _ => u64::MAX,
                };
                let width = end.saturating_sub(*lower).max(1);
                page(Spot::Hash(lower + random() % width), DRAWN_KEYS)?
            }
            (Spot::Key(_), _) => draw_ordered(view, table, bounds)?,
        };
        if keys.is_empty() {
            keys = page(lower, FIRST_KEYS)?;
        }
        let drawn = random() % (keys.len().max(1) as u64);
        Ok(keys.into_iter().nth(drawn as usize))
    }
}

/// Draws keys of the partition at random places of the table; there may be none.
fn draw_ordered(
    view: &View<'_>,
    table: &LiveTable,
    bounds: &Bounds,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let source = Source::Live(table);
    for _ in 0..DRAWS {
        let place = source.random_place(&**view.shared.store.random());
        let mut scan = source.scan(place.range, Direction::Forward);
        let (mut keys, mut seen) = (Vec::new(), 0);
        while seen < place.keys.min(FIRST_KEYS as u64) && scan.advance()? {
            seen += 1;
            if bounds.holds(&Bound::Key(scan.key().to_vec())) {
                keys.push(scan.key().to_vec());
            }
        }
        if !keys.is_empty() {
            return Ok(keys);
        }
    }
    Ok(Vec::new())
}

/// Runs a KV.RANGE that is within a partition.
fn run_range(view: &View<'_>, args: &OwnedArgs, bounds: &Bounds, reply: &mut Reply) -> Answer {
    let args = args.borrow();
    let request = RangeRequest::parse(&args)?;
    if !request.lies_within(bounds) {
        return Err(CommandError::NotHere(
            "not all of the range is in the partition".to_owned(),
        ));
    }
    let place = find(args.get(0)).ok_or_else(CommandError::syntax)?;
    let start = reply.len();
    let (outcome, _) = view.run(place, args, reply, &mut Commits::default());
    match outcome {
        Outcome::Answered | Outcome::Failed => Ok(()),
        _ => {
            reply.truncate(start);
            Err(CommandError::NotHere("it was not answered".to_owned()))
        }
    }
}

impl Requester<'_> {
    /// Returns the answer of a partition's leader unless it is an error.
    pub async fn read_part(&self, ask: &PartAsk) -> Result<PeerReplies, Unanswered> {
        let read = PartRead {
            requester: self,
            at: ask.at(),
            may_move: false,
            task: Box::new(|| Task::Part(Box::new(ask.clone()))),
            commands: ask.command(),
            counts: (1, 1),
        };
        let replies = read.done().await?;
        match split::error(replies.one()) {
            Some(words) => Err(Unanswered::Reply(words)),
            None => Ok(replies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Parser, RequestLimits};

    #[test]
    fn part_requests_are_read_as_they_are_written() {
        let words = |words: &[&str]| words.iter().collect::<OwnedArgs>();
        let page = |until, count| PartWanted::Page { until, count };
        for (from, wanted) in [
            (Spot::Hash(7), page(Some(Spot::Hash(9)), 5)),
            (Spot::Key(b"a\r\n".to_vec()), page(None, 1)),
            (Spot::Key(Vec::new()), PartWanted::Rows),
            (Spot::Hash(u64::MAX), PartWanted::Key),
            (
                Spot::Hash(0),
                PartWanted::Range(words(&["KV.RANGE", "t:", "+"])),
            ),
            (Spot::Hash(0), PartWanted::Delete(words(&["FLUSHDB", "t"]))),
        ] {
            let ask = PartAsk::new(&TableName::new("t").unwrap(), from, wanted);
            let sent = ask.command();
            let limits = RequestLimits {
                bulk_bytes: 100,
                arguments: 100,
                command_bytes: 1000,
            };
            let mut parser = Parser::default();
            let len = parser.advance(&sent, &limits).unwrap().unwrap();
            let parsed = PartAsk::parse(&parser.args(&sent[..len]));
            assert_eq!(parsed, Some(Ok(ask)));
        }
        let parse = |line: &str| PartAsk::parse(&line.split(' ').collect::<OwnedArgs>().borrow());
        assert_eq!(parse("GET t:1"), None);
        for line in [
            "fb.part",
            "fb.part t x1 rows",
            "fb.part t h1 page h2",
            "fb.part t h1 sing",
        ] {
            assert!(matches!(parse(line), Some(Err(_))), "{line}");
        }
    }
}
