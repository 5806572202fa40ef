//! The log lines of nodes about changes of the cluster.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::cluster::SimCluster;

/// The lines that nodes logged since they were last cleared.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Collects nodes' log lines about changes; other lines cost nothing.
struct Changes;

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => _ = write!(self.0, " {name}={value:?}"),
        }
    }
}

impl Subscriber for Changes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "forebay_cluster::shell::changes"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        lines().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until this many nodes have logged a line with all these words.
fn until_logged(cluster: &SimCluster, nodes: usize, words: &[&str]) {
    let has = |line: &&String| words.iter().all(|word| line.contains(word));
    cluster.until(&format!("{words:?} is logged"), |_| {
        (lines().iter().filter(has).count() >= nodes).then_some(())
    });
}

#[test]
fn nodes_log_a_killed_node_a_new_coordinator_and_a_rollout() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Changes).expect("the first one"));
    let mut cluster = SimCluster::of(3);
    let killed = cluster.coordinator();
    lines().clear();
    cluster.push("words", 10, 1);
    for what in ["rollout began", "rollout committed", "rollout confirmed"] {
        until_logged(&cluster, 3, &[what, "table=\"words\"", "to=1"]);
    }
    lines().clear();
    cluster.node(killed).kill();
    let node = format!("node=\"n{killed}\"");
    until_logged(&cluster, 2, &["node is down", &node]);
    let next = cluster.coordinator();
    let before = format!("before=\"n{killed}\"");
    until_logged(
        &cluster,
        1,
        &["node is the coordinator", &format!("node=n{next}"), &before],
    );
    cluster.node(killed).start();
    until_logged(&cluster, 2, &["node is up again", &node]);
    // Each node logged it once.
    let all = lines();
    let down = all.iter().filter(|line| line.contains("node is down"));
    assert_eq!(down.count(), 2, "{all:?}");
}
