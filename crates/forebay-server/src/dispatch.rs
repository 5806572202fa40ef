//! Decides what happens to a command: it runs, is queued, is refused, or has to wait.

use forebay_engine::TableName;

use crate::command::{
    COMMANDS, Command, CommandError, KeyNames, Run, SessionCall, find, refuse_write, shown,
};
use crate::commits::Commits;
use crate::execute::{Outcome, View, settle};
use crate::resp::{Args, OwnedArgs, Reply};
use crate::session::Session;
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::work::Task;

/// The state that a command may change, and the tables that it sees.
pub struct Dispatch<'a> {
    pub shared: &'a Shared,
    pub tables: &'a TableView,
    pub session: &'a mut Session,
    pub reply: &'a mut Reply,
    /// Writes that are not durable yet.
    pub commits: &'a mut Commits,
}

/// The outcome of a dispatched command.
pub struct RunOutcome {
    pub outcome: Outcome,
    /// The first table that was read or written to.
    pub table: Option<TableName>,
    /// The task for a thread that may wait, if there is no reply yet.
    pub task: Option<Task>,
}

impl Dispatch<'_> {
    /// Runs a command. REQUIRES: [`admit`] accepted the command and returned this place.
    pub fn run(&mut self, place: usize, args: Args<'_>) -> RunOutcome {
        let command = &COMMANDS[place];
        let completed = self.complete(command, &args);
        let args = completed.as_ref().map_or(args, OwnedArgs::borrow);
        let at_once = ["discard", "reset", "quit", "multi", "watch"];
        if self.session.queued.is_none() || at_once.contains(&command.name) {
            self.run_now(place, command, args)
        } else if command.name == "exec" {
            self.exec()
        } else {
            RunOutcome::just(self.queue(place, command, &args))
        }
    }

    /// Returns the arguments with a table's name before every key. `None` if they have them
    /// already.
    fn complete(&self, command: &Command, args: &Args<'_>) -> Option<OwnedArgs> {
        let user = self.session.user.as_ref()?;
        KeyNames::of(self.shared, self.tables, user)?.complete(command, args)
    }

    fn run_now(&mut self, place: usize, command: &Command, args: Args<'_>) -> RunOutcome {
        let start = self.reply.len();
        if self.session.redirects.is_some()
            && let Some(moved) = self.notify(command, &args)
        {
            return RunOutcome::just(settle(Err(CommandError::error(moved)), start, self.reply));
        }
        let answer = match (command.run, &self.session.user) {
            (Run::Session(run), _) => run(&mut SessionCall {
                args,
                tables: self.tables,
                session: self.session,
                shared: self.shared,
                reply: self.reply,
            }),
            (Run::Refused, Some(user)) => Err(refuse_write(command, &args, user)),
            (_, Some(user)) => {
                let (tables, shared) = (self.tables, self.shared);
                let view = View {
                    tables,
                    user,
                    shared,
                    may_wait: false,
                    port: self.session.client.port,
                    evaluation: None,
                    has_permit: false,
                };
                let (outcome, table) = view.run(place, args, self.reply, self.commits);
                let waits = outcome.waits();
                let task = waits.then(|| Task::One(place, args.to_owned()));
                return RunOutcome {
                    outcome,
                    table,
                    task,
                };
            }
            (_, None) => Err(no_auth()),
        };
        RunOutcome {
            outcome: settle(answer, start, self.reply),
            table: None,
            task: self.session.watching.take().map(Task::Watch),
        }
    }

    /// Returns the redirect that makes the client fetch the classes again, if one is due.
    fn notify(&mut self, command: &Command, args: &Args<'_>) -> Option<String> {
        let redirects = self.session.redirects.as_mut()?;
        let key = command.key_places(args.len()).next();
        let key = key.filter(|_| matches!(command.run, Run::Read(_)));
        let cluster = self.shared.cluster.as_ref()?;
        let user = self.session.user.as_ref();
        let map = user.map_or_else(|| cluster.map(), |user| cluster.map_for(user));
        let live = cluster.member().live();
        let moved = key.and_then(|key| redirects.take((&map, &live), self.tables, args.get(key)));
        if redirects.is_over() {
            self.session.redirects = None;
        }
        moved
    }

    /// Runs the queued commands, unless one of them was refused.
    fn exec(&mut self) -> RunOutcome {
        let watches = std::mem::take(&mut self.session.watches);
        let queued = self.session.queued.take().filter(|queued| !queued.failed);
        let queued = queued.map(|queued| queued.watching(watches));
        let (Some(queued), Some(user)) = (queued, &self.session.user) else {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return RunOutcome::just(settle(
                Err(CommandError::error(text)),
                self.reply.len(),
                self.reply,
            ));
        };
        let (tables, shared) = (self.tables, self.shared);
        let view = View {
            tables,
            user,
            shared,
            may_wait: false,
            port: self.session.client.port,
            evaluation: None,
            has_permit: false,
        };
        let (outcome, table) = view.exec(&queued, self.reply, self.commits);
        let waits = outcome.waits();
        let task = waits.then_some(Task::Exec(queued));
        RunOutcome {
            outcome,
            table,
            task,
        }
    }

    fn queue(&mut self, place: usize, command: &Command, args: &Args<'_>) -> Outcome {
        let Some(queued) = &mut self.session.queued else {
            return Outcome::Answered;
        };
        match queued.push(place, command, args) {
            Ok(()) => {
                self.reply.simple("QUEUED");
                Outcome::Answered
            }
            Err(stop) => {
                queued.failed = true;
                settle(Err(stop), self.reply.len(), self.reply)
            }
        }
    }
}

impl RunOutcome {
    fn just(outcome: Outcome) -> Self {
        Self {
            outcome,
            table: None,
            task: None,
        }
    }
}

/// Checks that the command exists and is allowed now. An error inside MULTI fails the EXEC.
pub fn admit(session: &mut Session, args: &Args<'_>) -> Result<usize, CommandError> {
    let admitted = match find(args.get(0)) {
        None if session.user.is_none() => Err(no_auth()),
        None => Err(unknown(args)),
        Some(place) => {
            let command = &COMMANDS[place];
            if session.user.is_none() && !command.flags.contains(&"no_auth") {
                Err(no_auth())
            } else if !command.takes(args.len()) {
                Err(command.arity_error())
            } else {
                Ok(place)
            }
        }
    };
    if let (Err(_), Some(queued)) = (&admitted, &mut session.queued) {
        queued.failed = true;
    }
    admitted
}

fn no_auth() -> CommandError {
    CommandError::error("NOAUTH Authentication required.")
}

fn unknown(args: &Args<'_>) -> CommandError {
    let name = shown(args.get(0));
    let rest: String = args
        .skip(1)
        .iter()
        .take(3)
        .map(|arg| format!("'{}' ", shown(arg)))
        .collect();
    CommandError::error(format!(
        "ERR unknown command '{name}', with args beginning with: {rest}"
    ))
}
