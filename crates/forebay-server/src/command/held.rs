//! Keys that several reads see at one moment: those of a command with several keys, of a MULTI.

use forebay_engine::Source;
use forebay_engine::live::{KeySnapshot, LiveTable, Stored};

use super::call::{find_source, split};
use super::txn::Txn;
use super::{Command, CommandError};
use crate::execute::View;
use crate::resp::Args;

/// Keys of a live table as they were at one moment, those of a partition together.
#[derive(Debug)]
pub struct Moment<'a> {
    table: &'a LiveTable,
    /// Sorted.
    keys: Vec<&'a [u8]>,
    snapshot: KeySnapshot<'a, 'a>,
}

/// What is held of keys before a command reads them.
#[derive(Debug, Clone, Copy)]
pub enum Held<'a> {
    Moments(&'a [Moment<'a>]),
    /// All keys that the command names, as a MULTI that writes left them.
    Txn(&'a Txn<'a>),
}

impl Held<'_> {
    pub const NOTHING: Self = Held::Moments(&[]);

    pub fn is_nothing(self) -> bool {
        matches!(self, Held::Moments([]))
    }

    /// What a key holds; `None` where that is not held.
    pub fn stored(
        self,
        source: Source<'_>,
        key: &[u8],
        may_wait: bool,
    ) -> Result<Option<Option<Stored>>, CommandError> {
        let moments = match self {
            Held::Txn(txn) => return Ok(Some(txn.get(key).cloned())),
            Held::Moments(moments) => moments,
        };
        let found = moments
            .iter()
            .find(|moment| moment.table.name() == source.table())
            .and_then(|moment| Some((moment, moment.keys.binary_search(&key).ok()?)));
        let Some((moment, index)) = found else {
            return Ok(None);
        };
        let stored = moment.snapshot.stored(index, may_wait)?;
        stored.map(Some).ok_or(CommandError::NotResident)
    }
}

impl View<'_> {
    /// Takes the keys of commands that read as they are now. Keys that their commands will refuse
    /// are left out.
    pub fn moments<'a>(
        &'a self,
        commands: impl Iterator<Item = (&'static Command, Args<'a>)>,
    ) -> Result<Vec<Moment<'a>>, CommandError> {
        let mut tables: Vec<(&LiveTable, Vec<&[u8]>)> = Vec::new();
        for (command, args) in commands {
            for argument in command.key_places(args.len()) {
                let Some((table, key)) = self.live_key(args.get(argument)) else {
                    continue;
                };
                match tables
                    .iter_mut()
                    .find(|(other, _)| other.name() == table.name())
                {
                    Some((_, keys)) => keys.push(key),
                    None => tables.push((table, vec![key])),
                }
            }
        }
        let taken = tables.into_iter().map(|(table, mut keys)| {
            keys.sort_unstable();
            keys.dedup();
            let snapshot = match self.may_wait {
                true => table.snapshot_keys(&keys)?,
                false => table
                    .try_snapshot_keys(&keys)?
                    .ok_or(CommandError::NotResident)?,
            };
            Ok(Moment {
                table,
                keys,
                snapshot,
            })
        });
        taken.collect()
    }

    /// A key of a live table that the user may read, and that is here.
    fn live_key<'a>(&'a self, wire: &'a [u8]) -> Option<(&'a LiveTable, &'a [u8])> {
        let (table, key) = split(wire).ok()?;
        match find_source(self.tables, self.user, table).ok()? {
            Source::Live(table) => table.partition_of(key).map(|_| (table, key)),
            Source::Batch(_) => None,
        }
    }
}
