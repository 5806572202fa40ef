//! Pages of keys, by which a walk over nodes reads a table.
//!
//! A walk reads each segment from a node that has it, some keys at a time. It requests a page by a
//! command within a forwarded frame, `fb.page TABLE FROM UNTIL COUNT`. The reply is an array: the
//! place to continue from (empty at the segment's end), then the keys. Places are hashes in
//! decimal, or keys. `FROM` is inclusive and `UNTIL` exclusive; `UNTIL` may be empty.

use std::ops::Bound as Edge;
use std::sync::Arc;

use forebay_engine::{Bound, Source, Version};
use forebay_run::Order;
use forebay_run::hash::{first_hash_of, slot_of};
use forebay_run::scan::{Direction, ScanRange};

use super::frame::command;
use crate::command::{CommandError, first_hash, place_of_hash};
use crate::resp::{Args, Parser, Reply, RequestLimits};

pub const PAGE: &str = "fb.page";
/// The most keys in a page.
const MOST_KEYS: usize = 10_000;
/// A page of this size ends early.
const PAGE_BYTES: usize = 4 << 20;

/// A place in a table's order, where a range begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    Hash(u64),
    Key(Vec<u8>),
}

/// A request for a page of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    pub table: Vec<u8>,
    pub from: Spot,
    pub until: Option<Spot>,
    pub count: usize,
}

/// Keys, and the place to continue from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPage {
    pub next: Option<Spot>,
    pub keys: Vec<Vec<u8>>,
}

impl Spot {
    pub fn of(bound: &Bound) -> Self {
        match bound {
            Bound::Slot(slot) => Spot::Hash(first_hash_of(u32::from(*slot)).unwrap_or(u64::MAX)),
            Bound::Key(key) => Spot::Key(key.clone()),
        }
    }

    /// Encodes the place as a text that says which kind it is.
    pub fn tagged(&self) -> Vec<u8> {
        let tag: &[u8] = match self {
            Spot::Hash(_) => b"h",
            Spot::Key(_) => b"k",
        };
        [tag, &self.text()].concat()
    }

    /// Parses the output of [`Spot::tagged`].
    pub fn parse_tagged(text: &[u8]) -> Option<Self> {
        match text {
            [b'h', text @ ..] => Self::parse(text, Order::Hashed),
            [b'k', text @ ..] => Self::parse(text, Order::Ordered),
            _ => None,
        }
    }

    fn text(&self) -> Vec<u8> {
        match self {
            Spot::Hash(hash) => hash.to_string().into_bytes(),
            Spot::Key(key) => key.clone(),
        }
    }

    fn parse(text: &[u8], order: Order) -> Option<Self> {
        match order {
            Order::Ordered => Some(Spot::Key(text.to_vec())),
            Order::Hashed => {
                let hash = std::str::from_utf8(text).ok()?.parse().ok()?;
                Some(Spot::Hash(hash))
            }
        }
    }

    pub fn bound(&self) -> Bound {
        match self {
            Spot::Hash(hash) => Bound::Slot(slot_of(*hash)),
            Spot::Key(key) => Bound::Key(key.clone()),
        }
    }
}

impl PageRequest {
    pub fn command(&self) -> Vec<u8> {
        let until = self.until.as_ref().map(Spot::text).unwrap_or_default();
        let (from, count) = (self.from.text(), self.count.to_string());
        let args = [
            PAGE.as_bytes(),
            &self.table,
            &from,
            &until,
            count.as_bytes(),
        ];
        command(args.into_iter())
    }

    /// Parses a request for a page, if the commands are one. `order` is the table's.
    pub fn parse(
        commands: &[u8],
        order: impl FnOnce(&[u8]) -> Option<Order>,
    ) -> Option<Result<Self, CommandError>> {
        let limits = RequestLimits {
            bulk_bytes: commands.len(),
            arguments: 5,
            command_bytes: commands.len(),
        };
        let mut parser = Parser::default();
        let len = parser.advance(commands, &limits).ok()??;
        let args = parser.args(&commands[..len]);
        let is_page = args.is(0, PAGE) && args.len() == 5;
        is_page.then(|| Self::of(&args, order))
    }

    fn of(
        args: &Args<'_>,
        order: impl FnOnce(&[u8]) -> Option<Order>,
    ) -> Result<Self, CommandError> {
        let table = args.get(1);
        let unknown = || CommandError::NotHere("the table is not served here".to_owned());
        let order = order(table).ok_or_else(unknown)?;
        let place = |index| {
            let place = Spot::parse(args.get(index), order);
            place
                .ok_or_else(|| CommandError::NotHere("the table has another order here".to_owned()))
        };
        Ok(Self {
            table: table.to_vec(),
            from: place(2)?,
            until: match args.get(3) {
                b"" => None,
                _ => Some(place(3)?),
            },
            count: crate::command::positive(args.get(4))?,
        })
    }

    /// Returns whether all of it is open in the version.
    pub fn is_here(&self, version: &Version) -> bool {
        let mut at = self.from.bound();
        for open in version.partitions() {
            if open.bounds.lower > at {
                break;
            }
            match open.bounds.upper {
                None => return true,
                Some(upper) => at = at.max(upper),
            }
            if self.until.as_ref().is_some_and(|until| until.bound() <= at) {
                return true;
            }
        }
        false
    }

    /// Reads the page from the open parts of the version.
    pub fn read_here(&self, version: &Arc<Version>) -> Result<KeyPage, CommandError> {
        if self.is_here(version) {
            return self.read(Source::Batch(version));
        }
        Err(CommandError::NotHere(format!(
            "version {} of table {}: not all of the range is open here",
            version.version(),
            version.table()
        )))
    }

    /// Reads the page, waiting for the device if necessary. REQUIRES: this node has all of it.
    pub fn read(&self, source: Source<'_>) -> Result<KeyPage, CommandError> {
        let mut scan = source.scan(self.range(), Direction::Forward);
        let (mut page, mut bytes, mut last) = (KeyPage::default(), 0, None);
        let most = self.count.min(MOST_KEYS);
        while scan.advance()? {
            // Keys of one place stay together: cursors cannot distinguish them.
            let place = place_of_hash(scan.hash());
            let is_parted = matches!(self.from, Spot::Key(_)) || last != Some(place);
            if (page.keys.len() >= most || bytes >= PAGE_BYTES) && is_parted {
                page.next = Some(match &self.from {
                    Spot::Hash(_) => Spot::Hash(first_hash(place)),
                    Spot::Key(_) => Spot::Key(scan.key().to_vec()),
                });
                break;
            }
            last = Some(place);
            bytes += scan.key().len();
            page.keys.push(scan.key().to_vec());
        }
        Ok(page)
    }

    fn range(&self) -> ScanRange {
        match (&self.from, &self.until) {
            (Spot::Key(from), Some(Spot::Key(until))) => {
                ScanRange::keys(Edge::Included(from), Edge::Excluded(until))
            }
            (Spot::Key(from), _) => ScanRange::keys(Edge::Included(from), Edge::Unbounded),
            (Spot::Hash(from), Some(Spot::Hash(until))) => ScanRange::hashes(*from, Some(*until)),
            (Spot::Hash(from), _) => ScanRange::hashes(*from, None),
        }
    }
}

impl KeyPage {
    pub fn write(&self, reply: &mut Reply) {
        reply.array(1 + self.keys.len());
        let next = self.next.as_ref().map(Spot::text).unwrap_or_default();
        reply.bulk(&next);
        self.keys.iter().for_each(|key| reply.bulk(key));
    }

    /// Parses the output of [`KeyPage::write`] for a table of this order. `None` for anything else.
    pub fn read(reply: &[u8], order: Order) -> Option<Self> {
        let items = super::split::items(reply)?;
        let mut texts = items
            .into_iter()
            .map(|item| super::split::bulk(&reply[item]));
        let next = match texts.next()?? {
            b"" => None,
            text => Some(Spot::parse(text, order)?),
        };
        let keys: Option<Vec<Vec<u8>>> = texts.map(|text| Some(text?.to_vec())).collect();
        Some(Self { next, keys: keys? })
    }
}
