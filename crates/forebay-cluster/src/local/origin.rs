//! Another node as a place that files are brought from.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::TableName;
use forebay_io::Clock;
use forebay_objects::Origin;

use crate::ids::HostPort;
use crate::link::Peers;

const PAUSE: Duration = Duration::from_millis(100);
/// What a node is asked for at once.
const PIECE_BYTES: u64 = 512 << 10;
/// For one part of a file.
const ANSWER: Duration = Duration::from_secs(10);

/// See the module's text.
pub struct PeerOrigin {
    pub peer: HostPort,
    pub by: Arc<dyn Peers>,
    pub clock: Arc<dyn Clock>,
    /// A node that does not have a file yet is asked again for so long, before the store is read.
    pub patience: Duration,
}

impl fmt::Debug for PeerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerOrigin({})", self.peer)
    }
}

impl Origin for PeerOrigin {
    fn name(&self) -> String {
        format!("node {}", self.peer)
    }

    fn piece_bytes(&self) -> u64 {
        PIECE_BYTES
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        let text = format!("{name} is asked of the store, not of a node");
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.get(dir).map(|_| Vec::new())
    }

    fn fetch<'a>(
        &'a self,
        name: &'a str,
        range: Range<u64>,
    ) -> Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + 'a>> {
        Box::pin(async move {
            let (table, file) = parts(name)?;
            let end = self.clock.monotonic() + self.patience;
            loop {
                let part = self
                    .by
                    .fetch(&self.peer, &table, file, range.clone(), ANSWER);
                match part.await {
                    Err(error) if is_not_there_yet(&error) && self.clock.monotonic() < end => {
                        self.clock.wait(PAUSE).await;
                    }
                    part => return part,
                }
            }
        })
    }
}

/// What a node says of a file that it does not have.
pub const NOT_THERE: &str = "no such file here";

/// Errors cross the network as words.
fn is_not_there_yet(error: &io::Error) -> bool {
    error.to_string().contains(NOT_THERE)
}

/// The table and the file of `tables/T/runs/FILE`.
fn parts(name: &str) -> io::Result<(TableName, &str)> {
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no file of a run: {name}"),
        )
    };
    let rest = name.strip_prefix("tables/").ok_or_else(wrong)?;
    let (table, file) = rest.split_once("/runs/").ok_or_else(wrong)?;
    Ok((TableName::new(table).map_err(|_| wrong())?, file))
}
