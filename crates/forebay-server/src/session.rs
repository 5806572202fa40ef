//! The part of a connection that its commands see and change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::Client;
use crate::command::{Queued, Watches};
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
    /// The keys that WATCH named.
    pub watches: Watches,
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

impl Session {
    pub fn new(client: Arc<Client>, shared: &Shared) -> Self {
        let mut session = Self {
            client,
            user: None,
            queued: None,
            watches: Watches::default(),
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
        self.watches.clear();
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
