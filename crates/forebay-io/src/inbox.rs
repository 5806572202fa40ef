//! A queue to one thread that waits for messages or for a moment of its clock.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::Clock;

/// The waiting thread, once it waits.
type Waiter = Arc<Mutex<Option<Thread>>>;

/// The sending end. Clones send to the same thread.
#[derive(Debug)]
pub struct InboxSender<T> {
    /// Dropped before `wakes`: the receiver then finds it gone.
    sender: Sender<T>,
    wakes: Wakeup,
}

/// The receiving end, for one thread.
#[derive(Debug)]
pub struct Inbox<T> {
    receiver: Receiver<T>,
    waiter: Waiter,
}

/// The result of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt<T> {
    One(T),
    /// The time is over, or nearly so.
    Nothing,
    /// All senders are gone.
    Ended,
}

/// Wakes the receiver, also when it is dropped.
#[derive(Debug, Clone)]
struct Wakeup(Waiter);

/// Returns both ends.
pub fn inbox<T>() -> (InboxSender<T>, Inbox<T>) {
    let (sender, receiver) = channel();
    let waiter = Waiter::default();
    let wakes = Wakeup(Arc::clone(&waiter));
    (InboxSender { sender, wakes }, Inbox { receiver, waiter })
}

impl<T> InboxSender<T> {
    /// Sends a message. Returns whether there is a receiver.
    pub fn send(&self, what: T) -> bool {
        let is_sent = self.sender.send(what).is_ok();
        self.wakes.wake();
        is_sent
    }
}

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            wakes: self.wakes.clone(),
        }
    }
}

impl<T> Inbox<T> {
    /// Waits for a message, at most for `limit`. It may return early with nothing.
    pub fn receive(&self, clock: &dyn Clock, limit: Duration) -> Receipt<T> {
        self.note_waiter();
        match self.take() {
            Receipt::Nothing if !limit.is_zero() => clock.park(limit),
            found => return found,
        }
        self.take()
    }

    /// Returns a message without waiting.
    pub fn take(&self) -> Receipt<T> {
        match self.receiver.try_recv() {
            Ok(one) => Receipt::One(one),
            Err(TryRecvError::Empty) => Receipt::Nothing,
            Err(TryRecvError::Disconnected) => Receipt::Ended,
        }
    }

    /// Makes later sends wake this thread.
    fn note_waiter(&self) {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        let this = std::thread::current();
        if waiter.as_ref().map(Thread::id) != Some(this.id()) {
            *waiter = Some(this);
        }
    }
}

impl Wakeup {
    fn wake(&self) {
        let waiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*waiter {
            thread.unpark();
        }
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SystemClock, start_thread};

    const LONG: Duration = Duration::from_secs(600);

    /// Waits again as often as it returns for nothing.
    fn next<T>(inbox: &Inbox<T>) -> Receipt<T> {
        loop {
            match inbox.receive(&SystemClock, LONG) {
                Receipt::Nothing => {}
                came => return came,
            }
        }
    }

    #[test]
    fn messages_and_the_end_wake_a_waiting_receiver() {
        let (sender, inbox) = inbox();
        assert_eq!(
            inbox.receive(&SystemClock, Duration::ZERO),
            Receipt::Nothing
        );
        let other = sender.clone();
        let sending = start_thread("sender", move || {
            (0..100).for_each(|number| assert!(other.send(number)));
            drop(sender);
        });
        let came: Vec<_> = (0..100).map(|_| next(&inbox)).collect();
        assert_eq!(came, (0..100).map(Receipt::One).collect::<Vec<_>>());
        assert_eq!(next(&inbox), Receipt::Ended);
        sending.unwrap().join().unwrap();
    }

    #[test]
    fn sending_fails_once_the_receiver_is_gone() {
        let (sender, inbox) = inbox();
        drop(inbox);
        assert!(!sender.send(1));
    }
}
