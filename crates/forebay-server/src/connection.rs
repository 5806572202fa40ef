//! A client connection: reads, writes, and waits in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::client::Client;
use crate::config::HIGH_WATER;
use crate::metrics::WorkerMetrics;
use crate::pipeline::{Next, Pipeline};
use crate::shared::Shared;

/// The first read buffer of a connection; it grows while reads fill it.
const FIRST_BUFFER: usize = 4 << 10;
const LARGEST_READ: usize = 64 << 10;
/// A buffer doubles as bytes arrive, by at most this much at a time.
const LARGEST_GROWTH: usize = 4 << 20;
/// Larger buffers are freed when they are empty.
const KEPT_BUFFER: usize = 256 << 10;
/// Output is written in pieces of this size, each with a deadline of its own.
const PIECE: usize = 256 << 10;

/// The most bytes of a refused command that are read: the longest argument of Redis.
const MOST_DROPPED: usize = 512 << 20;
/// A client that sends none of them for this long has ended.
const SILENT: Duration = Duration::from_secs(5);

/// A connection that one of the workers serves.
pub struct Connection<S> {
    pub stream: S,
    pub shared: Arc<Shared>,
    pub worker: usize,
    pub client: Arc<Client>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves until the client or the server ends the connection.
    pub async fn serve(mut self) -> io::Result<()> {
        let mut pipeline = Pipeline::new(&self.shared, self.worker, Arc::clone(&self.client));
        loop {
            match pipeline.advance() {
                Next::Wait(wait) => pipeline.resume(wait.end().await),
                Next::Flush => self.send(&mut pipeline).await?,
                Next::Close => {
                    self.send(&mut pipeline).await?;
                    self.stream.shutdown().await?;
                    return match pipeline.is_refused_amid_command {
                        true => self.drop_rest(&mut pipeline.input).await,
                        false => Ok(()),
                    };
                }
                Next::Read => {
                    self.send(&mut pipeline).await?;
                    if self.shared.is_stopping() && !pipeline.has_partial_input() {
                        return self.stream.shutdown().await;
                    }
                    if self.receive(&mut pipeline).await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn receive(&mut self, pipeline: &mut Pipeline) -> io::Result<usize> {
        let input = &mut pipeline.input;
        if input.is_empty() && input.capacity() > KEPT_BUFFER {
            *input = Vec::new();
        }
        let spare = input.capacity() - input.len();
        if spare < FIRST_BUFFER / 4 {
            let more = input.capacity().clamp(FIRST_BUFFER, LARGEST_GROWTH);
            input.reserve_exact(more);
        }
        self.client.idle.store(input.is_empty(), Ordering::Relaxed);
        let read = self.stream.read_buf(input).await?;
        self.client.idle.store(false, Ordering::Relaxed);
        self.client
            .active_ms
            .store(self.shared.now_ms(), Ordering::Relaxed);
        if input.len() == input.capacity() && read < LARGEST_READ {
            input.reserve_exact(input.capacity().min(LARGEST_READ));
        }
        self.metrics()
            .input_bytes
            .fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    /// Reads the rest of a refused command. A connection that is closed with unread bytes is reset,
    /// and then most clients never see the error.
    async fn drop_rest(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut left = MOST_DROPPED;
        while left > 0 && !self.shared.is_stopping() {
            buffer.clear();
            buffer.reserve(LARGEST_READ);
            let clock = Arc::clone(self.shared.store.clock());
            let read = tokio::select! {
                read = self.stream.read_buf(buffer) => read?,
                () = clock.wait(SILENT) => return Ok(()),
            };
            if read == 0 {
                break;
            }
            left = left.saturating_sub(read);
        }
        Ok(())
    }

    async fn send(&mut self, pipeline: &mut Pipeline) -> io::Result<()> {
        let bytes = pipeline.reply.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        for piece in bytes.chunks(PIECE) {
            // From this point the sweep counts the time that the client takes.
            self.client
                .writing_ms
                .store(self.shared.now_ms(), Ordering::Relaxed);
            self.stream.write_all(piece).await?;
        }
        self.stream.flush().await?;
        self.client.writing_ms.store(0, Ordering::Relaxed);
        self.metrics()
            .output_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        pipeline.reply.clear(2 * HIGH_WATER);
        Ok(())
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.shared.metrics.worker(self.worker)
    }
}
