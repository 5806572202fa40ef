//! Outgoing messages, by node.
//!
//! The messages of all groups to one node leave in one frame, as many as fit. Nodes take turns, so
//! that much traffic to one node delays no other.
//!
//! A thread that added messages sends them, without a replica's lock. If another thread is sending,
//! that thread sends these, too, so that the messages to a node keep their order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_replica::{PeerMessage, encode};
use parking_lot::Mutex;

use crate::environment::{MessageSender, NodeKey};

/// The most bytes of messages that wait for one node. More are dropped: the node does not read, and
/// its peers send again what it missed.
const MOST_TO_SEND_BYTES: usize = 64 << 20;
/// The most bytes of messages in one frame, unless one message has more. The messages to other
/// nodes wait while a frame is encoded and sent.
const MOST_FRAME_BYTES: usize = 512 << 10;

#[derive(Debug)]
pub(crate) struct Outbox {
    post: Arc<dyn MessageSender>,
    waiting: Mutex<OutgoingMessages>,
}

#[derive(Debug, Default)]
struct OutgoingMessages {
    by_node: BTreeMap<NodeKey, NodeMail>,
    /// The number of callers that are about to add more.
    held: usize,
    /// A thread is sending, and looks for more afterwards.
    is_sending: bool,
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
    pub fn new(post: Arc<dyn MessageSender>) -> Self {
        Self {
            post,
            waiting: Mutex::default(),
        }
    }

    /// Adds a message. The caller then calls [`Outbox::deliver`].
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
        drop(waiting);
        self.deliver();
    }

    /// Sends the messages that wait, unless another thread does or is about to. REQUIRES: the
    /// caller holds no replica's lock.
    pub fn deliver(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.is_sending {
            return;
        }
        while !waiting.by_node.is_empty() && waiting.held == 0 && !waiting.is_closed {
            waiting.is_sending = true;
            let frames = waiting.take();
            drop(waiting);
            for (to, messages) in frames {
                self.post.send(to, encode(&messages));
            }
            waiting = self.waiting.lock();
        }
        waiting.is_sending = false;
    }

    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
    }
}

impl OutgoingMessages {
    /// Takes a frame for each node that has messages.
    fn take(&mut self) -> Vec<(NodeKey, Vec<PeerMessage>)> {
        let mails = self.by_node.iter_mut();
        let frames = mails.map(|(to, mail)| (*to, mail.take_frame())).collect();
        self.by_node.retain(|_, mail| !mail.messages.is_empty());
        frames
    }
}
