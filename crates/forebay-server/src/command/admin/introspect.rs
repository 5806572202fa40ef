//! INFO, COMMAND, KV.SCHEMA and other commands by which clients identify the server and its values.

use std::fmt::Write;

use forebay_engine::Source;
use forebay_engine::live::LiveTable;
use serde_json::json;

use super::cluster::named_table;
use crate::command::running::call::SessionCall;
use crate::command::{Answer, COMMANDS, Command, CommandError, find, shown};
use crate::resp::{Args, Reply};
use crate::shared::REDIS_VERSION;
use crate::users::Verb;

/// Writes one section of INFO.
type Section = fn(&SessionCall<'_>) -> String;

/// INFO [section ...].
pub fn info(call: &mut SessionCall<'_>) -> Answer {
    let wanted: Vec<String> = call
        .args
        .skip(1)
        .iter()
        .map(|arg| shown(arg).to_lowercase())
        .collect();
    let all = ["all", "default", "everything"];
    let every = wanted.is_empty() || wanted.iter().any(|word| all.contains(&&**word));
    let sections: [(&str, Section); 8] = [
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory),
        ("Persistence", |_| {
            "loading:0\r\nasync_loading:0\r\n".to_owned()
        }),
        ("Stats", stats),
        ("Replication", |_| {
            "role:master\r\nconnected_slaves:0\r\n".to_owned()
        }),
        ("Cluster", |call| {
            let is_clustered = call.session.client.port.is_clustered();
            format!("cluster_enabled:{}\r\n", u8::from(is_clustered))
        }),
        ("Keyspace", keyspace),
    ];
    let mut text = String::new();
    for (name, write) in sections {
        if every || wanted.contains(&name.to_lowercase()) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string does not fail.
            let _ = write!(text, "{gap}# {name}\r\n{}", write(call));
        }
    }
    call.reply.verbatim(&text);
    Ok(())
}

fn server(call: &SessionCall<'_>) -> String {
    let shared = call.shared;
    let client = &call.session.client;
    let (version, port) = (env!("CARGO_PKG_VERSION"), client.local.port());
    let mode = client.port.mode();
    let map = shared.cluster.as_ref().map(|cluster| cluster.map());
    let zone = map.as_ref().and_then(|map| map.my_zone());
    let zone = zone.map_or(String::new(), |zone| {
        format!("availability_zone:{zone}\r\n")
    });
    let (seconds, process) = (shared.uptime_seconds(), std::process::id());
    format!(
        "redis_version:{REDIS_VERSION}\r\nforebay_version:{version}\r\nredis_mode:{mode}\r\n\
         os:{}\r\narch_bits:64\r\nprocess_id:{process}\r\nrun_id:{}\r\ntcp_port:{port}\r\n\
         io_threads_active:{}\r\nuptime_in_seconds:{seconds}\r\nuptime_in_days:{}\r\n{zone}",
        std::env::consts::OS,
        shared.run_id,
        shared.metrics.workers().len(),
        seconds / 86_400,
    )
}

fn clients(call: &SessionCall<'_>) -> String {
    let connected = call.shared.clients.lock().len();
    let most = call.shared.max_connections();
    format!("connected_clients:{connected}\r\nmaxclients:{most}\r\nblocked_clients:0\r\n")
}

fn memory(call: &SessionCall<'_>) -> String {
    let (own, mapped) = call.shared.resident_bytes();
    format!(
        "used_memory:{own}\r\nused_memory_rss:{}\r\nforebay_mapped_resident:{mapped}\r\n\
         maxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
        own + mapped
    )
}

fn stats(call: &SessionCall<'_>) -> String {
    let totals = call.shared.totals();
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nrejected_connections:{}\r\n\
         total_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\ntotal_error_replies:{}\r\n",
        totals.accepted,
        totals.commands(),
        totals.refused,
        totals.input_bytes,
        totals.output_bytes,
        totals.errors(),
    )
}

/// Formats the key count of all tables that the user may read, and a line for each of them.
fn keyspace(call: &SessionCall<'_>) -> String {
    let Some(user) = &call.session.user else {
        return String::new();
    };
    let mut text = String::new();
    let mut keys = 0;
    for source in call.tables.iter() {
        let name = source.table();
        if !user.may(Verb::Read, name.as_str().as_bytes()) {
            continue;
        }
        let rows = source.rows();
        keys += rows;
        let _ = match source {
            Source::Batch(version) => {
                let (number, bytes) = (version.version(), version.manifest().bytes());
                write!(
                    text,
                    "table_{name}:version={number},keys={rows},bytes={bytes}\r\n"
                )
            }
            Source::Live(table) => write!(text, "table_{name}:{}\r\n", live(table)),
        };
    }
    format!("db0:keys={keys},expires=0,avg_ttl=0\r\n{text}")
}

/// Formats a live table's part of INFO; its key count is an upper bound.
fn live(table: &LiveTable) -> String {
    let stats = table.stats();
    let durability = table.options().durability;
    let durability = durability.map_or("none".to_owned(), |durability| durability.to_string());
    format!(
        "mode=live,keys={},bytes={},durability={durability},ttl={},memtable_bytes={},frozen_bytes={},\
         log_bytes={},runs={},merges={},merged_bytes={},delayed_ms={},writable={}",
        stats.most_keys(),
        stats.file_bytes,
        table.options().expiry,
        stats.memtable_bytes,
        stats.frozen_bytes,
        stats.log_bytes,
        stats.runs.iter().sum::<usize>(),
        stats.merges,
        stats.merged_bytes,
        stats.delayed.as_millis(),
        u8::from(stats.failed.is_none()),
    )
}

/// COMMAND [COUNT | LIST | INFO name ... | DOCS name ... | GETKEYS command ...].
pub fn command(call: &mut SessionCall<'_>) -> Answer {
    let (args, reply) = (call.args, &mut *call.reply);
    let sub = args.get(1).to_ascii_lowercase();
    let named = args.skip(2);
    match (&sub[..], args.len()) {
        (b"", 1) => describe_all(reply),
        (b"info", 2) => describe_all(reply),
        (b"info", _) => {
            reply.array(named.len());
            for name in named.iter() {
                match find(name) {
                    Some(place) => describe(reply, &COMMANDS[place]),
                    None => reply.null_array(),
                }
            }
        }
        (b"count", 2) => reply.count(COMMANDS.len()),
        (b"list", 2) => {
            reply.array(COMMANDS.len());
            COMMANDS
                .iter()
                .for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        (b"docs", _) => docs(reply, &named),
        (b"getkeys", 3..) => get_keys(reply, &named)?,
        _ => return Err(CommandError::unknown_subcommand("COMMAND", args.get(1))),
    }
    Ok(())
}

fn describe_all(reply: &mut Reply) {
    reply.array(COMMANDS.len());
    COMMANDS.iter().for_each(|command| describe(reply, command));
}

fn describe(reply: &mut Reply, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(command.arity.into());
    reply.set(command.flags.len());
    command.flags.iter().for_each(|flag| reply.simple(flag));
    for key in [command.keys.first, command.keys.last, command.keys.step] {
        reply.int(key.into());
    }
    let categories = categories(command);
    reply.set(categories.len());
    categories
        .iter()
        .for_each(|name| reply.simple(&format!("@{name}")));
    let tips = tips(command.name);
    reply.array(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    // Key specifications and subcommands.
    for _ in 0..2 {
        reply.array(0);
    }
}

/// Returns how cluster clients split a command over nodes and combine the replies.
fn tips(name: &str) -> &'static [&'static str] {
    match name {
        "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
        "keys" => &["request_policy:all_shards", "nondeterministic_output_order"],
        "scan" => &[
            "nondeterministic_output",
            "request_policy:special",
            "response_policy:special",
        ],
        "randomkey" => &[
            "request_policy:all_shards",
            "response_policy:special",
            "nondeterministic_output",
        ],
        "exists" | "touch" | "del" | "unlink" => {
            &["request_policy:multi_shard", "response_policy:agg_sum"]
        }
        "mget" => &["request_policy:multi_shard"],
        "mset" => &[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ],
        "ping" => &["request_policy:all_shards", "response_policy:all_succeeded"],
        "wait" => &["request_policy:all_shards", "response_policy:agg_min"],
        "flushdb" => &["request_policy:all_shards", "response_policy:all_succeeded"],
        _ => &[],
    }
}

/// Returns the access control categories of a command as in Redis, except for its subcommands.
pub fn categories(command: &Command) -> Vec<&'static str> {
    let mut names = Vec::new();
    let has = |flag| command.flags.contains(&flag);
    let of_group = match command.group {
        "transactions" => "transaction",
        "cluster" | "server" | "write" => "",
        group => group,
    };
    names.extend((!of_group.is_empty()).then_some(of_group));
    names.extend((has("readonly") && of_group != "connection").then_some("read"));
    names.extend(has("write").then_some("write"));
    names.push(if has("fast") { "fast" } else { "slow" });
    let dangerous = ["keys", "flushdb", "info", "role", "kv.delrange"];
    names.extend(dangerous.contains(&command.name).then_some("dangerous"));
    names.extend((command.name == "role").then_some("admin"));
    names
}

fn docs(reply: &mut Reply, named: &Args<'_>) {
    let commands: Vec<&Command> = if named.is_empty() {
        COMMANDS.iter().collect()
    } else {
        named
            .iter()
            .filter_map(find)
            .map(|place| &COMMANDS[place])
            .collect()
    };
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.name.as_bytes());
        reply.map(2);
        for (name, text) in [("summary", command.summary), ("group", command.group)] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
    }
}

fn get_keys(reply: &mut Reply, args: &Args<'_>) -> Answer {
    let place =
        find(args.get(0)).ok_or_else(|| CommandError::error("ERR Invalid command specified"))?;
    let command = &COMMANDS[place];
    if !command.takes(args.len()) {
        return Err(CommandError::error(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    if command.keys.first == 0 {
        return Err(CommandError::error("ERR The command has no key arguments"));
    }
    let places: Vec<usize> = command.key_places(args.len()).collect();
    reply.array(places.len());
    places.iter().for_each(|&place| reply.bulk(args.get(place)));
    Ok(())
}

pub fn time(call: &mut SessionCall<'_>) -> Answer {
    let now = call.shared.store.clock().unix_ms();
    call.reply.array(2);
    call.reply.bulk((now / 1000).to_string().as_bytes());
    call.reply.bulk((now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

pub fn role(call: &mut SessionCall<'_>) -> Answer {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.int(0);
    call.reply.array(0);
    Ok(())
}

/// MODULE LIST.
pub fn module(call: &mut SessionCall<'_>) -> Answer {
    if !call.args.is(1, "list") {
        return Err(CommandError::unknown_subcommand("MODULE", call.args.get(1)));
    }
    call.reply.array(0);
    Ok(())
}

/// KV.SCHEMA table: a JSON object. `version` is the serving version on this node, null for a live
/// table. `value` and `columns` are as in a manifest. `key` is the template that made the keys,
/// null if clients choose them. `number` is the type of each value if it is one number.
pub fn schema(call: &mut SessionCall<'_>) -> Answer {
    let source = named_table(call)?;
    let (version, key) = match source {
        Source::Batch(version) => (Some(version.version()), Some(&version.manifest().key)),
        Source::Live(_) => (None, None),
    };
    let about = json!({
        "table": source.table(),
        "version": version,
        "order": source.order(),
        "key": key,
        "value": source.kind(),
        "number": source.number(),
        "columns": source.schema(),
    });
    call.reply.bulk(about.to_string().as_bytes());
    Ok(())
}
