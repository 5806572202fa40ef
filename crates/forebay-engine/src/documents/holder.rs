//! Locks that name their holders.

use std::path::Path;
use std::time::Duration;

use forebay_io::{Clock, Disk, Lock};

use crate::error::{At, StoreError};

/// The longest wait of a swap, rollback, commit or removal for another one. Each takes
/// milliseconds, so a longer wait means that a process hangs.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(5);

/// Returns the text that a lock's holder leaves for others: its action, its name, its start time.
pub(crate) fn holder_words(disk: &dyn Disk, clock: &dyn Clock, what: &str) -> String {
    let host = match disk.read(Path::new("/proc/sys/kernel/hostname")) {
        Ok(name) => String::from_utf8_lossy(&name).trim().to_owned(),
        Err(_) => "unknown".to_owned(),
    };
    let pid = std::process::id();
    format!(
        "{what} by process {pid} on host {host} since {}",
        utc(clock.unix_ms())
    )
}

/// Takes the lock at once or returns the present holder's text.
pub(crate) fn try_lock(
    disk: &dyn Disk,
    path: &Path,
    words: &str,
) -> Result<Result<Box<dyn Lock>, String>, StoreError> {
    let outcome = disk.lock(path, words).at("lock", path)?;
    Ok(outcome.map_err(|holder| match holder.trim() {
        "" => "another process that has not said who it is".to_owned(),
        holder => holder.to_owned(),
    }))
}

/// Takes the lock, waiting a few seconds for a holder to finish.
pub(crate) fn wait_lock(
    disk: &dyn Disk,
    clock: &dyn Clock,
    path: &Path,
    what: &str,
) -> Result<Box<dyn Lock>, StoreError> {
    let lock = lock_within(disk, clock, path, what, PATIENCE)?;
    lock.map_err(|holder| StoreError::Locked {
        path: path.to_path_buf(),
        holder,
    })
}

/// Takes the lock, waiting for at most so long, or returns the text of its holder. `what` tells
/// others the purpose; the holder and the start time are added.
pub fn lock_within(
    disk: &dyn Disk,
    clock: &dyn Clock,
    path: &Path,
    what: &str,
    patience: Duration,
) -> Result<Result<Box<dyn Lock>, String>, StoreError> {
    let words = holder_words(disk, clock, what);
    let start = clock.monotonic();
    loop {
        match try_lock(disk, path, &words)? {
            Err(_) if clock.monotonic().saturating_sub(start) < patience => clock.sleep(RETRY),
            outcome => return Ok(outcome),
        }
    }
}

/// Formats milliseconds since 1970-01-01 UTC as `2026-11-21T22:15:00Z`.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the year, month and day of a number of days since 1970-01-01. It counts in 400-year
/// cycles of years that begin in March, where the leap day is last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let cycle = days / 146_097;
    let in_cycle = days % 146_097;
    let year = (in_cycle - in_cycle / 1460 + in_cycle / 36_524 - in_cycle / 146_096) / 365;
    let in_year = in_cycle - (365 * year + year / 4 - year / 100);
    let march_month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc(951_868_799_999), "2000-02-29T23:59:59Z");
        assert_eq!(utc(1_795_299_304_123), "2026-11-21T22:15:04Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00Z");
    }
}
