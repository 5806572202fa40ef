//! Runs EXEC of a MULTI that writes.
//!
//! Its commands run on keys of one partition of one live table, under that partition's lock. They
//! write one batch.

use forebay_engine::live::LiveTable;
use forebay_engine::{Source, TableName};

use super::call::{find_source, split};
use super::held::KeyGuard;
use super::txn::{Edit, Txn};
use super::write::{Several, check_keys, find_live};
use crate::command::{Answer, COMMANDS, Call, Command, CommandError, QueuedCommands, Run};
use crate::commits::Commits;
use crate::execute::{Outcome, View, settle};
use crate::resp::{Args, OwnedArgs, Reply};

/// The table and the keys of a MULTI that writes.
struct OneTable<'a> {
    table: &'a LiveTable,
    /// One of the commands' keys.
    key: &'a [u8],
    /// The keys that the commands read.
    keys: Vec<&'a [u8]>,
}

impl View<'_> {
    /// Runs the commands since MULTI if some of them write: all on keys of one partition, at one
    /// moment.
    pub fn exec_writing(
        &self,
        queued: &QueuedCommands,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Outcome, Option<TableName>) {
        let (start, mut first) = (reply.len(), None);
        let answer = self.transaction(queued, &mut first, reply, commits);
        (settle(answer, start, reply), first)
    }

    /// Runs such a MULTI and leaves it to the caller to reply with the error.
    pub fn transaction(
        &self,
        queued: &QueuedCommands,
        first: &mut Option<TableName>,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> Answer {
        let commands = &queued.commands;
        let OneTable {
            table,
            key,
            mut keys,
        } = self.one_table(commands.iter())?;
        *first = Some(table.name().clone());
        if !queued.watches.is_empty() {
            // Of an evaluation this is known.
            if self.evaluation.is_none() {
                let written = table.partition_holding(key)?;
                queued.watches.check_partition(table, written)?;
            }
            // So that the check happens under the partition's lock.
            keys.push(key);
            keys.extend(queued.watches.replicated_keys());
        }
        let start = reply.len();
        self.change(table, &keys, commits, Several::Yes, |txn| {
            if queued.watches.any_written() || queued.watches.have_other_versions(txn)? {
                reply.null_array();
                return Ok(());
            }
            reply.array(commands.len());
            for (place, args) in commands {
                // Nothing is written yet if one of these errors has to end it.
                self.run_within(txn, &COMMANDS[*place], args.borrow(), reply)?;
                txn.end_command()?;
                self.check_replies(reply, start)?;
            }
            Ok(())
        })
    }

    /// Evaluates commands on keys of the partition, each on the effects of those before it. Appends
    /// their replies, and returns the end of each. REQUIRES: the view has an evaluation.
    pub fn evaluate_each(
        &self,
        commands: &[&(usize, OwnedArgs)],
        reply: &mut Reply,
    ) -> Result<Vec<usize>, CommandError> {
        let mut ends = Vec::with_capacity(commands.len());
        let several = match commands.len() {
            1 => Several::No,
            _ => Several::Yes,
        };
        let OneTable { table, keys, .. } = self.one_table(commands.iter().copied())?;
        self.change(table, &keys, &mut Commits::default(), several, |txn| {
            for (place, args) in commands {
                self.run_within(txn, &COMMANDS[*place], args.borrow(), reply)?;
                txn.end_command()?;
                ends.push(reply.len());
            }
            Ok(())
        })?;
        Ok(ends)
    }

    /// Evaluates a MULTI. REQUIRES: as [`Self::evaluate_each`].
    pub fn evaluate_multi(&self, queued: &QueuedCommands, reply: &mut Reply) -> Answer {
        self.transaction(queued, &mut None, reply, &mut Commits::default())
    }

    /// Runs one command of a MULTI and keeps its reply, even an error.
    fn run_within(
        &self,
        txn: &mut Txn<'_>,
        command: &Command,
        args: Args<'_>,
        reply: &mut Reply,
    ) -> Answer {
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
            Run::Session(_) if command.is_of_no_table() => {
                reply.ok();
                Ok(())
            }
            Run::Read(run) => run(&mut Call {
                args,
                tables: self.tables,
                user: self.user,
                may_wait: self.may_wait,
                reply: &mut *reply,
                shared: self.shared,
                reply_start: start,
                first: None,
                held: KeyGuard::Txn(txn),
                clock: self.clock(),
            }),
            _ => Err(not_within(command)),
        };
        if self.evaluation.is_some()
            && let Err(stop) = &answer
            && !matches!(stop, CommandError::Error(_))
        {
            // The whole evaluation is repeated, or fails.
            return answer;
        }
        match settle(answer, start, reply) {
            Outcome::NotResident => Err(CommandError::NotResident),
            Outcome::Replicas => Err(CommandError::Replicas),
            Outcome::Answered | Outcome::Failed | Outcome::NotHere | Outcome::Damaged => Ok(()),
        }
    }

    /// Returns the one table of all commands of a MULTI that writes.
    fn one_table<'a>(
        &'a self,
        commands: impl Iterator<Item = &'a (usize, OwnedArgs)>,
    ) -> Result<OneTable<'a>, CommandError> {
        let (mut found, mut keys): (Option<(&LiveTable, &[u8])>, _) = (None, Vec::new());
        for (place, args) in commands {
            let (command, args) = (&COMMANDS[*place], args.borrow());
            let looks = match command.run {
                Run::Edit { reads, .. } => reads(&args),
                Run::Many { reads, .. } => reads,
                Run::Together(_) => true,
                Run::Read(_) if command.keys.first > 0 => true,
                _ if command.is_of_no_table() => false,
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

fn several_tables() -> CommandError {
    CommandError::error(
        "CROSSSLOT a MULTI that writes is atomic within one partition of one live table: its keys are of \
         several tables",
    )
}
