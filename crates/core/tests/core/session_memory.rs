//! Memory of a scan: 150 bytes a record at most, beside what does not grow with the file.
//!
//! A process of its own reads each file, so that nothing else counts.
#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the process that is measured gets its task by the environment, and prints the result"
)]

use std::{
    env, fs,
    io::{self, Read},
    process::Command,
};

use antiphon_core::sessions::scan_session;

/// Most bytes that are kept of a record.
const BYTES_MAX: u64 = 150;
/// Records of the smaller file. Tables of hashes have grown before it, and once more before each doubling.
const RECORDS: u64 = 15_000;
/// Records of the larger file for each of the smaller one. The system counts pages in batches, some hundred kilobytes at
/// once, so that the difference of the two must be much larger.
const TIMES: u64 = 8;
/// The variable with the client and the number of records.
const TASK: &str = "SESSION_MEMORY_TASK";

/// A file that is written while it is read.
struct WrittenFile {
    record: fn(u64) -> String,
    next: u64,
    count: u64,
    line: io::Cursor<Vec<u8>>,
}

impl Read for WrittenFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.line.read(buffer)?;
        if read > 0 || self.next == self.count {
            return Ok(read);
        }
        self.line = io::Cursor::new(((self.record)(self.next) + "\n").into_bytes());
        self.next += 1;
        self.line.read(buffer)
    }
}

fn uuid(id: u64) -> String {
    let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("{id:08x}-0000-4000-8000-{:012x}", mixed >> 16)
}

/// Returns a record of a loop: a prompt, a call, its result, an answer.
fn claude_code_record(id: u64) -> String {
    let parent = id
        .checked_sub(1)
        .map_or_else(|| "null".to_owned(), |parent| format!("\"{}\"", uuid(parent)));
    let (kind, content) = match id % 4 {
        0 => ("user", r#""x""#.to_owned()),
        1 => (
            "assistant",
            format!(r#"[{{"type":"tool_use","id":"toolu_01{id:022}","name":"Bash","input":{{}}}}]"#),
        ),
        2 => (
            "user",
            format!(
                r#"[{{"type":"tool_result","tool_use_id":"toolu_01{:022}","content":"x"}}]"#,
                id - 1
            ),
        ),
        _ => ("assistant", r#"[{"type":"text","text":"x"}]"#.to_owned()),
    };
    format!(
        r#"{{"parentUuid":{parent},"sessionId":"{}","version":"2.1.332","type":"{kind}","message":{{"id":"msg_{id}","role":"{kind}","content":{content}}},"uuid":"{}"}}"#,
        uuid(0),
        uuid(id)
    )
}

/// Returns a record of a loop: a prompt, a call, its output.
fn codex_record(id: u64) -> String {
    let (kind, payload) = match (id, id % 3) {
        (0, _) => ("session_meta", r#"{"id":"s","cli_version":"0.171.0"}"#.to_owned()),
        (_, 0) => (
            "response_item",
            format!(
                r#"{{"type":"function_call_output","call_id":"call_{:024}","output":"x"}}"#,
                id - 1
            ),
        ),
        (_, 1) => (
            "response_item",
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}"#.to_owned(),
        ),
        _ => (
            "response_item",
            format!(r#"{{"type":"function_call","name":"shell","arguments":"{{}}","call_id":"call_{id:024}"}}"#),
        ),
    };
    format!(r#"{{"timestamp":"2026-11-30T00:00:00.000Z","type":"{kind}","ordinal":{id},"payload":{payload}}}"#)
}

/// Returns the largest memory of this process so far, in bytes.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the memory that the scan of a file of so many records takes, in bytes.
fn measure(client: &str, records: u64) -> u64 {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "session_memory::one_scan", "--ignored", "--nocapture"])
        .env(TASK, format!("{client} {records}"))
        // What is free goes back to the system, so that the peak is that of what is in use.
        .env("MALLOC_MMAP_THRESHOLD_", "16384")
        .env("MALLOC_TRIM_THRESHOLD_", "16384")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    let bytes = said.lines().find_map(|line| line.split_once("bytes: "));
    bytes.unwrap_or_else(|| panic!("{said}")).1.parse().unwrap()
}

#[test]
#[ignore = "the process that the other test measures"]
fn one_scan() {
    let task = env::var(TASK).unwrap();
    let (client, count) = task.split_once(' ').unwrap();
    let record = if client == "codex" {
        codex_record
    } else {
        claude_code_record
    };
    let (count, line) = (count.parse().unwrap(), io::Cursor::default());
    let before = peak_bytes();
    let mut file = WrittenFile {
        record,
        next: 0,
        count,
        line,
    };
    let report = scan_session(&mut file).unwrap().unwrap();
    assert_eq!(report.lines, count);
    println!("bytes: {}", peak_bytes() - before);
}

#[test]
fn a_record_takes_150_bytes_at_most() {
    for client in ["claude-code", "codex"] {
        let [small, large] = [RECORDS, TIMES * RECORDS].map(|records| measure(client, records));
        let each = large.saturating_sub(small) / ((TIMES - 1) * RECORDS);
        println!("{client}: {each} bytes a record, {small} and {large} in all");
        assert!(each > 0 && each <= BYTES_MAX, "{client}: {each} bytes a record");
    }
}
