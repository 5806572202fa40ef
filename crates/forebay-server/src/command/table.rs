//! The table of all commands.

use super::watch;
use super::{Command, Keys, Run};
use crate::command::admin::{acl, clients, cluster, connection, introspect, tune};
use crate::command::hashes::{hash, hash_edit};
use crate::command::keys::{expire, keyspace, put, range, record, rename, scan};
use crate::command::lists::{list, list_edit, list_move};
use crate::command::running::transaction;
use crate::command::running::txn::Edit;
use crate::command::values::{bits, compare, count, get, string};
use crate::resp::Args;

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
const TWO: Keys = Keys {
    first: 1,
    last: 2,
    step: 1,
};
/// All arguments from the second on.
const FROM_SECOND: Keys = Keys {
    first: 2,
    last: -1,
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
const WRITE_FAST: &[&str] = &["write", "denyoom", "fast"];

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

type EditFn = fn(&mut Edit<'_, '_>) -> super::Answer;
type ReadsFn = fn(&Args<'_>) -> bool;

fn always(_: &Args<'_>) -> bool {
    true
}

fn never(_: &Args<'_>) -> bool {
    false
}

/// Returns a command that changes one key.
const fn edit(
    name: &'static str,
    arity: i32,
    group: &'static str,
    summary: &'static str,
    (run, reads): (EditFn, ReadsFn),
) -> Command {
    Command {
        name,
        arity,
        flags: WRITE_FAST,
        keys: ONE,
        group,
        summary,
        run: Run::Edit { run, reads },
    }
}

/// Returns a command that changes several keys.
const fn many(
    name: &'static str,
    arity: i32,
    keys: Keys,
    group: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command {
        name,
        arity,
        flags: WRITE,
        keys,
        group,
        summary,
        run,
    }
}

/// Returns a command that changes several keys of one partition.
const fn together(
    name: &'static str,
    arity: i32,
    keys: Keys,
    group: &'static str,
    summary: &'static str,
    run: EditFn,
) -> Command {
    Command {
        name,
        arity,
        flags: WRITE,
        keys,
        group,
        summary,
        run: Run::Together(run),
    }
}

/// Returns a write command of Redis that no table of Forebay accepts. `keys` says for which tables
/// it was meant.
const fn refused(name: &'static str, keys: Keys) -> Command {
    Command {
        name,
        arity: -1,
        flags: WRITE,
        keys,
        group: "write",
        summary: "Not supported.",
        run: Run::Refused,
    }
}

const PAIRS: Keys = Keys {
    first: 1,
    last: -1,
    step: 2,
};
const DEL: Run = Run::Many {
    run: put::del,
    done: put::del_done,
    reads: true,
};
const MSET: Run = Run::Many {
    run: put::mset,
    done: put::mset_done,
    reads: false,
};

// One command per line.
#[rustfmt::skip]
/// All known commands. A command's place in it is its number in the metrics.
pub static COMMANDS: &[Command] = &[
    read("get", 2, ONE, "string", "The value of a key; rows and lists as JSON.", get::get),
    read("mget", -2, ALL, "string", "The values of several keys.", get::mget),
    read("kv.getv", 2, ONE, "string", "A key's version, and its value.", compare::getv),
    read("exists", -2, ALL, "keyspace", "How many of the keys are there.", string::exists),
    read("touch", -2, ALL, "keyspace", "How many of the keys are there.", string::exists),
    read("strlen", 2, ONE, "string", "The length of what GET gives.", string::strlen),
    read("getrange", 4, ONE, "string", "A part of what GET gives.", string::getrange),
    read("substr", 4, ONE, "string", "A part of what GET gives.", string::getrange),
    read("getbit", 3, ONE, "bitmap", "A bit of what GET gives.", bits::getbit),
    read("bitcount", -2, ONE, "bitmap", "The bits that are set in what GET gives.", bits::bitcount),
    read("bitpos", -3, ONE, "bitmap", "The first bit that is set, or not, in what GET gives.", bits::bitpos),
    read("type", 2, ONE, "keyspace", "string, hash (a row), list or none.", keyspace::type_of),
    read("ttl", 2, ONE, "keyspace", "Seconds to live; -1: no end, -2: no key.", expire::ttl),
    read("pttl", 2, ONE, "keyspace", "Milliseconds to live; -1 and -2 as TTL.", expire::pttl),
    read("expiretime", 2, ONE, "keyspace", "When a key expires, or -1, -2.", expire::expiretime),
    read("pexpiretime", 2, ONE, "keyspace", "The same in milliseconds.", expire::pexpiretime),
    read("object", -2, SECOND, "keyspace", "ENCODING, REFCOUNT, IDLETIME.", keyspace::object),
    read("memory", -2, SECOND, "keyspace", "USAGE of a key; STATS.", tune::memory),
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
    read("lpos", -3, ONE, "list", "Where an item is in a list.", list::lpos),
    read("dbsize", 1, NONE, "keyspace", "The keys of all tables.", keyspace::dbsize),
    walk("scan", -2, "Walks all tables, a few keys at a time.", scan::scan),
    walk("randomkey", 1, "Some key.", keyspace::randomkey),
    walk("keys", 2, "The keys that match a pattern, of small tables.", keyspace::keys),
    walk("kv.range", -3, "The keys of an ordered table between two bounds.", range::range),
    read("ping", -1, NONE, "connection", "PONG.", connection::ping),
    read("echo", 2, NONE, "connection", "Gives its argument back.", connection::echo),
    session("hello", -1, BEFORE_AUTH, "connection", "Chooses RESP2 or 3.", connection::hello),
    session("auth", -2, BEFORE_AUTH, "connection", "Says who the client is.", connection::auth),
    session("quit", -1, BEFORE_AUTH, "connection", "Ends the connection.", connection::quit),
    session("reset", 1, STATE, "connection", "Resets the session.", connection::reset),
    session("select", 2, STATE, "connection", "There is only database 0.", connection::select),
    session("client", -2, STATE, "connection", "About connections.", clients::client),
    session("acl", -2, STATE, "connection", "WHOAMI, CAT, LIST, USERS, GETUSER.", acl::acl),
    session("readonly", 1, STATE, "connection", "OK in a cluster, where any node reads what it has.", cluster::mode),
    session("readwrite", 1, STATE, "connection", "OK in a cluster, where any node reads what it has.", cluster::mode),
    session("asking", 1, STATE, "connection", "OK in a cluster, where no key is ever on its way.", cluster::mode),
    session("multi", 1, STATE, "transactions", "Begins a transaction.", transaction::multi),
    session("exec", 1, STATE, "transactions", "Runs it.", transaction::exec),
    session("discard", 1, STATE, "transactions", "Forgets it.", transaction::discard),
    Command {
        keys: ALL,
        ..session("watch", -2, STATE, "transactions", "Has EXEC run nothing once a key was changed.", watch::watch)
    },
    session("unwatch", 1, STATE, "transactions", "Forgets what is watched.", watch::unwatch),
    session("cluster", -2, STATE, "cluster", "Who holds which slots.", cluster::cluster),
    session("command", -1, STATE, "server", "About the commands.", introspect::command),
    session("info", -1, STATE, "server", "About the server.", introspect::info),
    session("config", -2, STATE, "server", "GET, SET of some, RESETSTAT.", tune::config),
    session("time", 1, STATE, "server", "The server's clock.", introspect::time),
    session("role", 1, STATE, "server", "master.", introspect::role),
    session("wait", 3, STATE, "connection", "There are no replicas: 0.", connection::wait),
    session("slowlog", -2, STATE, "server", "The commands that took long.", tune::slowlog),
    session("latency", -2, STATE, "server", "HISTOGRAM: what commands took.", tune::latency),
    session("kv.map", 2, STATE, "cluster", "The ranges of a table, and who has them.", cluster::map),
    session("kv.version", 2, STATE, "server", "The version of a table that serves here.", cluster::version),
    session("kv.schema", 2, STATE, "server", "What the values of a table are, as JSON.", introspect::schema),
    session("module", -2, STATE, "server", "LIST: none.", introspect::module),
    edit("set", -3, "string", "Sets a value.", (put::set, put::set_reads)),
    edit("setnx", 3, "string", "Sets a value if the key is absent.", (put::setnx, always)),
    edit("setex", 4, "string", "Sets a value and its seconds to live.", (put::setex, never)),
    edit("psetex", 4, "string", "Sets a value and its milliseconds to live.", (put::psetex, never)),
    edit("getex", -2, "string", "Gives a value and changes when it expires.", (expire::getex, always)),
    edit("expire", -3, "keyspace", "Sets a key's seconds to live.", (expire::expire, always)),
    edit("pexpire", -3, "keyspace", "Sets a key's milliseconds to live.", (expire::pexpire, always)),
    edit("expireat", -3, "keyspace", "Sets when a key expires, in seconds.", (expire::expireat, always)),
    edit("pexpireat", -3, "keyspace", "Sets when a key expires, in milliseconds.", (expire::pexpireat, always)),
    edit("persist", 2, "keyspace", "Lets a key stay for good.", (expire::persist, always)),
    edit("getset", 3, "string", "Sets a value, gives the old one.", (put::getset, always)),
    edit("getdel", 2, "string", "Gives a value and deletes the key.", (put::getdel, always)),
    edit("append", 3, "string", "Appends to a value.", (put::append, always)),
    edit("setrange", 4, "string", "Changes a part of a value.", (put::setrange, always)),
    edit("setbit", 4, "bitmap", "Changes a bit of a value.", (bits::setbit, always)),
    edit("kv.delta", 3, "string", "Adds by the table's kind of deltas, without reading.", (put::delta, never)),
    edit("kv.write", -3, "string", "Writes a record in the form in which it is stored, without reading.", (record::write, never)),
    edit("kv.setv", -4, "string", "Sets a value if the key's version is still this one.", (compare::setv, always)),
    edit("kv.delv", 3, "string", "Deletes a key if its version is still this one.", (compare::delv, always)),
    edit("incr", 2, "string", "Adds one; reads.", (count::incr, always)),
    edit("decr", 2, "string", "Subtracts one; reads.", (count::decr, always)),
    edit("incrby", 3, "string", "Adds an integer; reads.", (count::incrby, always)),
    edit("decrby", 3, "string", "Subtracts an integer; reads.", (count::decrby, always)),
    edit("incrbyfloat", 3, "string", "Adds a float; reads.", (count::incrbyfloat, always)),
    edit("hset", -4, "hash", "Sets columns of a row.", (hash_edit::hset, always)),
    edit("hmset", -4, "hash", "Sets columns of a row.", (hash_edit::hmset, always)),
    edit("hsetnx", 4, "hash", "Sets a column that is null.", (hash_edit::hsetnx, always)),
    edit("hdel", -3, "hash", "Makes columns of a row null.", (hash_edit::hdel, always)),
    edit("hincrby", 4, "hash", "Adds an integer to a column.", (hash_edit::hincrby, always)),
    edit("hincrbyfloat", 4, "hash", "Adds a float to a column.", (hash_edit::hincrbyfloat, always)),
    edit("rpush", -3, "list", "Adds items at the end.", (list_edit::rpush, always)),
    edit("lpush", -3, "list", "Adds items at the beginning.", (list_edit::lpush, always)),
    edit("rpushx", -3, "list", "Adds items to a list that is there.", (list_edit::rpushx, always)),
    edit("lpushx", -3, "list", "Adds items to a list that is there.", (list_edit::lpushx, always)),
    edit("rpop", -2, "list", "Takes items from the end.", (list_edit::rpop, always)),
    edit("lpop", -2, "list", "Takes items from the beginning.", (list_edit::lpop, always)),
    edit("lset", 4, "list", "Changes an item of a list.", (list_edit::lset, always)),
    edit("lrem", 4, "list", "Takes items out that are equal.", (list_edit::lrem, always)),
    edit("ltrim", 4, "list", "Keeps a part of a list.", (list_edit::ltrim, always)),
    edit("linsert", 5, "list", "Adds an item next to another.", (list_edit::linsert, always)),
    many("del", -2, ALL, "keyspace", "Deletes keys; how many there were.", DEL),
    many("unlink", -2, ALL, "keyspace", "Deletes keys; how many there were.", DEL),
    many("mset", -3, PAIRS, "string", "Sets several values.", MSET),
    together("msetnx", -3, PAIRS, "string", "Sets several values if none is there.", put::msetnx),
    together("bitop", -4, FROM_SECOND, "bitmap", "Stores what bits of several values make.", bits::bitop),
    together("lmove", 5, TWO, "list", "Moves an item to another list.", list_move::lmove),
    together("rpoplpush", 3, TWO, "list", "Moves the last item to the beginning of a list.", list_move::rpoplpush),
    together("rename", 3, TWO, "keyspace", "Gives a key another name.", rename::rename),
    together("renamenx", 3, TWO, "keyspace", "The same if the name is free.", rename::renamenx),
    together("copy", -3, TWO, "keyspace", "Copies a key.", rename::copy),
    Command {
        name: "flushdb", arity: -1, flags: WRITE, keys: NONE, group: "keyspace",
        summary: "Deletes the keys of a table.", run: Run::RangeDelete(range::flush),
    },
    Command {
        name: "kv.delrange", arity: -3, flags: WRITE, keys: NONE, group: "keyspace",
        summary: "Deletes the keys of an ordered table between two bounds.",
        run: Run::RangeDelete(range::delete_range),
    },
    refused("flushall", NONE),
    refused("restore", ONE),
    refused("sadd", ONE),
    refused("srem", ONE),
    refused("xadd", ONE),
    refused("zadd", ONE),
    refused("zincrby", ONE),
    refused("zrem", ONE),
];

/// For commands whose first argument is a subcommand.
const SECOND: Keys = Keys {
    first: 2,
    last: 2,
    step: 1,
};
