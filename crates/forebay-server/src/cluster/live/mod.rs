//! Commands on live tables of a cluster, whose partitions have replicas.
//!
//! Writes are proposed to the replica that leads. Reads need a read permit.
//!
//! | module | content |
//! | --- | --- |
//! | `spot` | places of keys; commands divided by partition |
//! | `lead` | the leader of a partition, and the route to it |
//! | `write` | writes: on this node if it leads, else forwarded |
//! | `leader_write` | evaluates commands and proposes their effects |
//! | `read` | reads with a permit |
//! | `parts` | commands on keys of several partitions |
//! | `gets` | consecutive GETs |
//! | `piece` | requests about one partition as a whole, for walks |
//! | `deletes` | ranges of keys |
//! | `writes` | consecutive commands that write one key each |
//! | `watch` | WATCH: the versions of keys are read |
//! | `watched` | watched keys in frames between nodes |

mod command_target;
mod deletes;
mod gets;
mod key_spot;
mod leader_write;
mod parts;
mod piece;
mod read;
mod watch;
mod watched_keys;
mod write;
mod writes;

use crate::command::{
    Answer, COMMANDS, CommandError, QueuedCommands, Run, batch_table, check_key, no_permission,
    no_table, split,
};
use crate::execute::Outcome;
use crate::resp::{Args, Reply};
use crate::users::Verb;
use crate::work::Task;
use forebay_cluster::LivePlaces;
use forebay_engine::TableName;

use super::ask::{Requester, Unanswered};
use super::place::JUST_STARTED;
pub use gets::answer as answer_gets;
use parts::PartitionCommands;
pub use piece::{PartAsk, PartWanted};
pub use watch::answer as answer_watch;
pub use watched_keys::parse as parse_watched;
pub use writes::answer as answer_writes;

/// The outcome of a command. `None` if it is about no live table.
type LiveAnswer = Option<Result<(Reply, Outcome), Unanswered>>;

/// Answers a command about live tables.
pub async fn answer(requester: &Requester<'_>) -> LiveAnswer {
    let live = requester.cluster.member().live();
    let checked = match &requester.work.task {
        Task::Gets(_) | Task::Writes(_) | Task::Watch(_) => return None,
        Task::Part(ask) => return Some(part(requester, ask).await),
        Task::One(place, args) if COMMANDS[*place].is_of_all_tables() => {
            return match COMMANDS[*place].run {
                Run::RangeDelete(_) => {
                    let command = &COMMANDS[*place];
                    deletes::answer(requester, command, &live, &args.borrow()).await
                }
                _ => None,
            };
        }
        Task::One(place, args) => check(requester, &live, &[(*place, args.borrow())], Multi::No),
        Task::Exec(queued) => {
            let commands = queued.commands.iter();
            let commands: Vec<_> = commands.map(|(at, args)| (*at, args.borrow())).collect();
            // Watched keys of other tables were read: they are known to be unchanged.
            match queued.watches.are_replicated() || !queued.writes() {
                true => check(requester, &live, &commands, Multi::of(queued)),
                false => Err(CommandError::error(
                    "CROSSSLOT a MULTI that writes to a live table of a cluster cannot have keys of \
                     other tables watched",
                )),
            }
        }
    };
    match checked {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return Some(Err(Unanswered::from(error))),
    }
    Some(match &requester.work.task {
        Task::One(place, args) => parts::answer(requester, *place, args).await,
        Task::Exec(queued) => PartitionCommands::exec(requester, queued).answer().await,
        Task::Gets(_) | Task::Writes(_) | Task::Watch(_) | Task::Part(_) => return None,
    })
}

/// Answers another node's request about a partition.
async fn part(requester: &Requester<'_>, ask: &PartAsk) -> Result<(Reply, Outcome), Unanswered> {
    ask.check(requester)?;
    match &ask.wanted {
        PartWanted::Delete(args) => {
            let reply = deletes::one(requester, ask, args).await?;
            Ok(requester.pass(&reply))
        }
        _ => {
            let replies = requester.read_part(ask).await?;
            Ok(requester.pass(replies.one()))
        }
    }
}

/// Whether commands belong to a MULTI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Multi {
    No,
    Yes,
    /// Keys of live tables of a cluster are watched: replicas are asked in any case.
    Watched,
}

impl Multi {
    fn of(queued: &QueuedCommands) -> Self {
        match queued.watches.replicated_keys().next() {
            Some(_) => Multi::Watched,
            None => Multi::Yes,
        }
    }
}

/// Checks whether commands go to replicas, and whether they may.
fn check(
    requester: &Requester<'_>,
    live: &LivePlaces,
    commands: &[(usize, Args<'_>)],
    multi: Multi,
) -> Result<bool, CommandError> {
    let writes = |(place, _): &(usize, Args<'_>)| COMMANDS[*place].writes();
    let writes_any = commands.iter().any(writes);
    let names_live = |(place, args): &(usize, Args<'_>)| {
        let keys = COMMANDS[*place].key_places(args.len());
        let mut tables = keys.filter_map(|at| Some(split(args.get(at)).ok()?.0));
        tables.any(|table| live.table(table).is_some())
    };
    if !writes_any && multi != Multi::Watched && !commands.iter().any(names_live) {
        return Ok(false);
    }
    for (place, args) in commands {
        if writes_any {
            check_write(*place, args, multi != Multi::No)?;
        } else if COMMANDS[*place].is_of_all_tables() {
            let name = requester.name(*place);
            return Err(CommandError::error(format!(
                "ERR {name} asks several nodes, and cannot be in a MULTI: give it by itself"
            )));
        }
        check_keys(requester, live, *place, args, writes_any)?;
    }
    Ok(true)
}

/// Refuses commands that a partition's leader cannot evaluate with others that write.
fn check_write(place: usize, args: &Args<'_>, is_multi: bool) -> Answer {
    let command = &COMMANDS[place];
    if !command.takes(args.len()) {
        return Err(command.arity_error());
    }
    match command.run {
        Run::Edit { .. } | Run::Many { .. } | Run::Together(_) => Ok(()),
        Run::Read(_) | Run::Session(_) if is_multi && command.is_of_no_table() => Ok(()),
        Run::Read(_) if is_multi && command.keys.first > 0 => Ok(()),
        Run::RangeDelete(_) if !is_multi => Ok(()),
        _ => Err(CommandError::error(format!(
            "ERR {} cannot be in a MULTI that writes, which is for commands on keys",
            command.name.to_uppercase()
        ))),
    }
}

/// Refuses keys that the user may not access or that no table accepts.
fn check_keys(
    requester: &Requester<'_>,
    live: &LivePlaces,
    place: usize,
    args: &Args<'_>,
    is_proposed: bool,
) -> Answer {
    let (command, user) = (&COMMANDS[place], &requester.work.user);
    let (verb, does) = match command.writes() {
        true => (Verb::Write, "write to"),
        false => (Verb::Read, "read"),
    };
    for at in command.key_places(args.len()) {
        let (table, key) = split(args.get(at))?;
        if !user.may(verb, table) {
            return Err(no_permission(user, table, does));
        }
        let name = std::str::from_utf8(table).ok();
        let name = name.and_then(|name| TableName::new(name).ok());
        let name = name.ok_or_else(|| no_table(table))?;
        match live.table(table) {
            Some(_) if command.writes() => check_key(&name, key)?,
            Some(_) => {}
            None if requester.map.table(&name).is_some() && command.writes() => {
                return Err(batch_table(command, table));
            }
            None if requester.map.table(&name).is_some() && !is_proposed => {}
            None if requester.map.table(&name).is_some() => {
                return Err(CommandError::error(
                    "CROSSSLOT a MULTI that writes is atomic within one partition of one live table: its \
                     keys are of several tables",
                ));
            }
            None if requester.map.revision == 0 => {
                return Err(CommandError::error(JUST_STARTED));
            }
            None => return Err(no_table(table)),
        }
    }
    // A key without its value would go to one partition while others are written.
    let step = usize::try_from(command.keys.step).unwrap_or(1).max(1);
    let first = usize::try_from(command.keys.first).unwrap_or(1);
    match matches!(command.run, Run::Many { .. })
        && !(args.len() - first.min(args.len())).is_multiple_of(step)
    {
        true => Err(command.arity_error()),
        false => Ok(()),
    }
}
