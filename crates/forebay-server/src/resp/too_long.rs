//! Skips the rest of a command that was refused for its length.
//!
//! Lengths are announced, so the end is found without keeping the command. The reply is an error,
//! and the next command is parsed.

use super::request::{ProtocolError, number};

/// The most bytes that are read of one command.
const MOST_BYTES: usize = 512 << 20;

/// The rest of a refused command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongCommand {
    error: ProtocolError,
    /// Arguments that are not complete.
    arguments: usize,
    /// The rest of the current argument with its CR LF; 0 if a length is next.
    bytes: usize,
    /// How many more bytes may be read.
    left: usize,
}

impl LongCommand {
    /// Creates the rest of a command with `arguments` arguments, whose next byte begins one.
    pub fn new(error: ProtocolError, arguments: usize) -> Self {
        Self {
            error,
            arguments,
            bytes: 0,
            left: MOST_BYTES,
        }
    }

    /// Returns the reply to the command, once all of it is read.
    pub fn answer(&self) -> String {
        let what = match self.error {
            ProtocolError::CommandLength { limit } => format!("a command has at most {limit}"),
            ProtocolError::BulkLength { limit } => {
                format!("a value or argument has at most {limit}")
            }
            _ => return format!("ERR {}", self.error),
        };
        format!("ERR {what} bytes: this command was not carried out")
    }

    /// Skips the first bytes and returns how many. Returns an error if no end can be found: the
    /// connection is closed.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let mut at = 0;
        while self.arguments > 0 {
            if self.bytes == 0 {
                let Some((len, start)) = self.length(&bytes[at..])? else {
                    break;
                };
                at += start;
                self.bytes = len + 2;
            }
            let come = self.bytes.min(bytes.len() - at);
            at += come;
            self.bytes -= come;
            if self.bytes > 0 {
                break;
            }
            self.arguments -= 1;
        }
        Ok(at)
    }

    pub fn is_over(&self) -> bool {
        self.arguments == 0
    }

    fn length(&mut self, bytes: &[u8]) -> Result<Option<(usize, usize)>, ProtocolError> {
        match bytes.first() {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => {
                let got = char::from(other);
                return Err(ProtocolError::NoBulk { got });
            }
        }
        let Some((len, start)) = number(bytes, 1)? else {
            return Ok(None);
        };
        let len = usize::try_from(len).ok();
        let left = len.and_then(|len| self.left.checked_sub(len));
        match (len, left) {
            (Some(len), Some(left)) => {
                self.left = left;
                Ok(Some((len, start)))
            }
            _ => Err(self.error.clone()),
        }
    }
}
