//! The part of a connection that its commands see and change.

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

/// The part of a connection's state that its commands see and change.
#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    /// `None` until AUTH, where that is asked for.
    pub user: Option<Arc<User>>,
    /// The commands since MULTI.
    pub queued: Option<QueuedCommands>,
    /// The keys that WATCH named.
    pub watches: Watches,
    /// Keys whose versions replicas are to be asked for: WATCH is answered then.
    pub watching: Option<WatchAsk>,
    pub replies: Replies,
    /// Set by QUIT: the connection ends after the reply.
    pub closing: bool,
    /// READONLY was asked for: the client is one of a cluster, and reads replicas.
    pub reads_replicas: bool,
    /// Redirects that tell the client of other classes.
    pub redirects: Option<ClassRedirects>,
    /// How many changes of the classes were there, as of the last look.
    changes: u64,
    /// Which reading of the users file `user` is from.
    generation: u64,
    wrong_secrets: u32,
    /// Before the reply is sent and anything else is answered.
    pause: Option<Duration>,
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
    /// A MULTI that another node sends is answered whole, however many commands are queued.
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

    /// As if it had just connected: what RESET asks for.
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

    /// Takes over what was read anew of the users. `Err` when the user is gone or has another
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

    /// Lets clients that know classes find out about other ones.
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

    /// Has the client wait, each time longer, and tells of it.
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

    /// Whether commands run as they come, all replies being wanted.
    pub fn is_plain(&self) -> bool {
        self.user.is_some()
            && self.queued.is_none()
            && self.replies == Replies::On
            && self.redirects.is_none()
    }
}
