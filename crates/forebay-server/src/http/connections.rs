//! Limits the connections of the HTTP port.
//!
//! A limited number of connections have a slot. When all slots are taken, each further connection
//! gets one answer: probes the usual one, all other requests an error. Only a few of these
//! connections exist at a time; when more arrive, the oldest is closed. So a client that takes all
//! slots, or opens connections and sends nothing, does not block probes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::{Extension, Router};
use forebay_io::{Arrival, Listener, within};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::shared::Shared;

/// From a connection's beginning to its end, with all requests.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
/// The same limit for a connection without a slot.
const EXTRA_TIME: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of the HTTP port and their slots.
pub struct Connections {
    shared: Arc<Shared>,
    router: Router,
    probes: Router,
    places: Arc<Semaphore>,
    /// Connections without a slot, oldest first.
    extra: Mutex<VecDeque<AbortHandle>>,
}

impl Connections {
    pub fn new(shared: &Arc<Shared>, (router, probes): (Router, Router)) -> Self {
        Self {
            shared: Arc::clone(shared),
            router,
            probes,
            places: Arc::new(Semaphore::new(shared.descriptors.http_connections)),
            extra: Mutex::default(),
        }
    }

    pub async fn accept(&self, mut listener: Box<dyn Listener>) {
        loop {
            match listener.accept().await {
                Ok(arrival) => self.begin(arrival),
                Err(error) => {
                    warn!(%error, "cannot accept an HTTP connection");
                    self.shared.store.clock().wait(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits until no connection has a slot.
    pub async fn ended(&self) {
        let all = self.shared.descriptors.http_connections;
        // The semaphore is never closed.
        let _ = self.places.acquire_many(all as u32).await;
    }

    // Connections are tasks of this thread only.
    #[allow(clippy::disallowed_methods)]
    fn begin(&self, arrival: Box<dyn Arrival>) {
        let address = arrival.peer();
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let is_extra = place.is_none();
        let (router, time) = match is_extra {
            false => (self.router.clone(), CONNECTION_TIME),
            true => (self.probes.clone(), EXTRA_TIME),
        };
        let router = router.layer(Extension(Peer(address)));
        let shared = Arc::clone(&self.shared);
        let counted = ConnectionCount::new(&shared);
        let serving = serve(
            arrival,
            router,
            !is_extra,
            self.shared.secrets.acceptor(),
            Arc::clone(&shared),
        );
        let task = tokio::spawn(async move {
            let _place = (place, counted);
            match within(&**shared.store.clock(), time, serving).await {
                Some(Ok(())) => {}
                Some(Err(error)) => debug!(%address, error, "an HTTP connection broke off"),
                None => debug!(%address, "an HTTP connection took too long"),
            }
        });
        if is_extra {
            let mut extra = self.extra.lock();
            extra.retain(|task| !task.is_finished());
            if extra.len() >= self.shared.descriptors.extra_http {
                extra.pop_front().into_iter().for_each(|task| task.abort());
            }
            extra.push_back(task.abort_handle());
        }
    }
}

/// The client's address, for the handlers.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Counts an HTTP connection while it is open.
struct ConnectionCount(Arc<Shared>);

impl ConnectionCount {
    fn new(shared: &Arc<Shared>) -> Self {
        let connected = &shared.metrics.http_connected;
        connected.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0
            .metrics
            .http_connected
            .fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(
    arrival: Box<dyn Arrival>,
    router: Router,
    keep_alive: bool,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) -> Result<(), String> {
    let stream = arrival.open().map_err(|error| error.to_string())?;
    let limit = shared.config.limits.http_header_time;
    match tls {
        None => talk(stream, router, keep_alive, limit).await,
        Some(tls) => match within(&**shared.store.clock(), limit, tls.accept(stream)).await {
            Some(Ok(stream)) => talk(stream, router, keep_alive, limit).await,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the TLS handshake took too long".to_owned()),
        },
    }
}

async fn talk<S>(
    stream: S,
    router: Router,
    keep_alive: bool,
    header_time: Duration,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .keep_alive(keep_alive)
        // Answers are sent as they are, without an uncounted copy.
        .writev(true)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    connection.await.map_err(|error| error.to_string())
}
