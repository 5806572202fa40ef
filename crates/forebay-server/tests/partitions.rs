//! Replies of a server that lacks some partitions of a live table.

use crate::common::{Fixture, Reply, http};
use forebay_engine::live::LiveDraft;
use forebay_engine::{OpenPartitions, PartitionId};

/// An ordered table of three partitions, below `g`, below `p` and from there on, without the
/// second.
fn served() -> Fixture {
    let mut fixture = Fixture::store();
    let held = OpenPartitions::Only([0, 2].map(PartitionId).into());
    let draft = LiveDraft::ordered(vec![b"g".to_vec(), b"p".to_vec()]);
    fixture.live_as("t", draft.holding(&held));
    fixture.start(|_| {});
    fixture
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(words) if words.contains("is not open here"))
}

#[test]
fn a_key_of_a_missing_partition_is_refused_and_others_are_served() {
    let fixture = served();
    let mut client = fixture.client();
    assert_eq!(client.ask("SET t:a 1"), Reply::Simple("OK".to_owned()));
    for command in [
        "GET t:k",
        "SET t:k 1",
        "DEL t:k",
        "EXISTS t:k",
        "STRLEN t:k",
        "INCR t:k",
        "APPEND t:k x",
        "TTL t:k",
        "MGET t:a t:k t:z",
        "KV.RANGE t:a t:z",
    ] {
        let reply = client.ask(command);
        assert!(is_refused(&reply), "{command}: {reply:?}");
    }
    assert_eq!(client.ask("GET t:a"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(client.ask("GET t:z"), Reply::Null);
}

#[test]
fn a_write_with_one_key_of_a_missing_partition_changes_nothing() {
    let fixture = served();
    let mut client = fixture.client();
    assert!(is_refused(&client.ask("MSET t:a 1 t:z 1 t:k 1")));
    assert_eq!(
        client.ask("MGET t:a t:z"),
        Reply::Array(vec![Reply::Null, Reply::Null])
    );
    client.ask("MSET t:a 1 t:z 2");
    assert!(is_refused(&client.ask("DEL t:a t:z t:k")));
    assert_eq!(
        client.ask("MGET t:a t:z"),
        Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::Bulk(b"2".to_vec())])
    );
}

#[test]
fn a_scan_covers_the_partitions_that_are_here() {
    let fixture = served();
    let mut client = fixture.client();
    client.ask("MSET t:a 1 t:b 2 t:z 3");
    let Reply::Array(scanned) = client.ask("SCAN 0 MATCH t:* COUNT 100") else {
        panic!("no answer to SCAN");
    };
    let keys = ["t:a", "t:b", "t:z"].map(|key| Reply::Bulk(key.as_bytes().to_vec()));
    assert_eq!(scanned[1], Reply::Array(keys.to_vec()));
}

#[test]
fn http_answers_misdirected_for_a_row_of_a_missing_partition() {
    let fixture = served();
    let status = |key: &str| http(&fixture, &format!("GET /v1/tables/t/rows/{key}"), "", "").0;
    assert_eq!((status("k"), status("z")), (421, 404));
}
