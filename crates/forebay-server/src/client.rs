//! What others see of a connection: CLIENT LIST, and the sweep that ends those that overstay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// What others see of a connection. Times are milliseconds on the server's coarse clock.
#[derive(Debug)]
pub struct Client {
    pub id: u64,
    pub address: SocketAddr,
    pub local: SocketAddr,
    pub connected_ms: u64,
    /// Whether it got past TLS and AUTH.
    pub admitted: AtomicBool,
    /// Whether it waits for input and owes no reply.
    pub idle: AtomicBool,
    pub active_ms: AtomicU64,
    /// Since when the client has not taken a piece of output; 0: nothing waits.
    pub writing_ms: AtomicU64,
    /// Set by CLIENT KILL: the connection ends within a tenth of a second.
    pub killed: AtomicBool,
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
    pub fn new(id: u64, address: SocketAddr, local: SocketAddr, now_ms: u64) -> Self {
        Self {
            id,
            address,
            local,
            connected_ms: now_ms,
            admitted: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            active_ms: AtomicU64::new(now_ms),
            writing_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            details: Mutex::default(),
        }
    }

    /// The client's line in CLIENT LIST and CLIENT INFO.
    pub fn line(&self, now_ms: u64) -> String {
        let details = self.details.lock().clone();
        let age = now_ms.saturating_sub(self.connected_ms) / 1000;
        let idle = now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000;
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={age} idle={idle} flags=N db=0 sub=0 psub=0 \
             ssub=0 multi=-1 cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            details.name,
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
