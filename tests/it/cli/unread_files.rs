//! `antiphon check` on transcripts of agents, and on files in which nothing can be read.

use antiphon::wire::{Format, Wire};
use serde_json::{Value, json};

use super::check_and_repair::{CALL, GO_ON, antiphon, line, text};

/// Returns a line of Qwen Code's transcript: Claude Code's links around Gemini's contents.
fn qwen(kind: &str, uuid: &str, parent: &str, parts: &str) -> String {
    let role = if kind == "assistant" { "model" } else { "user" };
    line(kind, uuid, parent, &format!(r#"{{"role":"{role}","parts":[{parts}]}}"#))
}

/// Returns the messages of a body in which no reader of the format finds content.
fn empty_messages(format: Format) -> (&'static str, Value) {
    match format {
        // The parts of a user interface.
        Format::Anthropic | Format::OpenAiChat => (
            "messages",
            json!([{"role": "user", "parts": [{"type": "text", "text": "go"}]},
                   {"role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "c1", "state": "input-available"}]}]),
        ),
        Format::OpenAiResponses => ("input", json!([{"kind": "call", "call": "c1"}])),
        Format::Gemini => (
            "contents",
            json!([{"role": "model", "content": [{"functionCall": {"name": "f"}}]}]),
        ),
    }
}

/// A change to the lines of a session.
type Damage = dyn Fn(&mut Vec<String>);

/// Runs `check` and `repair` on a file in which messages were found and nothing was read.
fn assert_unread(arguments: &[&str], input: &str) {
    for command in ["check", "repair"] {
        // `repair` takes one body, and refuses other files for other reasons.
        if command == "repair" && input.contains('\n') {
            continue;
        }
        let out = antiphon(&[&[command], arguments].concat(), input.as_bytes());
        let errors = text(&out.stderr);
        assert_eq!(
            out.status.code(),
            Some(2),
            "{command} {arguments:?} {input}: {}{errors}",
            text(&out.stdout)
        );
        assert!(errors.starts_with("antiphon: -: "), "{command} {input}: {errors}");
        if command == "check" {
            assert!(errors.contains("-: not read as "), "{arguments:?} {input}: {errors}");
        }
        assert!(out.stdout.is_empty(), "{command} {input}: {}", text(&out.stdout));
    }
}

/// A reader that finds messages and no content knows nothing of their calls: a false "healthy" is the worst fault.
#[test]
fn a_file_in_which_nothing_can_be_read_is_not_called_healthy() {
    for (name, wire) in Wire::NAMES {
        let (key, messages) = empty_messages(wire.format);
        let body = json!({ key: messages }).to_string();
        assert_unread(&["--wire", name], &body);
        // One body on each line.
        assert_unread(&["--wire", name], &format!("{body}\n{body}"));
    }
    let bodies = [Format::OpenAiChat, Format::OpenAiResponses, Format::Gemini].map(|format| {
        let (key, messages) = empty_messages(format);
        json!({ key: messages })
    });
    for body in &bodies {
        assert_unread(&[], &body.to_string());
        // A line of a batch file.
        assert_unread(&[], &format!("{body}\n{}", json!({"custom_id": "a", "body": body})));
    }
    // A session of gemini-cli, an export of opencode, a batch without requests, a batch of requests without content.
    for whole in [
        json!({"sessionId": "s", "messages": [{"type": "user", "content": "go"}, {"type": "gemini", "toolCalls": [{}]}]}),
        json!({"info": {}, "messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]}]}),
        json!({"requests": [{"custom_id": "a"}]}),
        json!({"requests": [{"params": {"messages": [{"role": "user"}]}}]}),
        json!({"request": {"contents": [{"role": "user", "content": "go"}]}}),
    ] {
        assert_unread(&[], &whole.to_string());
    }
    // One message on each line, and a list of messages.
    assert_unread(&[], "{\"role\":\"user\"}\n{\"role\":\"assistant\"}");
    assert_unread(
        &[],
        "{\"type\":\"message\",\"message\":{}}\n{\"type\":\"message\",\"message\":{}}",
    );
    let out = antiphon(&["check"], b"[{\"role\":\"user\"}]");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    // Transcripts: of Qwen Code, of Claude Code with errors alone, and of Codex without a known item.
    let open_call = [
        qwen("user", "a", "null", r#"{"text":"go"}"#),
        qwen(
            "assistant",
            "b",
            "\"a\"",
            r#"{"functionCall":{"id":"c1","name":"f","args":{}}}"#,
        ),
        qwen("user", "c", "\"b\"", r#"{"text":"go on"}"#),
    ];
    assert_unread(&[], &open_call.join("\n"));
    assert_unread(&["--wire", "anthropic"], &open_call.join("\n"));
    let shown = line("assistant", "a", "null", CALL).replace("\"type\"", "\"isApiErrorMessage\":true,\"type\"");
    assert_unread(&[], &format!("{shown}\n{shown}"));
    let meta = r#"{"type":"session_meta","payload":{"id":"s"}}"#;
    assert_unread(
        &[],
        &format!("{meta}\n{{\"type\":\"event_msg\",\"payload\":{{\"type\":\"user_message\"}}}}"),
    );
    assert_unread(
        &[],
        &format!("{meta}\n{{\"type\":\"response_item\",\"payload\":{{\"kind\":\"call\"}}}}"),
    );
    // The error names the file, the reason and the way out.
    let out = antiphon(&["check"], open_call.join("\n").as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: not read as Claude Code's transcript: no message that would be sent has content which this version \
         reads, so nothing is known about its calls; check a request body of the agent instead\n"
    );
}

/// A line that one reader skips may have a call that another would find open.
#[test]
fn a_mixed_file_is_not_called_healthy() {
    let claude = line("user", "u1", "null", GO_ON);
    let reply = line(
        "assistant",
        "a1",
        "\"u1\"",
        r#"{"id":"m1","role":"assistant","content":[{"type":"text","text":"hi"}]}"#,
    );
    let meta = r#"{"type":"session_meta","payload":{"id":"s"}}"#.to_owned();
    let item = r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}"#.to_owned();
    let chat =
        r#"{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let parts = r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}"#;
    let others = [
        parts.to_owned(),
        chat.to_owned(),
        CALL.to_owned(),
        r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}"#.to_owned(),
        r#"{"type":"custom_tool_call","call_id":"c1","name":"f","input":"x"}"#.to_owned(),
        format!(r#"{{"messages":[{GO_ON},{CALL},{GO_ON}]}}"#),
        format!(r#"{{"custom_id":"a","body":{{"messages":[{GO_ON},{CALL},{GO_ON}]}}}}"#),
        // A session of gemini-cli.
        r#"{"type":"gemini","content":"","toolCalls":[{"id":"c1","name":"f","args":{}}]}"#.to_owned(),
        r#"{"type":"assistant","parts":[{"functionCall":{"name":"f","args":{}}}]}"#.to_owned(),
    ];
    for other in &others {
        for file in [
            vec![claude.clone(), other.clone()],
            vec![other.clone(), claude.clone(), reply.clone()],
            vec![claude.clone(), reply.clone(), other.clone(), other.clone()],
            vec![meta.clone(), item.clone(), other.clone()],
            vec![other.clone(), meta.clone(), item.clone()],
        ] {
            let place = file.iter().position(|line| line == other).unwrap() + 1;
            assert_unread(&[], &file.join("\n"));
            let out = antiphon(&["check"], file.join("\n").as_bytes());
            let wanted = format!("line {place} has content of another kind");
            assert!(text(&out.stderr).contains(&wanted), "{}", text(&out.stderr));
        }
    }
    // Lines of two agents, and links of Claude Code around contents of Gemini, as Qwen Code writes them.
    let call = r#"{"functionCall":{"id":"c1","name":"f","args":{}}}"#;
    for file in [
        vec![claude.clone(), reply.clone(), meta, item],
        vec![claude.clone(), qwen("assistant", "a1", "\"u1\"", call)],
        vec![claude, reply, qwen("assistant", "a2", "\"a1\"", call)],
    ] {
        assert_unread(&[], &file.join("\n"));
    }
}

/// On lines, in a list and in a body.
#[test]
fn messages_of_two_formats_are_not_called_healthy() {
    let chat =
        r#"{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let parts = r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}"#;
    for messages in [
        [GO_ON, parts, GO_ON],
        [parts, GO_ON, GO_ON],
        [GO_ON, parts, parts],
        [chat, parts, GO_ON],
    ] {
        assert_unread(&[], &messages.join("\n"));
        let list = format!("[{}]", messages.join(","));
        assert_unread(&[], &list);
        for key in ["messages", "contents"] {
            assert_unread(&[], &format!("{{\"{key}\":{list}}}"));
        }
    }
}

/// Agents write lines of their own that are no messages.
#[test]
fn events_of_an_agent_are_no_lines_of_another_kind() {
    let claude = line("user", "u1", "null", GO_ON);
    let meta = r#"{"type":"session_meta","payload":{"id":"s"}}"#.to_owned();
    let item = r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}"#.to_owned();
    let events = [
        r#"{"type":"system","subtype":"informational","content":"words","uuid":"x"}"#,
        r#"{"type":"queue-operation","operation":"enqueue","content":"words"}"#,
        r#"{"type":"attachment","attachment":{"type":"file","content":{}},"uuid":"y"}"#,
        r#"{"type":"result","subtype":"success","result":"words"}"#,
        r#"{"type":"summary","summary":"s","leafUuid":"x"}"#,
        r#"{"type":"last-prompt","lastPrompt":"go","sessionId":"s"}"#,
        r#"{"type":"event_msg","payload":{"type":"user_message","message":"go"}}"#,
        r#"{"type":"turn_context","payload":{"model":"m"}}"#,
    ];
    let lines: Vec<String> = events.iter().map(|line| (*line).to_owned()).collect();
    let files = [vec![claude], vec![meta, item]].map(|start| [start, lines.clone()].concat());
    for file in files {
        let out = antiphon(&["check"], file.join("\n").as_bytes());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
}

/// A batch is healthy only if each of its requests was read.
#[test]
fn a_batch_with_an_unreadable_request_is_not_called_healthy() {
    let batch = |second: &str| {
        format!(
            r#"{{"requests":[{{"custom_id":"a","params":{{"messages":[{GO_ON}]}}}},{{"custom_id":"b","params":{second}}}]}}"#
        )
    };
    let healthy = format!(r#"{{"messages":[{GO_ON}]}}"#);
    assert_eq!(antiphon(&["check"], batch(&healthy).as_bytes()).status.code(), Some(0));
    let unreadable = batch(r#"{"messages":7}"#);
    let out = antiphon(&["check"], unreadable.as_bytes());
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    let errors = text(&out.stderr);
    assert!(errors.contains("-: an entry is unreadable as anthropic: "), "{errors}");
    // The other requests are repaired, and the report names the lack.
    let out = antiphon(&["repair"], unreadable.as_bytes());
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), unreadable));
    let errors = text(&out.stderr);
    assert!(errors.contains("; an entry could not be read: "), "{errors}");
}

/// The last line of a killed agent's transcript may be cut. Anywhere else it may be a body of which nothing is known.
#[test]
fn only_the_cut_end_of_a_transcript_is_passed_over() {
    let claude = [
        line("user", "u1", "null", GO_ON),
        line("assistant", "a1", "\"u1\"", r#"{"role":"assistant","content":"hi"}"#),
    ]
    .join("\n");
    let codex = [
        r#"{"type":"session_meta","payload":{"id":"s"}}"#,
        r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}"#,
    ]
    .join("\n");
    let body = format!(r#"{{"messages":[{GO_ON}]}}"#);
    let batch_line = format!(r#"{{"custom_id":"a","body":{body}}}"#);
    let (bodies, batch) = ([&body[..]; 3].join("\n"), [&batch_line[..]; 3].join("\n"));
    let messages = [GO_ON; 3].join("\n");
    let cut = r#"{"type":"user","message":{"role":"us"#;
    for transcript in [&claude, &codex, &claude[..claude.find('\n').unwrap()]] {
        for (end, code) in [
            (cut, 0),
            ("{", 0),
            (r#"{"a":"\u00"#, 0),
            (r#"{"a":"#, 0),
            // Not at the end of the text, or nothing that an agent was about to write.
            (&format!("{cut}\n"), 2),
            (&format!("{cut}\r\n \n"), 2),
            (r#"{"a":1,}"#, 2),
            (r#"{"a":1},"#, 2),
            ("[1,", 2),
            ("[1]", 2),
            ("7\n", 2),
        ] {
            let out = antiphon(&["check"], format!("{transcript}\n{end}").as_bytes());
            let errors = text(&out.stderr);
            assert_eq!(out.status.code(), Some(code), "{end:?}: {errors}");
            let wanted = format!("line {}: ", transcript.lines().count() + 1);
            assert_eq!(errors.contains(&wanted), code == 2, "{end:?}: {errors}");
        }
    }
    for file in [&bodies, &batch, &messages] {
        for arguments in [&["check"][..], &["repair", "--check"]] {
            if file == &messages && arguments[0] == "repair" {
                continue;
            }
            assert_eq!(antiphon(arguments, file.as_bytes()).status.code(), Some(0), "{file}");
            for end in [
                "{\"messages\":[{\"role\":\"us",
                "{\"messages\":[]},",
                "{\"a\":1,}\n",
                "[1]",
                "[1]\n",
                "null",
            ] {
                let out = antiphon(arguments, format!("{file}\n{end}").as_bytes());
                let errors = text(&out.stderr);
                assert_eq!(out.status.code(), Some(2), "{arguments:?} {end:?}: {errors}");
                assert!(errors.contains("line 4: "), "{arguments:?} {end:?}: {errors}");
                assert!(out.stdout.is_empty(), "{}", text(&out.stdout));
            }
        }
    }
}

/// Marks a line as one of a sub-agent.
fn of_subagent(line: &str) -> String {
    line.replace("\"isSidechain\":false", "\"isSidechain\":true,\"agentId\":\"a1\"")
}

/// In a file of its own a sub-agent's conversation is the one that counts. Beside the main conversation it is not.
#[test]
fn check_reads_the_file_of_a_subagent() {
    let open_call = [
        line("user", "a", "null", GO_ON),
        line("assistant", "b", "\"a\"", CALL),
        line("user", "c", "\"b\"", GO_ON),
    ]
    .map(|line| of_subagent(&line));
    let out = antiphon(&["check"], open_call.join("\n").as_bytes());
    assert!(
        text(&out.stdout).starts_with("-: line 2: unanswered: "),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    assert_eq!(out.status.code(), Some(1));
    let main = [line("user", "m", "null", GO_ON), line("user", "n", "\"m\"", GO_ON)];
    let both = [&main[..1], &open_call, &main[1..]].concat();
    let out = antiphon(&["check"], both.join("\n").as_bytes());
    assert_eq!(out.status.code(), Some(0), "{}{}", text(&out.stdout), text(&out.stderr));
}

/// Returns the lines of a healthy session, written by a version of Claude Code.
fn session(version: &str) -> Vec<String> {
    let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"done"}]}"#;
    [
        line("user", "u1", "null", GO_ON),
        line("assistant", "a1", "\"u1\"", CALL),
        line("user", "r1", "\"a1\"", result),
        line("assistant", "a2", "\"r1\"", r#"{"role":"assistant","content":"done"}"#),
        line("user", "u2", "\"a2\"", GO_ON),
        line("assistant", "a3", "\"u2\"", r#"{"role":"assistant","content":"again"}"#),
        line("user", "u3", "\"a3\"", GO_ON),
    ]
    .map(|line| line.replace("\"isSidechain\"", &format!("\"version\":\"{version}\",\"isSidechain\"")))
    .to_vec()
}

/// What a client silently leaves out of its next request is not "every tool call has its result".
#[test]
fn check_reports_a_broken_chain() {
    let lost = |lines: &mut Vec<String>| lines[4] = lines[4].replace("\"a2\"", "\"gone\"");
    let circle = |lines: &mut Vec<String>| lines[2] = lines[2].replace("\"a1\"", "\"a3\"");
    let twice = |lines: &mut Vec<String>| lines[4] = lines[4].replace("\"u2\"", "\"u1\"");
    let beside = |lines: &mut Vec<String>| {
        lines[4] = lines[4].replace("\"a2\"", "\"s1\"");
        lines.insert(4, of_subagent(&line("user", "s1", "null", GO_ON)));
    };
    let rows: [(&str, usize, bool, &Damage); 4] = [
        ("lost_parent", 5, true, &lost),
        ("parent_circle", 3, true, &circle),
        ("uuid_twice", 5, false, &twice),
        ("parent_in_subagent", 6, false, &beside),
    ];
    for (kind, number, is_mended, damage) in rows {
        for (version, copes) in [
            ("2.1.42", false),
            ("2.1.332", is_mended),
            ("2.2.0", is_mended),
            ("?", false),
        ] {
            let mut lines = session(version);
            assert_eq!(antiphon(&["check"], lines.join("\n").as_bytes()).status.code(), Some(0));
            damage(&mut lines);
            let out = antiphon(&["check"], lines.join("\n").as_bytes());
            let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
            let note = if copes { "note: " } else { "" };
            let wanted = format!("-: line {number}: {note}{kind}: ");
            assert!(said.starts_with(&wanted), "{kind} {version}: {said}");
            assert!(
                !said.contains("every tool call has its result"),
                "{kind} {version}: {said}"
            );
            assert_eq!(out.status.code(), Some(i32::from(!copes)), "{kind} {version}: {said}");
            let out = antiphon(&["check", "--output", "json"], lines.join("\n").as_bytes());
            let document: Value = serde_json::from_slice(&out.stdout).unwrap();
            let body = &document["files"][0];
            let found = &body[if copes { "notes" } else { "findings" }][0];
            assert_eq!(
                (&found["kind"], &found["line"]),
                (&json!(kind), &json!(number)),
                "{body}"
            );
        }
    }
}

/// Not every odd link loses something.
#[test]
fn check_does_not_report_links_that_lose_nothing() {
    // A copy of a line, a file whose first line follows one of another file, and a branch that the user has left.
    let copy = |lines: &mut Vec<String>| lines.insert(4, lines[3].clone());
    let first = |lines: &mut Vec<String>| lines[0] = lines[0].replace("null", "\"elsewhere\"");
    let left = |lines: &mut Vec<String>| lines.insert(6, line("user", "x", "\"gone\"", GO_ON));
    let rows: [&Damage; 3] = [&copy, &first, &left];
    for change in rows {
        let mut lines = session("2.1.42");
        change(&mut lines);
        let out = antiphon(&["check"], lines.join("\n").as_bytes());
        let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
        assert_eq!(
            said,
            "antiphon: -: every tool call has its result (anthropic, Claude Code's transcript)\n"
        );
    }
    // The last line has no id: the lines before it count nevertheless.
    let mut lines = session("2.1.42");
    lines[2] = line("user", "r1", "\"a1\"", GO_ON);
    lines.push(line("user", "", "null", GO_ON));
    let out = antiphon(&["check"], lines.join("\n").as_bytes());
    assert!(
        text(&out.stdout).starts_with("-: line 2: unanswered: "),
        "{}",
        text(&out.stdout)
    );
}

/// `check` reads a session as a body, and names the command that reads it as its client does.
#[test]
fn check_names_the_doctor_of_a_session_file() {
    let session = [
        line("user", "u1", "null", GO_ON),
        line("assistant", "a1", "\"u1\"", CALL),
        line("user", "u2", "\"a1\"", GO_ON),
    ];
    let body = format!(r#"{{"messages":[{GO_ON}]}}"#);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    let name = path.to_str().unwrap();
    let words = format!("antiphon: {name}: a session file: `antiphon doctor {name}` reads it as its client does\n");
    for (content, arguments, is_named) in [
        (session.join("\n"), vec!["check", name], true),
        (session.join("\n"), vec!["check", "--quiet", name], false),
        (body, vec!["check", name], false),
    ] {
        std::fs::write(&path, &content).unwrap();
        let out = antiphon(&arguments, b"");
        assert_eq!(
            text(&out.stderr).contains(&words),
            is_named,
            "{arguments:?}: {}",
            text(&out.stderr)
        );
        assert!(!text(&out.stdout).contains("doctor"), "{arguments:?}");
    }
    // Standard input has no name.
    let out = antiphon(&["check"], session.join("\n").as_bytes());
    assert!(!text(&out.stderr).contains("doctor"), "{}", text(&out.stderr));
}
