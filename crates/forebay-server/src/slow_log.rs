//! The log of slow commands: SLOWLOG.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::resp::Args;

/// The number of a command's arguments that are kept, and the bytes of each.
const MAX_ARGUMENTS: usize = 32;
const MAX_ARGUMENT_BYTES: usize = 128;

/// The latest slow commands. The limits are those of Redis until CONFIG SET changes them.
#[derive(Debug)]
pub struct SlowLog {
    /// Negative: no command is recorded.
    slower_than_us: AtomicI64,
    max_len: AtomicU64,
    entries: Mutex<SlowEntries>,
}

#[derive(Debug, Default)]
struct SlowEntries {
    next_id: u64,
    /// The newest first.
    entries: VecDeque<SlowEntry>,
}

/// A slow command.
#[derive(Debug, Clone)]
pub struct SlowEntry {
    pub id: u64,
    pub unix_s: u64,
    pub time: Duration,
    pub args: Vec<Vec<u8>>,
    pub address: SocketAddr,
    pub client_name: String,
    pub user: String,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            slower_than_us: AtomicI64::new(10_000),
            max_len: AtomicU64::new(128),
            entries: Mutex::default(),
        }
    }
}

impl SlowLog {
    #[inline]
    pub fn is_slow(&self, time: Duration) -> bool {
        let least_us = self.slower_than_us.load(Ordering::Relaxed);
        u64::try_from(least_us).is_ok_and(|least_us| time >= Duration::from_micros(least_us))
    }

    /// Records a command and gives it an id.
    pub fn note(&self, entry: SlowEntry) {
        let most = usize::try_from(self.max_len()).unwrap_or(usize::MAX);
        let mut log = self.entries.lock();
        let id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(SlowEntry { id, ..entry });
        log.entries.truncate(most);
    }

    /// Returns the entries that `may_see` accepts, the newest first.
    pub fn entries(&self, may_see: impl Fn(&SlowEntry) -> bool) -> Vec<SlowEntry> {
        let log = self.entries.lock();
        let seen = log.entries.iter().filter(|entry| may_see(entry));
        seen.cloned().collect()
    }

    pub fn reset(&self) {
        self.entries.lock().entries.clear();
    }

    pub fn slower_than_us(&self) -> i64 {
        self.slower_than_us.load(Ordering::Relaxed)
    }

    pub fn set_slower_than_us(&self, least_us: i64) {
        self.slower_than_us.store(least_us, Ordering::Relaxed);
    }

    pub fn max_len(&self) -> u64 {
        self.max_len.load(Ordering::Relaxed)
    }

    pub fn set_max_len(&self, len: u64) {
        self.max_len.store(len, Ordering::Relaxed);
        let most = usize::try_from(len).unwrap_or(usize::MAX);
        self.entries.lock().entries.truncate(most);
    }
}

/// Returns a command's arguments as the log keeps them: few, short, and without passwords.
pub fn kept(args: &Args<'_>) -> Vec<Vec<u8>> {
    if args.is(0, "auth") || args.is(0, "hello") {
        return vec![args.get(0).to_vec(), b"(redacted)".to_vec()];
    }
    let shown = match args.len() {
        0..=MAX_ARGUMENTS => args.len(),
        _ => MAX_ARGUMENTS - 1,
    };
    let mut kept: Vec<_> = args.iter().take(shown).map(shortened).collect();
    if shown < args.len() {
        let more = args.len() - shown;
        kept.push(format!("... ({more} more arguments)").into_bytes());
    }
    kept
}

fn shortened(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= MAX_ARGUMENT_BYTES {
        return arg.to_vec();
    }
    let more = arg.len() - MAX_ARGUMENT_BYTES;
    let note = format!("... ({more} more bytes)");
    [&arg[..MAX_ARGUMENT_BYTES], note.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedArgs;

    fn entry(user: &str) -> SlowEntry {
        SlowEntry {
            id: 0,
            unix_s: 1,
            time: Duration::from_millis(20),
            args: Vec::new(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            client_name: String::new(),
            user: user.to_owned(),
        }
    }

    #[test]
    fn the_newest_entries_are_kept_and_ids_continue() {
        let log = SlowLog::default();
        assert!(log.is_slow(Duration::from_millis(10)) && !log.is_slow(Duration::from_millis(9)));
        log.set_slower_than_us(-1);
        assert!(!log.is_slow(Duration::MAX));
        log.set_slower_than_us(0);
        assert!(log.is_slow(Duration::ZERO));
        log.set_max_len(2);
        ["a", "b", "a"]
            .iter()
            .for_each(|user| log.note(entry(user)));
        let ids = |log: &SlowLog| -> Vec<u64> {
            log.entries(|_| true).iter().map(|entry| entry.id).collect()
        };
        assert_eq!(ids(&log), [2, 1]);
        assert_eq!(log.entries(|entry| entry.user == "b").len(), 1);
        log.set_max_len(1);
        assert_eq!(ids(&log), [2]);
        log.reset();
        log.note(entry("c"));
        assert_eq!(ids(&log), [3]);
    }

    #[test]
    fn arguments_are_truncated_and_passwords_omitted() {
        let many: OwnedArgs = (0..40).map(|n| n.to_string()).collect();
        let shown = kept(&many.borrow());
        assert_eq!(shown.len(), 32);
        assert_eq!(shown[31], b"... (9 more arguments)");
        let long: OwnedArgs = ["set".to_owned(), "x".repeat(130)].into_iter().collect();
        assert!(kept(&long.borrow())[1].ends_with(b"x... (2 more bytes)"));
        let secret: OwnedArgs = ["HELLO", "3", "AUTH", "a", "secret"].into_iter().collect();
        assert_eq!(kept(&secret.borrow()), [&b"HELLO"[..], b"(redacted)"]);
    }
}
