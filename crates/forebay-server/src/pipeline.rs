//! From the bytes of a connection to the bytes of its replies, without any I/O.
//!
//! Commands are answered in order. Those of one read share one clock reading where they can: GETs that
//! follow each other in one table are looked up together, so that their waits for memory overlap. A
//! command that cannot be answered from memory stops the pipeline: [`Next::Wait`] hands out its work,
//! and [`Pipeline::resume`] takes the reply and goes on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_engine::live::LiveError;

use crate::client::Client;
use crate::command::{COMMANDS, CommandError, Run};
use crate::commits::Commits;
use crate::dispatch::{Dispatch, admit};
use crate::execute::{Done, GET, Outcome, Task, Work, settle};
use crate::gets::look_up;
use crate::metrics::{Drop, TableMetrics};
use crate::resp::{Parser, ProtocolError, Reply};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::table_view::TableView;

/// How many GETs are looked up together.
const GETS: usize = 64;
/// Replies are sent before more are made, once there are so many bytes of them.
pub const HIGH_WATER: usize = 256 << 10;

/// What a connection is to do next. Replies are to be sent before anything but `Wait`.
#[derive(Debug)]
pub enum Next {
    /// Read more.
    Read,
    /// Send, then call again.
    Flush,
    /// Have this done by a thread that may wait, then resume.
    Wait(Work),
    Close,
}

/// See the module's text.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<Shared>,
    worker: usize,
    session: Session,
    parser: Parser,
    /// What was read; the connection appends to it.
    pub input: Vec<u8>,
    /// Where the first command begins that was not answered.
    start: usize,
    /// Where the command begins that the parser is at: behind `start` by the GETs collected.
    at: usize,
    gets: Vec<Get>,
    pub reply: Reply,
    waiting: Option<Waiting>,
    /// What was written and is not durable yet, and where its replies lie: they are not to be sent
    /// before it is.
    commits: Commits,
    unacknowledged: Vec<Range<usize>>,
    /// The metrics of the table that was read last.
    table: Option<(TableName, Arc<TableMetrics>)>,
    no_table: Arc<TableMetrics>,
    last_command: usize,
}

/// A GET that was parsed: the place of its wire key in the input, and where the command ends.
#[derive(Debug, Clone, Copy)]
struct Get {
    key: usize,
    len: usize,
    end: usize,
}

/// Commands that are being answered elsewhere.
#[derive(Debug)]
struct Waiting {
    place: usize,
    /// Where they end.
    ends: Vec<usize>,
    since: Duration,
    replies_before: Replies,
}

impl Pipeline {
    pub fn new(shared: &Arc<Shared>, worker: usize, client: Arc<Client>) -> Self {
        Self {
            session: Session::new(client, shared),
            parser: Parser::default(),
            input: Vec::new(),
            start: 0,
            at: 0,
            gets: Vec::with_capacity(GETS),
            reply: Reply::default(),
            waiting: None,
            commits: Commits::default(),
            unacknowledged: Vec::new(),
            table: None,
            no_table: shared.metrics.worker(worker).table(""),
            last_command: usize::MAX,
            shared: Arc::clone(shared),
            worker,
        }
    }

    /// Whether part of a command has arrived.
    pub fn has_partial_input(&self) -> bool {
        self.start < self.input.len()
    }

    /// Answers what it can.
    pub fn advance(&mut self) -> Next {
        let shared = Arc::clone(&self.shared);
        let tables = shared.tables();
        let mut now = shared.store.clock().monotonic();
        loop {
            if self.session.closing {
                return Next::Close;
            }
            if self.reply.len() >= HIGH_WATER {
                self.rewind();
                return Next::Flush;
            }
            let parsed = self
                .parser
                .advance(&self.input[self.at..], &self.session.limits(&shared));
            if let Ok(Some(len)) = parsed
                && self.collect_get(len)
            {
                continue;
            }
            if !self.gets.is_empty() {
                if let Some(wait) = self.answer_gets(&tables, &mut now) {
                    return wait;
                }
                // What was parsed behind them is parsed again.
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
                    return Next::Read;
                }
                Err(error) => return self.give_up(&error),
            }
        }
    }

    /// Takes the reply to the work that was handed out; then advance again.
    pub fn resume(&mut self, done: &Done) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let now = self.shared.store.clock().monotonic();
        let start = self.reply.len();
        self.reply.append(&done.replies);
        let metrics = self.metrics_of(done.table.as_ref());
        // Others go there in any case.
        if matches!(COMMANDS[waiting.place].run, Run::Read(_) | Run::Edit { .. }) {
            metrics.page_misses.fetch_add(1, Ordering::Relaxed);
        }
        let time = now.saturating_sub(waiting.since);
        metrics.record(waiting.place, time, done.answered as u64);
        (0..done.failed).for_each(|_| metrics.count_error(waiting.place));
        self.commits.add_delay(done.delay);
        self.mute(waiting.replies_before, start);
        let answered = done.answered.clamp(1, waiting.ends.len().max(1));
        self.start = waiting
            .ends
            .get(answered - 1)
            .copied()
            .unwrap_or(self.start);
        self.rewind();
    }

    /// What has to be durable before replies are sent.
    pub fn take_commits(&mut self) -> Option<Commits> {
        (!self.commits.is_empty()).then(|| self.commits.take())
    }

    /// What was waited for is durable, or is not known to be: its replies say so then.
    pub fn acknowledge(&mut self, outcome: Result<(), LiveError>) {
        let replies = std::mem::take(&mut self.unacknowledged);
        if let Err(error) = outcome
            && let CommandError::Error(text) = CommandError::from(error)
        {
            self.reply.replace(&replies, &text);
        }
    }

    /// The pause that is due before more is read.
    pub fn take_delay(&mut self) -> Option<Duration> {
        self.commits.take_delay()
    }

    /// Goes back to the first command that was not answered.
    fn rewind(&mut self) {
        if self.at != self.start || !self.gets.is_empty() {
            self.gets.clear();
            self.at = self.start;
        }
        self.parser.restart();
    }

    /// Makes room in the input. Only the partial command stays.
    fn drop_answered(&mut self) {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
            self.at = 0;
        }
    }

    fn give_up(&mut self, error: &ProtocolError) -> Next {
        if *error != ProtocolError::Http {
            self.reply.error(&format!("ERR {error}"));
        }
        self.shared.metrics.count_drop(Drop::Protocol);
        Next::Close
    }

    /// Puts the command that was just parsed to the GETs to be looked up together, if it is one and
    /// lies in their table.
    #[inline]
    fn collect_get(&mut self, len: usize) -> bool {
        if self.gets.len() == GETS || !self.session.is_plain() {
            return false;
        }
        let command = &self.input[self.at..];
        let args = self.parser.args(command);
        // The key of an inline command does not lie in the input.
        if args.len() != 2 || command[0] != b'*' || !args.is(0, "get") {
            return false;
        }
        let wire = args.get(1);
        let in_same_table = match self.gets.first() {
            None => wire.contains(&b':'),
            Some(first) => {
                let first = &self.input[first.key..first.key + first.len];
                let colon = first.iter().position(|&byte| byte == b':').unwrap_or(0);
                wire.get(..=colon) == first.get(..=colon)
            }
        };
        if in_same_table {
            // An array ends with its last argument and a line end.
            let end = self.at + len;
            self.gets.push(Get {
                key: end - 2 - wire.len(),
                len: wire.len(),
                end,
            });
            self.at = end;
        }
        in_same_table
    }

    fn answer_gets(&mut self, tables: &TableView, now: &mut Duration) -> Option<Next> {
        let count = self.gets.len();
        let mut keys: [&[u8]; GETS] = [&[]; GETS];
        let first = self.gets[0];
        let wire = &self.input[first.key..first.key + first.len];
        let colon = wire.iter().position(|&byte| byte == b':').unwrap_or(0);
        for (key, get) in keys.iter_mut().zip(&self.gets) {
            *key = &self.input[get.key + colon + 1..get.key + get.len];
        }
        let user = self.session.user.clone()?;
        let looked_up = look_up(
            tables,
            &user,
            &wire[..colon],
            &keys[..count],
            &mut self.reply,
        );
        let (answered, failed) = (looked_up.answered, looked_up.failed);
        let table = looked_up.table;
        self.note_command(GET);
        let since = *now;
        *now = self.shared.store.clock().monotonic();
        let metrics = self.metrics_of(table);
        if answered > 0 {
            metrics.record(GET, now.saturating_sub(since), answered as u64);
            (0..failed).for_each(|_| metrics.count_error(GET));
            self.start = self.gets[answered - 1].end;
        }
        if answered == count {
            self.gets.clear();
            return None;
        }
        let left = &self.gets[answered..];
        let wires = left
            .iter()
            .map(|get| &self.input[get.key..get.key + get.len]);
        let task = Task::Gets(wires.collect());
        let ends = left.iter().map(|get| get.end).collect();
        Some(self.wait(task, GET, ends, since, tables, user))
    }

    fn wait(
        &mut self,
        task: Task,
        place: usize,
        ends: Vec<usize>,
        since: Duration,
        tables: &TableView,
        user: Arc<crate::users::User>,
    ) -> Next {
        let replies_before = self.session.replies;
        self.waiting = Some(Waiting {
            place,
            ends,
            since,
            replies_before,
        });
        Next::Wait(Work {
            task,
            tables: tables.keep(),
            user,
            shared: Arc::clone(&self.shared),
            resp3: self.reply.is_resp3(),
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
        let mut dispatch = Dispatch {
            shared: &self.shared,
            tables,
            session: &mut self.session,
            reply: &mut self.reply,
            commits: &mut self.commits,
        };
        let ran = dispatch.run(place, args);
        self.note_command(place);
        let since = *now;
        if let (Some(task), Some(user)) = (ran.task, self.session.user.clone()) {
            return Some(self.wait(task, place, vec![end], since, tables, user));
        }
        *now = self.shared.store.clock().monotonic();
        let metrics = self.metrics_of(ran.table.as_ref());
        metrics.record(place, now.saturating_sub(since), 1);
        if ran.outcome == Outcome::Failed {
            metrics.count_error(place);
        }
        self.pass(end);
        self.mute(before, reply_start);
        if self.commits.take_added() && self.reply.len() > reply_start {
            self.unacknowledged.push(reply_start..self.reply.len());
        }
        None
    }

    /// Everything up to `end` is answered.
    fn pass(&mut self, end: usize) {
        self.start = end;
        self.at = end;
    }

    /// Takes back a reply that CLIENT REPLY said is not wanted.
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

    fn note_command(&mut self, place: usize) {
        if self.last_command != place {
            self.last_command = place;
            self.session.client.details.lock().last_command = COMMANDS[place].name;
        }
    }

    #[inline]
    fn metrics_of(&mut self, table: Option<&TableName>) -> &TableMetrics {
        let Some(table) = table else {
            return &self.no_table;
        };
        if self.table.as_ref().is_none_or(|(name, _)| name != table) {
            let metrics = self
                .shared
                .metrics
                .worker(self.worker)
                .table(table.as_str());
            self.table = Some((table.clone(), metrics));
        }
        self.table
            .as_ref()
            .map_or(&self.no_table, |(_, metrics)| metrics)
    }
}
