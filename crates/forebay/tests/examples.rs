//! Every example runs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../examples/checkpoint.rs"]
mod checkpoint;
#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../examples/counters.rs"]
mod counters;
#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../examples/push_and_serve_reads.rs"]
mod push_and_serve_reads;
#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../examples/read.rs"]
mod read;

#[test]
fn tables_are_read() {
    let dir = tempfile::tempdir().unwrap();
    read::run(&dir.path().join("store")).unwrap();
    read::run(&dir.path().join("store")).unwrap();
}

#[test]
fn reads_continue_while_versions_are_pushed() {
    let dir = tempfile::tempdir().unwrap();
    push_and_serve_reads::run(&dir.path().join("store")).unwrap();
}

#[test]
fn clicks_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    counters::run(&dir.path().join("store")).unwrap();
}

#[test]
fn a_checkpoint_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    checkpoint::run(&dir.path().join("store"), &dir.path().join("backup")).unwrap();
}

/// An example that is in no test above would not be run.
#[test]
fn no_example_is_left_out() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let run = [
        "checkpoint.rs",
        "counters.rs",
        "push_and_serve_reads.rs",
        "read.rs",
    ];
    assert_eq!(names, run);
}
