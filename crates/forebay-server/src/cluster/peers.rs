//! Sends messages to other nodes and fetches files from them, through their peer ports.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::{DeferredAnswer, HostPort, Peers};
use forebay_engine::TableName;
use forebay_io::{Clock, Net};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use super::frame::{CONTROL, COPY, FETCH, FORMAT, GROUPS, PING, frame};
use super::link::{Dialer, Links, PeerAnswer};
use super::peer_senders::PeerSenders;
use super::pins::PeerTls;
use super::reach::{AnswerTimes, Reach, ReachProbe};

/// Messages in flight to one node, each with a connection of its own: an answer may take seconds.
const MESSAGES: usize = 32;
/// Parts of files in flight from one node.
const FETCHES: usize = 8;
/// How long a probe waits for a node's answer.
const SIGN_WITHIN: Duration = Duration::from_secs(1);
/// The longest answer to a message.
const ANSWER_BYTES: usize = 64 << 20;

/// A client of other nodes' peer ports. It has a thread of its own, so that callers need no
/// runtime.
#[derive(Debug)]
pub struct PeerClient {
    messages: Arc<Links>,
    fetches: Arc<Links>,
    posts: PeerSenders,
    reach: Arc<Reach>,
    runtime: Option<Runtime>,
}

impl PeerClient {
    pub fn start(
        net: Arc<dyn Net>,
        clock: Arc<dyn Clock>,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay-peers")
            .enable_all()
            .build()?;
        let answered = Arc::<AnswerTimes>::default();
        let dialer = Dialer {
            net,
            clock,
            answered: Arc::clone(&answered),
            tls: tls.map(|tls| Arc::clone(&tls.client)),
            answer_bytes: ANSWER_BYTES,
        };
        let signs = PeerProbes {
            links: Arc::new(Links::new(dialer.clone(), 1)),
            runtime: runtime.handle().clone(),
        };
        Ok(Self {
            messages: Arc::new(Links::new(dialer.clone(), MESSAGES)),
            fetches: Arc::new(Links::new(dialer.clone(), FETCHES)),
            posts: PeerSenders::new(dialer),
            reach: Arc::new(Reach::new(Box::new(signs), answered)),
            runtime: Some(runtime),
        })
    }

    /// Returns the reachability state of the nodes.
    pub fn reach(&self) -> Arc<Reach> {
        Arc::clone(&self.reach)
    }

    fn send(
        &self,
        links: &Arc<Links>,
        peer: &HostPort,
        frame: Bytes,
        limit: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let (links, peer) = (Arc::clone(links), peer.clone());
        let (sender, answered) = oneshot::channel();
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                let answer = match links.ask(&peer, frame, limit).await {
                    Ok(PeerAnswer::Bytes(bytes)) => Ok(bytes),
                    Ok(PeerAnswer::Refused(text)) => {
                        Err(io::Error::other(format!("{peer} answers: {text}")))
                    }
                    Err(error) => Err(io::Error::new(error.kind(), format!("{peer}: {error}"))),
                };
                // A requester that gave up gets nothing.
                let _ = sender.send(answer);
            });
        }
        let stopped = |_| io::Error::other("the connections to other nodes are closed");
        Box::pin(async move { answered.await.map_err(stopped)? })
    }
}

/// Probes nodes, each over a connection that is closed if no answer comes.
#[derive(Debug)]
struct PeerProbes {
    links: Arc<Links>,
    runtime: Handle,
}

impl ReachProbe for PeerProbes {
    fn ask(&self, peer: &HostPort) {
        let (links, peer) = (Arc::clone(&self.links), peer.clone());
        let frame = frame(&[PING.as_bytes(), FORMAT.as_bytes()]);
        self.runtime.spawn(async move {
            // The connection records any answer.
            let _ = links.ask(&peer, frame, SIGN_WITHIN).await;
        });
    }
}

impl Peers for PeerClient {
    fn ask(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let frame = frame(&[CONTROL.as_bytes(), FORMAT.as_bytes(), &message]);
        self.send(&self.messages, peer, frame, within)
    }

    fn fetch(
        &self,
        peer: &HostPort,
        table: &TableName,
        file: &str,
        range: Range<u64>,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let (start, end) = (range.start.to_string(), range.end.to_string());
        let frame = frame(&[
            FETCH.as_bytes(),
            FORMAT.as_bytes(),
            table.as_str().as_bytes(),
            file.as_bytes(),
            start.as_bytes(),
            end.as_bytes(),
        ]);
        self.send(&self.fetches, peer, frame, within)
    }

    fn post(&self, peer: &HostPort, messages: Bytes) {
        if let Some(runtime) = &self.runtime {
            let _within = runtime.enter();
            let frame = frame(&[GROUPS.as_bytes(), FORMAT.as_bytes(), &messages]);
            self.posts.post(peer, frame);
        }
    }

    fn copy(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let frame = frame(&[COPY.as_bytes(), FORMAT.as_bytes(), &message]);
        self.send(&self.fetches, peer, frame, within)
    }
}

impl Drop for PeerClient {
    /// Does not wait for requests in flight: it may run where nothing may wait.
    fn drop(&mut self) {
        self.runtime
            .take()
            .into_iter()
            .for_each(Runtime::shutdown_background);
    }
}
