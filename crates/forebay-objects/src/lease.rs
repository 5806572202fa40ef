//! Locks in object storage: leases.
//!
//! The lock is an object that names its holder. The holder rewrites it every third of the lease's
//! time. A process that wants the lock watches it by its own clock, and takes it over if it is
//! unchanged for the whole lease time. Every write is conditional on the previous content, so one
//! of several takers wins. No clocks are compared.
//!
//! A released lock is an object of [`RELEASED_BYTES`], and a held one never is. So a listing shows
//! which locks are free and their ETags, and a taker that has seen them ([`KnownLocks`]) needs one
//! request. If the ETag is unchanged, no process held the lock meanwhile.
//!
//! A holder that was delayed (a stopped process, an unreachable store) may have lost it:
//! [`LeaseHolder::confirm`] finds out before a write that counts.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, Lock, Random, start_thread};
use object_store::UpdateVersion;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::objects::{ContentTag, News, Objects, PutOutcome};

/// The time between two polls of a lock that another process holds.
const LOOK: Duration = Duration::from_millis(150);

/// The length of the object of a released lock: longer than any holder's text.
pub const RELEASED_BYTES: u64 = 2048;

/// Locks that were free when they were last seen, with their state then; `None` in it: there was no
/// object.
#[derive(Debug, Default, Clone)]
pub struct KnownLocks(Arc<Mutex<HashMap<String, ContentTag>>>);

impl KnownLocks {
    pub fn note(&self, name: &str, seen: ContentTag) {
        self.0.lock().insert(name.to_owned(), seen);
    }

    pub fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    pub fn knows(&self, name: &str) -> bool {
        self.0.lock().contains_key(name)
    }

    fn take(&self, name: &str) -> Option<ContentTag> {
        self.0.lock().remove(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    forebay_lease: u64,
    /// The holder's text, for people.
    holder: String,
    /// The holder's work directory, which has one holder at a time; empty: none.
    owner: String,
    /// Random: no two holders have the same.
    token: u64,
    /// Rises, so that no two contents are equal.
    renewal: u64,
    released: bool,
}

/// A request for a lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    pub name: &'a str,
    pub holder: &'a str,
    /// The [`Document::owner`]. The caller holds that directory: an earlier holder from there is
    /// dead.
    pub owner: &'a str,
    pub time: Duration,
    pub known: &'a KnownLocks,
}

/// A held lease, which is released when it is dropped.
#[derive(Debug)]
pub struct Lease {
    held: Arc<LeaseHolder>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
    /// Whether no process held it since it was noted as free.
    pub unbroken: bool,
    known: KnownLocks,
}

/// The holder's knowledge of its lease.
#[derive(Debug)]
pub struct LeaseHolder {
    objects: Objects,
    clock: Arc<dyn Clock>,
    name: String,
    time: Duration,
    state: Mutex<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    document: Document,
    seen: ContentTag,
    /// By the monotonic clock: until then no other process can have taken it over.
    valid_until: Duration,
    lost: bool,
}

impl Lock for Lease {}

impl Lease {
    /// Takes the lease, or returns the text of its holder. Waits as long as it takes to know
    /// whether the holder lives. While the store is unreachable, it waits as long as its users are
    /// patient.
    pub fn take(
        objects: &Objects,
        clock: &Arc<dyn Clock>,
        random: &dyn Random,
        wanted: LeaseRequest<'_>,
    ) -> io::Result<Result<Self, String>> {
        objects.patiently(&**clock, || {
            Self::try_to_take(objects, clock, random, wanted)
        })
    }

    fn try_to_take(
        objects: &Objects,
        clock: &Arc<dyn Clock>,
        random: &dyn Random,
        wanted: LeaseRequest<'_>,
    ) -> io::Result<Result<Self, String>> {
        let document = Document {
            forebay_lease: 1,
            holder: wanted.holder.to_owned(),
            owner: wanted.owner.to_owned(),
            token: random.next_u64(),
            renewal: 0,
            released: false,
        };
        let hold = |document: &Document, seen, before| LeaseHolder {
            objects: objects.clone(),
            clock: Arc::clone(clock),
            name: wanted.name.to_owned(),
            time: wanted.time,
            state: Mutex::new(LeaseState {
                document: document.clone(),
                seen,
                valid_until: before + wanted.time,
                lost: false,
            }),
        };
        if let Some(free) = wanted.known.take(wanted.name) {
            let before = clock.monotonic();
            if let PutOutcome::Done(seen) =
                objects.put_if(wanted.name, bytes_of(&document)?, &free)?
            {
                let held = hold(&document, seen, before);
                return Self::keep(held, true, wanted.known).map(Ok);
            }
        }
        let give_up = clock.monotonic() + wanted.time * 3;
        loop {
            let seen = match objects.news(wanted.name, None)? {
                News::Absent | News::Same => None,
                News::Content(bytes, seen) => match watch(objects, &**clock, wanted, &bytes, seen)?
                {
                    Ok(seen) => seen,
                    Err(holder) => return Ok(Err(holder)),
                },
            };
            let before = clock.monotonic();
            match objects.put_if(wanted.name, bytes_of(&document)?, &seen)? {
                PutOutcome::Done(seen) => {
                    let held = hold(&document, seen, before);
                    return Self::keep(held, false, wanted.known).map(Ok);
                }
                PutOutcome::Changed if clock.monotonic() > give_up => {
                    return Ok(Err("others, one after the other".to_owned()));
                }
                PutOutcome::Changed => clock.sleep(LOOK),
            }
        }
    }

    fn keep(held: LeaseHolder, unbroken: bool, known: &KnownLocks) -> io::Result<Self> {
        let held = Arc::new(held);
        let (stop, stopped) = channel();
        let kept = Arc::clone(&held);
        let renew = move || {
            while stopped.recv_timeout(kept.time / 3) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = kept.renew() {
                    warn!(lock = kept.name, %error, "a lock could not be renewed");
                }
            }
        };
        let thread = start_thread("forebay-lease", renew)?;
        Ok(Self {
            held,
            stop,
            thread: Some(thread),
            unbroken,
            known: known.clone(),
        })
    }

    pub fn held(&self) -> &Arc<LeaseHolder> {
        &self.held
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        match self.held.write(|document| document.released = true) {
            Ok(()) => self
                .known
                .note(&self.held.name, self.held.state.lock().seen.clone()),
            Err(error) => {
                let lock = &self.held.name;
                warn!(lock, %error, "a lock was not given back; it runs out by itself");
            }
        }
    }
}

impl LeaseHolder {
    fn renew(&self) -> io::Result<()> {
        self.write(|document| document.renewal += 1)
    }

    fn write(&self, change: impl FnOnce(&mut Document)) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.lost {
            return Err(self.lost());
        }
        let mut next = state.document.clone();
        change(&mut next);
        let before = self.clock.monotonic();
        match self
            .objects
            .put_if(&self.name, bytes_of(&next)?, &state.seen)?
        {
            PutOutcome::Done(seen) => {
                state.seen = seen;
                state.document = next;
                state.valid_until = before + self.time;
                Ok(())
            }
            PutOutcome::Changed => {
                state.lost = true;
                Err(self.lost())
            }
        }
    }

    /// Fails unless this process has the lease now.
    pub fn confirm(&self) -> io::Result<()> {
        let state = self.state.lock();
        let (lost, valid) = (state.lost, self.clock.monotonic() < state.valid_until);
        drop(state);
        match (lost, valid) {
            (true, _) => Err(self.lost()),
            (false, true) => Ok(()),
            (false, false) => self
                .objects
                .patiently(&*self.clock, || match self.renew() {
                    // Patience does not help.
                    Err(_) if self.state.lock().lost => Ok(Err(self.lost())),
                    done => done.map(Ok),
                })?,
        }
    }

    fn lost(&self) -> io::Error {
        io::Error::other(format!(
            "the lock {} was taken over by another process, as this one had not renewed it for {} s: run \
             the command again",
            self.name,
            self.time.as_secs()
        ))
    }
}

/// Waits until a lock that another process had is free, to be taken by a write over the released
/// object; or until it is known that its holder lives.
fn watch(
    objects: &Objects,
    clock: &dyn Clock,
    wanted: LeaseRequest<'_>,
    bytes: &[u8],
    mut seen: UpdateVersion,
) -> io::Result<Result<ContentTag, String>> {
    let mut known: Option<Document> = serde_json::from_slice(bytes).ok();
    let mut since = clock.monotonic();
    loop {
        if let Some(known) = &known
            && (known.released || (!wanted.owner.is_empty() && known.owner == wanted.owner))
        {
            return Ok(Ok(Some(seen)));
        }
        if clock.monotonic().saturating_sub(since) >= wanted.time {
            return Ok(Ok(Some(seen)));
        }
        clock.sleep(LOOK);
        match objects.news(wanted.name, Some(&seen))? {
            News::Same => {}
            News::Absent => return Ok(Ok(None)),
            News::Content(bytes, now) => {
                let next: Option<Document> = serde_json::from_slice(&bytes).ok();
                if let (Some(before), Some(next)) = (&known, &next)
                    && before.token == next.token
                    && !next.released
                {
                    return Ok(Err(next.holder.clone()));
                }
                (known, seen, since) = (next, now, clock.monotonic());
            }
        }
    }
}

fn bytes_of(document: &Document) -> io::Result<Bytes> {
    let mut bytes = serde_json::to_vec(document).map_err(io::Error::other)?;
    let released = RELEASED_BYTES as usize;
    match document.released {
        true if bytes.len() < released => bytes.resize(released, b' '),
        false if bytes.len() == released => bytes.push(b' '),
        _ => {}
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::path::Path as Key;

    use forebay_io::{SystemClock, SystemRandom};

    use super::*;

    const TIME: Duration = Duration::from_millis(900);

    fn objects() -> Objects {
        Objects::over(Arc::new(InMemory::new()), Key::from("store")).unwrap()
    }

    fn take(objects: &Objects, holder: &str, owner: &str) -> Result<Lease, String> {
        take_known(objects, holder, owner, &KnownLocks::default())
    }

    fn take_known(
        objects: &Objects,
        holder: &str,
        owner: &str,
        known: &KnownLocks,
    ) -> Result<Lease, String> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wanted = LeaseRequest {
            name: "lock",
            holder,
            owner,
            time: TIME,
            known,
        };
        Lease::take(objects, &clock, &SystemRandom, wanted).unwrap()
    }

    #[test]
    fn one_of_many_holds_the_lease_and_the_others_learn_its_holder() {
        let objects = objects();
        let first = take(&objects, "the first", "").unwrap();
        assert_eq!(take(&objects, "the second", "").unwrap_err(), "the first");
        first.held().confirm().unwrap();
        drop(first);
        let second = take(&objects, "the second", "").unwrap();
        second.held().confirm().unwrap();
    }

    #[test]
    fn of_several_at_once_one_wins() {
        let objects = objects();
        let won = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| take(&objects, "one", "")))
                .collect();
            let leases: Vec<_> = takers
                .into_iter()
                .map(|taker| taker.join().unwrap())
                .collect();
            leases.iter().filter(|lease| lease.is_ok()).count()
        });
        assert_eq!(won, 1);
    }

    #[test]
    fn a_lock_known_to_be_free_takes_one_request_and_detects_other_holders() {
        let (objects, known) = (objects(), KnownLocks::default());
        known.note("lock", None);
        let first = take_known(&objects, "one", "", &known).unwrap();
        assert!(first.unbroken && objects.requests() == 1);
        let listed = |objects: &Objects| objects.list_all("").unwrap()[0].clone();
        assert_ne!(listed(&objects).len_bytes, RELEASED_BYTES);
        drop(first);
        assert_eq!(listed(&objects).len_bytes, RELEASED_BYTES);
        let before = objects.requests();
        drop(take_known(&objects, "one", "", &known).unwrap());
        assert_eq!(objects.requests() - before, 2, "acquired and released");
        // Another process holds it in between.
        drop(take(&objects, "another", "").unwrap());
        assert!(!take_known(&objects, "one", "", &known).unwrap().unbroken);
    }

    /// Leaves the lease as a dying process does: it is neither renewed nor released.
    fn dead(objects: &Objects, owner: &str) -> Arc<LeaseHolder> {
        let mut lease = take(objects, "a dead one", owner).unwrap();
        let held = Arc::clone(lease.held());
        lease.stop.send(()).unwrap();
        lease.thread.take().unwrap().join().unwrap();
        std::mem::forget(lease);
        held
    }

    #[test]
    fn a_lease_of_a_dead_holder_is_waited_for_except_at_its_own_place() {
        let objects = objects();
        let held = dead(&objects, "here");
        let begun = SystemClock.monotonic();
        let second = take(&objects, "here again", "here").unwrap();
        assert!(SystemClock.monotonic() - begun < TIME);
        drop(second);
        dead(&objects, "here");
        let begun = SystemClock.monotonic();
        let third = take(&objects, "elsewhere", "there").unwrap();
        assert!(SystemClock.monotonic() - begun >= TIME);
        // The first holder resumes: it has lost the lease, and says so.
        let lost = held.confirm().unwrap_err();
        assert!(lost.to_string().contains("taken over"), "{lost}");
        third.held().confirm().unwrap();
    }

    #[test]
    fn an_unreadable_lock_also_expires() {
        let objects = objects();
        objects
            .put_if("lock", Bytes::from_static(b"junk"), &None)
            .unwrap();
        take(&objects, "one", "").unwrap();
    }
}
