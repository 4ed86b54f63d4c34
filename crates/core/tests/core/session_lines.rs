//! The records of session files, and the damage of their lines: each at its line and byte, whatever stands around it.

use std::io::{self, Cursor, Read};

use antiphon_core::{
    sessions::{
        FixKind,
        records::{FINDINGS_MAX, FileLines, RECORD_BYTES_MAX, read_records},
    },
    work,
};

use crate::support::growth::{TIMES, is_linear};

const A: &str = r#"{"type":"user","uuid":"a","sessionId":"s","message":{"content":"x"}}"#;
const B: &str = r#"{"type":"assistant","uuid":"b","sessionId":"s","message":{"content":[{"type":"text","text":"y"}]}}"#;
const C: &str = r#"{"type":"user","uuid":"c","sessionId":"s","message":{"content":"é\u2028"}}"#;
/// A record that was cut off inside of a text, and one that was cut off before a value.
const TORN: &str = r#"{"type":"user","uuid":"t","sessionId":"s","message":{"content":"lost"#;
const TORN_LIST: &str = r#"{"type":"user","uuid":"t","message":{"content":[{"type":"text","text":"lost"},"#;

/// A reader that gives few bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let some = self.1.min(self.0.len()).min(buffer.len());
        let (now, later) = self.0.split_at(some);
        buffer[..some].copy_from_slice(now);
        self.0 = later;
        Ok(some)
    }
}

/// Returns the findings as `line:byte+len code fix`, and the records as `line:byte`, with `!` for a skipped one.
fn read_file(text: &[u8]) -> (Vec<String>, Vec<String>, FileLines) {
    let mut records = Vec::new();
    let file = read_records(Cursor::new(text), |record| {
        let skipped = if record.is_skipped { "!" } else { "" };
        records.push(format!("{}:{}{skipped}", record.line, record.byte));
    })
    .unwrap();
    let findings = file.findings.iter().map(|found| {
        let (line, byte, len) = (found.line, found.byte, found.len);
        format!("{line}:{byte}+{len} {} {}", found.code.label(), found.fix.label())
    });
    (findings.collect(), records, file)
}

/// A file, its findings, and its records.
type Row = (&'static str, Vec<u8>, Vec<String>, Vec<String>);

fn row(name: &'static str, text: impl AsRef<[u8]>, findings: &[&str], records: &[&str]) -> Row {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    (name, text.as_ref().to_vec(), owned(findings), owned(records))
}

fn sound_rows() -> Vec<Row> {
    let (a, b) = (A.len(), B.len());
    let second = format!("2:{}", a + 1);
    vec![
        row("two records", format!("{A}\n{B}\n"), &[], &["1:0", &second]),
        row("no line feed at the end", format!("{A}\n{B}"), &[], &["1:0", &second]),
        row(
            "CRLF",
            format!("{A}\r\n{B}\r\n"),
            &[],
            &["1:0", &format!("2:{}", a + 2)],
        ),
        row(
            "blank lines",
            format!("\n{A}\n \t\n{B}\n"),
            &[],
            &["2:1", &format!("4:{}", a + 5)],
        ),
        row(
            "a raw U+2028",
            format!("{A}\n{{\"x\":\"\u{2028}\"}}\n"),
            &[],
            &["1:0", &second],
        ),
        row("spaces around", format!("   {A}  \n"), &[], &["1:3"]),
        row(
            "a title twice",
            "{\"type\":\"custom-title\",\"sessionId\":\"s\"}\n".repeat(2),
            &[],
            &["1:0", "2:40"],
        ),
        row("an emoji by escapes", r#"{"x":"\ud83d\ude00\\ud83d"}"#, &[], &["1:0"]),
        row(
            "a deep one",
            format!("{}{}", r#"{"a":"#.repeat(9_000) + "1", "}".repeat(9_000)),
            &[],
            &["1:0"],
        ),
        row(
            "nothing after a long one",
            format!("{A}{}\n", " ".repeat(b)),
            &[],
            &["1:0"],
        ),
    ]
}

fn damaged_rows() -> Vec<Row> {
    let (a, t) = (A.len(), TORN.len());
    let second = |start: usize| format!("2:{start}");
    vec![
        row("no byte", "", &["1:0+0 empty_file none"], &[]),
        row("blanks alone", "\n \n", &["1:0+0 empty_file none"], &[]),
        row(
            "a mark",
            format!("\u{feff}{A}\n"),
            &["1:0+3 byte_order_mark in_place"],
            &["1:3"],
        ),
        row(
            "a mark inside",
            format!("{A}\n\u{feff}{B}\n"),
            &[&format!("2:{}+3 torn_record in_place", a + 1)],
            &["1:0", &format!("2:{}!", a + 4)],
        ),
        row(
            "a torn end",
            format!("{A}\n{TORN}"),
            &[&format!("2:{}+{t} torn_record in_place", a + 1)],
            &["1:0"],
        ),
        row(
            "a torn line",
            format!("{TORN}\n{A}\n{B}\n"),
            &[&format!("1:0+{t} torn_record in_place")],
            &[&second(t + 1), &format!("3:{}", t + a + 2)],
        ),
        row(
            "a splice in a text",
            format!("{A}\n{TORN}{B}\n"),
            &[&format!("2:{}+{t} torn_record in_place", a + 1)],
            &["1:0", &format!("2:{}!", a + 1 + t)],
        ),
        row(
            "a splice before a value",
            format!("{TORN_LIST}{B}\n"),
            &[&format!("1:0+{} torn_record in_place", TORN_LIST.len())],
            &[&format!("1:{}!", TORN_LIST.len())],
        ),
        row(
            "fragment, record, fragment",
            format!("{TORN}{A}{TORN_LIST}\n"),
            &[
                &format!("1:0+{t} torn_record in_place"),
                &format!("1:{}+{} torn_record in_place", t + a, TORN_LIST.len()),
            ],
            &[&format!("1:{t}!")],
        ),
    ]
}

fn joined_rows() -> Vec<Row> {
    let (a, b) = (A.len(), B.len());
    let second = |start: usize| format!("2:{start}");
    vec![
        row(
            "three on a line",
            format!("{A}{B}{C}\n{A}\n"),
            &[
                &format!("1:0+{} joined_records append", a + b + C.len()),
                &format!("1:0+{a} repeated_record in_place"),
            ],
            &[
                "1:0!",
                &format!("1:{a}!"),
                &format!("1:{}!", a + b),
                &second(a + b + C.len() + 1),
            ],
        ),
        row(
            "two on a line, apart",
            format!("{A} {B}\n"),
            &[&format!("1:0+{} joined_records in_place", a + b + 1)],
            &["1:0!", &format!("1:{}!", a + 1)],
        ),
        row(
            "a value that is no object",
            format!("[{A}]\n{B}\n"),
            &[&format!("1:0+{} torn_record none", a + 2)],
            &[&second(a + 3)],
        ),
        row(
            "other text",
            format!("hello\n{A}\n"),
            &["1:0+5 torn_record in_place"],
            &["2:6"],
        ),
    ]
}

fn byte_rows() -> Vec<Row> {
    let (a, b) = (A.len(), B.len());
    let bad = [A.as_bytes(), b"\n{\"text\":\"\xff\xe2\x82\"}\n"].concat();
    let hole = |before: &str, nuls: usize, after: &str| [before.as_bytes(), &vec![0; nuls], after.as_bytes()].concat();
    vec![
        row(
            "NUL at the end",
            hole(&format!("{A}\n"), 9, ""),
            &[&format!("2:{}+9 nul_bytes in_place", a + 1)],
            &["1:0"],
        ),
        row("NUL before", hole("", 9, A), &["1:0+9 nul_bytes in_place"], &["1:9!"]),
        row(
            "NUL behind",
            hole(A, 9, "\n"),
            &[&format!("1:{a}+9 nul_bytes in_place")],
            &["1:0!"],
        ),
        row(
            "a hole between two",
            hole(A, 300_000, &format!("{B}\n")),
            &[
                &format!("1:0+{} joined_records in_place", a + b + 300_000),
                &format!("1:{a}+300000 nul_bytes in_place"),
            ],
            &["1:0!", &format!("1:{}!", a + 300_000)],
        ),
        row(
            "a hole in a torn one",
            hole(TORN, 200_000, &format!("\n{B}\n")),
            &[
                &format!("1:0+{} torn_record in_place", TORN.len()),
                &format!("1:{}+200000 nul_bytes in_place", TORN.len()),
            ],
            &[&format!("2:{}", TORN.len() + 200_001)],
        ),
        row(
            "no UTF-8",
            bad,
            &[&format!("2:{}+3 invalid_utf8 in_place", a + 10)],
            &["1:0", &format!("2:{}", a + 1)],
        ),
    ]
}

fn letter_rows() -> Vec<Row> {
    let (a, b) = (A.len(), B.len());
    let newline = r#"{"uuid":"n","text":"x"#;
    let n = newline.len();
    vec![
        row(
            "half of a character",
            r#"{"a":"\ud83d","b":"\ud83d\ude00","c":"\uDE00x"}"#,
            &["1:6+38 lone_surrogate in_place"],
            &["1:0"],
        ),
        row(
            "a line feed in a text",
            format!("{newline}\ny\n\nz\"}}\n{A}\n"),
            &[&format!("1:0+{} raw_newline in_place", n + 7)],
            &["1:0!", &format!("5:{}", n + 8)],
        ),
        row(
            "a tab in a text",
            format!("{newline}\ty\"}}\n{A}\n"),
            &[&format!("1:0+{} raw_newline in_place", n + 4)],
            &["1:0!", &format!("2:{}", n + 5)],
        ),
        row(
            "a line feed, and another record on the line",
            format!("{newline}\ny\"}}{A}\n"),
            &[
                &format!("1:0+{} raw_newline in_place", n + 4),
                &format!("2:0+{} joined_records append", n + 4 + a),
            ],
            &["1:0!", &format!("2:{}!", n + 4)],
        ),
        row(
            "torn, and lines that could go on",
            format!("{newline}\n{{\n{{}}\n{A}\n"),
            &[
                &format!("1:0+{n} torn_record in_place"),
                &format!("2:{}+1 torn_record in_place", n + 1),
            ],
            &[&format!("3:{}", n + 3), &format!("4:{}", n + 6)],
        ),
        row(
            "a record twice",
            format!("{A}\n{B}\n{A}\n"),
            &[&format!("3:{}+{a} repeated_record in_place", a + b + 2)],
            &["1:0", &format!("2:{}", a + 1)],
        ),
    ]
}

fn all_rows() -> Vec<Row> {
    [sound_rows(), damaged_rows(), joined_rows(), byte_rows(), letter_rows()].concat()
}

#[test]
fn each_damage_is_found_at_its_line() {
    let rows = all_rows();
    let differ = rows.iter().filter_map(|(name, text, findings, records)| {
        let (found, given, _) = read_file(text);
        let is_wanted = found == *findings && given == *records;
        (!is_wanted).then(|| format!("{name}:\n {found:?}\n {findings:?}\n {given:?}\n {records:?}\n"))
    });
    let differ: String = differ.collect();
    assert!(differ.is_empty(), "found and wanted:\n{differ}");
}

/// Clients treat a damage in one way at the first record, in another one where a record stands behind it, and pass over it
/// where none does.
#[test]
fn each_damage_says_which_record_is_lost_by_it() {
    for (name, lines, wanted) in [
        ("NUL alone", vec![A, "\0\0", B], "nul_bytes none"),
        ("NUL before a record", vec![A, "\0\0{\"x\":1}", B], "nul_bytes any"),
        ("NUL at the end", vec![A, "\0\0"], "nul_bytes none"),
        ("NUL alone, first", vec!["\0\0", A], "nul_bytes first"),
        ("a blank line and NUL, first", vec!["", "\0", "", A], "nul_bytes first"),
        (
            "NUL before the first record",
            vec![&format!("\0{A}"), B],
            "nul_bytes first",
        ),
        ("a torn end", vec![A, TORN], "torn_record none"),
        (
            "a torn end, and blank lines",
            vec![A, TORN, "", " "],
            "torn_record none",
        ),
        (
            "a torn end, and NUL",
            vec![A, TORN, "\0"],
            "torn_record none, nul_bytes none",
        ),
        (
            "NUL, and a torn end",
            vec![A, &format!("\0{TORN}")],
            "nul_bytes none, torn_record none",
        ),
        ("torn inside", vec![A, TORN, B], "torn_record any"),
        ("a splice", vec![A, &format!("{TORN}{B}")], "torn_record any"),
        ("torn, first", vec![TORN, A], "torn_record first"),
        ("a splice, first", vec![&format!("{TORN}{A}"), B], "torn_record first"),
        ("another value", vec![A, "null"], "torn_record any"),
        ("joined", vec![A, &format!("{B} {C}")], "joined_records any"),
        ("joined, first", vec![&format!("{A} {B}"), C], "joined_records first"),
        ("a line feed", vec![A, &B.replace('y', "y\n")], "raw_newline any"),
        (
            "a line feed, first",
            vec![&A.replace('x', "x\n"), B],
            "raw_newline first",
        ),
        (
            "NUL behind a line feed",
            vec![&A.replace('x', "x\n"), "\0"],
            "raw_newline first, nul_bytes none",
        ),
        ("no record", vec!["\0", TORN], "nul_bytes first, torn_record first"),
    ] {
        let file = read_file(lines.join("\n").as_bytes()).2;
        assert_eq!(losses(&file), wanted, "{name}");
    }
}

#[test]
fn each_bad_byte_says_which_record_is_lost_by_it() {
    let bad = b"{\"x\":\"\xff\"}".to_vec();
    for (name, before, after, wanted) in [
        ("a bad byte", &b""[..], &b"\n"[..], "invalid_utf8 any"),
        (
            "a bad byte in a torn end",
            b"{\"x\":\"",
            b"",
            "torn_record none, invalid_utf8 none",
        ),
    ] {
        let text = [
            A.as_bytes(),
            b"\n",
            before,
            &bad[..bad.len() - 2 * usize::from(after.is_empty())],
            after,
        ]
        .concat();
        assert_eq!(losses(&read_file(&text).2), wanted, "{name}");
    }
    assert_eq!(
        losses(&read_file(&[&bad, &b"\n"[..], A.as_bytes()].concat()).2),
        "invalid_utf8 first"
    );
}

/// Lists codes and losses, in the order of their names within one line.
fn losses(file: &FileLines) -> String {
    let found = file.findings.iter();
    let found = found.map(|found| format!("{} {}", found.code.label(), found.loss.label()));
    found.collect::<Vec<_>>().join(", ")
}

#[test]
fn lines_and_bytes_are_counted_however_they_come() {
    for (name, text, ..) in all_rows() {
        let (_, given, file) = read_file(&text);
        assert_eq!(file.bytes, text.len() as u64, "{name}");
        let feeds = memchr::memchr_iter(b'\n', &text).count() as u64;
        let ends = text.last().is_none_or(|byte| *byte == b'\n');
        assert_eq!(file.lines, feeds + u64::from(!ends), "{name}");
        // The pieces in which the bytes come change nothing.
        let mut again = Vec::new();
        let slow = read_records(Dribble(&text, 7), |record| again.push(record.byte)).unwrap();
        assert_eq!(slow.findings, file.findings, "{name}");
        assert_eq!(again.len(), given.len(), "{name}");
    }
}

/// A line of the largest size is read, and a longer one is told. What follows it is read too.
#[test]
fn a_line_may_have_64_mebibytes() {
    let start = r#"{"uuid":"l","x":""#;
    for (over, wanted) in [(0, None), (1, Some("long_record"))] {
        let fill = RECORD_BYTES_MAX - start.len() - 2 + over;
        let text = Cursor::new(start).chain(io::repeat(b'x').take(fill as u64));
        let text = text.chain(Cursor::new(format!("\"}}\n{A}\n{TORN}")));
        let mut lines = Vec::new();
        let file = read_records(text, |record| lines.push(record.line)).unwrap();
        let long: Vec<_> = file.findings.iter().map(|found| found.code.label()).collect();
        let wanted: Vec<_> = wanted.into_iter().chain(["torn_record"]).collect();
        assert_eq!(long, wanted);
        assert_eq!(lines, if over == 0 { vec![1, 2] } else { vec![2] });
        assert_eq!(file.lines, 3);
    }
}

/// Lines that open a text, and that go on without an end, are given up within the same room.
#[test]
fn an_open_text_has_a_bound() {
    let line = format!("{}\n", "y".repeat(1 << 20));
    let open = Cursor::new("{\"uuid\":\"o\",\"x\":\"\n".to_owned() + &line.repeat(65) + A);
    let mut given = Vec::new();
    let file = read_records(open, |record| given.push((record.line, record.is_skipped))).unwrap();
    assert_eq!(given, [(67, false)]);
    assert_eq!(file.findings.len(), 66);
    assert!(
        file.findings
            .iter()
            .all(|found| found.fix == FixKind::InPlace && found.code.label() == "torn_record")
    );
}

#[test]
fn findings_have_a_bound() {
    let file = read_records(Cursor::new("x\n".repeat(FINDINGS_MAX + 5)), |_| {}).unwrap();
    assert_eq!((file.findings.len(), file.unlisted), (FINDINGS_MAX, 5));
}

/// Hostile lines cost no more than a multiple of their size.
#[test]
fn hostile_lines_take_linear_work() {
    let newline = format!("{{\"a\":\"x\n{}", "{\n".repeat(2));
    for unit in [
        r#"{""#,
        r#"{"a":["#,
        r#"{"a":"#,
        "{}",
        "{} ",
        r#"{"type":1,"sessionId":2}"#,
        r#"{"a":[{"type":1,"sessionId":2}"#,
        r#"{"a":"x{"type":"y"}"#,
        "{\"a\":\"x\n",
        "{\"a\":[\n",
        &newline,
        "\0{",
        "\u{feff}",
        r#"\"{"#,
        r#""{\u"#,
    ] {
        let text = |size: usize| unit.repeat(size / unit.len());
        is_linear(unit, (1 << 18) / TIMES, text, |text| {
            let (steps, file) = work::measure(|| read_records(Cursor::new(text), |_| {}).unwrap());
            assert_eq!(file.bytes, text.len() as u64);
            assert!(steps <= 100 * text.len() as u64 + 10_000_000, "{unit}: {steps} steps");
        });
    }
}
