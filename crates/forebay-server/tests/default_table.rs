//! A server with a default table: users with rights to some tables, and commands on several keys.

use crate::common::{Fixture, client_of, with_users};

#[test]
fn flushdb_empties_one_table() {
    let fixture = with_users();
    let (mut ops, mut shop) = (client_of(&fixture, "ops"), client_of(&fixture, "shop"));
    for n in 0..300 {
        assert_eq!(ops.text(&format!("MSET kv:{n} a own:{n} b")), "OK");
    }
    assert!(
        shop.text("FLUSHDB kv")
            .starts_with("-NOPERM user 'shop' may not write to")
    );
    assert!(
        ops.text("FLUSHDB nosuch")
            .starts_with("-ERR no table 'nosuch'")
    );
    assert!(
        ops.text("FLUSHALL")
            .starts_with("-ERR FLUSHALL is not supported")
    );
    assert!(ops.text("FLUSHDB a b c").starts_with("-ERR syntax"));
    assert_eq!(shop.text("FLUSHDB ASYNC"), "OK");
    assert_eq!(ops.texts("KEYS kv:*").len(), 300);
    assert_eq!(ops.texts("KEYS own:*").len(), 0);
    assert_eq!(ops.text("FLUSHDB kv SYNC"), "OK");
    assert_eq!(ops.texts("KEYS *").len(), 0);
    let mut fixture = Fixture::store();
    fixture.live("kv");
    fixture.start(|_| {});
    let refused = "-ERR FLUSHDB here empties one table";
    assert!(fixture.client().text("FLUSHDB").starts_with(refused));
}

#[test]
fn a_user_does_not_notice_a_table_without_a_right_to_it() {
    let fixture = with_users();
    let (mut ops, mut shop) = (client_of(&fixture, "ops"), client_of(&fixture, "shop"));
    // Whether or not a table `kv` exists, the user's keys are in the default table.
    assert_eq!(shop.text("SET kv:a 1"), "OK");
    assert_eq!(shop.text("SET nosuch:a 2"), "OK");
    assert_eq!(ops.text("GET kv:a"), "(null)");
    assert_eq!(ops.text("GET own:kv:a"), "1");
    assert_eq!(shop.text("GET own:nosuch:a"), "2");
    let mut keys = shop.texts("KEYS *");
    keys.sort();
    assert_eq!(keys, ["kv:a", "nosuch:a"]);
    let mut keys = ops.texts("KEYS *");
    keys.sort();
    assert_eq!(keys, ["nosuch:a", "own:kv:a"]);
}

#[test]
fn keys_that_change_atomically_must_be_in_one_partition() {
    let mut fixture = Fixture::store();
    fixture.live("kv");
    fixture.live("own");
    fixture.start(|_| {});
    let mut client = fixture.client();
    client.text("SET kv:a 1");
    let apart = "-CROSSSLOT RENAME is atomic within one partition of one live table: its keys ";
    assert_eq!(
        client.text("RENAME kv:a own:a"),
        format!("{apart}are of several tables")
    );
    // Some of so many keys are in another partition.
    let reported: Vec<String> = (0..64)
        .map(|n| client.text(&format!("COPY kv:a kv:{n}")))
        .collect();
    assert!(reported.iter().any(|text| text == "1"));
    let hint = "lie in several of table 'kv': give them one hashtag, as in kv:{user1}a";
    assert!(
        reported.iter().any(|text| text.ends_with(hint)),
        "{reported:?}"
    );
    let pairs: String = (0..64).map(|n| format!(" kv:n{n} 1")).collect();
    assert!(
        client
            .text(&format!("MSETNX{pairs}"))
            .starts_with("-CROSSSLOT MSETNX")
    );
    assert_eq!(client.text("EXISTS kv:n0 kv:n1 kv:n2"), "0");
}
