//! CLIENT: what a connection reports of itself, and the list of connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::client_text;
use crate::client::Client;
use crate::command::running::call::SessionCall;
use crate::command::{Answer, CommandError, integer, shown};
use crate::session::Replies;

pub fn client(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    let sub = args.get(1).to_ascii_lowercase();
    let now = call.shared.now_ms();
    match (&sub[..], args.len()) {
        (b"id", 2) => call.reply.int(call.session.client.id as i64),
        (b"info", 2) => {
            let line = call.session.client.line(now) + "\n";
            call.reply.verbatim(&line);
        }
        (b"list", _) => list(call, now)?,
        (b"getname", 2) => {
            let name = call.session.client.details.lock().name.clone();
            if name.is_empty() {
                call.reply.null()
            } else {
                call.reply.bulk(name.as_bytes())
            }
        }
        (b"setname", 3) => {
            let name = client_text(args.get(2), "Client names")?;
            call.session.client.details.lock().name = name;
            call.reply.ok();
        }
        (b"setinfo", 4) => set_info(call)?,
        (b"no-evict" | b"no-touch", 3) => on_or_off(call)?,
        (b"tracking", 3..) => {
            if !args.is(2, "off") {
                return Err(CommandError::error(
                    "ERR client-side caching is not supported: a swap changes all keys at once",
                ));
            }
            call.reply.ok();
        }
        (b"getredir", 2) => call.reply.int(-1),
        (b"kill", 3..) => kill(call)?,
        (b"reply", 3) => return reply_mode(call),
        (b"help", 2) => help(call),
        _ => return Err(CommandError::unknown_subcommand("CLIENT", args.get(1))),
    }
    Ok(())
}

/// CLIENT LIST [TYPE normal] [ID id ...]. A client sees its own connection. An administrator sees
/// all, and so does every client if there are no users.
fn list(call: &mut SessionCall<'_>, now: u64) -> Answer {
    let args = call.args;
    let ids: Vec<&[u8]> = if args.is(2, "id") {
        args.skip(3).iter().collect()
    } else {
        Vec::new()
    };
    let none_of_type = args.is(2, "type") && !args.is(3, "normal");
    if args.len() > 2 && ids.is_empty() && !args.is(2, "type") {
        return Err(CommandError::syntax());
    }
    let all = call.administers();
    let mine = call.session.client.id;
    let clients: Vec<Arc<_>> = call.shared.clients.lock().values().cloned().collect();
    let mut text = String::new();
    for client in clients {
        let asked = ids.is_empty() || ids.contains(&client.id.to_string().as_bytes());
        if asked && !none_of_type && (all || client.id == mine) {
            text.push_str(&client.line(now));
            text.push('\n');
        }
    }
    call.reply.verbatim(&text);
    Ok(())
}

fn set_info(call: &mut SessionCall<'_>) -> Answer {
    let text = client_text(call.args.get(3), "lib-name and lib-ver")?;
    let mut details = call.session.client.details.lock();
    if call.args.is(2, "lib-name") {
        details.library = text;
    } else if call.args.is(2, "lib-ver") {
        details.library_version = text;
    } else {
        let option = shown(call.args.get(2));
        return Err(CommandError::error(format!(
            "ERR Unrecognized option '{option}'"
        )));
    }
    drop(details);
    call.reply.ok();
    Ok(())
}

fn on_or_off(call: &mut SessionCall<'_>) -> Answer {
    if !call.args.is(2, "on") && !call.args.is(2, "off") {
        return Err(CommandError::syntax());
    }
    call.reply.ok();
    Ok(())
}

fn reply_mode(call: &mut SessionCall<'_>) -> Answer {
    if call.args.is(2, "on") {
        call.session.replies = Replies::On;
        call.reply.ok();
    } else if call.args.is(2, "off") {
        call.session.replies = Replies::Off;
    } else if call.args.is(2, "skip") {
        if call.session.replies == Replies::On {
            call.session.replies = Replies::SkipNext;
        }
    } else {
        return Err(CommandError::syntax());
    }
    Ok(())
}

fn help(call: &mut SessionCall<'_>) {
    let lines = [
        "CLIENT KILL address:port | ID id | ADDR address:port | LADDR address:port | USER name | TYPE type | SKIPME yes|no",
        "CLIENT ID | INFO | LIST | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text",
        "CLIENT REPLY ON|OFF|SKIP | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | TRACKING OFF | GETREDIR",
    ];
    call.reply.array(lines.len());
    lines
        .iter()
        .for_each(|line| call.reply.bulk(line.as_bytes()));
}

/// The filter of CLIENT KILL.
#[derive(Default)]
struct Doomed<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// Whether TYPE is a kind that no client of this server has.
    none: bool,
    with_own: bool,
}

impl<'a> Doomed<'a> {
    fn parse(call: &SessionCall<'a>) -> Result<Self, CommandError> {
        let (args, mut doomed) = (call.args, Self::default());
        for at in (2..args.len()).step_by(2) {
            let value = args.get(at + 1);
            if at + 1 == args.len() {
                return Err(CommandError::syntax());
            } else if args.is(at, "id") {
                let id = integer(value).ok().and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0);
                let wrong = || CommandError::error("ERR client-id should be greater than 0");
                doomed.id = Some(id.ok_or_else(wrong)?);
            } else if args.is(at, "addr") {
                doomed.address = Some(value);
            } else if args.is(at, "laddr") {
                doomed.local = Some(value);
            } else if args.is(at, "user") {
                doomed.user = Some(value);
            } else if args.is(at, "type") {
                doomed.none = !is_normal(value)?;
            } else if args.is(at, "skipme") && args.is(at + 1, "no") {
                doomed.with_own = true;
            } else if args.is(at, "skipme") && args.is(at + 1, "yes") {
                doomed.with_own = false;
            } else {
                return Err(CommandError::syntax());
            }
        }
        Ok(doomed)
    }

    fn is(&self, client: &Client, own: u64) -> bool {
        let same = |wanted: Option<&[u8]>, text: &dyn Fn() -> String| {
            wanted.is_none_or(|wanted| text().as_bytes() == wanted)
        };
        !self.none
            && (self.with_own || client.id != own)
            && self.id.is_none_or(|id| id == client.id)
            && same(self.address, &|| client.address.to_string())
            && same(self.local, &|| client.local.to_string())
            && same(self.user, &|| client.details.lock().user.clone())
    }
}

fn is_normal(kind: &[u8]) -> Result<bool, CommandError> {
    let kind = shown(kind).to_lowercase();
    match &kind[..] {
        "normal" => Ok(true),
        "master" | "replica" | "slave" | "pubsub" => Ok(false),
        _ => Err(CommandError::error(format!(
            "ERR Unknown client type '{kind}'"
        ))),
    }
}

/// CLIENT KILL address:port, or CLIENT KILL with filters, which replies with the number of ended
/// connections.
fn kill(call: &mut SessionCall<'_>) -> Answer {
    call.check_administers()?;
    let by_address = call.args.len() == 3;
    let doomed = match by_address {
        true => Doomed {
            address: Some(call.args.get(2)),
            with_own: true,
            ..Doomed::default()
        },
        false => Doomed::parse(call)?,
    };
    let (mut ended, own) = (0, call.session.client.id);
    for client in call.shared.clients.lock().values() {
        if !doomed.is(client, own) {
            continue;
        }
        ended += 1;
        match client.id == own {
            // The reply is sent first.
            true => call.session.closing = true,
            false => client.killed.store(true, Ordering::Relaxed),
        }
    }
    match (by_address, ended) {
        (true, 0) => return Err(CommandError::error("ERR No such client")),
        (true, _) => call.reply.ok(),
        (false, _) => call.reply.count(ended),
    }
    Ok(())
}
