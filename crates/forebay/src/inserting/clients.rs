//! The clients of an insert, one thread each: the paper's stagers.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::scope;

use forebay_io::{pool, start_within};
use forebay_load::load::{LoadError, RowPieces, StagedRows};
use forebay_run::hash::KeyHasher;

use super::batch::RowBatch;
use super::error::{InsertError, UnknownRows};
use super::insertion::Insertion;
use super::pieces::PieceQueue;
use super::sender::RowSender;
use super::wire::{Dial, Wire};

/// The requests that wait for a client, beside its current one.
const WAITING: usize = 2;

/// Why an insert ended early.
#[derive(Debug, thiserror::Error)]
pub enum InsertEnd {
    #[error(transparent)]
    Rows(#[from] LoadError),
    #[error(transparent)]
    Sent(#[from] InsertError),
}

impl InsertEnd {
    /// Returns whether another client has the reason.
    fn is_stopped(&self) -> bool {
        matches!(self, InsertEnd::Sent(InsertError::InsertStopped { .. }))
    }
}

/// The clients, before they start.
pub struct Clients<'a> {
    pub insertion: &'a Insertion<'a>,
    pub rows: &'a StagedRows,
    pub pieces: &'a RowPieces,
    pub dial: &'a Dial,
    pub count: usize,
    pub batch_rows: usize,
}

impl Clients<'_> {
    /// Each client takes one piece after another. Returns how many rows had the key of another.
    pub fn by_pieces(&self, queue: &PieceQueue) -> Result<u64, InsertEnd> {
        let client = std::sync::atomic::AtomicUsize::new(0);
        let results = pool(self.count, || {
            let number = client.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let sent = self.send_pieces(queue, number);
            if sent.is_err() {
                self.insertion.fail();
            }
            sent
        });
        match results.len() < self.count {
            true => Err(self.no_threads(&io::Error::other("the system starts no more threads"))),
            false => self.joined(results),
        }
    }

    fn send_pieces(&self, queue: &PieceQueue, client: usize) -> Result<u64, InsertEnd> {
        let mut sender = self.sender()?;
        let mut batch = RowBatch::new(&self.insertion.table, self.batch_rows);
        let mut duplicates = 0;
        while let Some(piece) = queue.next(client) {
            duplicates += self.rows.walk(self.pieces, piece, |key, operation| {
                batch.push(key, operation);
                if batch.is_full() {
                    sender.send(&batch)?;
                    batch.clear();
                }
                Ok::<(), InsertEnd>(())
            })?;
            sender.send(&batch)?;
            batch.clear();
        }
        Ok(duplicates)
    }

    /// Distributes rows in source order by their keys, so that rows of one key stay in order.
    pub fn as_they_came(&self) -> Result<u64, InsertEnd> {
        scope(|scope| {
            let (mut senders, mut threads) = (Vec::new(), Vec::new());
            for number in 0..self.count {
                let (sender, batches) = sync_channel(WAITING);
                let name = format!("insert-{number}");
                let thread = start_within(scope, name, move || self.send_dealt(&batches));
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        self.insertion.fail();
                        return Err(self.no_threads(&error));
                    }
                }
                senders.push(sender);
            }
            let dealt = self.deal(senders);
            if dealt.is_err() {
                self.insertion.fail();
            }
            let stopped = |_| Err(self.stopped());
            let sent = threads.into_iter();
            let sent = sent.map(|thread| thread.join().unwrap_or_else(stopped));
            self.joined(
                [dealt]
                    .into_iter()
                    .chain(sent.collect::<Vec<_>>())
                    .collect(),
            )
        })
    }

    fn send_dealt(&self, batches: &Receiver<RowBatch>) -> Result<u64, InsertEnd> {
        let sent = self.sender().and_then(|mut sender| {
            let mut sent = batches.iter().map(|batch| sender.send(&batch));
            sent.try_for_each(|sent| sent.map_err(InsertEnd::from))
        });
        if sent.is_err() {
            self.insertion.fail();
        }
        sent.map(|()| 0)
    }

    fn deal(&self, clients: Vec<SyncSender<RowBatch>>) -> Result<u64, InsertEnd> {
        let hasher = KeyHasher::new(b"");
        let empty = RowBatch::new(&self.insertion.table, self.batch_rows);
        let mut open: Vec<(RowBatch, HashSet<Vec<u8>>)> = clients
            .iter()
            .map(|_| (empty.clone(), HashSet::new()))
            .collect();
        // A client that has ended has the reason.
        let hand = |client: usize, batch: &mut RowBatch| {
            let handed = clients[client].send(batch.take());
            handed.map_err(|_| self.stopped())
        };
        for piece in 0..self.pieces.begins().len() {
            self.rows.walk(self.pieces, piece, |key, operation| {
                let client = (hasher.hash64(key) % clients.len() as u64) as usize;
                let (batch, keys) = &mut open[client];
                if batch.is_full() || keys.contains(key) {
                    hand(client, batch)?;
                    keys.clear();
                }
                batch.push(key, operation);
                keys.insert(key.to_vec());
                Ok::<(), InsertEnd>(())
            })?;
        }
        for (client, (batch, _)) in open.iter_mut().enumerate() {
            if !batch.is_empty() {
                hand(client, batch)?;
            }
        }
        Ok(0)
    }

    fn sender(&self) -> Result<RowSender<'_, Wire>, InsertEnd> {
        let exchange = Wire::new(self.dial.clone()).map_err(|error| self.no_threads(&error))?;
        Ok(RowSender {
            insertion: self.insertion,
            exchange,
        })
    }

    /// Returns the sum, or the error that caused the others, with all rows of unknown outcome:
    /// several clients may have sent some. All clients have ended.
    fn joined(&self, results: Vec<Result<u64, InsertEnd>>) -> Result<u64, InsertEnd> {
        let (mut stopped, mut cause, mut sum) = (None, None, 0);
        let mut unknown: Option<(UnknownRows, String)> = None;
        for result in results {
            match result {
                Ok(count) => sum += count,
                Err(error) if error.is_stopped() => stopped = Some(error),
                Err(InsertEnd::Sent(InsertError::Uncertain { keys, words, .. })) => {
                    let (all, _) = unknown.get_or_insert((UnknownRows(Vec::new()), words));
                    all.0.extend(keys.0);
                }
                Err(error) => cause = cause.or(Some(error)),
            }
        }
        let inserted = self.insertion.inserted();
        if let Some((keys, words)) = unknown {
            let sent = InsertError::Uncertain {
                keys,
                words,
                inserted,
            };
            return Err(sent.into());
        }
        match cause.or(stopped) {
            Some(InsertEnd::Sent(error)) => Err(error.counted(inserted).into()),
            Some(error) => Err(error),
            None => Ok(sum),
        }
    }

    fn stopped(&self) -> InsertEnd {
        let inserted = self.insertion.inserted();
        InsertError::InsertStopped { inserted }.into()
    }

    fn no_threads(&self, error: &io::Error) -> InsertEnd {
        let sent = InsertError::NoThreads {
            clients: self.count,
            words: error.to_string(),
            inserted: self.insertion.inserted(),
        };
        sent.into()
    }
}
