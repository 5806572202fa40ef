//! When a node last heard of any other one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So long after the last word of any other node, a replica that knows of no leader asks in vain.
/// Where heartbeats are answered a node hears of another one each second.
const SILENCE: Duration = Duration::from_millis(1500);

/// When something last came from any other node: a question, or an answer.
#[derive(Debug, Default)]
pub struct LastHeard {
    /// By the monotonic clock.
    at_ms: AtomicU64,
}

impl LastHeard {
    pub fn note(&self, now: Duration) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.at_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Whether nothing came for a while.
    pub fn is_silent(&self, now: Duration) -> bool {
        let at = Duration::from_millis(self.at_ms.load(Ordering::Relaxed));
        now.saturating_sub(at) >= SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_the_silence_and_an_older_one_does_not_begin_it() {
        let heard = LastHeard::default();
        let at = Duration::from_millis;
        assert!(!heard.is_silent(at(1499)));
        assert!(heard.is_silent(at(1500)));
        heard.note(at(1500));
        assert!(!heard.is_silent(at(2999)));
        heard.note(at(7));
        assert!(!heard.is_silent(at(2999)));
        assert!(heard.is_silent(at(3000)));
    }
}
