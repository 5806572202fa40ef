//! WATCH: EXEC runs nothing once a key was changed that is watched.
//!
//! A key of a live table counts as changed when it was written to, with whatever value, when a load
//! added to its partition, and when it expired; one of a batch table when another version serves.
//! EXEC finds out under the lock of the partition that it writes to, so that no write comes
//! between: which is why the keys watched then have to lie in that partition.
//!
//! A key of the default table that was named without it changes as well when it comes to name
//! another table: see [`KeyNames`].

use forebay_engine::live::{Expiry, KeyWatch, LiveTable};
use forebay_engine::{PartitionId, Source, TableName};

use super::call::{SessionCall, find_source, split};
use super::names::KeyNames;
use super::{Answer, CommandError};
use crate::execute::View;

/// The most that the keys watched by a connection may take.
const MAX_WATCHED_BYTES: usize = 4 << 20;

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub struct Watches {
    watched: Vec<Watched>,
    bytes: usize,
}

#[derive(Debug)]
struct Watched {
    table: TableName,
    key: Vec<u8>,
    /// The key alone means this table and key, as no table has the name that it begins with.
    stands_alone: bool,
    seen: Seen,
}

/// What is known of a watched key.
#[derive(Debug)]
enum Seen {
    Live {
        partition: PartitionId,
        watch: KeyWatch,
        /// When it expires; `None`: it could not be known without waiting for the device.
        expires_ms: Option<u64>,
    },
    /// The version that serves.
    Batch(u64),
}

impl Watches {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Whether a key of a live table was written to.
    pub fn any_written(&self) -> bool {
        self.watched.iter().any(|watched| match &watched.seen {
            Seen::Live { watch, .. } => watch.is_written(),
            Seen::Batch(_) => false,
        })
    }

    /// Refuses keys of which EXEC cannot know while it writes to this partition.
    pub fn check_partition(&self, table: &LiveTable, written: PartitionId) -> Answer {
        let is_of = |watched: &Watched| match &watched.seen {
            Seen::Live { partition, .. } => watched.table == *table.name() && *partition == written,
            Seen::Batch(_) => false,
        };
        match self.watched.iter().all(is_of) {
            true => Ok(()),
            false => Err(CommandError::error(format!(
                "CROSSSLOT a key that WATCH named lies in another partition than those that this MULTI \
                 writes to in table '{}': give keys that belong together a hash tag",
                table.name()
            ))),
        }
    }

    fn add(&mut self, watched: Watched) -> Answer {
        let known = |other: &Watched| other.table == watched.table && other.key == watched.key;
        if self.watched.iter().any(known) {
            return Ok(());
        }
        self.bytes += watched.key.len() + size_of::<Watched>();
        if self.bytes > MAX_WATCHED_BYTES {
            return Err(CommandError::error(format!(
                "ERR the keys watched take more than {MAX_WATCHED_BYTES} bytes"
            )));
        }
        self.watched.push(watched);
        Ok(())
    }
}

pub fn watch(call: &mut SessionCall<'_>) -> Answer {
    if call.session.queued.is_some() {
        return Err(CommandError::error("ERR WATCH inside MULTI is not allowed"));
    }
    let Some(user) = call.session.user.clone() else {
        return Err(CommandError::error("NOAUTH Authentication required."));
    };
    let names = KeyNames::of(call.shared, call.tables, &user);
    for wire in call.args.skip(1).iter() {
        let (table, key) = split(wire)?;
        let source = find_source(call.tables, &user, table)?;
        if let Source::Live(live) = source
            && call.tables.is_replica(live)
        {
            let table = live.name();
            return Err(CommandError::error(format!(
                "ERR WATCH of keys of a live table of a cluster is not supported yet: table '{table}' is \
                 one; KV.SETV changes a key if its version is still the one that was read"
            )));
        }
        call.session.watches.add(Watched {
            table: source.table().clone(),
            key: key.to_vec(),
            stands_alone: names.is_some_and(|names| names.stands_alone(source.table(), key)),
            seen: see(source, key)?,
        })?;
    }
    call.reply.ok();
    Ok(())
}

pub fn unwatch(call: &mut SessionCall<'_>) -> Answer {
    call.session.watches.clear();
    call.reply.ok();
    Ok(())
}

fn see(source: Source<'_>, key: &[u8]) -> Result<Seen, CommandError> {
    let table = match source {
        Source::Batch(version) => return Ok(Seen::Batch(version.version())),
        Source::Live(table) => table,
    };
    let partition = table.partition_holding(key)?;
    // Watched first, so that no write after what is read of it goes by.
    let watch = table.watch(key)?;
    let expires_ms = match table.options().expiry {
        Expiry::Never => Some(u64::MAX),
        _ => table
            .try_expires_ms(key)?
            .map(|expires_ms| expires_ms.unwrap_or(u64::MAX)),
    };
    Ok(Seen::Live {
        partition,
        watch,
        expires_ms,
    })
}

impl View<'_> {
    /// Whether a watched key was changed, as far as that can be told before EXEC: see
    /// [`Watches::any_written`].
    pub fn is_any_changed(&self, watches: &Watches) -> Result<bool, CommandError> {
        for watched in &watches.watched {
            if self.is_changed(watched)? {
                return Ok(true);
            }
        }
        Ok(watches.any_written())
    }

    fn is_changed(&self, watched: &Watched) -> Result<bool, CommandError> {
        let name = watched.table.as_str().as_bytes();
        let table = match find_source(self.tables, self.user, name) {
            // It was dropped.
            Err(_) if self.tables.get(name).is_none() => return Ok(true),
            found => found?,
        };
        let names = KeyNames::of(self.shared, self.tables, self.user);
        let stands_alone = |names: KeyNames<'_>| names.stands_alone(table.table(), &watched.key);
        if watched.stands_alone && !names.is_some_and(stands_alone) {
            return Ok(true);
        }
        match (&watched.seen, table) {
            (Seen::Batch(seen), Source::Batch(version)) => Ok(version.version() != *seen),
            (Seen::Live { expires_ms, .. }, Source::Live(table)) => match expires_ms {
                Some(moment_ms) => Ok(*moment_ms <= self.shared.store.clock().unix_ms()),
                None if !self.may_wait => Err(CommandError::NotResident),
                // One that is there has not expired: it was not written to. Of one that is not,
                // nobody knows whether it was. The next WATCH finds its page in memory.
                None => Ok(table.expires_ms(&watched.key)?.is_none()),
            },
            _ => Ok(true),
        }
    }
}
