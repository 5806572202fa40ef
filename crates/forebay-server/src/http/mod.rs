//! The HTTP port: health, metrics, tables, one row as JSON; swap and rollback for those who have
//! the token.

mod answer;
mod guard;
mod metrics;
mod metrics_page;
mod pulls;
mod rows;
mod tables;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use forebay_io::{Arrival, Listener, within};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::shared::Shared;

/// HTTP connections at a time: scrapers and operators, not crowds.
const CONNECTIONS: usize = 256;
/// From a connection's beginning to its end, requests and all.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
const STOP_CHECK: Duration = Duration::from_millis(50);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Threads that read tables and move pointers.
const WAITING_THREADS: usize = 16;

/// Serves until the server stops.
pub fn run(
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    listener: Box<dyn Listener>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WAITING_THREADS)
        .build()?;
    let outcome = runtime.block_on(async {
        let router = router(&shared);
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        tokio::select! {
            () = accept(listener, router, tls, Arc::clone(&shared), Arc::clone(&connections)) => {}
            () = stopped(&shared) => {}
        }
        // Requests under way get their answers; idle connections are not waited for.
        let limit = shared
            .config
            .limits
            .shutdown_time
            .min(Duration::from_secs(1));
        let all = connections.acquire_many(CONNECTIONS as u32);
        let _ = within(&**shared.store.clock(), limit, all).await;
        Ok(())
    });
    runtime.shutdown_background();
    outcome
}

fn router(shared: &Arc<Shared>) -> Router {
    let limits = &shared.config.limits;
    let guarded = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/v1/pulls", get(pulls::pulls))
        .route("/v1/tables", get(tables::tables))
        .route("/v1/tables/{table}", get(tables::table))
        .route("/v1/tables/{table}/versions", get(tables::versions))
        .route("/v1/tables/{table}/rows/", get(rows::row))
        .route("/v1/tables/{table}/rows/{*key}", get(rows::row))
        .route("/v1/tables/{table}/swap", post(tables::swap))
        .route("/v1/tables/{table}/rollback", post(tables::rollback))
        .route("/v1/tables/{table}/compact", post(tables::compact))
        .layer(from_fn_with_state(Arc::clone(shared), guard::authenticate));
    Router::new()
        .route("/health", get(tables::health))
        .route("/ready", get(tables::ready))
        .merge(guarded)
        .fallback(answer::not_found)
        .method_not_allowed_fallback(answer::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(shared), guard::check_origin))
        .layer(DefaultBodyLimit::max(limits.http_body_bytes))
        .with_state(Arc::clone(shared))
}

async fn stopped(shared: &Shared) {
    while !shared.is_stopping() {
        shared.store.clock().wait(STOP_CHECK).await;
    }
}

// Connections are tasks of this thread, and of nobody else.
#[allow(clippy::disallowed_methods)]
async fn accept(
    mut listener: Box<dyn Listener>,
    router: Router,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    connections: Arc<Semaphore>,
) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(arrival) => {
                let address = arrival.peer();
                let serving = serve(arrival, router.clone(), tls.clone(), Arc::clone(&shared));
                let clock = Arc::clone(shared.store.clock());
                tokio::spawn(async move {
                    let _permit = permit;
                    match within(&*clock, CONNECTION_TIME, serving).await {
                        Some(Ok(())) => {}
                        Some(Err(error)) => {
                            debug!(%address, error, "an HTTP connection broke off");
                        }
                        None => debug!(%address, "an HTTP connection took too long"),
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept an HTTP connection");
                shared.store.clock().wait(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    arrival: Box<dyn Arrival>,
    router: Router,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) -> Result<(), String> {
    let stream = arrival.open().map_err(|error| error.to_string())?;
    let limit = shared.config.limits.http_header_time;
    match tls {
        None => talk(stream, router, limit).await,
        Some(tls) => match within(&**shared.store.clock(), limit, tls.accept(stream)).await {
            Some(Ok(stream)) => talk(stream, router, limit).await,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the TLS handshake took too long".to_owned()),
        },
    }
}

async fn talk<S>(stream: S, router: Router, header_time: Duration) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    connection.await.map_err(|error| error.to_string())
}
