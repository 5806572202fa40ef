//! Being told to end, or to read files again.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// SIGHUP, caught from here on: who is told to read files again while it starts does so then.
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

/// SIGTERM, SIGINT and SIGHUP, caught. The first two end the process at once before this is made,
/// so it is made before anybody is told that the server is ready.
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

    /// Returns when one of the first two came, also when that was before the call; calls `reload`
    /// when the third did.
    pub fn wait(mut self, reload: impl Fn()) {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = self.terminate.recv() => return info!("told to end"),
                    _ = self.interrupt.recv() => return info!("interrupted"),
                    _ = self.hang_up.recv() => reload(),
                }
            }
        });
    }
}
