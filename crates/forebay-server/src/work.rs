//! Commands that have to wait for the device, and the answer of the thread that runs them.

use std::sync::Arc;

use forebay_engine::TableName;

use crate::client::Client;
use crate::cluster::PartAsk;
use crate::command::{QueuedCommands, WatchAsk, Watches};
use crate::commits::Commits;
use crate::execute::{Outcome, View};
use crate::gets::OwnedGets;
use crate::port::Port;
use crate::reply_memory::Charge;
use crate::resp::{OwnedArgs, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::User;

/// Commands for a thread that may wait.
#[derive(Debug)]
pub struct Work {
    pub task: Task,
    pub tables: TableView,
    pub user: Arc<User>,
    pub client: Arc<Client>,
    pub shared: Arc<Shared>,
    /// The worker that serves the connection.
    pub worker: usize,
    pub resp3: bool,
    /// Leave to read replicas was given.
    pub has_permit: bool,
}

/// What became of work.
#[derive(Debug)]
pub enum WorkOutcome {
    Done(Done),
    /// Its keys are not here.
    Elsewhere(Work),
}

#[derive(Debug)]
pub enum Task {
    /// One command, by its place in the command table.
    One(usize, OwnedArgs),
    /// GETs of one table; some of them may be left for another time, the first never.
    Gets(OwnedGets),
    /// What was queued since MULTI.
    Exec(QueuedCommands),
    /// What another node asks of a partition of a live table.
    Part(Box<PartAsk>),
    /// Commands that write to a live table of a cluster.
    Writes(OwnedWrites),
    /// Versions of keys that WATCH names.
    Watch(WatchAsk),
}

/// Commands that follow each other, each of which writes to one key of the same live table of a
/// cluster.
#[derive(Debug, Default)]
pub struct OwnedWrites {
    /// With their places in the command table.
    pub commands: Vec<(usize, OwnedArgs)>,
}

/// What such a thread answers.
#[derive(Debug)]
pub struct Done {
    pub replies: Reply,
    /// How many commands were answered; one, but for GETs.
    pub answered: usize,
    /// How many of these with an error.
    pub failed: usize,
    /// Which of them, where they are commands of several kinds.
    pub failures: Vec<usize>,
    /// The first table that was read or written to.
    pub table: Option<TableName>,
    /// What was written and is not durable yet.
    pub commits: Commits,
    /// Another node had to be asked.
    pub elsewhere: bool,
    /// What WATCH named is watched from then on.
    pub watches: Watches,
}

impl Work {
    /// Answers, waiting for the device where it must. Whether writes are durable is not waited for
    /// here.
    pub fn run(self) -> WorkOutcome {
        let port = self.client.port;
        self.run_as(port)
    }

    /// The same, as if it had come to that port.
    pub fn run_as(self, port: Port) -> WorkOutcome {
        let view = self.view(port);
        let mut reply = self.reply();
        let mut commits = Commits::default();
        let (outcome, table) = match &self.task {
            Task::One(place, args) => view.run(*place, args.borrow(), &mut reply, &mut commits),
            Task::Exec(queued) => view.exec(queued, &mut reply, &mut commits),
            Task::Part(ask) => (ask.run(&view, &mut reply), None),
            Task::Writes(_) | Task::Watch(_) => return WorkOutcome::Elsewhere(self),
            Task::Gets(gets) => {
                let gets = gets.answer(&view, &mut reply);
                if gets.not_here && gets.answered == 0 {
                    return WorkOutcome::Elsewhere(self);
                }
                return WorkOutcome::Done(Done {
                    answered: gets.answered,
                    failed: gets.failed,
                    ..Done::of(reply, Outcome::Answered, gets.table.cloned())
                });
            }
        };
        match outcome {
            Outcome::NotHere | Outcome::Replicas => WorkOutcome::Elsewhere(self),
            outcome => WorkOutcome::Done(Done {
                commits,
                ..Done::of(reply, outcome, table)
            }),
        }
    }

    /// What its commands see, on a thread that may wait.
    pub fn view(&self, port: Port) -> View<'_> {
        View {
            tables: &self.tables,
            user: &self.user,
            shared: &self.shared,
            may_wait: true,
            port,
            decided: None,
            has_permit: self.has_permit,
        }
    }

    /// For its replies, on the account of the connection.
    pub fn reply(&self) -> Reply {
        let charge = Charge::new(&self.shared.reply_memory, &self.client);
        Reply::charged(self.resp3, charge)
    }
}

impl Done {
    /// Of one command.
    pub fn of(replies: Reply, outcome: Outcome, table: Option<TableName>) -> Self {
        Self {
            replies,
            answered: 1,
            failed: usize::from(outcome == Outcome::Failed),
            failures: Vec::new(),
            table,
            commits: Commits::default(),
            elsewhere: false,
            watches: Watches::default(),
        }
    }
}
