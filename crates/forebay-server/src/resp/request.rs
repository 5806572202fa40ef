//! Commands from the bytes of a connection.
//!
//! The parser is given all bytes from the start of a command on, as often as more of them have
//! arrived, and goes on where it stopped. Arguments stay where they are in the caller's buffer;
//! only those of an inline line are copied, for they may be quoted. Nothing is allocated ahead of
//! the bytes: an announced length is a limit to check, never a size to reserve.

use thiserror::Error;

use super::args::{Args, Span};

/// The most digits and sign of a count or a length.
const MAX_NUMBER_BYTES: usize = 11;
/// The longest inline line.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// What a connection may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Of one argument.
    pub bulk_bytes: usize,
    pub arguments: usize,
    /// Of one command with all its arguments.
    pub command_bytes: usize,
}

impl RequestLimits {
    /// Enough for AUTH and HELLO. With one read's worth of input behind it, a connection that has
    /// not said who it is holds less than 64 KiB.
    pub const BEFORE_AUTH: Self = Self {
        bulk_bytes: 16 << 10,
        arguments: 16,
        command_bytes: 32 << 10,
    };
}

/// Why a connection cannot go on: what follows in its stream cannot be told apart any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length, at most {limit} arguments are allowed")]
    ArgumentCount { limit: usize },
    #[error("Protocol error: invalid bulk length, a value or argument has at most {limit} bytes")]
    BulkLength { limit: usize },
    #[error("Protocol error: the command is longer than {limit} bytes")]
    CommandLength { limit: usize },
    #[error("Protocol error: too big inline request")]
    InlineLength,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("Protocol error: expected '$', got '{got}'")]
    NoBulk { got: char },
    #[error("Protocol error: expected a number and CR LF")]
    Number,
    #[error("Protocol error: expected CR LF after an argument")]
    NoLineEnd,
    #[error("Protocol error: this is no HTTP port")]
    Http,
}

impl ProtocolError {
    /// Whether all that is wrong is that the command, or an argument of it, is too long.
    pub fn is_length(&self) -> bool {
        matches!(self, Self::BulkLength { .. } | Self::CommandLength { .. })
    }
}

/// Reads one command after another.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The arguments of an inline line, unquoted.
    inline: Vec<u8>,
    is_inline: bool,
    /// Where to go on, from the start of the command.
    at: usize,
    /// Arguments yet to come; `None` before the count is known.
    missing: Option<usize>,
    complete: bool,
}

type ParsedCommand<T> = Result<Option<T>, ProtocolError>;

impl Parser {
    /// Goes on with the command that begins `bytes`. `Some(length)`: it is complete,
    /// [`Parser::args`] has it (an empty line or array has no arguments and is to be ignored), and
    /// the next call is for the bytes behind it. `None`: call again with more. After an error the
    /// connection is closed, but for what [`Parser::read_until`] gives.
    #[inline]
    pub fn advance(&mut self, bytes: &[u8], limits: &RequestLimits) -> ParsedCommand<usize> {
        if self.complete {
            self.restart();
        }
        match bytes.first() {
            None => Ok(None),
            Some(b'*') => self.array(bytes, limits),
            Some(_) => self.line(bytes, limits),
        }
    }

    /// The arguments of the command that was completed last; `bytes` as given then.
    #[inline]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args::new(
            if self.is_inline { &self.inline } else { bytes },
            &self.spans,
        )
    }

    /// After an error: how many bytes of the command are read, and how many of its arguments are
    /// not. None where its end cannot be found.
    pub fn read_until(&self, error: &ProtocolError) -> Option<(usize, usize)> {
        let missing = self.missing.filter(|_| error.is_length())?;
        Some((self.at, missing))
    }

    /// Forgets what was read of a command: the next bytes are from the start of one.
    pub fn restart(&mut self) {
        self.spans.clear();
        self.inline.clear();
        self.is_inline = false;
        self.at = 0;
        self.missing = None;
        self.complete = false;
        // A huge command is no reason to keep its table of arguments.
        if self.spans.capacity() > 1024 {
            self.spans.shrink_to(64);
        }
    }

    fn array(&mut self, bytes: &[u8], limits: &RequestLimits) -> ParsedCommand<usize> {
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => match self.count(bytes, limits)? {
                Some(count) => count,
                None => return Ok(None),
            },
        };
        while missing > 0 {
            let bulk = self.bulk(bytes, limits);
            if bulk != Ok(true) {
                self.missing = Some(missing);
                return bulk.map(|_| None);
            }
            missing -= 1;
        }
        self.complete = true;
        Ok(Some(self.at))
    }

    fn count(&mut self, bytes: &[u8], limits: &RequestLimits) -> ParsedCommand<usize> {
        let Some((count, at)) = number(bytes, 1)? else {
            return Ok(None);
        };
        let limit = limits.arguments;
        if count > limit as i64 {
            return Err(ProtocolError::ArgumentCount { limit });
        }
        self.at = at;
        Ok(Some(count.max(0) as usize))
    }

    /// Reads one `$length` and its bytes, when all of them are there.
    #[inline]
    fn bulk(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<bool, ProtocolError> {
        let Some(&kind) = bytes.get(self.at) else {
            return Ok(false);
        };
        if kind != b'$' {
            return Err(ProtocolError::NoBulk {
                got: char::from(kind),
            });
        }
        let Some((len, start)) = number(bytes, self.at + 1)? else {
            return Ok(false);
        };
        if len < 0 || len > limits.bulk_bytes as i64 {
            return Err(ProtocolError::BulkLength {
                limit: limits.bulk_bytes,
            });
        }
        let len = len as usize;
        // Both are far below the greatest usize: a start is a place in memory, a length is limited.
        let end = start + len;
        if end > limits.command_bytes {
            return Err(ProtocolError::CommandLength {
                limit: limits.command_bytes,
            });
        }
        match bytes.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoLineEnd),
        }
        self.spans.push(Span { start, len });
        self.at = end + 2;
        Ok(true)
    }

    /// An inline command: words up to the end of a line, as one types them into telnet.
    fn line(&mut self, bytes: &[u8], limits: &RequestLimits) -> ParsedCommand<usize> {
        let limit = MAX_INLINE_BYTES.min(limits.command_bytes);
        let Some(len) = bytes[self.at..].iter().position(|&byte| byte == b'\n') else {
            self.at = bytes.len();
            return if self.at > limit {
                Err(ProtocolError::InlineLength)
            } else {
                Ok(None)
            };
        };
        let end = self.at + len;
        if end > limit {
            return Err(ProtocolError::InlineLength);
        }
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.is_inline = true;
        self.words(line, limits)?;
        if self.speaks_http() {
            return Err(ProtocolError::Http);
        }
        self.complete = true;
        Ok(Some(end + 1))
    }

    fn words(&mut self, line: &[u8], limits: &RequestLimits) -> Result<(), ProtocolError> {
        let mut rest = line.trim_ascii();
        while !rest.is_empty() {
            if self.spans.len() == limits.arguments {
                return Err(ProtocolError::ArgumentCount {
                    limit: limits.arguments,
                });
            }
            let start = self.inline.len();
            let used = unquote(rest, &mut self.inline).ok_or(ProtocolError::Quotes)?;
            self.spans.push(Span {
                start,
                len: self.inline.len() - start,
            });
            rest = rest[used..].trim_ascii_start();
        }
        Ok(())
    }

    /// Whether a line is HTTP's: a browser was made to send it here. `GET key` is not.
    fn speaks_http(&self) -> bool {
        let args = Args::new(&self.inline, &self.spans);
        let last = args.get(args.len().saturating_sub(1));
        args.is(0, "POST") || args.is(0, "HOST:") || last.starts_with(b"HTTP/")
    }
}

/// The number that begins at `at` and ends with CR LF, and what follows that.
#[inline]
pub(super) fn number(bytes: &[u8], at: usize) -> ParsedCommand<(i64, usize)> {
    let negative = bytes.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let mut value = 0i64;
    for place in first.. {
        match bytes.get(place) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if place - at < MAX_NUMBER_BYTES => {
                value = value * 10 + i64::from(digit - b'0');
            }
            Some(b'\r') if place > first => {
                return match bytes.get(place + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((if negative { -value } else { value }, place + 2))),
                    Some(_) => Err(ProtocolError::Number),
                };
            }
            Some(_) => return Err(ProtocolError::Number),
        }
    }
    Err(ProtocolError::Number)
}

/// Copies the word that begins `text` to `out`, without its quotes; answers how much of the text it
/// took, `None` when a quote does not close or is followed by more. The rules are those of Redis:
/// `"..."` knows `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a`, `'...'` only `\'`.
fn unquote(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    let mut quote = None;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, _) if byte.is_ascii_whitespace() => return Some(at - 1),
            (Some(open), _) if byte == open => {
                let closed = text.get(at).is_none_or(u8::is_ascii_whitespace);
                return closed.then_some(at);
            }
            (Some(b'"'), b'\\') => at += escape(&text[at..], out)?,
            (Some(_), b'\\') if text.get(at) == Some(&b'\'') => {
                out.push(b'\'');
                at += 1;
            }
            _ => out.push(byte),
        }
    }
    quote.is_none().then_some(at)
}

/// What follows a backslash between double quotes.
fn escape(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let hex = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    if let [b'x', high, low, ..] = text
        && let (Some(high), Some(low)) = (hex(high), hex(low))
    {
        out.push(high << 4 | low);
        return Some(3);
    }
    out.push(match text.first()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    });
    Some(1)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
