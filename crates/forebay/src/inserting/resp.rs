//! The client side of the Redis protocol: writes commands, parses answers.

/// A server's answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespAnswer {
    Simple(String),
    /// The error's code is first.
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<RespAnswer>),
}

/// The bytes are not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what it answers is not the Redis protocol")]
pub struct GarbledAnswer;

/// How deep answers may be nested.
const MOST_DEPTH: usize = 8;
/// The longest line and the longest string. The commands used have far shorter answers.
const MOST_LINE_BYTES: usize = 64 << 10;
const MOST_BULK_BYTES: usize = 64 << 20;

/// Appends a command.
pub fn push_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    push_length(out, b'*', args.len());
    for arg in args {
        push_length(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(length.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Parses the answer at the start of the bytes, and returns its length. `None`: it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Option<(RespAnswer, usize)>, GarbledAnswer> {
    let mut at = 0;
    let parsed = parse_at(bytes, &mut at, MOST_DEPTH)?;
    Ok(parsed.map(|answer| (answer, at)))
}

fn parse_at(
    bytes: &[u8],
    at: &mut usize,
    depth: usize,
) -> Result<Option<RespAnswer>, GarbledAnswer> {
    let Some(line) = line(bytes, at)? else {
        return Ok(None);
    };
    let (kind, words) = line.split_first().ok_or(GarbledAnswer)?;
    let text = || String::from_utf8_lossy(words).into_owned();
    Ok(Some(match kind {
        b'+' => RespAnswer::Simple(text()),
        b'-' => RespAnswer::Error(text()),
        b':' => RespAnswer::Int(number(words)?),
        b'$' => {
            let Ok(length) = usize::try_from(number(words)?) else {
                return Ok(Some(RespAnswer::Null));
            };
            if length > MOST_BULK_BYTES {
                return Err(GarbledAnswer);
            }
            let end = *at + length;
            match bytes.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(GarbledAnswer),
            }
            let bulk = bytes[*at..end].to_vec();
            *at = end + 2;
            RespAnswer::Bulk(bulk)
        }
        b'*' => {
            let Ok(count) = usize::try_from(number(words)?) else {
                return Ok(Some(RespAnswer::Null));
            };
            let depth = depth.checked_sub(1).ok_or(GarbledAnswer)?;
            let mut items = Vec::new();
            for _ in 0..count {
                match parse_at(bytes, at, depth)? {
                    None => return Ok(None),
                    Some(item) => items.push(item),
                }
            }
            RespAnswer::Array(items)
        }
        _ => return Err(GarbledAnswer),
    }))
}

/// Returns a line without its end. `None`: it is incomplete.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, GarbledAnswer> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
        return match rest.len() > MOST_LINE_BYTES {
            true => Err(GarbledAnswer),
            false => Ok(None),
        };
    };
    *at += length + 1;
    let line = rest[..length].strip_suffix(b"\r");
    line.map(Some).ok_or(GarbledAnswer)
}

fn number(text: &[u8]) -> Result<i64, GarbledAnswer> {
    let text = std::str::from_utf8(text).map_err(|_| GarbledAnswer)?;
    text.parse().map_err(|_| GarbledAnswer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_every_kind_are_read_once_they_are_complete() {
        let bulk = |text: &str| RespAnswer::Bulk(text.as_bytes().to_vec());
        let cases = [
            ("+OK\r\n", RespAnswer::Simple("OK".to_owned())),
            (
                "-MOVED 1 a:2\r\n",
                RespAnswer::Error("MOVED 1 a:2".to_owned()),
            ),
            (":-7\r\n", RespAnswer::Int(-7)),
            ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", RespAnswer::Null),
            ("*-1\r\n", RespAnswer::Null),
            ("*0\r\n", RespAnswer::Array(Vec::new())),
            (
                "*3\r\n$1\r\na\r\n$-1\r\n*1\r\n:5\r\n",
                RespAnswer::Array(vec![
                    bulk("a"),
                    RespAnswer::Null,
                    RespAnswer::Array(vec![RespAnswer::Int(5)]),
                ]),
            ),
        ];
        for (text, answer) in cases {
            for cut in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{text:?} {cut}");
            }
            let more = format!("{text}+next\r\n");
            assert_eq!(parse(more.as_bytes()), Ok(Some((answer, text.len()))));
        }
    }

    #[test]
    fn malformed_answers_are_refused() {
        let deep = "*1\r\n".repeat(20);
        for text in [
            "HTTP/1.1 400\r\n",
            "+OK\n",
            ":x\r\n",
            "$1\r\nab\r\n",
            "\r\n",
            &deep,
        ] {
            assert_eq!(parse(text.as_bytes()), Err(GarbledAnswer), "{text:?}");
        }
        assert_eq!(parse(&vec![b'+'; 70_000]), Err(GarbledAnswer));
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut out = Vec::new();
        push_command(&mut out, &[b"GET", b"t:\r\n"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$4\r\nt:\r\n\r\n");
        let parsed = parse(&out);
        let items = vec![
            RespAnswer::Bulk(b"GET".to_vec()),
            RespAnswer::Bulk(b"t:\r\n".to_vec()),
        ];
        assert_eq!(parsed, Ok(Some((RespAnswer::Array(items), out.len()))));
    }
}
