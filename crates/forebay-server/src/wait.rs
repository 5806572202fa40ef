//! The waits of a connection before its pipeline continues, in order with its other commands.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use forebay_engine::live::LiveError;
use tracing::error;

use crate::cluster::elsewhere;
use crate::work::{Done, Work, WorkOutcome};

/// A wait of a pipeline.
pub enum Wait {
    /// Work that blocks, for a thread that may wait.
    Work(Work),
    /// Work whose keys other nodes have.
    Elsewhere(Box<Work>),
    /// An event outside of the connection. No thread is blocked meanwhile.
    Event(Pin<Box<dyn Future<Output = Waited> + Send>>),
}

/// The result of a wait.
#[derive(Debug)]
pub enum Waited {
    /// Commands were answered.
    Done(Done),
    /// The writes are durable, or their durability is unknown.
    Durable(Result<(), LiveError>),
    /// A pause is over.
    Paused,
    /// The work failed without a reply.
    Broken,
}

impl Wait {
    pub fn event(event: impl Future<Output = Waited> + Send + 'static) -> Self {
        Wait::Event(Box::pin(event))
    }

    pub async fn end(self) -> Waited {
        match self {
            Wait::Work(work) => match tokio::task::spawn_blocking(|| work.run()).await {
                Ok(WorkOutcome::Done(done)) => Waited::Done(done),
                Ok(WorkOutcome::Elsewhere(work)) => Waited::Done(elsewhere(work).await),
                Err(failure) => {
                    error!(%failure, "a command broke down");
                    Waited::Broken
                }
            },
            Wait::Elsewhere(work) => Waited::Done(elsewhere(*work).await),
            Wait::Event(event) => event.await,
        }
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Work(work) => f.debug_tuple("Work").field(work).finish(),
            Wait::Elsewhere(work) => f.debug_tuple("Elsewhere").field(work).finish(),
            Wait::Event(_) => f.write_str("Event"),
        }
    }
}
