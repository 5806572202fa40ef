//! Locks of a store in object storage, and the cached state while they are held.
//!
//! Before a table's lock is taken, the table is listed. The listing says which locks are free, so
//! that one write takes them, how long its files are, and which manifests exist. No other process
//! changes those while the lock is held. If another process turns out to have held the lock
//! meanwhile, the listing is discarded.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::STORE_FILE;
use forebay_io::Lock;

use super::listing::{Listing, POINTER, POINTER_LOCK, PUSH_LOCK};
use super::{Parts, Shared};
use crate::attempt::Attempt;
use crate::documents::{FRESH, Trust};
use crate::file::RemoteFile;
use crate::lease::{Lease, LeaseRequest};

/// The lease time of the locks of swaps and the like, which take moments, and of pushes.
const SHORT_LEASE: Duration = Duration::from_secs(6);
const PUSH_LEASE: Duration = Duration::from_secs(15);

/// How many small files are kept open while a table is locked.
const KEPT_FILES: usize = 64;

/// The locks that this process holds of a table, and what it has cached.
#[derive(Debug, Default)]
pub struct LockedTable {
    push: bool,
    pointer: bool,
    pub listing: Option<Listing>,
    /// Small files that are read several times.
    files: HashMap<String, Arc<RemoteFile>>,
}

/// A lock that is not needed, because a condition of the store has its effect.
#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {}

/// A lock of a table. Dropping that of a push ends the push.
#[derive(Debug)]
struct TableLock {
    shared: Arc<Shared>,
    table: String,
    lock: &'static str,
    lease: Option<Lease>,
}

impl Lock for TableLock {
    fn check_held(&self) -> io::Result<()> {
        self.lease
            .as_ref()
            .map_or(Ok(()), |lease| lease.held().confirm())
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        if self.lock == PUSH_LOCK {
            self.shared.attempts.lock().remove(&self.table);
        }
        // The cached state is discarded first: others may change the table afterwards.
        let mut tables = self.shared.locked.lock();
        if let Some(table) = tables.get_mut(&self.table) {
            match self.lock == PUSH_LOCK {
                true => table.push = false,
                false => table.pointer = false,
            }
            if !table.push && !table.pointer {
                tables.remove(&self.table);
            }
        }
        drop(tables);
        drop(self.lease.take());
    }
}

/// Returns the table and the lock of a name.
fn lock_of(name: &str) -> Option<(&str, &'static str)> {
    let (table, lock) = name.strip_prefix("tables/")?.split_once('/')?;
    let lock = [PUSH_LOCK, POINTER_LOCK]
        .into_iter()
        .find(|known| *known == lock)?;
    Some((table, lock))
}

/// Returns the table of an object, and the rest of its name.
pub fn of_table(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("tables/")?.split_once('/')
}

impl Shared {
    /// Takes a lock, or returns the text of its holder.
    pub fn lock(
        self: &Arc<Self>,
        name: &str,
        holder: &str,
    ) -> io::Result<Result<Box<dyn Lock>, String>> {
        match lock_of(name) {
            // Of several processes that create a store at a time, one writes the file that says so.
            _ if name == "creation.lock" => Ok(Ok(Box::new(NoLock))),
            Some((table, PUSH_LOCK)) => self.begin_push(table, name, holder),
            Some((table, lock)) => {
                let is_listed = self
                    .locked
                    .lock()
                    .get(table)
                    .is_some_and(|table| table.push);
                let listing = match is_listed || self.known_locks.knows(name) {
                    true => None,
                    false => Some(self.survey(table)?),
                };
                let lease = self.lease(name, holder, "")?;
                Ok(lease.map(|lease| self.locked(table, lock, lease, listing)))
            }
            None => {
                let lease = self.lease(name, holder, "")?;
                Ok(lease.map(|lease| Box::new(lease) as Box<dyn Lock>))
            }
        }
    }

    /// Takes the lock of a push, which includes the work directory.
    fn begin_push(
        self: &Arc<Self>,
        table: &str,
        name: &str,
        holder: &str,
    ) -> io::Result<Result<Box<dyn Lock>, String>> {
        let parts = &self.parts;
        let dir = self.work_dir(table);
        let (objects, local, random) = (&parts.objects, &parts.local, &*parts.random);
        let begun = Attempt::begin(objects, local, &parts.clock, &dir, table, holder, random)?;
        let attempt = match begun {
            Ok(attempt) => Arc::new(attempt),
            Err(holder) => return Ok(Err(holder)),
        };
        let owner = attempt.owner(&**local, random)?;
        let mut listing = self.survey(table)?;
        let lease = match self.lease(name, holder, &owner)? {
            Ok(lease) => lease,
            Err(holder) => return Ok(Err(holder)),
        };
        if !lease.unbroken {
            listing = self.survey(table)?;
        }
        attempt.uploads.abort_strangers(&listing.names("uploads"))?;
        self.attempts.lock().insert(table.to_owned(), attempt);
        let mut tables = self.locked.lock();
        let locked = tables.entry(table.to_owned()).or_default();
        (locked.push, locked.listing) = (true, Some(listing));
        drop(tables);
        Ok(Ok(Box::new(TableLock {
            shared: Arc::clone(self),
            table: table.to_owned(),
            lock: PUSH_LOCK,
            lease: Some(lease),
        })))
    }

    fn locked(
        self: &Arc<Self>,
        table: &str,
        lock: &'static str,
        lease: Lease,
        listing: Option<Listing>,
    ) -> Box<dyn Lock> {
        let mut tables = self.locked.lock();
        let locked = tables.entry(table.to_owned()).or_default();
        locked.pointer = true;
        if !lease.unbroken {
            self.lists.lock().clear();
        }
        match lease.unbroken {
            true if locked.listing.is_none() => locked.listing = listing,
            true => {}
            false => self.documents().forget_content(&format!("tables/{table}/")),
        }
        drop(tables);
        Box::new(TableLock {
            shared: Arc::clone(self),
            table: table.to_owned(),
            lock,
            lease: Some(lease),
        })
    }

    /// Lists all objects of a table.
    fn survey(&self, table: &str) -> io::Result<Listing> {
        let Parts { leases, clock, .. } = &self.parts;
        let listing = leases.patiently(&**clock, || Listing::ask(leases, table))?;
        if leases.lists_conditions() {
            listing.notify_locks(table, &self.known_locks);
        }
        let dir = format!("tables/{table}");
        self.documents().forget_content(&format!("{dir}/versions/"));
        let pointer = format!("{dir}/{POINTER}");
        match listing.seen(POINTER) {
            Some(seen) => self.documents().saw(&pointer, Some(seen.clone())),
            None => self
                .documents()
                .note(&pointer, None, None, clock.monotonic()),
        }
        Ok(listing)
    }

    /// Discards cached state as [`forebay_io::Disk::look_again`] describes.
    pub fn look_again(&self, table: &str) {
        self.documents()
            .forget(&format!("tables/{table}/{POINTER}"));
        let is_listed = self.locked.lock().contains_key(table);
        let listing = is_listed.then(|| Listing::ask(&self.parts.objects, table));
        if let Some(locked) = self.locked.lock().get_mut(table) {
            // Without a listing, objects are requested one by one.
            locked.listing = listing.and_then(Result::ok);
        }
    }

    fn lease(&self, name: &str, holder: &str, owner: &str) -> io::Result<Result<Lease, String>> {
        let time = match name.ends_with(PUSH_LOCK) {
            true => PUSH_LEASE,
            false => SHORT_LEASE,
        };
        let Parts {
            leases,
            clock,
            random,
            ..
        } = &self.parts;
        let wanted = LeaseRequest {
            name,
            holder,
            owner,
            time,
            known: &self.known_locks,
        };
        let taken = Lease::take(leases, clock, &**random, wanted)?;
        if let Ok(lease) = &taken {
            self.held.lock().push(Arc::downgrade(lease.held()));
        }
        Ok(taken)
    }

    /// Returns the names directly below a directory, at most a second old: listing tables asks
    /// several times.
    pub fn names_below(&self, dir: &str) -> io::Result<Vec<String>> {
        let (table, rest) = match dir.strip_prefix("tables/") {
            Some(below) => below.split_once('/').unwrap_or((below, "")),
            None => ("", ""),
        };
        let name = format!("tables/{table}/{rest}");
        if let Some(names) = self.listed(&name, Listing::names) {
            return Ok(names);
        }
        let now = self.parts.clock.monotonic();
        if let Some((names, at)) = self.lists.lock().get(dir)
            && now.saturating_sub(*at) <= FRESH
        {
            return Ok(names.clone());
        }
        let names = self.parts.objects.list(dir)?;
        if dir == "tables" || rest == "versions" {
            let list = (names.clone(), now);
            self.lists.lock().insert(dir.to_owned(), list);
        }
        Ok(names)
    }

    /// Returns which cached content of an object may be used.
    pub fn trust(&self, name: &str) -> Trust {
        let Some((table, rest)) = of_table(name) else {
            return match name {
                STORE_FILE => Trust::Fresh,
                _ => Trust::None,
            };
        };
        let tables = self.locked.lock();
        let (push, pointer) = tables
            .get(table)
            .map_or((false, false), |locked| (locked.push, locked.pointer));
        match rest.split_once('/') {
            Some(("versions", file)) if file.ends_with(".manifest") && (push || pointer) => {
                Trust::Locked
            }
            Some(("versions", file)) if file.ends_with(".manifest") => Trust::Fresh,
            None if rest == POINTER && pointer => Trust::Locked,
            None if rest == POINTER => Trust::Fresh,
            _ => Trust::None,
        }
    }

    /// Returns an existing file of a table that may be locked; `None`: it is unknown whether it
    /// exists.
    pub fn listed_file(&self, name: &str) -> Option<Arc<RemoteFile>> {
        let (table, rest) = of_table(name)?;
        let mut tables = self.locked.lock();
        let locked = tables.get_mut(table)?;
        if let Some(file) = locked.files.get(rest) {
            return Some(Arc::clone(file));
        }
        let len_bytes = locked.listing.as_ref()?.len_bytes(rest)?;
        let objects = self.parts.objects.clone();
        let file = Arc::new(RemoteFile::new(objects, name.to_owned(), len_bytes));
        if file.is_small() && locked.files.len() < KEPT_FILES {
            locked.files.insert(rest.to_owned(), Arc::clone(&file));
        }
        Some(file)
    }

    /// Looks an object up in the listing of a locked table.
    pub fn listed<T>(&self, name: &str, look: impl FnOnce(&Listing, &str) -> T) -> Option<T> {
        let (table, rest) = of_table(name)?;
        let tables = self.locked.lock();
        let listing = tables.get(table)?.listing.as_ref()?;
        Some(look(listing, rest))
    }

    /// Records a change of a locked table.
    pub fn changed(&self, name: &str, change: impl FnOnce(&mut Listing, &str)) {
        self.lists.lock().clear();
        let mut tables = self.locked.lock();
        let found = of_table(name).and_then(|(table, rest)| Some((tables.get_mut(table)?, rest)));
        if let Some((locked, rest)) = found {
            locked.files.remove(rest);
            if let Some(listing) = &mut locked.listing {
                change(listing, rest);
            }
        }
    }
}
