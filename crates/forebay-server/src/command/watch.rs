//! WATCH: EXEC runs nothing once a key was changed that is watched.
//!
//! A key of a live table counts as changed when it was written to, with whatever value, when a load
//! added to its partition, and when it expired; one of a batch table when another version serves.
//! EXEC finds out under the lock of the partition that it writes to, so that no write comes
//! between: which is why the keys watched then have to lie in that partition.
//!
//! Of a key of a live table of a cluster its version is remembered, as KV.GETV tells it, and
//! compared where EXEC runs: by each replica that does a MULTI that writes, or by leave of the
//! partition's leader. What was changed and changed back has the same version again.
//!
//! A key of the default table that was named without it changes as well when it comes to name
//! another table: see [`KeyNames`].

use forebay_engine::live::{Expiry, KeyWatch, LiveTable};
use forebay_engine::{PartitionId, Source, TableName};

use super::call::{SessionCall, find_source, no_permission, no_table, not_served, split};
use super::compare::KeyVersion;
use super::names::{KeyNames, wire_key};
use super::txn::Txn;
use super::{Answer, CommandError};
use crate::execute::View;
use crate::resp::{Args, OwnedArgs};
use crate::users::Verb;

/// The most that the keys watched by a connection may take.
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
    /// The key alone means this table and key, as no table has the name that it begins with.
    stands_alone: bool,
    seen: SeenKeyState,
}

/// Keys that WATCH names, some of them of live tables of a cluster.
#[derive(Debug)]
pub struct WatchAsk {
    /// Those of which it is known already what they are.
    known: Watches,
    /// Those whose versions are to be read.
    asked: Vec<AskedKey>,
}

#[derive(Debug)]
struct AskedKey {
    table: TableName,
    key: Vec<u8>,
    stands_alone: bool,
}

/// What is known of a watched key.
#[derive(Debug)]
enum SeenKeyState {
    Live {
        partition: PartitionId,
        watch: KeyWatch,
        /// When it expires; `None`: it could not be known without waiting for the device.
        expires_ms: Option<u64>,
    },
    /// The version that serves.
    Batch(u64),
    /// Of a live table of a cluster.
    Replicated(KeyVersion),
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
            SeenKeyState::Live { watch, .. } => watch.is_written(),
            SeenKeyState::Batch(_) | SeenKeyState::Replicated(_) => false,
        })
    }

    /// Keys of live tables of a cluster, each with its version behind it.
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

    /// Keys with their versions, as [`Self::versions`] gives them.
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

    /// Whether all keys are of live tables of a cluster.
    pub fn are_replicated(&self) -> bool {
        let is_replicated =
            |watched: &WatchedKeys| matches!(watched.seen, SeenKeyState::Replicated(_));
        self.watched.iter().all(is_replicated)
    }

    /// Those of live tables of a cluster alone.
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

    /// The keys of live tables of a cluster, with their tables.
    pub fn replicated_wires(&self) -> impl Iterator<Item = Vec<u8>> {
        let replicated = self.replicated();
        replicated.map(|(watched, _)| wire_key(&watched.table, &watched.key))
    }

    /// The keys of live tables of a cluster.
    pub fn replicated_keys(&self) -> impl Iterator<Item = &[u8]> {
        let replicated = self.replicated();
        replicated.map(|(watched, _)| &watched.key[..])
    }

    /// Whether a key of a live table of a cluster has another version than was seen, by what the
    /// transaction holds of it.
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

    /// Puts others to these, for which there was found to be room.
    pub fn join(&mut self, others: Self) {
        self.watched.extend(others.watched);
        self.bytes += others.bytes;
    }

    /// Refuses keys of which EXEC cannot know while it writes to this partition.
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
                "CROSSSLOT a key that WATCH named lies in another partition than those that this MULTI \
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
    /// The keys whose versions are to be read.
    pub fn wires(&self) -> impl Iterator<Item = Vec<u8>> {
        let asked = self.asked.iter();
        asked.map(|asked| wire_key(&asked.table, &asked.key))
    }

    /// All that is watched then. REQUIRES: a version for each of these keys, in their order.
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

/// Whether a table is a live one of the cluster, be any of it here or not.
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
    // Watched first, so that no write after what is read of it goes by.
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
    /// Whether a watched key was changed, as far as that can be told before EXEC: see
    /// [`Watches::any_written`]. Of keys of live tables of a cluster the replicas tell.
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

    /// Whether a key of a live table of a cluster has another version now than was seen.
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
            // It was dropped.
            Err(_) if self.tables.get(name).is_none() => return Ok(true),
            found => found?,
        };
        match (&watched.seen, table) {
            (SeenKeyState::Batch(seen), Source::Batch(version)) => Ok(version.version() != *seen),
            (SeenKeyState::Live { expires_ms, .. }, Source::Live(table)) => match expires_ms {
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
