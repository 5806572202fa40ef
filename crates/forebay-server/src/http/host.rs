//! Parses Host and Origin strictly: any other form than the standard's is invalid.

use std::net::{IpAddr, Ipv6Addr};

/// The host in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostName<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// Returns the host of `host`, `host:port`, `[v6]` or `[v6]:port`.
pub fn of_authority(authority: &str) -> Option<HostName<'_>> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return fits.then_some(HostName::Address(IpAddr::V6(address)));
    }
    let name = match authority.split_once(':') {
        Some((name, port)) => is_port(port).then_some(name)?,
        None => authority,
    };
    if let Ok(address @ IpAddr::V4(_)) = name.parse() {
        return Some(HostName::Address(address));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some(HostName::Name(name))
}

/// Returns the host of `http://host:port` with nothing after it.
pub fn of_origin(origin: &str) -> Option<HostName<'_>> {
    let schemes = ["http://", "https://"];
    let authority = schemes
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    of_authority(authority?)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        let address = |text: &str| Some(HostName::Address(text.parse().expect("an address")));
        for (authority, host) in [
            ("localhost", Some(HostName::Name("localhost"))),
            ("a-b.example:7380", Some(HostName::Name("a-b.example"))),
            ("127.0.0.1:1", address("127.0.0.1")),
            ("[::1]", address("::1")),
            ("[::1]:65535", address("::1")),
        ] {
            assert_eq!(of_authority(authority), host, "{authority}");
            assert_eq!(of_origin(&format!("http://{authority}")), host);
            assert_eq!(of_origin(&format!("https://{authority}")), host);
        }
    }

    #[test]
    fn malformed_hosts_are_refused() {
        for authority in [
            "",
            ":80",
            "localhost:",
            "localhost:evil",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "localhost:80@evil.example",
            "user@localhost",
            "localhost/x",
            "localhost ",
            "localhost,evil.example",
            "::1",
            "[::1",
            "[::1]evil.example",
            "[::1]:",
            "[localhost]",
            "[127.0.0.1]",
        ] {
            assert_eq!(of_authority(authority), None, "{authority}");
            assert_eq!(of_origin(&format!("http://{authority}")), None);
        }
        for origin in [
            "null",
            "localhost",
            "file://localhost",
            "http://localhost/",
            "://localhost",
        ] {
            assert_eq!(of_origin(origin), None, "{origin}");
        }
    }
}
