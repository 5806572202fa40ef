//! Outgoing messages, by node.
//!
//! The messages of all groups to one node leave in one frame, as many as fit. Nodes take turns, so
//! that much traffic to one node delays no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_replica::{PeerMessage, encode};
use parking_lot::{Condvar, Mutex};

use crate::environment::{MessageSender, NodeKey};

/// The most bytes of messages that wait for one node. More are dropped: the node does not read, and
/// its peers send again what it missed.
const MOST_TO_SEND_BYTES: usize = 64 << 20;
/// The most bytes of messages in one frame, unless one message has more. The messages to other
/// nodes wait while a frame is encoded and sent.
const MOST_FRAME_BYTES: usize = 512 << 10;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<OutgoingMessages>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct OutgoingMessages {
    by_node: BTreeMap<NodeKey, NodeMail>,
    /// The number of callers that are about to add more.
    held: usize,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct NodeMail {
    messages: VecDeque<PeerMessage>,
    bytes: usize,
}

impl NodeMail {
    /// Takes the first messages that fit in a frame, at least one.
    fn take_frame(&mut self) -> Vec<PeerMessage> {
        let mut bytes = 0;
        let fits = |message: &&PeerMessage| {
            let is_first = bytes == 0;
            bytes += message.size();
            is_first || bytes <= MOST_FRAME_BYTES
        };
        let count = self.messages.iter().take_while(fits).count();
        let first: Vec<PeerMessage> = self.messages.drain(..count).collect();
        self.bytes -= first.iter().map(PeerMessage::size).sum::<usize>();
        debug_assert!(
            !first.is_empty(),
            "a frame without messages, of {} bytes that wait",
            self.bytes
        );
        debug_assert!(
            self.bytes == 0 || !self.messages.is_empty(),
            "no message waits, and {} bytes are counted",
            self.bytes
        );
        first
    }
}

impl Outbox {
    pub fn push(&self, to: NodeKey, message: PeerMessage) {
        let mut waiting = self.waiting.lock();
        let mail = waiting.by_node.entry(to).or_default();
        let bytes = message.size();
        debug_assert!(
            mail.bytes <= MOST_TO_SEND_BYTES,
            "{} bytes wait for {to:?}",
            mail.bytes
        );
        if mail.bytes + bytes <= MOST_TO_SEND_BYTES {
            mail.bytes += bytes;
            mail.messages.push_back(message);
        }
        if waiting.held == 0 {
            drop(waiting);
            self.came.notify_one();
        }
    }

    /// Holds the messages that arrive while `work` runs, so that they leave together.
    pub fn together(&self, work: impl FnOnce()) {
        self.waiting.lock().held += 1;
        work();
        let mut waiting = self.waiting.lock();
        debug_assert!(
            waiting.held > 0,
            "messages are let go that nobody held back"
        );
        waiting.held -= 1;
        if waiting.held == 0 && !waiting.by_node.is_empty() {
            drop(waiting);
            self.came.notify_one();
        }
    }

    /// Sends messages until the outbox is closed.
    pub fn run(&self, post: &dyn MessageSender) {
        while let Some(frames) = self.take() {
            for (to, messages) in frames {
                post.send(to, encode(&messages));
            }
        }
    }

    /// Takes a frame for each node that has messages.
    fn take(&self) -> Option<Vec<(NodeKey, Vec<PeerMessage>)>> {
        let mut waiting = self.waiting.lock();
        while (waiting.by_node.is_empty() || waiting.held > 0) && !waiting.is_closed {
            self.came.wait(&mut waiting);
        }
        if waiting.is_closed {
            return None;
        }
        let mails = waiting.by_node.iter_mut();
        let frames = mails.map(|(to, mail)| (*to, mail.take_frame())).collect();
        waiting.by_node.retain(|_, mail| !mail.messages.is_empty());
        Some(frames)
    }

    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }
}

/// Delivers messages through [`Outbox::run`].
pub(crate) fn deliver(
    outbox: &Arc<Outbox>,
    post: &Arc<dyn MessageSender>,
) -> impl FnOnce() + Send + use<> {
    let (outbox, post) = (Arc::clone(outbox), Arc::clone(post));
    move || outbox.run(&*post)
}
