//! The server's log: lines to standard error, written by a separate thread, and events for HTTP.
//!
//! A reader of the log may be slow or gone, and one damaged page may be read thousands of times a
//! second. Neither may delay the threads that serve. If the queue is full, lines are counted and
//! dropped, and the count is written when there is room. Equal warnings are limited ([`limit`]).

mod limit;
mod record;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use forebay_io::{Clock, start_thread};
use forebay_run::error::lines_without_controls;
use forebay_server::EventRing;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use self::limit::LineLimit;
use self::record::Record;
use crate::printing::Output;

/// The most lines that wait to be written.
const QUEUE_LINES: usize = 4096;
/// The time between two checks for lines that were left out.
const SWEEP: Duration = Duration::from_secs(1);

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    /// One JSON object per line
    Json,
}

/// A subscriber for what the process logs.
#[derive(Debug, Clone)]
struct Log {
    format: LogFormat,
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
    events: Arc<EventRing>,
    limit: Arc<Mutex<LineLimit>>,
    clock: Arc<dyn Clock>,
}

/// Starts to log. RUST_LOG selects the lines; without it, INFO of Forebay and WARN of its
/// libraries, with --quiet only ERROR.
pub fn to_stderr(
    output: Output,
    format: LogFormat,
    events: &Arc<EventRing>,
    clock: &Arc<dyn Clock>,
) -> io::Result<()> {
    let (lines, waiting) = sync_channel(QUEUE_LINES);
    let log = Log {
        format,
        lines,
        dropped: Arc::default(),
        events: Arc::clone(events),
        limit: Arc::default(),
        clock: Arc::clone(clock),
    };
    let writer = log.clone();
    start_thread("forebay-log", move || writer.write_lines(&waiting))?;
    let levels = if output.quiet {
        "error"
    } else {
        "warn,forebay=info"
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(levels));
    tracing_subscriber::registry().with(filter).with(log).init();
    Ok(())
}

impl<S: Subscriber> Layer<S> for Log {
    /// Never waits for the reader of the log.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let record = Record::of(event, self.clock.unix_ms());
        let now = self.clock.monotonic();
        let admitted = self.limit().admit(record, now);
        admitted.into_iter().for_each(|record| self.take(record));
    }
}

impl Log {
    fn limit(&self) -> MutexGuard<'_, LineLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, record: Record) {
        if self.lines.try_send(record.line(self.format)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if record.level <= Level::INFO {
            self.events.push(record.into_event());
        }
    }

    /// Writes until the log's last user is gone. A log that cannot be written does not end the
    /// process.
    fn write_lines(&self, lines: &Receiver<String>) {
        let mut swept = self.clock.monotonic();
        loop {
            match lines.recv_timeout(SWEEP) {
                Ok(line) => self.write(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(swept) >= SWEEP {
                swept = now;
                let repeated = self.limit().sweep(now);
                repeated.into_iter().for_each(|record| self.take(record));
            }
        }
    }

    fn write(&self, line: &str) {
        let mut stderr = io::stderr().lock();
        _ = stderr.write_all(lines_without_controls(line).as_bytes());
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            let text = format!("{count} lines were left out: the log is read too slowly");
            let record = Record::warning(text, self.clock.unix_ms());
            _ = stderr.write_all(record.line(self.format).as_bytes());
        }
    }
}
