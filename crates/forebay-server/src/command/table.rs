//! The table of all commands.

use super::{Command, Keys, Run};
use super::{
    cluster, connection, hash, introspect, keyspace, list, range, scan, string, transaction,
};

const NONE: Keys = Keys {
    first: 0,
    last: 0,
    step: 0,
};
const ONE: Keys = Keys {
    first: 1,
    last: 1,
    step: 1,
};
const ALL: Keys = Keys {
    first: 1,
    last: -1,
    step: 1,
};

const READ: &[&str] = &["readonly"];
const FAST: &[&str] = &["readonly", "fast"];
const STATE: &[&str] = &["loading", "stale", "fast"];
const BEFORE_AUTH: &[&str] = &["loading", "stale", "fast", "no_auth"];
const WRITE: &[&str] = &["write"];

const fn read(
    name: &'static str,
    arity: i32,
    keys: Keys,
    group: &'static str,
    summary: &'static str,
    run: fn(&mut super::Call<'_>) -> super::Answer,
) -> Command {
    Command {
        name,
        arity,
        flags: FAST,
        keys,
        group,
        summary,
        run: Run::Read(run),
    }
}

const fn walk(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    run: fn(&mut super::Call<'_>) -> super::Answer,
) -> Command {
    Command {
        name,
        arity,
        flags: READ,
        keys: NONE,
        group: "keyspace",
        summary,
        run: Run::Walk(run),
    }
}

const fn session(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
    run: fn(&mut super::SessionCall<'_>) -> super::Answer,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: NONE,
        group,
        summary,
        run: Run::Session(run),
    }
}

/// A command of Redis that writes; `keys` tells which table it was meant for.
const fn write(name: &'static str, keys: Keys) -> Command {
    let summary = "Refused: batch tables change only as a whole.";
    Command {
        name,
        arity: -1,
        flags: WRITE,
        keys,
        group: "write",
        summary,
        run: Run::Write,
    }
}

// One command a line.
#[rustfmt::skip]
/// All commands that are known. A command's place in it is its number in the metrics.
pub static COMMANDS: &[Command] = &[
    read("get", 2, ONE, "string", "The value of a key; rows and lists as JSON.", string::get),
    read("mget", -2, ALL, "string", "The values of several keys.", string::mget),
    read("exists", -2, ALL, "keyspace", "How many of the keys are there.", string::exists),
    read("touch", -2, ALL, "keyspace", "How many of the keys are there.", string::exists),
    read("strlen", 2, ONE, "string", "The length of what GET gives.", string::strlen),
    read("getrange", 4, ONE, "string", "A part of what GET gives.", string::getrange),
    read("substr", 4, ONE, "string", "A part of what GET gives.", string::getrange),
    read("type", 2, ONE, "keyspace", "string, hash (a row), list or none.", keyspace::type_of),
    read("ttl", 2, ONE, "keyspace", "Seconds to live; -1: no end, -2: no key.", keyspace::ttl),
    read("pttl", 2, ONE, "keyspace", "Milliseconds to live; -1 and -2 as TTL.", keyspace::ttl),
    read("expiretime", 2, ONE, "keyspace", "When a key expires, or -1, -2.", keyspace::ttl),
    read("pexpiretime", 2, ONE, "keyspace", "The same in milliseconds.", keyspace::ttl),
    read("object", -2, SECOND, "keyspace", "ENCODING, REFCOUNT, IDLETIME.", keyspace::object),
    read("memory", -2, SECOND, "keyspace", "USAGE: bytes of a key and value.", keyspace::memory),
    read("hget", 3, ONE, "hash", "A column of a row.", hash::hget),
    read("hmget", -3, ONE, "hash", "Some columns of a row.", hash::hmget),
    read("hgetall", 2, ONE, "hash", "The columns of a row that are not null.", hash::hgetall),
    read("hkeys", 2, ONE, "hash", "The names of a row's columns.", hash::hkeys),
    read("hvals", 2, ONE, "hash", "The values of a row's columns.", hash::hvals),
    read("hlen", 2, ONE, "hash", "How many columns of a row are not null.", hash::hlen),
    read("hexists", 3, ONE, "hash", "Whether a column is there and not null.", hash::hexists),
    read("hstrlen", 3, ONE, "hash", "The length of a column's text.", hash::hstrlen),
    read("hscan", -3, ONE, "hash", "The columns of a row, by pattern.", hash::hscan),
    read("hrandfield", -2, ONE, "hash", "Random columns of a row.", hash::hrandfield),
    read("lrange", 4, ONE, "list", "A part of a list.", list::lrange),
    read("lindex", 3, ONE, "list", "An item of a list.", list::lindex),
    read("llen", 2, ONE, "list", "The length of a list.", list::llen),
    read("dbsize", 1, NONE, "keyspace", "The keys of all tables.", keyspace::dbsize),
    walk("scan", -2, "Walks all tables, a few keys at a time.", scan::scan),
    walk("randomkey", 1, "Some key.", keyspace::randomkey),
    walk("keys", 2, "The keys that match a pattern, of small tables.", keyspace::keys),
    walk("kv.range", -3, "The keys of an ordered table between two bounds.", range::range),
    read("ping", -1, NONE, "connection", "PONG.", connection::ping),
    read("echo", 2, NONE, "connection", "Gives its argument back.", connection::echo),
    session("hello", -1, BEFORE_AUTH, "connection", "Chooses RESP2 or 3.", connection::hello),
    session("auth", -2, BEFORE_AUTH, "connection", "Tells who the client is.", connection::auth),
    session("quit", -1, BEFORE_AUTH, "connection", "Ends the connection.", connection::quit),
    session("reset", 1, STATE, "connection", "Begins the session anew.", connection::reset),
    session("select", 2, STATE, "connection", "There is only database 0.", connection::select),
    session("client", -2, STATE, "connection", "About connections.", connection::client),
    session("acl", -2, STATE, "connection", "WHOAMI.", connection::acl),
    session("readonly", 1, STATE, "connection", "Accepted; all reads are.", connection::accept),
    session("readwrite", 1, STATE, "connection", "Accepted.", connection::accept),
    session("asking", 1, STATE, "connection", "Accepted.", connection::accept),
    session("multi", 1, STATE, "transactions", "Begins a set of reads.", transaction::multi),
    session("exec", 1, STATE, "transactions", "Runs the reads together.", transaction::exec),
    session("discard", 1, STATE, "transactions", "Forgets the reads.", transaction::discard),
    session("watch", -2, STATE, "transactions", "Not supported.", transaction::watch),
    session("unwatch", 1, STATE, "transactions", "Accepted.", connection::accept),
    session("cluster", -2, STATE, "cluster", "This node and its slots.", cluster::cluster),
    session("command", -1, STATE, "server", "About the commands.", introspect::command),
    session("info", -1, STATE, "server", "About the server.", introspect::info),
    session("config", -2, STATE, "server", "GET: some settings.", introspect::config),
    session("time", 1, STATE, "server", "The server's clock.", introspect::time),
    session("role", 1, STATE, "server", "master.", introspect::role),
    session("slowlog", -2, STATE, "server", "Empty.", introspect::slowlog),
    session("latency", -2, STATE, "server", "Empty.", introspect::latency),
    session("module", -2, STATE, "server", "LIST: none.", introspect::module),
    write("append", ONE),
    write("copy", ONE),
    write("decr", ONE),
    write("decrby", ONE),
    write("del", ALL),
    write("expire", ONE),
    write("expireat", ONE),
    write("flushall", NONE),
    write("flushdb", NONE),
    write("getdel", ONE),
    write("getex", ONE),
    write("getset", ONE),
    write("hdel", ONE),
    write("hincrby", ONE),
    write("hincrbyfloat", ONE),
    write("hmset", ONE),
    write("hset", ONE),
    write("hsetnx", ONE),
    write("incr", ONE),
    write("incrby", ONE),
    write("incrbyfloat", ONE),
    write("linsert", ONE),
    write("lpop", ONE),
    write("lpush", ONE),
    write("lpushx", ONE),
    write("lrem", ONE),
    write("lset", ONE),
    write("ltrim", ONE),
    write("mset", Keys { first: 1, last: -1, step: 2, }),
    write("msetnx", Keys { first: 1, last: -1, step: 2, }),
    write("persist", ONE),
    write("pexpire", ONE),
    write("pexpireat", ONE),
    write("psetex", ONE),
    write("rename", ONE),
    write("renamenx", ONE),
    write("restore", ONE),
    write("rpop", ONE),
    write("rpush", ONE),
    write("rpushx", ONE),
    write("sadd", ONE),
    write("set", ONE),
    write("setbit", ONE),
    write("setex", ONE),
    write("setnx", ONE),
    write("setrange", ONE),
    write("srem", ONE),
    write("unlink", ALL),
    write("xadd", ONE),
    write("zadd", ONE),
    write("zincrby", ONE),
    write("zrem", ONE),
];

/// Of commands whose first argument is a subcommand.
const SECOND: Keys = Keys {
    first: 2,
    last: 2,
    step: 1,
};
