//! Messages on their way out: those of all groups to one node leave in one frame.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_replica::{PeerMessage, encode};
use parking_lot::{Condvar, Mutex};

use crate::outside::{NodeKey, Post};

/// More of it to one node is thrown away: it does not listen, and is told anew what it missed.
const MOST_TO_SEND_BYTES: usize = 64 << 20;
/// So many bytes of messages at most go into one frame.
const MOST_FRAME_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<ToSend>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct ToSend {
    by_node: BTreeMap<NodeKey, NodeMail>,
    /// So many are about to add more.
    held: usize,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct NodeMail {
    messages: Vec<PeerMessage>,
    bytes: usize,
}

impl Outbox {
    pub fn push(&self, to: NodeKey, message: PeerMessage) {
        let mut waiting = self.waiting.lock();
        let mail = waiting.by_node.entry(to).or_default();
        let bytes = message.size();
        if mail.bytes + bytes <= MOST_TO_SEND_BYTES {
            mail.bytes += bytes;
            mail.messages.push(message);
        }
        if waiting.held == 0 {
            drop(waiting);
            self.came.notify_one();
        }
    }

    /// What comes while `work` is done leaves together.
    pub fn together(&self, work: impl FnOnce()) {
        self.waiting.lock().held += 1;
        work();
        let mut waiting = self.waiting.lock();
        waiting.held -= 1;
        if waiting.held == 0 && !waiting.by_node.is_empty() {
            drop(waiting);
            self.came.notify_one();
        }
    }

    /// Sends what comes until the outbox is closed.
    pub fn run(&self, post: &dyn Post) {
        while let Some(mails) = self.take() {
            for (to, mail) in mails {
                for messages in framed(&mail.messages) {
                    post.send(to, encode(messages));
                }
            }
        }
    }

    fn take(&self) -> Option<BTreeMap<NodeKey, NodeMail>> {
        let mut waiting = self.waiting.lock();
        while (waiting.by_node.is_empty() || waiting.held > 0) && !waiting.is_closed {
            self.came.wait(&mut waiting);
        }
        match waiting.is_closed {
            true => None,
            false => Some(std::mem::take(&mut waiting.by_node)),
        }
    }

    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }
}

/// The messages in parts, each of which goes into a frame.
fn framed(mut messages: &[PeerMessage]) -> impl Iterator<Item = &[PeerMessage]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |message: &&PeerMessage| {
            bytes += message.size();
            bytes <= MOST_FRAME_BYTES
        };
        let count = messages.iter().take_while(fits).count().max(1);
        let (first, rest) = messages.split_at_checked(count)?;
        messages = rest;
        Some(first)
    })
}

/// See [`Outbox::run`].
pub(crate) fn deliver(outbox: &Arc<Outbox>, post: &Arc<dyn Post>) -> impl FnOnce() + Send + use<> {
    let (outbox, post) = (Arc::clone(outbox), Arc::clone(post));
    move || outbox.run(&*post)
}
