//! Runs commands, on threads that may wait for the device and on threads that may not.

use forebay_engine::TableName;

use crate::cluster::DAMAGED;
use crate::command::{
    Answer, COMMANDS, Call, Command, CommandError, Evaluation, KeyGuard, QueuedCommands, Run,
};
use crate::commits::Commits;
use crate::port::Port;
use crate::resp::{Args, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::User;

/// The tables that commands see: one set of versions, and the live tables.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub tables: &'a TableView,
    pub user: &'a User,
    pub shared: &'a Shared,
    pub may_wait: bool,
    /// The port that received the command.
    pub port: Port,
    /// If writes are evaluated and not written: the evaluation.
    pub evaluation: Option<&'a Evaluation<'a>>,
    /// Whether a read permit was granted; it is checked again afterwards.
    pub has_permit: bool,
}

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// The reply is an error.
    Failed,
    /// Nothing was written: the command has to run on a thread that may wait.
    NotResident,
    /// The reply is an error, which is withdrawn if the command can be sent to a node with its
    /// keys.
    NotHere,
    /// The reply is an error, which is withdrawn if another node may have an intact replica.
    Damaged,
    /// Nothing was written: replicas of a live table are to be asked.
    Replicas,
}

impl Outcome {
    /// Returns whether there is no reply yet.
    pub fn waits(self) -> bool {
        matches!(
            self,
            Outcome::NotResident | Outcome::NotHere | Outcome::Replicas
        )
    }
}

impl View<'_> {
    /// Runs one command. Its reply is appended as a whole, or not at all.
    pub fn run(
        &self,
        place: usize,
        args: Args<'_>,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Outcome, Option<TableName>) {
        let start = reply.len();
        let command = &COMMANDS[place];
        if command.writes() && (self.may_wait || !matches!(command.run, Run::RangeDelete(_))) {
            let (answer, table) = self.write(command, args, reply, commits);
            let outcome = settle(answer, start, reply);
            return (self.lead_on(outcome, start, reply), table);
        }
        let keys = command.key_places(args.len()).map(|at| args.get(at));
        let permits = match self.permits(keys) {
            Ok(permits) => permits,
            Err(stop) => return (self.stop(stop, start, reply), None),
        };
        let moments = match command.key_places(args.len()).nth(1) {
            Some(_) if !self.tables.live.is_empty() => {
                self.moments(std::iter::once((command, args)))
            }
            _ => Ok(Vec::new()),
        };
        match moments {
            Ok(moments) => {
                let (outcome, table) = self.read(command, args, KeyGuard::Moments(&moments), reply);
                let outcome = self.lead_on(outcome, start, reply);
                (permits.check(outcome, start, reply), table)
            }
            Err(stop) => (self.stop(stop, start, reply), None),
        }
    }

    /// Returns the outcome of a command that stopped before it read.
    pub fn stop(&self, stop: CommandError, start: usize, reply: &mut Reply) -> Outcome {
        let outcome = settle(Err(stop), start, reply);
        self.lead_on(outcome, start, reply)
    }

    /// Returns the outcome of a command whose keys this node lacks or cannot read. It is forwarded,
    /// or another node that sent it gets an error code, or a client of a standalone server gets an
    /// error.
    #[inline]
    pub fn lead_on(&self, outcome: Outcome, start: usize, reply: &mut Reply) -> Outcome {
        if !matches!(outcome, Outcome::NotHere | Outcome::Damaged) {
            return outcome;
        }
        if outcome == Outcome::Damaged {
            let words = String::from_utf8_lossy(&reply.bytes()[start..]);
            self.shared
                .notify_damage(words.trim_start_matches("-ERR ").trim_end());
        }
        match self.port {
            Port::Alone => Outcome::Failed,
            Port::Peer => {
                let words = String::from_utf8_lossy(&reply.bytes()[start..]).into_owned();
                let words = words.trim_start_matches("-ERR ").trim_end();
                reply.truncate(start);
                reply.error(&match outcome {
                    Outcome::Damaged => format!("{DAMAGED} {words}"),
                    _ => self.shared.not_here(words),
                });
                Outcome::Failed
            }
            _ => {
                reply.truncate(start);
                Outcome::NotHere
            }
        }
    }

    /// Runs a command that reads.
    fn read(
        &self,
        command: &Command,
        args: Args<'_>,
        held: KeyGuard<'_>,
        reply: &mut Reply,
    ) -> (Outcome, Option<TableName>) {
        let start = reply.len();
        let mut call = Call {
            args,
            tables: self.tables,
            user: self.user,
            may_wait: self.may_wait,
            reply: &mut *reply,
            shared: self.shared,
            reply_start: start,
            first: None,
            held,
            clock: self.clock(),
        };
        let answer = match command.run {
            Run::Read(_) | Run::Walk(_) if self.port.is_led_on() && command.is_of_all_tables() => {
                Err(CommandError::NotHere(String::new()))
            }
            Run::Walk(_) | Run::RangeDelete(_) if !self.may_wait => Err(CommandError::NotResident),
            Run::Read(run) | Run::Walk(run) => run(&mut call),
            Run::Session(_) if command.is_of_no_table() => {
                call.reply.ok();
                Ok(())
            }
            _ => Err(CommandError::error("ERR this command reads no table")),
        };
        let table = call.first.cloned();
        (settle(answer, start, reply), table)
    }

    /// Runs the queued commands; the reply is one array of all replies.
    pub fn exec(
        &self,
        queued: &QueuedCommands,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Outcome, Option<TableName>) {
        let start = reply.len();
        match self.is_any_changed(&queued.watches) {
            Ok(true) => {
                reply.null_array();
                (Outcome::Answered, None)
            }
            Ok(false) if queued.writes() => {
                let (outcome, table) = self.exec_writing(queued, reply, commits);
                (self.lead_on(outcome, start, reply), table)
            }
            Ok(false) => self.exec_reading(queued, reply),
            Err(stop) => (self.stop(stop, start, reply), None),
        }
    }

    /// Runs queued commands that all read. They see the keys of a partition of a live table as of
    /// one moment.
    fn exec_reading(
        &self,
        queued: &QueuedCommands,
        reply: &mut Reply,
    ) -> (Outcome, Option<TableName>) {
        let (start, mut first) = (reply.len(), None);
        let commands = || {
            let commands = queued.commands.iter();
            commands.map(|(place, args)| (&COMMANDS[*place], args.borrow()))
        };
        let keys = commands().flat_map(|(command, args)| {
            let places = command.key_places(args.len());
            places.map(move |at| args.get(at))
        });
        let permits = match self.permits(keys) {
            Ok(permits) => permits,
            Err(stop) => return (self.stop(stop, start, reply), None),
        };
        let moments = match self.moments(commands()) {
            Ok(moments) => moments,
            Err(stop) => return (self.stop(stop, start, reply), None),
        };
        // The check follows the read: if a key has not changed by now, it had not changed then.
        let is_changed = match self.has_other_version(&queued.watches) {
            Ok(has_other) => has_other || queued.watches.any_written(),
            Err(stop) => return (self.stop(stop, start, reply), None),
        };
        if is_changed {
            reply.null_array();
            return (Outcome::Answered, None);
        }
        reply.array(queued.commands.len());
        for (command, args) in commands() {
            let command_start = reply.len();
            let (outcome, table) = self.read(command, args, KeyGuard::Moments(&moments), reply);
            first = first.or(table);
            if matches!(outcome, Outcome::NotResident | Outcome::Replicas) {
                reply.truncate(start);
                return (outcome, first);
            }
            let is_elsewhere = matches!(outcome, Outcome::NotHere | Outcome::Damaged);
            if is_elsewhere && self.port != Port::Alone {
                let error = reply.bytes()[command_start..].to_vec();
                reply.truncate(start);
                reply.append(&error);
                return (self.lead_on(outcome, start, reply), first);
            }
            if let Err(stop) = self.check_replies(reply, start) {
                return (settle(Err(stop), start, reply), first);
            }
        }
        (permits.check(Outcome::Answered, start, reply), first)
    }

    /// Returns an error if the replies of an EXEC, from `start` on, exceed the limit, or if the
    /// client is gone.
    pub fn check_replies(&self, reply: &Reply, start: usize) -> Answer {
        let limit = self.shared.config.limits.reply_bytes;
        if reply.is_dropped() {
            return Err(CommandError::dropped());
        }
        match reply.len() - start <= limit {
            true => Ok(()),
            false => Err(CommandError::error(format!(
                "ERR the replies of EXEC are larger than {limit} bytes"
            ))),
        }
    }
}

/// Replaces an incomplete reply by the error.
pub fn settle(answer: Answer, start: usize, reply: &mut Reply) -> Outcome {
    match answer {
        Ok(()) => Outcome::Answered,
        Err(CommandError::NotResident) => {
            reply.truncate(start);
            Outcome::NotResident
        }
        Err(CommandError::Replicas) => {
            reply.truncate(start);
            Outcome::Replicas
        }
        Err(CommandError::NotHere(words)) => {
            reply.truncate(start);
            reply.error(&format!("ERR {words}"));
            Outcome::NotHere
        }
        Err(CommandError::Damaged(words)) => {
            reply.truncate(start);
            reply.error(&format!("ERR {words}"));
            Outcome::Damaged
        }
        Err(CommandError::Error(text)) => {
            reply.truncate(start);
            reply.error(&text);
            Outcome::Failed
        }
        Err(CommandError::Machine { text, .. }) => {
            reply.truncate(start);
            reply.error(&text);
            Outcome::Failed
        }
    }
}
