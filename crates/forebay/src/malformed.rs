//! Malformed options end a command before anything is done, with a message that names the option.

#![allow(clippy::disallowed_methods, reason = "the tests write their sources")]

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use forebay_load::progress::Silent;

use crate::cli::Cli;
use crate::embed::{self, CommandError};
use crate::exit::is_wrong_line;

/// A command with options that it refuses: one, or several that conflict.
const MALFORMED: &str = "
push t a.csv --key {id} | rate 0 | rate x | threads 0 | threads 9999999 | memory x | version x
push t a.csv --key {id} | partitions 0 | partitions 16385 | page-size 5 | keep x | ttl 0s | gate x
push t a.csv --key {id} | column v | column v:int64:up | csv-delimiter ab | csv-quote ,
push t a.csv --key {id} | boundaries [ | boundaries [0.5] | boundaries [5,5] | store ftp://x
load t a.csv --key {id} | rate 0 | threads 0 | column v | ttl 0s | as delete | duplicates often
load t a.csv --key {id} | insert x | clients 3 | order random | seed 1 | tls-cert a.csv
load t a.csv --key {id} --insert rows | clients 0 | batch-rows 99999 | order x | seed 1
create t | partitions 0 | partitions 16385 | boundary x | column a:int64 | item text | value row
create t | value list | factor 1 | factor 33 | merge-rate 0 | durability 5 | ttl 0s
create t --order ordered | partitions 3 | boundary b --boundary a | boundary b --boundary b
create t --order ordered | boundary= | boundary 0 --hex
create t --value row | column a | column a:int64 --column a:text | column a:int64:round
create t --value row | delta i64 --column a:int64
create t --value list | item nope
serve | listen x | http x | threads 0 | memory x | pull-rate 0 --cache c | default-table a/b
serve | max-clients 0 | reply-limit 0 | reply-memory 0
pull t --to d | rate 0
compact t | threads 0
export t | to x.zip
get there x | hex
plan insert --input in.json | seconds 1 | seconds x --mode polish | mode quick
plan insert --input in.json --json | batch-bytes 0
plan insert --input in.json | draw x.png | draw - | draw in.json
plan place --input in.json | draw x.png | share x | share 2 | scheme quick
plan place t --from-load 1h | copies x | batch 0 | share 2 | scheme smooth | objective l1
plan place t --from-load 1h | input x
plan replicas t | from-load 2h | input in.json
plan workload --partitions 4 --distribution zipf | alpha 1 | requests 99999999999 | exponent nan
plan workload --distribution zipf | partitions 99999999 | partitions 0
";

/// Runs a command line in a store. Names of files are relative to the directory.
fn run(dir: &Path, line: &str) -> Result<(), CommandError> {
    let word = |word: &str| match word {
        "a.csv" | "in.json" | "x.png" | "x.zip" | "d" | "c" => dir.join(word).display().to_string(),
        word => word.to_owned(),
    };
    let mut words: Vec<String> = line.split(' ').map(word).collect();
    if !line.contains("--store") {
        words.extend([
            "--store".to_owned(),
            dir.join("store").display().to_string(),
        ]);
    }
    // The parser's message, as the binary prints it.
    let line = ["forebay".to_owned()].into_iter().chain(words.clone());
    if let Err(error) = Cli::try_parse_from(line) {
        return Err(CommandError::Words(error.to_string()));
    }
    embed::run(&words, None, Arc::new(Silent)).map(|_| ())
}

/// Creates a directory with a store that has a table `there`, and files.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.csv"), "id,v\n1,2\n").unwrap();
    std::fs::write(dir.path().join("in.json"), "{}").unwrap();
    run(dir.path(), "create there --durability os").unwrap();
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let read = |dir: &Path| {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|one| one.unwrap().path())
    };
    let mut names: Vec<String> = read(dir)
        .chain(read(&dir.join("store/tables")))
        .map(|path| path.display().to_string())
        .collect();
    names.sort();
    names
}

/// Returns the message of a line that ends with the exit code of a wrong command line.
fn refused(dir: &Path, line: &str) -> String {
    match run(dir, line) {
        Err(CommandError::Words(words)) => words,
        Err(CommandError::Failed(error)) => {
            assert!(is_wrong_line(&error), "{line}: {error:#}");
            crate::error_kind::words(&error)
        }
        Ok(()) => panic!("{line}: it is done"),
    }
}

#[test]
fn a_malformed_option_is_named_and_nothing_is_done() {
    let dir = directory();
    let there = names(dir.path());
    let mut count = 0;
    for row in MALFORMED.trim().lines() {
        let mut parts = row.split(" | ");
        let command = parts.next().unwrap();
        for option in parts {
            let message = refused(dir.path(), &format!("{command} --{option}"));
            let name = option.split([' ', '=']).next().unwrap();
            assert!(message.contains(name), "{command} --{option}: {message}");
            assert_eq!(names(dir.path()), there, "{command} --{option}");
            count += 1;
        }
    }
    assert!(count > 90, "{count} options");
}

#[test]
fn messages_of_malformed_options_say_what_to_do() {
    let dir = directory();
    let says = |line: &str, wanted: &str| {
        let message = refused(dir.path(), line);
        assert!(message.contains(wanted), "{line}: {message}");
        message
    };
    says("cluster set", "--node-timeout");
    says(
        "push t a --key {id} --rate 0",
        "leave the option out to have no limit",
    );
    says(
        "pull t --to d --rate 0",
        "leave the option out to have no limit",
    );
    let risen = says(
        "create t --order ordered --boundary b --boundary a",
        "have to rise",
    );
    assert!(risen.contains("--boundary"), "{risen}");
    let twice = "create t --value row --column a:int64 --column a:text";
    let twice = says(twice, "two columns are named 'a'");
    assert!(!twice.contains("NAME:TYPE"), "{twice}");
    let item = says("create t --value list --item nope", "'nope'");
    assert!(!item.contains("item:nope"), "{item}");
}
