//! ACL: lists the users and the commands of a category. Users change only with the users file.

use super::introspect::categories;
use crate::command::running::call::SessionCall;
use crate::command::{Answer, COMMANDS, CommandError, shown};
use crate::users::{User, Verb};

/// ACL WHOAMI | CAT [category] | LIST | USERS | GETUSER name.
pub fn acl(call: &mut SessionCall<'_>) -> Answer {
    let sub = call.args.get(1).to_ascii_lowercase();
    match (&sub[..], call.args.len()) {
        (b"whoami", 2) => {
            let user = call.session.user.as_ref();
            let name = user.map_or("", |user| user.name());
            call.reply.bulk(name.as_bytes());
        }
        (b"cat", 2 | 3) => cat(call)?,
        (b"list", 2) => {
            let open = !call.shared.has_users();
            let lines = each_user(call, |user| acl_line(user, open))?;
            reply_texts(call, &lines);
        }
        (b"users", 2) => {
            let names = each_user(call, |user| user.name().to_owned())?;
            reply_texts(call, &names);
        }
        (b"getuser", 3) => get_user(call)?,
        (b"help", 2) => reply_texts(
            call,
            &["ACL WHOAMI | CAT [category] | LIST | USERS | GETUSER name".to_owned()],
        ),
        (b"setuser" | b"deluser" | b"load" | b"save", _) => {
            return Err(CommandError::error(
                "ERR users are those of the users file that the server was started with: change it \
                 and send the server a SIGHUP",
            ));
        }
        _ => return Err(CommandError::unknown_subcommand("ACL", call.args.get(1))),
    }
    Ok(())
}

fn reply_texts(call: &mut SessionCall<'_>, texts: &[String]) {
    call.reply.array(texts.len());
    texts
        .iter()
        .for_each(|text| call.reply.bulk(text.as_bytes()));
}

/// Replies with a value for each user, which only an administrator may see.
fn each_user<T>(
    call: &SessionCall<'_>,
    reported: impl Fn(&User) -> T,
) -> Result<Vec<T>, CommandError> {
    call.check_administers()?;
    Ok(match &call.shared.secrets.load().users {
        Some(users) => users.iter().map(reported).collect(),
        None => vec![reported(&call.shared.anyone)],
    })
}

/// Returns a user's rights in Redis's syntax: its commands, and its key patterns.
fn rules(user: &User) -> (String, String) {
    let mut commands = "-@all +@connection".to_owned();
    for verb in user.verbs() {
        commands += match verb {
            Verb::Read => " +@read",
            Verb::Write => " +@write",
            Verb::Admin => " +@admin",
            Verb::Push => "",
        };
    }
    let pattern = |table: &String| match &table[..] {
        "*" => "~*".to_owned(),
        _ => format!("~{table}:*"),
    };
    let patterns: Vec<String> = user.tables().iter().map(pattern).collect();
    (commands, patterns.join(" "))
}

/// Formats a user's line of ACL LIST, without the password's hash.
fn acl_line(user: &User, open: bool) -> String {
    let (commands, patterns) = rules(user);
    let open = if open { " nopass" } else { "" };
    let name = user.name();
    format!("user {name} on{open} {patterns} resetchannels {commands}")
}

fn get_user(call: &mut SessionCall<'_>) -> Answer {
    let wanted = call.args.get(2);
    let found = each_user(call, |user| {
        let is_it = user.name().as_bytes() == wanted;
        is_it.then(|| rules(user))
    })?;
    let Some((commands, keys)) = found.into_iter().flatten().next() else {
        call.reply.null();
        return Ok(());
    };
    let reply = &mut *call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: &[&str] = if !call.shared.has_users() {
        &["on", "nopass"]
    } else {
        &["on"]
    };
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(0);
    for (name, text) in [
        ("commands", &commands),
        ("keys", &keys),
        ("channels", &String::new()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

/// ACL CAT [category]: the categories, or the commands of one.
fn cat(call: &mut SessionCall<'_>) -> Answer {
    let wanted = call.args.get(2).to_ascii_lowercase();
    let mut reported: Vec<&str> = Vec::new();
    for command in COMMANDS {
        let of_command = categories(command);
        if call.args.len() == 2 {
            reported.extend(of_command);
        } else if of_command.iter().any(|name| name.as_bytes() == wanted) {
            reported.push(command.name);
        }
    }
    if call.args.len() == 2 {
        reported.sort_unstable();
        reported.dedup();
    }
    if reported.is_empty() {
        let wanted = shown(call.args.get(2));
        return Err(CommandError::error(format!(
            "ERR Unknown category '{wanted}'"
        )));
    }
    call.reply.array(reported.len());
    reported
        .iter()
        .for_each(|name| call.reply.bulk(name.as_bytes()));
    Ok(())
}
