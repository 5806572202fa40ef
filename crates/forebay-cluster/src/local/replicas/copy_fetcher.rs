//! Fetches copies of partitions from other nodes, part by part.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::live::{LiveTable, PartitionContent};
use forebay_engine::{Bounds, NewRun, PartitionId};
use forebay_host::CopyFetcher;
use forebay_io::{Disk, give_way};
use forebay_objects::PullThrottle;
use forebay_replica::{GroupId, PeerId, Place};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use super::copy_wire::{CopyOffer, CopyQuestion, OfferedFile, PART_BYTES, part_of};
use super::roster::SharedRoster;
use crate::ids::HostPort;
use crate::link::Peers;
use crate::wire::{from_bytes, to_bytes};

/// The timeout to begin a copy: the other node flushes its memtable first.
const BEGIN: Duration = Duration::from_secs(60);
/// The timeout for one part. The other node delays it if serving suffers.
const ANSWER: Duration = Duration::from_secs(30);

/// The parts that copy fetchers share.
#[derive(Debug, Clone)]
pub struct CopyFetcherParts {
    pub peers: Arc<dyn Peers>,
    pub roster: Arc<SharedRoster>,
    pub disk: Arc<dyn Disk>,
    /// Limits the rate of copies, together with all other fetches of the node.
    pub throttle: Arc<PullThrottle>,
}

/// A fetcher of copies for one replica.
#[derive(Debug)]
pub struct PeerCopyFetcher {
    pub parts: CopyFetcherParts,
    pub table: LiveTable,
    pub partition: PartitionId,
    /// The bounds of its partition by the catalog.
    pub bounds: Arc<Mutex<Bounds>>,
    /// The replica has ended.
    pub is_over: Arc<AtomicBool>,
}

/// A copy in progress.
struct CopyFetch<'a> {
    by: &'a PeerCopyFetcher,
    runtime: Runtime,
    peer: HostPort,
    /// Local runs that replace those of the source.
    runs: Vec<NewRun>,
}

impl CopyFetcher for PeerCopyFetcher {
    fn fetch_copy(
        &self,
        group: GroupId,
        from: PeerId,
        at_least: Place,
    ) -> Result<PartitionContent, String> {
        self.fetch_from(group, from, at_least.index)
            .map_err(|error| error.to_string())
    }
}

impl PeerCopyFetcher {
    fn fetch_from(
        &self,
        group: GroupId,
        from: PeerId,
        at_least: u64,
    ) -> io::Result<PartitionContent> {
        let roster = self.parts.roster.load_full();
        let node = roster.node(group, from);
        let peer = node.and_then(|node| roster.address(node));
        let Some(peer) = peer.cloned() else {
            let text = format!("nobody knows where peer {from} of group {group} is");
            return Err(io::Error::other(text));
        };
        let mut fetching = CopyFetch {
            by: self,
            runtime: Builder::new_current_thread().enable_all().build()?,
            peer,
            runs: Vec::new(),
        };
        let begin = CopyQuestion::Begin {
            group,
            from,
            at_least,
        };
        let offer: CopyOffer = from_bytes(&fetching.ask(&begin, BEGIN)?)?;
        let fetched = {
            let _active = self.parts.throttle.begin();
            fetching.fetch_copy(&offer)
        };
        let end = CopyQuestion::End { copy: offer.copy };
        // Without the message the other node ends the copy after a timeout.
        let _ = fetching.ask(&end, ANSWER);
        if fetched.is_err() {
            let ids = fetching.runs.iter().map(|run| &run.id);
            self.table.discard_runs(ids);
        }
        fetched
    }
}

impl CopyFetch<'_> {
    fn ask(&self, question: &CopyQuestion, within: Duration) -> io::Result<Bytes> {
        let peers = &self.by.parts.peers;
        let answer = peers.copy(&self.peer, to_bytes(question)?, within);
        self.runtime.block_on(answer)
    }

    fn fetch_copy(&mut self, offer: &CopyOffer) -> io::Result<PartitionContent> {
        let mut content = offer.content().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the copy that is offered names other files than those of its runs",
            )
        })?;
        let by = self.by;
        // The partition may have been split since. A copy from before the split would include keys
        // of other partitions.
        let fits = by.bounds.lock().covers(&content.range.bounds);
        if content.range.id != by.partition || !fits {
            return Err(io::Error::other("the copy is of another partition"));
        }
        for run in &mut content.runs {
            let new = by.table.new_run();
            run.id = new.id.clone();
            self.runs.push(new);
        }
        for (number, file) in offer.files.iter().enumerate() {
            self.fetch_file(offer.copy, number, file)?;
        }
        let dir = self.runs.first().and_then(|run| run.path.parent());
        dir.map_or(Ok(()), |dir| by.parts.disk.sync_dir(dir))?;
        self.check(offer.copy)?;
        Ok(content)
    }

    /// Reads the whole copy back. If it is damaged, notifies the source, which checks its own run.
    fn check(&self, copy: u64) -> io::Result<()> {
        for (run, new) in self.runs.iter().enumerate() {
            if let Err(error) = self.by.table.check_run(&new.id) {
                // The answer does not matter: the fetcher asks for another copy.
                let _ = self.ask(&CopyQuestion::Doubt { copy, run }, BEGIN);
                return Err(io::Error::other(error));
            }
        }
        Ok(())
    }

    fn fetch_file(&self, copy: u64, number: usize, file: &OfferedFile) -> io::Result<()> {
        let Some(run) = self.runs.get(file.run) else {
            return Err(io::Error::other("the copy has no such run"));
        };
        match file.is_of_long_values {
            true => self.write_file(copy, number, file, &run.path.with_extension("ext")),
            false => self.write_file(copy, number, file, &run.path),
        }
    }

    fn write_file(
        &self,
        copy: u64,
        number: usize,
        file: &OfferedFile,
        path: &Path,
    ) -> io::Result<()> {
        let parts = &self.by.parts;
        let mut writer = parts.disk.create(path)?;
        let mut offset = 0;
        while offset < file.len_bytes {
            if self.by.is_over.load(Ordering::Relaxed) {
                return Err(io::Error::other("its replica has ended"));
            }
            let bytes = PART_BYTES.min(file.len_bytes - offset);
            self.runtime.block_on(parts.throttle.take(bytes));
            let question = CopyQuestion::Read {
                copy,
                file: number,
                offset,
                bytes,
            };
            let part = part_of(self.ask(&question, ANSWER)?, bytes)?;
            writer.write_all(&part)?;
            writer.write_back();
            give_way();
            offset += bytes;
        }
        writer.sync()
    }
}
