//! The threads that serve RESP. Each runs its own connections from beginning to end.
//!
//! The first worker also accepts; connections are distributed to the workers in turn. Each worker
//! sweeps its connections every tenth of a second. The sweep ends those that exceed a deadline, or
//! are idle while the server stops. So a connection needs no timer of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_io::{Arrival, Listener, NetStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use crate::client::Client;
use crate::cluster::{PeerConnection, PeerIdentity, pin_of};
use crate::connection::Connection;
use crate::metrics::Drop as Reason;
use crate::port::Port;
use crate::shared::Shared;

const SWEEP: Duration = Duration::from_millis(100);
/// The threads of one worker that wait for the device; more work is queued.
const WAITING_THREADS: usize = 64;
/// The pause after a failure to accept, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An accepted connection, and its port.
type AcceptedConnection = (Box<dyn Arrival>, Port);

/// The channel to a worker, for accepted connections.
type Way = UnboundedSender<AcceptedConnection>;

/// A listener, and the kind of its port.
pub type Open = (Box<dyn Listener>, Port);

/// The parts of a worker.
pub struct Worker {
    pub index: usize,
    pub shared: Arc<Shared>,
    inbox: UnboundedReceiver<AcceptedConnection>,
    /// The first worker has the listeners, each with the channels to all workers.
    listeners: Vec<(Open, Vec<Way>)>,
}

/// Creates the workers with all resources of the system that they need; the listeners go to the
/// first.
pub fn workers(shared: &Arc<Shared>, open: Vec<Open>) -> std::io::Result<Vec<(Worker, Runtime)>> {
    let count = shared.metrics.workers().len();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
    let with_ways = |open| (open, senders.clone());
    let mut listeners: Vec<_> = open.into_iter().map(with_ways).collect();
    let worker = |(index, inbox)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING_THREADS)
            .build()?;
        let worker = Worker {
            index,
            shared: Arc::clone(shared),
            inbox,
            listeners: std::mem::take(&mut listeners),
        };
        Ok((worker, runtime))
    };
    inboxes.into_iter().enumerate().map(worker).collect()
}

impl Worker {
    /// Serves until the server stops and its connections have ended.
    pub fn run(self, runtime: Runtime) {
        let (shared, index) = (Arc::clone(&self.shared), self.index);
        let _ends = WorkerEnd { shared, index };
        runtime.block_on(self.serve());
        // Work of closed connections may still wait for the device: the worker does not wait for
        // it.
        runtime.shutdown_background();
    }

    // Connections are tasks of this worker only.
    #[allow(clippy::disallowed_methods)]
    async fn serve(mut self) {
        let listeners = std::mem::take(&mut self.listeners).into_iter();
        let accept =
            |(open, workers)| tokio::spawn(accept(open, workers, Arc::clone(&self.shared)));
        let accepting: Vec<_> = listeners.map(accept).collect();
        let mut served: Vec<Arc<Client>> = Vec::new();
        let clock = Arc::clone(self.shared.store.clock());
        let mut sweep = clock.wait(SWEEP);
        let mut stop_by = None;
        loop {
            tokio::select! {
                Some(came) = self.inbox.recv() => served.extend(self.begin(came)),
                () = &mut sweep => {
                    sweep = clock.wait(SWEEP);
                    let seen = &self.shared.metrics.worker(self.index).seen_ms;
                    seen.store(self.shared.tick(), Ordering::Relaxed);
                    served.retain(|client| !client.has_ended());
                    served.iter().for_each(|client| self.check(client));
                    if self.shared.is_stopping() {
                        let now = self.shared.now_ms();
                        let limit = self.shared.config.limits.shutdown_time.as_millis() as u64;
                        let stop_by = *stop_by.get_or_insert(now + limit);
                        accepting.iter().for_each(|accepting| accepting.abort());
                        if served.is_empty() || now >= stop_by {
                            self.abandon(&served);
                            return;
                        }
                    }
                }
            }
        }
    }

    #[allow(clippy::disallowed_methods)]
    fn begin(&self, (arrival, port): AcceptedConnection) -> Option<Arc<Client>> {
        let address = arrival.peer();
        let local = arrival.local().unwrap_or(self.shared.resp_address);
        let stream = match arrival.open() {
            Ok(stream) => stream,
            Err(error) => {
                let connected = &self.shared.metrics.connected;
                connected.fetch_sub(1, Ordering::Relaxed);
                warn!(%error, "a connection could not be taken over");
                return None;
            }
        };
        let client = self.shared.register((address, local), port);
        let registered = Registered {
            shared: Arc::clone(&self.shared),
            client: Arc::clone(&client),
        };
        let (shared, worker) = (Arc::clone(&self.shared), self.index);
        let tls = acceptor(&shared, port);
        let of_task = Arc::clone(&client);
        let task = tokio::spawn(async move {
            let _registered = registered;
            let id = of_task.id;
            if let Err(error) = serve(stream, tls, shared, worker, of_task).await {
                debug!(id, %error, "a connection broke off");
            }
        });
        client.served_by(task.abort_handle());
        Some(client)
    }

    /// Ends a connection that exceeds a deadline.
    fn check(&self, client: &Client) {
        let (limits, now) = (&self.shared.config.limits, self.shared.now_ms());
        let past = |since: u64, time: Duration| now.saturating_sub(since) > time.as_millis() as u64;
        let writing = client.writing_ms.load(Ordering::Relaxed);
        let active = client.active_ms.load(Ordering::Relaxed);
        let idle = client.idle.load(Ordering::Relaxed);
        let reason = if client.killed.load(Ordering::Relaxed) {
            Reason::Killed
        } else if self.is_of_removed_node(client) {
            Reason::Removed
        } else if !client.admitted.load(Ordering::Relaxed)
            && past(client.connected_ms, limits.auth_time)
        {
            Reason::AuthDeadline
        } else if writing > 0 && past(writing, limits.slow_reader_time) {
            Reason::SlowReader
        } else if limits
            .idle_time
            .is_some_and(|time| idle && past(active, time) && client.port != Port::Peer)
        {
            Reason::Idle
        } else if idle && self.shared.is_stopping() {
            Reason::Shutdown
        } else {
            return;
        };
        debug!(
            id = client.id,
            reason = reason.label(),
            "ending a connection"
        );
        if reason == Reason::SlowReader {
            let held_bytes = client.held_bytes.load(Ordering::Relaxed);
            notify_drop(
                &self.shared,
                client,
                held_bytes,
                "it did not read for too long",
            );
        }
        self.shared.metrics.count_drop(reason);
        client.end();
    }

    fn is_of_removed_node(&self, client: &Client) -> bool {
        let cluster = self.shared.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.is_of_removed_node(client))
    }

    fn abandon(&self, served: &[Arc<Client>]) {
        for client in served {
            self.shared.metrics.count_drop(Reason::Shutdown);
            client.end();
        }
        if !served.is_empty() {
            warn!(
                connections = served.len(),
                "ended before their commands did: time is up"
            );
        }
    }
}

/// Serves one connection, through TLS if there is a certificate.
async fn serve(
    stream: Box<dyn NetStream>,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    worker: usize,
    client: Arc<Client>,
) -> std::io::Result<()> {
    match tls {
        Some(tls) => {
            let late = shared.store.clock().wait(shared.config.limits.auth_time);
            let stream = tokio::select! {
                accepted = tls.accept(stream) => accepted?,
                () = late => return Err(std::io::ErrorKind::TimedOut.into()),
            };
            let shown = stream.get_ref().1.peer_certificates();
            if let Some(shown) = shown.and_then(<[_]>::first)
                && client.port == Port::Peer
            {
                *client.node.lock() = Some(PeerIdentity::Certificate(pin_of(shown)));
            }
            serve_stream(stream, shared, worker, client).await
        }
        None => serve_stream(stream, shared, worker, client).await,
    }
}

async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    shared: Arc<Shared>,
    worker: usize,
    client: Arc<Client>,
) -> std::io::Result<()> {
    if client.port == Port::Peer {
        let peer = PeerConnection {
            stream,
            shared,
            worker,
            client,
        };
        return peer.serve().await;
    }
    let connection = Connection {
        stream,
        shared,
        worker,
        client,
    };
    connection.serve().await
}

/// Returns the TLS acceptor for connections of a port. Nodes show each other certificates of their
/// own.
fn acceptor(shared: &Shared, port: Port) -> Option<TlsAcceptor> {
    match port {
        Port::Peer => {
            let tls = shared.cluster.as_ref()?.config.peer_tls.as_ref()?;
            Some(TlsAcceptor::from(Arc::clone(&tls.server)))
        }
        _ => shared.secrets.acceptor(),
    }
}

/// Distributes new connections to the workers in turn, and refuses those beyond the limit.
async fn accept((mut listener, port): Open, workers: Vec<Way>, shared: Arc<Shared>) {
    for turn in 0usize.. {
        match listener.accept().await {
            Ok(arrival) => {
                shared.metrics.accepted.fetch_add(1, Ordering::Relaxed);
                let most = shared.max_connections();
                let connected = shared.metrics.connected.load(Ordering::Relaxed);
                // Without other nodes this node would answer less than with too many of them.
                if connected >= most as i64 && port != Port::Peer {
                    if let Some(left_out) = shared.refusals_reported.due(shared.clock_ms()) {
                        let address = arrival.peer();
                        warn!(%address, most, left_out, "a connection was refused: there are too many");
                    }
                    shared.metrics.refused.fetch_add(1, Ordering::Relaxed);
                    // A TLS client takes unencrypted bytes for garbage, and a handshake would cost
                    // as much as serving it.
                    let words: &[u8] = match shared.secrets.acceptor() {
                        None => b"-ERR max number of clients reached\r\n",
                        Some(_) => b"",
                    };
                    arrival.refuse(words);
                    continue;
                }
                shared.metrics.connected.fetch_add(1, Ordering::Relaxed);
                // Workers that have ended are skipped.
                let (after, before) = workers.split_at(turn % workers.len());
                let undelivered = before
                    .iter()
                    .chain(after)
                    .try_fold((arrival, port), |came, worker| {
                        worker.send(came).map_or_else(|back| Ok(back.0), Err)
                    });
                if undelivered.is_ok() {
                    shared.metrics.connected.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                shared.store.clock().wait(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Records that a worker has ended, for any reason.
struct WorkerEnd {
    shared: Arc<Shared>,
    index: usize,
}

impl Drop for WorkerEnd {
    fn drop(&mut self) {
        let how = if std::thread::panicking() {
            "it broke down: see the log"
        } else {
            "it has stopped"
        };
        if !self.shared.is_stopping() {
            error!(worker = self.index, how, "a worker ended");
        }
        // It ends once.
        let _ = self
            .shared
            .metrics
            .worker(self.index)
            .ended
            .set(how.to_owned());
    }
}

/// Logs that a client was dropped for replies that it did not read.
fn notify_drop(shared: &Shared, client: &Client, held_bytes: usize, why: &str) {
    if let Some(left_out) = shared.drops_reported.due(shared.now_ms()) {
        let address = client.address;
        warn!(%address, held_bytes, why, left_out, "a connection was dropped");
    }
}

/// An entry in the list of clients, removed however the connection ends.
struct Registered {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.clients.lock().remove(&self.client.id);
        if let Some(held_bytes) = self.client.dropped_bytes() {
            let why = "it held most of the memory for replies, which is at its limit";
            notify_drop(&self.shared, &self.client, held_bytes, why);
            self.shared.metrics.count_drop(Reason::ReplyMemory);
        }
        // Replies that other threads make for it are discarded.
        self.client.drop_for(0);
        self.shared
            .metrics
            .connected
            .fetch_sub(1, Ordering::Relaxed);
    }
}
