//! What this process may have of memory and cores: the machine's, or less by its control groups.

use std::path::{Path, PathBuf};

use forebay_io::Disk;

/// When nothing says how much memory there is.
const ASSUMED_BYTES: u64 = 1 << 30;

/// A quarter of the memory.
pub fn quarter(disk: &dyn Disk) -> u64 {
    let machine = read(disk, Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let groups = group_limits(disk);
    let least = machine.into_iter().chain(groups).min();
    least.unwrap_or(ASSUMED_BYTES) / 4
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The limits of the control groups that this process is in, and of those above them: a container,
/// a systemd service or slice.
fn group_limits(disk: &dyn Disk) -> Vec<u64> {
    let text = |path| read(disk, Path::new(path)).unwrap_or_default();
    let (groups, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mountinfo"));
    let mut limits = Vec::new();
    for mount in mounts.lines().filter_map(Mount::of) {
        let group = groups.lines().find_map(|line| mount.group(line));
        let mut dir = group.map_or_else(|| mount.point.clone(), |group| mount.dir(group));
        loop {
            let files = mount.files.iter().map(|file| dir.join(file));
            let texts = files.filter_map(|file| read(disk, &file));
            // "max": none.
            limits.extend(texts.filter_map(|text| text.trim().parse::<u64>().ok()));
            if dir == mount.point || !dir.pop() {
                break;
            }
        }
    }
    limits
}

/// A file system of control groups that may limit memory.
struct Mount {
    point: PathBuf,
    /// Which group is at the point.
    root: String,
    files: &'static [&'static str],
    is_v1: bool,
}

impl Mount {
    /// Of a line of /proc/self/mountinfo:
    /// `31 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw`
    fn of(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_v1 = match kind {
            "cgroup2" => false,
            "cgroup" if options.split(',').any(|option| option == "memory") => true,
            _ => return None,
        };
        Some(Self {
            point: PathBuf::from(point),
            root: root.to_owned(),
            files: match is_v1 {
                true => &["memory.limit_in_bytes"],
                false => &["memory.max", "memory.high"],
            },
            is_v1,
        })
    }

    /// Of a line of /proc/self/cgroup, `0::/a/b` or `4:memory:/a/b`, the group, if it is of this
    /// file system.
    fn group<'t>(&self, line: &'t str) -> Option<&'t str> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_its = match self.is_v1 {
            true => controllers.split(',').any(|one| one == "memory"),
            false => controllers.is_empty(),
        };
        is_its.then_some(group)
    }

    /// Where a group is. One that is not below the root is not to be seen from here.
    fn dir(&self, group: &str) -> PathBuf {
        let below = Path::new(group).strip_prefix(&self.root);
        let below = below.unwrap_or(Path::new(""));
        match below.components().any(|part| part.as_os_str() == "..") {
            true => self.point.clone(),
            false => self.point.join(below),
        }
    }
}

fn read(disk: &dyn Disk, path: &Path) -> Option<String> {
    String::from_utf8(disk.read(path).ok()?).ok()
}

/// `MemTotal:       24684084 kB` of /proc/meminfo, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use forebay_io::sim::SimDisk;

    use super::*;

    const MACHINE: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
    );
    const V2: &str = "31 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    /// A quarter of the memory of a machine with these files beside its 8 GiB, in MiB.
    fn quarter_mib(files: &[(&str, &str)]) -> u64 {
        let disk = SimDisk::new();
        for (path, text) in files.iter().chain([&MACHINE]) {
            let path = Path::new(path);
            disk.create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = disk.create(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        quarter(&disk) >> 20
    }

    #[test]
    fn without_groups_it_is_the_machines() {
        assert_eq!(quarter_mib(&[]), 2048);
        let none = [
            ("/proc/self/mountinfo", V2),
            ("/proc/self/cgroup", "0::/\n"),
        ];
        assert_eq!(quarter_mib(&none), 2048);
        assert_eq!(quarter(&SimDisk::new()), ASSUMED_BYTES / 4);
    }

    #[test]
    fn a_service_has_the_least_of_its_group_and_those_above() {
        let files = |service, slice| {
            quarter_mib(&[
                ("/proc/self/mountinfo", V2),
                ("/proc/self/cgroup", "0::/system.slice/forebay.service\n"),
                (
                    "/sys/fs/cgroup/system.slice/forebay.service/memory.max",
                    service,
                ),
                ("/sys/fs/cgroup/system.slice/memory.max", slice),
            ])
        };
        assert_eq!(files("536870912\n", "max\n"), 128);
        assert_eq!(files("536870912\n", "268435456\n"), 64);
        assert_eq!(files("max\n", "max\n"), 2048);
        assert_eq!(files("max\n", "99999999999999\n"), 2048);
    }

    #[test]
    fn what_is_throttled_counts_as_a_limit() {
        let files = [
            ("/proc/self/mountinfo", V2),
            ("/proc/self/cgroup", "0::/a\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/a/memory.high", "536870912\n"),
        ];
        assert_eq!(quarter_mib(&files), 128);
    }

    #[test]
    fn a_container_sees_its_group_at_the_root() {
        let v2 = [
            ("/proc/self/mountinfo", V2),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(quarter_mib(&v2), 128);
        let mount = "40 32 0:34 /docker/7f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let v1 = [
            ("/proc/self/mountinfo", mount),
            ("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/7f\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ];
        assert_eq!(quarter_mib(&v1), 128);
    }

    #[test]
    fn groups_of_the_first_version_count_as_well() {
        let mounts = "39 32 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      40 32 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let files = [
            ("/proc/self/mountinfo", mounts),
            (
                "/proc/self/cgroup",
                "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n",
            ),
            (
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "268435456\n",
            ),
        ];
        assert_eq!(quarter_mib(&files), 64);
    }

    #[test]
    fn the_total_is_found() {
        assert_eq!(
            total("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(total("nothing of the kind"), None);
    }
}
