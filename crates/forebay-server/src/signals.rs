//! Catches the signals to stop and to read files again.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// SIGHUP, caught from this point. If it arrives during the start, the files are read again at the
/// end of the start.
#[derive(Debug)]
pub struct HangUps {
    runtime: Runtime,
    hang_up: Signal,
}

impl HangUps {
    pub fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let hang_up = signal(SignalKind::hangup())?;
        drop(entered);
        Ok(Self { runtime, hang_up })
    }
}

/// SIGTERM, SIGINT and SIGHUP, caught. Before this exists, the first two end the process at once.
/// Therefore it is created before the server reports that it is ready.
#[derive(Debug)]
pub struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub fn catch(hang_ups: HangUps) -> io::Result<Self> {
        let HangUps { runtime, hang_up } = hang_ups;
        let entered = runtime.enter();
        let (terminate, interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        drop(entered);
        Ok(Self {
            runtime,
            terminate,
            interrupt,
            hang_up,
        })
    }

    /// Waits for one of the first two, including one that arrived before the call. Calls `reload`
    /// for each of the third.
    pub fn wait(mut self, reload: impl Fn()) {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = self.terminate.recv() => return info!("terminated"),
                    _ = self.interrupt.recv() => return info!("interrupted"),
                    _ = self.hang_up.recv() => reload(),
                }
            }
        });
    }
}
