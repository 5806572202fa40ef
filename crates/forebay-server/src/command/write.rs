//! How commands that change tables run. Live tables take them; a batch table changes only as a
//! whole.
//!
//! A command that looks at what it changes runs under the partition's lock, on values read there;
//! one that does not is written blindly. Either way its operations are one batch: one record of the
//! log, seen whole or not at all. Keys in several partitions are changed one partition after the
//! other.

use forebay_engine::PartitionId;
use forebay_engine::TableName;
use forebay_engine::live::{Batch, LiveError, LiveTable, Stored};
use forebay_io::Clock;
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::number::NumberError;
use tracing::error;

use super::call::{find_source, no_permission, no_table, split};
use super::held::Held;
use super::txn::{Edit, Txn};
use super::{Answer, COMMANDS, Call, Command, CommandError, Queued, Run, shown};
use crate::commits::Commits;
use crate::execute::{Outcome, View, settle};
use crate::resp::{Args, OwnedArgs, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};
use forebay_engine::Source;

/// A command that deletes a range: it waits for the device as it walks.
pub struct RangeDelete<'a> {
    pub args: Args<'a>,
    pub shared: &'a Shared,
    pub tables: &'a TableView,
    pub user: &'a User,
    pub command: &'a Command,
    pub reply: &'a mut Reply,
    pub commits: &'a mut Commits,
    /// The table, for the metrics.
    pub first: &'a mut Option<TableName>,
}

/// A key among a command's arguments.
#[derive(Clone, Copy)]
struct Place<'a> {
    argument: usize,
    key: &'a [u8],
}

/// What the commands of a MULTI that writes are about.
struct OneTable<'a> {
    table: &'a LiveTable,
    /// One of their keys.
    key: &'a [u8],
    /// Those that they look at.
    keys: Vec<&'a [u8]>,
}

/// Keys of one partition of a table.
type Group<'a> = (&'a LiveTable, PartitionId, Vec<Place<'a>>);

impl<'a> RangeDelete<'a> {
    pub fn live(&mut self, table: &[u8]) -> Result<&'a LiveTable, CommandError> {
        let table = find_live(self.tables, self.user, self.command, table)?;
        *self.first = Some(table.name().clone());
        Ok(table)
    }
}

impl View<'_> {
    /// Runs a command that writes, alone. REQUIRES: it is one.
    pub fn write(
        &self,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Answer, Option<TableName>) {
        let mut table = None;
        let answer = match command.run {
            Run::Edit { run, reads } => {
                self.edit(command, args, &mut table, commits, reads(&args), |txn| {
                    run(&mut Edit { args, txn, reply })
                })
            }
            Run::Many { run, done, reads } => self.edit_many(
                command,
                args,
                &mut table,
                (reply, commits),
                (run, done, reads),
            ),
            Run::Together(run) => {
                self.edit_together(command, args, &mut table, (reply, commits), run)
            }
            Run::RangeDelete(run) => run(&mut RangeDelete {
                args,
                shared: self.shared,
                tables: self.tables,
                user: self.user,
                command,
                reply,
                commits,
                first: &mut table,
            }),
            _ => Err(refuse_write(command, &args, self.user)),
        };
        (answer, table)
    }

    fn edit(
        &self,
        command: &Command,
        args: Args<'_>,
        first: &mut Option<TableName>,
        commits: &mut Commits,
        reads: bool,
        run: impl FnOnce(&mut Txn<'_>) -> Answer,
    ) -> Answer {
        let (table, key) = split(args.get(1))?;
        let table = find_live(self.tables, self.user, command, table)?;
        *first = Some(table.name().clone());
        check_key(table, key)?;
        let keys: &[&[u8]] = if reads { &[key] } else { &[] };
        self.change(table, keys, commits, Several::No, run)
    }

    fn edit_many(
        &self,
        command: &Command,
        args: Args<'_>,
        first: &mut Option<TableName>,
        (reply, commits): (&mut Reply, &mut Commits),
        (run, done, reads): (ManyFn, fn(&mut Reply, i64), bool),
    ) -> Answer {
        let groups = self.groups(command, args)?;
        *first = groups.first().map(|(table, ..)| table.name().clone());
        if groups.len() > 1 && !self.may_wait {
            // Should a later partition have to wait, the command would run again, and do again what
            // it did to the earlier ones: after others may have written there.
            return Err(CommandError::NotResident);
        }
        if !reads {
            return self.write_groups(&groups, args, (reply, commits), (run, done));
        }
        let mut sum = 0;
        for (table, _, places) in &groups {
            let keys: Vec<&[u8]> = places.iter().map(|place| place.key).collect();
            let arguments: Vec<usize> = places.iter().map(|place| place.argument).collect();
            self.change(table, &keys, commits, Several::No, |txn| {
                let reply = &mut *reply;
                sum += run(&mut Edit { args, txn, reply }, &arguments)?;
                Ok(())
            })?;
        }
        done(reply, sum);
        Ok(())
    }

    fn edit_together(
        &self,
        command: &Command,
        args: Args<'_>,
        first: &mut Option<TableName>,
        (reply, commits): (&mut Reply, &mut Commits),
        run: fn(&mut Edit<'_, '_>) -> Answer,
    ) -> Answer {
        let groups = self.groups(command, args)?;
        *first = groups.first().map(|(table, ..)| table.name().clone());
        let [(table, _, places)] = &groups[..] else {
            return Err(apart(command, &groups));
        };
        let keys: Vec<&[u8]> = places.iter().map(|place| place.key).collect();
        self.change(table, &keys, commits, Several::No, |txn| {
            run(&mut Edit { args, txn, reply })
        })
    }

    /// Writes groups of keys blindly: nothing before all of it is known to be right.
    fn write_groups(
        &self,
        groups: &[Group<'_>],
        args: Args<'_>,
        (reply, commits): (&mut Reply, &mut Commits),
        (run, done): (ManyFn, fn(&mut Reply, i64)),
    ) -> Answer {
        let (mut batches, mut sum) = (Vec::with_capacity(groups.len()), 0);
        for (table, _, places) in groups {
            let arguments: Vec<usize> = places.iter().map(|place| place.argument).collect();
            let mut txn = Txn::blind(table, self.clock());
            let (txn, reply) = (&mut txn, &mut *reply);
            sum += run(&mut Edit { args, txn, reply }, &arguments)?;
            batches.push((*table, std::mem::take(&mut txn.batch)));
        }
        for (table, batch) in batches {
            self.write_batch(table, &batch, commits)?;
        }
        done(reply, sum);
        Ok(())
    }

    fn clock(&self) -> &dyn Clock {
        &**self.shared.store.clock()
    }

    fn write_batch(&self, table: &LiveTable, batch: &Batch, commits: &mut Commits) -> Answer {
        let commit = match self.may_wait {
            true => Some(table.write(batch)?),
            false => table.try_write(batch)?,
        };
        commits.add(table, &commit.ok_or(CommandError::NotResident)?);
        Ok(())
    }

    /// Runs `run` on the keys that it looks at, and writes what it makes.
    fn change(
        &self,
        table: &LiveTable,
        keys: &[&[u8]],
        commits: &mut Commits,
        several: Several,
        run: impl FnOnce(&mut Txn<'_>) -> Answer,
    ) -> Answer {
        if keys.is_empty() {
            let mut txn = Txn::blind(table, self.clock());
            run(&mut txn)?;
            return self.write_batch(table, &txn.batch, commits);
        }
        let decide = |stored: Vec<Option<Stored>>| {
            let mut txn = Txn::holding(table, self.clock(), keys, stored);
            if several == Several::Yes {
                txn = txn.of_several();
            }
            match run(&mut txn) {
                Ok(()) => (txn.into_batch(), Ok(())),
                Err(stop) => (Batch::new(), Err(stop)),
            }
        };
        let done = match self.may_wait {
            true => Some(table.transact(keys, decide)?),
            false => table.try_transact(keys, decide)?,
        };
        let (commit, answer) = done.ok_or(CommandError::NotResident)?;
        answer?;
        commits.add(table, &commit);
        Ok(())
    }

    /// The keys of a command by table and partition, in the order in which these come.
    fn groups<'a>(
        &'a self,
        command: &Command,
        args: Args<'a>,
    ) -> Result<Vec<Group<'a>>, CommandError> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for argument in command.key_places(args.len()) {
            let (table, key) = split(args.get(argument))?;
            let table = find_live(self.tables, self.user, command, table)?;
            check_key(table, key)?;
            let partition = table.partition_holding(key)?;
            let place = Place { argument, key };
            let same =
                |group: &&mut Group<'_>| group.0.name() == table.name() && group.1 == partition;
            match groups.iter_mut().find(same) {
                Some((_, _, places)) => places.push(place),
                None => groups.push((table, partition, vec![place])),
            }
        }
        Ok(groups)
    }

    /// Runs what was queued since MULTI, where some of it writes: all of it on keys of one
    /// partition, at one moment.
    pub fn exec_writing(
        &self,
        queued: &Queued,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Outcome, Option<TableName>) {
        let (start, mut first) = (reply.len(), None);
        let answer = self.transaction(queued, &mut first, reply, commits);
        (settle(answer, start, reply), first)
    }

    fn transaction(
        &self,
        queued: &Queued,
        first: &mut Option<TableName>,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> Answer {
        let commands = &queued.commands;
        let OneTable {
            table,
            key,
            mut keys,
        } = self.one_table(commands)?;
        *first = Some(table.name().clone());
        if !queued.watches.is_empty() {
            queued
                .watches
                .check_partition(table, table.partition_holding(key)?)?;
            // So that it is decided under the partition's lock.
            keys.push(key);
        }
        // Many commands may be about one key, and that one is long.
        keys.sort_unstable();
        keys.dedup();
        let start = reply.len();
        self.change(table, &keys, commits, Several::Yes, |txn| {
            if queued.watches.any_written() {
                reply.null_array();
                return Ok(());
            }
            reply.array(commands.len());
            for (place, args) in commands {
                self.run_within(txn, &COMMANDS[*place], args.borrow(), reply);
                // Nothing is written yet.
                self.check_replies(reply.len() - start)?;
            }
            Ok(())
        })
    }

    /// One command of a MULTI; what it answers stays, also when that is an error.
    fn run_within(&self, txn: &mut Txn<'_>, command: &Command, args: Args<'_>, reply: &mut Reply) {
        let start = reply.len();
        let checked = match command.writes() {
            true => check_keys(txn.table, command, &args),
            false => Ok(()),
        };
        let answer = match command.run {
            _ if checked.is_err() => checked,
            Run::Edit { run, .. } | Run::Together(run) => run(&mut Edit { args, txn, reply }),
            Run::Many { run, done, .. } => {
                let places: Vec<usize> = command.key_places(args.len()).collect();
                let sum = run(&mut Edit { args, txn, reply }, &places);
                sum.map(|sum| done(reply, sum))
            }
            Run::Read(run) => run(&mut Call {
                args,
                tables: self.tables,
                user: self.user,
                may_wait: true,
                reply: &mut *reply,
                shared: self.shared,
                reply_start: start,
                first: None,
                held: Held::Txn(txn),
            }),
            _ => Err(CommandError::syntax()),
        };
        settle(answer, start, reply);
    }

    /// The table of all commands of a MULTI that writes.
    fn one_table<'a>(
        &'a self,
        commands: &'a [(usize, OwnedArgs)],
    ) -> Result<OneTable<'a>, CommandError> {
        let (mut found, mut keys): (Option<(&LiveTable, &[u8])>, _) = (None, Vec::new());
        for (place, args) in commands {
            let (command, args) = (&COMMANDS[*place], args.borrow());
            let looks = match command.run {
                Run::Edit { reads, .. } => reads(&args),
                Run::Many { reads, .. } => reads,
                Run::Together(_) => true,
                Run::Read(_) if command.keys.first > 0 => true,
                _ => return Err(not_within(command)),
            };
            for argument in command.key_places(args.len()) {
                let (table, key) = split(args.get(argument))?;
                let table = match command.run {
                    Run::Read(_) => match find_source(self.tables, self.user, table)? {
                        Source::Live(table) => table,
                        Source::Batch(_) => return Err(several_tables()),
                    },
                    _ => find_live(self.tables, self.user, command, table)?,
                };
                if found.is_some_and(|(other, _)| other.name() != table.name()) {
                    return Err(several_tables());
                }
                found = found.or(Some((table, key)));
                if looks {
                    keys.push(key);
                }
            }
        }
        let (table, key) =
            found.ok_or_else(|| CommandError::error("ERR a MULTI that writes names no key"))?;
        Ok(OneTable { table, key, keys })
    }
}

fn not_within(command: &Command) -> CommandError {
    let name = command.name.to_uppercase();
    CommandError::error(format!(
        "ERR {name} cannot be in a MULTI that writes, which is for commands on keys"
    ))
}

/// Of a command on keys that have to lie together, and do not.
fn apart(command: &Command, groups: &[Group<'_>]) -> CommandError {
    let name = command.name.to_uppercase();
    let mut tables = groups.iter().map(|(table, ..)| table.name());
    let first = tables.next().map_or("", TableName::as_str);
    let problem = match tables.all(|table| table.as_str() == first) {
        true => format!(
            "its keys lie in several of table '{first}': give them one hashtag, as in \
             {first}:{{user1}}a"
        ),
        false => "its keys are of several tables".to_owned(),
    };
    CommandError::error(format!(
        "CROSSSLOT {name} is atomic within one partition of one live table: {problem}"
    ))
}

fn several_tables() -> CommandError {
    CommandError::error(
        "CROSSSLOT a MULTI that writes is atomic within one partition of one live table: its keys are of \
         several tables",
    )
}

/// Whether several commands follow each other in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Several {
    No,
    Yes,
}

/// Changes the keys at some arguments; what it gives is added up over the partitions.
pub type ManyFn = fn(&mut Edit<'_, '_>, &[usize]) -> Result<i64, CommandError>;

/// Refuses keys that no table can hold.
fn check_key(table: &LiveTable, key: &[u8]) -> Answer {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    Err(CommandError::from(LiveError::Key {
        table: table.name().clone(),
        bytes: key.len(),
        limit: MAX_KEY_BYTES,
    }))
}

fn check_keys(table: &LiveTable, command: &Command, args: &Args<'_>) -> Answer {
    let mut keys = command.key_places(args.len()).map(|place| args.get(place));
    keys.try_for_each(|key| check_key(table, split(key)?.1))
}

/// A live table that the user may write to.
fn find_live<'t>(
    tables: &'t TableView,
    user: &User,
    command: &Command,
    table: &[u8],
) -> Result<&'t LiveTable, CommandError> {
    if !user.may(Verb::Write, table) {
        return Err(no_permission(user, table, "write to"));
    }
    match tables.get(table) {
        Some(Source::Live(table)) => Ok(table),
        Some(Source::Batch(_)) => Err(batch_table(command, table)),
        None => Err(no_table(table)),
    }
}

fn batch_table(command: &Command, table: &[u8]) -> CommandError {
    let (name, table) = (command.name.to_uppercase(), shown(table));
    CommandError::error(format!(
        "READONLY table '{table}' is a batch table, {name} cannot change it: make a new version of it \
         with 'forebay push {table} ...', or a table that takes writes with 'forebay create'"
    ))
}

/// Of a command that no table here takes.
pub fn refuse_write(command: &Command, args: &Args<'_>, user: &User) -> CommandError {
    let name = command.name.to_uppercase();
    let place = usize::try_from(command.keys.first).unwrap_or(0);
    let not_here = || {
        CommandError::error(format!(
            "ERR {name} is not supported: batch tables change only as a whole, by 'forebay push', and \
             live tables by the commands that docs/server.md lists"
        ))
    };
    let Some(table) = (place > 0 && place < args.len()).then(|| args.get(place)) else {
        return not_here();
    };
    match split(table) {
        Err(stop) => stop,
        Ok((table, _)) if !user.may(Verb::Write, table) && !user.may(Verb::Read, table) => {
            no_permission(user, table, "write to")
        }
        Ok(_) => not_here(),
    }
}

impl From<NumberError> for CommandError {
    fn from(error: NumberError) -> Self {
        match error {
            NumberError::Integer => CommandError::not_an_integer(),
            NumberError::Float => CommandError::error("ERR value is not a valid float"),
            NumberError::Bytes(_) => {
                CommandError::error(format!("ERR the stored value is damaged: {error}"))
            }
        }
    }
}

impl From<LiveError> for CommandError {
    fn from(error: LiveError) -> Self {
        let code = match &error {
            LiveError::AcrossPartitions { .. } => "CROSSSLOT",
            LiveError::Failed { .. } | LiveError::Closed { .. } | LiveError::Log(_) => "MISCONF",
            LiveError::Full { .. } => "OOM",
            LiveError::Batch { .. } => "READONLY",
            LiveError::Run { .. } => {
                error!(%error, "a write could not read what is stored");
                "ERR"
            }
            _ => "ERR",
        };
        CommandError::error(format!("{code} {error}"))
    }
}
