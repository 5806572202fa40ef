//! What the server knows of one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::command::Queued;
use crate::resp::RequestLimits;
use crate::shared::Shared;
use crate::users::User;

/// The part of a connection's state that its commands see and change.
#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    /// `None` until AUTH, where that is asked for.
    pub user: Option<Arc<User>>,
    /// The commands since MULTI.
    pub queued: Option<Queued>,
    pub replies: Replies,
    /// Set by QUIT: the connection ends after the reply.
    pub closing: bool,
}

/// What CLIENT REPLY asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    On,
    Off,
    /// None to the next command, and none to the one that said so.
    SkipNext,
    Skip,
}

/// What others see of a connection: CLIENT LIST, and the sweep that ends those that overstay.
/// Times are milliseconds on the server's coarse clock.
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

impl Session {
    pub fn new(client: Arc<Client>, shared: &Shared) -> Self {
        let mut session = Self {
            client,
            user: None,
            queued: None,
            replies: Replies::On,
            closing: false,
        };
        if shared.users.is_none() {
            session.log_in(Arc::clone(&shared.anyone));
        }
        session
    }

    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.details.lock().user = user.name().to_owned();
        self.client.admitted.store(true, Ordering::Relaxed);
        self.user = Some(user);
    }

    /// As if it had just connected: what RESET asks for.
    pub fn reset(&mut self, shared: &Shared) {
        self.queued = None;
        self.replies = Replies::On;
        self.user = None;
        let mut details = self.client.details.lock();
        details.name.clear();
        details.user.clear();
        details.resp3 = false;
        drop(details);
        if shared.users.is_none() {
            self.log_in(Arc::clone(&shared.anyone));
        }
    }

    pub fn limits(&self, shared: &Shared) -> RequestLimits {
        match self.user {
            Some(_) => shared.config.limits.request,
            None => RequestLimits::BEFORE_AUTH,
        }
    }

    /// Whether commands run as they come, all replies being wanted.
    pub fn is_plain(&self) -> bool {
        self.user.is_some() && self.queued.is_none() && self.replies == Replies::On
    }
}
