//! A log's file of the operating system, written through a mapped window if that is safe.
//!
//! Copying a small record into shared memory costs less than a system call, and the system has the
//! record all the same: it outlives the process. A long record costs more, because each page is
//! first read or filled with zeros, so it is written by a system call. The file is extended ahead,
//! with blocks reserved for all of it, so that a write to the window cannot fail for lack of space.
//! Reserved bytes beyond the last record read as zeros, and are released when the file is closed.
//! Syncs are faster, too, if they need not record a new length. If blocks cannot be reserved (the
//! disk is nearly full, or the file system does not support it), records are written by system
//! calls.
//!
//! Another process may truncate the file. A write to a page of the window that is gone raises a
//! signal. A write past the new end within its last page raises none. The length is therefore
//! checked at each sync, and before the file is extended, which would hide the truncation.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::LogFile;
use crate::raw::{WriteWindow, reserve_blocks, reserves_blocks};

/// The bounds of a window's length. Windows grow with the file.
const LEAST_WINDOW_BYTES: u64 = 64 << 10;
const GREATEST_WINDOW_BYTES: u64 = 4 << 20;
/// From this length on a system call costs less than the window.
const LONG_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct OsLogFile {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: Option<WriteWindow>,
    /// The end of what was written, and the end of the file.
    end: u64,
    reserved_end: u64,
    may_map: bool,
}

impl State {
    /// Fails if a write to the window found its part of the file missing.
    fn check_window(&self) -> io::Result<()> {
        match &self.window {
            Some(window) if window.damaged() => Err(cut_short()),
            _ => Ok(()),
        }
    }

    /// Fails if another process has truncated the file below what was written or reserved.
    fn check_whole(&self, file: &File) -> io::Result<()> {
        self.check_window()?;
        match file.metadata()?.len() < self.reserved_end {
            true => Err(cut_short()),
            false => Ok(()),
        }
    }
}

fn cut_short() -> io::Error {
    io::Error::other("the file was cut short while it was written")
}

impl OsLogFile {
    /// Creates the log file. `file` is open for reading and writing, and `len_bytes` long.
    pub fn new(file: File, len_bytes: u64, may_map: bool) -> Self {
        let may_map = may_map && reserves_blocks(&file);
        Self {
            file,
            state: Mutex::new(State {
                window: None,
                end: len_bytes,
                reserved_end: len_bytes,
                may_map,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the window that begins at `offset`; `false` if there can be none now.
    fn open_window(&self, state: &mut State, offset: u64) -> bool {
        state.window = None;
        if !state.may_map {
            return false;
        }
        let start = offset / LEAST_WINDOW_BYTES * LEAST_WINDOW_BYTES;
        let bytes = start.clamp(LEAST_WINDOW_BYTES, GREATEST_WINDOW_BYTES);
        let bytes = bytes / LEAST_WINDOW_BYTES * LEAST_WINDOW_BYTES;
        match reserve_blocks(&self.file, start, bytes) {
            Ok(()) => state.reserved_end = state.reserved_end.max(start + bytes),
            Err(error) => {
                // If there is no space now, there may be later.
                state.may_map = super::is_out_of_space(&error);
                return false;
            }
        }
        state.window = WriteWindow::new(&self.file, start, bytes as usize).ok();
        state.may_map = state.window.is_some();
        state.may_map
    }
}

impl LogFile for OsLogFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            let written = match &mut state.window {
                Some(window) if bytes.len() >= LONG_BYTES => window.room(at).min(rest.len()),
                Some(window) => window.write(rest, at),
                None => 0,
            };
            if bytes.len() >= LONG_BYTES && written > 0 {
                state.check_whole(&self.file)?;
                self.file.write_all_at(&rest[..written], at)?;
            }
            state.check_window()?;
            rest = &rest[written..];
            if written > 0 {
                continue;
            }
            state.check_whole(&self.file)?;
            if !self.open_window(&mut state, at) {
                self.file.write_all_at(rest, at)?;
                rest = &[];
            }
        }
        state.end = state.end.max(end);
        state.reserved_end = state.reserved_end.max(end);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.check_whole(&self.file)?;
        // Nothing may be written to a truncated page.
        state.window = None;
        self.file.set_len(len_bytes)?;
        (state.end, state.reserved_end) = (len_bytes, len_bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.state().check_whole(&self.file)
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }
}

impl Drop for OsLogFile {
    fn drop(&mut self) {
        let mut state = self.state();
        let whole = state.check_whole(&self.file);
        state.window = None;
        if whole.is_ok() && state.reserved_end > state.end {
            // If this fails, readers skip the zeros at the end.
            let _ = self.file.set_len(state.end);
        }
    }
}

#[cfg(test)]
#[cfg_attr(miri, allow(unused_imports))]
mod tests {
    use std::path::Path;

    use super::super::{Disk, OsDisk};

    fn content(path: &Path) -> Vec<u8> {
        OsDisk::default().read(path).unwrap()
    }

    /// Writes records of all lengths, one after the other, over many windows.
    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn written_bytes_are_in_the_file_at_once_and_no_others_after_closing() {
        for without_maps in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("1.log");
            let disk = OsDisk { without_maps };
            let file = disk.create_log(&path).unwrap();
            let mut expected = Vec::new();
            for number in 0..2000usize {
                let record = vec![number as u8 | 1; number * 37 % 9000 + 1];
                file.write_all_at(&record, expected.len() as u64).unwrap();
                expected.extend_from_slice(&record);
                if number % 500 == 0 {
                    file.sync().unwrap();
                    let found = content(&path);
                    assert!(found.starts_with(&expected));
                    assert!(found[expected.len()..].iter().all(|byte| *byte == 0));
                }
            }
            drop(file);
            assert!(content(&path) == expected);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn a_file_that_another_process_truncates_refuses_writes_without_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        let file = OsDisk::default().create_log(&path).unwrap();
        file.write_all_at(&[1; 10_000], 0).unwrap();
        std::fs::write(&path, b"").unwrap();
        let error = file.write_all_at(&[2; 10_000], 10_000).unwrap_err();
        assert!(error.to_string().contains("cut short"), "{error}");
        assert!(file.sync().is_err());
        assert!(file.write_all_at(&[3; 10], 20_000).is_err());
    }

    /// The file may be truncated anywhere, also within the current page, and may have grown again.
    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn bytes_that_another_process_truncated_are_not_reported_durable() {
        for without_maps in [false, true] {
            for cut in [0, 1, 59, 4095, 4096, 5000, 9_999] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("1.log");
                let file = OsDisk { without_maps }.create_log(&path).unwrap();
                file.write_all_at(&[1; 10_000], 0).unwrap();
                file.sync().unwrap();
                let other = std::fs::OpenOptions::new().write(true).open(&path);
                other.unwrap().set_len(cut).unwrap();
                // Writes a small record after the last one, then one that extends the file.
                let written = file.write_all_at(&[2; 10], 10_000);
                let acknowledged = written.and_then(|()| file.sync());
                let words = format!("cut at {cut}, without_maps {without_maps}");
                let error = acknowledged.expect_err(&words).to_string();
                assert!(error.contains("cut short"), "{words}: {error}");
                assert!(file.write_all_at(&[2; 200_000], 10_010).is_err(), "{words}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn a_file_that_another_process_removed_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        let file = OsDisk::default().create_log(&path).unwrap();
        assert!(file.has_name().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!file.has_name().unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn writes_continue_at_the_end_of_a_truncated_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        let disk = OsDisk::default();
        let file = disk.create_log(&path).unwrap();
        file.write_all_at(&[1; 100_000], 0).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(content(&path), [1; 10]);
        file.write_all_at(&[2; 5], 10).unwrap();
        drop(file);
        let file = disk.open_log(&path).unwrap();
        file.write_all_at(&[3; 5], 15).unwrap();
        drop(file);
        let expected = [&[1; 10][..], &[2; 5], &[3; 5]].concat();
        assert_eq!(content(&path), expected);
    }
}
