//! Plans for session files with random damage: each has one, it is the last one, and the client sends no less than before.

use std::io::{Cursor, Read as _};

use antiphon_core::sessions::{
    EditedFile, FixKind, FixRefused, NotRead, SessionEdit, SessionReport, plan_fix, scan_session,
};

use crate::support::seed;

struct LogDice(u64);

impl LogDice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below.max(1)
    }

    /// Returns `true` once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }
}

/// A log of Claude Code, as it is being written.
struct ClaudeWriter<'d> {
    dice: &'d mut LogDice,
    version: &'static str,
    lines: Vec<String>,
    /// The record that the next one follows.
    parent: String,
    ids: usize,
}

fn link_id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

impl ClaudeWriter<'_> {
    /// Adds a record that follows `parent`, and returns its id.
    fn add(&mut self, parent: &str, body: &str) -> String {
        self.ids += 1;
        let (id, version) = (link_id(self.ids), self.version);
        let parent = if parent.is_empty() {
            "null".to_owned()
        } else {
            format!("\"{parent}\"")
        };
        self.lines.push(format!(
            r#"{{"parentUuid":{parent},"isSidechain":false,"sessionId":"s1","version":"{version}",{body},"uuid":"{id}","timestamp":"2026-11-30T16:27:50.145Z"}}"#
        ));
        id
    }

    fn follow(&mut self, body: &str) {
        let parent = self.parent.clone();
        self.parent = self.add(&parent, body);
    }

    fn say(&mut self, message: usize, block: &str) {
        self.follow(&format!(
            r#""type":"assistant","message":{{"id":"msg_{message}","role":"assistant","content":[{block}]}}"#
        ));
    }

    /// Adds an answer with calls, and their results: one after the other, or each at its call.
    fn work(&mut self, message: usize) {
        if self.dice.once_in(3) {
            self.say(message, r#"{"type":"text","text":"Let me see."}"#);
        }
        let (calls, is_beside) = (1 + self.dice.roll(3), self.dice.once_in(2));
        let mut owners = Vec::new();
        for call in 0..calls {
            self.say(
                message,
                &format!(r#"{{"type":"tool_use","id":"toolu_{message}_{call}","name":"Bash","input":{{"a":1}}}}"#),
            );
            owners.push(self.parent.clone());
        }
        for (call, owner) in owners.iter().enumerate() {
            let body = format!(
                r#""type":"user","message":{{"role":"user","content":[{{"tool_use_id":"toolu_{message}_{call}","type":"tool_result","content":"out {message}"}}]}}"#
            );
            if is_beside {
                self.parent = self.add(owner, &body);
            } else {
                self.follow(&body);
            }
        }
    }

    fn turn(&mut self, turn: usize) {
        if turn > 0 && self.dice.once_in(10) {
            let boundary = r#""type":"system","subtype":"compact_boundary","compactMetadata":{}"#;
            self.parent = self.add("", boundary);
        }
        if self.dice.once_in(4) {
            self.lines
                .push(r#"{"type":"mode","mode":"default","sessionId":"s1"}"#.to_owned());
        }
        self.follow(&format!(
            r#""type":"user","message":{{"role":"user","content":"ask {turn}"}}"#
        ));
        for step in 0..self.dice.roll(3) {
            self.work(turn * 10 + step);
        }
        if !self.dice.once_in(6) {
            self.say(turn * 10 + 9, r#"{"type":"text","text":"Done é."}"#);
        }
    }
}

fn claude_log(dice: &mut LogDice) -> Vec<String> {
    let version = ["2.0.32", "2.1.42", "2.1.332"][dice.roll(3)];
    let mut log = ClaudeWriter {
        dice,
        version,
        lines: Vec::new(),
        parent: String::new(),
        ids: 0,
    };
    for turn in 0..=log.dice.roll(4) {
        log.turn(turn);
    }
    if log.dice.once_in(2) {
        let leaf = log.parent.clone();
        log.lines.push(format!(
            r#"{{"type":"last-prompt","lastPrompt":"ask","leafUuid":"{leaf}","sessionId":"s1"}}"#
        ));
    }
    log.lines
}

fn codex_log(dice: &mut LogDice) -> Vec<String> {
    let is_numbered = !dice.once_in(4);
    let mode = if is_numbered {
        r#","history_mode":"paginated""#
    } else {
        ""
    };
    let mut records = vec![(
        "session_meta",
        format!(r#"{{"id":"s1","cli_version":"0.171.0","model_provider":"openai"{mode}}}"#),
    )];
    let message = |role: &str, text: &str| {
        let kind = if role == "user" { "input_text" } else { "output_text" };
        format!(r#"{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":"{text}"}}]}}"#)
    };
    for turn in 0..=dice.roll(4) {
        records.push(("response_item", message("user", "Go é.")));
        for step in 0..dice.roll(4) {
            let calls = 1 + dice.roll(2);
            for call in 0..calls {
                records.push(("response_item", format!(
                    r#"{{"type":"function_call","name":"exec","arguments":"{{\"cmd\":\"ls -l\"}}","call_id":"call_{turn}_{step}_{call}"}}"#
                )));
            }
            for call in 0..calls {
                records.push(("response_item", format!(
                    r#"{{"type":"function_call_output","id":"fco_{turn}_{step}_{call}","call_id":"call_{turn}_{step}_{call}","output":"a long line of what was said"}}"#
                )));
            }
        }
        match dice.roll(8) {
            0 => {
                let list = format!(
                    r#"{{"message":"","replacement_history":[{}]}}"#,
                    message("user", "So far.")
                );
                records.push(("compacted", list));
            }
            1 => records.push(("event_msg", r#"{"type":"thread_rolled_back","num_turns":1}"#.to_owned())),
            2 => {}
            _ => records.push(("response_item", message("assistant", "Done."))),
        }
        records.push((
            "event_msg",
            r#"{"type":"task_complete","last_agent_message":"Done."}"#.to_owned(),
        ));
    }
    let line = |(at, (kind, payload)): (usize, &(&str, String))| {
        let ordinal = if is_numbered {
            format!(r#""ordinal":{at},"#)
        } else {
            String::new()
        };
        format!(r#"{{"timestamp":"2026-11-30T10:00:00.000Z",{ordinal}"type":"{kind}","payload":{payload}}}"#)
    };
    records.iter().enumerate().map(line).collect()
}

/// Damages the bytes of a line.
fn damage_bytes(dice: &mut LogDice, lines: &mut [Vec<u8>], at: usize) {
    let copy = lines[at].clone();
    let (place, len) = (dice.roll(copy.len()), 1 + dice.roll(40));
    let line = &mut lines[at];
    match dice.roll(9) {
        0 => line.truncate(place),
        1 => drop(line.pop()),
        2 => drop(line.drain(place..copy.len() - 1)),
        3 => drop(line.splice(place..place, vec![0; len])),
        4 => line[place] = [0xff, b'\n', b'\t', b'"', b'{', b'}', 0xc3][dice.roll(7)],
        5 => drop(line.splice(0..0, vec![0; len])),
        6 => drop(line.splice(0..0, copy[..place].to_vec())),
        7 => line.extend(copy),
        _ => drop(line.splice(0..0, *b"junk\n")),
    }
}

/// Overwrites the value behind a key of a line by that of another line. Returns `false` if one of them has none.
fn mix_values(lines: &mut [Vec<u8>], at: usize, [to, from]: [&str; 2], other: usize) -> bool {
    let value = |line: &[u8], key: &str| {
        let start = memchr::memmem::find(line, key.as_bytes())? + key.len();
        let len = line[start..].iter().position(|byte| matches!(byte, b',' | b'}'))?;
        Some(start..start + len)
    };
    let Some(new) = value(&lines[other], from).map(|range| lines[other][range].to_vec()) else {
        return false;
    };
    let Some(old) = value(&lines[at], to) else { return false };
    lines[at].splice(old, new);
    true
}

/// Damages a file of whole lines in one to three ways.
fn damaged(dice: &mut LogDice, log: Vec<String>) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = log.into_iter().map(|line| (line + "\n").into_bytes()).collect();
    for _ in 0..=dice.roll(3) {
        let (at, other) = (dice.roll(lines.len()), dice.roll(lines.len()));
        if lines[at].is_empty() || lines.len() < 3 {
            continue;
        }
        match dice.roll(9) {
            0..=2 => damage_bytes(dice, &mut lines, at),
            3 => drop(lines.remove(at)),
            4 => lines.swap(at, other),
            5 => {
                let copy = lines[at].clone();
                lines.insert(other, copy);
            }
            6 => {
                let keys = [["\"parentUuid\":", "\"uuid\":"], ["\"ordinal\":", "\"ordinal\":"]];
                for keys in keys {
                    mix_values(&mut lines, at, keys, other);
                }
            }
            7 => {
                mix_values(&mut lines, at, ["\"uuid\":", "\"uuid\":"], other);
            }
            _ => {
                let text = String::from_utf8_lossy(&lines[at]).into_owned();
                let text = match dice.roll(5) {
                    0 => text.replacen("\"parentUuid\":\"0", "\"parentUuid\":\"9", 1),
                    1 => text.replacen("\"isSidechain\":false", "\"isSidechain\":true", 1),
                    2 => text
                        .replacen("{\"a\":1}", "\"{\\\"a\\\":\"", 1)
                        .replacen("l\\\"}\"", "l\\\"\"", 1),
                    3 => text.replacen("\"ordinal\":", "\"ordinary\":", 1),
                    _ => text.replacen('é', "\\ud83d", 1),
                };
                lines[at] = text.into_bytes();
            }
        }
    }
    lines.concat()
}

fn edited(text: &[u8], edits: &[SessionEdit]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut file = EditedFile::with_edits(Cursor::new(text), edits).unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

fn told(report: &SessionReport) -> Vec<String> {
    let found = report.findings.iter();
    found
        .map(|found| {
            format!(
                "{} {} {:?} {}",
                found.line,
                found.code.label(),
                found.lines,
                found.fix.label()
            )
        })
        .collect()
}

/// Returns what is wrong with the plan of a file. Empty if it is a good one.
fn fault_of(text: &[u8]) -> String {
    let before = match scan_session(&mut &*text).unwrap() {
        Ok(report) => report,
        Err(reason) => {
            let refused = plan_fix(&mut Cursor::new(text)).unwrap_err();
            let refused = refused
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<FixRefused>().copied());
            assert_eq!(refused, Some(FixRefused::NotRead(reason)));
            let is_known = matches!(
                reason,
                NotRead::UnknownClient | NotRead::NoContent | NotRead::SeveralClients
            );
            return if is_known { String::new() } else { reason.to_string() };
        }
    };
    let edits = match plan_fix(&mut Cursor::new(text)) {
        Ok(edits) => edits,
        Err(refused) => return format!("{refused}; {:?}", told(&before)),
    };
    let mended = edited(text, &edits);
    let after = scan_session(&mut &*mended).unwrap().unwrap();
    // A summary or a step back whose line is mended takes messages out, as the client wanted.
    let has = |name: &str| memchr::memmem::find(text, name.as_bytes()).is_some();
    let may_shrink = has("\"compacted\"") || has("thread_rolled_back");
    let is_left = after.findings.iter().any(|found| found.fix != FixKind::Told);
    let is_less = after.reachable < before.reachable && !may_shrink;
    let again = plan_fix(&mut Cursor::new(&mended));
    let is_final = matches!(again.as_deref(), Ok([]));
    if is_left || is_less || after.reachable > after.messages || !is_final {
        let counts = [before.reachable, after.reachable, after.messages];
        return format!(
            "{counts:?} {:?} then {:?}, again {again:?}",
            told(&before),
            told(&after)
        );
    }
    String::new()
}

fn check_plans(name: &str, log: fn(&mut LogDice) -> Vec<String>) {
    let seed = seed::seed();
    println!("SEED={seed}");
    let mut dice = LogDice(seed);
    let mut faults = Vec::new();
    for round in 0..seed::number("STEPS").unwrap_or(150) {
        let written = log(&mut dice);
        let text = damaged(&mut dice, written);
        let fault = fault_of(&text);
        if !fault.is_empty() {
            faults.push(format!(
                "{name}, round {round}: {fault}\n{}",
                String::from_utf8_lossy(&text)
            ));
        }
    }
    assert!(faults.is_empty(), "{} of them:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn random_damage_of_claude_code_has_a_plan() {
    check_plans("Claude Code", claude_log);
}

#[test]
fn random_damage_of_codex_has_a_plan() {
    check_plans("Codex", codex_log);
}

/// Writes a log of Claude Code: id, parent, and message of each record.
fn small_log(rows: &[(usize, usize, &str)]) -> Vec<String> {
    let line = |(id, parent, message): &(usize, usize, &str)| {
        let (id, kind) = (
            link_id(*id),
            if message.contains("assistant") {
                "assistant"
            } else {
                "user"
            },
        );
        let parent = if *parent == 0 {
            "null".to_owned()
        } else {
            format!("\"{}\"", link_id(*parent))
        };
        format!(
            r#"{{"parentUuid":{parent},"isSidechain":false,"sessionId":"s1","version":"2.1.332","type":"{kind}","message":{message},"uuid":"{id}"}}"#
        )
    };
    rows.iter().map(line).collect()
}

const ASK: &str = r#"{"role":"user","content":"ask"}"#;
const CALL_A: &str = r#"{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"A","name":"f","input":{}}]}"#;
const CALL_B: &str = r#"{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"B","name":"f","input":{}}]}"#;
const OUT_A: &str = r#"{"role":"user","content":[{"tool_use_id":"A","type":"tool_result","content":"a"}]}"#;
const OUT_B: &str = r#"{"role":"user","content":[{"tool_use_id":"B","type":"tool_result","content":"b"}]}"#;
const DONE: &str = r#"{"id":"m2","role":"assistant","content":[{"type":"text","text":"Done."}]}"#;

/// Files whose plans were refused: messages that would be sent, before and after.
#[test]
fn plans_that_were_refused_are_made() {
    let turn = [
        (1, 0, ASK),
        (2, 1, CALL_A),
        (3, 2, CALL_B),
        (4, 2, OUT_A),
        (5, 3, OUT_B),
        (6, 5, DONE),
    ];
    let log = small_log(&turn);
    // Nothing follows the copy of the first result, and no record names the end.
    let joined = [&log[..2], &[log[2].clone() + &log[3]], &log[4..]].concat();
    // The result of B must follow its call, which has no id that could be followed.
    let mut nameless = log;
    nameless[2] = nameless[2].replace("\"uuid\"", "\"\\u00fcid\"");
    let summary = r#"{"timestamp":"t","type":"compacted","payload":{"message":"","replacement_history":[]}}"#;
    let item = r#"{"timestamp":"t","type":"response_item","payload":{"type":"message","role":"user","content":[]}}"#;
    let meta = r#"{"timestamp":"t","type":"session_meta","payload":{"id":"s1","cli_version":"0.171.0"}}"#;
    let summed = [meta, item, item, &format!("\0{summary}"), item]
        .map(str::to_owned)
        .to_vec();
    for (name, lines, counts) in [
        ("a copy that nothing follows", joined, (2, 6)),
        ("a call without an id", nameless, (6, 6)),
        ("a summary comes back", summed, (3, 1)),
    ] {
        let text = (lines.join("\n") + "\n").into_bytes();
        assert_eq!(fault_of(&text), "", "{name}");
        let mended = edited(&text, &plan_fix(&mut Cursor::new(&text)).unwrap());
        let [before, after] = [&text, &mended].map(|text| scan_session(&mut &text[..]).unwrap().unwrap());
        assert_eq!(
            (before.reachable, after.reachable),
            counts,
            "{name}: {:?}",
            told(&before)
        );
    }
}
