//! The state of a connection that its commands see and change.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::Client;
use crate::cluster::ClassRedirects;
use crate::command::{QueuedCommands, WatchAsk, Watches};
use crate::port::Port;
use crate::resp::RequestLimits;
use crate::shared::Shared;
use crate::users::User;

/// The session of a connection.
#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    /// `None` until AUTH, if that is required.
    pub user: Option<Arc<User>>,
    /// The commands since MULTI.
    pub queued: Option<QueuedCommands>,
    /// The keys that WATCH named.
    pub watches: Watches,
    /// Keys whose versions the replicas still have to return before WATCH is answered.
    pub watching: Option<WatchAsk>,
    pub replies: Replies,
    /// Set by QUIT: the connection ends after the reply.
    pub closing: bool,
    /// Whether READONLY is in effect: the client is a cluster client and reads replicas.
    pub reads_replicas: bool,
    /// Pending redirects that make the client fetch the classes again.
    pub redirects: Option<ClassRedirects>,
    /// The number of changes of the classes, as of the last check.
    changes: u64,
    /// The number of the secrets when this session last checked them. It rises when the users file
    /// is read again, and when slot classes change.
    generation: u64,
    wrong_secrets: u32,
    /// The pause before the reply is sent and the next command is answered.
    pause: Option<Duration>,
}

/// The mode of CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    On,
    Off,
    /// No reply to the next command, and none to the command that sets this.
    SkipNext,
    Skip,
}

impl Session {
    /// Returns whether the connection is within a MULTI of another node, which is answered as a
    /// whole, however many commands are queued.
    pub fn is_amid_forwarded_multi(&self) -> bool {
        self.queued.is_some() && self.client.port == Port::Peer
    }

    pub fn new(client: Arc<Client>, shared: &Shared) -> Self {
        let mut session = Self {
            client,
            user: None,
            queued: None,
            watches: Watches::default(),
            watching: None,
            replies: Replies::On,
            closing: false,
            reads_replicas: false,
            redirects: None,
            changes: shared
                .cluster
                .as_ref()
                .map_or(0, |cluster| cluster.changes.number()),
            generation: shared.secrets.generation(),
            wrong_secrets: 0,
            pause: None,
        };
        if !shared.has_users() {
            session.log_in(Arc::clone(&shared.anyone));
        }
        session
    }

    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.details.lock().user = user.name().to_owned();
        self.client.admitted.store(true, Ordering::Relaxed);
        self.user = Some(user);
    }

    /// Resets the session to that of a new connection, for RESET.
    pub fn reset(&mut self, shared: &Shared) {
        self.queued = None;
        self.watches.clear();
        self.reads_replicas = false;
        self.client.reads_followers.store(false, Ordering::Relaxed);
        self.replies = Replies::On;
        self.user = None;
        let mut details = self.client.details.lock();
        details.name.clear();
        details.user.clear();
        details.resp3 = false;
        drop(details);
        if !shared.has_users() {
            self.log_in(Arc::clone(&shared.anyone));
        }
    }

    /// Applies changed users and slot classes. `Err` if the user was removed or has another
    /// password.
    #[inline]
    pub fn renew(&mut self, shared: &Shared) -> Result<(), String> {
        if self.generation == shared.secrets.generation() {
            return Ok(());
        }
        self.renew_user(shared)
    }

    fn renew_user(&mut self, shared: &Shared) -> Result<(), String> {
        self.generation = shared.secrets.generation();
        self.renew_redirects(shared);
        let secrets = shared.secrets.load();
        let (Some(users), Some(user)) = (&secrets.users, &self.user) else {
            return Ok(());
        };
        let name = user.name().to_owned();
        self.user = users.renewed(user);
        match self.user {
            Some(_) => Ok(()),
            None => Err(name),
        }
    }

    /// Sets up redirects that let clients find changed classes.
    fn renew_redirects(&mut self, shared: &Shared) {
        let Some(cluster) = &shared.cluster else {
            return;
        };
        let knows_classes = match self.client.port {
            Port::Class(_) => true,
            Port::Cluster => self.reads_replicas,
            Port::Alone | Port::Gateway | Port::Peer => false,
        };
        let before = std::mem::replace(&mut self.changes, cluster.changes.number());
        if knows_classes && before != self.changes && shared.config.default_table.is_none() {
            let table = self.user.as_ref().and_then(|user| user.only_table());
            let redirects = cluster.changes.redirects(table);
            self.redirects = Some(redirects);
        }
    }

    /// Delays the client, each time longer, and logs the wrong password.
    pub fn note_wrong_password(&mut self, shared: &Shared, user: &[u8]) {
        let user = String::from_utf8_lossy(&user[..user.len().min(64)]);
        shared.note_wrong_secret(self.client.address, &user);
        let pause = shared.config.limits.auth_pause * 2u32.pow(self.wrong_secrets.min(4));
        self.pause = Some(pause);
        self.wrong_secrets += 1;
    }

    pub fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    pub fn limits(&self, shared: &Shared) -> RequestLimits {
        match self.user {
            Some(_) => shared.config.limits.request,
            None => RequestLimits::BEFORE_AUTH,
        }
    }

    /// Returns whether commands run as they arrive and all replies are wanted.
    pub fn is_plain(&self) -> bool {
        self.user.is_some()
            && self.queued.is_none()
            && self.replies == Replies::On
            && self.redirects.is_none()
    }
}
