//! Another node as the origin of files.

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
/// The number of bytes in one request to a node.
const PIECE_BYTES: u64 = 512 << 10;
/// The timeout for one part of a file.
const ANSWER: Duration = Duration::from_secs(10);

/// An origin that fetches files from another node.
pub struct PeerOrigin {
    pub peer: HostPort,
    pub by: Arc<dyn Peers>,
    pub clock: Arc<dyn Clock>,
    /// How long to ask a node again for a file that it does not have yet, before reading the store.
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

/// A node's answer for a file that it does not have.
pub const NOT_THERE: &str = "no such file here";

/// Returns whether the node does not have the file yet. Errors cross the network as text.
fn is_not_there_yet(error: &io::Error) -> bool {
    error.to_string().contains(NOT_THERE)
}

/// Returns the table and the file of `tables/T/runs/FILE`.
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
