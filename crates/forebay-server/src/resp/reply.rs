//! Writes replies in RESP2 or RESP3.
//!
//! RESP2 has no maps, sets, booleans or nulls of their own. Maps and sets become arrays, booleans
//! become 1 and 0. A null is the null bulk string (or the null array, where Redis sends that).

use std::io::Write;

use crate::reply_memory::Charge;

/// Buffers of at least this size are large.
const LARGE: usize = 4 << 20;

/// The unsent replies of a connection.
#[derive(Debug, Default)]
pub struct Reply {
    out: Vec<u8>,
    /// The charge for the memory of `out`, if it is counted.
    charge: Option<Charge>,
    resp3: bool,
    /// A buffer for texts whose length is not known before they are written.
    scratch: Vec<u8>,
}

impl Reply {
    pub fn new(resp3: bool) -> Self {
        Self {
            resp3,
            ..Self::default()
        }
    }

    /// Creates a buffer with this capacity.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            out: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Creates a buffer whose memory is counted.
    pub fn charged(resp3: bool, charge: Charge) -> Self {
        Self {
            charge: Some(charge),
            ..Self::new(resp3)
        }
    }

    /// Returns whether the connection was dropped for its memory, so that the reply is discarded.
    pub fn is_dropped(&self) -> bool {
        self.charge.as_ref().is_some_and(Charge::is_dropped)
    }

    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Removes everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// Replaces each of these replies by an error. REQUIRES: the ranges are ascending.
    pub fn replace(&mut self, replies: &[std::ops::Range<usize>], error: &str) {
        let old = std::mem::take(&mut self.out);
        let mut kept = 0;
        for reply in replies {
            self.out.extend_from_slice(&old[kept..reply.start]);
            self.error(error);
            kept = reply.end;
        }
        self.out.extend_from_slice(&old[kept..]);
    }

    /// Appends replies that were written elsewhere, in the same protocol.
    pub fn append(&mut self, replies: &[u8]) {
        self.make_room(replies.len());
        self.out.extend_from_slice(replies);
        self.account();
    }

    /// Appends replies, without a copy if the buffer is empty.
    pub fn append_all(&mut self, mut replies: Reply) {
        if !self.out.is_empty() {
            return self.append(&replies.out);
        }
        std::mem::swap(&mut self.out, &mut replies.out);
        replies.account();
        self.account();
    }

    /// Clears sent replies, and frees memory beyond `keep_bytes`, or all if memory is scarce.
    pub fn clear(&mut self, keep_bytes: usize) {
        let scarce = self.charge.as_ref().is_some_and(Charge::is_scarce);
        let keep_bytes = if scarce { 0 } else { keep_bytes };
        self.out.clear();
        for buffer in [&mut self.out, &mut self.scratch] {
            if buffer.capacity() > keep_bytes {
                buffer.clear();
                buffer.shrink_to(keep_bytes);
            }
        }
        self.account();
    }

    /// Reserves room for a large value. Large buffers grow by little, small ones double.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        let capacity = self.out.capacity();
        if bytes <= capacity - self.out.len() {
            return;
        }
        if capacity < LARGE {
            self.out.reserve(bytes);
        } else {
            self.out.reserve_exact(bytes.max(capacity / 4));
        }
    }

    /// Counts the memory if it has changed.
    #[inline]
    fn account(&mut self) {
        if let Some(charge) = &mut self.charge
            && charge.bytes() != self.out.capacity()
        {
            charge.set(self.out.capacity());
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// Writes a simple string. REQUIRES: `text` has no line end.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// Writes an error; its first word is the code. Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let plain = |byte: u8| {
            if byte == b'\r' || byte == b'\n' {
                b' '
            } else {
                byte
            }
        };
        self.out.extend(text.bytes().map(plain));
        self.end_line();
    }

    pub fn int(&mut self, value: i64) {
        self.header_signed(b':', value);
    }

    pub fn count(&mut self, value: usize) {
        self.header(b':', value);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len() + 16);
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    /// Writes the bulk string that `write` produces, or a null if it returns `false`.
    pub fn bulk_by<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let written = write(&mut text);
        match written {
            Ok(true) => self.bulk(&text),
            Ok(false) => self.null(),
            Err(_) => {}
        }
        self.scratch = text;
        written.map(|_| ())
    }

    /// Writes two bulk strings, `name` and the output of `write`, or nothing if `write` returns
    /// `false`. Returns whether it wrote them.
    pub fn pair_by<E>(
        &mut self,
        name: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let written = write(&mut text);
        if let Ok(true) = written {
            self.bulk(name);
            self.bulk(&text);
        }
        self.scratch = text;
        written
    }

    /// Writes a text for people as it is.
    pub fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            self.header(b'=', text.len() + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.end_line();
        } else {
            self.bulk(text.as_bytes());
        }
    }

    #[inline]
    pub fn null(&mut self) {
        self.out
            .extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
        self.account();
    }

    pub fn null_array(&mut self) {
        self.out
            .extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub fn boolean(&mut self, value: bool) {
        match (self.resp3, value) {
            (true, true) => self.out.extend_from_slice(b"#t\r\n"),
            (true, false) => self.out.extend_from_slice(b"#f\r\n"),
            (false, _) => self.int(i64::from(value)),
        }
    }

    pub fn double(&mut self, value: f64) {
        let text = match value {
            _ if value.is_nan() => "nan".to_owned(),
            f64::INFINITY => "inf".to_owned(),
            f64::NEG_INFINITY => "-inf".to_owned(),
            _ => format!("{value}"),
        };
        if self.resp3 {
            self.line(b',', &text)
        } else {
            self.bulk(text.as_bytes())
        }
    }

    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Begins a map of `len` pairs.
    pub fn map(&mut self, len: usize) {
        if self.resp3 {
            self.header(b'%', len)
        } else {
            self.header(b'*', len * 2)
        }
    }

    /// Begins a set of `len` different members.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, len);
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    fn header_signed(&mut self, kind: u8, value: i64) {
        // Writing to a vector does not fail.
        let _ = write!(self.out, "{}{value}\r\n", char::from(kind));
    }

    #[inline]
    fn header(&mut self, kind: u8, mut value: usize) {
        let mut text = [0u8; 24];
        let mut at = text.len() - 2;
        text[at..].copy_from_slice(b"\r\n");
        loop {
            at -= 1;
            text[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        at -= 1;
        text[at] = kind;
        self.out.extend_from_slice(&text[at..]);
        self.account();
    }

    #[inline]
    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
        self.account();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl Fn(&mut Reply)) -> String {
        let mut reply = Reply::new(resp3);
        write(&mut reply);
        String::from_utf8(reply.into_bytes()).expect("text")
    }

    #[test]
    fn both_protocols_encode_each_reply() {
        type Write = fn(&mut Reply);
        let cases: [(Write, &str, &str); 14] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.int(-5), ":-5\r\n", ":-5\r\n"),
            (
                |r| r.count(usize::MAX),
                ":18446744073709551615\r\n",
                ":18446744073709551615\r\n",
            ),
            (|r| r.bulk(b"ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (
                |r| r.double(f64::NEG_INFINITY),
                "$4\r\n-inf\r\n",
                ",-inf\r\n",
            ),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.array(10), "*10\r\n", "*10\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(0), "*0\r\n", "~0\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(false, write), resp2);
            assert_eq!(written(true, write), resp3);
        }
    }

    #[test]
    fn replies_can_become_errors() {
        let mut reply = Reply::new(false);
        reply.bulk(b"read");
        let mut writes = Vec::new();
        for _ in 0..2 {
            let start = reply.len();
            reply.ok();
            writes.push(start..reply.len());
            reply.int(5);
        }
        reply.replace(&writes, "MISCONF lost");
        let wanted = b"$4\r\nread\r\n-MISCONF lost\r\n:5\r\n-MISCONF lost\r\n:5\r\n";
        assert_eq!(reply.bytes(), wanted);
    }

    #[test]
    fn texts_of_unknown_length() {
        let mut reply = Reply::new(false);
        let text = |text: &'static [u8], present| {
            move |out: &mut Vec<u8>| -> Result<bool, ()> {
                out.extend_from_slice(text);
                Ok(present)
            }
        };
        reply.bulk_by(text(b"one", true)).expect("written");
        reply.bulk_by(text(b"two", false)).expect("written");
        assert_eq!(reply.pair_by(b"n", text(b"v", true)), Ok(true));
        assert_eq!(reply.pair_by(b"n", text(b"v", false)), Ok(false));
        assert_eq!(reply.bytes(), b"$3\r\none\r\n$-1\r\n$1\r\nn\r\n$1\r\nv\r\n");
    }
}
