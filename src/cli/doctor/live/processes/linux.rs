//! Processes in `/proc`.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use super::{ProcessFacts, runs_claude};

/// Bytes of a command line that are read.
const WORDS_BYTES: usize = 4096;
/// Access modes in the flags of an open file: what is not zero may write.
const ACCESS_MODES: u32 = 0o3;

/// Lists the processes. The open files of those of other users cannot be read.
pub(super) fn list_processes() -> Result<Vec<ProcessFacts>, String> {
    let entries = fs::read_dir("/proc").map_err(|error| format!("/proc cannot be read: {error}"))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end at any step.
        if let Some(facts) = read_process(pid, &entry.path()) {
            found.push(facts);
        }
    }
    if found.iter().any(|facts| facts.pid == std::process::id()) {
        Ok(found)
    } else {
        Err("/proc does not show this user's processes".to_owned())
    }
}

fn read_process(pid: u32, folder: &Path) -> Option<ProcessFacts> {
    let stat = fs::read(folder.join("stat")).ok()?;
    let (name, start) = name_and_start(&String::from_utf8_lossy(&stat))?;
    let line = fs::read(folder.join("cmdline")).unwrap_or_default();
    let line = line.get(..WORDS_BYTES).unwrap_or(&line);
    let line = String::from_utf8_lossy(line);
    Some(ProcessFacts {
        pid,
        start,
        started_at: None,
        is_claude: runs_claude(&name, line.split('\0').filter(|word| !word.is_empty())),
        working_folder: fs::read_link(folder.join("cwd")).ok(),
        written_files: written_files(folder),
    })
}

/// Returns the name of a process and the field 22 of its line, its start in ticks.
fn name_and_start(stat: &str) -> Option<(String, String)> {
    // The name stands in parentheses, and may contain blanks and parentheses itself.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    // The first field after the name is the third one.
    let start = after.split_ascii_whitespace().nth(22 - 3)?;
    Some((name.to_owned(), start.to_owned()))
}

/// Returns device and inode of each open file that a process may write to.
fn written_files(folder: &Path) -> Vec<(u64, u64)> {
    let Ok(entries) = fs::read_dir(folder.join("fd")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        // Pipes and sockets have no path, and devices are no session.
        let is_file = target.is_absolute() && !target.starts_with("/dev");
        if !is_file || !may_write(folder, &entry.file_name()) {
            continue;
        }
        // The link of an open file leads to the file itself, also after a rename.
        if let Ok(metadata) = fs::metadata(entry.path()) {
            found.push((metadata.dev(), metadata.ino()));
        }
    }
    found
}

/// Returns `true` if an open file was not opened for reading alone.
fn may_write(folder: &Path, number: &std::ffi::OsStr) -> bool {
    let facts = fs::read_to_string(folder.join("fdinfo").join(number)).unwrap_or_default();
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & ACCESS_MODES != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_start_is_field_22_whatever_the_name() {
        let fields: Vec<String> = (4..=30).map(|field| format!("f{field}")).collect();
        for name in ["sleep", "a b", "x) S 1 (y", ""] {
            let stat = format!("7 ({name}) S {}", fields.join(" "));
            assert_eq!(name_and_start(&stat), Some((name.to_owned(), "f22".to_owned())));
        }
        assert_eq!(name_and_start("7 (cut) S 1"), None);
    }

    #[test]
    fn an_open_file_is_found_if_it_may_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, writes: bool| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            let file = fs::File::options().read(true).append(writes).open(path).unwrap();
            let metadata = file.metadata().unwrap();
            (file, (metadata.dev(), metadata.ino()))
        };
        let (written, read, other) = (open("a.jsonl", true), open("b.jsonl", false), open("c.txt", true));
        let processes = list_processes().unwrap();
        let own = processes.iter().find(|facts| facts.pid == std::process::id()).unwrap();
        assert!(own.written_files.contains(&written.1));
        assert!(!own.written_files.contains(&read.1));
        assert!(own.written_files.contains(&other.1), "a session may have any name");
        assert_eq!(own.working_folder, std::env::current_dir().ok());
    }
}
