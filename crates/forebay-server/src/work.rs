//! Commands that have to wait for the device, and the results of the threads that run them.

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
    /// Whether a read permit was granted.
    pub has_permit: bool,
}

/// The outcome of work.
#[derive(Debug)]
pub enum WorkOutcome {
    Done(Done),
    /// This node lacks its keys.
    Elsewhere(Work),
}

#[derive(Debug)]
pub enum Task {
    /// One command, by its place in the command table.
    One(usize, OwnedArgs),
    /// GETs of one table; some of them may stay unanswered, but never the first.
    Gets(OwnedGets),
    /// The commands since MULTI.
    Exec(QueuedCommands),
    /// Another node's request about a partition of a live table.
    Part(Box<PartAsk>),
    /// Commands that write to a live table of a cluster.
    Writes(OwnedWrites),
    /// Versions of keys that WATCH names.
    Watch(WatchAsk),
}

/// Consecutive commands, each of which writes one key of the same live table of a cluster.
#[derive(Debug, Default)]
pub struct OwnedWrites {
    /// The commands with their places in the command table.
    pub commands: Vec<(usize, OwnedArgs)>,
}

/// The result of a thread that may wait.
#[derive(Debug)]
pub struct Done {
    pub replies: Reply,
    /// How many commands were answered: one, except for GETs.
    pub answered: usize,
    /// How many of these failed.
    pub failed: usize,
    /// Which of them failed, if they are commands of several kinds.
    pub failures: Vec<usize>,
    /// The first table that was read or written to.
    pub table: Option<TableName>,
    /// Writes that are not durable yet.
    pub commits: Commits,
    /// Whether another node had to be asked.
    pub elsewhere: bool,
    /// The keys that WATCH named, to be watched from then on.
    pub watches: Watches,
}

impl Work {
    /// Runs the work, waiting for the device if necessary. It does not wait for the durability of
    /// writes.
    pub fn run(self) -> WorkOutcome {
        let port = self.client.port;
        self.run_as(port)
    }

    /// Runs the work as if that port had received it.
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

    /// Returns the tables of its commands, for a thread that may wait.
    pub fn view(&self, port: Port) -> View<'_> {
        View {
            tables: &self.tables,
            user: &self.user,
            shared: &self.shared,
            may_wait: true,
            port,
            evaluation: None,
            has_permit: self.has_permit,
        }
    }

    /// Returns a buffer for its replies, charged to the connection.
    pub fn reply(&self) -> Reply {
        let charge = Charge::new(&self.shared.reply_memory, &self.client);
        Reply::charged(self.resp3, charge)
    }
}

impl Done {
    /// Returns the result of one command.
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
