//! Text in other forms than the usual ones: arrays of JSON, files of old Macs, and what is no text.

use std::io::Write;

use super::*;

fn error(name: &str, content: &[u8]) -> String {
    let dir = Dir::new(&[(name, content)]);
    let error = dir.open(name).unwrap_err().to_string();
    error
        .rsplit_once(&format!("{name}: "))
        .unwrap()
        .1
        .to_owned()
}

#[test]
fn a_json_array_gives_its_elements() {
    let pretty = "\u{feff} [\n  {\n    \"id\": 1,\n    \"t\": \"a],[{\\\"\"\n  },\n  {\n    \"id\": 2,\n    \"l\": [1, {\"x\": [true]}]\n  }\n]\n";
    let dense = "[{\"id\":1,\"t\":\"a],[{\\\"\"},{\"id\":2,\"l\":[1,{\"x\":[true]}]}]";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(pretty.as_bytes()).unwrap();
    let dir = Dir::new(&[
        ("pretty.json", pretty.as_bytes()),
        ("dense.json", dense.as_bytes()),
        ("packed.json.gz", &gzip.finish().unwrap()),
    ]);
    for name in ["pretty.json", "dense.json", "packed.json.gz"] {
        let content = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(
            content.schema,
            ["id:Int64?", "t:Utf8?", "l:List(Utf8)?"],
            "{name}"
        );
        assert_eq!(content.rows, ["1|a],[{\"|-"], "{name}");
        assert_eq!(content.places, ["element 1"]);
        assert!(
            content.rejects[0].starts_with("element 2: "),
            "{:?}",
            content.rejects
        );
    }
}

#[test]
fn elements_of_an_array_that_are_no_objects() {
    let dir = Dir::new(&[("a.json", b"[{\"a\":1}, 2, , \"x\", {\"a\":3}]\n{\"a\":4}\n")]);
    let content = read(&dir.open("a.json").unwrap()).unwrap();
    assert_eq!(content.rows, ["1", "3", "4"]);
    let places: Vec<&str> = content
        .rejects
        .iter()
        .map(|r| r.split_once(':').unwrap().0)
        .collect();
    assert_eq!(places, ["element 2", "element 3", "element 4"]);
    assert!(content.rejects[0].contains("no JSON object"));
    let dir = Dir::new(&[("empty.json", b"[ ]\n")]);
    assert_eq!(
        read(&dir.open("empty.json").unwrap()).unwrap(),
        Content::default()
    );
}

#[test]
fn an_array_has_to_end() {
    for text in [
        "[",
        "[{\"a\":1}",
        "[{\"a\":1},",
        "[{\"a\":1},\n{\"a\"",
        "[{\"a\":[1}]",
    ] {
        let dir = Dir::new(&[("a.json", text.as_bytes())]);
        let error = read(&dir.open("a.json").unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("its JSON array is damaged or cut off"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_long_array_is_read_in_parts() {
    let mut text = String::from("[");
    for id in 0..20_000 {
        text.push_str(&format!("{{\"id\":{id},\"t\":\"{}\"}},", "[{,".repeat(400)));
    }
    text.push_str("7]");
    let dir = Dir::new(&[("a.json", text.as_bytes())]);
    let set = dir.open("a.json").unwrap();
    assert!(set.units.len() > 1);
    let content = read(&set).unwrap();
    assert_eq!(content.rows.len(), 20_000);
    assert_eq!(content.places[19_999], "element 20000");
    assert_eq!(content.rejects, ["element 20001: this is no JSON object"]);
}

#[test]
fn csv_of_old_macs() {
    let dir = Dir::new(&[
        ("a.csv", b"id,name\r1,\"a\rb\"\r2,c\r\r3,d,e\r4,\xff\r5,f"),
        ("mixed.csv", b"id,name\r\n1,a\n2,b\r\n"),
    ]);
    let content = read(&dir.open("a.csv").unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "name:Utf8?"]);
    assert_eq!(content.rows, ["1|a\rb", "2|c", "5|f"]);
    assert_eq!(content.places, ["line 2", "line 4", "line 8"]);
    assert!(content.rejects[0].starts_with("line 6: "));
    let content = read(&dir.open("mixed.csv").unwrap()).unwrap();
    assert_eq!(content.rows, ["1|a", "2|b"]);
}

#[test]
fn files_that_are_no_text_of_their_format() {
    let utf16: Vec<u8> = "\u{feff}{\"a\":1}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        error("a.jsonl", &utf16),
        "line 1 is not JSON: the file seems to be UTF-16; convert it to UTF-8 first, as by iconv -f UTF-16 -t UTF-8"
    );
    assert!(error("a.json", b"\x1f\x8b\x08\0").contains("its compressed content is damaged"));
    assert!(error("a.csv", b"PK\x03\x04zip").contains("it is a zip archive"));
    assert!(error("a.csv", b"PAR1\x15\x04").contains("Parquet"));
    assert!(error("a.json", b"<html><body>404").contains("HTML"));
    let lines = error("a.jsonl", b"{\n  \"a\": 1\n}\n");
    assert!(
        lines.starts_with("line 1 is no JSON object: it does not end on its line; write"),
        "{lines}"
    );
    assert!(
        error("a.jsonl", b"id,n\n1,2\n")
            .contains("line 1 is no JSON object: it begins with 'id,n'; say")
    );
    assert!(error("a.json", b"[1, 2]").contains("element 1 is no JSON object: it begins with '1'"));
    assert!(error("a.json", b"<?xml version=\"1.0\"?>").contains("XML"));
}

#[test]
fn a_header_of_one_column_hints_at_its_delimiter() {
    let message = error("a.csv", b"id;name\n1;a\n");
    assert!(
        message.contains("--csv-delimiter ';'") && message.contains("'id;name'"),
        "{message}"
    );
    assert!(error("a.csv", b"id\tname\n").contains("--csv-delimiter '\\t'"));
    assert!(error("a.tsv", b"id,name\n").contains("--csv-delimiter ','"));
    let dir = Dir::new(&[("a.csv", b"id;name\n1;a\n")]);
    let options = SourceOptions {
        delimiter_given: true,
        ..SourceOptions::default()
    };
    let content = read(&dir.open_with("a.csv", &options).unwrap()).unwrap();
    assert_eq!(content.rows, ["1;a"]);
}

#[test]
fn several_texts_are_null() {
    let dir = Dir::new(&[("a.csv", b"id,n\n1,NA\n2,\\N\n3,\n4,5\n")]);
    let mut options = SourceOptions::default();
    options.csv.null = vec!["NA".to_owned(), "\\N".to_owned()];
    let content = read(&dir.open_with("a.csv", &options).unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "n:Int64?"]);
    assert_eq!(content.rows, ["1|-", "2|-", "3|-", "4|5"]);
}

#[test]
fn values_that_nest_without_end_are_bad_rows() {
    let lists = format!(
        "{{\"id\":2,\"a\":{}{}}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let objects = format!(
        "{{\"id\":3,\"b\":{}1{}}}",
        "{\"b\":".repeat(200_000),
        "}".repeat(200_000)
    );
    let text = format!("{{\"id\":1,\"a\":\"x\"}}\n{lists}\n{objects}\n{{\"id\":4}}\n");
    let dir = Dir::new(&[("a.jsonl", text.as_bytes())]);
    let content = read(&dir.open("a.jsonl").unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "a:Utf8?"]);
    assert_eq!(content.rows, ["1|x", "4|-"]);
    let reason = "its values nest deeper than 32";
    assert_eq!(
        content.rejects,
        [format!("line 2: {reason}"), format!("line 3: {reason}")]
    );
}
