//! The scan of session files by size: MB/s, with a count of line feeds (`wc -l`) over the same bytes as control.
//!
//! The files are read from disk, and both works take turns. A wrong result ends the bench, a slow one never does.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

mod support;

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    process::Command,
    time::Instant,
};

use antiphon_core::sessions::{SessionReport, scan_session};

use support::{Options, Table, number};

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sizes of the files in megabytes. The control of the last one may no longer fit into the cache of the disk.
const SIZES: [u64; 3] = [5, 50, 500];
/// Rounds of which the best one counts.
const ROUNDS: usize = 3;

fn main() {
    let Some(options) = Options::read() else { return };
    options.introduce(
        "sessions",
        "best of 3 runs over a file of 1 to 60 kB a record; wc -l is run over the same file, in turns",
    );
    let sizes = if options.quick { &SIZES[..2] } else { &SIZES };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sessions-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let head = [
        "client",
        "MB",
        "records",
        "scan MB/s",
        "wc -l MB/s",
        "scan : wc",
        "peak MiB",
    ];
    let mut table = Table::new("Session files", &head);
    for (client, line) in CLIENTS {
        for megabytes in sizes {
            let path = folder.join(format!("{client}-{megabytes}.jsonl"));
            let records = write_file(&path, line, megabytes * 1_000_000);
            table.row(client, measure(&path, records).map(number));
            fs::remove_file(&path).unwrap();
        }
    }
    fs::remove_dir(&folder).unwrap();
    table.print(options.markdown);
    options.conclude();
}

/// Writes the record of a number, with a text.
type WriteRecord = fn(u64, &str) -> String;

const CLIENTS: [(&str, WriteRecord); 2] = [("claude-code", claude_code_record), ("codex", codex_record)];

fn claude_code_record(id: u64, text: &str) -> String {
    let parent = match id.checked_sub(1) {
        Some(parent) => format!("\"{}\"", uuid(parent)),
        None => "null".to_owned(),
    };
    let (kind, content) = match id % 4 {
        0 => ("user", format!(r#""{text}""#)),
        2 => (
            "user",
            format!(
                r#"[{{"type":"tool_result","tool_use_id":"toolu_{}","content":"{text}"}}]"#,
                id - 1
            ),
        ),
        1 => (
            "assistant",
            format!(r#"[{{"type":"tool_use","id":"toolu_{id}","name":"Bash","input":{{"command":"{text}"}}}}]"#),
        ),
        _ => ("assistant", format!(r#"[{{"type":"text","text":"{text}"}}]"#)),
    };
    format!(
        r#"{{"parentUuid":{parent},"isSidechain":false,"userType":"external","cwd":"/home/u/app","sessionId":"{}","version":"2.1.332","type":"{kind}","message":{{"id":"msg_{id}","role":"{kind}","content":{content}}},"uuid":"{}","timestamp":"2026-11-30T00:00:00.000Z"}}"#,
        uuid(0),
        uuid(id),
    )
}

fn codex_record(id: u64, text: &str) -> String {
    let (kind, payload) = match id {
        0 => ("session_meta", r#"{"id":"s","cli_version":"0.171.0"}"#.to_owned()),
        _ => (
            "response_item",
            match id % 3 {
                0 => format!(
                    r#"{{"type":"function_call_output","call_id":"call_{}","output":"{text}"}}"#,
                    id - 1
                ),
                1 => {
                    format!(r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}"#)
                }
                _ => format!(r#"{{"type":"function_call","name":"shell","arguments":"{{}}","call_id":"call_{id}"}}"#),
            },
        ),
    };
    format!(r#"{{"timestamp":"2026-11-30T00:00:00.000Z","type":"{kind}","ordinal":{id},"payload":{payload}}}"#)
}

fn uuid(id: u64) -> String {
    format!("{id:08x}-0000-4000-8000-000000000000")
}

/// Writes a sound file of at least so many bytes. Returns its records.
fn write_file(path: &Path, record: WriteRecord, bytes: u64) -> u64 {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let text =
        r#"for (const row of rows) {\n\tprint(`\u001b[1m${row.name}\u001b[0m: \"${row.text}\"`);\n}\n"#.repeat(700);
    let (mut written, mut id) = (0, 0);
    while written < bytes {
        // Texts of 0 to 60 kB, most of them short, cut where no escape is.
        let length = 90 * (id * 7919 % 29) * u64::from(id % 8 == 0) + 90 * (id % 9);
        let end = usize::try_from(length).unwrap().min(text.len());
        let end = text[..end].rfind(' ').unwrap_or(0);
        let line = record(id, &text[..end]) + "\n";
        file.write_all(line.as_bytes()).unwrap();
        written += line.len() as u64;
        id += 1;
    }
    file.into_inner().unwrap().sync_all().unwrap();
    id
}

/// Returns the figures of a row.
fn measure(path: &Path, records: u64) -> [f64; 6] {
    let megabytes = fs::metadata(path).unwrap().len() as f64 / 1e6;
    let (mut scan, mut control) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let report = scan_file(path);
        scan = scan.min(begin.elapsed().as_secs_f64());
        assert_eq!((report.lines, report.findings.len()), (records, 0), "a sound file");
        let begin = Instant::now();
        let counted = Command::new("wc").arg("-l").arg(path).output().unwrap();
        control = control.min(begin.elapsed().as_secs_f64());
        let counted = String::from_utf8(counted.stdout).unwrap();
        assert!(counted.starts_with(&format!("{records} ")), "{counted}");
    }
    let peak = peak_mebibytes();
    [
        megabytes,
        records as f64,
        megabytes / scan,
        megabytes / control,
        scan / control,
        peak,
    ]
}

fn scan_file(path: &Path) -> SessionReport {
    scan_session(&mut File::open(path).unwrap()).unwrap().unwrap()
}

/// Returns the largest memory of this process so far.
fn peak_mebibytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}
