//! The server's log: lines to standard error, by a thread of its own. Whoever reads the log may be
//! slow or gone, and one bad page may be asked for thousands of times a second; neither may hold up
//! the threads that serve. Lines that find the queue full are counted, and told of when there is
//! room.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use forebay_io::start_thread;
use forebay_run::error::lines_without_controls;
use tracing_subscriber::EnvFilter;

use crate::output::Output;

/// Lines that may wait to be written.
const QUEUE_LINES: usize = 4096;

/// Starts to log: what RUST_LOG picks, warnings and errors unless it is set.
pub fn to_stderr(output: Output) -> io::Result<()> {
    let (sender, lines) = sync_channel(QUEUE_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let queue = Queue {
        sender,
        dropped: Arc::clone(&dropped),
    };
    start_thread("forebay-log", move || write_lines(&lines, &dropped))?;
    let level = if output.quiet { "error" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false);
    lines.with_writer(move || queue.clone()).init();
    Ok(())
}

#[derive(Debug, Clone)]
struct Queue {
    sender: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

impl Write for Queue {
    /// A line comes in one call; it never waits.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(line.to_vec()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until the log's last user is gone. A log that cannot be written is no reason to end.
fn write_lines(lines: &Receiver<Vec<u8>>, dropped: &AtomicU64) {
    while let Ok(line) = lines.recv() {
        let mut stderr = io::stderr().lock();
        let line = String::from_utf8_lossy(&line);
        _ = stderr.write_all(lines_without_controls(&line).as_bytes());
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            _ = writeln!(
                stderr,
                "{count} lines were left out: the log is read too slowly"
            );
        }
    }
}
