//! The memory that the process may use, and the part of it that request bodies get by default.

use std::{fs, path::Path};

/// Part of the process' memory that request bodies may use by default: a quarter.
const DEFAULT_PART: u64 = 4;
/// Memory of a process whose limit cannot be read: 4 GiB.
const UNKNOWN_LIMIT: u64 = 4 * 1024 * 1024 * 1024;

/// Returns the default limit for the bytes of all request bodies, where one body may have `inspect_bytes_max`.
///
/// It is a quarter of what the machine or the container allows, an eighth of a limited address space, and at least 2.2
/// times the largest body: its bytes as they came and decoded, with a margin.
pub fn default_body_memory(inspect_bytes_max: usize) -> u64 {
    least_body_memory(inspect_bytes_max).max(process_limit() / DEFAULT_PART)
}

/// Returns the smallest limit that is accepted: 2.2 times the largest body.
pub fn least_body_memory(inspect_bytes_max: usize) -> u64 {
    (inspect_bytes_max as u64).saturating_mul(22).div_ceil(10)
}

/// Returns the least of the limits of the machine, the container and the address space, in bytes.
pub fn process_limit() -> u64 {
    let limits = [
        machine_memory(),
        container_limit(Path::new("/sys/fs/cgroup"), &own_groups()),
        address_space(),
    ];
    limits.into_iter().flatten().min().unwrap_or(UNKNOWN_LIMIT)
}

/// Returns the memory of the machine.
fn machine_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the memory that a limit of the address space leaves. `None` if there is no such limit.
fn address_space() -> Option<u64> {
    // Half of it: buffers that grow, and threads, reserve more of it than they use.
    #[cfg(unix)]
    return Some(rustix::process::getrlimit(rustix::process::Resource::As).current? / 2);
    #[cfg(not(unix))]
    None
}

/// Returns the control groups of this process, as `/proc/self/cgroup` lists them.
fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the least limit of the process' control group and of the groups around it.
///
/// In a container its own group is usually mounted as the root, so a group that is not found there is skipped.
fn container_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        // `0::/path` in version 2, `4:memory:/path` in version 1.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        for group in own.ancestors().take_while(|group| group.starts_with(&root)) {
            let limit = fs::read_to_string(group.join(file)).ok();
            // `max` is no limit. Version 1 says so by a number larger than any memory, which loses every comparison.
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_quarter_and_at_least_two_bodies() {
        let limit = process_limit();
        assert!(limit > 0);
        assert_eq!(default_body_memory(1), limit / 4);
        assert_eq!(
            default_body_memory(usize::MAX / 64),
            (usize::MAX as u64 / 64 * 22).div_ceil(10)
        );
    }

    #[test]
    fn the_least_limit_of_the_groups_around_counts() {
        let root = std::env::temp_dir().join(format!("antiphon-groups-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("pod/memory.max", "1000\n");
        write("pod/proxy/memory.max", "max\n");
        assert_eq!(container_limit(&root, "0::/pod/proxy\n"), Some(1000));
        // Inside a container the path is that of the host.
        write("memory.max", "900\n");
        assert_eq!(container_limit(&root, "0::/not/mounted\n"), Some(900));
        write("memory/box/memory.limit_in_bytes", "800\n");
        assert_eq!(container_limit(&root, "5:cpu:/\n4:memory:/box\n"), Some(800));
        assert_eq!(container_limit(&root, "nonsense\n5:cpu:/x\n"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
