//! Leave to read replicas: it is taken before a command reads, and asked again afterwards.
//!
//! A server that is no node of a cluster never comes here.

use forebay_cluster::LivePlace;
use forebay_engine::live::{Expiry, KeyRouting, LiveTable};
use forebay_host::ReadPermit;
use forebay_replica::GroupId;

use crate::cluster::Cluster;
use crate::command::{CommandError, split};
use crate::execute::{Outcome, View};
use crate::resp::Reply;

/// Leave for the keys of a command, of each partition once.
#[derive(Debug, Default)]
pub struct ReadPermits<'t> {
    held: Vec<HeldPermit<'t>>,
}

/// Leave of a partition's group. It is about what lay in the partition when it was given.
#[derive(Debug)]
struct HeldPermit<'t> {
    group: GroupId,
    permit: ReadPermit,
    table: &'t LiveTable,
    routing: u64,
}

impl<'t> ReadPermits<'t> {
    /// Takes leave of the partition that a key is in, once. Which that is says the table, by what
    /// lies where now: routes may not know yet that it was cut. `routing` was taken before anything
    /// is read: what is led elsewhere from then on shows in the end.
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

    /// Whether what was read meanwhile counts.
    #[inline]
    pub fn hold(&self) -> bool {
        let is_same = |held: &HeldPermit<'_>| held.table.routing().number() == held.routing;
        let mut held = self.held.iter();
        held.all(|held| is_same(held) && held.permit.holds())
    }

    /// Takes back what was read from `start` on, unless leave has held until now.
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
    /// Leave to read these wire keys, where nothing has to be waited for. Keys of tables that are
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
            // What is wrong with a key, its command says.
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

    /// Leave to read these keys of a replicated table; who reads them looks at what has expired.
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

    /// A key that has expired and is still there: its partition's time has to come to that first.
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
