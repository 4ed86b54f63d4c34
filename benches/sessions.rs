//! The scan of session files by size: MB/s, with a count of line feeds (`wc -l`) over the same bytes as control.
//!
//! The files are read from disk, and both works take turns. A wrong result ends the bench, a slow one never does. The
//! memory is that of a process of its own for each file.
//!
//! `SESSIONS_MB=2000` adds a size. With `ANTIPHON_BIN` that binary reads a folder of 10,000 sessions of 100 kB too.
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
    ffi::OsStr,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    process::{Command, Output},
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
/// Marks the arguments of the process whose memory is measured.
const INSIDE: &str = "--inside";
/// Sessions of the folder, and with `--quick`.
const SESSIONS: [usize; 2] = [10_000, 500];
/// Bytes of each of them.
const SESSION_BYTES: u64 = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [inside, path] = arguments.as_slice()
        && inside == INSIDE
    {
        let before = peak_bytes();
        let report = scan_file(Path::new(path));
        println!("{}", (peak_bytes() - before) / report.lines as f64);
        return;
    }
    let Some(options) = Options::read() else { return };
    options.introduce(
        "sessions",
        "best of 3 runs over a file of 0.3 to 60 kB a record; wc -l is run over the same file, in turns",
    );
    let sizes = if options.quick { &SIZES[..2] } else { &SIZES };
    let more = std::env::var("SESSIONS_MB").ok().map(|size| size.parse().unwrap());
    let sizes: Vec<u64> = sizes.iter().copied().chain(more).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sessions-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let head = [
        "client",
        "MB",
        "records",
        "scan MB/s",
        "wc -l MB/s",
        "scan : wc",
        "bytes a record",
    ];
    let mut table = Table::new("Session files", &head);
    for (client, line) in CLIENTS {
        for megabytes in &sizes {
            let path = folder.join(format!("{client}-{megabytes}.jsonl"));
            let records = write_file(&path, line, megabytes * 1_000_000);
            table.row(client, measure(&path, records).map(number));
            fs::remove_file(&path).unwrap();
        }
    }
    table.print(options.markdown);
    if let Some(binary) = std::env::var_os("ANTIPHON_BIN") {
        let mut table = Table::new(
            "Folders of sessions",
            &["client", "sessions", "MB", "doctor MB/s", "wc -l MB/s", "doctor : wc"],
        );
        for (client, line) in CLIENTS {
            let below = folder.join(client);
            table.row(
                client,
                measure_folder(&binary, &below, line, SESSIONS[usize::from(options.quick)]).map(number),
            );
            fs::remove_dir_all(&below).unwrap();
        }
        table.print(options.markdown);
    }
    fs::remove_dir(&folder).unwrap();
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
    // It ends with a whole round: a call without a result would be a finding.
    while written < bytes || id % 12 != 4 {
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
        let counted = run(Command::new("wc").arg("-l").arg(path));
        control = control.min(begin.elapsed().as_secs_f64());
        assert!(counted.starts_with(&format!("{records} ")), "{counted}");
    }
    let inside = run(Command::new(std::env::current_exe().unwrap()).arg(INSIDE).arg(path));
    [
        megabytes,
        records as f64,
        megabytes / scan,
        megabytes / control,
        scan / control,
        inside.trim().parse().unwrap(),
    ]
}

/// Returns the figures of a folder of sessions, which is made.
fn measure_folder(binary: &OsStr, folder: &Path, record: WriteRecord, sessions: usize) -> [f64; 5] {
    fs::create_dir_all(folder).unwrap();
    let names: Vec<String> = (0..sessions).map(|number| format!("{number:05}.jsonl")).collect();
    let mut bytes = 0;
    for name in &names {
        write_file(&folder.join(name), record, SESSION_BYTES);
        bytes += fs::metadata(folder.join(name)).unwrap().len();
    }
    let (mut doctor, mut control) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let told = run(Command::new(binary).arg("doctor").arg(folder));
        doctor = doctor.min(begin.elapsed().as_secs_f64());
        let wanted = format!("{sessions} sessions read, none damaged");
        assert!(told.contains(&wanted), "{told}");
        let begin = Instant::now();
        run(Command::new("wc").arg("-l").args(&names).current_dir(folder));
        control = control.min(begin.elapsed().as_secs_f64());
    }
    let megabytes = bytes as f64 / 1e6;
    [
        sessions as f64,
        megabytes,
        megabytes / doctor,
        megabytes / control,
        doctor / control,
    ]
}

/// Runs a command that must succeed, and returns what it prints.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn scan_file(path: &Path) -> SessionReport {
    scan_session(&mut File::open(path).unwrap()).unwrap().unwrap()
}

/// Returns the largest memory of this process so far. Not a number where the system does not tell it.
fn peak_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1024.0)
}
