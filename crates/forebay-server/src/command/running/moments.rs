//! Captures the keys of read commands as of one moment.

use forebay_engine::Source;
use forebay_engine::live::LiveTable;

use super::call::{find_source, split};
use super::held::Moment;
use crate::command::{Command, CommandError};
use crate::execute::View;
use crate::resp::Args;

impl View<'_> {
    /// Captures the keys of read commands as they are now. Keys that their commands will refuse are
    /// left out.
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

    /// Returns a key of a live table that the user may read and this node has.
    fn live_key<'a>(&'a self, wire: &'a [u8]) -> Option<(&'a LiveTable, &'a [u8])> {
        let (table, key) = split(wire).ok()?;
        match find_source(self.tables, self.user, table).ok()? {
            Source::Live(table) => table.partition_of(key).map(|_| (table, key)),
            Source::Batch(_) => None,
        }
    }
}
