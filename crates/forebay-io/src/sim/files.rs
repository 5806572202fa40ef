//! Open files of a simulated disk.

use std::io::{self, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{DiskState, NOTHING, SimDisk, space_if};
use crate::raw::Mapping;
use crate::{LogFile, ReadFile, WriteFile};

/// An open file, which keeps its bytes whatever happens to its name.
#[derive(Debug)]
pub(super) struct SimReadFile {
    pub content: Vec<u8>,
    pub disk: SimDisk,
}

impl ReadFile for SimReadFile {
    fn len_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.state().call(NOTHING)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buf.len());
        let bytes = self
            .content
            .get(start..end)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}

#[derive(Debug)]
pub(super) struct SimWriteFile(pub SimLogFile);

impl Write for SimWriteFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.0.disk.state().inodes[self.0.inode].content().len();
        self.0.write_all_at(bytes, end as u64)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for SimWriteFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_once()
    }
}

/// A file for writing: its inode, its disk, and the end of what was written.
#[derive(Debug)]
pub(super) struct SimLogFile {
    inode: usize,
    disk: SimDisk,
    end: AtomicUsize,
}

impl SimLogFile {
    pub fn new(disk: &SimDisk, inode: usize, end: usize) -> Self {
        Self {
            inode,
            disk: disk.clone(),
            end: AtomicUsize::new(end),
        }
    }

    /// Fails if [`SimDisk::tamper`] has truncated what was written.
    fn check_whole(&self, state: &DiskState) -> io::Result<()> {
        match state.inodes[self.inode].content().len() < self.end.load(Relaxed) {
            true => Err(io::Error::other("simulated truncation of a file")),
            false => Ok(()),
        }
    }

    fn sync_once(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.call(NOTHING);
        let inode = &mut state.inodes[self.inode];
        match outcome {
            Ok(()) => inode.synced(),
            Err(_) => inode.sync_failed(),
        }
        outcome?;
        self.check_whole(&state)
    }
}

impl LogFile for SimLogFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let before = state.stopped;
        self.check_whole(&state)?;
        let end = offset as usize + bytes.len();
        let grows = state.inodes[self.inode].outgrows(end);
        let outcome = state.call(space_if(grows));
        let inode = &mut state.inodes[self.inode];
        match outcome {
            Ok(()) => {
                inode.write(bytes, offset as usize);
                self.end.fetch_max(end, Relaxed);
            }
            // The first failing call did a part of its work; later calls do nothing.
            Err(_) if before.is_none() => {
                inode.write_part(&bytes[..bytes.len() / 2], offset as usize);
            }
            Err(_) => {}
        }
        outcome
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.call(NOTHING)?;
        self.check_whole(&state)?;
        state.inodes[self.inode].set_len(len_bytes as usize);
        self.end.store(len_bytes as usize, Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_once()
    }

    fn has_name(&self) -> io::Result<bool> {
        let mut state = self.disk.state();
        state.call(NOTHING)?;
        Ok(state.names.values().any(|inode| *inode == self.inode))
    }
}
