//! Commands about the connection: its user and its protocol.

use crate::command::running::call::{Call, SessionCall};
use crate::command::{Answer, CommandError, shown};
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
    match crate::command::integer(call.args.get(1))? {
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
    let mode = call.session.client.port.mode();
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
    for (name, text) in [("mode", mode), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Parses a name that a client gives itself: short visible ASCII.
pub fn client_text(text: &[u8], what: &str) -> Result<String, CommandError> {
    if text.len() > 256 || !text.iter().all(u8::is_ascii_graphic) {
        return Err(CommandError::error(format!(
            "ERR {what} cannot contain spaces, newlines or special characters, nor more than 256 bytes"
        )));
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// WAIT replicas ms: there are no replicas to wait for.
pub fn wait(call: &mut SessionCall<'_>) -> Answer {
    crate::command::integer(call.args.get(1))?;
    match crate::command::integer(call.args.get(2)) {
        Ok(0..) => call.reply.int(0),
        Ok(_) => return Err(CommandError::error("ERR timeout is negative")),
        Err(_) => {
            return Err(CommandError::error(
                "ERR timeout is not an integer or out of range",
            ));
        }
    }
    Ok(())
}
