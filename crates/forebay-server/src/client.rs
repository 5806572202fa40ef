//! The state of a connection that other threads see, for CLIENT LIST and for the sweep.
//!
//! The sweep ends connections that exceed a deadline.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::cluster::PeerIdentity;
use crate::port::Port;

/// A connection, as other threads see it. Times are milliseconds on the server's coarse clock.
#[derive(Debug)]
pub struct Client {
    pub id: u64,
    pub address: SocketAddr,
    pub local: SocketAddr,
    /// The port that the client connected to.
    pub port: Port,
    pub connected_ms: u64,
    /// Whether the connection has passed TLS and AUTH.
    pub admitted: AtomicBool,
    /// Whether the connection waits for input and owes no reply.
    pub idle: AtomicBool,
    pub active_ms: AtomicU64,
    /// When the client last failed to accept output; 0 if no output waits.
    pub writing_ms: AtomicU64,
    /// Whether READONLY is in effect: following replicas answer reads.
    pub reads_followers: AtomicBool,
    /// Set by CLIENT KILL: the connection ends within a tenth of a second.
    pub killed: AtomicBool,
    /// Memory of the replies that were made and not sent.
    pub held_bytes: AtomicUsize,
    /// The memory that the connection held when it was dropped for it. Set once.
    dropped_bytes: OnceLock<usize>,
    task: OnceLock<AbortHandle>,
    /// The node that connected, on the peer port, once it is known.
    pub node: Mutex<Option<PeerIdentity>>,
    pub details: Mutex<Details>,
}

#[derive(Debug, Default, Clone)]
pub struct Details {
    pub name: String,
    pub library: String,
    pub library_version: String,
    pub user: String,
    pub last_command: &'static str,
    pub resp3: bool,
}

impl Client {
    pub fn new(
        id: u64,
        (address, local): (SocketAddr, SocketAddr),
        port: Port,
        now_ms: u64,
    ) -> Self {
        Self {
            id,
            address,
            local,
            port,
            connected_ms: now_ms,
            // Nodes show certificates and do not log in.
            admitted: AtomicBool::new(port == Port::Peer),
            idle: AtomicBool::new(false),
            active_ms: AtomicU64::new(now_ms),
            writing_ms: AtomicU64::new(0),
            reads_followers: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            held_bytes: AtomicUsize::new(0),
            dropped_bytes: OnceLock::new(),
            task: OnceLock::new(),
            node: Mutex::default(),
            details: Mutex::default(),
        }
    }

    /// Sets the task that serves the connection. Called once, when it starts.
    pub fn served_by(&self, task: AbortHandle) {
        if self.is_dropped() {
            task.abort();
        }
        // It starts once.
        let _ = self.task.set(task);
    }

    /// Ends the connection for the bytes of replies that it holds. Its thread frees them when it
    /// sees this.
    pub fn drop_for(&self, bytes: usize) {
        if self.dropped_bytes.set(bytes).is_ok() {
            self.end();
        }
    }

    pub fn end(&self) {
        self.task.get().into_iter().for_each(AbortHandle::abort);
    }

    pub fn has_ended(&self) -> bool {
        self.task.get().is_some_and(AbortHandle::is_finished)
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped_bytes.get().is_some()
    }

    /// Returns the bytes that the connection held if it was dropped for them.
    pub fn dropped_bytes(&self) -> Option<usize> {
        self.dropped_bytes.get().copied()
    }

    /// Formats the client's line of CLIENT LIST and CLIENT INFO.
    pub fn line(&self, now_ms: u64) -> String {
        let details = self.details.lock().clone();
        let age = now_ms.saturating_sub(self.connected_ms) / 1000;
        let idle = now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000;
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={age} idle={idle} flags=N db=0 sub=0 psub=0 \
             ssub=0 multi=-1 omem={} cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            details.name,
            self.held_bytes.load(Ordering::Relaxed),
            if details.last_command.is_empty() {
                "NULL"
            } else {
                details.last_command
            },
            details.user,
            if details.resp3 { 3 } else { 2 },
            details.library,
            details.library_version,
        )
    }
}
