//! Serves the metrics in Prometheus's format.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::IntoResponse;
use forebay_engine::TableState;
use forebay_engine::live::LiveStats;

use super::guard::Caller;
use super::metrics_page::Page;
use crate::metrics::{Drop, WorkerMetrics};
use crate::shared::Shared;
use crate::users::Verb;

/// Returns the metrics, with the tables that the caller may read.
pub async fn metrics(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> impl IntoResponse {
    let sees = |table: &str| table.is_empty() || caller.may(Verb::Read, table);
    let mut page = Page::default();
    server(&mut page, &shared);
    certificate(&mut page, &shared);
    connections(&mut page, &shared);
    tables(&mut page, &shared, &sees);
    live_tables(&mut page, &shared, &sees);
    backups(&mut page, &shared, &sees);
    super::pulls::metrics(&mut page, &shared, &sees);
    super::cluster_metrics::metrics(&mut page, &shared, &sees);
    latencies(&mut page, &shared, &sees);
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        page.into_text(),
    )
}

fn server(page: &mut Page, shared: &Shared) {
    page.begin("forebay_build_info", "gauge", "The version of the program.");
    page.line(
        "forebay_build_info",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1,
    );
    page.one(
        "forebay_uptime_seconds",
        "gauge",
        "Since the start.",
        shared.uptime_seconds(),
    );
    let (own, mapped) = shared.resident_bytes();
    page.begin(
        "forebay_resident_bytes",
        "gauge",
        "Memory of the process, by what it is.",
    );
    page.line("forebay_resident_bytes", &[("kind", "own")], own);
    page.line("forebay_resident_bytes", &[("kind", "file_pages")], mapped);
    let index: usize = shared
        .serving
        .load()
        .iter()
        .map(|(_, v)| v.memory_bytes())
        .sum();
    let help = "Memory of the indexes of the serving versions, which has to stay.";
    page.one("forebay_index_bytes", "gauge", help, index as u64);
    let retired = shared.serving.states().retired as u64;
    let help = "Versions that were swapped out and are still being read.";
    page.one("forebay_retired_versions", "gauge", help, retired);
}

/// For a store in a directory, which is always fast to read.
fn backups(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    let store = shared.config.administered.as_ref().unwrap_or(&shared.store);
    if store.disk().is_object_storage() {
        return;
    }
    let Ok(backups) = store.last_backups() else {
        return;
    };
    let name = "forebay_table_backup_timestamp_seconds";
    page.begin(name, "gauge", "When the last backup of the table began.");
    for (table, last) in backups.iter().filter(|(table, _)| sees(table.as_str())) {
        let labels = [("table", table.as_str())];
        page.line(name, &labels, last.taken_unix_ms / 1000);
    }
}

fn certificate(page: &mut Page, shared: &Shared) {
    let Some(ends_unix_s) = shared.secrets.certificate_ends_unix_s() else {
        return;
    };
    let now_unix_s = (shared.store.clock().unix_ms() / 1000) as i64;
    let name = "forebay_certificate_remaining_seconds";
    let help = "Until the certificate for clients ends (--tls-cert); below 0: it has.";
    page.begin(name, "gauge", help);
    page.line(name, &[], ends_unix_s.saturating_sub(now_unix_s));
}

fn connections(page: &mut Page, shared: &Shared) {
    let metrics = &shared.metrics;
    let sum = |of: fn(&WorkerMetrics) -> u64| metrics.workers().iter().map(of).sum::<u64>();
    let connected = metrics.connected.load(Relaxed).max(0) as u64;
    page.one(
        "forebay_connections",
        "gauge",
        "Open RESP connections.",
        connected,
    );
    let help = "RESP connections that there may be, as the limit of open files allows.";
    let most = shared.max_connections() as u64;
    page.one("forebay_max_connections", "gauge", help, most);
    let http = metrics.http_connected.load(Relaxed) as u64;
    page.one(
        "forebay_http_connections",
        "gauge",
        "Open HTTP connections.",
        http,
    );
    for (name, help, value) in [
        (
            "forebay_connections_accepted_total",
            "Accepted.",
            metrics.accepted.load(Relaxed),
        ),
        (
            "forebay_connections_refused_total",
            "One too many.",
            metrics.refused.load(Relaxed),
        ),
        (
            "forebay_auth_failures_total",
            "Wrong passwords.",
            metrics.auth_failures.load(Relaxed),
        ),
        (
            "forebay_input_bytes_total",
            "Received.",
            sum(|w| w.input_bytes.load(Relaxed)),
        ),
        (
            "forebay_output_bytes_total",
            "Sent.",
            sum(|w| w.output_bytes.load(Relaxed)),
        ),
    ] {
        page.one(name, "counter", help, value);
    }
    let name = "forebay_reply_bytes";
    let help = "Memory of replies that were made and not sent, of all connections.";
    page.begin(name, "gauge", help);
    let memory = &shared.reply_memory;
    for (kind, bytes) in [
        ("limit", memory.limit_bytes()),
        ("held", memory.held_bytes()),
    ] {
        page.line(name, &[("kind", kind)], bytes as u64);
    }
    let name = "forebay_connections_dropped_total";
    page.begin(name, "counter", "Ended by the server, by reason.");
    for reason in Drop::ALL {
        let count = metrics.dropped[reason as usize].load(Relaxed);
        page.line(name, &[("reason", reason.label())], count);
    }
}

fn tables(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    type Of = fn(&TableState) -> u64;
    let families: [(&str, &str, &str, Of); 7] = [
        (
            "forebay_table_version",
            "gauge",
            "The version that serves; 0: none.",
            |state| state.serving.unwrap_or(0),
        ),
        (
            "forebay_table_target_version",
            "gauge",
            "The version that should serve.",
            |state| state.wanted.unwrap_or(0),
        ),
        (
            "forebay_table_rows",
            "gauge",
            "Rows of the serving version.",
            |state| state.rows,
        ),
        (
            "forebay_table_bytes",
            "gauge",
            "Keys and values of the serving version.",
            |state| state.bytes,
        ),
        (
            "forebay_table_file_bytes",
            "gauge",
            "Files of the serving version.",
            |state| state.file_bytes,
        ),
        (
            "forebay_table_swaps_total",
            "counter",
            "Swaps to another version.",
            |s| s.swaps,
        ),
        (
            "forebay_table_load_errors_total",
            "counter",
            "Versions that could not be opened.",
            |s| s.load_errors,
        ),
    ];
    let states = shared.serving.states();
    for (name, kind, help, of) in families {
        page.begin(name, kind, help);
        let seen = states
            .tables
            .iter()
            .filter(|(table, _)| sees(table.as_str()));
        for (table, state) in seen {
            page.line(name, &[("table", table.as_str())], of(state));
        }
    }
    let name = "forebay_page_cache_misses_total";
    page.begin(name, "counter", "Commands that had to wait for the device.");
    let misses = shared.metrics.page_misses().into_iter();
    for (table, count) in misses.filter(|(table, _)| sees(table)) {
        page.line(name, &[("table", &table)], count);
    }
}

type LiveMetrics = fn(&LiveStats) -> u64;

/// Metrics of live tables: name, kind, help and value.
const LIVE_FAMILIES: [(&str, &str, &str, LiveMetrics); 11] = [
    (
        "forebay_live_memtable_bytes",
        "gauge",
        "Memory of what was written and is in no run yet.",
        |s| s.memtable_bytes as u64,
    ),
    (
        "forebay_live_frozen_bytes",
        "gauge",
        "Memory of what is being written to runs.",
        |s| s.frozen_bytes as u64,
    ),
    (
        "forebay_live_run_memory_bytes",
        "gauge",
        "Memory of filters and indexes of runs.",
        |s| s.run_memory_bytes as u64,
    ),
    (
        "forebay_live_log_bytes",
        "gauge",
        "Files of the log.",
        |s| s.log_bytes,
    ),
    (
        "forebay_live_file_bytes",
        "gauge",
        "Files of the runs.",
        |s| s.file_bytes,
    ),
    (
        "forebay_live_run_records",
        "gauge",
        "Records in the runs.",
        |s| s.run_records,
    ),
    (
        "forebay_live_runs",
        "gauge",
        "Runs of all partitions.",
        |s| s.runs.iter().sum::<usize>() as u64,
    ),
    (
        "forebay_live_flushed_bytes_total",
        "counter",
        "Bytes of runs written from memory.",
        |s| s.flushed_bytes,
    ),
    (
        "forebay_live_merged_bytes_total",
        "counter",
        "Bytes of runs written by merges.",
        |s| s.merged_bytes,
    ),
    (
        "forebay_live_merges_total",
        "counter",
        "Merges of runs.",
        |s| s.merges,
    ),
    (
        "forebay_live_refuses_writes",
        "gauge",
        "1: it takes no writes now; /ready says why.",
        |s| u64::from(s.refuses.is_some()),
    ),
];

fn live_tables(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    let stats: Vec<_> = shared
        .live
        .load()
        .iter()
        .filter(|(name, _)| sees(name.as_str()))
        .map(|(name, table)| (name.clone(), table.stats()))
        .collect();
    for (name, kind, help, of) in LIVE_FAMILIES {
        page.begin(name, kind, help);
        for (table, stats) in &stats {
            page.line(name, &[("table", table.as_str())], of(stats));
        }
    }
    let name = "forebay_live_stall_seconds_total";
    page.begin(name, "counter", "Pauses asked of writers.");
    for (table, stats) in &stats {
        let seconds = stats.delayed.as_secs_f64();
        page.line(name, &[("table", table.as_str())], seconds);
    }
    let help = "Memory that the live tables may take together, and take.";
    page.begin("forebay_live_budget_bytes", "gauge", help);
    let budget = shared.live.budget();
    page.line(
        "forebay_live_budget_bytes",
        &[("kind", "limit")],
        budget.limit_bytes() as u64,
    );
    page.line(
        "forebay_live_budget_bytes",
        &[("kind", "used")],
        budget.used_bytes() as u64,
    );
}

fn latencies(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    let mut sums = shared.metrics.latencies();
    sums.retain(|(table, _), _| sees(table));
    let name = "forebay_command_errors_total";
    page.begin(name, "counter", "Error replies by table and command.");
    for ((table, command), sum) in &sums {
        page.line(name, &[("table", table), ("command", command)], sum.errors);
    }
    let name = "forebay_command_seconds";
    page.begin(
        name,
        "histogram",
        "From a command's turn to its reply, by table and command.",
    );
    for ((table, command), sum) in &sums {
        page.histogram(name, &[("table", table), ("command", command)], sum);
    }
}
