//! A checkpoint on the nodes of a cluster, as files that are read from the nodes.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_engine::live::RunFiles;
use forebay_io::raw::Mapping;
use forebay_io::{Clock, ReadFile};

use reqwest::{Method, StatusCode};

use crate::nodes::node_http::{Answer, NodeHttp, PageError};

/// How long a part of a file may take.
const READ: Duration = Duration::from_secs(60);
/// How long the command waits for the end of a checkpoint. Nodes end it by themselves, too.
const END: Duration = Duration::from_secs(2);
/// How often all nodes are asked while one is read. A node gives up a checkpoint that nobody reads
/// for two minutes.
const TOUCH: Duration = Duration::from_secs(30);

/// The error if a node no longer has the checkpoint: another one replaced it.
const GIVEN_UP: io::ErrorKind = io::ErrorKind::StaleNetworkFileHandle;

/// Returns whether an error has that cause. Another checkpoint may then be read to its end.
pub fn is_given_up(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == GIVEN_UP)
    })
}

/// A checkpoint of a live table on the nodes of a cluster, by an id that the command drew. When it
/// is dropped, the nodes remove it.
#[derive(Debug)]
pub struct NodeCheckpoint {
    pub http: NodeHttp,
    pub nodes: Vec<HostPort>,
    /// `v1/tables/T/checkpoints/ID`
    pub path: String,
    pub clock: Arc<dyn Clock>,
    touched: Mutex<Duration>,
}

/// The files of one node.
#[derive(Debug)]
pub struct NodeFiles {
    pub checkpoint: Arc<NodeCheckpoint>,
    pub node: HostPort,
}

#[derive(Debug)]
struct NodeFile {
    checkpoint: Arc<NodeCheckpoint>,
    node: HostPort,
    path: String,
    len_bytes: u64,
}

impl NodeCheckpoint {
    pub fn new(http: NodeHttp, nodes: Vec<HostPort>, path: String, clock: Arc<dyn Clock>) -> Self {
        let touched = Mutex::new(clock.monotonic());
        Self {
            http,
            nodes,
            path,
            clock,
            touched,
        }
    }

    /// Has all nodes do a step of the checkpoint.
    pub fn step(&self, step: &str, within: Duration) -> Vec<Result<Answer, PageError>> {
        let path = format!("{}/{step}", self.path);
        self.ask_all(&Method::POST, &path, within)
    }

    fn ask_all(
        &self,
        method: &Method,
        path: &str,
        within: Duration,
    ) -> Vec<Result<Answer, PageError>> {
        let nodes = self.nodes.iter();
        let asked: Vec<_> = nodes.map(|node| (node.clone(), path.to_owned())).collect();
        self.http.ask_all(method, &asked, within)
    }

    fn touch(&self) {
        let now = self.clock.monotonic();
        {
            let touched = self.touched.lock();
            let mut touched = touched.unwrap_or_else(PoisonError::into_inner);
            if now.saturating_sub(*touched) < TOUCH {
                return;
            }
            *touched = now;
        }
        // A node that does not answer causes an error when its files are read.
        self.ask_all(&Method::GET, &self.path, END);
    }

    fn read(&self, node: &HostPort, file: &str, (from, bytes): (u64, usize)) -> io::Result<Answer> {
        self.touch();
        let path = format!("{file}?from={from}&bytes={bytes}");
        let answer = self.http.ask(&Method::GET, node, &path, READ);
        answer.map_err(|error| {
            let kind = match &error {
                PageError::Refused { status, .. } if *status == StatusCode::NOT_FOUND => GIVEN_UP,
                _ => io::ErrorKind::Other,
            };
            let why = match error {
                // The node was reached before, so it is known what certificates it requires.
                PageError::NoAnswer { words, .. } => words,
                error => error.to_string(),
            };
            io::Error::new(kind, format!("node {node}: {why}"))
        })
    }
}

impl Drop for NodeCheckpoint {
    fn drop(&mut self) {
        self.ask_all(&Method::DELETE, &self.path, END);
    }
}

impl RunFiles for NodeFiles {
    fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>> {
        let path = format!("{}/files/{file}", self.checkpoint.path);
        let answer = self.checkpoint.read(&self.node, &path, (0, 0))?;
        let len_bytes = answer.file_bytes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Arc::new(NodeFile {
            checkpoint: Arc::clone(&self.checkpoint),
            node: self.node.clone(),
            path,
            len_bytes,
        }))
    }

    fn path(&self, _file: &str) -> Option<PathBuf> {
        None
    }
}

impl ReadFile for NodeFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let part = (offset + done as u64, buf.len() - done);
            let came = self.checkpoint.read(&self.node, &self.path, part)?.bytes;
            if came.is_empty() || came.len() > buf.len() - done {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf[done..done + came.len()].copy_from_slice(&came);
            done += came.len();
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}
