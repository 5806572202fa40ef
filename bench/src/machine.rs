//! What the system knows of this process: memory, mappings, device reads.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A field of /proc/self/status in bytes, such as `VmHWM` or `RssAnon`.
pub fn status_bytes(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with(field) && line[field.len()..].starts_with(':'));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|number| number.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Forgets the peak of resident memory so far, so that `VmHWM` is the peak from here on.
pub fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Watches the process's anonymous memory (heap, not mapped files) from a thread of its own, every
/// few milliseconds, until asked for the highest value seen.
pub struct AnonymousPeak {
    stop: Arc<AtomicBool>,
    watcher: JoinHandle<u64>,
}

impl AnonymousPeak {
    pub fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let watcher = std::thread::spawn(move || {
            let mut peak = 0;
            while !seen.load(Ordering::Relaxed) {
                peak = peak.max(status_bytes("RssAnon"));
                std::thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        Self { stop, watcher }
    }

    pub fn bytes(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap_or(0)
    }
}

pub fn files_under(store: &Path) -> Result<Vec<std::path::PathBuf>> {
    if store.is_file() {
        return Ok(vec![store.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(store).with_context(|| format!("no store {}", store.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_under(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The room that the files take on the device: holes do not count. Files that go away meanwhile are
/// left out.
pub fn disk_bytes_under(store: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let files = files_under(store)?;
    let blocks = files.iter().filter_map(|path| fs::metadata(path).ok());
    Ok(blocks.map(|file| file.blocks() * 512).sum())
}

/// A field of /proc/self/io, such as `write_bytes`: what this process caused to be written to the
/// device.
pub fn io_field(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The processor time that this process has used, the system's for it included.
pub fn cpu_seconds() -> f64 {
    // Safety: getrusage fills the struct it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Lets go of the page tables of this process's mappings of the store. REQUIRES mappings that are
/// only read; their pages stay in the system's cache.
pub fn release_mappings(store: &Path) -> Result<()> {
    for range in mappings_of(store)? {
        // Safety: a shared mapping of a file loses nothing by it.
        unsafe {
            libc::madvise(
                range.start as *mut _,
                range.end - range.start,
                libc::MADV_DONTNEED,
            )
        };
    }
    Ok(())
}

pub fn bytes_under(store: &Path) -> Result<u64> {
    files_under(store)?
        .iter()
        .map(|path| Ok(fs::metadata(path)?.len()))
        .sum()
}

/// Drops the files' pages from the page cache. Pages that some process has mapped and touched stay.
pub fn drop_cache(store: &Path) -> Result<()> {
    for path in files_under(store)? {
        let file = fs::File::open(path)?;
        file.sync_all()?;
        // Safety: plain advice on a descriptor that is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

/// Reads the files through once, so that they are in the page cache.
pub fn warm_cache(store: &Path) -> Result<()> {
    use std::io::Read;
    let mut buffer = vec![0u8; 1 << 20];
    for path in files_under(store)? {
        let mut file = fs::File::open(path)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// One mapping of a file below a path.
struct Range {
    start: usize,
    end: usize,
}

fn mappings_of(store: &Path) -> Result<Vec<Range>> {
    let store = fs::canonicalize(store)?;
    let text = fs::read_to_string("/proc/self/maps")?;
    let mut ranges = Vec::new();
    for line in text.lines() {
        let Some(at) = line.find('/') else { continue };
        if !Path::new(&line[at..]).starts_with(&store) {
            continue;
        }
        let bounds = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (start, end) = bounds.context("unreadable /proc/self/maps")?;
        ranges.push(Range {
            start: usize::from_str_radix(start, 16)?,
            end: usize::from_str_radix(end, 16)?,
        });
    }
    Ok(ranges)
}

/// Asks for huge pages on this process's mappings of the store, as Forebay does on its own. It only
/// helps pages not yet in the cache: call `drop_cache` before, `touch_mappings` after.
pub fn advise_huge(store: &Path) -> Result<()> {
    for range in mappings_of(store)? {
        // Safety: advice on a live mapping of this process; changes no contents.
        unsafe {
            libc::madvise(
                range.start as *mut _,
                range.end - range.start,
                libc::MADV_HUGEPAGE,
            )
        };
    }
    Ok(())
}

/// Touches each page of the store's mappings, so that no measured get pays a page fault.
pub fn touch_mappings(store: &Path) -> Result<()> {
    let mut sum = 0u64;
    for range in mappings_of(store)? {
        let backed = range
            .end
            .min(range.start + file_bytes_behind(&range, store)?);
        for address in (range.start..backed).step_by(4096) {
            // Safety: within a live readable mapping, and before the end of its file.
            sum = sum.wrapping_add(u64::from(unsafe { (address as *const u8).read_volatile() }));
        }
    }
    std::hint::black_box(sum);
    Ok(())
}

/// How many bytes of the mapping the store's largest file backs: LMDB maps more than its file
/// holds.
fn file_bytes_behind(range: &Range, store: &Path) -> Result<usize> {
    let text = fs::read_to_string("/proc/self/maps")?;
    let start = format!("{:x}-", range.start);
    let line = text
        .lines()
        .find(|line| line.trim_start_matches('0').starts_with(&start));
    let line = line.with_context(|| format!("mapping of {} went away", store.display()))?;
    let offset = line
        .split_whitespace()
        .nth(2)
        .context("unreadable /proc/self/maps")?;
    let path = &line[line.find('/').unwrap_or(line.len())..];
    Ok((fs::metadata(path)?.len() as usize).saturating_sub(usize::from_str_radix(offset, 16)?))
}

/// Of the store's mappings: resident bytes, and those of them held by huge entries of the page
/// table.
pub fn mapped_bytes(store: &Path) -> Result<Value> {
    let store = fs::canonicalize(store)?;
    let text = fs::read_to_string("/proc/self/smaps")?;
    let (mut ours, mut resident, mut huge) = (false, 0u64, 0u64);
    for line in text.lines() {
        if let Some((name, rest)) = line.split_once(':').filter(|(name, _)| !name.contains(' ')) {
            let kib = rest
                .split_whitespace()
                .next()
                .and_then(|n| n.parse::<u64>().ok())
                .unwrap_or(0);
            match name {
                "Rss" if ours => resident += kib * 1024,
                "FilePmdMapped" if ours => huge += kib * 1024,
                _ => {}
            }
        } else {
            ours = line
                .find('/')
                .is_some_and(|at| Path::new(&line[at..]).starts_with(&store));
        }
    }
    Ok(json!({"resident": resident, "huge": huge}))
}

/// Counters of reads from the device: bytes of this process, its major page faults, and the reads
/// of all the machine's disks together (others' too: take medians).
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceReads {
    pub bytes: u64,
    pub major_faults: u64,
    pub disk_reads: u64,
}

impl DeviceReads {
    pub fn now() -> Result<Self> {
        // Safety: getrusage fills the struct it is given.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        Ok(Self {
            bytes: io_field("read_bytes"),
            major_faults: usage.ru_majflt as u64,
            disk_reads: disk_reads()?,
        })
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            major_faults: self.major_faults - before.major_faults,
            disk_reads: self.disk_reads - before.disk_reads,
        }
    }
}

/// Reads completed of whole disks, not of their partitions again.
fn disk_reads() -> Result<u64> {
    let text = fs::read_to_string("/proc/diskstats")?;
    let mut total = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() > 3 && Path::new("/sys/block").join(fields[2]).exists() {
            total += fields[3].parse::<u64>().unwrap_or(0);
        }
    }
    Ok(total)
}
