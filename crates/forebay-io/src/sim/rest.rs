//! Detects whether all threads of this process are at rest.

use std::time::Duration;

#[cfg(target_os = "linux")]
pub use linux::Rest;

/// How long a detector waits before it checks again.
pub const LOOK: Duration = Duration::from_micros(50);

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::fs::FileExt;

    use crate::raw::others_fell_asleep;

    const THREADS: &str = "/proc/self/task";

    /// A detector of threads at rest.
    ///
    /// The system reports a thread that runs, or is ready to run, as such. It reports a thread that
    /// waits, for another thread, a moment or the network, as asleep. Suppose that all are found
    /// asleep one after the other, and none has fallen asleep since the previous check. Then none
    /// was awake when the check began: an awake thread would have had to fall asleep before it was
    /// checked. And a sleeping thread is woken only by an awake one, or from outside.
    #[derive(Debug)]
    pub struct Rest {
        me: u32,
        /// The state of each thread, as files that are kept open.
        threads: BTreeMap<u32, File>,
        /// The thread that was found awake last is checked first.
        awake: Option<u32>,
    }

    impl Rest {
        /// Creates a detector for the calling thread.
        pub fn new() -> Self {
            let me = rustix::thread::gettid().as_raw_nonzero().get();
            Self {
                me: me.unsigned_abs(),
                threads: BTreeMap::new(),
                awake: None,
            }
        }

        /// Returns whether all other threads of the process wait.
        pub fn is_all(&mut self) -> bool {
            if let Some(last) = self.awake
                && self.is_awake(last)
            {
                return false;
            }
            let before = others_fell_asleep();
            let Ok(threads) = self.list() else {
                return false;
            };
            self.threads.retain(|id, _| threads.contains(id));
            // A thread that is about to sleep, and checks once more whether it must, is reported as
            // asleep for that moment, but not twice.
            let twice = threads.iter().chain(&threads);
            let me = self.me;
            let mut twice = twice.filter(|id| **id != me);
            self.awake = twice.find(|id| self.is_awake(**id)).copied();
            self.awake.is_none() && others_fell_asleep() == before
        }

        /// Returns the names of the running threads.
        pub fn awake(&mut self) -> Vec<String> {
            let threads = self.list().unwrap_or_default();
            let me = self.me;
            let others = threads.into_iter().filter(|id| *id != me);
            let awake: Vec<u32> = others.filter(|id| self.is_awake(*id)).collect();
            let name = |id| fs::read_to_string(format!("{THREADS}/{id}/comm"));
            awake.into_iter().flat_map(name).collect()
        }

        fn list(&self) -> io::Result<Vec<u32>> {
            let entries = fs::read_dir(THREADS)?;
            let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
            Ok(entries.flatten().filter_map(number).collect())
        }

        fn is_awake(&mut self, id: u32) -> bool {
            self.state(id).is_ok_and(|state| state != b'S')
        }

        /// Returns a thread's state. An error: it has ended.
        fn state(&mut self, id: u32) -> io::Result<u8> {
            let file = match self.threads.entry(id) {
                std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(File::open(format!("{THREADS}/{id}/stat"))?)
                }
            };
            let mut text = [0; 128];
            let length = file.read_at(&mut text, 0)?;
            // "1234 (its name) S ...", and the name may have parentheses.
            let text = &text[..length];
            let name_ends = text.iter().rposition(|byte| *byte == b')');
            let state = name_ends.and_then(|end| text.get(end + 2));
            state.copied().ok_or(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Other systems do not report states: a pause counts as rest.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct Rest;

#[cfg(not(target_os = "linux"))]
impl Rest {
    pub fn new() -> Self {
        Self
    }

    pub fn is_all(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(5));
        true
    }

    pub fn awake(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::start_thread;

    #[test]
    fn a_running_thread_is_awake() {
        let (hold, held) = channel::<()>();
        let runs = start_thread("runs", move || {
            while held.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let mut rest = Rest::new();
        while !rest.awake().contains(&"runs\n".to_owned()) {}
        assert!(!rest.is_all());
        drop(hold);
        runs.unwrap().join().unwrap();
    }
}
