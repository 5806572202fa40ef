//! Commands that would change a table: a batch table changes only as a whole.

use super::call::{no_permission, split};
use super::{Command, Stop, shown};
use crate::resp::Args;
use crate::users::{User, Verb};

/// Says why not, which table, and what to do instead.
pub fn refuse_write(command: &Command, args: &Args<'_>, user: &User) -> Stop {
    let name = command.name.to_uppercase();
    let place = usize::try_from(command.keys.first).unwrap_or(0);
    let Some(table) = (place > 0 && place < args.len()).then(|| args.get(place)) else {
        return Stop::error(format!(
            "READONLY {name} changes data, and batch tables change only as a whole: use 'forebay \
             push', 'forebay swap' or 'forebay drop'"
        ));
    };
    let table = match split(table) {
        Ok((table, _)) => table,
        Err(stop) => return stop,
    };
    if !user.may(Verb::Write, table) && !user.may(Verb::Read, table) {
        return no_permission(user, table, "write to");
    }
    let table = shown(table);
    Stop::error(format!(
        "READONLY table '{table}' is a batch table, {name} cannot change it: make a new version of it \
         with 'forebay push {table} ...'"
    ))
}
