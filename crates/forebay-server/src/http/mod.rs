//! The HTTP port: health, metrics, tables, one row as JSON, swap and rollback.
//!
//! Swap and rollback are for callers with the token, and for users with the verb `admin`.

mod answer;
mod checkpoints;
mod cluster;
mod cluster_metrics;
mod connections;
mod events;
mod guard;
mod host;
mod metrics;
mod metrics_page;
mod pulls;
mod ready;
mod replica_metrics;
mod rows;
mod tables;
mod top;
mod unread;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use forebay_io::{Listener, within};
use tokio::runtime::Runtime;

use self::connections::Connections;
use crate::shared::Shared;

const STOP_CHECK: Duration = Duration::from_millis(50);
/// Threads that read tables and move pointers.
const WAITING_THREADS: usize = 16;

/// The HTTP port, ready to be served.
pub struct HttpServer {
    shared: Arc<Shared>,
    runtime: Runtime,
    listener: Box<dyn Listener>,
    connections: Connections,
}

impl HttpServer {
    /// Prepares the port with all resources of the system that it needs.
    pub fn new(shared: &Arc<Shared>, listener: Box<dyn Listener>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING_THREADS)
            .build()?;
        let routers = (router(shared), probes(shared));
        Ok(Self {
            shared: Arc::clone(shared),
            runtime,
            listener,
            connections: Connections::new(shared, routers),
        })
    }

    /// Serves until the server stops.
    pub fn run(self) {
        let (shared, connections) = (self.shared, self.connections);
        self.runtime.block_on(async {
            tokio::select! {
                () = connections.accept(self.listener) => {}
                () = stopped(&shared) => {}
            }
            // Running requests get their answers; idle connections are closed.
            let limits = &shared.config.limits;
            let limit = limits.shutdown_time.min(Duration::from_secs(1));
            within(&**shared.store.clock(), limit, connections.ended()).await;
        });
        self.runtime.shutdown_background();
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/v1/pulls", get(pulls::pulls))
        .route("/v1/cluster", get(cluster::status))
        .route("/v1/events", get(events::events))
        .route("/v1/top", get(top::top))
        .route("/v1/tables", get(tables::tables))
        .route("/v1/tables/{table}", get(tables::table))
        .route("/v1/tables/{table}/versions", get(tables::versions))
        .route("/v1/tables/{table}/rows/", get(rows::row))
        .route("/v1/tables/{table}/rows/{*key}", get(rows::row))
        .route("/v1/tables/{table}/swap", post(tables::swap))
        .route("/v1/tables/{table}/rollback", post(tables::rollback))
        .route("/v1/tables/{table}/compact", post(tables::compact))
        .route(
            "/v1/tables/{table}/checkpoints/{id}",
            get(checkpoints::touch).delete(checkpoints::end),
        )
        .route(
            "/v1/tables/{table}/checkpoints/{id}/{step}",
            post(checkpoints::step),
        )
        .route(
            "/v1/tables/{table}/checkpoints/{id}/files/{file}",
            get(checkpoints::file),
        )
        .layer(from_fn_with_state(Arc::clone(shared), guard::authenticate));
    let all = open_to_all().merge(guarded).fallback(answer::not_found);
    checked(all, shared)
}

/// Returns the router for connections without a slot.
fn probes(shared: &Arc<Shared>) -> Router {
    checked(open_to_all().fallback(answer::too_many), shared)
}

fn open_to_all() -> Router<Arc<Shared>> {
    Router::new()
        .route("/health", get(ready::health))
        .route("/ready", get(ready::ready))
        .route("/ready/tables", get(ready::all_tables))
        .route("/ready/tables/{table}", get(ready::one_table))
        .route("/v1/cluster/notify", get(cluster::notify))
        .route("/v1/pulls/notify", get(pulls::notify))
}

fn checked(router: Router<Arc<Shared>>, shared: &Arc<Shared>) -> Router {
    let limits = &shared.config.limits;
    router
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
