//! Parses commands from the bytes of a connection.
//!
//! The parser gets all bytes from the start of a command, each time that more have arrived, and
//! continues where it stopped. Arguments stay in the caller's buffer. Only those of an inline line
//! are copied, because they may be quoted. Nothing is allocated before its bytes arrive: an
//! announced length is checked against a limit, and never reserved.

use thiserror::Error;

use super::args::{Args, Span};

/// The most digits and sign of a count or a length.
const MAX_NUMBER_BYTES: usize = 11;
/// The longest inline line.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// The limits of a connection's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The most bytes of one argument.
    pub bulk_bytes: usize,
    pub arguments: usize,
    /// The most bytes of one command with all its arguments.
    pub command_bytes: usize,
}

impl RequestLimits {
    /// Enough for AUTH and HELLO. With the input of one read in addition, an unauthenticated
    /// connection holds less than 64 KiB.
    pub const BEFORE_AUTH: Self = Self {
        bulk_bytes: 16 << 10,
        arguments: 16,
        command_bytes: 32 << 10,
    };
}

/// The reason why a connection must be closed: the next command in its stream cannot be found.
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
    /// Returns whether the only error is that the command, or an argument of it, is too long.
    pub fn is_length(&self) -> bool {
        matches!(self, Self::BulkLength { .. } | Self::CommandLength { .. })
    }
}

/// Parses one command after another.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The arguments of an inline line, unquoted.
    inline: Vec<u8>,
    is_inline: bool,
    /// Where to continue, from the start of the command.
    at: usize,
    /// Missing arguments; `None` before the count is known.
    missing: Option<usize>,
    complete: bool,
}

type ParsedCommand<T> = Result<Option<T>, ProtocolError>;

impl Parser {
    /// Continues with the command that begins `bytes`. `Some(length)`: it is complete, and
    /// [`Parser::args`] returns its arguments. An empty line or array has no arguments and is to be
    /// ignored. The next call is for the bytes after it. `None`: call again with more bytes. After
    /// an error the connection is closed, except for the cases of [`Parser::read_until`].
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

    /// Returns the arguments of the last complete command; `bytes` must be the same as for it.
    #[inline]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args::new(
            if self.is_inline { &self.inline } else { bytes },
            &self.spans,
        )
    }

    /// After an error, returns how many bytes of the command were parsed, and how many arguments
    /// were not. `None` if its end cannot be found.
    pub fn read_until(&self, error: &ProtocolError) -> Option<(usize, usize)> {
        let missing = self.missing.filter(|_| error.is_length())?;
        Some((self.at, missing))
    }

    /// Forgets a partial command: the next bytes begin a command.
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

    /// Reads one `$length` and its bytes if all of them have arrived.
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

    /// Parses an inline command: words up to the end of a line, as typed into telnet.
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

    /// Returns whether a line is HTTP, sent by a browser that a page abuses. `GET key` is not.
    fn speaks_http(&self) -> bool {
        let args = Args::new(&self.inline, &self.spans);
        let last = args.get(args.len().saturating_sub(1));
        args.is(0, "POST") || args.is(0, "HOST:") || last.starts_with(b"HTTP/")
    }
}

/// Parses the number that begins at `at` and ends with CR LF. Returns it with the position after
/// it.
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

/// Copies the word that begins `text` to `out`, without its quotes. Returns how much of the text it
/// took, `None` if a quote does not close or is followed by more. The rules are those of Redis:
/// `"..."` accepts `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a`, `'...'` only `\'`.
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

/// Parses the rest of an escape after its backslash between double quotes.
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
