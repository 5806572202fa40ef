//! Names and ids of clusters, nodes, zones and requests, and network addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The maximum number of characters of an invalid name that an error message shows.
const SHOWN: usize = 80;

/// A random id that distinguishes a cluster from all others. It is drawn once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u64);

/// A node's number. The catalog assigns it when the node first joins, and never reuses it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// The name of a cluster. A catalog written by a program that did not check it may have other text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

/// The name of a node, unique in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// A failure domain, such as a rack or an availability zone. Replicas are placed in different
/// zones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(String);

/// An error for a text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name:?} is not a valid {what} name: use 1 to 64 of A-Z a-z 0-9 _ . - and begin with neither a \
     dot nor a hyphen"
)]
pub struct NodeNameError {
    what: &'static str,
    name: String,
}

/// A network address: a host name or an IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no address: write HOST:PORT, as in node-1.example:7379, 10.0.0.1:7379 or [::1]:7379"
)]
pub struct HostPortError {
    text: String,
}

fn checked(what: &'static str, name: &str) -> Result<String, NodeNameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with(['.', '-']);
    if fits {
        return Ok(name.to_owned());
    }
    let name = name.chars().take(SHOWN).collect();
    Err(NodeNameError { what, name })
}

/// Checks the name of a request as a client wrote it. Rollouts and plans bear the names of their
/// requests.
pub fn request_name(name: &str) -> Result<String, NodeNameError> {
    checked("rollout", name)
}

macro_rules! name {
    ($type:ident, $what:literal) => {
        impl $type {
            pub fn new(name: &str) -> Result<Self, NodeNameError> {
                checked($what, name).map(Self)
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NodeNameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NodeNameError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(ClusterName, "cluster");
name!(NodeName, "node");
name!(Zone, "zone");

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for ClusterId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClusterId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)?;
        Ok(Self(number))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl HostPort {
    pub fn new(host: &str, port: u16) -> Self {
        let host = host.to_owned();
        Self { host, port }
    }

    /// Returns the same host with another port.
    #[must_use]
    pub fn at(&self, port: u16) -> Self {
        Self::new(&self.host, port)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (&self.host, self.port);
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || HostPortError {
            text: text.to_owned(),
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or_else(wrong)?;
                inner.parse::<IpAddr>().map_err(|_| wrong())?;
                inner
            }
            None => host,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = !host.is_empty() && host.len() <= 253 && host.bytes().all(plain);
        let is_bracketed = text.starts_with('[');
        match is_name || is_bracketed {
            true => Ok(Self::new(host, port)),
            false => Err(wrong()),
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = HostPortError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_text_when_parsed() {
        for text in [
            "node-1.example:7379",
            "10.0.0.1:1",
            "[::1]:65535",
            "localhost:80",
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            ":7379",
            "host",
            "host:",
            "host:0",
            "host:70000",
            "::1:80",
            "[x]:80",
            "a b:1",
            "[::1:80",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(NodeName::new("node-1.a_B").unwrap().as_str(), "node-1.a_B");
        for name in [
            "",
            "-x",
            ".x",
            "a b",
            "a:b",
            "\u{1b}[31m",
            "a\n",
            &"x".repeat(65),
        ] {
            assert!(
                NodeName::new(name).is_err() && Zone::new(name).is_err(),
                "{name}"
            );
            assert!(ClusterName::new(name).is_err() && request_name(name).is_err());
        }
        let error = Zone::new(&"\u{1b}".repeat(100_000))
            .unwrap_err()
            .to_string();
        assert!(error.len() < 1000 && !error.contains('\u{1b}'), "{error}");
    }
}
