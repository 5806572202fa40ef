//! A command under way: its arguments, what it may see, where its reply goes.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_engine::live::LiveTable;
use forebay_engine::{Lookup, Source, SourceError, TableName, Value};
use forebay_run::row::RowError;
use tracing::error;

use super::held::KeyGuard;
use super::names::{KeyNames, ShownKeys};
use super::txn::NEVER_MS;
use super::{Answer, CommandError, shown};
use crate::decided::{DecisionClock, reply_limit};
use crate::resp::{Args, Reply};
use crate::session::Session;
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};

/// A command that reads. All it sees of batch tables is one set of versions, taken when it began.
pub struct Call<'a> {
    pub args: Args<'a>,
    pub tables: &'a TableView,
    pub user: &'a User,
    /// Whether it may wait for the device.
    pub may_wait: bool,
    pub reply: &'a mut Reply,
    pub shared: &'a Shared,
    /// Where the command's reply begins in `reply`.
    pub reply_start: usize,
    /// The first table that it read, for the metrics.
    pub first: Option<&'a TableName>,
    /// What is held of its keys.
    pub held: KeyGuard<'a>,
    /// As of the view.
    pub decided: Option<&'a DecisionClock>,
}

/// What a walk sees.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub tables: &'a TableView,
    pub user: &'a User,
    pub shared: &'a Shared,
}

/// How keys are read.
pub struct Reading<'a> {
    /// Whether it may wait for the device.
    pub may_wait: bool,
    /// What is held of the keys.
    pub held: KeyGuard<'a>,
    /// The most bytes of a reply.
    pub limit_bytes: usize,
    /// Where the reply begins that all values are part of; none: each is a reply of its own.
    pub reply_start: Option<usize>,
    /// No further value is added to replies of so many bytes.
    pub full_bytes: usize,
    /// The clock here, where a replica is read whose time may be behind it: what has expired by it
    /// and is still there is not answered.
    pub clock_ms: Option<u64>,
}

/// A command about the connection or the server.
pub struct SessionCall<'a> {
    pub args: Args<'a>,
    pub tables: &'a TableView,
    pub session: &'a mut Session,
    pub shared: &'a Shared,
    pub reply: &'a mut Reply,
}

impl SessionCall<'_> {
    /// Whether it may see and do what concerns other clients: without users everybody may.
    pub fn administers(&self) -> bool {
        let of_user = |user: &Arc<User>| user.verbs().contains(&Verb::Admin);
        !self.shared.has_users() || self.session.user.as_ref().is_some_and(of_user)
    }

    pub fn check_administers(&self) -> Answer {
        if self.administers() {
            return Ok(());
        }
        let user = self.session.user.as_ref().map_or("", |user| user.name());
        Err(CommandError::error(format!(
            "NOPERM user '{user}' may not administer this server: that takes the verb 'admin' in the \
             users file"
        )))
    }
}

impl<'a> Call<'a> {
    /// The table and the key within it that a wire key `table:key` means.
    #[inline]
    pub fn locate(&mut self, wire: &'a [u8]) -> Result<(Source<'a>, &'a [u8]), CommandError> {
        let (table, key) = split(wire)?;
        let source = find_source(self.tables, self.user, table)?;
        if self.first.is_none() {
            self.first = Some(source.table());
        }
        Ok((source, key))
    }

    /// The table that a wire key lies in and the value there.
    #[inline]
    pub fn fetch(
        &mut self,
        wire: &'a [u8],
    ) -> Result<(Source<'a>, Option<Value<'a>>), CommandError> {
        let (source, key) = self.locate(wire)?;
        Ok((source, self.value(source, key)?))
    }

    #[inline]
    pub fn value(&self, source: Source<'a>, key: &[u8]) -> Result<Option<Value<'a>>, CommandError> {
        self.reading().value(source, key)
    }

    #[inline]
    pub fn reading(&self) -> Reading<'a> {
        Reading {
            may_wait: self.may_wait,
            held: self.held,
            limit_bytes: reply_limit(self.shared, self.decided),
            reply_start: Some(self.reply_start),
            full_bytes: usize::MAX,
            clock_ms: None,
        }
    }

    /// When a key expires, `u64::MAX` being never; `None` when it is not there.
    pub fn expires_ms(&self, source: Source<'a>, key: &[u8]) -> Result<Option<u64>, CommandError> {
        if let Some(stored) = self.held.stored(source, key, self.may_wait)? {
            return Ok(stored.map(|stored| stored.expires_ms));
        }
        match source {
            Source::Live(table) if self.may_wait => Ok(table.expires_ms(key)?),
            Source::Live(table) => table.try_expires_ms(key)?.ok_or(CommandError::NotResident),
            Source::Batch(version) if version.manifest().ttl.is_none() => {
                Ok(self.value(source, key)?.map(|_| NEVER_MS))
            }
            Source::Batch(_) if !self.may_wait => Err(CommandError::NotResident),
            Source::Batch(version) => Ok(version.expires_ms(key).map_err(SourceError::from)?),
        }
    }

    pub fn scope(&self) -> Scope<'a> {
        Scope {
            tables: self.tables,
            user: self.user,
            shared: self.shared,
        }
    }

    /// Ends a command whose reply grew beyond the limit; called between its parts.
    pub fn check_size(&self) -> Result<(), CommandError> {
        self.reading().check(self.reply, self.reply_start)
    }
}

impl<'a> Scope<'a> {
    /// The tables that the user may read.
    pub fn readable(self) -> Vec<Source<'a>> {
        let user = self.user;
        let may = |source: &Source<'_>| user.may(Verb::Read, source.table().as_str().as_bytes());
        self.tables.iter().filter(may).collect()
    }

    /// How a walk shows the keys that match a pattern.
    pub fn shown_keys(self, pattern: Option<&'a [u8]>) -> ShownKeys<'a> {
        let names = KeyNames::of(self.shared, self.tables, self.user);
        ShownKeys::new(names, pattern)
    }
}

impl Reading<'_> {
    /// Whether keys are looked up together: not where each may have to wait, or is held already.
    #[inline]
    pub fn finds_many(&self) -> bool {
        !self.may_wait && self.held.is_nothing()
    }

    /// Always within its caller, as what it calls: see `Pipeline::collect_one_more`.
    #[inline(always)]
    pub fn value<'s>(
        &self,
        source: Source<'s>,
        key: &[u8],
    ) -> Result<Option<Value<'s>>, CommandError> {
        if let Some(stored) = self.held.stored(source, key, self.may_wait)? {
            return Ok(stored.map(|stored| Cow::Owned(stored.value)));
        }
        if let (Source::Live(table), Some(clock_ms)) = (source, self.clock_ms) {
            return self.value_of_replica(table, key, clock_ms);
        }
        if self.may_wait {
            return Ok(source.get(key)?);
        }
        match source.try_get(key)? {
            Lookup::Found(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::NotResident => Err(CommandError::NotResident),
        }
    }

    fn value_of_replica<'s>(
        &self,
        table: &LiveTable,
        key: &[u8],
        clock_ms: u64,
    ) -> Result<Option<Value<'s>>, CommandError> {
        let stored = table.stored(key, self.may_wait)?;
        match stored.ok_or(CommandError::NotResident)? {
            // Its partition's time has to come to that first.
            Some(stored) if stored.expires_ms <= clock_ms => Err(CommandError::Replicas),
            stored => Ok(stored.map(|stored| Cow::Owned(stored.value))),
        }
    }

    /// Ends a reply that grew beyond the limit; `value_start` is where its last value begins.
    #[inline]
    pub fn check(&self, reply: &Reply, value_start: usize) -> Answer {
        if reply.is_dropped() {
            return Err(CommandError::dropped());
        }
        let limit = self.limit_bytes;
        if reply.len() - self.reply_start.unwrap_or(value_start) <= limit {
            return Ok(());
        }
        Err(CommandError::error(format!(
            "ERR the reply is larger than {limit} bytes: ask for less at a time"
        )))
    }
}

/// The table and the key of a wire key.
#[inline]
pub fn split(wire: &[u8]) -> Result<(&[u8], &[u8]), CommandError> {
    match wire.iter().position(|&byte| byte == b':') {
        Some(colon) => Ok((&wire[..colon], &wire[colon + 1..])),
        None => {
            let wire = shown(wire);
            Err(CommandError::error(format!(
                "ERR key '{wire}' names no table: keys are 'table:key' (or start the server with \
                 --default-table)"
            )))
        }
    }
}

/// A table that the user may read.
#[inline]
pub fn find_source<'t>(
    tables: &'t TableView,
    user: &User,
    table: &[u8],
) -> Result<Source<'t>, CommandError> {
    if !user.may(Verb::Read, table) {
        return Err(no_permission(user, table, "read"));
    }
    tables.get(table).ok_or_else(|| not_served(table))
}

/// A table that no version here is of. Other nodes may have it.
pub fn not_served(table: &[u8]) -> CommandError {
    CommandError::NotHere(no_table_text(table))
}

pub fn no_table(table: &[u8]) -> CommandError {
    CommandError::error(format!("ERR {}", no_table_text(table)))
}

fn no_table_text(table: &[u8]) -> String {
    let table = shown(table);
    format!("no table '{table}' is served here: keys are 'table:key'")
}

pub fn no_permission(user: &User, table: &[u8], verb: &str) -> CommandError {
    let (user, table) = (user.name(), shown(table));
    CommandError::error(format!(
        "NOPERM user '{user}' may not {verb} table '{table}'"
    ))
}

impl From<SourceError> for CommandError {
    /// Where the table is damaged, or its disk, the operator is told as well as the client, by who
    /// leads the command on.
    fn from(error: SourceError) -> Self {
        if error.is_not_here() {
            return CommandError::NotHere(error.to_string());
        }
        if error.is_damaged_version() {
            return CommandError::Damaged(error.to_string());
        }
        if let SourceError::Live(error) = &error
            && error.is_damage()
        {
            return CommandError::Damaged(error.to_string());
        }
        error!(%error, "a read failed");
        match error {
            SourceError::Live(error) if error.is_of_this_machine() => CommandError::Machine {
                passes: error.may_pass(),
                text: format!("ERR {error}"),
            },
            error => CommandError::error(format!("ERR {error}")),
        }
    }
}

impl From<RowError> for CommandError {
    fn from(error: RowError) -> Self {
        error!(%error, "a value could not be decoded");
        CommandError::error(format!("ERR the stored value is damaged: {error}"))
    }
}
