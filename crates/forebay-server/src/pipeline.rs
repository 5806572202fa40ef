//! Turns the bytes of a connection into the bytes of its replies, without any I/O.
//!
//! Commands are answered in order. Commands of one read share a clock reading if possible.
//! Consecutive GETs of one table are looked up together, so that their waits for memory overlap.
//!
//! A command that cannot be answered from memory stops the pipeline. [`Next::Wait`] returns the
//! work to wait for, and [`Pipeline::resume`] takes its result and continues. The pipeline also
//! waits before it releases replies to writes that are not durable yet.

mod passing;
mod records;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_engine::live::LiveError;

use crate::client::Client;
use crate::command::{COMMANDS, KeyNames, Run, live_error};
use crate::commits::Commits;
use crate::config::HIGH_WATER;
use crate::dispatch::{Dispatch, admit};
use crate::execute::{Outcome, View, settle};
use crate::following::FollowedConnection;
use crate::gets::{CollectedGets, GET};
use crate::metrics::{Drop, TableMetrics};
use crate::reply_memory::Charge;
use crate::resp::{LongCommand, Parser, ProtocolError, Reply};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::table_wait::{self, TableWait};
use crate::users::User;
use crate::wait::{Wait, Waited};
use crate::work::{Done, Task, Work};

/// The most GETs that other nodes are asked for together.
const FORWARDED_AT_ONCE: usize = 512;

/// The pause while connections that were dropped for their memory free it.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// The next step of a connection. Replies are to be sent before any step except `Wait`: the writes
/// that they acknowledge are durable then.
#[derive(Debug)]
pub enum Next {
    /// Read more.
    Read,
    /// Send, then call again.
    Flush,
    /// Wait for the end of this, then resume.
    Wait(Wait),
    Close,
}

/// The parser, session and replies of one connection.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<Shared>,
    worker: usize,
    pub session: Session,
    parser: Parser,
    /// The bytes that were read; the connection appends to them.
    pub input: Vec<u8>,
    /// Where the first unanswered command begins.
    start: usize,
    /// Where the parser's current command begins: after `start` by the collected GETs.
    at: usize,
    gets: CollectedGets,
    pub reply: Reply,
    /// The tables for another node's commands, if they require certain versions.
    pub pinned: Option<TableView>,
    waiting: Option<Waiting>,
    /// A refused command of which an authenticated client still sends the rest.
    too_long: Option<LongCommand>,
    /// Whether a command was refused whose end cannot be found.
    pub is_refused_amid_command: bool,
    table_wait: TableWait,
    /// Writes that are not durable yet, and the positions of their replies, which must not be sent
    /// before that.
    commits: Commits,
    unacknowledged: Vec<Range<usize>>,
    /// The metrics of the table that was read last.
    table: Option<(TableName, Arc<TableMetrics>)>,
    no_table: Arc<TableMetrics>,
    last_command: usize,
}

/// Commands that another thread or node answers.
#[derive(Debug)]
struct Waiting {
    place: usize,
    /// The place of each in the command table, if they are of several kinds.
    places: Vec<usize>,
    /// The ends of the commands in the input.
    ends: Vec<usize>,
    since: Duration,
    replies_before: Replies,
}

impl Pipeline {
    pub fn new(shared: &Arc<Shared>, worker: usize, client: Arc<Client>) -> Self {
        let charge = Charge::new(&shared.reply_memory, &client);
        Self {
            session: Session::new(client, shared),
            parser: Parser::default(),
            input: Vec::new(),
            start: 0,
            at: 0,
            gets: CollectedGets::default(),
            reply: Reply::charged(false, charge),
            pinned: None,
            waiting: None,
            too_long: None,
            is_refused_amid_command: false,
            table_wait: TableWait::default(),
            commits: Commits::default(),
            unacknowledged: Vec::new(),
            table: None,
            no_table: shared.metrics.worker(worker).table(""),
            last_command: usize::MAX,
            shared: Arc::clone(shared),
            worker,
        }
    }

    /// Takes commands of another node, on behalf of a user. Earlier ones are answered.
    pub fn begin(
        &mut self,
        commands: &[u8],
        user: Arc<User>,
        resp3: bool,
        pinned: Option<TableView>,
    ) {
        self.reply.clear(2 * HIGH_WATER);
        self.session.reset(&self.shared);
        self.session.log_in(user);
        self.reply.set_resp3(resp3);
        self.pinned = pinned;
        self.input.clear();
        self.input.extend_from_slice(commands);
        (self.start, self.at) = (0, 0);
        self.rewind();
    }

    /// Returns whether part of a command has arrived.
    pub fn has_partial_input(&self) -> bool {
        self.start < self.input.len() || self.too_long.is_some()
    }

    /// Answers as many commands as possible.
    pub fn advance(&mut self) -> Next {
        let shared = Arc::clone(&self.shared);
        if let Err(user) = self.session.renew(&shared) {
            return self.end_of(&user);
        }
        if shared.reply_memory.is_over() && self.reply.is_empty() {
            return self.pause(MEMORY_PAUSE);
        }
        let tables = match &self.pinned {
            None => shared.tables(),
            Some(pinned) => pinned.keep(),
        };
        let mut now = shared.store.clock().monotonic();
        loop {
            if self.session.closing || self.session.client.killed.load(Ordering::Relaxed) {
                return self.after_waits(Next::Close);
            }
            if self.reply.len() >= HIGH_WATER && !self.session.is_amid_forwarded_multi() {
                self.rewind();
                return self.after_waits(Next::Flush);
            }
            match self.pass_over() {
                Ok(true) => {}
                Ok(false) => {
                    self.drop_answered();
                    return self.after_waits(Next::Read);
                }
                Err(error) => return self.give_up(&error),
            }
            let parsed = self
                .parser
                .advance(&self.input[self.at..], &self.session.limits(&shared));
            if let Ok(Some(len)) = parsed
                && self.collect_get(&tables, len)
            {
                continue;
            }
            if !self.gets.is_empty() {
                if let Some(wait) = self.answer_gets(&shared, &tables, &mut now) {
                    return wait;
                }
                // Commands after them are parsed again.
                continue;
            }
            match parsed {
                Ok(Some(len)) => {
                    if let Some(wait) = self.run(&tables, len, &mut now) {
                        return wait;
                    }
                }
                Ok(None) => {
                    self.drop_answered();
                    return self.after_waits(Next::Read);
                }
                Err(error) => {
                    if !self.begin_to_pass_over(&error) {
                        return self.give_up(&error);
                    }
                }
            }
        }
    }

    /// Takes the result of the returned wait; the caller then advances again.
    pub fn resume(&mut self, waited: Waited) {
        match (waited, self.waiting.take()) {
            (Waited::Done(done), Some(waiting)) => self.take_answers(done, &waiting),
            (Waited::Durable(outcome), _) => self.acknowledge(outcome),
            (Waited::Broken, _) => {
                self.reply.error("ERR internal error: see the server's log");
                self.session.closing = true;
            }
            (Waited::Paused | Waited::Done(_), _) => {}
        }
    }

    fn take_answers(&mut self, done: Done, waiting: &Waiting) {
        let now = self.shared.store.clock().monotonic();
        let start = self.reply.len();
        self.reply.append_all(done.replies);
        // Other commands go to other nodes in any case.
        let run = COMMANDS[waiting.place].run;
        if matches!(run, Run::Read(_) | Run::Edit { .. } | Run::Together(_)) && !done.elsewhere {
            let metrics = self.metrics_of(done.table.as_ref());
            metrics.page_misses.fetch_add(1, Ordering::Relaxed);
        }
        let time = now.saturating_sub(waiting.since);
        let table = done.table.as_ref();
        match waiting.places.is_empty() {
            true => self.record(waiting.place, table, time, (done.answered, done.failed)),
            false => {
                for (at, place) in waiting.places.iter().take(done.answered).enumerate() {
                    let failed = usize::from(done.failures.contains(&at));
                    self.record(*place, table, time, (1, failed));
                }
            }
        }
        self.commits.merge(done.commits);
        self.session.watches.join(done.watches);
        self.mute(waiting.replies_before, start);
        self.hold_reply(start);
        let answered = done.answered.clamp(1, waiting.ends.len().max(1));
        let end = waiting.ends.get(answered - 1).copied();
        let end = end.unwrap_or(self.start);
        self.note_answered(waiting.place, self.start..end, (answered, time));
        self.start = end;
        self.rewind();
    }

    /// Returns the wait that is necessary first, else `next`. Replies to writes are sent only when
    /// the writes are durable, and nothing is read while the writer should pause.
    fn after_waits(&mut self, next: Next) -> Next {
        if !self.commits.is_empty() {
            let durable = self.commits.take().durable();
            return Next::Wait(Wait::event(async { Waited::Durable(durable.await) }));
        }
        let pauses = matches!(next, Next::Read) && self.commits.is_pause_due();
        if !pauses || self.shared.is_stopping() {
            return next;
        }
        if !self.reply.is_empty() {
            return Next::Flush;
        }
        let delay = self.commits.take_delay();
        self.pause(delay)
    }

    /// Withdraws the reply to a command whose table will soon be open.
    #[cold]
    fn try_again(&mut self, reply_start: usize) -> Next {
        self.reply.truncate(reply_start);
        self.rewind();
        self.after_waits(self.pause(table_wait::PAUSE))
    }

    fn pause(&self, time: Duration) -> Next {
        let pause = self.shared.store.clock().wait(time);
        Next::Wait(Wait::event(async {
            pause.await;
            Waited::Paused
        }))
    }

    /// Holds the reply from `start` until the writes are durable.
    fn hold_reply(&mut self, start: usize) {
        if self.commits.take_added() && self.reply.len() > start {
            self.unacknowledged.push(start..self.reply.len());
        }
    }

    /// Releases replies whose writes are durable. If that is unknown, they become errors.
    fn acknowledge(&mut self, outcome: Result<(), LiveError>) {
        let replies = std::mem::take(&mut self.unacknowledged);
        if let Err(error) = outcome {
            self.reply.replace(&replies, &live_error(&error));
        }
    }

    /// Goes back to the first unanswered command.
    fn rewind(&mut self) {
        if self.at != self.start || !self.gets.is_empty() {
            self.gets.clear();
            self.at = self.start;
        }
        self.parser.restart();
    }

    /// Frees answered input. Only the partial command stays.
    fn drop_answered(&mut self) {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
            self.at = 0;
        }
    }

    /// Ends the connection of a user who was removed or has another password. It first waits for
    /// writes whose replies are pending.
    fn end_of(&mut self, user: &str) -> Next {
        self.rewind();
        self.reply.error(&format!(
            "NOAUTH user '{user}' was removed or has another password: connect and log in again"
        ));
        self.session.closing = true;
        self.after_waits(Next::Close)
    }

    fn give_up(&mut self, error: &ProtocolError) -> Next {
        if *error != ProtocolError::Http {
            self.reply.error(&format!("ERR {error}"));
        }
        self.too_long = None;
        self.is_refused_amid_command = error.is_length() && self.session.user.is_some();
        self.shared.metrics.count_drop(Drop::Protocol);
        self.session.closing = true;
        self.after_waits(Next::Close)
    }

    /// Adds the last parsed command to the GETs to be looked up together, if it is a GET of their
    /// table.
    #[inline]
    fn collect_get(&mut self, tables: &TableView, len: usize) -> bool {
        !self.gets.is_full() && self.collect_one_more(tables, len)
    }

    /// Always inlined: a call costs a GET 60 instructions of some 2,300.
    #[inline(always)]
    fn collect_one_more(&mut self, tables: &TableView, len: usize) -> bool {
        if !self.session.is_plain() {
            return false;
        }
        let command = &self.input[self.at..];
        let args = self.parser.args(command);
        // The key of an inline command is not in the input.
        if args.len() != 2 || command[0] != b'*' || !args.is(0, "get") {
            return false;
        }
        let end = self.at + len;
        let wire = end - 2 - args.get(1).len()..end - 2;
        if let Some(user) = &self.session.user
            && let Some(names) = KeyNames::of(&self.shared, tables, user)
            && !names.is_named(&self.input[wire.clone()])
        {
            return false;
        }
        let in_same_table = self.gets.push(&self.input, wire);
        if in_same_table {
            self.at = end;
        }
        in_same_table
    }

    fn answer_gets(
        &mut self,
        shared: &Shared,
        tables: &TableView,
        now: &mut Duration,
    ) -> Option<Next> {
        let user = self.session.user.clone()?;
        let view = View {
            tables,
            user: &user,
            shared,
            may_wait: false,
            port: self.session.client.port,
            evaluation: None,
            has_permit: false,
        };
        let reply_start = self.reply.len();
        let gets = self.gets.answer(&self.input, &view, &mut self.reply);
        let (answered, not_here) = (gets.answered, gets.not_here);
        if gets.table.is_none() {
            let names = std::iter::once(self.gets.table(&self.input));
            if self.table_wait.waits(shared, tables, names) {
                return Some(self.try_again(reply_start));
            }
        }
        self.note_command(GET);
        let since = *now;
        *now = self.shared.store.clock().monotonic();
        if gets.answered > 0 {
            let time = now.saturating_sub(since);
            self.record(GET, gets.table, time, (gets.answered, gets.failed));
            let end = self.gets.end(gets.answered - 1);
            self.note_answered(GET, self.start..end, (gets.answered, time));
            self.start = end;
        }
        if gets.answered == self.gets.len() {
            self.gets.clear();
            return None;
        }
        if self.reply.len() >= HIGH_WATER {
            self.rewind();
            return None;
        }
        if not_here {
            self.collect_for_others(shared, tables);
        }
        let count = self.gets.len();
        let task = Task::Gets(self.gets.owned(&self.input, answered));
        let ends = (answered..count).map(|left| self.gets.end(left));
        let waiting = self.waiting(GET, ends.collect(), since);
        let work = self.work(task, tables, user);
        Some(self.wait(work, waiting, not_here))
    }

    /// Adds the following GETs to those for other nodes, so that there are fewer requests.
    #[cold]
    #[inline(never)]
    fn collect_for_others(&mut self, shared: &Shared, tables: &TableView) {
        while self.gets.len() < FORWARDED_AT_ONCE
            && let Ok(Some(len)) = self
                .parser
                .advance(&self.input[self.at..], &self.session.limits(shared))
            && self.collect_one_more(tables, len)
        {}
    }

    fn waiting(&self, place: usize, ends: Vec<usize>, since: Duration) -> Waiting {
        Waiting {
            place,
            places: Vec::new(),
            ends,
            since,
            replies_before: self.session.replies,
        }
    }

    pub fn work(&self, task: Task, tables: &TableView, user: Arc<User>) -> Work {
        Work {
            task,
            tables: tables.keep(),
            user,
            client: Arc::clone(&self.session.client),
            shared: Arc::clone(&self.shared),
            worker: self.worker,
            resp3: self.reply.is_resp3(),
            has_permit: false,
        }
    }

    fn wait(&mut self, work: Work, waiting: Waiting, elsewhere: bool) -> Next {
        self.waiting = Some(waiting);
        Next::Wait(match elsewhere {
            true => Wait::Elsewhere(Box::new(work)),
            false => Wait::Work(work),
        })
    }

    /// Runs the command of `len` bytes that was parsed.
    fn run(&mut self, tables: &TableView, len: usize, now: &mut Duration) -> Option<Next> {
        let end = self.at + len;
        let args = self.parser.args(&self.input[self.at..end]);
        if args.is_empty() {
            self.pass(end);
            return None;
        }
        let (reply_start, before) = (self.reply.len(), self.session.replies);
        let place = match admit(&mut self.session, &args) {
            Ok(place) => place,
            Err(stop) => {
                settle(Err(stop), reply_start, &mut self.reply);
                self.pass(end);
                self.mute(before, reply_start);
                return None;
            }
        };
        let (is_queued, command) = (self.session.queued.is_some(), &COMMANDS[place]);
        if is_queued
            && (self.table_wait).waits(&self.shared, tables, table_wait::named(command, args))
        {
            return Some(self.try_again(reply_start));
        }
        let mut dispatch = Dispatch {
            shared: &self.shared,
            tables,
            session: &mut self.session,
            reply: &mut self.reply,
            commits: &mut self.commits,
        };
        let ran = dispatch.run(place, args);
        if matches!(ran.outcome, Outcome::Failed | Outcome::NotHere) && !is_queued {
            let args = self.parser.args(&self.input[self.at..end]);
            if (self.table_wait).waits(&self.shared, tables, table_wait::named(command, args)) {
                return Some(self.try_again(reply_start));
            }
        }
        self.note_command(place);
        let since = *now;
        if let (Some(task), Some(user)) = (ran.task, self.session.user.clone()) {
            let mut waiting = self.waiting(place, vec![end], since);
            let task = match ran.outcome {
                Outcome::NotResident => task,
                _ => self.with_writes(tables, task, &mut waiting),
            };
            let work = self.work(task, tables, user);
            return Some(self.wait(work, waiting, ran.outcome != Outcome::NotResident));
        }
        *now = self.shared.store.clock().monotonic();
        let failed = usize::from(ran.outcome == Outcome::Failed);
        let time = now.saturating_sub(since);
        self.record(place, ran.table.as_ref(), time, (1, failed));
        self.note_answered(place, self.at..end, (1, time));
        self.pass(end);
        self.mute(before, reply_start);
        self.hold_reply(reply_start);
        let pause = self.session.take_pause()?;
        Some(self.pause(pause))
    }

    /// Collects the commands after one that writes to a live table of the cluster: they are
    /// proposed together.
    #[cold]
    fn with_writes(&mut self, tables: &TableView, task: Task, waiting: &mut Waiting) -> Task {
        let (place, first) = match (task, self.session.is_plain()) {
            (Task::One(place, args), true) => (place, args),
            (task, _) => return task,
        };
        let following = FollowedConnection {
            shared: &self.shared,
            tables,
            user: self.session.user.as_deref(),
            limits: &self.session.limits(&self.shared),
            input: &self.input,
        };
        let task = following.collect(&mut self.parser, place, first, &mut waiting.ends);
        if let Task::Writes(writes) = &task {
            waiting.places = writes.commands.iter().map(|(place, _)| *place).collect();
        }
        task
    }

    /// Marks everything up to `end` as answered.
    fn pass(&mut self, end: usize) {
        (self.start, self.at) = (end, end);
    }

    /// Withdraws a reply that CLIENT REPLY suppresses.
    fn mute(&mut self, before: Replies, reply_start: usize) {
        match (before, self.session.replies) {
            (_, Replies::SkipNext) => self.session.replies = Replies::Skip,
            (Replies::Skip, Replies::Skip) => {
                self.reply.truncate(reply_start);
                self.session.replies = Replies::On;
            }
            (_, Replies::Off) => self.reply.truncate(reply_start),
            _ => {}
        }
    }
}
