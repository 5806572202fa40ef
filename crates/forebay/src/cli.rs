//! The command line as clap sees it.
//!
//! Parser, help, shell completions and man page all come from this module and from the argument
//! structs beside each command.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::inspect::reading::LOWEST_PRIORITY;
use crate::commands::inspect::{describe, events, export, get, scan, tables, top};
use crate::commands::keep::{backup, drop, restore};
use crate::commands::live::{checkpoint, create, load};
use crate::commands::publish::{compact, diff, pull, push, rollback, swap, verify, versions};
use crate::commands::{cluster, doctor, plan, serve, shell_help};
use crate::context::Context;
use crate::exit::Outcome;
use crate::global::Global;
use crate::nodes::login::LoginArgs;

/// Publishes big computed data sets into live serving: fast, reversibly, without hurting live
/// traffic.
///
/// A table has versions. `push` builds a version from files beside the serving one, verifies it,
/// and swaps it in; `serve` answers Redis clients; `rollback` undoes the swap.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(flatten)]
    pub login: LoginArgs,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, nothing was changed unless the message says so; 2 wrong command line; \
3 the version was built and kept, but the gate held its swap; 4 refused because another command is \
at work on the same table; 5 in a cluster, the version serves nowhere: what served before does; 6 in a \
cluster, done, but for the nodes named, which may still answer from the version before. Where standard output is a closed pipe, what was done counts; where it cannot be written \
otherwise, 1, and the message says what was done. A push --dry-run ends with 0, 1 or 3 as the push would.";

#[derive(Debug, Subcommand)]
pub enum Command {
    Push(push::Push),
    Pull(pull::Pull),
    Create(create::Create),
    Load(load::Load),
    Serve(serve::Serve),
    Get(get::Get),
    Scan(scan::Scan),
    Tables(tables::Tables),
    Describe(describe::Describe),
    Versions(versions::Versions),
    Swap(swap::Swap),
    Rollback(rollback::Rollback),
    Verify(verify::Verify),
    Diff(diff::Diff),
    Export(export::Export),
    Compact(compact::Compact),
    Checkpoint(checkpoint::Checkpoint),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Drop(drop::Drop),
    Events(events::Events),
    Top(top::Top),
    Undrop(drop::Undrop),
    Cluster(cluster::Cluster),
    Plan(plan::Plan),
    Doctor(doctor::Doctor),
    Completions(shell_help::Completions),
    Man(shell_help::Man),
}

/// Parses a command line. The store may be named once: of two, the parser would take the one after
/// the command.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.collect();
    let is_store = |word: &&OsString| {
        let word = word.to_string_lossy();
        word == "--store" || word.starts_with("--store=")
    };
    let options = words.iter().take_while(|word| *word != "--");
    if options.filter(is_store).count() > 1 {
        let text = "the argument '--store <URL>' cannot be used multiple times";
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    let mut command = taking_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Lets keys and values be negative numbers: no option is a number.
fn taking_numbers(command: clap::Command) -> clap::Command {
    let numbers = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(numbers).mut_subcommands(taking_numbers)
}

/// Calls [`run`] in a process of its own. Commands whose duration matters little get a low
/// priority.
pub fn run_apart(command: Command, context: &Context) -> anyhow::Result<Outcome> {
    forebay_io::behind(nice_of(&command), || run(command, context))
}

/// Returns the nice value of a command. Commands whose duration matters less than a reader's
/// latency yield to others.
fn nice_of(command: &Command) -> u8 {
    match command {
        Command::Push(args) => args.work.nice,
        Command::Load(args) => args.work.nice,
        Command::Compact(_) | Command::Backup(_) => LOWEST_PRIORITY,
        _ => 0,
    }
}

/// Runs a command on this thread, with its priority.
pub fn run(command: Command, context: &Context) -> anyhow::Result<Outcome> {
    match command {
        Command::Push(args) => push::run(args, context),
        Command::Pull(args) => pull::run(&args, context),
        Command::Create(args) => create::run(&args, context),
        Command::Load(args) => load::run(args, context),
        Command::Serve(args) => serve::run(args, context),
        Command::Get(args) => get::run(&args, context),
        Command::Scan(args) => scan::run(&args, context),
        Command::Tables(args) => tables::run(&args, context),
        Command::Describe(args) => describe::run(&args, context),
        Command::Versions(args) => versions::run(&args, context),
        Command::Swap(args) => swap::run(&args, context),
        Command::Rollback(args) => rollback::run(&args, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Compact(args) => compact::run(&args, context),
        Command::Checkpoint(args) => checkpoint::run(&args, context),
        Command::Backup(args) => backup::run(&args, context),
        Command::Restore(args) => restore::run(&args, context),
        Command::Drop(args) => drop::run(&args, context),
        Command::Events(args) => events::run(&args, context),
        Command::Top(args) => top::run(&args, context),
        Command::Undrop(args) => drop::undrop(&args, context),
        Command::Cluster(args) => cluster::run(&args, context),
        Command::Doctor(_) => doctor::run(context),
        Command::Plan(args) => plan::run(args, context),
        Command::Completions(args) => shell_help::completions(&args, Cli::command()),
        Command::Man(_) => shell_help::man(Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn keys_and_values_may_be_negative_numbers() {
        for line in [
            "forebay get t -1",
            "forebay cluster split t --at -1",
            "forebay scan t --prefix -2.5",
        ] {
            assert!(parsed(line).is_ok(), "{line}: {:?}", parsed(line));
        }
        let error = parsed("forebay plan insert --input a.json --seconds -1").unwrap_err();
        assert!(error.to_string().contains("invalid value '-1'"), "{error}");
    }

    #[test]
    fn the_store_is_named_once() {
        assert!(parsed("forebay --store a tables").is_ok());
        assert!(parsed("forebay --store a tables --store=b").is_err());
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command, with each of its options once.
    const LINES: &[&str] = &[
        "forebay push t a.parquet b.parquet --key {id}",
        "forebay push t *.csv --key {a}/{b:05} --value name --order ordered --partitions 4 \
         --format csv --csv-delimiter ; --csv-null NA --no-swap --version 7 --memory 64M \
         --threads 2 --duplicates last --bad-rows rejected.jsonl --rate 10M --column n:int64 --gate \
         rows>-20% --gate bytes<50% --force --keep 5 --compression zstd --page-size 8192",
        "forebay push t a.parquet --key {id} --value n --delta i64-saturating --ttl 7d",
        "forebay push t a.parquet --key {id} --ttl-column until",
        "forebay push t a.csv --onto current --op what --gate rows>-1%",
        "forebay push t a.csv --onto 7 --key {id} --no-create",
        "forebay push t a.pcap --format pcap --key {time:be}{packet:be} --packet-data",
        "forebay compact t",
        "forebay compact t@3 --threads 2",
        "forebay create t --mode live --order ordered --boundary g --boundary p --durability 100ms",
        "forebay create t --delta i64-saturating --partitions 8 --durability os --factor 8 \
         --merge-rate 50M --compression lz4",
        "forebay create t --value row --column name:text --column n:int64",
        "forebay load t a.parquet --key {id} --value n --as delta --ttl 7d --csv-quote ' --threads 1",
        "forebay load t a.csv b.csv --key {id} --op what --ttl-column until --bad-rows skip",
        "forebay create t --value list --item text --ttl 90m",
        "forebay create t --delta i64 --ttl per-key",
        "forebay serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --threads 1",
        "forebay serve --create --store /s",
        "forebay serve --store s3://bucket/prefix --cache /c --pull-rate 50M",
        "forebay pull t --store s3://bucket/prefix --to /c --rate 1M",
        "forebay get t k1 k2 --json",
        "forebay scan t --from a --to b --limit 3 --reverse --store /s",
        "forebay --json tables",
        "forebay tables --store s3://bucket/prefix --work-dir /w",
        "forebay versions t",
        "forebay describe t",
        "forebay doctor --json",
        "forebay swap t 3",
        "forebay swap a@3 b@7 --force",
        "forebay rollback a b",
        "forebay cluster create --name c --adopt",
        "forebay cluster status --json",
        "forebay cluster pause n1 --for 10m",
        "forebay cluster remove n1",
        "forebay cluster cancel 00ff",
        "forebay verify t@3",
        "forebay diff t 1 2",
        "forebay export t@2 --to x.csv",
        "forebay backup --to /b",
        "forebay backup t u --to s3://b/p --keep 7 --rate 50M",
        "forebay restore --from /b --list",
        "forebay restore t --from /b --check",
        "forebay restore t --from /b --backup 20261129T120000Z --no-swap",
        "forebay drop t",
        "forebay events",
        "forebay events t --follow --since 2h --node 127.0.0.1:7380 --node b:7380 --json",
        "forebay top",
        "forebay top --node 127.0.0.1:7380 --node b:7380 --every 500ms --limit 3 --once --json",
        "forebay serve --log-format json",
        "forebay drop t --yes --keep-dropped 7d",
        "forebay undrop t",
        "forebay tables --dropped",
        "forebay rollback t --from 6",
        "forebay plan insert --input a.json --mode polish --seconds 1.5 --draw a.svg --batch-bytes 1G --json",
        "forebay plan replicas --input a.json --objective l1 --json",
        "forebay plan place --input - --scheme migrate --share 0.95 --draw a.svg",
        "forebay plan workload --distribution gamma --shape 5 --partitions 128 --requests 30000 \
         --seed 1 --json",
        "forebay completions bash",
        "forebay man",
    ];

    #[test]
    fn the_commands_of_the_manual_parse() {
        for line in LINES {
            if let Err(error) = parsed(line) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            "forebay push t a.parquet",
            "forebay push t --key {id}",
            "forebay push t a --key {id} --duplicates often",
            "forebay push t a --key {id} --memory lots",
            "forebay push t a --op what --key {id}",
            "forebay push t a --onto newest",
            "forebay push t a --onto current --order ordered",
            "forebay push t a --key {id} --ttl soon",
            "forebay push t a --key {id} --ttl 0s",
            "forebay load t a.csv --key {id} --ttl 0d",
            "forebay serve --create --store s3://bucket/prefix --cache /c",
            "forebay push t a --key {id} --ttl 7d --ttl-column x",
            "forebay push t a --key {id} --delta maybe",
            "forebay cluster create --name=",
            "forebay cluster create --name a/b",
            "forebay cluster cancel a/b",
            "forebay cluster pause n1 --for 31d",
            "forebay cluster replicas t 6",
            "forebay cluster rebalance --batch 0",
            "forebay push t a --key {id} --min-replicas 0",
            "forebay push t a --key {id} --replicas 6",
            "forebay push t a --key {id} --deadline 31d",
            "forebay create t --mode batch",
            "forebay create t --durability often",
            "forebay create t --delta bits",
            "forebay load t a.csv",
            "forebay load t a.csv --key {id} --as delete",
            "forebay load t a.csv --key {id} --as delta --op what",
            "forebay drop t --keep-dropped 0s",
            "forebay create t --ttl 0s",
            "forebay create t --ttl sometimes",
            "forebay pull t",
            "forebay serve --pull-rate 1M",
            "forebay get t",
            "forebay events --since soon",
            "forebay verify t@x",
            "forebay verify a/b",
            "forebay diff t 1",
            "forebay plan",
            "forebay plan insert",
            "forebay plan insert --input a.json --mode quick",
            "forebay plan replicas --input a.json --objective l2",
            "forebay plan place --input a.json --scheme quick",
            "forebay plan workload --distribution pareto --partitions 1",
            "forebay plan workload --distribution gamma",
            "forebay plan insert --input a.json --mode polish --seconds -1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
