//! Being told to end.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// SIGTERM and SIGINT, caught. They end the process at once before this is made, so it is made
/// before anybody is told that the server is ready.
#[derive(Debug)]
pub struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
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
        })
    }

    /// Returns when either came, also when that was before the call.
    pub fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => info!("told to end"),
                _ = self.interrupt.recv() => info!("interrupted"),
            }
        });
    }
}
