//! Tests of loads of tables that are not open, against the result of the same writes.

#![allow(clippy::disallowed_methods, reason = "the tests write their sources")]

use std::path::{Path, PathBuf};

use forebay_engine::live::{Durability, Expiry, LiveDraft, LiveTable};
use forebay_engine::{ValueKind, open};
use forebay_run::row::{Column, Kind, Schema};

use super::*;
use crate::progress::Silent;

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
    /// A store with a live table `t`.
    fn new(options: LiveDraft) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("store")).unwrap();
        let options = options.durability(Durability::Os);
        let name = TableName::new("t").unwrap();
        drop(
            store
                .create_live(&name, options, &Budget::new(16 << 20))
                .unwrap(),
        );
        Self { dir, store }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn table(&self) -> LiveTable {
        let name = TableName::new("t").unwrap();
        self.store
            .live_table(&name, &Budget::new(16 << 20))
            .unwrap()
    }

    fn write(&self, key: &str, value: &[u8]) {
        let commit = self.table();
        commit
            .update(key.as_bytes(), value)
            .unwrap()
            .wait()
            .unwrap();
    }

    fn get(&self, key: &str) -> Option<String> {
        let value = self.table().get(key.as_bytes()).unwrap();
        value.map(|value| String::from_utf8(value).unwrap())
    }

    fn load(&self, request: &LoadRequest) -> Result<LoadReport, LoadError> {
        load(request, &self.store, &Silent)
    }

    fn refused(&self, request: &LoadRequest, words: &[&str]) {
        let error = self.load(request).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert_eq!(self.get("1"), None);
    }
}

fn request(source: &Path, key: &str) -> LoadRequest {
    LoadRequest {
        table: "t".parse().unwrap(),
        sources: vec![source.to_string_lossy().into_owned()].into(),
        source_options: SourceOptions::default(),
        key: key.parse().unwrap(),
        value_column: None,
        leaves_out: false,
        verb: Verb::Update,
        operation_column: None,
        ttl: None,
        duplicates: Duplicates::Last,
        bad_rows: BadRows::Fail,
        memory_bytes: 64 << 20,
        threads: 2,
        rate_bytes: None,
    }
}

#[test]
fn rows_of_partitions_that_are_not_held_are_refused() {
    use forebay_engine::{OpenPartitions, PartitionId};
    // Before, between and after all partitions on this node.
    let held = OpenPartitions::Only([PartitionId(1), PartitionId(3)].into());
    let boundaries = [b"1".to_vec(), b"3".to_vec(), b"5".to_vec(), b"7".to_vec()];
    for (draft, keys) in [
        (LiveDraft::ordered(boundaries.to_vec()), ["0", "4", "9"]),
        (LiveDraft::hashed().partitions(5), ["3", "5", "1"]),
    ] {
        let place = Place::new(draft.holding(&held));
        let is_here = |id: &String| place.table().partition_of(id.as_bytes()).is_some();
        let here: Vec<String> = (0..10).map(|id| id.to_string()).filter(is_here).collect();
        let rows: String = here.iter().map(|id| format!("{id},here\n")).collect();
        for key in keys {
            let refused = !here.iter().any(|id| id == key);
            let text = format!("id,name\n{rows}{key},elsewhere\n");
            let request = request(&place.file("a.csv", &text), "{id}");
            match place.load(&request) {
                Ok(_) => assert!(!refused, "{key}"),
                Err(error) => {
                    let text = error.to_string();
                    let words = format!("table t: the partition of key {key:?} is not open here");
                    assert!(text.contains(&words), "{text}");
                }
            }
        }
        let text = format!("id,name\n{rows}");
        let report = place.load(&request(&place.file("b.csv", &text), "{id}"));
        assert_eq!(report.unwrap().rows, here.len() as u64);
    }
}

#[test]
fn many_rows_replace_earlier_writes_in_every_partition() {
    for options in [
        LiveDraft::hashed().partitions(7),
        LiveDraft::ordered(vec![b"3".to_vec(), b"6".to_vec()]),
    ] {
        let place = Place::new(options);
        place.write("7", b"old");
        place.write("other", b"stays");
        let mut text = "id,name\n".to_owned();
        for id in 0..30_000 {
            text += &format!("{id},name {id}\n");
        }
        text += "29999,last\n";
        let path = place.file("a.csv", &text);
        let small = LoadRequest {
            memory_bytes: 2 << 20,
            ..request(&path, "{id}")
        };
        let report = place.load(&small).unwrap();
        assert_eq!((report.rows, report.duplicates), (30_000, 1));
        assert_eq!(report.applied.updates, 30_000);
        let table = place.table();
        let mut count = 0;
        let mut entries = table.entries();
        while entries.advance().unwrap() {
            count += 1;
        }
        assert_eq!(count, 30_001);
        for id in (0..29_999).step_by(997) {
            let value = table.get(id.to_string().as_bytes()).unwrap().unwrap();
            assert_eq!(value, format!("name {id}").into_bytes());
        }
        assert_eq!(table.get(b"29999").unwrap().unwrap(), b"last");
        drop((entries, table));
        place.write("7", b"newer");
        assert_eq!(place.get("7").unwrap(), "newer");
        assert_eq!(place.get("other").unwrap(), "stays");
        let fails = LoadRequest {
            duplicates: Duplicates::Fail,
            ..small
        };
        let error = place.load(&fails).unwrap_err().to_string();
        assert!(error.contains("29999"), "{error}");
        assert_eq!(place.get("7").unwrap(), "newer");
    }
}

#[test]
fn rows_apply_the_operation_of_their_column_in_order() {
    let place = Place::new(LiveDraft::hashed().delta(DeltaKind::Append));
    for key in ["a", "b", "c"] {
        place.write(key, b"old");
    }
    let path = place.file(
        "a.csv",
        "what,id,text\ndelete,a,\ndelta,b,+1\ndelta,b,+2\ninsert,c,no\ninsert,d,new\ndelta,d,+\nDelta,e,alone\n",
    );
    let ops = LoadRequest {
        operation_column: Some("what".to_owned()),
        ..request(&path, "{id}")
    };
    let report = place.load(&ops).unwrap();
    assert_eq!((report.rows, report.duplicates), (5, 2));
    assert_eq!(report.applied.deletes, 1);
    let found = ["a", "b", "c", "d", "e"].map(|key| place.get(key));
    let wanted = [
        None,
        Some("old+1+2"),
        Some("old"),
        Some("new+"),
        Some("alone"),
    ];
    assert_eq!(found, wanted.map(|value| value.map(str::to_owned)));
    let inserts = LoadRequest {
        verb: Verb::Insert,
        ..request(&place.file("b.csv", "id,v\na,back\nb,no\n"), "{id}")
    };
    place.load(&inserts).unwrap();
    assert_eq!(place.get("a").unwrap(), "back");
    assert_eq!(place.get("b").unwrap(), "old+1+2");
}

#[test]
fn commuting_deltas_read_by_several_threads_have_the_same_sum() {
    for (kind, one_thread) in [
        (DeltaKind::AddI64, false),
        (DeltaKind::Max, false),
        (DeltaKind::AddI64Saturating, true),
    ] {
        let place = Place::new(LiveDraft::ordered(Vec::new()).delta(kind));
        let mut sources = Vec::new();
        for file in 0..8 {
            let row = |row: i64| format!("k{},{}\n", row % 50, row * (file - 3));
            let text: String = (0..500).map(row).collect();
            let path = place.file(&format!("{file}.csv"), &format!("page,n\n{text}"));
            sources.push(path.to_string_lossy().into_owned());
        }
        let deltas = LoadRequest {
            sources: sources.into(),
            verb: Verb::Delta,
            threads: 4,
            source_options: SourceOptions {
                columns: vec![crate::convert::GivenType::exact(
                    "n",
                    arrow_schema::DataType::Int64,
                )],
                ..SourceOptions::default()
            },
            ..request(Path::new(""), "{page}")
        };
        let load = place.store.begin_load(&deltas.table).unwrap();
        let plan = sort_plan(&deltas, &place.store, &load).unwrap();
        assert_eq!(plan.reading_threads() == 1, one_thread, "{kind:?}");
        drop(load);
        let report = place.load(&deltas).unwrap();
        assert_eq!((report.rows, report.duplicates), (50, 3950));
        let table = place.table();
        for key in 0..50i64 {
            let rows =
                (0..8).flat_map(|file| (0..10).map(move |nth| (key + 50 * nth) * (file - 3)));
            let expected = match kind {
                DeltaKind::Max => rows.max().unwrap(),
                _ => rows.sum::<i64>(),
            };
            let found = table.get(format!("k{key}").as_bytes()).unwrap();
            assert_eq!(
                found,
                Some(expected.to_le_bytes().to_vec()),
                "{kind:?} k{key}"
            );
        }
    }
}

#[test]
fn deltas_add_up_and_bad_rows_are_named() {
    let place = Place::new(LiveDraft::ordered(Vec::new()).delta(DeltaKind::AddI64));
    place.write("p", &5i64.to_le_bytes());
    let path = place.file("a.csv", "page,n\np,2\np,3\nq,1\n,9\nr,x\n");
    let mut deltas = LoadRequest {
        verb: Verb::Delta,
        source_options: SourceOptions {
            columns: vec![crate::convert::GivenType::exact(
                "n",
                arrow_schema::DataType::Int64,
            )],
            ..SourceOptions::default()
        },
        ..request(&path, "{page}")
    };
    let error = place.load(&deltas).unwrap_err().to_string();
    assert!(
        error.contains("a.csv: line ") && error.contains("--bad-rows"),
        "{error}"
    );
    deltas.bad_rows = BadRows::Skip;
    let report = place.load(&deltas).unwrap();
    assert_eq!((report.rejected, report.applied.deltas), (2, 2));
    let table = place.table();
    let number = |key: &[u8]| table.get(key).unwrap();
    assert_eq!(number(b"p"), Some(10i64.to_le_bytes().to_vec()));
    assert_eq!(number(b"q"), Some(1i64.to_le_bytes().to_vec()));
}

fn people() -> LiveDraft {
    let mut options = LiveDraft::hashed();
    options.options.value = ValueKind::Row;
    options.options.schema = Schema::new(vec![
        Column::new("name", Kind::Text, true),
        Column::new("age", Kind::Int64, true),
    ]);
    options
}

#[test]
fn columns_of_rows_are_matched_by_name_and_the_key_may_be_another() {
    let place = Place::new(people());
    let path = place.file("a.csv", "age,id,name\n7,1,Ann\n,2,Bob\n");
    place.load(&request(&path, "{id}")).unwrap();
    let table = place.table();
    let schema = table.options().schema.clone();
    let row = table.get(b"1").unwrap().unwrap();
    let view = forebay_run::row::RowView::new(&schema, &row).unwrap();
    assert_eq!(view.datum(1).unwrap(), forebay_run::row::Datum::Int(7));
    drop(table);
    let place = Place::new(people());
    let more = place.file("b.csv", "id,name,age,extra\n1,a,1,x\n");
    place.refused(&request(&more, "{id}"), &["'extra'", "name, age"]);
    let fewer = place.file("c.csv", "id,name\n1,a\n");
    place.refused(&request(&fewer, "{id}"), &["'age'"]);
    let path = place.file("d.csv", "age,id,name\n7,1,Ann\n");
    let with_value = LoadRequest {
        value_column: Some("name".to_owned()),
        ..request(&path, "{id}")
    };
    place.refused(&with_value, &["leave --value out"]);
}

#[test]
fn requests_that_do_not_fit_the_table_are_refused_with_the_next_step() {
    let place = Place::new(LiveDraft::hashed());
    let path = place.file("a.csv", "id,a,b\n1,2,3\n");
    place.refused(&request(&path, "{id}"), &["--value COLUMN", "id, a, b"]);
    let astray = LoadRequest {
        value_column: Some("z".to_owned()),
        ..request(&path, "{id}")
    };
    place.refused(&astray, &["'z'", "id, a, b"]);
    let fits = LoadRequest {
        value_column: Some("a".to_owned()),
        ..request(&path, "{id}")
    };
    let delta = LoadRequest {
        verb: Verb::Delta,
        ..fits.clone()
    };
    place.refused(&delta, &["--delta"]);
    let ttl = LoadRequest {
        ttl: Some(Ttl::AfterMs(5)),
        ..fits.clone()
    };
    place.refused(&ttl, &["without expiry"]);
    let lists = place.file("a.jsonl", "{\"id\": 1, \"a\": [1]}\n");
    place.refused(&request(&lists, "{id}"), &["its values are bytes"]);
    let mut elsewhere = fits.clone();
    elsewhere.table = "u".parse().unwrap();
    place.refused(&elsewhere, &["u", "create it first"]);
    place.load(&fits).unwrap();
    assert_eq!(place.get("1").unwrap(), "2");
}

#[test]
fn rows_expire_by_the_table_or_their_column() {
    let place = Place::new(LiveDraft::hashed().expiry(Expiry::AfterMs(60_000)));
    let path = place.file("a.csv", "id,text,until\n1,a,100\n2,b,\n3,c,0\n");
    let by_column = LoadRequest {
        ttl: Some(Ttl::Column("until".to_owned())),
        ..request(&path, "{id}")
    };
    let begun_ms = place.store.clock().unix_ms();
    place.load(&by_column).unwrap();
    let table = place.table();
    let left = |key: &[u8]| {
        table
            .expires_ms(key)
            .unwrap()
            .map(|ms| (ms - begun_ms) / 10_000)
    };
    assert_eq!(
        (left(b"1"), left(b"2"), left(b"3")),
        (Some(10), Some(6), None)
    );
    drop(table);
    let inserts = LoadRequest {
        verb: Verb::Insert,
        value_column: Some("text".to_owned()),
        ..request(&path, "{id}")
    };
    let error = place.load(&inserts).unwrap_err().to_string();
    for step in ["leave --as insert out", "SET KEY VALUE NX", "--ttl never"] {
        assert!(
            error.contains("may expire") && error.contains(step),
            "{error}"
        );
    }
}

#[test]
fn a_refused_insert_names_the_command_for_its_kind_of_table() {
    let expiry = Expiry::AfterMs(60_000);
    for (draft, command) in [
        (LiveDraft::hashed(), "SET KEY VALUE NX"),
        (people(), "KV.WRITE KEY INSERT VALUE"),
    ] {
        let draft = draft.expiry(expiry);
        let place = Place::new(draft);
        let path = place.file("a.csv", "id,name,age,op\n1,a,7,insert\n");
        let fits = LoadRequest {
            value_column: (command.starts_with("SET")).then(|| "name".to_owned()),
            ..request(&path, "{id}")
        };
        let all = LoadRequest {
            verb: Verb::Insert,
            ..fits.clone()
        };
        place.refused(&all, &["may expire", command]);
        let by_row = LoadRequest {
            operation_column: Some("op".to_owned()),
            ..fits
        };
        place.refused(&by_row, &["a.csv", "may expire", command]);
    }
}
