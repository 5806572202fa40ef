//! Read permits of replicas: acquired before a command reads, and checked again afterwards.
//!
//! A standalone server never uses them.

use forebay_cluster::LivePlace;
use forebay_engine::live::{Expiry, KeyRouting, LiveTable};
use forebay_host::ReadPermit;
use forebay_replica::GroupId;

use crate::cluster::Cluster;
use crate::command::{CommandError, split};
use crate::execute::{Outcome, View};
use crate::resp::Reply;

/// Permits for the keys of a command, one for each partition.
#[derive(Debug, Default)]
pub struct ReadPermits<'t> {
    held: Vec<HeldPermit<'t>>,
}

/// A permit of a partition's group. It covers the keys in the partition when it was granted.
#[derive(Debug)]
struct HeldPermit<'t> {
    group: GroupId,
    permit: ReadPermit,
    table: &'t LiveTable,
    routing: u64,
}

impl<'t> ReadPermits<'t> {
    /// Acquires the permit of a key's partition, once. The table's current partitions decide,
    /// because routes may not yet know a split. `routing` was read before any key, so a later
    /// change of routes is found at the end.
    fn take(
        &mut self,
        cluster: &Cluster,
        place: Option<&LivePlace>,
        routing: &KeyRouting<'_>,
        (table, key): (&'t LiveTable, &[u8]),
    ) -> Result<(), CommandError> {
        let partition = routing.partition_of(key);
        let route = partition.zip(place);
        let route = route.and_then(|(partition, place)| place.route_of(partition));
        let group = route.ok_or(CommandError::Replicas)?.group;
        if self.held.iter().all(|held| held.group != group) {
            let replicas = cluster.member().replicas();
            let permit = replicas.and_then(|replicas| replicas.host().try_read(group));
            self.held.push(HeldPermit {
                group,
                permit: permit.ok_or(CommandError::Replicas)?,
                table,
                routing: routing.number(),
            });
        }
        Ok(())
    }

    /// Returns whether the reads since then are valid.
    #[inline]
    pub fn hold(&self) -> bool {
        let is_same = |held: &HeldPermit<'_>| held.table.routing().number() == held.routing;
        let mut held = self.held.iter();
        held.all(|held| is_same(held) && held.permit.holds())
    }

    /// Withdraws the replies from `start` on, unless the permits have held until now.
    #[inline]
    pub fn check(&self, outcome: Outcome, start: usize, reply: &mut Reply) -> Outcome {
        if outcome.waits() || self.hold() {
            return outcome;
        }
        reply.truncate(start);
        Outcome::Replicas
    }
}

impl<'t> View<'t> {
    /// Returns permits to read these wire keys, if that needs no waiting. Keys of tables that are
    /// not replicated need none.
    #[inline]
    pub fn permits<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<ReadPermits<'t>, CommandError> {
        match self.tables.has_replicas() && !self.has_permit {
            true => self.take_permits(keys),
            false => Ok(ReadPermits::default()),
        }
    }

    fn take_permits<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<ReadPermits<'t>, CommandError> {
        let mut permits = ReadPermits::default();
        let Some(cluster) = &self.shared.cluster else {
            return Ok(permits);
        };
        let places = cluster.member().live();
        for wire in keys {
            // The command itself reports a malformed key.
            let Ok((name, key)) = split(wire) else {
                continue;
            };
            let table = self.tables.live(name);
            let Some(table) = table.filter(|table| self.tables.is_replica(table)) else {
                continue;
            };
            permits.take(cluster, places.table(name), &table.routing(), (table, key))?;
            if table.options().expiry != Expiry::Never {
                self.check_expiry(table, key)?;
            }
        }
        Ok(permits)
    }

    /// Returns permits to read these keys of a replicated table. The caller checks expiry.
    pub fn permits_of(
        &self,
        (name, table): (&[u8], &'t LiveTable),
        keys: &[&[u8]],
    ) -> Result<ReadPermits<'t>, CommandError> {
        let mut permits = ReadPermits::default();
        let Some(cluster) = &self.shared.cluster else {
            return Ok(permits);
        };
        let places = cluster.member().live();
        let place = places.table(name);
        let routing = table.routing();
        for key in keys {
            permits.take(cluster, place, &routing, (table, key))?;
        }
        Ok(permits)
    }

    /// Refuses a key that has expired and still exists: its partition's time must reach the expiry
    /// first.
    fn check_expiry(&self, table: &LiveTable, key: &[u8]) -> Result<(), CommandError> {
        let now_ms = self.shared.store.clock().unix_ms();
        let would_expire = match self.may_wait {
            true => Some(table.would_expire(key, now_ms)?),
            false => table.try_would_expire(key, now_ms)?,
        };
        match would_expire {
            Some(false) => Ok(()),
            Some(true) => Err(CommandError::Replicas),
            None => Err(CommandError::NotResident),
        }
    }
}
