//! Files of `antiphon check` and `antiphon repair` in which nothing can be read, or not everything.

use antiphon::wire::{Format, Wire};
use serde_json::{Value, json};

use super::check_and_repair::{CALL, GO_ON, antiphon, line, text};

/// Returns a line of the stream that Claude Code prints.
fn streamed(kind: &str, message: &str) -> String {
    format!(r#"{{"type":"{kind}","session_id":"s","parent_tool_use_id":null,"message":{message}}}"#)
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
            assert!(errors.contains("-: not read"), "{arguments:?} {input}: {errors}");
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
    // A stream with contents of Gemini, and a session without a message.
    let open_call = [
        streamed("user", r#"{"role":"user","parts":[{"text":"go"}]}"#),
        streamed(
            "assistant",
            r#"{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}}}]}"#,
        ),
    ];
    assert_unread(&[], &open_call.join("\n"));
    assert_unread(&["--wire", "anthropic"], &open_call.join("\n"));
    let title = r#"{"type":"custom-title","sessionId":"s"}"#;
    assert_unread(&[], &format!("{title}\n{title}"));
    // The error names the file, the reason and the way out.
    let out = antiphon(&["check"], open_call.join("\n").as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: not read as Claude Code's stream of messages: no message has content which this version reads, so \
         nothing is known about its calls; check a request body of the agent instead\n"
    );
    let out = antiphon(&["check"], title.as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: not read: its records have no content that this version can read; check a request body of the agent \
         instead\n"
    );
}

/// A line that one reader skips may have a call that another would find open.
#[test]
fn a_mixed_file_is_not_called_healthy() {
    let (session, streamed) = (line("user", "u1", "null", GO_ON), streamed("user", GO_ON));
    let item = r#"{"timestamp":"t","type":"response_item","payload":{"type":"message","role":"user","content":[]}}"#
        .to_owned();
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
            [&streamed, other].to_vec(),
            [other, &streamed, &streamed].to_vec(),
            [&streamed, &streamed, other, other].to_vec(),
        ] {
            let place = file.iter().position(|line| *line == other).unwrap() + 1;
            let file = file.into_iter().cloned().collect::<Vec<_>>().join("\n");
            assert_unread(&[], &file);
            let out = antiphon(&["check"], file.as_bytes());
            let wanted = format!("line {place} has content of another kind");
            assert!(text(&out.stderr).contains(&wanted), "{}", text(&out.stderr));
        }
        // In a session such a line is a finding. A file that begins like one of another client is not read.
        for file in [[&session, other], [other, &session], [&item, other], [other, &item]] {
            let place = file.iter().position(|line| *line == other).unwrap() + 1;
            let file = file.map(String::as_str).join("\n");
            let out = antiphon(&["check"], file.as_bytes());
            let told = text(&out.stdout) + &text(&out.stderr);
            if other.contains("gemini") && place == 1 {
                assert_eq!(out.status.code(), Some(2), "{file}: {told}");
            } else {
                assert_eq!(out.status.code(), Some(1), "{file}: {told}");
                assert!(
                    told.contains(&format!("  :{place}: warning: stray_content: ")),
                    "{told}"
                );
            }
        }
    }
    assert_unread(&[], &[session, item].join("\n"));
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

/// A stream has lines of its own that are no messages.
#[test]
fn events_of_a_stream_are_no_lines_of_another_kind() {
    let lines = [
        &streamed("user", GO_ON),
        r#"{"type":"system","subtype":"init","session_id":"s","tools":[]}"#,
        r#"{"type":"stream_event","event":{"type":"message_stop"},"session_id":"s"}"#,
        r#"{"type":"result","subtype":"success","result":"words"}"#,
    ];
    let out = antiphon(&["check"], lines.join("\n").as_bytes());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
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

/// The last line of a killed agent's stream may be cut. Anywhere else it may be a body of which nothing is known.
#[test]
fn only_the_cut_end_of_a_stream_is_passed_over() {
    let whole = [
        streamed("user", GO_ON),
        streamed("assistant", r#"{"role":"assistant","content":"hi"}"#),
    ]
    .join("\n");
    let body = format!(r#"{{"messages":[{GO_ON}]}}"#);
    let batch_line = format!(r#"{{"custom_id":"a","body":{body}}}"#);
    let (bodies, batch) = ([&body[..]; 3].join("\n"), [&batch_line[..]; 3].join("\n"));
    let messages = [GO_ON; 3].join("\n");
    let cut = r#"{"type":"user","message":{"role":"us"#;
    for stream in [&whole, &whole[..whole.find('\n').unwrap()]] {
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
            let out = antiphon(&["check"], format!("{stream}\n{end}").as_bytes());
            let errors = text(&out.stderr);
            assert_eq!(out.status.code(), Some(code), "{end:?}: {errors}");
            let wanted = format!("line {}: ", stream.lines().count() + 1);
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
