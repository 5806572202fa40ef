//! Running commands that read: at once where all pages are in memory, else on a thread that may wait.

use std::sync::Arc;

use forebay_engine::{TableName, Tables};

use crate::command::{Answer, COMMANDS, Call, Run, Stop};
use crate::resp::{Args, OwnedArgs, Reply};
use crate::shared::Shared;
use crate::users::User;

/// The place of GET in the command table.
pub const GET: usize = 0;
/// A thread that answers several GETs hands over after so many bytes of replies.
const GETS_BYTES: usize = 1 << 20;

/// What commands see: one set of versions.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub tables: &'a Tables,
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
    pub tables: Arc<Tables>,
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
    Exec(Vec<(usize, OwnedArgs)>),
}

/// What such a thread answers.
#[derive(Debug)]
pub struct Done {
    pub replies: Vec<u8>,
    /// How many commands were answered; one, but for GETs.
    pub answered: usize,
    /// How many of these with an error.
    pub failed: usize,
    /// The first table that was read.
    pub table: Option<TableName>,
}

impl View<'_> {
    /// Runs one command. Its reply is appended whole, or nothing is.
    pub fn run(
        &self,
        place: usize,
        args: Args<'_>,
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
        };
        let answer = match COMMANDS[place].run {
            Run::Walk(_) if !self.may_wait => Err(Stop::NotResident),
            Run::Read(run) | Run::Walk(run) => run(&mut call),
            Run::Session(_) | Run::Write => Err(Stop::error("ERR this command reads no table")),
        };
        let table = call.first.map(|version| version.table().clone());
        (settle(answer, start, reply), table)
    }

    /// Runs what was queued; one array of all replies.
    pub fn exec(
        &self,
        commands: &[(usize, OwnedArgs)],
        reply: &mut Reply,
    ) -> (Outcome, Option<TableName>) {
        let (start, mut first) = (reply.len(), None);
        reply.array(commands.len());
        for (place, args) in commands {
            let (outcome, table) = self.run(*place, args.borrow(), reply);
            first = first.or(table);
            let limit = self.shared.config.limits.reply_bytes;
            if outcome == Outcome::NotResident {
                reply.truncate(start);
                return (outcome, first);
            }
            if reply.len() - start > limit {
                let stop = format!("ERR the replies of EXEC are larger than {limit} bytes");
                return (settle(Err(Stop::error(stop)), start, reply), first);
            }
        }
        (Outcome::Answered, first)
    }
}

/// Takes a reply back that did not come to its end, and puts the error in its place.
pub fn settle(answer: Answer, start: usize, reply: &mut Reply) -> Outcome {
    match answer {
        Ok(()) => Outcome::Answered,
        Err(Stop::NotResident) => {
            reply.truncate(start);
            Outcome::NotResident
        }
        Err(Stop::Error(text)) => {
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
        let (answered, failed, table) = match &self.task {
            Task::One(place, args) => one(view.run(*place, args.borrow(), &mut reply)),
            Task::Exec(commands) => one(view.exec(commands, &mut reply)),
            Task::Gets(keys) => gets(&view, keys, &mut reply),
        };
        Done {
            replies: reply.into_bytes(),
            answered,
            failed,
            table,
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
        let (outcome, table) = view.run(GET, args.borrow(), reply);
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
