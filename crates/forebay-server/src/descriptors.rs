//! Divides the file descriptors of the process.
//!
//! Each open run and each connection takes one. A quarter of the system's limit is reserved for
//! files that are opened later (flushes, merges, new versions), and some are for HTTP. RESP
//! connections may take the rest, but at most what the files that are open now leave. So many
//! clients cannot keep a table from writing its runs, and growing tables reduce the number of
//! clients.

use std::path::Path;

use forebay_io::Disk;

use crate::config::Limits;

/// RESP connections that are always possible.
const LEAST_CONNECTIONS: usize = 16;
/// HTTP connections that are always possible.
const LEAST_HTTP: usize = 8;
/// Files that tables open in the course of their work.
const LEAST_FILES: usize = 32;
/// HTTP connections beyond the limit; each gets an answer and is closed.
const MOST_EXTRA_HTTP: usize = 32;
/// Descriptors of a runtime, and of the program beside its threads.
const OF_A_THREAD: usize = 4;
const OF_THE_PROGRAM: usize = 16;

/// The division of the file descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptors {
    /// How many the process may have; `None`: unknown.
    limit: Option<usize>,
    wanted_connections: usize,
    pub http_connections: usize,
    pub extra_http: usize,
}

impl Descriptors {
    /// Divides the limit. `Err` is the least limit that is enough.
    pub fn share(limit: Option<usize>, threads: usize, limits: &Limits) -> Result<Self, usize> {
        let all = limit.unwrap_or(usize::MAX);
        let least = OF_THE_PROGRAM
            + OF_A_THREAD * (threads + 2)
            + LEAST_FILES
            + 2 * LEAST_HTTP
            + LEAST_CONNECTIONS;
        if all < least {
            return Err(least);
        }
        let http_connections = limits.http_connections.min((all / 16).max(LEAST_HTTP));
        Ok(Self {
            limit,
            wanted_connections: limits.connections,
            http_connections,
            extra_http: http_connections.min(MOST_EXTRA_HTTP),
        })
    }

    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Returns how many RESP connections are possible beside `others`, the open descriptors of
    /// everything else.
    pub fn connections(&self, others: usize) -> usize {
        let Some(limit) = self.limit else {
            return self.wanted_connections;
        };
        let kept = others + (limit / 4).max(LEAST_FILES) + self.http_connections + self.extra_http;
        let room = limit.saturating_sub(kept).max(LEAST_CONNECTIONS);
        room.min(self.wanted_connections)
    }
}

/// Returns how many descriptors the process has open; `None` if the system does not say.
pub fn open(disk: &dyn Disk) -> Option<usize> {
    Some(disk.list(Path::new("/proc/self/fd")).ok()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(limit: usize) -> Result<Descriptors, usize> {
        Descriptors::share(Some(limit), 2, &Limits::default())
    }

    #[test]
    fn connections_get_the_descriptors_that_files_leave() {
        let shares = share(1024).expect("enough");
        assert_eq!((shares.http_connections, shares.extra_http), (64, 32));
        assert_eq!(shares.connections(50), 1024 - 256 - 64 - 32 - 50);
        assert_eq!(shares.connections(300), 1024 - 256 - 64 - 32 - 300);
        assert_eq!(shares.connections(2000), LEAST_CONNECTIONS);
        let many = share(1 << 20).expect("enough");
        assert_eq!((many.connections(50), many.http_connections), (10_000, 256));
        let unknown = Descriptors::share(None, 2, &Limits::default()).expect("enough");
        assert_eq!(unknown.connections(50), 10_000);
    }

    #[test]
    fn too_few_descriptors_are_refused_with_the_required_number() {
        let least = share(60).expect_err("too few");
        let shares = share(least).expect("enough");
        let program = OF_THE_PROGRAM + OF_A_THREAD * 4;
        assert_eq!(shares.connections(program), LEAST_CONNECTIONS);
        assert!(share(least - 1).is_err());
    }
}
