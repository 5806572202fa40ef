//! Limits the memory of unsent replies of all connections together.
//!
//! A connection makes no more replies while 256 KiB of them wait, so a slow client holds one reply
//! and little more. All connections together have a limit. A connection that makes replies beyond
//! it causes the connection with the largest weight to be dropped. The weight is the memory that it
//! holds; each second that its client has not read counts once more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::client::Client;

/// The connections by their numbers.
pub type Clients = Mutex<BTreeMap<u64, Arc<Client>>>;

/// The memory of unsent replies, with its limit.
#[derive(Debug)]
pub struct ReplyMemory {
    limit_bytes: usize,
    held_bytes: AtomicUsize,
    clients: Arc<Clients>,
    /// The server's coarse clock.
    now_ms: Arc<AtomicU64>,
}

/// The memory of one buffer of replies, charged to its connection.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<ReplyMemory>,
    client: Arc<Client>,
    bytes: usize,
}

impl ReplyMemory {
    pub fn new(limit_bytes: usize, clients: Arc<Clients>, now_ms: Arc<AtomicU64>) -> Self {
        Self {
            limit_bytes,
            held_bytes: AtomicUsize::new(0),
            clients,
            now_ms,
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether connections hold more than they may: dropped connections free it soon.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.held_bytes() > self.limit_bytes
    }

    /// Counts an HTTP answer until it is sent. `None` if there is no room for it: no connection is
    /// dropped for HTTP.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<HeldReply> {
        let held = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let memory = Arc::clone(self);
        let answer = HeldReply { memory, bytes };
        (held <= self.limit_bytes).then_some(answer)
    }

    /// Returns a connection's weight. A connection whose client has to read weighs a little more
    /// than one that is answered now.
    fn weight(&self, client: &Client) -> u64 {
        let (now, held) = (&self.now_ms, client.held_bytes.load(Ordering::Relaxed));
        let waiting_ms = match client.writing_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => 100 + now.load(Ordering::Relaxed).saturating_sub(since),
        };
        (held as u64).saturating_mul(1000 + waiting_ms)
    }

    /// Drops the largest connections, until the others are within the limit.
    fn drop_largest(&self) {
        let clients = self.clients.lock();
        let held = |client: &Arc<Client>| client.held_bytes.load(Ordering::Relaxed);
        // Dropped or ended connections free their memory as soon as their threads see it.
        let staying = clients.values().filter(|client| !client.is_dropped());
        let mut staying: Vec<_> = staying.collect();
        let mut left: usize = staying.iter().map(|client| held(client)).sum();
        staying.sort_by_cached_key(|client| self.weight(client));
        while left > self.limit_bytes
            && let Some(largest) = staying.pop()
        {
            let bytes = held(largest);
            largest.drop_for(bytes);
            left = left.saturating_sub(bytes.max(1));
        }
    }
}

impl Charge {
    pub fn new(memory: &Arc<ReplyMemory>, client: &Arc<Client>) -> Self {
        Self {
            memory: Arc::clone(memory),
            client: Arc::clone(client),
            bytes: 0,
        }
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records the buffer's new size.
    #[cold]
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let (all, own) = (&self.memory.held_bytes, &self.client.held_bytes);
        if bytes < before {
            all.fetch_sub(before - bytes, Ordering::Relaxed);
            own.fetch_sub(before - bytes, Ordering::Relaxed);
            return;
        }
        own.fetch_add(bytes - before, Ordering::Relaxed);
        let held = all.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before;
        if held > self.memory.limit_bytes {
            self.memory.drop_largest();
        }
    }

    /// Returns whether the connection was dropped: its further replies are discarded.
    pub fn is_dropped(&self) -> bool {
        self.client.is_dropped()
    }

    /// Returns whether memory is scarce: then buffers are not kept for reuse.
    pub fn is_scarce(&self) -> bool {
        self.memory.held_bytes() > self.memory.limit_bytes / 4
    }
}

/// The memory of an HTTP answer.
#[derive(Debug)]
pub struct HeldReply {
    memory: Arc<ReplyMemory>,
    bytes: usize,
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        let all = &self.memory.held_bytes;
        all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::port::Port;

    fn memory_of(clients: usize, limit_bytes: usize) -> (Arc<ReplyMemory>, Vec<Charge>) {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let list: Arc<Clients> = Arc::default();
        let memory = ReplyMemory::new(limit_bytes, Arc::clone(&list), Arc::default());
        let memory = Arc::new(memory);
        let charges = (0..clients as u64).map(|id| {
            let client = Arc::new(Client::new(id, (address, address), Port::Alone, 1));
            list.lock().insert(id, Arc::clone(&client));
            Charge::new(&memory, &client)
        });
        let charges = charges.collect();
        (memory, charges)
    }

    fn dropped(charges: &[Charge]) -> Vec<bool> {
        charges.iter().map(Charge::is_dropped).collect()
    }

    #[test]
    fn beyond_the_limit_the_largest_client_is_dropped() {
        let (memory, mut charges) = memory_of(3, 100);
        charges[0].set(20);
        charges[1].set(50);
        charges[2].set(30);
        assert_eq!(dropped(&charges), [false, false, false]);
        charges[0].set(30);
        assert_eq!(dropped(&charges), [false, true, false]);
        // Its memory counts as freed.
        charges[2].set(70);
        assert_eq!(dropped(&charges), [false, true, false]);
        charges[0].set(31);
        assert_eq!(dropped(&charges), [false, true, true]);
        drop(charges);
        assert_eq!(memory.held_bytes(), 0);
    }

    #[test]
    fn a_client_that_has_not_read_for_long_is_dropped_first() {
        let (memory, mut charges) = memory_of(3, 100);
        memory.now_ms.store(5000, Ordering::Relaxed);
        charges[0].set(30);
        charges[0].client.writing_ms.store(4000, Ordering::Relaxed);
        charges[1].set(30);
        charges[1].client.writing_ms.store(5000, Ordering::Relaxed);
        charges[2].set(50);
        assert_eq!(dropped(&charges), [true, false, false]);
        charges[0].set(0);
        charges[2].set(60);
        charges[1].set(41);
        assert_eq!(dropped(&charges), [true, false, true]);
    }

    #[test]
    fn a_client_that_exceeds_the_whole_limit_is_dropped() {
        let (memory, mut charges) = memory_of(2, 100);
        charges[0].set(10);
        charges[1].set(101);
        assert_eq!(dropped(&charges), [false, true]);
        charges.pop();
        assert_eq!(memory.held_bytes(), 10);
    }
}
