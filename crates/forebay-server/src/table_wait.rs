//! Delays commands for a live table that another process has just created, until it is open.
//!
//! So the process that created it need not wait.

use std::time::Duration;

use crate::command::{Command, Run, split};
use crate::live::LOOK;
use crate::resp::Args;
use crate::shared::Shared;
use crate::table_view::TableView;

/// The time between two attempts of such a command.
pub const PAUSE: Duration = Duration::from_millis(5);
/// The longest wait: many looks for new tables. One is enough unless the machine is short of
/// processors.
const LONGEST: Duration = LOOK.saturating_mul(25);

/// The wait of a connection's current command for a table.
#[derive(Debug, Default)]
pub struct TableWait {
    until: Option<Duration>,
}

impl TableWait {
    /// Returns whether one of these tables is in the store, not open yet, and worth the wait.
    #[cold]
    pub fn waits<'a>(
        &mut self,
        shared: &Shared,
        tables: &TableView,
        mut names: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let is_coming = |name| tables.get(name).is_none() && shared.is_coming(name);
        let now = shared.store.clock().monotonic();
        let waits = names.any(is_coming) && now < *self.until.get_or_insert(now + LONGEST);
        if !waits {
            self.until = None;
        }
        waits
    }
}

/// Returns the tables that a command names.
pub fn named<'a>(command: &Command, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let is_of_table = matches!(command.run, Run::Session(_)) && command.name.starts_with("kv.");
    let table = is_of_table.then(|| args.get(1));
    let keys = command.key_places(args.len());
    let of_keys = keys.filter_map(move |at| Some(split(args.get(at)).ok()?.0));
    table.into_iter().chain(of_keys)
}
