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
    text.push_str("1,2,3\n5\n7,\"open\n");
    let content = csv(&text);
    assert_eq!(content.rows.len(), 20_000);
    assert_eq!(content.rows[19_999], "19999|n19999");
    assert_eq!(
        content.rejects,
        [
            "line 20002: wrong number of fields, expected 2 got 3",
            "line 20003: wrong number of fields, expected 2 got 1",
            "line 20004: a quote is not closed before the file ends",
        ]
    );
}

#[test]
fn a_quote_left_open_in_the_header_is_refused() {
    for text in ["a,\"b\n1,2\n3,4\n", "a,\"", "\n\na,\"b\"\"\n"] {
        let dir = Dir::new(&[("a.csv", text.as_bytes())]);
        let error = dir.open("a.csv").unwrap_err().to_string();
        let expected = "its header: a quote is not closed before the file ends: it is before the name of column 2";
        assert!(error.ends_with(expected), "{text:?}: {error}");
    }
    assert_eq!(csv("a,\"b\nc\"\n1,2").rows, ["1|2"]);
}

#[test]
fn a_value_that_is_not_of_the_given_type_names_its_column() {
    let dir = Dir::new(&[("a.csv", b"id,n\n1,1\nx7,2\n")]);
    let columns = vec![parse_column("id:int64").unwrap()];
    let options = SourceOptions {
        columns,
        ..SourceOptions::default()
    };
    let set = dir.open_with("a.csv", &options).unwrap();
    let mut columns = Vec::new();
    for unit in &set.units {
        let reject = |reject: Reject<'_>| {
            columns.push((reject.column, reject.reason));
            Ok(())
        };
        unit.read::<SourceError>(|_, _| Ok(()), reject).unwrap();
    }
    let reason = "the column 'id' holds \"x7\" (text), which does not read as int64; \
                  --column 'id:int64:null' would make it null";
    let reason = reason.to_owned();
    assert_eq!(columns, [(Some("id".to_owned()), reason)]);
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
        null: vec!["NA".into()],
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
    let mut options = SourceOptions::default();
    options.csv.quote = b'\t';
    let error = dir.open_with("b.tsv", &options).unwrap_err().to_string();
    assert!(error.contains("give another --csv-quote"), "{error}");
}

#[test]
fn empty_text_files() {
    assert_eq!(csv("a,b\n").rows.len(), 0);
    let dir = Dir::new(&[("a.csv", b""), ("b.jsonl", b"")]);
    for name in ["a.csv", "b.jsonl"] {
        let error = dir.open(name).unwrap_err().to_string();
        assert!(error.contains("it is empty (0 bytes)"), "{error}");
    }
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
    assert!(content.rejects[0].contains("on one line"));
    assert!(content.rejects[1].contains("no JSON object"));
    assert!(content.rejects[2].contains("more than one"));
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

#[test]
fn a_flipped_bit_in_compressed_text_is_an_error() {
    let text: Vec<u8> = (0..2000)
        .flat_map(|n| format!("{n},{}\n", n * n).into_bytes())
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"id,square\n").unwrap();
    gzip.write_all(&text).unwrap();
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(b"id,square\n").unwrap();
    zstd.write_all(&text).unwrap();
    let packed = [
        ("a.csv.gz", gzip.finish().unwrap()),
        ("b.csv.zst", zstd.finish().unwrap()),
    ];
    for (name, bytes) in packed {
        let dir = Dir::new(&[(name, &bytes)]);
        let whole = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(whole.rows.len(), 2000);
        // The head has flags and a time that are not content; the checksum of gzip precedes its
        // length.
        for at in (20..bytes.len()).step_by(bytes.len() / 40) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            dir.write(name, &flipped);
            let read = dir.open(name).and_then(|set| read(&set));
            assert!(
                read.as_ref().is_err() || read.as_ref().is_ok_and(|read| *read == whole),
                "{name}: {at}"
            );
        }
    }
}

#[test]
fn text_after_a_closing_quote_makes_a_bad_row() {
    let dir = Dir::new(&[
        (
            "a.csv",
            b"id,t\n1,\"a\"b\n2,\"c\"\n3,\"d\"\"e\"\r\n4,\"f\" \n5,g\"h\"\n\"6\"7,i\n",
        ),
        ("b.csv", b"id,\"t\"x\n1,2\n"),
        ("c.csv", b"id,t\n1,\"a\"b"),
    ]);
    let content = read(&dir.open("a.csv").unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "t:Utf8?"]);
    assert_eq!(content.rows, ["2|c", "3|d\"e", "5|g\"h\""]);
    let reason = |line, column| {
        format!(
            "line {line}: something follows the closing quote of the column '{column}': a quote within quotes is \
             written twice"
        )
    };
    let expected = [reason(2, "t"), reason(5, "t"), reason(7, "id")];
    assert_eq!(content.rejects, expected);
    assert_eq!(
        read(&dir.open("c.csv").unwrap()).unwrap().rejects,
        [reason(2, "t")]
    );
    let error = dir.open("b.csv").unwrap_err().to_string();
    assert!(
        error.contains("closing quote of the name of column 2"),
        "{error}"
    );
}

#[test]
fn carriage_returns_that_end_no_line_make_bad_rows() {
    let read_of = |text: &[u8]| {
        let dir = Dir::new(&[("a.csv", text)]);
        let content = read(&dir.open("a.csv").unwrap()).unwrap();
        assert_eq!(content.schema, ["id:Int64?", "v:Utf8?"], "{text:?}");
        (content.rows, content.rejects)
    };
    let reason = |line| {
        format!(
            "line {line}: a carriage return that ends no line: quote the field, or end all lines alike"
        )
    };
    for (text, rows, line) in [
        (&b"id,v\n1,a\r\r\n2,c\n"[..], ["2|c"], 2),
        (b"id,v\n1,a\n\r2,c\n", ["1|a"], 3),
        (b"id,v\n1,a\rb\n2,c\n", ["2|c"], 2),
        (b"id,v\r\n1,a\r\n2,b\r", ["1|a"], 3),
        (b"id,v\n1,\"a\rb\r\"\r\n2,\r\n\r7,c\n", ["1|a\rb\r"], 4),
    ] {
        let (mut read, rejects) = read_of(text);
        read.retain(|row| row != "2|-");
        assert_eq!(
            (read, rejects),
            (rows.map(str::to_owned).to_vec(), vec![reason(line)])
        );
    }
    for text in [
        &b"id,name\r\r\n1,x\r\r\n"[..],
        b"\rid,v\n1,x\n",
        b"id,\rv\n1,x\n",
    ] {
        let message = Dir::new(&[("a.csv", text)])
            .open("a.csv")
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("its header has a carriage return that ends no line"),
            "{message}"
        );
    }
}

#[test]
fn many_columns_are_decoded_in_small_batches() {
    let columns = 10_000;
    let row = |what: &dyn Fn(usize) -> String| {
        let fields: Vec<String> = (0..columns).map(what).collect();
        fields.join(",") + "\n"
    };
    let mut text = row(&|column| format!("c{column}"));
    for id in 0..300 {
        text += &row(&|column| (id * column).to_string());
    }
    let dir = Dir::new(&[("a.csv", text.as_bytes())]);
    let set = dir.open("a.csv").unwrap();
    let (mut rows, mut most) = (0, 0);
    for unit in &set.units {
        let read = unit.read::<SourceError>(
            |batch, _| {
                rows += batch.num_rows();
                most = most.max(batch.num_rows());
                Ok(())
            },
            |reject| panic!("{}", reject.reason),
        );
        read.unwrap();
    }
    assert_eq!(rows, 300);
    // The decoder reserves memory for all fields of a batch.
    assert!(most * columns <= 1 << 20, "{most} rows at once");
}
