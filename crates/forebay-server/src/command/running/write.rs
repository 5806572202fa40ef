//! Runs commands that change tables.
//!
//! Live tables accept them; a batch table changes only as a whole. A command that reads the values
//! it changes runs under the partition's lock. Other commands write blindly. Either way the
//! operations are one batch: one record of the log, visible as a whole or not at all. Keys in
//! several partitions are changed one partition after another.

use forebay_engine::live::{Batch, LiveError, LiveTable, LockedKeys, Stored};
use forebay_engine::{PartitionId, Source, TableName};
use forebay_io::Clock;
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::number::NumberError;
use tracing::error;

use super::call::{no_permission, no_table, not_served, split};
use super::evaluation::Evaluation;
use super::txn::{Edit, Txn};
use crate::command::{Answer, Command, CommandError, Run, shown};
use crate::commits::Commits;
use crate::execute::View;
use crate::resp::{Args, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};

/// A command that deletes a range. It waits for the device as it walks.
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
    /// Runs a single write command. REQUIRES: it is one.
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
        check_key(table.name(), key)?;
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
            // If a later partition had to wait, the command would run again and repeat its effects
            // on the earlier partitions, possibly after other writes.
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

    /// Writes groups of keys blindly, after all of them were validated.
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

    pub(crate) fn clock(&self) -> &dyn Clock {
        match self.evaluation {
            Some(evaluation) => evaluation.clock(),
            None => &**self.shared.store.clock(),
        }
    }

    fn write_batch(&self, table: &LiveTable, batch: &Batch, commits: &mut Commits) -> Answer {
        let commit = match self.may_wait {
            true => Some(table.write(batch)?),
            false => table.try_write(batch)?,
        };
        commits.add(table, &commit.ok_or(CommandError::NotResident)?);
        Ok(())
    }

    /// Runs `run` on the keys that it reads, and writes the result.
    pub(in crate::command) fn change(
        &self,
        table: &LiveTable,
        keys: &[&[u8]],
        commits: &mut Commits,
        several: Several,
        run: impl FnOnce(&mut Txn<'_>) -> Answer,
    ) -> Answer {
        if let Some(evaluation) = self.evaluation {
            return Self::evaluate(evaluation, keys, several, run);
        }
        if keys.is_empty() {
            let mut txn = Txn::blind(table, self.clock());
            run(&mut txn)?;
            return self.write_batch(table, &txn.batch, commits);
        }
        // If a key could not be read, the command's result is discarded.
        let finish = |mut txn: Txn<'_>| match (run(&mut txn), txn.end_command()) {
            (Ok(()), Ok(())) => (txn.into_batch(), Ok(())),
            (_, Err(stop)) | (Err(stop), _) => (Batch::new(), Err(stop)),
        };
        let done = if let ([key], Several::No) = (keys, several) {
            let decide = |mut stored: Vec<Option<Stored>>| {
                let stored = stored.pop().flatten();
                finish(Txn::holding(table, self.clock(), key, stored))
            };
            match self.may_wait {
                true => Some(table.transact(keys, decide)?),
                false => table.try_transact(keys, decide)?,
            }
        } else {
            let decide = |locked: &LockedKeys<'_>| {
                let txn = Txn::reading(table, self.clock(), keys, locked);
                finish(txn.of_several(several == Several::Yes))
            };
            match self.may_wait {
                true => Some(table.transact_reading(keys, decide)?),
                false => table.try_transact_reading(keys, decide)?,
            }
        };
        let (commit, answer) = done.ok_or(CommandError::NotResident)?;
        answer?;
        commits.add(table, &commit);
        Ok(())
    }

    /// Runs `run` on the newest state of these keys, and keeps the result as the effect.
    fn evaluate(
        evaluation: &Evaluation<'_>,
        keys: &[&[u8]],
        several: Several,
        run: impl FnOnce(&mut Txn<'_>) -> Answer,
    ) -> Answer {
        let txn = Txn::evaluating(evaluation, keys);
        let mut txn = txn.of_several(several == Several::Yes);
        let answer = run(&mut txn);
        // If a key could not be read, the commands' results are discarded.
        txn.end_command()?;
        answer?;
        evaluation.set_batch(txn.into_batch());
        Ok(())
    }

    /// Groups a command's keys by table and partition, in the order of their first keys.
    fn groups<'a>(
        &'a self,
        command: &Command,
        args: Args<'a>,
    ) -> Result<Vec<Group<'a>>, CommandError> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for argument in command.key_places(args.len()) {
            let (table, key) = split(args.get(argument))?;
            let table = find_live(self.tables, self.user, command, table)?;
            check_key(table.name(), key)?;
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
}

/// Returns the error for keys that must be in one partition and are not.
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

/// Whether several commands follow each other in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum Several {
    No,
    Yes,
}

/// Changes the keys at some arguments. The results are added up over the partitions.
pub type ManyFn = fn(&mut Edit<'_, '_>, &[usize]) -> Result<i64, CommandError>;

/// Refuses keys that no table can hold.
pub fn check_key(table: &TableName, key: &[u8]) -> Answer {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    Err(CommandError::from(LiveError::Key {
        table: table.clone(),
        bytes: key.len(),
        limit: MAX_KEY_BYTES,
    }))
}

pub(in crate::command) fn check_keys(
    table: &LiveTable,
    command: &Command,
    args: &Args<'_>,
) -> Answer {
    let mut keys = command.key_places(args.len()).map(|place| args.get(place));
    keys.try_for_each(|key| check_key(table.name(), split(key)?.1))
}

/// Returns a live table that the user may write to.
pub(in crate::command) fn find_live<'t>(
    tables: &'t TableView,
    user: &User,
    command: &Command,
    table: &[u8],
) -> Result<&'t LiveTable, CommandError> {
    if !user.may(Verb::Write, table) {
        return Err(no_permission(user, table, "write to"));
    }
    match tables.get(table) {
        Some(Source::Live(table)) => match tables.is_replica(table) {
            true => Err(CommandError::Replicas),
            false => Ok(table),
        },
        Some(Source::Batch(_)) => Err(batch_table(command, table)),
        // Other nodes may have its replicas.
        None if tables.in_cluster => Err(not_served(table)),
        None => Err(no_table(table)),
    }
}

/// Returns the error of a command that would change a batch table.
pub fn batch_table(command: &Command, table: &[u8]) -> CommandError {
    let (name, table) = (command.name.to_uppercase(), shown(table));
    CommandError::error(format!(
        "READONLY table '{table}' is a batch table, {name} cannot change it: make a new version of it \
         with 'forebay push {table} ...', or a table that takes writes with 'forebay create'"
    ))
}

/// Returns the error of a command that no table accepts.
pub fn refuse_write(command: &Command, args: &Args<'_>, user: &User) -> CommandError {
    let name = command.name.to_uppercase();
    let place = usize::try_from(command.keys.first).unwrap_or(0);
    let not_here = || {
        CommandError::error(format!(
            "ERR {name} is not supported: batch tables change only as a whole, by 'forebay push', and \
             live tables by the commands that docs/reference/redis-commands.md lists"
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

/// Returns the error text for a client if a live table fails.
pub fn live_error(error: &LiveError) -> String {
    let code = match error {
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
    format!("{code} {error}")
}

impl From<LiveError> for CommandError {
    fn from(error: LiveError) -> Self {
        if error.is_damage() {
            return CommandError::Damaged(error.to_string());
        }
        let text = live_error(&error);
        match error.is_of_this_machine() {
            true => CommandError::Machine {
                passes: error.may_pass(),
                text,
            },
            false => CommandError::error(text),
        }
    }
}
