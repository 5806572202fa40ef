//! Commands that concern the whole server or all of its clients: rights and effects.

use crate::common::{Fixture, PASSWORD_HASH, Reply, client_of, encode, text_of, with_users};

fn items(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(items) => items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_an_administrator_may_administer() {
    let fixture = with_users();
    let (mut ops, mut shop) = (client_of(&fixture, "ops"), client_of(&fixture, "shop"));
    for command in [
        "CONFIG SET slowlog-max-len 1",
        "CONFIG RESETSTAT",
        "SLOWLOG RESET",
        "CLIENT KILL TYPE normal",
        "ACL LIST",
        "ACL USERS",
        "ACL GETUSER ops",
    ] {
        let refused = "-NOPERM user 'shop' may not administer this server";
        assert!(shop.text(command).starts_with(refused), "{command}");
    }
    assert_eq!(shop.text("ACL WHOAMI"), "shop");
    assert_eq!(ops.texts("ACL USERS"), ["ops", "shop"]);
    let lines = ops.texts("ACL LIST");
    let of_shop = "user shop on ~own:* resetchannels -@all +@connection +@read +@write";
    assert_eq!(lines[1], of_shop);
    assert!(!lines.concat().contains(&PASSWORD_HASH[..8]));
    let reported = items(ops.ask("ACL GETUSER shop"));
    assert_eq!(text_of(&reported[5]), "-@all +@connection +@read +@write");
    assert_eq!(ops.ask("ACL GETUSER nobody"), Reply::Null);
    assert!(
        ops.text("ACL SETUSER a")
            .starts_with("-ERR users are those of the users file")
    );
    // A user sees its own connections, an administrator all.
    assert_eq!(shop.text("CLIENT LIST").lines().count(), 1);
    assert_eq!(ops.text("CLIENT LIST").lines().count(), 2);
}

#[test]
fn categories_have_their_commands() {
    let mut fixture = Fixture::store();
    fixture.start(|_| {});
    let mut client = fixture.client();
    let categories = client.texts("ACL CAT");
    assert!(
        ["read", "write", "bitmap", "list"]
            .iter()
            .all(|name| categories.contains(&(*name).to_owned()))
    );
    assert_eq!(
        client.texts("ACL CAT bitmap"),
        ["getbit", "bitcount", "bitpos", "setbit", "bitop"]
    );
    assert_eq!(
        client.text("ACL CAT nosuch"),
        "-ERR Unknown category 'nosuch'"
    );
    let open = "user default on nopass ~* resetchannels -@all +@connection +@read +@write";
    assert_eq!(client.texts("ACL LIST"), [open]);
}

#[test]
fn slow_commands_are_noted() {
    let fixture = with_users();
    let (mut ops, mut shop) = (client_of(&fixture, "ops"), client_of(&fixture, "shop"));
    assert_eq!(
        ops.text("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 4"),
        "OK"
    );
    assert_eq!(ops.text("CLIENT SETNAME me"), "OK");
    assert_eq!(shop.text("SET own:a secret"), "OK");
    assert_eq!(ops.text("GET kv:b"), "(null)");
    assert_eq!(ops.text("AUTH ops password"), "OK");
    assert_eq!(ops.text("CONFIG SET slowlog-log-slower-than -1"), "OK");
    let entries = items(ops.ask("SLOWLOG GET"));
    let words = |entry: &Reply| -> Vec<String> {
        let parts = items(entry.clone());
        items(parts[3].clone()).iter().map(text_of).collect()
    };
    assert_eq!(words(&entries[0]), ["AUTH", "(redacted)"]);
    assert_eq!(words(&entries[1]), ["GET", "kv:b"]);
    assert_eq!(words(&entries[2]), ["SET", "own:a", "secret"]);
    assert_eq!(text_of(&items(entries[1].clone())[5]), "me");
    assert_eq!(ops.text("SLOWLOG LEN"), "4");
    assert_eq!(items(ops.ask("SLOWLOG GET 2")).len(), 2);
    assert_eq!(items(shop.ask("SLOWLOG GET -1")).len(), 1);
    assert!(
        ops.text("SLOWLOG GET -2")
            .starts_with("-ERR count should be greater")
    );
    assert_eq!(ops.text("SLOWLOG RESET"), "OK");
    assert_eq!(ops.text("SLOWLOG LEN"), "0");
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len')";
    assert!(
        ops.text("CONFIG SET slowlog-log-slower-than 5 slowlog-max-len x")
            .starts_with(refused)
    );
    assert_eq!(ops.texts("CONFIG GET slowlog*")[1], "-1");
    assert!(
        ops.text("CONFIG SET port 1")
            .starts_with("-ERR Unknown option")
    );
}

#[test]
fn the_counts_can_be_reset() {
    let fixture = with_users();
    let mut client = client_of(&fixture, "ops");
    (0..5).for_each(|_| assert_eq!(client.text("SET own:a 1"), "OK"));
    assert!(
        client
            .text("INCR own:nosuch:x y")
            .starts_with("-ERR wrong number")
    );
    let reported = items(client.ask("LATENCY HISTOGRAM set nosuch"));
    let of_set = items(reported[1].clone());
    assert_eq!(
        (reported.len(), text_of(&reported[0]), text_of(&of_set[1])),
        (2, "set".to_owned(), "5".to_owned())
    );
    let buckets = items(of_set[3].clone());
    assert_eq!(buckets.last(), Some(&Reply::Int(5)));
    assert_eq!(client.text("CONFIG RESETSTAT"), "OK");
    assert_eq!(items(client.ask("LATENCY HISTOGRAM set")).len(), 0);
    let stats = client.text("INFO stats");
    assert!(stats.contains("total_commands_processed:2\r\n"), "{stats}");
    let stats = items(client.ask("MEMORY STATS"));
    assert!(stats.contains(&Reply::Bulk(b"keys.count".to_vec())));
}

#[test]
fn connections_are_killed() {
    let fixture = with_users();
    let mut ops = client_of(&fixture, "ops");
    let mut shops: Vec<_> = (0..3).map(|_| client_of(&fixture, "shop")).collect();
    let id = shops[0].text("CLIENT ID");
    assert_eq!(ops.text(&format!("CLIENT KILL ID {id}")), "1");
    assert_eq!(ops.text(&format!("CLIENT KILL ID {id} USER ops")), "0");
    let address = shops[1].stream.get_ref().local_addr().expect("an address");
    assert_eq!(ops.text(&format!("CLIENT KILL {address}")), "OK");
    assert_eq!(ops.text("CLIENT KILL USER shop TYPE pubsub"), "0");
    for killed in &mut shops[..2] {
        killed.send(&encode(&[b"PING"]));
        assert!(killed.try_read().is_err());
    }
    assert_eq!(shops[2].text("PING"), "PONG");
    assert_eq!(ops.text("CLIENT KILL 127.0.0.1:1"), "-ERR No such client");
    assert!(ops.text("CLIENT KILL ID x").starts_with("-ERR client-id"));
    assert_eq!(ops.text("CLIENT KILL SKIPME no USER ops"), "1");
    assert!(ops.try_read().is_err());
}
