//! A command in progress: its arguments, the tables that it sees, and its reply.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_engine::live::LiveTable;
use forebay_engine::{Lookup, Source, SourceError, TableName, Value};
use forebay_io::Clock;
use forebay_run::row::RowError;
use tracing::error;

use super::held::KeyGuard;
use super::names::{KeyNames, ShownKeys};
use super::txn::NEVER_MS;
use crate::command::{Answer, CommandError, shown};
use crate::resp::{Args, Reply};
use crate::session::Session;
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};

/// A read command. Of batch tables it sees one set of versions, fixed when it began.
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
    /// The held values of its keys.
    pub held: KeyGuard<'a>,
    pub clock: &'a dyn Clock,
}

/// The tables and keys that a walk sees.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub tables: &'a TableView,
    pub user: &'a User,
    pub shared: &'a Shared,
}

/// The parameters of key reads.
pub struct Reading<'a> {
    /// Whether it may wait for the device.
    pub may_wait: bool,
    /// The held values of the keys.
    pub held: KeyGuard<'a>,
    /// The most bytes of a reply.
    pub limit_bytes: usize,
    /// Where the reply begins that all values are part of. `None` if each is a reply of its own.
    pub reply_start: Option<usize>,
    /// No further value is added to replies of this size.
    pub full_bytes: usize,
    /// This node's clock, if a replica is read whose time may lag it. Keys that have expired by
    /// this clock and still exist are not answered.
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
    /// Returns whether the client may see and do what concerns other clients. Without users every
    /// client may.
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
    /// Returns the table and the key within it that a wire key `table:key` names.
    #[inline]
    pub fn locate(&mut self, wire: &'a [u8]) -> Result<(Source<'a>, &'a [u8]), CommandError> {
        let (table, key) = split(wire)?;
        let source = find_source(self.tables, self.user, table)?;
        if self.first.is_none() {
            self.first = Some(source.table());
        }
        Ok((source, key))
    }

    /// Returns the table of a wire key and the value.
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
            limit_bytes: self.shared.config.limits.reply_bytes,
            reply_start: Some(self.reply_start),
            full_bytes: usize::MAX,
            clock_ms: None,
        }
    }

    /// Returns when a key expires: `u64::MAX` for never, `None` if it is absent.
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

    /// Returns an error if the reply exceeds the limit. Called between the parts of a reply.
    pub fn check_size(&self) -> Result<(), CommandError> {
        self.reading().check(self.reply, self.reply_start)
    }
}

impl<'a> Scope<'a> {
    /// Returns the tables that the user may read.
    pub fn readable(self) -> Vec<Source<'a>> {
        let user = self.user;
        let may = |source: &Source<'_>| user.may(Verb::Read, source.table().as_str().as_bytes());
        self.tables.iter().filter(may).collect()
    }

    /// Returns how a walk shows the keys that match a pattern.
    pub fn shown_keys(self, pattern: Option<&'a [u8]>) -> ShownKeys<'a> {
        let names = KeyNames::of(self.shared, self.tables, self.user);
        ShownKeys::new(names, pattern)
    }
}

impl Reading<'_> {
    /// Returns whether keys are looked up together: not if each may have to wait or is held
    /// already.
    #[inline]
    pub fn finds_many(&self) -> bool {
        !self.may_wait && self.held.is_nothing()
    }

    /// Always inlined into its caller, like the functions it calls: see
    /// `Pipeline::collect_one_more`.
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
            // Its partition's time must reach that moment first.
            Some(stored) if stored.expires_ms <= clock_ms => Err(CommandError::Replicas),
            stored => Ok(stored.map(|stored| Cow::Owned(stored.value))),
        }
    }

    /// Returns an error if the reply exceeds the limit; its last value begins at `value_start`.
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

/// Splits a wire key into its table and key.
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

/// Returns a table that the user may read.
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

/// Returns the error for a table without a version on this node. Other nodes may have one.
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
    /// Returns the error of a failed read. If the table or its disk is damaged, the forwarding code
    /// also reports it to the operator.
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
