//! Session files with holes: they are the NUL bytes that they read as, and are passed without being read.

use std::io::{self, Read};

use antiphon_core::sessions::{SessionReport, SkipHoles, scan_session, scan_sparse_session};

use crate::support::{bodies::Rng, seed::seed};

const A: &str =
    r#"{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","version":"2.1.332","message":{"content":"x"}}"#;
const B: &str = r#"{"type":"user","uuid":"b","parentUuid":"a","sessionId":"s","message":{"content":"y"}}"#;

/// A part of a file: its bytes, or the length of a hole.
#[derive(Clone, Debug)]
enum Part {
    Text(Vec<u8>),
    Hole(u64),
}

/// A file of parts, that counts what is read of it.
struct SparseFile {
    parts: Vec<Part>,
    read: u64,
    /// `false` if it does not tell its holes.
    tells: bool,
}

impl SparseFile {
    fn new(parts: &[Part], tells: bool) -> Self {
        let (parts, read) = (parts.iter().rev().cloned().collect(), 0);
        Self { parts, read, tells }
    }
}

impl Read for SparseFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(part) = self.parts.last_mut() else {
            return Ok(0);
        };
        let (count, rest) = match part {
            Part::Text(text) => {
                let count = text.len().min(buffer.len());
                buffer[..count].copy_from_slice(&text[..count]);
                text.drain(..count);
                (count, text.len() as u64)
            }
            Part::Hole(len) => {
                let count = usize::try_from(*len).unwrap().min(buffer.len());
                buffer[..count].fill(0);
                *len -= count as u64;
                (count, *len)
            }
        };
        if rest == 0 {
            self.parts.pop();
        }
        self.read += count as u64;
        Ok(count)
    }
}

impl SkipHoles for SparseFile {
    fn skip_hole(&mut self) -> io::Result<u64> {
        match self.parts.last() {
            Some(Part::Hole(len)) if self.tells => {
                let len = *len;
                self.parts.pop();
                Ok(len)
            }
            _ => Ok(0),
        }
    }
}

/// Returns all facts of a report.
fn facts(report: &SessionReport) -> String {
    format!("{report:?}")
}

#[test]
fn a_hole_of_gigabytes_is_passed_unread() {
    const GIB: u64 = 1 << 30;
    let line = |record: &str| Part::Text(format!("{record}\n").into_bytes());
    for (parts, lines) in [
        // The hole begins with a line, stands in one, and ends the file.
        (vec![line(A), Part::Hole(8 * GIB), line(B)], 2),
        (
            vec![
                line(A),
                Part::Text(b"{\"type\":\"us".to_vec()),
                Part::Hole(8 * GIB),
                line(B),
            ],
            2,
        ),
        (vec![line(A), line(B), Part::Hole(8 * GIB)], 3),
        (vec![Part::Hole(4 * GIB), line(A), line(B), Part::Hole(4 * GIB)], 3),
    ] {
        let mut file = SparseFile::new(&parts, true);
        let report = scan_sparse_session(None, &mut file).unwrap().unwrap();
        assert!(file.read < 4096, "{} bytes were read", file.read);
        assert!(report.bytes > 8 * GIB, "{report:?}");
        assert_eq!((report.lines, report.messages), (lines, 2), "{report:?}");
        let nuls: u64 = report
            .findings
            .iter()
            .filter(|found| found.code.label() == "nul_bytes")
            .map(|found| found.len)
            .sum();
        assert_eq!(nuls, 8 * GIB, "{report:?}");
    }
}

#[test]
fn a_line_that_is_too_long_may_have_holes() {
    let long = vec![b'x'; 65 * 1024 * 1024];
    let parts = [
        Part::Text(format!("{A}\n").into_bytes()),
        Part::Text(long),
        Part::Hole(1 << 33),
        Part::Text(format!("\n{B}\n").into_bytes()),
    ];
    let mut file = SparseFile::new(&parts, true);
    let report = scan_sparse_session(None, &mut file).unwrap().unwrap();
    assert!(file.read < 70 << 20, "{} bytes were read", file.read);
    let codes: Vec<&str> = report.findings.iter().map(|found| found.code.label()).collect();
    assert_eq!(
        (codes.as_slice(), report.messages),
        (&["long_record"][..], 2),
        "{report:?}"
    );
}

/// A file reads the same, whether its holes are told or read.
#[test]
fn a_hole_is_the_bytes_that_it_reads_as() {
    let mut rng = Rng::new(seed());
    println!("SEED={}", seed());
    for round in 0..300 {
        let mut parts = Vec::new();
        for _ in 0..2 + rng.below(6) {
            parts.push(match rng.below(6) {
                0 => Part::Hole([1, 100, 4096, 65_535, 65_536, 300_000][rng.below(6)]),
                1 => Part::Text(A.as_bytes()[..=rng.below(A.len())].to_vec()),
                2 => Part::Text(b"\n".to_vec()),
                _ => Part::Text(format!("{}\n", [A, B][rng.below(2)]).into_bytes()),
            });
        }
        let scan = |tells| {
            let report = scan_sparse_session(None, &mut SparseFile::new(&parts, tells)).unwrap();
            report.map(|report| facts(&report))
        };
        let plain = scan_session(&mut SparseFile::new(&parts, false)).unwrap();
        assert_eq!(scan(true), scan(false), "round {round}: {parts:?}");
        assert_eq!(
            scan(false),
            plain.map(|report| facts(&report)),
            "round {round}: {parts:?}"
        );
    }
}
