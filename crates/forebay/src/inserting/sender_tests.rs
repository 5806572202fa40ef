//! Tests a client against nodes with scripted answers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_io::sim::HandClock;
use forebay_load::progress::Silent;
use forebay_run::Order;
use forebay_run::operation::Operation;

use super::super::routes::SharedRoutes;
use super::*;

/// Answers by node, one list for each exchange; a node without one says OK.
#[derive(Default)]
struct ScriptedAnswers {
    answers: HashMap<u16, VecDeque<NodeAnswers>>,
    /// Received keys, in order, with the node that received them.
    came: Vec<(u16, String)>,
    /// The leader of keys below m, and the leader of the rest.
    leaders: [u16; 2],
}

impl ScriptedAnswers {
    fn of(leaders: [u16; 2]) -> Self {
        Self {
            leaders,
            ..Self::default()
        }
    }

    fn announce(mut self, node: u16, answers: NodeAnswers) -> Self {
        self.answers.entry(node).or_default().push_back(answers);
        self
    }

    fn map(&self) -> RespAnswer {
        let bulk = |text: &str| RespAnswer::Bulk(text.as_bytes().to_vec());
        let [low, high] = self.leaders.map(|port| {
            let other = if port == 1 { 2 } else { 1 };
            let nodes = [port, other].map(|port| bulk(&format!("node:{port}")));
            RespAnswer::Array(nodes.to_vec())
        });
        RespAnswer::Array(vec![
            RespAnswer::Array(vec![bulk(""), bulk("m"), low]),
            RespAnswer::Array(vec![bulk("m"), RespAnswer::Null, high]),
        ])
    }
}

impl Exchange for &mut ScriptedAnswers {
    fn exchange(&mut self, commands: &[NodeCommands]) -> Vec<NodeAnswers> {
        let answer = |one: &NodeCommands| {
            let text = String::from_utf8_lossy(&one.bytes).into_owned();
            if text.contains("KV.MAP") {
                return Ok(vec![self.map()]);
            }
            let keys = text.split("t:").skip(1);
            let keys = keys.map(|rest| rest.split('\r').next().unwrap_or("").to_owned());
            self.came.extend(keys.map(|key| (one.node.port, key)));
            let reported = self.answers.get_mut(&one.node.port);
            reported
                .and_then(VecDeque::pop_front)
                .unwrap_or_else(|| Ok(vec![RespAnswer::Simple("OK".to_owned()); one.count]))
        };
        commands.iter().map(answer).collect()
    }
}

fn ok() -> RespAnswer {
    RespAnswer::Simple("OK".to_owned())
}

fn error(words: &str) -> RespAnswer {
    RespAnswer::Error(words.to_owned())
}

fn insertion(clock: &Arc<HandClock>, (rows, has_deltas): (u64, bool)) -> Insertion<'static> {
    let table = TableName::new("t").unwrap();
    let nodes = vec![HostPort::new("node", 1), HostPort::new("node", 2)];
    let clock: Arc<dyn forebay_io::Clock> = clock.clone();
    let routes = SharedRoutes::new(&table, Order::Ordered, nodes, Arc::clone(&clock));
    let patience = Duration::from_secs(60);
    Insertion::new(
        &table,
        routes,
        (clock, &Silent),
        (None, patience),
        (rows, has_deltas),
    )
}

fn batch(rows: &[(&str, Operation<'_>)]) -> RowBatch {
    let mut batch = RowBatch::new(&TableName::new("t").unwrap(), 100);
    for (key, operation) in rows {
        batch.push(key.as_bytes(), *operation);
    }
    batch
}

/// Sends rows to nodes with these answers. Returns the result, the number of rows written, and what
/// each node received.
fn send(
    mut reported: ScriptedAnswers,
    rows: &[(&str, Operation<'_>)],
) -> (Result<(), InsertError>, u64, Vec<(u16, String)>) {
    let clock = Arc::new(HandClock::default());
    let has_deltas = rows
        .iter()
        .any(|(_, row)| matches!(row, Operation::Delta(_)));
    let insertion = insertion(&clock, (rows.len() as u64, has_deltas));
    let renewed = insertion.routes.renew(0, &mut &mut reported);
    renewed.expect("routes");
    let mut sender = RowSender {
        insertion: &insertion,
        exchange: &mut reported,
    };
    let sent = sender.send(&batch(rows));
    (sent, insertion.totals().rows(), reported.came)
}

fn updates<'k>(keys: &[&'k str]) -> Vec<(&'k str, Operation<'static>)> {
    let update = |key: &&'k str| (*key, Operation::Update(b"v"));
    keys.iter().map(update).collect()
}

fn at(node: u16, keys: &[&str]) -> Vec<(u16, String)> {
    keys.iter().map(|key| (node, (*key).to_owned())).collect()
}

#[test]
fn rows_go_to_the_leader_of_their_partition_in_order() {
    let (sent, rows, came) = send(ScriptedAnswers::of([1, 2]), &updates(&["c", "x", "a", "m"]));
    assert_eq!((sent, rows), (Ok(()), 4));
    assert_eq!(came, [at(1, &["c", "a"]), at(2, &["x", "m"])].concat());
}

#[test]
fn a_redirected_row_goes_to_the_named_node() {
    let reported = ScriptedAnswers::of([1, 1]).announce(1, Ok(vec![ok(), error("MOVED 7 node:2")]));
    let (sent, rows, came) = send(reported, &updates(&["a", "x"]));
    assert_eq!((sent, rows), (Ok(()), 2));
    assert_eq!(came, [at(1, &["a", "x"]), at(2, &["x"])].concat());
}

#[test]
fn rows_that_set_or_delete_are_sent_again_after_any_outcome() {
    let broken = WireFailure::Broken(vec![ok()], "node:1: it closed the connection".to_owned());
    let reported = ScriptedAnswers::of([1, 1]);
    let reported = reported
        .announce(1, Err(broken))
        .announce(2, Ok(vec![error("UNCERTAIN it"), ok()]));
    let rows = [
        ("a", Operation::Update(b"v")),
        ("b", Operation::Delete),
        ("c", Operation::Insert(b"v")),
    ];
    let (sent, written, came) = send(reported, &rows);
    assert_eq!((sent, written), (Ok(()), 3));
    // The client avoids the failed node for a while.
    assert_eq!(
        came[..5],
        [at(1, &["a", "b", "c"]), at(2, &["b", "c"])].concat()
    );
    assert_eq!(came[5..], at(2, &["b"]));
}

#[test]
fn deltas_are_sent_again_only_if_they_were_not_applied() {
    let reported = ScriptedAnswers::of([1, 1]);
    let reported = reported.announce(1, Err(WireFailure::Unreached("node:1: refused".to_owned())));
    let reported = reported.announce(
        2,
        Ok(vec![error("TRYAGAIN nothing was written: nobody leads")]),
    );
    let (sent, rows, came) = send(reported, &[("a", Operation::Delta(b"1"))]);
    assert_eq!((sent, rows, came.len()), (Ok(()), 1, 3));

    let reported = ScriptedAnswers::of([1, 2]);
    let broken = WireFailure::Broken(vec![ok()], "node:1: reset".to_owned());
    let reported = reported.announce(1, Err(broken));
    let keys = ["a", "b", "c", "x"];
    let deltas: Vec<_> = keys.map(|key| (key, Operation::Delta(b"1"))).into();
    let (sent, rows, came) = send(reported, &deltas);
    assert_eq!((rows, came.len()), (2, 4));
    let Err(InsertError::Uncertain { keys, .. }) = &sent else {
        panic!("{sent:?}");
    };
    let [keys] = &keys.0[..] else {
        panic!("{keys:?}");
    };
    assert_eq!(
        (keys.rows, &keys.first[..], &keys.last[..]),
        (2, &b"b"[..], &b"c"[..])
    );
    let words = sent.expect_err("uncertain").to_string();
    assert!(words.contains("2 rows, from key b to key c"), "{words}");
    assert!(words.contains("2 of 4 rows are in t, and stay"), "{words}");
}

#[test]
fn a_refused_row_ends_the_insert_and_names_its_key() {
    let reported =
        ScriptedAnswers::of([1, 2]).announce(1, Ok(vec![ok(), error("ERR no value of it")]));
    let (sent, rows, _) = send(reported, &updates(&["a", "b", "x"]));
    let Err(InsertError::RowRefused { key, .. }) = &sent else {
        panic!("{sent:?}");
    };
    // The row of the other node is counted.
    assert_eq!((&key[..], rows), (&b"b"[..], 2));
    let reported = ScriptedAnswers::of([1, 2]).announce(1, Ok(vec![error("NOPERM not you")]));
    let (sent, ..) = send(reported, &updates(&["a"]));
    assert!(
        matches!(sent, Err(InsertError::NotLetIn { .. })),
        "{sent:?}"
    );
}

#[test]
fn an_insert_without_progress_ends() {
    let mut reported = ScriptedAnswers::of([1, 1]);
    for _ in 0..10_000 {
        for node in [1, 2] {
            reported = reported.announce(node, Ok(vec![error("NOREPLICAS no majority answers")]));
        }
    }
    let (sent, rows, _) = send(reported, &updates(&["a"]));
    assert_eq!(rows, 0);
    let words = sent.expect_err("the insert ends").to_string();
    assert!(
        words.contains("no row was taken for 60 s: NOREPLICAS"),
        "{words}"
    );
}
