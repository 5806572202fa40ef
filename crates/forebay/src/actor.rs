//! The user and machine that run the process, for the history of a store.

use std::path::Path;

use forebay_engine::Actor;
use forebay_io::Disk;

/// Returns the user of the operating system and the machine's name.
pub fn of_process(disk: &dyn Disk) -> Actor {
    let read = |path: &str| {
        let bytes = disk.read(Path::new(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let uid = rustix::process::geteuid().as_raw().to_string();
    let user = user_of(&read("/etc/passwd"), &uid).unwrap_or(format!("uid {uid}"));
    let host = match read("/proc/sys/kernel/hostname").trim() {
        "" => "unknown".to_owned(),
        host => host.to_owned(),
    };
    Actor {
        user,
        host,
        ..Actor::default()
    }
}

/// Returns the name of a user in a passwd file.
fn user_of(passwd: &str, uid: &str) -> Option<String> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut parts| {
        let name = parts.next()?;
        (parts.nth(1) == Some(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let passwd = "root:x:0:0:root:/:/bin/sh\n\nada:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_of(passwd, "1000").as_deref(), Some("ada"));
        assert_eq!(user_of(passwd, "0").as_deref(), Some("root"));
        assert_eq!(user_of(passwd, "10"), None);
    }
}
