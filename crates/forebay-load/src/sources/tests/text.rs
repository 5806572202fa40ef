//! CSV and JSON lines, well and badly written.

use std::io::Write;

use super::*;

fn csv(content: &str) -> Content {
    let dir = Dir::new(&[("a.csv", content.as_bytes())]);
    read(&dir.open("a.csv").unwrap()).unwrap()
}

fn json(content: &str) -> Content {
    let dir = Dir::new(&[("a.jsonl", content.as_bytes())]);
    read(&dir.open("a.jsonl").unwrap()).unwrap()
}

#[test]
fn csv_with_all_kinds_of_quoting() {
    let content = csv(
        "\u{feff}id,\"na\"\"me\",when\r\n1,\"a,\"\"b\"\"\nc\",2026-01-02\r\n\r\n2,,\r\n3,d\"e,2026-01-03",
    );
    assert_eq!(
        content.schema,
        ["id:Int64?", "na\"me:Utf8?", "when:Date32?"]
    );
    assert_eq!(
        content.rows,
        ["1|a,\"b\"\nc|2026-01-02", "2|-|-", "3|d\"e|2026-01-03"]
    );
    assert_eq!(content.places, ["line 2", "line 5", "line 6"]);
    assert!(content.rejects.is_empty());
}

#[test]
fn bad_csv_rows_are_rejected_alone() {
    let mut text = String::from("id,name\n");
    for id in 0..20_000 {
        text.push_str(&format!("{id},n{id}\n"));
    }
    text.push_str("x7,late\n1,2,3\n5\n7,\"open\n");
    let content = csv(&text);
    assert_eq!(content.rows.len(), 20_000);
    assert_eq!(content.rows[19_999], "19999|n19999");
    assert_eq!(
        content.rejects,
        [
            "line 20002: the column 'id' holds \"x7\" (text), which does not read as int64; \
             --column 'id:int64:null' would make it null",
            "line 20003: wrong number of fields, expected 2 got 3",
            "line 20004: wrong number of fields, expected 2 got 1",
            "line 20005: a quote is not closed before the file ends",
        ]
    );
}

#[test]
fn csv_that_is_not_utf8() {
    let dir = Dir::new(&[("a.csv", b"id,name\n1,a\n2,\xff\n3,c\n")]);
    let content = read(&dir.open("a.csv").unwrap()).unwrap();
    assert_eq!(content.rows, ["1|a", "3|c"]);
    assert_eq!(content.rejects.len(), 1);
    assert!(
        content.rejects[0].starts_with("line 3: "),
        "{:?}",
        content.rejects
    );
}

#[test]
fn csv_options() {
    let dir = Dir::new(&[
        ("a.csv", b"1;NA;007\n2;'x\n;''\"';008\n"),
        ("b.tsv", b"a\tb\n1\t2\n"),
    ]);
    let csv = CsvOptions {
        delimiter: b';',
        quote: b'\'',
        header: false,
        null: Some("NA".into()),
    };
    let columns = vec![parse_column("column_3:int32").unwrap()];
    let options = SourceOptions {
        csv,
        columns,
        ..SourceOptions::default()
    };
    let content = read(&dir.open_with("a.csv", &options).unwrap()).unwrap();
    assert_eq!(
        content.schema,
        ["column_1:Int64?", "column_2:Utf8?", "column_3:Int32?"]
    );
    assert_eq!(content.rows, ["1|-|7", "2|x\n;'\"|8"]);
    let content = read(&dir.open("b.tsv").unwrap()).unwrap();
    assert_eq!(content.rows, ["1|2"]);
}

#[test]
fn empty_text_files() {
    assert_eq!(csv("a,b\n").rows.len(), 0);
    let dir = Dir::new(&[("a.csv", b""), ("b.jsonl", b"")]);
    let error = dir.open("a.csv").unwrap_err().to_string();
    assert!(error.ends_with(
        "a.csv: the file is empty: a CSV file begins with a header (or say that it has none)"
    ));
    assert_eq!(
        read(&dir.open("b.jsonl").unwrap()).unwrap(),
        Content::default()
    );
}

#[test]
fn json_lines_good_and_bad() {
    let content = json(concat!(
        "{\"id\": 1, \"tags\": [\"a\", null], \"at\": {\"x\": 1.5}, \"mixed\": 1}\n",
        "\n",
        "{\"id\": 9007199254740993, \"mixed\": \"one\"}\n",
        "{\"id\": 3, \"mixed\": true\n",
        "[1]\n",
        "{\"id\": 4} {\"id\": 5}\n",
        "not json\n",
        "{\"id\": 6}"
    ));
    assert_eq!(
        content.schema,
        [
            "id:Int64?",
            "tags:List(Utf8)?",
            "at:Struct(\"x\": Float64)?",
            "mixed:Utf8?"
        ]
    );
    assert_eq!(
        content.rows,
        ["1|[a, -]|{x: 1.5}|1", "9007199254740993|-|-|one", "6|-|-|-"]
    );
    assert_eq!(content.places, ["line 1", "line 3", "line 8"]);
    let lines: Vec<&str> = content
        .rejects
        .iter()
        .map(|r| r.split_once(':').unwrap().0)
        .collect();
    assert_eq!(lines, ["line 4", "line 5", "line 6", "line 7"]);
    assert!(content.rejects[1].contains("no JSON object"));
    assert!(content.rejects[2].contains("more than one"));
}

#[test]
fn json_that_the_sample_did_not_show() {
    let mut text = "{\"id\": 1}\n".repeat(10_000);
    text.push_str("{\"id\": 1.5}\n{\"id\": \"07\"}\n{\"id\": \"8\"}\n{\"id\": 9, \"new\": 1}\n{\"id\": 1e2}\n");
    let content = json(&text);
    assert_eq!(content.rows.len(), 10_000);
    let lines: Vec<&str> = content
        .rejects
        .iter()
        .map(|r| r.split_once(':').unwrap().0)
        .collect();
    assert_eq!(
        lines,
        [
            "line 10001",
            "line 10002",
            "line 10003",
            "line 10004",
            "line 10005"
        ]
    );
    assert!(
        content.rejects[0].contains("1.5 does not fit"),
        "{:?}",
        content.rejects[0]
    );
    assert!(
        content.rejects[3].contains("new"),
        "{:?}",
        content.rejects[3]
    );
}

#[test]
fn compressed_text() {
    let text = b"id,name\n1,a\n2,b\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&text[..], 1).unwrap();
    let cut = &zstd[..zstd.len() - 6];
    let dir = Dir::new(&[
        ("a.csv.gz", &gzip),
        ("b.csv.zst", &zstd),
        ("c.csv.zst", cut),
        ("d.parquet.gz", b""),
    ]);
    for name in ["a.csv.gz", "b.csv.zst"] {
        let content = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(content.rows, ["1|a", "2|b"]);
        assert_eq!(content.places, ["line 2", "line 3"]);
    }
    let error = dir.open("c.csv.zst").unwrap_err().to_string();
    assert!(
        error.contains("c.csv.zst: its compressed content is damaged"),
        "{error}"
    );
    assert!(
        dir.open("d.parquet.gz")
            .unwrap_err()
            .to_string()
            .contains("only text is read inside .gz or .zst")
    );
}
