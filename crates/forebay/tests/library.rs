//! The library as a Rust program uses it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::time::Duration;

use forebay::{
    Datum, DeltaKind, Durability, ErrorKind, Expiry, Lifetime, LiveOptions, Order, Store, Value,
};

fn empty() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = forebay::open_or_create(dir.path().join("store")).unwrap();
    (dir, store)
}

fn kind<T: std::fmt::Debug>(result: Result<T, forebay::Error>) -> (ErrorKind, String) {
    let error = result.unwrap_err();
    (error.kind(), error.to_string())
}

fn keys(records: forebay::Records) -> Vec<String> {
    let key = |record: Result<(Vec<u8>, Value<'_>), forebay::Error>| record.unwrap().0;
    let text = |key| String::from_utf8(key).unwrap();
    records.map(key).map(text).collect()
}

#[test]
fn a_store_is_opened_or_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (missing, text) = kind(forebay::open(&path));
    assert_eq!(missing, ErrorKind::Missing);
    assert!(text.starts_with("there is no forebay store at"), "{text}");
    let store = forebay::open_or_create(path.to_str().unwrap()).unwrap();
    assert_eq!(store.path(), path);
    assert!(
        forebay::open(&path)
            .unwrap()
            .batch_tables()
            .unwrap()
            .is_empty()
    );
    std::fs::create_dir(dir.path().join("other")).unwrap();
    std::fs::write(dir.path().join("other/file"), "").unwrap();
    let other = kind(forebay::open_or_create(dir.path().join("other")));
    assert_eq!(other.0, ErrorKind::Usage);
    assert_eq!(kind(store.batch("no/name")).0, ErrorKind::Usage);
    assert_eq!(kind(store.batch("people")).0, ErrorKind::Missing);
    assert_eq!(kind(store.live("people")).0, ErrorKind::Missing);
}

#[test]
fn versions_are_pushed_read_swapped_and_rolled_back() {
    let (_dir, store) = empty();
    let push = |names: [(&'static str, &'static str); 2]| {
        let push = store.push("people").records(names).force();
        push.run().unwrap()
    };
    assert_eq!(push([("1", "Ada"), ("2", "Bob")]).rows_between, (2, 2));
    let mut first = store.batch("people").unwrap();
    let second = push([("1", "Ada"), ("3", "Cyd")]);
    assert_eq!(
        (second.version, second.swapped, second.held()),
        (2, true, false)
    );

    assert_eq!(
        (first.name(), first.version(), first.rows_between()),
        ("people", 1, (2, 2))
    );
    let found = first.get_many(&["2", "3", "1"]).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|value| value.as_ref().and_then(Value::as_text))
        .collect();
    assert_eq!(found, [Some("Bob"), None, Some("Ada")]);
    assert!(first.contains_key(b"2").unwrap() && !first.contains_key("3").unwrap());
    assert_eq!(first.lifetime("2").unwrap(), Lifetime::Forever);
    assert_eq!(first.lifetime("3").unwrap(), Lifetime::Absent);
    assert_eq!(keys(first.iter()).len(), 2);
    assert_eq!(kind(first.range("1".."2")).0, ErrorKind::Usage);

    assert!(first.refresh().unwrap() && !first.refresh().unwrap());
    assert_eq!(first.version(), 2);
    assert_eq!(first.rollback().unwrap().to, 1);
    assert_eq!(store.batch("people").unwrap().version(), 1);
    assert_eq!(first.swap(2).unwrap().from, Some(1));
    assert_eq!(first.versions().unwrap().len(), 2);
    assert_eq!(store.batch_at("people", 1).unwrap().version(), 1);
    assert_eq!(kind(store.batch_at("people", 7)).0, ErrorKind::Missing);
    store.drop_table("people").unwrap();
    assert_eq!(kind(store.batch("people")).0, ErrorKind::Missing);
}

#[test]
fn rows_have_typed_columns_and_ranges_are_iterators() {
    let (dir, store) = empty();
    let file = dir.path().join("prices.csv");
    std::fs::write(
        &file,
        "id,name,price,stock\na1,Ada,3.5,7\na2,Bob,2,\nb1,Cyd,1,300\n",
    )
    .unwrap();
    let push = store.push("prices").source(file.to_str().unwrap());
    push.key("{id}").order(Order::Ordered).run().unwrap();
    let prices = store.batch("prices").unwrap();
    let names: Vec<&str> = prices
        .columns()
        .iter()
        .map(|column| &column.name[..])
        .collect();
    assert_eq!(names, ["id", "name", "price", "stock"]);

    let value = prices.get("a1").unwrap().unwrap();
    let row = value.as_row().unwrap();
    assert_eq!(row.get::<&str>("name").unwrap(), "Ada");
    assert_eq!(row.get::<f64>("price").unwrap(), 3.5);
    assert_eq!(row.get::<Option<i32>>("stock").unwrap(), Some(7));
    assert_eq!(row.get::<f64>("stock").unwrap(), 7.0);
    assert_eq!(row.get::<Datum<'_>>("stock").unwrap(), Datum::Int(7));
    assert_eq!(
        row.to_json().unwrap(),
        r#"{"id":"a1","name":"Ada","price":3.5,"stock":7}"#
    );
    let owned = prices.get("b1").unwrap().unwrap().into_owned();
    let owned = owned.as_row().unwrap();
    assert_eq!(owned.get::<u64>("stock").unwrap(), 300);

    let (wrong, text) = kind(row.get::<i64>("name"));
    assert_eq!(wrong, ErrorKind::Usage);
    assert_eq!(
        text,
        r#"table prices: the column 'name' holds Text("Ada"), which is no i64: read it as another type"#
    );
    let (_, text) = kind(row.get::<i64>("prize"));
    assert_eq!(
        text,
        "table prices has no column 'prize'; it has: id, name, price, stock"
    );
    let without = prices.get("a2").unwrap().unwrap();
    assert!(without.as_row().unwrap().get::<i64>("stock").is_err());

    assert_eq!(keys(prices.range("a2"..).unwrap()), ["a2", "b1"]);
    assert_eq!(keys(prices.range("a1"..="a2").unwrap().rev()), ["a2", "a1"]);
    assert_eq!(keys(prices.prefix("a").unwrap()), ["a1", "a2"]);
    assert_eq!(keys(prices.iter().rev()), ["b1", "a2", "a1"]);
    assert_eq!(keys(prices.range("b".."a").unwrap()), [""; 0]);
    assert_eq!((&prices).into_iter().take(2).count(), 2);
    let mut ended = prices.prefix("b").unwrap();
    assert!(ended.next().is_some() && ended.next().is_none() && ended.next().is_none());
}

#[test]
fn numbers_are_pushed_and_changed_as_numbers() {
    let (_dir, store) = empty();
    let counts = (0..20_000u32).map(|n| (format!("{n:05}"), i64::from(n)));
    let push = store
        .push("counts")
        .records(counts)
        .delta(DeltaKind::AddI64);
    push.order(Order::Ordered).threads(2).run().unwrap();
    let counts = store.batch("counts").unwrap();
    let sum = counts
        .iter()
        .map(|record| record.unwrap().1.as_i64().unwrap());
    assert_eq!(sum.sum::<i64>(), 19_999 * 10_000);
    let more = store.push("counts").records([("00007", -1i64)]);
    assert_eq!(more.onto_current(None).run().unwrap().onto, Some(1));
    let counts = store.batch("counts").unwrap();
    let changed = counts.get_many(&["00007", "00008"]).unwrap();
    let changed = changed.iter().flatten().filter_map(Value::as_i64);
    assert_eq!(changed.collect::<Vec<_>>(), [-1, 8]);
}

#[test]
fn options_of_a_push_are_those_of_the_command_line() {
    let (dir, store) = empty();
    let push = || store.push("t").records([("a", "1")]);
    let (wrong, text) = kind(push().option("order", "sideways").run());
    assert_eq!(wrong, ErrorKind::Usage);
    assert!(
        text.starts_with("invalid value 'sideways' for '--order"),
        "{text}"
    );
    assert_eq!(kind(push().flag("no-such-flag").run()).0, ErrorKind::Usage);
    let dry = kind(push().flag("dry-run").run());
    assert!(dry.1.contains("dry run"), "{}", dry.1);
    let absent = dir.path().join("absent.csv");
    let absent = store
        .push("t")
        .source(absent.to_str().unwrap())
        .key("{id}")
        .run();
    assert_eq!(kind(absent).0, ErrorKind::Missing);
    assert_eq!(kind(store.push("t").key("{id}").run()).0, ErrorKind::Usage);
    let twice = store.push("t").records([("a", "1"), ("a", "2")]);
    assert_eq!(kind(twice.run()).0, ErrorKind::Data);

    assert!(push().run().unwrap().swapped);
    let many = (0..9).map(|n| (n.to_string(), "1"));
    let held = store
        .push("t")
        .records(many.clone())
        .gate("rows<+10%")
        .run()
        .unwrap();
    assert!(held.held() && !held.swapped && held.gate.iter().any(|finding| !finding.passed));
    let forced = store
        .push("t")
        .records(many)
        .gate("rows<+10%")
        .force()
        .run();
    assert!(forced.unwrap().swapped);
    let expiring = push().ttl(Duration::from_secs(3600)).run().unwrap();
    let expiring = store.batch_at("t", expiring.version).unwrap();
    let Lifetime::For(left) = expiring.lifetime("a").unwrap() else {
        panic!("it expires")
    };
    assert!(left > Duration::from_secs(3000) && left <= Duration::from_secs(3600));
}

fn ordered_options() -> LiveOptions {
    LiveOptions::ordered().durability(Durability::Os)
}

#[test]
fn live_tables_accept_writes_and_show_snapshots() {
    let (_dir, store) = empty();
    let users = store.create_live("users", ordered_options()).unwrap();
    users.put("a", "Ada").unwrap();
    users.insert("a", "Abe").unwrap();
    users.insert("b", b"Bob").unwrap();
    users.put("c", &vec![1u8, 2]).unwrap();
    let moment = users.snapshot();
    users.delete("a").unwrap();
    users.flush().unwrap();
    assert_eq!(moment.get("a").unwrap().unwrap().as_text(), Some("Ada"));
    assert_eq!(keys(moment.iter()), ["a", "b", "c"]);
    assert_eq!(keys(moment.range(.."b").unwrap()), ["a"]);
    assert_eq!(keys(moment.prefix("b").unwrap()), ["b"]);
    assert!(users.get("a").unwrap().is_none() && users.contains_key("b").unwrap());
    let many = users.get_many(&["c", "a"]).unwrap();
    assert_eq!(
        many[0].as_ref().and_then(Value::as_bytes),
        Some(&[1u8, 2][..])
    );
    assert!(many[1].is_none());
    assert_eq!(keys(users.iter().rev()), ["c", "b"]);
    assert_eq!(users.delete_range("b".."c").unwrap(), 1);
    users.compact().unwrap();
    assert_eq!(users.stats().most_keys(), 1);
    users.delete_all().unwrap();
    assert!(users.iter().next().is_none() && users.stats().most_keys() == 0);
    assert_eq!(kind(users.put("n", 1)).0, ErrorKind::Usage);
    assert_eq!(kind(users.delta("n", 1)).0, ErrorKind::Usage);
    assert_eq!(kind(users.put("", "x")).0, ErrorKind::Usage);
}

#[test]
fn numbers_of_live_tables_are_numbers() {
    let (_dir, store) = empty();
    let clicks = store
        .create_live("clicks", ordered_options().delta(DeltaKind::AddI64))
        .unwrap();
    clicks.delta("p", 2).unwrap();
    clicks.delta("p", 40i64).unwrap();
    clicks.put("q", u32::MAX).unwrap();
    assert_eq!(
        clicks.get("p").unwrap().and_then(|value| value.as_i64()),
        Some(42)
    );
    assert_eq!(
        clicks.get("q").unwrap().unwrap().as_i64(),
        Some(u32::MAX.into())
    );
    let (wrong, text) = kind(clicks.delta("p", 1.5));
    assert_eq!(wrong, ErrorKind::Usage);
    assert_eq!(
        text,
        "table clicks holds whole numbers: the number 1.5 is not one; give an i64"
    );

    let sums = store
        .create_live("sums", ordered_options().delta(DeltaKind::AddF64))
        .unwrap();
    sums.delta("s", 0.5).unwrap();
    sums.delta("s", 1).unwrap();
    assert_eq!(sums.get("s").unwrap().unwrap().as_f64(), Some(1.5));
    assert_eq!(kind(sums.delta("s", f64::NAN)).0, ErrorKind::Usage);

    let report = store
        .load("clicks")
        .records([("p", 8i64), ("r", 1)])
        .verb("delta")
        .run();
    assert_eq!(report.unwrap().rows, 2);
    assert_eq!(clicks.get("p").unwrap().unwrap().as_i64(), Some(50));

    let lines = store
        .create_live("lines", ordered_options().delta(DeltaKind::Append))
        .unwrap();
    lines.delta("l", "one ").unwrap();
    lines.delta("l", "two").unwrap();
    assert_eq!(lines.get("l").unwrap().unwrap().as_text(), Some("one two"));
}

#[test]
fn rows_and_lists_are_written_by_their_types() {
    let (_dir, store) = empty();
    let columns = ["name:text", "age:int8", "ratio:float64", "at:timestamp(ms)"];
    let people = ordered_options().columns(columns).unwrap();
    let people = store.create_live("people", people).unwrap();
    people
        .put(
            "1",
            &[
                ("age", 36.into()),
                ("name", "Ada".into()),
                ("ratio", 2.into()),
            ],
        )
        .unwrap();
    let value = people.get("1").unwrap().unwrap();
    let row = value.as_row().unwrap();
    assert_eq!(row.get::<String>("name").unwrap(), "Ada");
    assert_eq!(row.get::<i32>("age").unwrap(), 36);
    assert_eq!(row.get::<f64>("ratio").unwrap(), 2.0);
    assert_eq!(row.get::<Option<Datum<'_>>>("at").unwrap(), None);
    let refused = |columns: &[(&str, Datum<'_>)]| {
        let (wrong, text) = kind(people.put("2", columns));
        assert_eq!(wrong, ErrorKind::Usage, "{text}");
        text
    };
    let large = refused(&[("age", 300.into())]);
    assert_eq!(
        large,
        "table people: Int(300) does not fit the column 'age', which is int8"
    );
    refused(&[("name", 1.into())]);
    refused(&[("nam", "x".into())]);
    let seconds = Datum::Timestamp {
        value: 1,
        unit: forebay::TimeUnit::Second,
        zoned: false,
    };
    refused(&[("at", seconds)]);
    assert!(people.put("2", "bytes").is_err());

    let lists = store
        .create_live("lists", ordered_options().items("text").unwrap())
        .unwrap();
    lists.put("l", &["a".into(), Datum::Null]).unwrap();
    let value = lists.get("l").unwrap().unwrap().into_owned();
    let items: Vec<Option<&str>> = value.as_list().unwrap().items().unwrap();
    assert_eq!(items, [Some("a"), None]);
    assert_eq!(
        kind(ordered_options().columns(["name:texte"])).0,
        ErrorKind::Usage
    );
}

#[test]
fn batches_are_atomic_in_a_partition_and_transactions_depend_on_current_values() {
    let (_dir, store) = empty();
    let options = LiveOptions::ordered()
        .boundaries(["m"])
        .durability(Durability::Os);
    let table = store.create_live("t", options).unwrap();
    let mut batch = table.batch();
    batch
        .put("a", "1")
        .unwrap()
        .insert("b", "2")
        .unwrap()
        .delete("c");
    assert_eq!(batch.len(), 3);
    batch.commit().unwrap();
    let mut across = table.batch();
    across.put("c", "3").unwrap().put("z", "4").unwrap();
    assert_eq!(kind(across.commit()).0, ErrorKind::Usage);
    assert_eq!(keys(table.iter()), ["a", "b"]);
    across.commit_each().unwrap();
    assert_eq!(keys(table.iter()), ["a", "b", "c", "z"]);

    let swapped = table.transact(&["a", "b"], |values, batch| {
        let text = |at: usize| {
            values[at]
                .as_ref()
                .and_then(Value::as_text)
                .unwrap_or("")
                .to_owned()
        };
        batch.put("a", &text(1))?.put("b", &text(0))?;
        Ok(text(0))
    });
    assert_eq!(swapped.unwrap(), "1");
    assert_eq!(table.get("a").unwrap().unwrap().as_text(), Some("2"));
    let failed = table.transact(&["a"], |_, batch| {
        batch.delete("a").put("b", 5)?;
        Ok(())
    });
    assert!(failed.is_err() && table.contains_key("a").unwrap());
}

#[test]
fn keys_expire_if_the_table_allows_it() {
    let (_dir, store) = empty();
    let hour = Duration::from_secs(3600);
    let sessions = store.create_live("sessions", ordered_options()).unwrap();
    sessions.put("a", "Ada").unwrap();
    sessions.put_for("b", "Bob", hour).unwrap();
    sessions.put_for("c", "Cyd", Duration::MAX).unwrap();
    assert_eq!(sessions.lifetime("a").unwrap(), Lifetime::Forever);
    assert_eq!(sessions.lifetime("c").unwrap(), Lifetime::Forever);
    assert!(matches!(sessions.lifetime("b").unwrap(), Lifetime::For(left) if left <= hour));
    assert_eq!(sessions.lifetime("x").unwrap(), Lifetime::Absent);
    assert_eq!(
        kind(sessions.put_for("b", "Bob", Duration::ZERO)).0,
        ErrorKind::Usage
    );
    let counts = store
        .create_live("counts", ordered_options().delta(DeltaKind::AddI64))
        .unwrap();
    assert_eq!(kind(counts.put_for("n", 1, hour)).0, ErrorKind::Usage);
    let limits = ordered_options()
        .delta(DeltaKind::AddI64)
        .expiry(Expiry::PerRecord);
    let limits = store.create_live("limits", limits).unwrap();
    limits
        .batch()
        .delta_for("n", 1, hour)
        .unwrap()
        .insert_for("m", 1, hour)
        .unwrap()
        .commit_each()
        .unwrap();
    assert!(matches!(limits.lifetime("n").unwrap(), Lifetime::For(_)));
    let all = store
        .create_live("all", ordered_options().ttl(hour))
        .unwrap();
    all.put("k", "v").unwrap();
    assert!(matches!(all.lifetime("k").unwrap(), Lifetime::For(_)));
}

#[test]
fn a_live_table_is_shared_in_a_program_and_closed_with_its_last_handle() {
    let (dir, store) = empty();
    let first = store.live_or_create("t", ordered_options()).unwrap();
    let again = store.clone().live("t").unwrap();
    first.put("k", "v").unwrap();
    assert!(again.contains_key("k").unwrap());
    store.live_or_create("t", ordered_options()).unwrap();
    let (other, text) = kind(store.live_or_create("t", ordered_options().delta(DeltaKind::AddI64)));
    assert_eq!(other, ErrorKind::Usage);
    assert!(
        text.contains("no deltas") && text.contains("deltas AddI64"),
        "{text}"
    );
    let (there, text) = kind(store.create_live("t", ordered_options()));
    assert!(
        there == ErrorKind::Usage && text.contains("exists already"),
        "{text}"
    );

    let elsewhere = forebay::open(dir.path().join("store")).unwrap();
    assert_eq!(kind(elsewhere.live("t")).0, ErrorKind::InUse);
    // Another process may still copy the table.
    let copied = elsewhere.checkpoint("t", dir.path().join("copy")).unwrap();
    assert_eq!(copied.records, 1);
    assert_eq!(store.live_tables().unwrap(), ["t"]);
    store.close_live("t").unwrap();
    assert_eq!(kind(elsewhere.live("t")).0, ErrorKind::InUse);
    drop((first, again));
    assert!(elsewhere.live("t").unwrap().contains_key("k").unwrap());
    elsewhere.drop_table("t").unwrap();
    assert_eq!(kind(store.live("t")).0, ErrorKind::Missing);
}
