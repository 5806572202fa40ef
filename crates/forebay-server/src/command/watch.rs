//! WATCH: EXEC runs nothing if a watched key was changed.
//!
//! A key of a live table counts as changed after a write, even of the same value. So it does after
//! a load to its partition, and after its expiry. A key of a batch table counts as changed if
//! another version serves. EXEC checks under the lock of the partition that it writes to, so that
//! no write happens in between. Therefore the watched keys must be in that partition.
//!
//! For a key of a live table of a cluster, the connection keeps its version, as KV.GETV returns it.
//! The version is compared where EXEC runs: by each replica that applies a MULTI that writes, or
//! with a read permit of the partition's leader. A value that was changed and changed back has the
//! same version again.
//!
//! A key of the default table that was named without it also changes if it begins to name another
//! table: see [`KeyNames`].

use forebay_engine::live::{Expiry, KeyWatch, LiveTable};
use forebay_engine::{PartitionId, Source, TableName};

use super::{Answer, CommandError};
use crate::command::running::call::{
    SessionCall, find_source, no_permission, no_table, not_served, split,
};
use crate::command::running::names::{KeyNames, wire_key};
use crate::command::running::txn::Txn;
use crate::command::values::compare::KeyVersion;
use crate::execute::View;
use crate::resp::{Args, OwnedArgs};
use crate::users::Verb;

/// The most bytes of a connection's watched keys.
const MAX_WATCHED_BYTES: usize = 4 << 20;

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub struct Watches {
    watched: Vec<WatchedKeys>,
    bytes: usize,
}

#[derive(Debug)]
struct WatchedKeys {
    table: TableName,
    key: Vec<u8>,
    /// Whether the key without a table name means this table and key, because its prefix names no
    /// table.
    stands_alone: bool,
    seen: SeenKeyState,
}

/// Keys that WATCH names, some of them of live tables of a cluster.
#[derive(Debug)]
pub struct WatchAsk {
    /// The keys whose state is known already.
    known: Watches,
    /// The keys whose versions are to be read.
    asked: Vec<AskedKey>,
}

#[derive(Debug)]
struct AskedKey {
    table: TableName,
    key: Vec<u8>,
    stands_alone: bool,
}

/// The known state of a watched key.
#[derive(Debug)]
enum SeenKeyState {
    Live {
        partition: PartitionId,
        watch: KeyWatch,
        /// When it expires. `None` if that could not be determined without waiting for the device.
        expires_ms: Option<u64>,
    },
    /// The serving version.
    Batch(u64),
    /// The key's version, for a live table of a cluster.
    Replicated(KeyVersion),
}

impl Watches {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Returns whether a key of a live table was written to.
    pub fn any_written(&self) -> bool {
        self.watched.iter().any(|watched| match &watched.seen {
            SeenKeyState::Live { watch, .. } => watch.is_written(),
            SeenKeyState::Batch(_) | SeenKeyState::Replicated(_) => false,
        })
    }

    /// Returns the keys of live tables of a cluster, each followed by its version.
    pub fn versions(&self) -> OwnedArgs {
        let mut versions = OwnedArgs::default();
        for watched in &self.watched {
            if let SeenKeyState::Replicated(version) = watched.seen {
                versions.push(&wire_key(&watched.table, &watched.key));
                versions.push(version.text().as_bytes());
            }
        }
        versions
    }

    /// Parses keys with their versions, as [`Self::versions`] returns them.
    pub fn of_versions(versions: &Args<'_>) -> Result<Self, CommandError> {
        let mut watches = Self::default();
        for at in (0..versions.len()).step_by(2) {
            if at + 1 == versions.len() {
                return Err(CommandError::syntax());
            }
            let (table, key) = split(versions.get(at))?;
            watches.watched.push(WatchedKeys {
                table: table_name(table)?,
                key: key.to_vec(),
                stands_alone: false,
                seen: SeenKeyState::Replicated(KeyVersion::parse(versions.get(at + 1))?),
            });
        }
        Ok(watches)
    }

    /// Returns whether all keys are of live tables of a cluster.
    pub fn are_replicated(&self) -> bool {
        let is_replicated =
            |watched: &WatchedKeys| matches!(watched.seen, SeenKeyState::Replicated(_));
        self.watched.iter().all(is_replicated)
    }

    /// Returns only the keys of live tables of a cluster.
    pub fn replicated_only(&self) -> Self {
        let watched = self.replicated().map(|(watched, version)| WatchedKeys {
            table: watched.table.clone(),
            key: watched.key.clone(),
            stands_alone: watched.stands_alone,
            seen: SeenKeyState::Replicated(version),
        });
        let (watched, bytes) = (watched.collect(), self.bytes);
        Self { watched, bytes }
    }

    /// Returns the keys of live tables of a cluster, with their tables.
    pub fn replicated_wires(&self) -> impl Iterator<Item = Vec<u8>> {
        let replicated = self.replicated();
        replicated.map(|(watched, _)| wire_key(&watched.table, &watched.key))
    }

    /// Returns the keys of live tables of a cluster.
    pub fn replicated_keys(&self) -> impl Iterator<Item = &[u8]> {
        let replicated = self.replicated();
        replicated.map(|(watched, _)| &watched.key[..])
    }

    /// Returns whether a key of a live table of a cluster has another version in the transaction
    /// than the watched one.
    pub fn have_other_versions(&self, txn: &Txn<'_>) -> Result<bool, CommandError> {
        for (watched, seen) in self.replicated() {
            if KeyVersion::of(txn.look(&watched.key)?.as_ref()) != seen {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn replicated(&self) -> impl Iterator<Item = (&WatchedKeys, KeyVersion)> {
        let watched = self.watched.iter();
        watched.filter_map(|watched| match watched.seen {
            SeenKeyState::Replicated(version) => Some((watched, version)),
            _ => None,
        })
    }

    /// Adds watches, whose size was checked before.
    pub fn join(&mut self, others: Self) {
        self.watched.extend(others.watched);
        self.bytes += others.bytes;
    }

    /// Refuses keys that EXEC cannot check while it writes to this partition.
    pub fn check_partition(&self, table: &LiveTable, written: PartitionId) -> Answer {
        let is_of = |watched: &WatchedKeys| match &watched.seen {
            SeenKeyState::Live { partition, .. } => {
                watched.table == *table.name() && *partition == written
            }
            SeenKeyState::Batch(_) | SeenKeyState::Replicated(_) => false,
        };
        match self.watched.iter().all(is_of) {
            true => Ok(()),
            false => Err(CommandError::error(format!(
                "CROSSSLOT a key that WATCH named is in another partition than those that this MULTI \
                 writes to in table '{}': give keys that belong together a hash tag",
                table.name()
            ))),
        }
    }

    fn has(&self, table: &[u8], key: &[u8]) -> bool {
        let is_it = |watched: &WatchedKeys| {
            watched.table.as_str().as_bytes() == table && watched.key == key
        };
        self.watched.iter().any(is_it)
    }

    /// Counts a key that is to be watched beside `others`.
    fn count(&mut self, others: &Self, key: &[u8]) -> Answer {
        self.bytes += key.len() + size_of::<WatchedKeys>();
        match self.bytes + others.bytes > MAX_WATCHED_BYTES {
            true => Err(CommandError::error(format!(
                "ERR the keys watched take more than {MAX_WATCHED_BYTES} bytes"
            ))),
            false => Ok(()),
        }
    }
}

impl WatchAsk {
    /// Returns the keys whose versions are to be read.
    pub fn wires(&self) -> impl Iterator<Item = Vec<u8>> {
        let asked = self.asked.iter();
        asked.map(|asked| wire_key(&asked.table, &asked.key))
    }

    /// Returns all watches. REQUIRES: a version for each of these keys, in their order.
    pub fn watches(self, versions: &[KeyVersion]) -> Watches {
        let mut watches = self.known;
        let asked = self.asked.into_iter().zip(versions);
        watches
            .watched
            .extend(asked.map(|(asked, version)| WatchedKeys {
                table: asked.table,
                key: asked.key,
                stands_alone: asked.stands_alone,
                seen: SeenKeyState::Replicated(*version),
            }));
        watches
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
    let stands_alone =
        |table: &TableName, key: &[u8]| names.is_some_and(|names| names.stands_alone(table, key));
    let (mut known, mut asked) = (Watches::default(), Vec::new());
    let before = &call.session.watches;
    for wire in call.args.skip(1).iter() {
        let (table, key) = split(wire)?;
        if !user.may(Verb::Read, table) {
            return Err(no_permission(&user, table, "read"));
        }
        if before.has(table, key) || known.has(table, key) {
            continue;
        }
        known.count(before, key)?;
        if is_replicated(call, table) {
            let table = table_name(table)?;
            asked.push(AskedKey {
                stands_alone: stands_alone(&table, key),
                key: key.to_vec(),
                table,
            });
            continue;
        }
        let source = find_source(call.tables, &user, table)?;
        known.watched.push(WatchedKeys {
            table: source.table().clone(),
            key: key.to_vec(),
            stands_alone: stands_alone(source.table(), key),
            seen: see(source, key)?,
        });
    }
    if !asked.is_empty() {
        call.session.watching = Some(WatchAsk { known, asked });
        return Err(CommandError::Replicas);
    }
    call.session.watches.join(known);
    call.reply.ok();
    Ok(())
}

/// Returns whether a table is a live table of the cluster, even if this node has no replica of it.
fn is_replicated(call: &SessionCall<'_>, table: &[u8]) -> bool {
    if let Some(Source::Live(live)) = call.tables.get(table) {
        return call.tables.is_replica(live);
    }
    let cluster = call.shared.cluster.as_ref();
    cluster.is_some_and(|cluster| cluster.member().live().table(table).is_some())
}

fn table_name(table: &[u8]) -> Result<TableName, CommandError> {
    let name = std::str::from_utf8(table).ok();
    let name = name.and_then(|name| TableName::new(name).ok());
    name.ok_or_else(|| no_table(table))
}

pub fn unwatch(call: &mut SessionCall<'_>) -> Answer {
    call.session.watches.clear();
    call.reply.ok();
    Ok(())
}

fn see(source: Source<'_>, key: &[u8]) -> Result<SeenKeyState, CommandError> {
    let table = match source {
        Source::Batch(version) => return Ok(SeenKeyState::Batch(version.version())),
        Source::Live(table) => table,
    };
    let partition = table.partition_holding(key)?;
    // The watch comes first, so that it catches every write after the read.
    let watch = table.watch(key)?;
    let expires_ms = match table.options().expiry {
        Expiry::Never => Some(u64::MAX),
        _ => table
            .try_expires_ms(key)?
            .map(|expires_ms| expires_ms.unwrap_or(u64::MAX)),
    };
    Ok(SeenKeyState::Live {
        partition,
        watch,
        expires_ms,
    })
}

impl View<'_> {
    /// Returns whether a watched key is known to have changed before EXEC: see
    /// [`Watches::any_written`]. For keys of live tables of a cluster, the replicas decide.
    pub fn is_any_changed(&self, watches: &Watches) -> Result<bool, CommandError> {
        for watched in &watches.watched {
            if self.is_changed(watched)? {
                return Ok(true);
            }
        }
        if watches.any_written() {
            return Ok(true);
        }
        match !self.has_permit && watches.replicated().next().is_some() {
            true => Err(CommandError::Replicas),
            false => Ok(false),
        }
    }

    /// Returns whether a key of a live table of a cluster has another version than the watched one.
    pub fn has_other_version(&self, watches: &Watches) -> Result<bool, CommandError> {
        for (watched, seen) in watches.replicated() {
            let name = watched.table.as_str().as_bytes();
            let table = self.tables.live(name).ok_or_else(|| not_served(name))?;
            let snapshot = table.snapshot_keys(&[&watched.key])?;
            let stored = snapshot.stored(0, self.may_wait)?;
            let stored = stored.ok_or(CommandError::NotResident)?;
            if KeyVersion::of(stored.as_ref()) != seen {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_changed(&self, watched: &WatchedKeys) -> Result<bool, CommandError> {
        let names = KeyNames::of(self.shared, self.tables, self.user);
        let stands_alone = |names: KeyNames<'_>| names.stands_alone(&watched.table, &watched.key);
        if watched.stands_alone && !names.is_some_and(stands_alone) {
            return Ok(true);
        }
        if matches!(watched.seen, SeenKeyState::Replicated(_)) {
            return Ok(false);
        }
        let name = watched.table.as_str().as_bytes();
        let table = match find_source(self.tables, self.user, name) {
            // The table was dropped.
            Err(_) if self.tables.get(name).is_none() => return Ok(true),
            found => found?,
        };
        match (&watched.seen, table) {
            (SeenKeyState::Batch(seen), Source::Batch(version)) => Ok(version.version() != *seen),
            (SeenKeyState::Live { expires_ms, .. }, Source::Live(table)) => match expires_ms {
                Some(moment_ms) => Ok(*moment_ms <= self.shared.store.clock().unix_ms()),
                None if !self.may_wait => Err(CommandError::NotResident),
                // An existing key has not expired: it was not written. For an absent one it is
                // unknown whether it expired. The next WATCH finds its page in memory.
                None => Ok(table.expires_ms(&watched.key)?.is_none()),
            },
            _ => Ok(true),
        }
    }
}
