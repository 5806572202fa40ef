//! The commands that nodes send each other. Client ports do not accept them.
//!
//! A frame is a RESP command:
//!
//! ```text
//! fb.forward FORMAT CLUSTER REVISION NODE USER RESP VERSIONS COMMANDS
//! fb.control FORMAT MESSAGE
//! fb.fetch   FORMAT TABLE FILE START END
//! fb.groups  FORMAT MESSAGES
//! fb.copy    FORMAT MESSAGE
//! fb.ping    FORMAT
//! ```
//!
//! `fb.groups` carries messages of replicas; its answer has no content. `fb.copy` asks for a part
//! of a partition's copy. `fb.ping` checks that the node is up. The answer to each is a bulk string
//! or an error.
//!
//! `COMMANDS` are one or several commands as a client would send them. The answer has their replies
//! in order. If they grow large, it has fewer replies than commands, but always the first.
//!
//! `VERSIONS` are the versions that the commands read, as `table number table number ...`. Of other
//! tables, the serving versions are read. `REVISION` is the revision of the requester's map. `RESP`
//! is the protocol version that its client speaks.

use std::io::Write;

use bytes::Bytes;
use forebay_cluster::{ClusterId, NodeId};

use crate::resp::{Args, Reply};

/// The version of the frame format.
pub const FORMAT: &str = "1";

pub const FORWARD: &str = "fb.forward";
pub const CONTROL: &str = "fb.control";
pub const FETCH: &str = "fb.fetch";
pub const GROUPS: &str = "fb.groups";
pub const COPY: &str = "fb.copy";
pub const PING: &str = "fb.ping";

/// The error of a node that does not have the keys. The revision of its map and the reason follow.
pub const NOT_HERE: &str = "NOTHERE";
/// The error of a node that has the keys but cannot read them.
pub const DAMAGED: &str = "DAMAGED";

/// Returns an error without the codes that other nodes put before it, for a caller that adds its
/// own code.
pub fn reason(words: &str) -> &str {
    let mut reason = words;
    loop {
        let (code, rest) = reason.split_once(' ').unwrap_or((reason, ""));
        reason = match code {
            "TRYAGAIN" | "CLUSTERDOWN" => rest,
            // The revision of the node's map follows.
            NOT_HERE => rest.split_once(' ').map_or("", |(_, words)| words),
            _ => {
                return reason
                    .strip_prefix("nothing was written: ")
                    .unwrap_or(reason);
            }
        };
    }
}

/// The header of a forwarded command.
#[derive(Debug, Clone, Copy)]
pub struct ForwardHeader<'a> {
    pub cluster: ClusterId,
    pub revision: u64,
    pub node: NodeId,
    pub user: &'a str,
    pub resp3: bool,
    pub versions: &'a str,
}

impl<'a> ForwardHeader<'a> {
    pub fn frame(&self, commands: &[u8]) -> Bytes {
        let resp = if self.resp3 { "3" } else { "2" };
        frame(&[
            FORWARD.as_bytes(),
            FORMAT.as_bytes(),
            self.cluster.to_string().as_bytes(),
            self.revision.to_string().as_bytes(),
            self.node.to_string().as_bytes(),
            self.user.as_bytes(),
            resp.as_bytes(),
            self.versions.as_bytes(),
            commands,
        ])
    }

    /// Parses the header of a frame and returns it with the commands, or returns an error text.
    pub fn parse(args: &Args<'a>) -> Result<(Self, &'a [u8]), String> {
        check_format(args, 9)?;
        let text = |index: usize| {
            let text = std::str::from_utf8(args.get(index));
            text.map_err(|_| format!("argument {index} is no text"))
        };
        let number = |index: usize| {
            let number = text(index)?.parse::<u64>();
            number.map_err(|_| format!("argument {index} is no number"))
        };
        let cluster = u64::from_str_radix(text(2)?, 16).map_err(|_| "no cluster's id")?;
        let header = Self {
            cluster: ClusterId(cluster),
            revision: number(3)?,
            node: NodeId(u32::try_from(number(4)?).map_err(|_| "no node's number")?),
            user: text(5)?,
            resp3: args.get(6) == b"3",
            versions: text(7)?,
        };
        Ok((header, args.get(8)))
    }
}

/// Refuses a frame of another format.
pub fn check_format(args: &Args<'_>, arguments: usize) -> Result<(), String> {
    let name = String::from_utf8_lossy(args.get(0));
    if args.get(1) != FORMAT.as_bytes() {
        let format = String::from_utf8_lossy(args.get(1)).into_owned();
        return Err(format!(
            "{name} of format {format}: this node speaks format {FORMAT}; have all nodes run the same program"
        ));
    }
    match args.len() == arguments {
        true => Ok(()),
        false => Err(format!(
            "{name} has {} arguments, not {arguments}",
            args.len()
        )),
    }
}

/// Encodes a command as a frame.
pub fn frame(args: &[&[u8]]) -> Bytes {
    Bytes::from(command(args.iter().copied()))
}

/// Appends a GET of a table's key.
pub fn push_get(commands: &mut Vec<u8>, table: &[u8], key: &[u8]) {
    commands.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$");
    // Writing to a vector does not fail.
    let _ = write!(commands, "{}\r\n", table.len() + 1 + key.len());
    for part in [table, b":", key, b"\r\n"] {
        commands.extend_from_slice(part);
    }
}

/// Encodes a command that is joined with others.
pub fn command<'a>(args: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let mut out = Reply::new(false);
    out.array(args.clone().count());
    args.for_each(|arg| out.bulk(arg));
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn error_codes_of_other_nodes_are_removed() {
        let words = "the key is elsewhere";
        for reported in [
            "the key is elsewhere",
            "TRYAGAIN the key is elsewhere",
            "TRYAGAIN nothing was written: the key is elsewhere",
            "NOTHERE 7 the key is elsewhere",
            "CLUSTERDOWN NOTHERE 12 the key is elsewhere",
        ] {
            assert_eq!(reason(reported), words, "{reported}");
        }
        assert_eq!(reason("NOREPLICAS no majority"), "NOREPLICAS no majority");
        assert_eq!(reason("TRYAGAIN"), "");
    }
}
