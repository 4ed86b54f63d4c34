//! The locks that processes hold, as the system lists them.

use std::fs::File;

/// Returns the process that holds a lock of this file, as `/proc/locks` lists it.
#[cfg(target_os = "linux")]
pub(super) fn listed_holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| read_holder(line, inode))
}

/// Returns the process that holds a lock of this file.
#[cfg(not(target_os = "linux"))]
pub(super) const fn listed_holder(_file: &File) -> Option<u32> {
    None
}

/// Reads a line such as `2: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`, without those who wait.
#[cfg(target_os = "linux")]
fn read_holder(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?;
    let place = words.next()?;
    // On btrfs the device here is another one than that of the file, so the inode alone counts.
    let is_file = place.rsplit(':').next()?.parse() == Ok(inode);
    is_file.then(|| pid.parse().ok())?
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_locks_are_read() {
        for (line, pid) in [
            ("2: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", Some(4711)),
            ("2: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", None),
            ("2: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", None),
            ("2: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF", None),
            ("", None),
        ] {
            assert_eq!(read_holder(line, 1234), pid, "{line}");
        }
    }
}
