//! A command under way: its arguments, what it may see, where its reply goes.

use std::sync::Arc;

use forebay_engine::{Lookup, ReadError, Tables, Value, Version};
use forebay_run::row::RowError;
use tracing::error;

use super::{Stop, shown};
use crate::resp::{Args, Reply};
use crate::session::Session;
use crate::shared::Shared;
use crate::users::{User, Verb};

/// A command that reads. All it sees is one set of versions, taken when it began.
pub struct Call<'a> {
    pub args: Args<'a>,
    pub tables: &'a Tables,
    pub user: &'a User,
    /// Whether it may wait for the device.
    pub may_wait: bool,
    pub reply: &'a mut Reply,
    pub shared: &'a Shared,
    /// Where the command's reply begins in `reply`.
    pub reply_start: usize,
    /// The first table that it read, for the metrics.
    pub first: Option<&'a Arc<Version>>,
}

/// A command about the connection or the server.
pub struct SessionCall<'a> {
    pub args: Args<'a>,
    pub tables: &'a Tables,
    pub session: &'a mut Session,
    pub shared: &'a Shared,
    pub reply: &'a mut Reply,
}

impl<'a> Call<'a> {
    /// The version and the key within its table that a wire key `table:key` means.
    #[inline]
    pub fn locate(&mut self, wire: &'a [u8]) -> Result<(&'a Arc<Version>, &'a [u8]), Stop> {
        let (table, key) = split(wire)?;
        let version = find_version(self.tables, self.user, table)?;
        if self.first.is_none() {
            self.first = Some(version);
        }
        Ok((version, key))
    }

    /// The version that a wire key lies in and the value there.
    #[inline]
    pub fn fetch(&mut self, wire: &'a [u8]) -> Result<(&'a Arc<Version>, Option<Value<'a>>), Stop> {
        let (version, key) = self.locate(wire)?;
        Ok((version, self.value(version, key)?))
    }

    #[inline]
    pub fn value(&self, version: &'a Version, key: &[u8]) -> Result<Option<Value<'a>>, Stop> {
        if self.may_wait {
            return Ok(version.get(key)?);
        }
        match version.try_get(key)? {
            Lookup::Found(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::NotResident => Err(Stop::NotResident),
        }
    }

    /// Ends a command whose reply grew beyond the limit; called between its parts.
    pub fn check_size(&self) -> Result<(), Stop> {
        let limit = self.shared.config.limits.reply_bytes;
        if self.reply.len() - self.reply_start <= limit {
            return Ok(());
        }
        Err(Stop::error(format!(
            "ERR the reply is larger than {limit} bytes: ask for less at a time"
        )))
    }
}

/// The table and the key of a wire key.
#[inline]
pub fn split(wire: &[u8]) -> Result<(&[u8], &[u8]), Stop> {
    match wire.iter().position(|&byte| byte == b':') {
        Some(colon) => Ok((&wire[..colon], &wire[colon + 1..])),
        None => {
            let wire = shown(wire);
            Err(Stop::error(format!(
                "ERR key '{wire}' names no table: keys are 'table:key'"
            )))
        }
    }
}

/// The serving version of a table that the user may read.
#[inline]
pub fn find_version<'t>(
    tables: &'t Tables,
    user: &User,
    table: &[u8],
) -> Result<&'t Arc<Version>, Stop> {
    if !user.may(Verb::Read, table) {
        return Err(no_permission(user, table, "read"));
    }
    tables.get(table).ok_or_else(|| no_table(table))
}

fn no_table(table: &[u8]) -> Stop {
    let table = shown(table);
    Stop::error(format!(
        "ERR no table '{table}' is served here: keys are 'table:key'"
    ))
}

pub fn no_permission(user: &User, table: &[u8], verb: &str) -> Stop {
    let (user, table) = (user.name(), shown(table));
    Stop::error(format!(
        "NOPERM user '{user}' may not {verb} table '{table}'"
    ))
}

impl From<ReadError> for Stop {
    /// The table is damaged, or its disk: the operator is told as well as the client.
    fn from(error: ReadError) -> Self {
        error!(%error, "a read failed");
        Stop::error(format!("ERR {error}"))
    }
}

impl From<RowError> for Stop {
    fn from(error: RowError) -> Self {
        error!(%error, "a value could not be decoded");
        Stop::error(format!("ERR the stored value is damaged: {error}"))
    }
}
