//! CONFIG, SLOWLOG, LATENCY and MEMORY: server statistics, and the few settings that can change.

use crate::command::running::call::{Call, SessionCall};
use crate::command::{Answer, CommandError, integer, shown};
use crate::glob;
use crate::metrics::bucket_bound_us;
use crate::shared::Shared;
use crate::slow_log::SlowEntry;
use crate::totals::Totals;

/// CONFIG GET pattern ... | SET name value ... | RESETSTAT.
pub fn config(call: &mut SessionCall<'_>) -> Answer {
    let sub = call.args.get(1).to_ascii_lowercase();
    match (&sub[..], call.args.len()) {
        (b"get", 3..) => get(call)?,
        (b"set", 4..) => {
            call.check_administers()?;
            set(call)?;
        }
        (b"resetstat", 2) => {
            call.check_administers()?;
            *call.shared.totals_before.lock() = Totals::of(&call.shared.metrics);
            call.reply.ok();
        }
        (b"rewrite", _) => {
            return Err(CommandError::error(
                "ERR The server is running without a config file: its flags are those that it was \
                 started with",
            ));
        }
        _ => return Err(CommandError::unknown_subcommand("CONFIG", call.args.get(1))),
    }
    Ok(())
}

fn get(call: &mut SessionCall<'_>) -> Answer {
    let patterns = call.args.skip(2);
    let wanted = |name: &str| {
        let matches = |p: &[u8]| glob::matches(&p.to_ascii_lowercase(), name.as_bytes());
        patterns.iter().any(matches)
    };
    let settings: Vec<_> = settings(call.shared)
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .collect();
    call.reply.map(settings.len());
    for (name, value) in settings {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// Sets settings that can change while the server runs; all of them or none.
fn set(call: &mut SessionCall<'_>) -> Answer {
    let (args, log) = (call.args, &call.shared.slow_log);
    if !args.len().is_multiple_of(2) {
        let text = "ERR wrong number of arguments for 'config|set' command";
        return Err(CommandError::error(text));
    }
    let (mut slower_than_us, mut max_len) = (None, None);
    for at in (2..args.len()).step_by(2) {
        let value = integer(args.get(at + 1));
        if args.is(at, "slowlog-log-slower-than") {
            slower_than_us = Some(value.map_err(|_| not_set(args.get(at)))?);
        } else if args.is(at, "slowlog-max-len") {
            let len = value.ok().and_then(|len| u64::try_from(len).ok());
            max_len = Some(len.ok_or_else(|| not_set(args.get(at)))?);
        } else {
            let name = shown(args.get(at));
            return Err(CommandError::error(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}': here it sets \
                 slowlog-log-slower-than and slowlog-max-len, all else is given when the server starts"
            )));
        }
    }
    slower_than_us
        .into_iter()
        .for_each(|least| log.set_slower_than_us(least));
    max_len.into_iter().for_each(|len| log.set_max_len(len));
    call.reply.ok();
    Ok(())
}

fn not_set(name: &[u8]) -> CommandError {
    let name = shown(name).to_lowercase();
    CommandError::error(format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - argument couldn't be parsed \
         into an integer"
    ))
}

/// Returns the settings of Redis that apply to Forebay, or that clients always ask for.
fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let limits = &shared.config.limits;
    let idle = limits.idle_time.map_or(0, |time| time.as_secs());
    vec![
        ("appendonly", "no".to_owned()),
        ("bind", shared.resp_address.ip().to_string()),
        ("cluster-enabled", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("io-threads", shared.metrics.workers().len().to_string()),
        ("maxclients", shared.max_connections().to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", shared.resp_address.port().to_string()),
        ("proto-max-bulk-len", limits.request.bulk_bytes.to_string()),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            shared.slow_log.slower_than_us().to_string(),
        ),
        ("slowlog-max-len", shared.slow_log.max_len().to_string()),
        ("timeout", idle.to_string()),
    ]
}

/// SLOWLOG GET [count] | LEN | RESET. A user sees its own commands, an administrator all.
pub fn slowlog(call: &mut SessionCall<'_>) -> Answer {
    let log = &call.shared.slow_log;
    let user = call.session.user.as_ref().map_or("", |user| user.name());
    let all = call.administers();
    let may_see = |entry: &SlowEntry| all || entry.user == user;
    let sub = call.args.get(1).to_ascii_lowercase();
    match (&sub[..], call.args.len()) {
        (b"get", 2 | 3) => {
            let count = match call.args.len() {
                2 => Ok(10),
                _ => integer(call.args.get(2)),
            };
            let count = count.ok().filter(|count| *count >= -1).ok_or_else(|| {
                CommandError::error("ERR count should be greater than or equal to -1")
            })?;
            let mut entries = log.entries(may_see);
            entries.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            call.reply.array(entries.len());
            entries.iter().for_each(|entry| notify(call, entry));
        }
        (b"len", 2) => call.reply.count(log.entries(may_see).len()),
        (b"reset", 2) => {
            call.check_administers()?;
            log.reset();
            call.reply.ok();
        }
        (b"help", 2) => {
            call.reply.array(1);
            call.reply.bulk(b"SLOWLOG GET [count] | LEN | RESET");
        }
        _ => {
            return Err(CommandError::unknown_subcommand(
                "SLOWLOG",
                call.args.get(1),
            ));
        }
    }
    Ok(())
}

fn notify(call: &mut SessionCall<'_>, entry: &SlowEntry) {
    let (reply, us) = (&mut *call.reply, entry.time.as_micros());
    reply.array(6);
    reply.int(entry.id as i64);
    reply.int(entry.unix_s as i64);
    reply.int(i64::try_from(us).unwrap_or(i64::MAX));
    reply.array(entry.args.len());
    entry.args.iter().for_each(|arg| reply.bulk(arg));
    reply.bulk(entry.address.to_string().as_bytes());
    reply.bulk(entry.client_name.as_bytes());
}

/// LATENCY HISTOGRAM [command ...] | LATEST | HISTORY event | RESET: no events are kept.
pub fn latency(call: &mut SessionCall<'_>) -> Answer {
    let sub = call.args.get(1).to_ascii_lowercase();
    match (&sub[..], call.args.len()) {
        (b"histogram", _) => histograms(call),
        (b"latest", 2) | (b"history", 3) => call.reply.array(0),
        (b"reset", _) => call.reply.int(0),
        (b"doctor", 2) => call.reply.verbatim(
            "No events are kept: LATENCY HISTOGRAM has what commands took, SLOWLOG GET the slow ones.",
        ),
        _ => return Err(CommandError::unknown_subcommand("LATENCY", call.args.get(1))),
    }
    Ok(())
}

/// Replies with the number of calls by command, and the number up to each latency in microseconds.
fn histograms(call: &mut SessionCall<'_>) {
    let (wanted, mut latencies) = (call.args.skip(2), call.shared.totals().latencies);
    let named = |name: &str| {
        wanted
            .iter()
            .any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()))
    };
    latencies.retain(|name, _| wanted.is_empty() || named(name));
    let reply = &mut *call.reply;
    reply.map(latencies.len());
    for (name, sum) in latencies {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(sum.count() as i64);
        reply.bulk(b"histogram_usec");
        let used = |(bucket, count): (usize, &u64)| (*count > 0).then_some((bucket, *count));
        let used: Vec<_> = sum.buckets.iter().enumerate().filter_map(used).collect();
        reply.map(used.len());
        let mut up_to = 0;
        for (bucket, count) in used {
            up_to += count;
            reply.int(bucket_bound_us(bucket).map_or(i64::MAX, |bound| bound as i64));
            reply.int(up_to as i64);
        }
    }
}

/// MEMORY USAGE key [SAMPLES n] | STATS | DOCTOR | PURGE.
pub fn memory(call: &mut Call<'_>) -> Answer {
    let sub = call.args.get(1).to_ascii_lowercase();
    match (&sub[..], call.args.len()) {
        (b"usage", 3 | 5) => return memory_usage(call),
        (b"usage", _) => return Err(CommandError::syntax()),
        (b"stats", 2) => memory_stats(call),
        (b"doctor", 2) => call.reply.verbatim(
            "Nothing is amiss that is known here: MEMORY STATS and INFO memory have the figures.",
        ),
        // The allocator manages free memory.
        (b"purge", 2) => call.reply.ok(),
        _ => return Err(CommandError::unknown_subcommand("MEMORY", call.args.get(1))),
    }
    Ok(())
}

/// Replies with the bytes of key and value.
fn memory_usage(call: &mut Call<'_>) -> Answer {
    if call.args.len() == 5 {
        let samples = integer(call.args.get(4))
            .ok()
            .filter(|samples| *samples >= 0);
        if !call.args.is(3, "samples") || samples.is_none() {
            return Err(CommandError::syntax());
        }
    }
    let wire = call.args.get(2);
    match call.fetch(wire)?.1 {
        Some(value) => call.reply.count(wire.len() + value.len()),
        None => call.reply.null(),
    }
    Ok(())
}

fn memory_stats(call: &mut Call<'_>) {
    let (own, mapped) = call.shared.resident_bytes();
    let live = call.shared.live.budget().used_bytes() as u64;
    let keys = call
        .scope()
        .readable()
        .into_iter()
        .map(|source| source.rows());
    let keys = keys.fold(0, u64::saturating_add);
    let figures = [
        ("total.allocated", own),
        ("dataset.bytes", live + mapped),
        ("keys.count", keys),
        (
            "keys.bytes-per-key",
            (live + mapped).checked_div(keys).unwrap_or(0),
        ),
        ("forebay.live.bytes", live),
        ("forebay.mapped.bytes", mapped),
    ];
    call.reply.map(figures.len());
    for (name, figure) in figures {
        call.reply.bulk(name.as_bytes());
        call.reply.int(i64::try_from(figure).unwrap_or(i64::MAX));
    }
}
