//! The quotas of this process's control groups: those of a container, or of a systemd service or
//! slice.
//!
//! The least quota of its groups and their parents counts, in versions 1 and 2.

use std::path::{Path, PathBuf};

type ReadText<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Returns how many processors' time this process may use. `None`: there is no quota.
pub fn processor_quota() -> Option<f64> {
    processors(&|path| std::fs::read_to_string(path).ok())
}

/// Returns how many bytes of memory this process may have. `None`: there is no limit.
pub fn memory_quota() -> Option<u64> {
    memory(&|path| std::fs::read_to_string(path).ok())
}

fn processors(read: ReadText<'_>) -> Option<f64> {
    let dirs = group_dirs(read, "cpu").into_iter();
    let quotas = dirs.filter_map(|group| match group {
        GroupDir::Second(dir) => quota_2(&read(&dir.join("cpu.max"))?),
        GroupDir::First(dir) => quota_1(
            &read(&dir.join("cpu.cfs_quota_us"))?,
            &read(&dir.join("cpu.cfs_period_us"))?,
        ),
    });
    quotas.reduce(f64::min)
}

fn memory(read: ReadText<'_>) -> Option<u64> {
    let limits = group_dirs(read, "memory").into_iter().flat_map(|group| {
        let files = match group {
            GroupDir::First(dir) => vec![dir.join("memory.limit_in_bytes")],
            // Beyond the second limit the system slows the group until it has released memory.
            GroupDir::Second(dir) => vec![dir.join("memory.max"), dir.join("memory.high")],
        };
        // "max" is no limit.
        let limit = |file: PathBuf| read(&file)?.trim().parse().ok();
        files.into_iter().filter_map(limit)
    });
    limits.min()
}

/// The directory of a control group, by version.
enum GroupDir {
    First(PathBuf),
    Second(PathBuf),
}

/// Returns the directories of this process's groups and of their parents.
fn group_dirs(read: ReadText<'_>, controller: &str) -> Vec<GroupDir> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mut dirs = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        // A container may see its own group as the root, whatever its name outside.
        for group in path.ancestors() {
            if controllers.is_empty() {
                dirs.push(GroupDir::Second(Path::new("/sys/fs/cgroup").join(group)));
            } else if controllers.split(',').any(|one| one == controller) {
                let root = Path::new("/sys/fs/cgroup").join(controller);
                dirs.push(GroupDir::First(root.join(group)));
            }
        }
    }
    dirs
}

/// Parses a quota of version 2: `max 100000` or `25000 100000`.
fn quota_2(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    quota_1(words.next()?, words.next()?)
}

/// Parses a quota of version 1, where -1 is none.
fn quota_1(quota_us: &str, period_us: &str) -> Option<f64> {
    let quota_us: f64 = quota_us.trim().parse().ok()?;
    let period_us: f64 = period_us.trim().parse().ok()?;
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these files, where the first text is `/proc/self/cgroup`.
    fn with<'a>(
        groups: &'a str,
        files: &'a [(&'a str, &'a str)],
    ) -> impl Fn(&Path) -> Option<String> {
        move |path| {
            let own = ("/proc/self/cgroup", groups);
            let mut all = files.iter().chain([&own]);
            let file = all.find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn the_least_quota_of_processors_counts() {
        let of = |groups: &str, files: &[(&str, &str)]| processors(&with(groups, files));
        let root = "/sys/fs/cgroup/cpu.max";
        let above = "/sys/fs/cgroup/a/cpu.max";
        let own = "/sys/fs/cgroup/a/b/cpu.max";
        assert_eq!(of("0::/a/b\n", &[(own, "max 100000\n")]), None);
        let both = [(above, "50000 100000\n"), (own, "150000 100000\n")];
        assert_eq!(of("0::/a/b\n", &both), Some(0.5));
        assert_eq!(of("0::/out/side\n", &[(root, "25000 10000\n")]), Some(2.5));
        let first = [
            ("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "2500\n"),
            ("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "10000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        let groups = "5:memory:/c\n4:cpu,cpuacct:/c\n0::/\n";
        assert_eq!(of(groups, &first), Some(0.25));
        assert_eq!(of("4:cpu:/c\n", &[(own, "5 10")]), None);
        assert_eq!(of("nonsense\n\n", &[]), None);
    }

    #[test]
    fn the_least_limit_of_memory_counts() {
        let of = |groups: &str, files: &[(&str, &str)]| memory(&with(groups, files));
        let service = "/sys/fs/cgroup/system.slice/forebay.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        let group = "0::/system.slice/forebay.service\n";
        assert_eq!(
            of(group, &[(service, "4096\n"), (slice, "max\n")]),
            Some(4096)
        );
        assert_eq!(
            of(group, &[(service, "4096\n"), (slice, "2048\n")]),
            Some(2048)
        );
        assert_eq!(of(group, &[(service, "max\n")]), None);
        let high = "/sys/fs/cgroup/a/memory.high";
        assert_eq!(of("0::/a\n", &[(high, "512\n")]), Some(512));
        // In a container.
        assert_eq!(
            of("0::/\n", &[("/sys/fs/cgroup/memory.max", "77\n")]),
            Some(77)
        );
        let first = [
            (
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "268435456\n",
            ),
        ];
        let groups = "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n0::/\n";
        assert_eq!(of(groups, &first), Some(268_435_456));
        assert_eq!(of("", &[]), None);
    }
}
