//! The memory and cores of this process: the machine's, or less by its control groups.

use std::path::Path;

use forebay_io::{Disk, memory_quota};

/// The memory if nothing says how much there is.
const ASSUMED_BYTES: u64 = 1 << 30;

/// Returns a quarter of the memory.
pub fn quarter(disk: &dyn Disk) -> u64 {
    let machine = read(disk, "/proc/meminfo").and_then(|text| total(&text));
    let least = machine.into_iter().chain(memory_quota()).min();
    least.unwrap_or(ASSUMED_BYTES) / 4
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(disk: &dyn Disk, path: &str) -> Option<String> {
    String::from_utf8(disk.read(Path::new(path)).ok()?).ok()
}

/// Parses `MemTotal:       24684084 kB` of /proc/meminfo, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        assert_eq!(
            total("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(total("nothing of the kind"), None);
    }
}
