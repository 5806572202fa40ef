//! Locks in object storage: leases.
//!
//! The lock is an object that names its holder. The holder rewrites it every third of the lease's time;
//! who wants it and sees it unchanged for the whole of that time, by the own clock, takes it over. Every
//! write is conditional on what was there before, so one of several wins. No clocks are compared.
//!
//! A holder that was held up (a stopped process, a store out of reach) may have lost it: before a write
//! that counts, [`Held::confirm`] finds out.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use forebay_run::io::{Clock, Lock, Random};
use object_store::UpdateVersion;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::objects::{News, Objects, Put, Seen};

/// Between two looks at a lock that somebody else holds.
const LOOK: Duration = Duration::from_millis(150);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    forebay_lease: u64,
    /// For people.
    holder: String,
    /// The place of work of the holder, of which there is one holder at a time; empty: none.
    owner: String,
    /// Random: no two holders have the same.
    token: u64,
    /// Rises, so that no two contents are alike.
    renewal: u64,
    released: bool,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub holder: &'a str,
    /// See [`Document::owner`]. The caller holds that place: an earlier holder from there is dead.
    pub owner: &'a str,
    pub time: Duration,
}

/// A held lease. It is given back when dropped.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Held>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

/// What the holder knows of its lease.
#[derive(Debug)]
pub struct Held {
    objects: Objects,
    clock: Arc<dyn Clock>,
    name: String,
    time: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    document: Document,
    seen: Seen,
    /// By the monotonic clock: until then nobody else can have taken it over.
    valid_until: Duration,
    lost: bool,
}

impl Lock for Lease {}

impl Lease {
    /// Takes the lease, or gives the words of who holds it. Waits as long as it takes to know whether the
    /// holder lives.
    pub fn take(
        objects: &Objects,
        clock: &Arc<dyn Clock>,
        random: &dyn Random,
        wanted: Wanted<'_>,
    ) -> io::Result<Result<Self, String>> {
        let document = Document {
            forebay_lease: 1,
            holder: wanted.holder.to_owned(),
            owner: wanted.owner.to_owned(),
            token: random.next_u64(),
            renewal: 0,
            released: false,
        };
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
                Put::Done(seen) => {
                    let held = Held {
                        objects: objects.clone(),
                        clock: Arc::clone(clock),
                        name: wanted.name.to_owned(),
                        time: wanted.time,
                        state: Mutex::new(State {
                            document,
                            seen,
                            valid_until: before + wanted.time,
                            lost: false,
                        }),
                    };
                    return Self::keep(held).map(Ok);
                }
                Put::Changed if clock.monotonic() > give_up => {
                    return Ok(Err("others, one after the other".to_owned()));
                }
                Put::Changed => clock.sleep(LOOK),
            }
        }
    }

    fn keep(held: Held) -> io::Result<Self> {
        let held = Arc::new(held);
        let (stop, stopped) = channel();
        let kept = Arc::clone(&held);
        let thread = std::thread::Builder::new()
            .name("forebay-lease".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(kept.time / 3) == Err(RecvTimeoutError::Timeout) {
                    if let Err(error) = kept.renew() {
                        warn!(lock = kept.name, %error, "a lock could not be renewed");
                    }
                }
            })?;
        Ok(Self {
            held,
            stop,
            thread: Some(thread),
        })
    }

    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Err(error) = self.held.write(|document| document.released = true) {
            warn!(lock = self.held.name, %error, "a lock was not given back; it runs out by itself");
        }
    }
}

impl Held {
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
            Put::Done(seen) => {
                state.seen = seen;
                state.document = next;
                state.valid_until = before + self.time;
                Ok(())
            }
            Put::Changed => {
                state.lost = true;
                Err(self.lost())
            }
        }
    }

    /// Fails unless the lease is this process's now.
    pub fn confirm(&self) -> io::Result<()> {
        let state = self.state.lock();
        let (lost, valid) = (state.lost, self.clock.monotonic() < state.valid_until);
        drop(state);
        match (lost, valid) {
            (true, _) => Err(self.lost()),
            (false, true) => Ok(()),
            (false, false) => self.renew(),
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

/// Waits until a lock that somebody had is free to be taken, by a write over what is given back; or knows
/// that its holder lives.
fn watch(
    objects: &Objects,
    clock: &dyn Clock,
    wanted: Wanted<'_>,
    bytes: &[u8],
    mut seen: UpdateVersion,
) -> io::Result<Result<Seen, String>> {
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
    Ok(serde_json::to_vec(document)
        .map_err(io::Error::other)?
        .into())
}
