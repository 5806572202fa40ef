//! Samples for some seconds what clients ask for, then returns the counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use forebay_run::row::write_json_bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::ErrorAnswer;
use super::cluster::parse_wait;
use super::guard::Caller;
use super::stopped;
use crate::metrics::{BUCKETS, HistogramSum, bucket_bound_us};
use crate::samples::{RequestCount, SampleCounts, SampledKey};
use crate::shared::Shared;
use crate::totals::Totals;
use crate::users::Verb;

const LONGEST: Duration = Duration::from_secs(10);
const MOST_LINES: usize = 1000;
/// Fewer samples than this are noise in an estimate.
const LEAST_SAMPLES: u64 = 5;

/// The parameters of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopQuery {
    /// How long to sample: `1s` or `500ms`.
    #[serde(rename = "for")]
    time: Option<String>,
    /// The most partitions, keys and users to return; the most frequent ones.
    limit: Option<usize>,
}

/// The requests during the sampled time.
struct TopAnswer {
    seconds: f64,
    limit: usize,
    counts: SampleCounts,
    totals: Totals,
    /// Latencies by table, of all of its commands.
    tables: BTreeMap<Box<str>, HistogramSum>,
}

/// Samples for the requested time. The caller sees the tables that it may read, and users if it
/// administers.
pub async fn top(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    wanted: Result<Query<TopQuery>, QueryRejection>,
) -> Result<Json<Value>, ErrorAnswer> {
    let bad = |text: &str| ErrorAnswer::new(StatusCode::BAD_REQUEST, text);
    let words = "top is asked for by for, a time from 1ms to 10s, as 500ms, and limit, a number from 1 to 1000";
    let Query(TopQuery { time, limit }) = wanted.map_err(|_| bad(words))?;
    let time = time.as_deref().unwrap_or("1s");
    let time = parse_wait(time, LONGEST).ok_or_else(|| bad(words))?;
    let limit = limit.unwrap_or(20);
    if !(1..=MOST_LINES).contains(&limit) {
        return Err(bad(words));
    }
    let workers = shared.metrics.workers().len();
    let administers = shared.has_users() && caller.administers();
    let watch = shared.sampler.watch(workers, administers);
    let watch = watch.ok_or_else(|| {
        let text = "others watch already, as many as may at a time: ask again in some seconds";
        ErrorAnswer::new(StatusCode::TOO_MANY_REQUESTS, text)
    })?;
    let clock = shared.store.clock();
    let (since, before) = (clock.monotonic(), Totals::of(&shared.metrics));
    let tables_before = by_table(&shared);
    tokio::select! {
        () = clock.wait(time) => {}
        () = stopped(&shared) => {}
    }
    let mut tables = by_table(&shared);
    for (table, sum) in &tables_before {
        tables.entry(table.clone()).or_default().subtract(sum);
    }
    let answer = TopAnswer {
        seconds: clock.monotonic().saturating_sub(since).as_secs_f64(),
        limit,
        counts: watch.counts(),
        totals: Totals::of(&shared.metrics).since(&before),
        tables,
    };
    Ok(Json(answer.json(&caller, shared.has_users())))
}

fn by_table(shared: &Shared) -> BTreeMap<Box<str>, HistogramSum> {
    let mut sums: BTreeMap<Box<str>, HistogramSum> = BTreeMap::new();
    for ((table, _), sum) in shared.metrics.latencies() {
        sums.entry(table).or_default().merge(&sum);
    }
    sums
}

impl TopAnswer {
    fn json(&self, caller: &Caller, has_users: bool) -> Value {
        let sees = |table: &str| caller.may(Verb::Read, table);
        let mut object = json!({
            "seconds": self.seconds,
            "estimated": self.counts.is_estimate,
            "tables": self.tables(&sees),
            "partitions": self.partitions(&sees),
            "keys": self.keys(&sees),
        });
        // Sums do not include what others do to tables that the caller may not read.
        if caller.reads_all() {
            object["samples"] = self.counts.samples.into();
            object["commands_per_second"] = self.rate(self.totals.commands()).into();
            object["errors_per_second"] = self.rate(self.totals.errors()).into();
            object["input_bytes_per_second"] = self.rate(self.totals.input_bytes).into();
            object["output_bytes_per_second"] = self.rate(self.totals.output_bytes).into();
        }
        if has_users && caller.administers() {
            object["users"] = self.users();
        }
        object
    }

    fn rate(&self, count: u64) -> f64 {
        (count as f64 / self.seconds.max(1e-3) * 10.0).round() / 10.0
    }

    /// Returns the requested tables, those with most keys first.
    fn tables(&self, sees: &dyn Fn(&str) -> bool) -> Vec<Value> {
        let mut asked: HashMap<Box<str>, RequestCount> = HashMap::new();
        for (key, more) in &self.counts.keys {
            asked
                .entry(key.table.as_str().into())
                .or_default()
                .add(more);
        }
        for (table, sum) in &self.tables {
            if sum.count() > 0 && !table.is_empty() {
                asked.entry(table.clone()).or_default();
            }
        }
        asked.retain(|table, _| sees(table));
        let mut asked: Vec<_> = asked.into_iter().collect();
        asked.sort_by_key(|(table, asked)| (Reverse(asked.sum()), table.clone()));
        let object = |(table, asked): (Box<str>, RequestCount)| {
            let none = HistogramSum::default();
            let sum = self.tables.get(&table).unwrap_or(&none);
            json!({
                "table": table,
                "reads_per_second": self.rate(asked.reads),
                "writes_per_second": self.rate(asked.writes),
                "commands_per_second": self.rate(sum.count()),
                "errors_per_second": self.rate(sum.errors),
                "p50_us": quantile_us(sum, 0.5),
                "p99_us": quantile_us(sum, 0.99),
            })
        };
        asked.into_iter().map(object).collect()
    }

    fn partitions(&self, sees: &dyn Fn(&str) -> bool) -> Vec<Value> {
        let mut asked: HashMap<_, RequestCount> = HashMap::new();
        for (key, more) in &self.counts.keys {
            if let Some(partition) = key.partition {
                let place = (key.table.clone(), partition);
                asked.entry(place).or_default().add(more);
            }
        }
        asked.retain(|(table, _), _| sees(table.as_str()));
        let object = |((table, partition), asked): (_, RequestCount)| {
            json!({
                "table": table,
                "partition": partition,
                "reads_per_second": self.rate(asked.reads),
                "writes_per_second": self.rate(asked.writes),
            })
        };
        self.most(asked).into_iter().map(object).collect()
    }

    fn keys(&self, sees: &dyn Fn(&str) -> bool) -> Vec<Value> {
        let mut asked = self.counts.keys.clone();
        let is_estimate = self.counts.is_estimate;
        asked.retain(|key, asked| {
            sees(key.table.as_str()) && (!is_estimate || asked.samples >= LEAST_SAMPLES)
        });
        let object = |(key, asked): (SampledKey, RequestCount)| {
            json!({
                "table": key.table,
                "key": text(&key.key),
                "partition": key.partition,
                "reads_per_second": self.rate(asked.reads),
                "writes_per_second": self.rate(asked.writes),
            })
        };
        self.most(asked).into_iter().map(object).collect()
    }

    fn users(&self) -> Value {
        let mut users: Vec<_> = self.counts.users.iter().collect();
        users.sort_by_key(|(user, asked)| (Reverse(**asked), *user));
        users.truncate(self.limit);
        let objects = users
            .iter()
            .map(|(user, asked)| json!({"user": user, "keys_per_second": self.rate(**asked)}));
        objects.collect()
    }

    /// Returns the most frequent ones.
    fn most<K: Hash + Ord + Clone>(
        &self,
        asked: HashMap<K, RequestCount>,
    ) -> Vec<(K, RequestCount)> {
        let mut asked: Vec<_> = asked.into_iter().collect();
        asked.sort_by_cached_key(|(key, asked)| (Reverse(asked.sum()), key.clone()));
        asked.truncate(self.limit);
        asked
    }
}

/// Returns a value for display: text, or base64 of what is not text.
fn text(bytes: &[u8]) -> Value {
    let mut text = Vec::new();
    write_json_bytes(bytes, &mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Returns a bound in microseconds that this part of the commands did not exceed. Null if there
/// were none, or if it is above all bounds.
fn quantile_us(sum: &HistogramSum, part: f64) -> Option<u64> {
    let wanted = (sum.count() as f64 * part).ceil() as u64;
    let mut up_to = 0;
    let bucket = (0..BUCKETS).find(|bucket| {
        up_to += sum.buckets[*bucket];
        up_to >= wanted && up_to > 0
    });
    bucket_bound_us(bucket?)
}
