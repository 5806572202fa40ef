//! The parser of the Redis protocol. Whatever the cuts between reads, the same commands come out.

use forebay_server::{Parser, RequestLimits};

const LIMITS: RequestLimits = RequestLimits {
    bulk_bytes: 1 << 16,
    arguments: 64,
    command_bytes: 1 << 18,
};

/// What a connection got out of its bytes: the commands, and the error that ended it.
type Commands = (Vec<Vec<Vec<u8>>>, Option<String>);

/// Parses the bytes whole and in small pieces.
pub fn check(data: &[u8]) {
    let whole = parse(data, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(parse(data, piece), whole, "cut into pieces of {piece}");
    }
}

fn parse(data: &[u8], piece: usize) -> Commands {
    let mut parser = Parser::default();
    let mut commands = Vec::new();
    let (mut start, mut end) = (0, piece.min(data.len()));
    loop {
        match parser.advance(&data[start..end], &LIMITS) {
            Ok(Some(used)) => {
                assert!(
                    used > 0 && used <= end - start,
                    "{used} of {} bytes",
                    end - start
                );
                commands.push(
                    parser
                        .args(&data[start..end])
                        .iter()
                        .map(<[u8]>::to_vec)
                        .collect(),
                );
                start += used;
            }
            Ok(None) if end == data.len() => return (commands, None),
            Ok(None) => end = end.saturating_add(piece).min(data.len()),
            Err(error) => return (commands, Some(error.to_string())),
        }
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    [
        "*1\r\n$4\r\nPING\r\n",
        "*2\r\n$3\r\nGET\r\n$8\r\npeople:1\r\n*3\r\n$4\r\nHGET\r\n$8\r\npeople:1\r\n$4\r\nname\r\n",
        "PING\r\nGET people:1\r\nECHO \"a \\x41 b\" 'it\\'s'\r\n\r\n",
        "*0\r\n*-1\r\n*1\r\n$0\r\n\r\n",
        "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
