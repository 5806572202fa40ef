//! A run in object storage, read by ranges.
//!
//! A sequential read doubles what it requests at once, up to eight mebibytes. From one mebibyte on
//! it requests the next piece ahead. Other reads request 64 KiB. A file of up to 256 KiB is
//! requested whole. Some pieces are cached: neighbours in one version are neighbours in the other,
//! as the gate's samples find.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use forebay_io::ReadFile;
use forebay_io::raw::Mapping;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::objects::Objects;

const LEAST_BYTES: u64 = 64 << 10;
const WHOLE_BYTES: u64 = 256 << 10;
const GREATEST_BYTES: u64 = 8 << 20;
const AHEAD_FROM_BYTES: u64 = 1 << 20;
/// The bytes of pieces in memory.
const KEPT_BYTES: usize = 16 << 20;

/// A file in object storage.
#[derive(Debug)]
pub struct RemoteFile {
    objects: Objects,
    name: String,
    len_bytes: u64,
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    /// The most recently used piece is the last.
    pieces: Vec<Piece>,
    window_bytes: u64,
    ahead: Option<(u64, JoinHandle<io::Result<Bytes>>)>,
}

#[derive(Debug, Clone)]
struct Piece {
    start: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl FileState {
    fn keep(&mut self, piece: Piece) {
        self.pieces.push(piece);
        let mut bytes: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        while bytes > KEPT_BYTES && self.pieces.len() > 2 {
            bytes -= self.pieces.remove(0).bytes.len();
        }
    }
}

impl RemoteFile {
    pub fn new(objects: Objects, name: String, len_bytes: u64) -> Self {
        Self {
            objects,
            name,
            len_bytes,
            state: Mutex::new(FileState {
                pieces: Vec::new(),
                window_bytes: LEAST_BYTES,
                ahead: None,
            }),
        }
    }

    /// Returns whether it is requested whole.
    pub fn is_small(&self) -> bool {
        self.len_bytes <= WHOLE_BYTES
    }

    /// Returns the piece that begins at or before `at` and has at least the next byte. Threads may
    /// wait for different pieces at once.
    fn piece(&self, at: u64) -> io::Result<Piece> {
        let (start, window_bytes, follows, asked) = {
            let mut state = self.state.lock();
            let holds = |piece: &Piece| piece.start <= at && at < piece.end();
            if let Some(place) = state.pieces.iter().rposition(holds) {
                let piece = state.pieces.remove(place);
                state.pieces.push(piece.clone());
                return Ok(piece);
            }
            let follows = state.pieces.iter().any(|piece| piece.end() == at);
            let start = if self.is_small() {
                state.window_bytes = WHOLE_BYTES;
                0
            } else if follows {
                state.window_bytes = (state.window_bytes * 2).min(GREATEST_BYTES);
                at
            } else {
                state.window_bytes = LEAST_BYTES;
                at / LEAST_BYTES * LEAST_BYTES
            };
            let asked = match state.ahead.take() {
                Some((ahead, task)) if ahead == start => Some(task),
                other => {
                    other.inspect(|(_, task)| task.abort());
                    None
                }
            };
            (start, state.window_bytes, follows, asked)
        };
        let bytes = match asked {
            Some(task) => self
                .objects
                .runtime()
                .block_on(task)
                .map_err(io::Error::other)??,
            None => self
                .objects
                .range(&self.name, self.window(start, window_bytes))?,
        };
        let piece = Piece { start, bytes };
        let mut state = self.state.lock();
        if follows && window_bytes >= AHEAD_FROM_BYTES && piece.end() < self.len_bytes {
            self.ask_ahead(&mut state, piece.end());
        }
        state.keep(piece.clone());
        Ok(piece)
    }

    fn ask_ahead(&self, state: &mut FileState, start: u64) {
        let window = self.window(start, (state.window_bytes * 2).min(GREATEST_BYTES));
        let (objects, name) = (self.objects.clone(), self.name.clone());
        let runtime = self.objects.runtime();
        let task = runtime.spawn(async move { objects.fetch(&name, window).await });
        state.ahead = Some((start, task));
    }

    fn window(&self, start: u64, bytes: u64) -> Range<u64> {
        start..start.saturating_add(bytes).min(self.len_bytes)
    }
}

impl ReadFile for RemoteFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A whole section, or a large value, is requested as it is.
        if buf.len() as u64 > GREATEST_BYTES {
            let range = offset..offset + buf.len() as u64;
            buf.copy_from_slice(&self.objects.range(&self.name, range)?);
            return Ok(());
        }
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            let piece = self.piece(at)?;
            let from = (at - piece.start) as usize;
            let length = (buf.len() - filled).min(piece.bytes.len() - from);
            buf[filled..filled + length].copy_from_slice(&piece.bytes[from..from + length]);
            filled += length;
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if let Some((_, task)) = self.state.get_mut().ahead.take() {
            task.abort();
        }
    }
}
