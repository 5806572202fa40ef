//! Commands for a live table that another process has just made: they wait until it is open here,
//! so that whoever made it need not.

use std::time::Duration;

use crate::command::{Command, Run, split};
use crate::live::LOOK;
use crate::resp::Args;
use crate::shared::Shared;
use crate::table_view::TableView;

/// Between two tries of such a command.
pub const PAUSE: Duration = Duration::from_millis(5);
/// The longest that one waits: many looks for new tables, of which one suffices unless the machine
/// is short of processors.
const LONGEST: Duration = LOOK.saturating_mul(25);

/// Whether the command that a connection is at waits for a table.
#[derive(Debug, Default)]
pub struct TableWait {
    until: Option<Duration>,
}

impl TableWait {
    /// Whether a table of these names is in the store and not open yet, and is worth the wait.
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

/// The tables that a command names.
pub fn named<'a>(command: &Command, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let is_of_table = matches!(command.run, Run::Session(_)) && command.name.starts_with("kv.");
    let table = is_of_table.then(|| args.get(1));
    let keys = command.key_places(args.len());
    let of_keys = keys.filter_map(move |at| Some(split(args.get(at)).ok()?.0));
    table.into_iter().chain(of_keys)
}
