//! Commands that have to wait for the device, and the answer of the thread that runs them.

use std::sync::Arc;

use forebay_engine::TableName;

use crate::client::Client;
use crate::command::Queued;
use crate::commits::Commits;
use crate::execute::{Outcome, View};
use crate::gets::OwnedGets;
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
    pub resp3: bool,
}

#[derive(Debug)]
pub enum Task {
    /// One command, by its place in the command table.
    One(usize, OwnedArgs),
    /// GETs of one table; some of them may be left for another time, the first never.
    Gets(OwnedGets),
    /// What was queued since MULTI.
    Exec(Queued),
}

/// What such a thread answers.
#[derive(Debug)]
pub struct Done {
    pub replies: Reply,
    /// How many commands were answered; one, but for GETs.
    pub answered: usize,
    /// How many of these with an error.
    pub failed: usize,
    /// The first table that was read or written to.
    pub table: Option<TableName>,
    /// What was written and is not durable yet.
    pub commits: Commits,
}

impl Work {
    /// Answers, waiting for the device where it must. Whether writes are durable is not waited for
    /// here.
    pub fn run(self) -> Done {
        let view = View {
            tables: &self.tables,
            user: &self.user,
            shared: &self.shared,
            may_wait: true,
        };
        let charge = Charge::new(&self.shared.reply_memory, &self.client);
        let mut reply = Reply::charged(self.resp3, charge);
        let mut commits = Commits::default();
        let (answered, failed, table) = match &self.task {
            Task::One(place, args) => {
                one(view.run(*place, args.borrow(), &mut reply, &mut commits))
            }
            Task::Exec(queued) => one(view.exec(queued, &mut reply, &mut commits)),
            Task::Gets(gets) => {
                let gets = gets.answer(&view, &mut reply);
                (gets.answered, gets.failed, gets.table.cloned())
            }
        };
        Done {
            replies: reply,
            answered,
            failed,
            table,
            commits,
        }
    }
}

fn one((outcome, table): (Outcome, Option<TableName>)) -> (usize, usize, Option<TableName>) {
    (1, usize::from(outcome == Outcome::Failed), table)
}
