//! Paths, directories and globs.

use super::*;

fn names(dir: &Dir, sources: &[&str]) -> Result<Vec<String>, String> {
    let sources: Vec<String> = sources.iter().map(|source| dir.path(source)).collect();
    let found = find::find(&sources, &SourceOptions::default());
    let found = found.map_err(|error| error.to_string())?;
    let blobs: Vec<Blob> = found.into_iter().map(|found| found.blob).collect();
    let root = dir.path("");
    let below =
        |blob: &Blob| blob.name.rsplit_once(root.trim_end_matches('/')).unwrap().1[1..].to_owned();
    Ok(blobs.iter().map(below).collect())
}

#[test]
fn sources_are_found_in_order() {
    let files = [
        "b.csv",
        "a.csv",
        "sub/c.csv",
        "sub/deep/d.csv",
        "sub/_SUCCESS",
        "sub/.x.csv",
        "e [1].csv",
        "n.txt",
    ];
    let dir = Dir::new(&files.map(|name| (name, &b"a\n1\n"[..])));
    assert_eq!(
        names(&dir, &["b.csv", "a.csv", "b.csv"]).unwrap(),
        ["b.csv", "a.csv"]
    );
    assert_eq!(names(&dir, &["?.csv"]).unwrap(), ["a.csv", "b.csv"]);
    assert_eq!(names(&dir, &["s*/*.csv"]).unwrap(), ["sub/c.csv"]);
    assert_eq!(names(&dir, &["**/*.csv"]).unwrap().len(), 5);
    assert_eq!(
        names(&dir, &["sub/**"]).unwrap(),
        ["sub/c.csv", "sub/deep/d.csv"]
    );
    assert_eq!(
        names(&dir, &["sub"]).unwrap(),
        ["sub/c.csv", "sub/deep/d.csv"]
    );
    assert_eq!(names(&dir, &["e [1].csv"]).unwrap(), ["e [1].csv"]);
    assert!(
        names(&dir, &["z.csv"])
            .unwrap_err()
            .contains("no such file")
    );
    assert!(
        names(&dir, &["z*.csv"])
            .unwrap_err()
            .contains("no file matches")
    );
    assert!(
        dir.open("n.txt")
            .unwrap_err()
            .to_string()
            .contains("neither its name nor its beginning shows the format")
    );
    let other = SourceSet::open(
        &vec!["ftp://host/x".into()].into(),
        &SourceOptions::default(),
    );
    assert!(other.unwrap_err().to_string().contains("sources are paths"));
    assert!(SourceSet::open(&Vec::new().into(), &SourceOptions::default()).is_err());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "makes odd files")]
fn a_path_that_is_not_a_file_is_reported_as_such() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    let dir = Dir::new(&[
        ("good.csv", b"id\n1\n"),
        ("empty.csv", b""),
        ("odd/a\nb.csv", b"id\n1\n"),
        ("bytes/good.csv", b"id\n1\n"),
    ]);
    let name = std::ffi::OsStr::from_bytes(b"bad \xff.csv");
    std::fs::write(dir.0.path().join("bytes").join(name), b"id\n1\n").unwrap();
    for source in ["bytes", "bytes/*.csv", "bytes/**"] {
        let error = dir.open(source).unwrap_err().to_string();
        let start = format!(
            "{}: a name in this directory is not UTF-8",
            dir.path("bytes")
        );
        assert!(
            error.starts_with(&start) && error.ends_with("rename the file \"bad \u{fffd}.csv\""),
            "{source}: {error}"
        );
    }
    symlink(dir.path("loop.csv"), dir.path("loop.csv")).unwrap();
    symlink(dir.path("gone.csv"), dir.path("dangling.csv")).unwrap();
    for (name, expected) in [
        ("empty.csv", "it is empty (0 bytes)"),
        ("loop.csv", "loop.csv: cannot be read"),
        ("dangling.csv", "there is no such file"),
        ("good.csv/below.csv", "there is no such file"),
        (
            "odd/a\nb.csv",
            "a\\nb.csv\": files whose names hold control characters",
        ),
        (
            "odd",
            "a\\nb.csv\": files whose names hold control characters",
        ),
        (
            "odd/*.csv",
            "a\\nb.csv\": files whose names hold control characters",
        ),
    ] {
        let error = dir.open(name).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        // The absolute path.
        let is_whole = error.contains(&dir.path("")) || !name.starts_with("odd");
        assert!(is_whole, "{name}: {error}");
    }
    let error = SourceSet::open(
        &vec!["/dev/null".into()].into(),
        &SourceOptions {
            format: Some(Format::Csv),
            ..SourceOptions::default()
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("/dev/null: it is a device, not a file: give - in its place"),
        "{error}"
    );
    std::fs::remove_file(dir.path("loop.csv")).unwrap();
    std::fs::remove_file(dir.path("empty.csv")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.path("s.csv")).unwrap();
    let error = dir.open("*.csv").unwrap_err().to_string();
    assert!(error.contains("s.csv: it is a socket"), "{error}");
    drop(socket);
}

#[test]
fn schemas_are_united_by_name() {
    let dir = Dir::new(&[
        ("1.csv", b"id,x,only\n1,2,a\n"),
        ("2.csv", b"x,id\n2.5,7\n"),
        ("3.jsonl", b"{\"id\":8,\"x\":null,\"n\":[1]}\n"),
    ]);
    let content = read(&dir.open("*").unwrap()).unwrap();
    assert_eq!(
        content.schema,
        ["id:Int64?", "x:Float64?", "only:Utf8?", "n:List(Int64)?"]
    );
    assert_eq!(content.rows, ["1|2.0|a|-", "7|2.5|-|-", "8|-|-|[1]"]);

    let mut set = dir.open("*").unwrap();
    set.keep_columns(&["only", "id"]).unwrap();
    assert_eq!(read(&set).unwrap().rows, ["1|a", "7|-", "8|-"]);

    dir.write("4.csv", b"n\n5\n");
    let error = dir.open("*").unwrap_err().to_string();
    assert!(
        error.starts_with("the column 'n' is list(int64) in "),
        "{error}"
    );
    assert!(
        error.contains("3.jsonl") && error.contains("4.csv"),
        "{error}"
    );
    let columns = vec![parse_column("nope:int64").unwrap()];
    let options = SourceOptions {
        columns,
        ..SourceOptions::default()
    };
    assert!(
        dir.open_with("1.csv", &options)
            .unwrap_err()
            .to_string()
            .contains("they have: id, x, only")
    );
}

#[test]
fn paths_may_lead_up() {
    use std::os::unix::fs::symlink;
    let dir = Dir::new(&[("a/x.csv", b"id\n1\n"), ("b/c/y.csv", b"id\n2\n")]);
    // After a link, `..` is the parent of the link's target.
    symlink(dir.path("b/c"), dir.path("link")).unwrap();
    for name in [
        "b/../a/x.csv",
        "a/../b/c/../c/y.csv",
        "link/../c/*.csv",
        "a/..",
    ] {
        assert!(dir.open(name).is_ok(), "{name}");
    }
    let error = dir.open("link/../a/x.csv").unwrap_err().to_string();
    assert!(error.contains("there is no such file"), "{error}");
}
