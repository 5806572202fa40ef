//! Commands about the connection: who it is, what it speaks.

use std::sync::Arc;

use super::call::{Call, SessionCall};
use super::{Answer, CommandError, shown};
use crate::session::Replies;
use crate::shared::REDIS_VERSION;

pub fn ping(call: &mut Call<'_>) -> Answer {
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.args.get(1)),
        _ => {
            return Err(CommandError::error(
                "ERR wrong number of arguments for 'ping' command",
            ));
        }
    }
    Ok(())
}

pub fn echo(call: &mut Call<'_>) -> Answer {
    call.reply.bulk(call.args.get(1));
    Ok(())
}

pub fn quit(call: &mut SessionCall<'_>) -> Answer {
    call.session.closing = true;
    call.reply.ok();
    Ok(())
}

pub fn reset(call: &mut SessionCall<'_>) -> Answer {
    call.session.reset(call.shared);
    call.reply.set_resp3(false);
    call.reply.simple("RESET");
    Ok(())
}

/// There is one database.
pub fn select(call: &mut SessionCall<'_>) -> Answer {
    match super::integer(call.args.get(1))? {
        0 => call.reply.ok(),
        _ => {
            return Err(CommandError::error(
                "ERR DB index is out of range: tables are named in the key, 'table:key'",
            ));
        }
    }
    Ok(())
}

/// AUTH [user] password.
pub fn auth(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    if args.len() > 3 {
        return Err(CommandError::syntax());
    }
    let (user, password) = match args.len() {
        2 => (&b"default"[..], args.get(1)),
        _ => (args.get(1), args.get(2)),
    };
    log_in(call, user, password)?;
    call.reply.ok();
    Ok(())
}

fn log_in(call: &mut SessionCall<'_>, user: &[u8], password: &[u8]) -> Answer {
    let secrets = call.shared.secrets.load();
    let Some(users) = &secrets.users else {
        return Err(CommandError::error(
            "ERR AUTH called without any password configured: this server has no users file",
        ));
    };
    match users.authenticate(user, password) {
        Some(user) => {
            call.session.log_in(user);
            Ok(())
        }
        None => {
            call.session.note_wrong_password(call.shared, user);
            Err(CommandError::error(
                "WRONGPASS invalid username-password pair or user is disabled.",
            ))
        }
    }
}

/// HELLO [2|3 [AUTH user password] [SETNAME name]]: all of it or nothing.
pub fn hello(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    let resp3 = match args.get(1) {
        b"" if args.len() == 1 => call.reply.is_resp3(),
        b"2" => false,
        b"3" => true,
        _ => return Err(CommandError::error("NOPROTO unsupported protocol version")),
    };
    let (mut credentials, mut name, mut at) = (None, None, 2);
    while at < args.len() {
        if args.is(at, "auth") && at + 2 < args.len() {
            credentials = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && at + 1 < args.len() {
            name = Some(client_text(args.get(at + 1), "client names")?);
            at += 2;
        } else {
            let option = shown(args.get(at));
            return Err(CommandError::error(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if let Some((user, password)) = credentials {
        log_in(call, user, password)?;
    }
    if call.session.user.is_none() {
        return Err(CommandError::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ));
    }
    let mut details = call.session.client.details.lock();
    details.resp3 = resp3;
    if let Some(name) = name {
        details.name = name;
    }
    drop(details);
    call.reply.set_resp3(resp3);
    greet(call);
    Ok(())
}

fn greet(call: &mut SessionCall<'_>) {
    let reply = &mut *call.reply;
    reply.map(7);
    for (name, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if reply.is_resp3() { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(call.session.client.id as i64);
    for (name, text) in [("mode", "cluster"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// A name that a client gives itself: visible ASCII, and not long.
fn client_text(text: &[u8], what: &str) -> Result<String, CommandError> {
    if text.len() > 256 || !text.iter().all(u8::is_ascii_graphic) {
        return Err(CommandError::error(format!(
            "ERR {what} cannot contain spaces, newlines or special characters, nor more than 256 bytes"
        )));
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

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
        (b"reply", 3) => return reply_mode(call),
        (b"help", 2) => help(call),
        _ => return Err(CommandError::unknown_subcommand("CLIENT", args.get(1))),
    }
    Ok(())
}

/// CLIENT LIST [TYPE normal] [ID id ...]. A client sees its own connection; where there are no
/// users, all.
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
    let all = !call.shared.has_users();
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
        "CLIENT ID | INFO | LIST | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text",
        "CLIENT REPLY ON|OFF|SKIP | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | TRACKING OFF | GETREDIR",
    ];
    call.reply.array(lines.len());
    lines
        .iter()
        .for_each(|line| call.reply.bulk(line.as_bytes()));
}

/// READONLY, READWRITE, ASKING: every connection reads, whatever it says.
pub fn accept(call: &mut SessionCall<'_>) -> Answer {
    call.reply.ok();
    Ok(())
}

/// ACL WHOAMI.
pub fn acl(call: &mut SessionCall<'_>) -> Answer {
    if !call.args.is(1, "whoami") || call.args.len() != 2 {
        return Err(CommandError::error(
            "ERR ACL here knows only WHOAMI: users are in the server's users file",
        ));
    }
    let name = call
        .session
        .user
        .as_ref()
        .map_or("", |user| user.name())
        .to_owned();
    call.reply.bulk(name.as_bytes());
    Ok(())
}
