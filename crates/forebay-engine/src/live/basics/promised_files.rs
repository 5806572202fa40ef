//! Counts files that flushes are about to open, so that two flushes do not count the same free
//! ones.

use std::io;

use parking_lot::Mutex;

/// How many files the flushes of all tables of a budget may still open.
#[derive(Debug, Default)]
pub(crate) struct PromisedFiles(Mutex<u64>);

/// The files that one flush may still open.
#[derive(Debug)]
pub(crate) struct FilePromise<'p> {
    promised: &'p PromisedFiles,
    files: u64,
}

impl PromisedFiles {
    /// Reserves `files` of those that the process may still open; `None` if fewer than `spare`
    /// would be left. `count_free` counts them; without a relevant limit it returns `None`.
    pub fn promise(
        &self,
        files: u64,
        spare: u64,
        count_free: impl FnOnce() -> io::Result<Option<u64>>,
    ) -> io::Result<Option<FilePromise<'_>>> {
        // Counted under the lock: what another flush opens is either promised or counted.
        let mut promised = self.0.lock();
        if count_free()?.is_some_and(|free| free < *promised + files + spare) {
            return Ok(None);
        }
        *promised += files;
        Ok(Some(FilePromise {
            promised: self,
            files,
        }))
    }
}

impl FilePromise<'_> {
    /// Records that one of the files is open: it counts by itself from now on.
    pub fn is_opened(&mut self) {
        debug_assert!(self.files > 0, "more files were opened than promised");
        self.files -= 1;
        *self.promised.0.lock() -= 1;
    }
}

impl Drop for FilePromise<'_> {
    fn drop(&mut self) {
        *self.promised.0.lock() -= self.files;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_promised_once() {
        let promised = PromisedFiles::default();
        let promise = |free| promised.promise(10, 5, || Ok(Some(free))).expect("counted");
        assert!(promise(14).is_none());
        let mut first = promise(15).expect("enough");
        assert!(promise(24).is_none(), "10 of them are promised");
        first.is_opened();
        assert!(promise(24).is_some(), "9 of them are promised");
        drop(first);
        assert!(promise(15).is_some());
        let unlimited = promised.promise(1000, 5, || Ok(None));
        assert!(unlimited.expect("counted").is_some());
    }
}
