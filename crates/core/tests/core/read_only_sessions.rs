//! Small sessions of the clients whose files are only read: what is found in each, and that nothing is planned.

use std::io::Cursor;

use antiphon_core::sessions::{
    FixKind, FixRefused, MEASURED, NotRead, SessionClient, SessionReport, plan_fix, scan_session, scan_session_of,
};
use serde_json::{Value, json};

const CANARY: &str = "canary";

/// One session: records by short names, and what is found.
struct ReadCase {
    name: &'static str,
    records: &'static [&'static str],
    /// Code, line and other line of each finding.
    found: &'static [&'static str],
    /// Messages that are sent, and all.
    counts: (u64, u64),
}

const CLEAN: &[&str] = &[];

const COPILOT: &[ReadCase] = &[
    ReadCase {
        name: "sound, with two parallel calls",
        records: &[
            "start", "user", "turn", "call A B", "run A", "run B", "done A", "done B", "end", "turn", "say",
        ],
        found: CLEAN,
        counts: (5, 5),
    },
    ReadCase {
        name: "the last call is open",
        records: &["start", "user", "turn", "call A B", "run A", "run B", "done A"],
        found: &["open_call 4"],
        counts: (3, 3),
    },
    ReadCase {
        name: "a call inside is open, and its end was noted",
        records: &[
            "start", "user", "turn", "call A B", "run A", "done A", "user", "turn", "say",
        ],
        found: &["unanswered 4"],
        counts: (5, 5),
    },
    ReadCase {
        name: "a result without its call, though the call was begun",
        records: &["start", "user", "turn", "run A", "done A", "turn", "say"],
        found: &["orphan 5"],
        counts: (2, 3),
    },
    ReadCase {
        name: "a second result",
        records: &["start", "user", "turn", "call A", "done A", "done A other"],
        found: &["duplicate 6 5"],
        counts: (3, 4),
    },
    ReadCase {
        name: "a second call with the same id",
        records: &["start", "user", "turn", "call A", "done A", "turn", "call A other"],
        found: &["duplicate_call 7 4"],
        counts: (4, 4),
    },
    ReadCase {
        name: "the first record is missing",
        records: &["user", "turn", "say"],
        found: &["session_meta_missing 1"],
        counts: (0, 2),
    },
    ReadCase {
        name: "the first record is skipped by the client",
        records: &["!torn", "+start", "user", "turn", "say"],
        found: &["torn_record 1"],
        counts: (0, 2),
    },
    ReadCase {
        name: "a command of the user, a sub-agent's open call, and a link that leads nowhere",
        records: &[
            "start",
            "asked U",
            "done U",
            "user",
            "turn",
            "call A",
            "sub call X",
            "sub agent Y",
            "done A",
            "lost say",
        ],
        found: CLEAN,
        counts: (4, 5),
    },
    ReadCase {
        name: "a summary in place of an open call, and a late result for it",
        records: &[
            "start", "user", "turn", "call A B", "done A", "summary", "turn", "say", "done B",
        ],
        found: CLEAN,
        counts: (1, 5),
    },
    ReadCase {
        name: "a summary that failed",
        records: &["start", "user", "turn", "call A", "no summary", "user"],
        found: &["unanswered 4"],
        counts: (3, 3),
    },
    ReadCase {
        name: "a call and a result without an id",
        records: &["start", "user", "turn", "call", "done"],
        found: &["malformed_call 4", "no_id 5"],
        counts: (0, 3),
    },
    ReadCase {
        name: "a fragment before a result",
        records: &["start", "user", "turn", "call A", "!torn", "+done A", "turn", "say"],
        found: &["torn_record 5"],
        counts: (3, 4),
    },
    ReadCase {
        name: "a record twice, and another one with a byte that is no UTF-8",
        records: &["start", "user", "turn", "call A", "done A", "=", "say \u{fffd}"],
        found: &["repeated_record 6", "invalid_utf8 7"],
        counts: (3, 4),
    },
];

const QWEN: &[ReadCase] = &[
    ReadCase {
        name: "sound, with two parallel calls",
        records: &[
            "1 - user",
            "2 1 note",
            "3 2 call A B",
            "4 3 result A",
            "5 4 result B",
            "6 5 text",
        ],
        found: CLEAN,
        counts: (5, 5),
    },
    ReadCase {
        name: "the last call is open",
        records: &["1 - user", "2 1 call A B", "3 2 result A", "4 3 note"],
        found: &["open_call 2"],
        counts: (3, 3),
    },
    ReadCase {
        name: "a call inside is open",
        records: &["1 - user", "2 1 call A B", "3 2 result B", "4 3 user", "5 4 text"],
        found: &["unanswered 2"],
        counts: (5, 5),
    },
    ReadCase {
        name: "a result without its call",
        records: &["1 - user", "2 1 result A", "3 2 text"],
        found: &["orphan 2"],
        counts: (2, 3),
    },
    ReadCase {
        name: "a second result",
        records: &["1 - user", "2 1 call A", "3 2 result A", "4 3 result A", "5 4 text"],
        found: &["duplicate 4 3"],
        counts: (4, 5),
    },
    ReadCase {
        name: "a second call with the same id",
        records: &["1 - user", "2 1 call A", "3 2 call A", "4 3 result A"],
        found: &["duplicate_call 3 2"],
        counts: (4, 4),
    },
    ReadCase {
        name: "a parent that is not in the file, and an open call before it",
        records: &["1 - user", "2 1 call A", "3 2 user", "4 99 user", "5 4 text"],
        found: &["unanswered 2", "lost_parent 4"],
        counts: (2, 5),
    },
    ReadCase {
        name: "the first record follows one that is not in the file",
        records: &["1 99 user", "2 1 text"],
        found: CLEAN,
        counts: (2, 2),
    },
    ReadCase {
        name: "a circle at the beginning, which loses nothing",
        records: &["1 2 user", "2 1 text", "3 2 user"],
        found: &["parent_circle 1 2"],
        counts: (3, 3),
    },
    ReadCase {
        name: "a circle in the middle",
        records: &["1 - user", "2 1 text", "3 5 user", "4 3 text", "5 4 user"],
        found: &["parent_circle 3 5"],
        counts: (3, 5),
    },
    ReadCase {
        name: "fragments of one record",
        records: &["1 - user", "2 1 call A", "2 1 text", "3 2 result A"],
        found: CLEAN,
        counts: (4, 4),
    },
    ReadCase {
        name: "two records with one id",
        records: &["1 - user", "2 1 text", "3 2 user", "1 3 user", "5 1 text"],
        found: &["rewound 2 5", "uuid_twice 4 1"],
        counts: (3, 5),
    },
    ReadCase {
        name: "the user went back",
        records: &[
            "1 - user", "2 1 text", "3 2 user", "4 3 text", "5 2 back", "6 5 user", "7 6 text",
        ],
        found: &["rewound 3 5"],
        counts: (4, 6),
    },
    ReadCase {
        name: "two processes",
        records: &["1 - user", "2 1 text", "3 2 user", "4 2 user", "5 3 text", "6 4 text"],
        found: &["fork 3 4"],
        counts: (4, 6),
    },
    ReadCase {
        name: "notes beside the chain, and records of later versions",
        records: &["1 - user", "2 1 note", "3 1 text", "4 3 artifact", "5 4 odd"],
        found: CLEAN,
        counts: (2, 2),
    },
    ReadCase {
        name: "a summary in place of an open call, and a late result for it",
        records: &["1 - user", "2 1 call A", "3 2 summary", "4 3 user", "5 4 result A"],
        found: CLEAN,
        counts: (1, 4),
    },
    ReadCase {
        name: "a record behind NUL bytes is read, and so is one behind another",
        records: &["1 - user", "0", "+2 1 call A", "3 2 result A", "+4 3 text"],
        found: &["nul_bytes 2", "joined_records 3"],
        counts: (4, 4),
    },
    ReadCase {
        name: "a record behind a fragment is lost, with all before it",
        records: &["1 - user", "!torn", "+2 1 text", "3 2 user", "4 3 text"],
        found: &["torn_record 2"],
        counts: (2, 4),
    },
    ReadCase {
        name: "an input that is no object",
        records: &["1 - user", "2 1 odd call A", "3 2 result A"],
        found: &["malformed_call 2"],
        counts: (3, 3),
    },
];

fn copilot_record(at: usize, words: &str) -> Value {
    let names: Vec<&str> = words.split(' ').collect();
    let ids = |from: usize| -> Vec<Value> {
        let ids = names.get(from..).unwrap_or_default().iter().filter(|id| id.len() == 1);
        ids.map(|id| json!({"toolCallId": id, "name": "bash", "arguments": {"command": CANARY}}))
            .collect()
    };
    let id = |from: usize| names.get(from).copied().unwrap_or_default();
    let calls = |from: usize| json!({"messageId": "m", "content": CANARY, "toolRequests": ids(from)});
    let (kind, data) = match (names[0], id(1)) {
        ("start", _) => (
            "session.start",
            json!({"sessionId": "s1", "version": 1, "producer": "p", "copilotVersion": "1.0.102", "startTime": "t"}),
        ),
        ("user", _) => ("user.message", json!({"content": CANARY})),
        ("turn", _) => ("assistant.turn_start", json!({"turnId": "0"})),
        ("end", _) => ("assistant.turn_end", json!({"turnId": "0"})),
        ("say", _) => (
            "assistant.message",
            json!({"messageId": "m", "content": names.join(" "), "toolRequests": []}),
        ),
        ("lost", _) => ("assistant.message", calls(9)),
        ("call", "") => (
            "assistant.message",
            json!({"messageId": "m", "content": "", "toolRequests": [{"name": "bash"}]}),
        ),
        ("call", _) => ("assistant.message", calls(1)),
        ("run", call) => ("tool.execution_start", json!({"toolCallId": call, "toolName": "bash"})),
        ("asked", call) => ("tool.user_requested", json!({"toolCallId": call})),
        ("done", "") => ("tool.execution_complete", json!({"success": false})),
        ("done", call) => (
            "tool.execution_complete",
            json!({"toolCallId": call, "success": true, "result": {"content": words}}),
        ),
        ("sub", "call") => {
            let data = json!({"messageId": "m", "content": "", "parentToolCallId": "A", "toolRequests": ids(2)});
            ("assistant.message", data)
        }
        ("sub", _) => ("assistant.message", calls(2)),
        ("summary", _) => (
            "session.compaction_complete",
            json!({"success": true, "summaryContent": CANARY}),
        ),
        ("no", _) => ("session.compaction_complete", json!({"success": false})),
        other => panic!("{other:?}"),
    };
    let id = |at: usize| format!("5e551001-0000-4000-8000-{at:012}");
    let parent = if names[0] == "lost" { 999 } else { at };
    let mut record = json!({
        "type": kind, "data": data, "id": id(at + 1), "timestamp": "2026-11-30T19:29:10.742Z", "parentId": id(parent),
    });
    if words.starts_with("sub agent") {
        record["agentId"] = json!("agent-1");
    }
    record
}

fn qwen_record(words: &str) -> Value {
    let names: Vec<&str> = words.split(' ').collect();
    let id = |number: &str| match number {
        "-" => Value::Null,
        number => json!(format!("5e551001-0000-4000-8000-{number:0>12}")),
    };
    let mut ids = names.iter().skip(3).filter(|id| id.len() == 1);
    let call = |id: &&str| json!({"functionCall": {"id": id, "name": "f", "args": {"command": CANARY}}});
    let text = json!([{"text": CANARY}]);
    let (kind, subtype, parts) = match names[2] {
        "user" => ("user", "", text),
        "text" => ("assistant", "", text),
        "call" => ("assistant", "", ids.map(call).collect()),
        "odd" if names.len() > 3 => {
            let call = json!({"functionCall": {"id": names[4], "name": "f", "args": "{\"comm"}});
            ("assistant", "", json!([call]))
        }
        "result" => {
            let response = json!({"id": ids.next(), "name": "f", "response": {"output": CANARY}});
            ("tool_result", "", json!([{"functionResponse": response}]))
        }
        "note" => ("system", "ui_telemetry", Value::Null),
        "back" => ("system", "rewind", Value::Null),
        "artifact" => ("system", "session_artifact_event", Value::Null),
        "summary" => ("system", "chat_compression", Value::Null),
        "odd" => ("of_a_later_version", "", Value::Null),
        other => panic!("{other}"),
    };
    let mut record = json!({
        "uuid": id(names[0]), "parentUuid": id(names[1]), "sessionId": "s1", "type": kind, "version": "0.24.4",
        "timestamp": "2026-11-30T19:29:57.783Z",
    });
    if !subtype.is_empty() {
        record["subtype"] = json!(subtype);
    }
    if parts.is_array() {
        record["message"] = json!({"role": "user", "parts": parts});
    }
    if names[2] == "summary" {
        record["systemPayload"] = json!({"compressedHistory": []});
    }
    record
}

/// Writes the file of a case. A name after `+` goes on on the line, `!torn` is a fragment, `0` NUL bytes, `=` the same.
fn file_of(row: &ReadCase, record: impl Fn(usize, &str) -> Value) -> Vec<u8> {
    let (mut file, mut last) = (Vec::new(), Vec::new());
    for (at, words) in row.records.iter().enumerate() {
        let goes_on = words.starts_with('+');
        let line = match *words {
            "!torn" => br#"{"type":"user","uuid":"x","message":{"content":"x"#.to_vec(),
            "0" => vec![0; 9],
            "=" => last.clone(),
            words => record(at, words.trim_start_matches('+')).to_string().into_bytes(),
        };
        if at > 0 && !goes_on {
            file.push(b'\n');
        }
        file.extend(&line);
        last = line;
    }
    file.push(b'\n');
    // In place of a byte that no text of Rust can have.
    match memchr::memmem::find(&file, "\u{fffd}".as_bytes()) {
        Some(at) => [&file[..at], b"\xa0", &file[at + 3..]].concat(),
        None => file,
    }
}

fn files() -> Vec<(SessionClient, &'static ReadCase, Vec<u8>)> {
    let copilot = COPILOT
        .iter()
        .map(|row| (SessionClient::Copilot, row, file_of(row, copilot_record)));
    let qwen = QWEN.iter().map(|row| {
        (
            SessionClient::QwenCode,
            row,
            file_of(row, |_, words| qwen_record(words)),
        )
    });
    copilot.chain(qwen).collect()
}

fn scan(file: &[u8]) -> Result<SessionReport, NotRead> {
    scan_session(&mut Cursor::new(file)).unwrap()
}

#[test]
fn each_session_has_its_findings() {
    let mut wrong = Vec::new();
    for (client, row, file) in files() {
        let report = scan(&file).unwrap_or_else(|reason| panic!("{}: {reason}", row.name));
        let found: Vec<String> = report
            .findings
            .iter()
            .map(|finding| {
                let words = [finding.line].into_iter().chain(finding.lines.iter().copied());
                let words: Vec<String> = words.map(|line| line.to_string()).collect();
                format!("{} {}", finding.code.label(), words.join(" "))
            })
            .collect();
        let facts = (
            report.client,
            report.session.as_deref(),
            report.version.map(|version| version.to_string()),
        );
        let is_named = facts.1.is_none() || facts.1 == Some("s1") && facts.2.is_some();
        if found != row.found || (report.reachable, report.messages) != row.counts || facts.0 != client || !is_named {
            wrong.push(format!(
                "{client:?}, {}: {found:?} {facts:?} {}/{}",
                row.name, report.reachable, report.messages
            ));
        }
        assert!(
            report.findings.iter().all(|finding| finding.fix == FixKind::Told),
            "{}",
            row.name
        );
        assert!(!format!("{report:?}").contains(CANARY), "{}", row.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_planned_for_a_client_that_is_only_read() {
    for (client, row, file) in files() {
        let error = plan_fix(&mut Cursor::new(&file)).unwrap_err();
        let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<FixRefused>());
        assert_eq!(refused, Some(&FixRefused::OnlyRead(client)), "{}", row.name);
        assert!(error.to_string().contains(client.name()), "{error}");
    }
}

#[test]
fn an_empty_file_is_one_of_the_client_of_its_place() {
    for client in [SessionClient::Copilot, SessionClient::QwenCode] {
        let report = scan_session_of(client, &mut Cursor::new(b"\n")).unwrap().unwrap();
        let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code.label()).collect();
        assert_eq!((report.client, codes), (client, vec!["empty_file"]));
    }
}

/// Each code that these files can have was measured.
#[test]
fn each_finding_of_these_clients_has_a_measured_effect() {
    let unknown = ["long_record"];
    for (client, row, file) in files() {
        for finding in scan(&file).unwrap().findings {
            let is_known = MEASURED
                .iter()
                .any(|row| row.client == client && row.code == finding.code);
            let label = finding.code.label();
            assert!(
                is_known || unknown.contains(&label),
                "{client:?}: {}: {label}",
                row.name
            );
        }
    }
}

/// Bytes that are damaged at any place give a report or a reason, and never more sent than there is.
#[test]
fn damaged_bytes_are_read_to_the_end() {
    for (_, row, file) in files() {
        for at in (0..file.len()).step_by(11) {
            let mut damaged = file.clone();
            damaged[at] = [0, b'"', b'}', 0xff][at % 4];
            if at % 5 == 0 {
                damaged.truncate(at);
            }
            if let Ok(report) = scan(&damaged) {
                assert!(report.reachable <= report.messages, "{} at {at}: {report:?}", row.name);
            }
        }
    }
}
