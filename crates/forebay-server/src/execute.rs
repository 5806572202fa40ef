//! Running commands: at once where all pages are in memory, else on a thread that may wait.

use std::sync::Arc;

use std::time::Duration;

use forebay_engine::TableName;

use crate::command::{Answer, COMMANDS, Call, CommandError, Queued, Run};
use crate::commits::Commits;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::User;

/// The place of GET in the command table.
pub const GET: usize = 0;
/// A thread that answers several GETs hands over after so many bytes of replies.
const GETS_BYTES: usize = 1 << 20;

/// What commands see: one set of versions, and the live tables.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub tables: &'a TableView,
    pub user: &'a User,
    pub shared: &'a Shared,
    pub may_wait: bool,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// Answered with an error.
    Failed,
    /// Nothing was written: it has to run where it may wait.
    NotResident,
}

/// Commands for a thread that may wait.
#[derive(Debug)]
pub struct Work {
    pub task: Task,
    pub tables: TableView,
    pub user: Arc<User>,
    pub shared: Arc<Shared>,
    pub resp3: bool,
}

#[derive(Debug)]
pub enum Task {
    /// One command, by its place in the command table.
    One(usize, OwnedArgs),
    /// GETs of these wire keys; some of them may be left for another time, the first never.
    Gets(OwnedArgs),
    /// What was queued since MULTI.
    Exec(Queued),
}

/// What such a thread answers.
#[derive(Debug)]
pub struct Done {
    pub replies: Vec<u8>,
    /// How many commands were answered; one, but for GETs.
    pub answered: usize,
    /// How many of these with an error.
    pub failed: usize,
    /// The first table that was read or written to.
    pub table: Option<TableName>,
    /// How long the client should pause, for the sake of what it wrote.
    pub delay: Duration,
}

impl View<'_> {
    /// Runs one command. Its reply is appended whole, or nothing is.
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
            return (settle(answer, start, reply), table);
        }
        let mut call = Call {
            args,
            tables: self.tables,
            user: self.user,
            may_wait: self.may_wait,
            reply: &mut *reply,
            shared: self.shared,
            reply_start: start,
            first: None,
            txn: None,
        };
        let answer = match command.run {
            Run::Walk(_) | Run::RangeDelete(_) if !self.may_wait => Err(CommandError::NotResident),
            Run::Read(run) | Run::Walk(run) => run(&mut call),
            _ => Err(CommandError::error("ERR this command reads no table")),
        };
        let table = call.first.cloned();
        (settle(answer, start, reply), table)
    }

    /// Runs what was queued; one array of all replies.
    pub fn exec(
        &self,
        queued: &Queued,
        reply: &mut Reply,
        commits: &mut Commits,
    ) -> (Outcome, Option<TableName>) {
        let commands = &queued.commands;
        if queued.writes() {
            return self.exec_writing(commands, reply, commits);
        }
        let (start, mut first) = (reply.len(), None);
        reply.array(commands.len());
        for (place, args) in commands {
            let (outcome, table) = self.run(*place, args.borrow(), reply, commits);
            first = first.or(table);
            if outcome == Outcome::NotResident {
                reply.truncate(start);
                return (outcome, first);
            }
            if let Err(stop) = self.check_replies(reply.len() - start) {
                return (settle(Err(stop), start, reply), first);
            }
        }
        (Outcome::Answered, first)
    }

    /// Ends an EXEC whose replies grew beyond the limit.
    pub fn check_replies(&self, bytes: usize) -> Answer {
        let limit = self.shared.config.limits.reply_bytes;
        match bytes <= limit {
            true => Ok(()),
            false => Err(CommandError::error(format!(
                "ERR the replies of EXEC are larger than {limit} bytes"
            ))),
        }
    }
}

/// Takes a reply back that did not come to its end, and puts the error in its place.
pub fn settle(answer: Answer, start: usize, reply: &mut Reply) -> Outcome {
    match answer {
        Ok(()) => Outcome::Answered,
        Err(CommandError::NotResident) => {
            reply.truncate(start);
            Outcome::NotResident
        }
        Err(CommandError::Error(text)) => {
            reply.truncate(start);
            reply.error(&text);
            Outcome::Failed
        }
    }
}

impl Work {
    /// Answers, waiting for the device where it must.
    pub fn run(self) -> Done {
        let view = View {
            tables: &self.tables,
            user: &self.user,
            shared: &self.shared,
            may_wait: true,
        };
        let mut reply = Reply::new(self.resp3);
        let mut commits = Commits::default();
        let (answered, mut failed, table) = match &self.task {
            Task::One(place, args) => {
                one(view.run(*place, args.borrow(), &mut reply, &mut commits))
            }
            Task::Exec(queued) => one(view.exec(queued, &mut reply, &mut commits)),
            Task::Gets(keys) => gets(&view, keys, &mut reply),
        };
        if let Err(error) = commits.wait() {
            failed = answered;
            settle(Err(CommandError::from(error)), 0, &mut reply);
        }
        Done {
            replies: reply.into_bytes(),
            answered,
            failed,
            table,
            delay: commits.delay(),
        }
    }
}

fn one((outcome, table): (Outcome, Option<TableName>)) -> (usize, usize, Option<TableName>) {
    (1, usize::from(outcome == Outcome::Failed), table)
}

fn gets(view: &View<'_>, keys: &OwnedArgs, reply: &mut Reply) -> (usize, usize, Option<TableName>) {
    let (mut answered, mut failed, mut first) = (0, 0, None);
    for key in keys.borrow().iter() {
        if reply.len() > GETS_BYTES {
            break;
        }
        let args: OwnedArgs = [b"get", key].into_iter().collect();
        let (outcome, table) = view.run(GET, args.borrow(), reply, &mut Commits::default());
        answered += 1;
        failed += usize::from(outcome == Outcome::Failed);
        first = first.or(table);
    }
    (answered, failed, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_is_where_it_is_said_to_be() {
        assert_eq!(COMMANDS[GET].name, "get");
    }
}
