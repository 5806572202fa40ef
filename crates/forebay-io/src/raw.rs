//! The `unsafe` code of this crate: mapped files, system calls, cache hints, byte matching.
//!
//! Contract, kept by the tests below and in `tests/damage.rs`:
//! - [`Mapping::bytes`] is a plain slice of an immutable file. Runs are never written after they
//!   are finished, so the bytes of the slice do not change. If another process truncates the file
//!   while it is mapped, the kernel raises SIGBUS. The handler then maps a page of zeros into the
//!   hole, marks the mapping as [`Mapping::damaged`] and lets the reader continue. Readers check
//!   that mark after they have read and before they answer, and turn it into an error. Between the
//!   new end and the end of its page are zeros without a SIGBUS. A reader that may have read those
//!   checks the file's last byte.
//! - [`WriteWindow`] is written by its one owner, and read by no thread. Its blocks were reserved
//!   before. If another process truncates the file meanwhile, the handler maps anonymous memory
//!   into the hole and marks the window, and the write is an error.
//! - [`prefetch`] and [`match_byte`] never read outside the slice they are given.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use memmap2::{Advice, Mmap, MmapMut, MmapOptions, UncheckedAdvice};

/// The system's page size as used for residency: 4 KiB on every platform supported.
pub const SYSTEM_PAGE_BYTES: usize = 4096;

/// A read-only mapping of a whole file.
#[derive(Debug)]
pub struct Mapping {
    map: Mmap,
    guard: &'static GuardedRange,
}

impl Mapping {
    /// Maps `file`, and asks for huge pages. On kernels whose file system supports them, a page
    /// read from the device then costs one TLB entry in 512. That is a third of a look-up's time.
    pub fn new(file: &File) -> io::Result<Self> {
        install_handler();
        // SAFETY: the file is immutable by the module's contract; a cut is caught by the handler.
        let map = unsafe { MmapOptions::new().map(file)? };
        // Hints: a kernel without huge pages for files refuses, and nothing changes.
        let _ = map.advise(Advice::HugePage);
        let guard = GuardedRange::register(map.as_ptr() as usize, map.len(), libc::PROT_READ);
        Ok(Self { map, guard })
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Returns whether a part of the file was found missing since it was mapped.
    #[inline]
    pub fn damaged(&self) -> bool {
        self.guard.damaged.load(Ordering::Relaxed)
    }

    /// Returns which system pages of `offset..offset + len` are in memory, one byte each (bit 0).
    pub fn residency(&self, offset: usize, len: usize) -> io::Result<Vec<u8>> {
        let end = offset.saturating_add(len).min(self.map.len());
        let start = (offset & !(SYSTEM_PAGE_BYTES - 1)).min(end);
        let mut pages = vec![0u8; (end - start).div_ceil(SYSTEM_PAGE_BYTES)];
        if pages.is_empty() {
            return Ok(pages);
        }
        // SAFETY: the range lies within the mapping and `pages` has a byte for each of its pages.
        let code = unsafe {
            let first = self.map.as_ptr().add(start) as *mut libc::c_void;
            libc::mincore(first, end - start, pages.as_mut_ptr())
        };
        if code == 0 {
            Ok(pages)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Mapping {
    /// Removes the pages of `start..end`, which are page-aligned, from this process's memory. The
    /// next access loads them again.
    pub fn release(&self, start: usize, end: usize) {
        if start < end && end <= self.map.len() {
            // SAFETY: the range lies in the mapping; dropping clean pages of a read-only file
            // mapping changes no content.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard.release();
    }
}

/// A part of a file, mapped for writing.
#[derive(Debug)]
pub struct WriteWindow {
    map: MmapMut,
    start: u64,
    guard: &'static GuardedRange,
}

impl WriteWindow {
    /// Maps `len` bytes of `file` from `start`, a multiple of the system's page. REQUIRES:
    /// [`reserve_blocks`] has reserved them, and the file is not truncated before this is dropped.
    pub fn new(file: &File, start: u64, len: usize) -> io::Result<Self> {
        install_handler();
        // SAFETY: nothing reads through this mapping or another one of the file, so changes of the
        // bytes by other processes do not matter.
        let map = unsafe { MmapOptions::new().offset(start).len(len).map_mut(file)? };
        let guard = GuardedRange::register(map.as_ptr() as usize, map.len(), libc::PROT_WRITE);
        Ok(Self { map, start, guard })
    }

    /// Returns whether a part of the file was found missing since it was mapped. What was written
    /// there is lost.
    #[inline]
    pub fn damaged(&self) -> bool {
        self.guard.damaged.load(Ordering::Relaxed)
    }

    /// Writes the bytes at `offset` of the file that fit in the window. Returns how many it wrote.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> usize {
        let count = bytes.len().min(self.room(offset));
        let at = self.map.len() - self.room(offset);
        self.map[at..at + count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Returns how much of the window is after `offset` of the file; 0 if that is not in it.
    #[inline]
    pub fn room(&self, offset: u64) -> usize {
        let behind = offset.checked_sub(self.start);
        let at = behind.and_then(|at| usize::try_from(at).ok());
        at.map_or(0, |at| self.map.len().saturating_sub(at))
    }
}

impl Drop for WriteWindow {
    fn drop(&mut self) {
        self.guard.release();
    }
}

/// Returns whether the file system guarantees writes to reserved blocks.
pub fn reserves_blocks(file: &File) -> bool {
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const TMPFS: i64 = 0x0102_1994;
    // SAFETY: a system call on an open descriptor, which fills the structure that is read.
    let kind = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut found) == 0).then_some(found.f_type)
    };
    kind.is_some_and(|kind| [EXT, XFS, TMPFS].contains(&kind))
}

/// Reserves blocks for `len` bytes of the file from `start`, and extends it with zeros as needed.
pub fn reserve_blocks(file: &File, start: u64, len: u64) -> io::Result<()> {
    // SAFETY: a system call on an open descriptor.
    let code = unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            0,
            start as libc::off_t,
            len as libc::off_t,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A mapped address range for the signal handler. Never freed, reused after release.
#[derive(Debug)]
struct GuardedRange {
    start: AtomicUsize,
    len_bytes: AtomicUsize,
    damaged: AtomicBool,
    /// How the range is mapped.
    protection: AtomicI32,
    next: AtomicPtr<GuardedRange>,
}

static RANGES: AtomicPtr<GuardedRange> = AtomicPtr::new(std::ptr::null_mut());
static FREE: Mutex<Vec<&'static GuardedRange>> = Mutex::new(Vec::new());

impl GuardedRange {
    fn register(start: usize, len_bytes: usize, protection: i32) -> &'static GuardedRange {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let guard = free.unwrap_or_else(|| {
            let guard: &'static GuardedRange = Box::leak(Box::new(GuardedRange {
                start: AtomicUsize::new(0),
                len_bytes: AtomicUsize::new(0),
                damaged: AtomicBool::new(false),
                protection: AtomicI32::new(libc::PROT_NONE),
                next: AtomicPtr::new(std::ptr::null_mut()),
            }));
            let me = std::ptr::from_ref(guard).cast_mut();
            let mut head = RANGES.load(Ordering::Acquire);
            loop {
                guard.next.store(head, Ordering::Relaxed);
                match RANGES.compare_exchange(head, me, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break guard,
                    Err(now) => head = now,
                }
            }
        });
        guard.damaged.store(false, Ordering::Relaxed);
        guard.protection.store(protection, Ordering::Relaxed);
        guard.start.store(start, Ordering::Relaxed);
        guard.len_bytes.store(len_bytes, Ordering::Release);
        guard
    }

    fn release(&'static self) {
        self.len_bytes.store(0, Ordering::Release);
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self);
    }

    fn holds(&self, address: usize) -> bool {
        let len = self.len_bytes.load(Ordering::Acquire);
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < len
    }
}

static mut PREVIOUS: std::mem::MaybeUninit<libc::sigaction> = std::mem::MaybeUninit::zeroed();

fn install_handler() {
    static INSTALL: Once = Once::new();
    // SAFETY: sigaction gets valid structures; PREVIOUS is written once, before the handler can
    // run.
    INSTALL.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, (&raw mut PREVIOUS).cast());
    });
}

/// Handles SIGBUS. Async-signal-safe: atomics and one system call. An address outside our ranges
/// goes to the previous handler: this one reinstates it and lets the access fault again.
extern "C" fn on_sigbus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; nodes of RANGES are never freed; the page mapped
    // over lies within one of our own mappings.
    unsafe {
        let address = (*info).si_addr() as usize;
        let mut node = RANGES.load(Ordering::Acquire);
        while let Some(guard) = node.as_ref() {
            if guard.holds(address) {
                guard.damaged.store(true, Ordering::Relaxed);
                let page = address & !(SYSTEM_PAGE_BYTES - 1);
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let page = page as *mut libc::c_void;
                let protection = guard.protection.load(Ordering::Relaxed);
                libc::mmap(page, SYSTEM_PAGE_BYTES, protection, flags, -1, 0);
                return;
            }
            node = guard.next.load(Ordering::Acquire);
        }
        libc::sigaction(
            libc::SIGBUS,
            (&raw const PREVIOUS).cast(),
            std::ptr::null_mut(),
        );
    }
}

/// Asks the system not to read ahead for read calls on the file; page faults of mappings still
/// read ahead.
pub fn expect_random_reads(file: &File) {
    // SAFETY: a system call on an open descriptor.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
    }
}

/// Asks the system to begin writing the file's changed pages to the device. A hint.
pub fn start_write_back(file: &File) {
    // SAFETY: a system call on an open descriptor; 0 and 0 are the whole file.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Limits how long the calling thread, and those that it starts, work while others wait for its
/// processor. In return its next turn comes sooner (Linux 6.12; elsewhere nothing changes). Zero is
/// the system's default. The nice value stays.
#[cfg(target_os = "linux")]
pub fn limit_turns(longest: std::time::Duration) {
    let Some(mut attributes) = scheduling() else {
        return;
    };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = longest.as_nanos() as u64;
    // SAFETY: the system reads the attributes, which state their size.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}

/// Returns how the calling thread is scheduled, if the system reports it.
#[cfg(target_os = "linux")]
fn scheduling() -> Option<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: all fields are numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the system writes at most `size` bytes, which the structure has.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    attributes.size = size;
    (result == 0).then_some(attributes)
}

#[cfg(not(target_os = "linux"))]
pub fn limit_turns(_longest: std::time::Duration) {}

/// Asks the system to forget the file's cached pages. A hint.
pub fn drop_file_cache(file: &File) {
    // SAFETY: a system call on an open descriptor.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
}

/// Raises this process's limit of open files to the system's maximum: each open run takes one.
pub fn raise_open_files_limit() {
    // SAFETY: system calls on a structure that is filled in before it is read.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Returns how many files this process may have open. `None`: there is no limit.
pub fn open_files_limit() -> Option<u64> {
    // SAFETY: a system call on a structure that is filled in before it is read.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        let known = libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0;
        (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }
}

/// Returns how often threads of this process have gone to sleep by themselves, including threads
/// that have ended and excluding this thread.
#[cfg(target_os = "linux")]
pub fn others_fell_asleep() -> u64 {
    let switches = |who| {
        // SAFETY: a system call on a structure that is filled in before it is read.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            match libc::getrusage(who, &raw mut usage) {
                0 => usage.ru_nvcsw as u64,
                _ => 0,
            }
        }
    };
    switches(libc::RUSAGE_SELF).wrapping_sub(switches(libc::RUSAGE_THREAD))
}

/// Makes writes beyond the limit of file sizes (`ulimit -f`) fail as other writes do. Otherwise
/// they would end the process silently.
pub fn ignore_file_size_signal() {
    // SAFETY: a system call; nothing runs when the signal comes.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Starts fetching the cache line of `items[index]`; does nothing if that is outside.
#[inline(always)]
pub fn prefetch<T>(items: &[T], index: usize) {
    if index < items.len() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the address is inside the slice, and a prefetch reads nothing architecturally.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().add(index).cast());
        }
    }
}

/// Returns a bit for each of the 64 bytes that equals `byte`, lowest bit first.
#[inline(always)]
pub fn match_byte(bytes: &[u8; 64], byte: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 belongs to every x86-64, and each load lies within the 64 bytes.
    unsafe {
        use std::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let wanted = _mm_set1_epi8(byte as i8);
        let lane = |at: usize| {
            let found = _mm_cmpeq_epi8(_mm_loadu_si128(bytes.as_ptr().add(at).cast()), wanted);
            u64::from(_mm_movemask_epi8(found) as u16)
        };
        lane(0) | (lane(16) << 16) | (lane(32) << 32) | (lane(48) << 48)
    }
    #[cfg(not(target_arch = "x86_64"))]
    bytes
        .iter()
        .enumerate()
        .fold(0, |mask, (i, &b)| mask | (u64::from(b == byte) << i))
}

/// Returns the bytes that a process without privileges may still write to the file system of
/// `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros are a `statvfs`; the path ends with a zero byte, and the call writes to
    // nothing else.
    let (code, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut found), found)
    };
    match code {
        0 => Ok(found.f_bavail.saturating_mul(found.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn matching_bytes_are_found_at_every_place() {
        for place in 0..64 {
            let mut bytes = [7u8; 64];
            bytes[place] = 9;
            assert_eq!(match_byte(&bytes, 9), 1 << place);
            assert_eq!(match_byte(&bytes, 7), !(1 << place));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn free_bytes_are_those_of_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).is_ok());
        assert!(free_bytes(&dir.path().join("nothing")).is_err());
        assert!(free_bytes(Path::new("a\0b")).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn shorter_turns_leave_the_nice_value_alone() {
        let seen = std::thread::spawn(|| {
            rustix::process::nice(3).unwrap();
            let before = scheduling().unwrap();
            limit_turns(std::time::Duration::from_micros(200));
            (before, scheduling().unwrap())
        });
        let (before, after) = seen.join().unwrap();
        assert_eq!(before.sched_nice, after.sched_nice);
        assert_eq!(before.sched_policy, after.sched_policy);
        // Systems that support turns report the requested one.
        assert!(before.sched_runtime == 0 || after.sched_runtime == 200_000);
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn background_threads_do_not_inherit_the_turns_of_threads_that_answer() {
        use crate::{start_answering, start_behind};
        let own = scheduling().unwrap().sched_runtime;
        let seen = start_answering("answers", || {
            let background = start_behind("behind", || scheduling().unwrap().sched_runtime);
            (
                scheduling().unwrap().sched_runtime,
                background.unwrap().join().unwrap(),
            )
        });
        let (answering, background) = seen.unwrap().join().unwrap();
        assert!(
            own == 0 || (answering < own && background == own),
            "{own} {answering} {background}"
        );
    }

    #[test]
    fn prefetching_outside_the_file_does_nothing() {
        prefetch::<u8>(&[], 0);
        prefetch(&[1u8, 2, 3], 3);
        prefetch(&[1u8, 2, 3], usize::MAX);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn a_file_truncated_while_mapped_reads_as_zeros_and_is_marked() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![5u8; 64 * 1024]).unwrap();
        let map = Mapping::new(&file).unwrap();
        assert_eq!(map.bytes()[60_000], 5);
        assert!(!map.damaged());
        file.set_len(4096).unwrap();
        assert_eq!(map.bytes()[0], 5);
        assert!(!map.damaged());
        assert_eq!(map.bytes()[60_000], 0);
        assert!(map.damaged());
        drop(map);
        let other = tempfile::tempfile().unwrap();
        other.set_len(10).unwrap();
        assert!(!Mapping::new(&other).unwrap().damaged());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a real file")]
    fn residency_has_an_entry_for_each_page() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![5u8; 10_000]).unwrap();
        let map = Mapping::new(&file).unwrap();
        assert_eq!(map.bytes()[9_999], 5);
        let pages = map.residency(0, usize::MAX).unwrap();
        assert_eq!(pages.len(), 3);
        assert!(pages.iter().all(|page| page & 1 == 1));
        assert!(map.residency(20_000, 5).unwrap().is_empty());
    }
}
