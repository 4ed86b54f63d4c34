//! The plan of the edits that mend a session file.

use std::io::{self, ErrorKind, Read, Seek};

use super::{
    client::SessionClient,
    damage::{DamageLayer, SessionCode},
    edits::{EditFault, EditedFile, SessionEdit},
    file_edits,
    finding::{FixKind, SessionFinding},
    log::PlanWay,
    scan::{LOGS, LogRow, NotRead, SessionReport, scan_with},
};

/// Most rounds of a plan. In each the edits of one layer are planned, and the file is scanned again. One layer may uncover
/// damage of another one, so each has four.
const ROUNDS_MAX: usize = 12;

/// The reason why a file has no plan. It is the inner error of the error that [`plan_fix`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FixRefused {
    /// Nothing is known about the file.
    #[error("{0}")]
    NotRead(NotRead),
    /// Its client's sessions are only read.
    #[error("sessions of {} are only read, and nothing is written", .0.name())]
    OnlyRead(SessionClient),
    /// A finding would remain that should be mended.
    #[error("after all edits, {} would remain on line {line}", code.label())]
    Remains {
        /// The finding.
        code: SessionCode,
        /// Its line.
        line: u64,
    },
    /// The client would send less than before, with all lines mended.
    #[error("after all edits, the client would send {after} messages, and it sends {before} now")]
    SendsLess {
        /// Messages that it sends now.
        before: u64,
        /// Messages that it would send.
        after: u64,
    },
    /// An edit would move a byte, or is none of this file.
    #[error("the edits for {} on line {line} do not fit: {fault}", code.label())]
    Unfit {
        /// The finding.
        code: SessionCode,
        /// Its line.
        line: u64,
        /// The fault.
        fault: EditFault,
    },
}

impl From<FixRefused> for io::Error {
    fn from(refused: FixRefused) -> Self {
        Self::new(ErrorKind::InvalidData, refused)
    }
}

/// Plans the edits that mend everything that can be mended: disjoint overwrites, then appended records.
///
/// # Errors
///
/// Those of `file`, and a [`FixRefused`] of the kind `InvalidData`.
pub fn plan_fix(file: &mut (impl Read + Seek)) -> io::Result<Vec<SessionEdit>> {
    plan_with(LOGS, file)
}

fn plan_with(logs: &'static [LogRow], file: &mut (impl Read + Seek)) -> io::Result<Vec<SessionEdit>> {
    let mut edited = EditedFile::new(file)?;
    let mut report = scan_view(logs, &mut edited)?;
    if !report.client.is_mended() {
        return Err(FixRefused::OnlyRead(report.client).into());
    }
    let mut before = report.reachable;
    for _ in 0..ROUNDS_MAX {
        let mendable = || report.findings.iter().filter(|finding| finding.fix != FixKind::Told);
        let row = logs.iter().find(|row| row.client == report.client);
        let log_way = row.map_or(PlanWay::InTurn(file_edits::plan_edits), |row| row.plan_way);
        let Some(layer) = mendable().map(|finding| layer_of(finding, log_way)).min() else {
            break;
        };
        let way = match layer {
            DamageLayer::Chain | DamageLayer::Pairs | DamageLayer::Copies => log_way,
            // A line that is mended leaves the others as they are.
            DamageLayer::Lines | DamageLayer::JoinedLines => PlanWay::InTurn(file_edits::plan_edits),
        };
        // A log that plans its findings together has judged pairs as they are in the mended chain.
        let last = match way {
            PlanWay::Together(_) => layer.max(DamageLayer::Pairs),
            PlanWay::InTurn(_) => layer,
        };
        let findings: Vec<&SessionFinding> = mendable()
            .filter(|finding| layer_of(finding, log_way) <= last)
            .collect();
        add_layer(way, &findings, &mut edited)?;
        report = scan_view(logs, &mut edited)?;
        // A record that comes back may be a summary or a step back, which takes messages out as the client wanted.
        if layer <= DamageLayer::JoinedLines {
            before = report.reachable;
        }
    }
    if let Some(finding) = report.findings.iter().find(|finding| finding.fix != FixKind::Told) {
        return Err(FixRefused::Remains {
            code: finding.code,
            line: finding.line,
        }
        .into());
    }
    if report.reachable < before {
        let after = report.reachable;
        return Err(FixRefused::SendsLess { before, after }.into());
    }
    Ok(edited.merged_edits())
}

fn scan_view(logs: &'static [LogRow], edited: &mut EditedFile<impl Read + Seek>) -> io::Result<SessionReport> {
    edited.rewind()?;
    let report = scan_with(logs, None, edited)?;
    report.map_err(|reason| FixRefused::NotRead(reason).into())
}

/// Plans the edits for the findings of a layer, and adds them to the view.
fn add_layer(way: PlanWay, findings: &[&SessionFinding], edited: &mut EditedFile<impl Read + Seek>) -> io::Result<()> {
    match way {
        PlanWay::Together(plan) => {
            let edits = plan(findings, edited)?;
            findings.first().map_or(Ok(()), |first| add_edits(edits, first, edited))
        }
        PlanWay::InTurn(plan) => findings.iter().try_for_each(|finding| {
            let edits = plan(finding, edited)?;
            add_edits(edits, finding, edited)
        }),
    }
}

/// Adds edits to the view, which refuses those that move a byte.
fn add_edits(
    edits: Vec<SessionEdit>,
    finding: &SessionFinding,
    edited: &mut EditedFile<impl Read + Seek>,
) -> io::Result<()> {
    let (code, line) = (finding.code, finding.line);
    for edit in edits {
        let added = edited.add_edit(edit);
        added.map_err(|fault| FixRefused::Unfit { code, line, fault })?;
    }
    Ok(())
}

/// Returns the layer of a finding in a log whose findings are planned in this way.
fn layer_of(finding: &SessionFinding, way: PlanWay) -> DamageLayer {
    match (finding.code.layer(), way) {
        // Such a log has judged links as if each record had a line. A copy at the end would change the end of the
        // conversation while links are lost.
        (DamageLayer::JoinedLines, PlanWay::Together(_)) if finding.fix == FixKind::Append => DamageLayer::Copies,
        (layer, _) => layer,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use serde_json::Value;

    use super::*;
    use crate::sessions::{
        client::SessionClient,
        damage::Damage,
        edits::APPENDED_BYTES_MAX,
        log::SessionLog,
        marks::find_origin,
        members::RecordMembers,
        records::read_records,
        seed,
        stand_ins::{SeededDice, StandInLog, count_record, find_lost_parent},
    };

    const COUNTING: &[LogRow] = &[
        LogRow {
            client: SessionClient::ClaudeCode,
            new_log: || StandInLog::new_log(count_record),
            plan_way: PlanWay::InTurn(|_, _| Ok(Vec::new())),
        },
        LogRow {
            client: SessionClient::Codex,
            new_log: || StandInLog::new_log(count_record),
            plan_way: PlanWay::InTurn(|_, _| Ok(Vec::new())),
        },
    ];

    fn message(id: usize, text: &str) -> String {
        format!(r#"{{"type":"user","uuid":"u{id}","sessionId":"s","message":{{"role":"user","content":"{text}"}}}}"#)
    }

    fn item(id: usize) -> String {
        format!(r#"{{"timestamp":"t","ordinal":{id},"type":"response_item","payload":{{"type":"message"}}}}"#)
    }

    fn apply_edits(text: &[u8], edits: &[SessionEdit]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut edited = EditedFile::with_edits(Cursor::new(text), edits).unwrap();
        edited.read_to_end(&mut all).unwrap();
        all
    }

    fn plan_text(text: &[u8]) -> Result<Vec<SessionEdit>, String> {
        plan_with(COUNTING, &mut Cursor::new(text)).map_err(|error| error.to_string())
    }

    fn spaces(bytes: &str) -> String {
        " ".repeat(bytes.len())
    }

    /// Name, file, and the same file after its plan.
    type MendedRow = (&'static str, Vec<u8>, String);

    fn rows_of_lines() -> Vec<MendedRow> {
        let [a, b, c, x] = [1, 2, 3, 4].map(|id| message(id, "x"));
        let torn = message(9, "lost").replace("lost\"}}", "lo");
        let text = |text: String| text.into_bytes();
        vec![
            ("sound", text(format!("{a}\n{b}")), format!("{a}\n{b}")),
            (
                "a splice",
                text(format!("{a}\n{torn}{b}\n")),
                format!("{a}\n{}{b}\n", spaces(&torn)),
            ),
            (
                "a torn end",
                text(format!("{a}\n{torn}")),
                format!("{a}\n{}", spaces(&torn)),
            ),
            (
                "three on a line",
                text(format!("{a}{b}{c}\n{x}\n")),
                format!("{a}\n{}{c}\n{x}\n{b}\n", " ".repeat(b.len() - 1)),
            ),
            (
                "two on the last line",
                text(format!("{a}{b}")),
                format!("{a}{}\n{b}\n", spaces(&b)),
            ),
            (
                "two with NUL between them",
                text(format!("{a}\0\0{b}\n{c}\n")),
                format!("{a}\n {b}\n{c}\n"),
            ),
            (
                "two with a fragment between them",
                text(format!("{a}{torn}{b}\n")),
                format!("{a}\n{}{b}\n", " ".repeat(torn.len() - 1)),
            ),
            (
                "one twice on a line",
                text(format!("{a}{a}\n{b}\n")),
                format!("{a}{}\n{b}\n", spaces(&a)),
            ),
            (
                "joined, and written again",
                text(format!("{a}{b}\n{b}\n")),
                format!("{a}{}\n{b}\n", spaces(&b)),
            ),
            (
                "one twice",
                text(format!("{a}\n{b}\n{a}\n")),
                format!("{a}\n{b}\n{}\n", spaces(&a)),
            ),
        ]
    }

    fn rows_of_bytes() -> Vec<MendedRow> {
        let a = message(1, "x");
        let torn = message(9, "lost").replace("lost\"}}", "lo");
        let text = |text: String| text.into_bytes();
        let (open, rest) = (r#"{"type":"user","uuid":"n","x":"a"#, "b\"}");
        vec![
            ("a mark", text(format!("\u{feff}{a}\n")), format!("   {a}\n")),
            (
                "a line feed in a text",
                text(format!("{a}\n{open}\n\t{rest}\n")),
                format!("{a}\n{open}  {rest}\n"),
            ),
            (
                "a line feed in a text, and a record behind it",
                text(format!("{open}\n{rest}{a}\n")),
                format!("{open} {rest}{}\n{a}\n", spaces(&a)),
            ),
            (
                "half of a character",
                text(format!("{a}\n{}\n", message(5, r"\ud83d \ud83d\ude00 \uDE00"))),
                format!("{a}\n{}\n", message(5, r"\ufffd \ud83d\ude00 \ufffd")),
            ),
            (
                "no UTF-8",
                [a.as_bytes(), b"\n{\"x\":\"\xff-\xe2\x82\"}\n"].concat(),
                format!("{a}\n{{\"x\":\"?-??\"}}\n"),
            ),
            (
                "Codex: two with a space between them",
                text(format!("{} {}\n", item(1), item(2))),
                format!("{}\n{}\n", item(1), item(2)),
            ),
            (
                "Codex: two without a byte between them stay",
                text(format!("{}{}\n{torn}\n", item(1), item(2))),
                format!("{}{}\n{}\n", item(1), item(2), spaces(&torn)),
            ),
        ]
    }

    #[test]
    fn damage_of_lines_is_mended_without_moving_a_byte() {
        for (name, text, wanted) in [rows_of_lines(), rows_of_bytes()].concat() {
            let edits = plan_text(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mended = apply_edits(&text, &edits);
            assert_eq!(String::from_utf8_lossy(&mended), wanted, "{name}");
            assert_eq!(plan_text(&mended), Ok(Vec::new()), "{name}: a second plan");
        }
    }

    #[test]
    fn plans_that_do_not_help_are_refused() {
        let no_edits = PlanWay::InTurn(|_, _| Ok(Vec::new()));
        let unfit_edits = PlanWay::Together(|findings, _| {
            let (at, len) = (findings.first().map_or(0, |finding| finding.byte), 1 << 40);
            Ok(vec![SessionEdit::Blank { at, len }])
        });
        let row = |new_log: fn() -> Box<dyn SessionLog>, plan_way| LogRow {
            client: SessionClient::ClaudeCode,
            new_log,
            plan_way,
        };
        let (a, b) = (message(1, "x"), message(2, "y"));
        let refusal = |row: LogRow, text: &str| {
            let rows: &'static [LogRow] = Box::leak(Box::new([row]));
            let error = plan_with(rows, &mut Cursor::new(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            error.get_ref().unwrap().downcast_ref::<FixRefused>().copied().unwrap()
        };
        let code = SessionCode::Damage(Damage::LostParent);
        // Its finding is never mended.
        let new_stubborn = || {
            StandInLog::new_log(|facts, record| {
                facts.messages += 1;
                find_lost_parent(facts, record);
            })
        };
        // Its finding is mended so that less is sent.
        let new_shrinking = || {
            StandInLog::new_log(|facts, record| {
                facts.messages += 1;
                let Some(at) = record.text.iter().position(|byte| *byte == b'x') else {
                    return;
                };
                facts.reachable += 2;
                find_lost_parent(facts, record);
                facts.findings.last_mut().unwrap().byte += at as u64;
            })
        };
        let overwrites = PlanWay::InTurn(|finding, _| {
            let (at, new) = (finding.byte, b"y".to_vec());
            Ok(vec![SessionEdit::Overwrite { at, new }])
        });
        let stubborn = row(new_stubborn, no_edits);
        assert_eq!(refusal(stubborn, &a), FixRefused::Remains { code, line: 1 });
        let unfit = row(new_stubborn, unfit_edits);
        let fault = EditFault::BeyondEnd {
            at: 0,
            len: 1 << 40,
            end: a.len() as u64,
        };
        assert_eq!(refusal(unfit, &a), FixRefused::Unfit { code, line: 1, fault });
        let large_edits = PlanWay::InTurn(|_, _| {
            let record = vec![b'1'; APPENDED_BYTES_MAX + 1];
            Ok(vec![SessionEdit::Append { record }])
        });
        let fault = EditFault::TooLarge;
        let large = row(new_stubborn, large_edits);
        assert_eq!(refusal(large, &a), FixRefused::Unfit { code, line: 1, fault });
        let shrinking = row(new_shrinking, overwrites);
        let wanted = FixRefused::SendsLess { before: 2, after: 0 };
        assert_eq!(refusal(shrinking, &format!("{a}\n{b}\n")), wanted);
        assert_eq!(refusal(shrinking, "{}\n"), FixRefused::NotRead(NotRead::UnknownClient));
    }

    /// A line of a damaged file.
    struct DamagedLine {
        bytes: Vec<u8>,
        is_touched: bool,
    }

    /// Returns the lines of a file with some damage, and its records before that.
    fn damaged_file(dice: &mut SeededDice) -> (Vec<DamagedLine>, Vec<String>) {
        const TEXTS: [&str; 5] = [
            "x",
            "a b c d",
            r"\u001b[0m \ud83d\ude00 \\",
            r#"{\"a\":[1,{}]}"#,
            "é\u{2028}漢",
        ];
        let records: Vec<String> = (0..2 + dice.roll(12))
            .map(|id| message(id, TEXTS[dice.roll(5)]))
            .collect();
        let line = |record: &String| DamagedLine {
            bytes: format!("{record}\n").into_bytes(),
            is_touched: false,
        };
        let mut lines: Vec<DamagedLine> = records.iter().map(line).collect();
        for _ in 0..dice.roll(6) {
            let at = dice.roll(lines.len());
            let copy = lines[at].bytes.clone();
            // A record that was cut off before its first byte is gone.
            if copy.is_empty() {
                continue;
            }
            let place = dice.roll(copy.len());
            let (kind, len) = (dice.roll(9), 1 + dice.roll(40));
            let bytes = &mut lines[at].bytes;
            match kind {
                // A record is cut off, or its line feed is lost: the next line is touched too.
                0 => bytes.truncate(place),
                1 => drop(bytes.pop()),
                // Cut off, with a line feed.
                2 => drop(bytes.drain(place..copy.len() - 1)),
                3 => drop(bytes.splice(place..place, vec![0; len])),
                4 => bytes[place] = [0xff, b'\n', b'\t', b'"', b'{', b'}', 0xc3][dice.roll(7)],
                5 => drop(bytes.splice(0..0, vec![0; len])),
                6 => drop(bytes.splice(0..0, copy[..place].to_vec())),
                7 => bytes.extend(copy),
                _ => drop(bytes.splice(0..0, *b"junk\n")),
            }
            lines[at].is_touched = true;
            if lines[at].bytes.last() != Some(&b'\n')
                && let Some(next) = lines.get_mut(at + 1)
            {
                next.is_touched = true;
            }
        }
        (lines, records)
    }

    /// Checks one damaged file, its plan, and the file after it.
    fn check_file(lines: &[DamagedLine], records: &[String], name: &str) {
        let text = lines.iter().flat_map(|line| line.bytes.clone()).collect::<Vec<u8>>();
        let mut given = Vec::new();
        let file = read_records(Cursor::new(&text), |record| {
            given.push((record.byte, record.text.to_vec(), record.is_skipped));
        });
        let Ok(edits) = plan_text(&text) else {
            let is_one = given
                .iter()
                .any(|(_, text, _)| find_origin(&RecordMembers::read(text)).is_some());
            assert!(!is_one, "{name}: {:?}", plan_text(&text));
            return;
        };
        let mended = apply_edits(&text, &edits);
        let mut at = 0;
        for line in lines {
            let range = at..at + line.bytes.len();
            at = range.end;
            // A repeated line may be blanked, and its first one is the one that stays.
            let record = line.bytes.trim_ascii();
            let is_repeated = file
                .as_ref()
                .unwrap()
                .findings
                .iter()
                .any(|found| found.byte == range.start as u64);
            if line.is_touched || is_repeated {
                continue;
            }
            let wanted = (range.start as u64, record.to_vec(), false);
            assert!(
                given.contains(&wanted),
                "{name}: a sound record at {range:?} is not given"
            );
            assert_eq!(mended[range.clone()], text[range], "{name}: a sound line is touched");
        }
        let told = file.unwrap().findings.iter().any(|found| found.fix == FixKind::Told);
        for line in mended.split(|byte| *byte == b'\n').filter(|_| !told) {
            let is_record = || serde_json::from_slice::<Value>(line).is_ok_and(|value| value.is_object());
            assert!(
                line.trim_ascii().is_empty() || is_record(),
                "{name}: a line is no record"
            );
        }
        // All that the bytes held has a line.
        let held = |text: &[u8], record: &str| memchr::memmem::find(text, record.as_bytes()).is_some();
        for record in records.iter().filter(|record| held(&text, record) && !told) {
            let mut lines = mended.split(|byte| *byte == b'\n');
            let is_there = lines.any(|line| line.trim_ascii() == record.as_bytes());
            assert!(is_there, "{name}: a record is lost");
        }
        assert_eq!(plan_text(&mended), Ok(Vec::new()), "{name}: a second plan");
        assert_eq!(undo_edits(mended, &text, &edits), text, "{name}: undo");
    }

    /// Takes edits back, by the bytes that they have overwritten.
    fn undo_edits(mut mended: Vec<u8>, text: &[u8], edits: &[SessionEdit]) -> Vec<u8> {
        mended.truncate(text.len());
        for edit in edits {
            let (at, len) = match edit {
                SessionEdit::Overwrite { at, new } => (*at, new.len() as u64),
                SessionEdit::Blank { at, len } => (*at, *len),
                SessionEdit::Append { .. } => continue,
            };
            let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
            mended[range.clone()].copy_from_slice(&text[range]);
        }
        mended
    }

    #[test]
    fn random_damage_is_mended_and_touches_no_sound_line() {
        let seed = seed::seed();
        println!("SEED={seed}");
        let mut dice = SeededDice(seed);
        for round in 0..1_000 {
            let (lines, records) = damaged_file(&mut dice);
            check_file(&lines, &records, &format!("SEED={seed}, round {round}"));
        }
    }
}
