//! Collects consecutive commands that write to the same live table of the cluster.
//!
//! They are proposed together, as far as they have arrived.

use crate::command::{COMMANDS, KeyNames, Run, find, split};
use crate::resp::{Args, OwnedArgs, Parser, RequestLimits};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::User;
use crate::work::{OwnedWrites, Task};

/// The limits of commands that are proposed together: their number, and their bytes without the
/// last one's.
const PROPOSED_AT_ONCE: usize = 512;
const PROPOSED_BYTES: usize = 1 << 20;

/// The input of a connection, and its session.
pub struct FollowedConnection<'a> {
    pub shared: &'a Shared,
    pub tables: &'a TableView,
    pub user: Option<&'a User>,
    pub limits: &'a RequestLimits,
    pub input: &'a [u8],
}

impl FollowedConnection<'_> {
    /// Collects the command, alone or with those that follow. `ends` has its end, and the function
    /// adds the ends of the others.
    pub fn collect(
        &self,
        parser: &mut Parser,
        place: usize,
        first: OwnedArgs,
        ends: &mut Vec<usize>,
    ) -> Task {
        let table = self.written_table(place, &first.borrow());
        let (Some(table), Some(end)) = (table.map(<[u8]>::to_vec), ends.last()) else {
            return Task::One(place, first);
        };
        let (mut at, mut bytes) = (*end, first.memory_bytes());
        let mut commands = vec![(place, first)];
        while commands.len() < PROPOSED_AT_ONCE && bytes < PROPOSED_BYTES {
            let Some((place, args, len)) = self.next(parser, at) else {
                break;
            };
            if self.written_table(place, &args.borrow()) != Some(&table[..]) {
                break;
            }
            at += len;
            bytes += args.memory_bytes();
            commands.push((place, args));
            ends.push(at);
        }
        if commands.len() == 1
            && let Some((place, first)) = commands.pop()
        {
            return Task::One(place, first);
        }
        Task::Writes(OwnedWrites { commands })
    }

    /// Returns the command that begins at `at`, as it would run, and its length.
    fn next(&self, parser: &mut Parser, at: usize) -> Option<(usize, OwnedArgs, usize)> {
        parser.restart();
        let len = parser.advance(&self.input[at..], self.limits).ok()??;
        let args = parser.args(&self.input[at..at + len]);
        let place = (!args.is_empty()).then(|| find(args.get(0)))??;
        let command = &COMMANDS[place];
        if !command.takes(args.len()) {
            return None;
        }
        let names = KeyNames::of(self.shared, self.tables, self.user?);
        let completed = names.and_then(|names| names.complete(command, &args));
        Some((place, completed.unwrap_or_else(|| args.to_owned()), len))
    }

    /// Returns the live table of the cluster if a command writes one key of it. `None` for other
    /// commands.
    fn written_table<'a>(&self, place: usize, args: &Args<'a>) -> Option<&'a [u8]> {
        let command = &COMMANDS[place];
        let is_proposed = matches!(
            command.run,
            Run::Edit { .. } | Run::Many { .. } | Run::Together(_)
        );
        let mut keys = command.key_places(args.len());
        let (key, None) = (keys.next()?, keys.next()) else {
            return None;
        };
        let (table, _) = split(args.get(key)).ok()?;
        let live = self.shared.cluster.as_ref()?.member().live();
        (is_proposed && live.table(table).is_some()).then_some(table)
    }
}
