//! The memory of a server's process, in a binary of its own because other tests use memory too.

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../common/mod.rs"]
mod common;

use common::{Fixture, Reply};
use forebay_engine::live::LiveDraft;

#[test]
fn a_multi_holds_one_key_in_memory_once() {
    let mut fixture = Fixture::store();
    fixture.live_as("t", LiveDraft::hashed());
    fixture.start(|_| {});
    let mut client = fixture.client();
    let resident_mb = || {
        let statm = fixture.store.disk().read("/proc/self/statm".as_ref());
        let text = String::from_utf8(statm.unwrap()).unwrap();
        let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096 / 1_000_000
    };
    let before = resident_mb();
    assert_eq!(client.ask("MULTI"), Reply::Simple("OK".to_owned()));
    for _ in 0..200 {
        let queued = client.ask("SETRANGE t:{u}big 15000000 x");
        assert_eq!(queued, Reply::Simple("QUEUED".to_owned()));
    }
    let Reply::Array(replies) = client.ask("EXEC") else {
        panic!("no replies")
    };
    assert_eq!(replies.len(), 200);
    assert!(replies.iter().all(|reply| *reply == Reply::Int(15_000_001)));
    // Separately they would be 3,000.
    assert!(resident_mb() < before + 500);
}
