//! `antiphon check` and `antiphon repair` on files and standard input: output and exit codes.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const BROKEN: &str = "tests/cases/anthropic/unanswered_user_talks/request.json";
const REPAIRED: &str = "tests/cases/anthropic/unanswered_user_talks/repaired.json";
const HEALTHY: &str = "tests/cases/openai-chat/healthy_run_in_any_order/request.json";

/// A body of Gemini's Interactions with an unanswered call, which is no fault that this program can repair.
const INTERACTION: &[u8] = br#"{"model":"gemini-3.5-flash","store":false,"input":[
    {"type":"user_input","content":[{"type":"text","text":"go"}]},
    {"type":"function_call","id":"c1","name":"f","arguments":{"a":1}},
    {"type":"user_input","content":[{"type":"text","text":"hurry"}]}]}"#;

pub(super) fn antiphon(arguments: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A child that does not read its input closes the pipe: the write error means nothing here.
    drop(child.stdin.take().unwrap().write_all(stdin));
    child.wait_with_output().unwrap()
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    folder.join(name)
}

#[test]
fn check_names_every_finding_and_exits_1() {
    let out = antiphon(&["check", BROKEN, HEALTHY], b"");
    assert_eq!(out.status.code(), Some(1));
    let (lines, verdicts) = (text(&out.stdout), text(&out.stderr));
    let wanted = format!(
        "{BROKEN}: messages[1].content[0]: unanswered: the tool call has no result where one is due (toolu_01A)"
    );
    // In a pipe standard output has the findings and nothing else.
    assert_eq!(lines, format!("{wanted}\n"));
    assert_eq!(
        verdicts,
        format!(
            "antiphon: {BROKEN}: 1 finding (anthropic)\n\
             antiphon: {HEALTHY}: every tool call has its result (openai-chat)\n"
        )
    );
}

#[test]
fn check_can_be_quiet_about_files() {
    for flag in ["-q", "--quiet"] {
        let out = antiphon(&["check", flag, BROKEN, HEALTHY], b"");
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(text(&out.stderr), "");
        assert_eq!(text(&out.stdout).lines().count(), 1, "{}", text(&out.stdout));
        let out = antiphon(&["check", flag, "no/such/file"], b"");
        assert!(text(&out.stderr).contains("no/such/file: "), "{}", text(&out.stderr));
    }
}

/// A file does not show what a client has dropped: the loss is reported, and nothing is put back.
#[test]
fn lost_values_are_findings_without_a_repair() {
    let lost = "tests/cases/openai-chat-deepseek/lost_reasoning/request.json";
    let out = antiphon(&["check", "--wire", "openai-chat-deepseek", lost], b"");
    assert_eq!(out.status.code(), Some(1));
    let line = format!("{lost}: messages[1]: lost_continuity: ");
    assert!(text(&out.stdout).starts_with(&line), "{}", text(&out.stdout));
    let out = antiphon(&["repair", "--wire", "openai-chat-deepseek", lost], b"");
    assert_eq!((out.status.code(), out.stdout), (Some(0), file(lost)));
    assert_eq!(
        text(&out.stderr),
        format!("antiphon: {lost}: 1 finding: unrepairable=1\n")
    );
    // Where only some servers want the value back, it is a note.
    let lost = "tests/cases/openai-chat-compatible/lost_signature_of_gemini/request.json";
    let out = antiphon(&["check", "--wire", "openai-chat-compatible", lost], b"");
    assert_eq!(out.status.code(), Some(0));
    let line = format!("{lost}: messages[1].tool_calls[0]: note: some servers refuse this: lost_continuity: ");
    assert!(text(&out.stdout).starts_with(&line), "{}", text(&out.stdout));
}

/// What no provider of the wire is known to refuse, and what no repair exists for, is a note.
#[test]
fn a_note_leaves_the_exit_code() {
    for (case, place) in [
        (
            "openai-responses/healthy_further_output_of_codex_notify",
            "input[11]: note: some servers refuse this: duplicate: ",
        ),
        (
            "anthropic/healthy_lone_surrogate_in_a_result",
            "messages[2].content[0]: note: some servers refuse this: field: ",
        ),
    ] {
        let wire = case.split('/').next().unwrap();
        let path = format!("tests/cases/{case}/request.json");
        let out = antiphon(&["check", "--wire", wire, &path], b"");
        assert_eq!(out.status.code(), Some(0), "{case}");
        let stdout = text(&out.stdout);
        assert!(stdout.starts_with(&format!("{path}: {place}")), "{stdout}");
    }
}

#[test]
fn check_exits_0_on_a_healthy_body_and_2_on_an_unreadable_one() {
    assert_eq!(antiphon(&["check", HEALTHY], b"").status.code(), Some(0));
    let rows: &[(&[&str], &[u8], &str)] = &[
        (
            &["check"],
            b"{\"messages\":[",
            "-: not JSON: line 1, column 13: it ends in the middle, so it may have been cut\n",
        ),
        (&["check"], b"", "-: not JSON: it is empty\n"),
        (&["check"], b"{\"messages\":[]}\n{\"messages\":[}\n", "not JSON"),
        (
            &["check"],
            b"{\"messages\":[]}\n{\"messages\":[}\n{}\n",
            "-: not JSON: line 2: column 14: expected value\n",
        ),
        (
            &["check"],
            b"POST /v1/messages HTTP/1.1\r\n\r\n{}",
            "the head of an HTTP request; keep only the body",
        ),
        (
            &["repair", "tests"],
            b"",
            "antiphon: tests: Is a directory (os error 21)\n",
        ),
        (
            &["check", "-"],
            b"{}",
            "no `messages`, `input` or `contents` with a history in this body",
        ),
        (
            &["check"],
            b"{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}",
            "Bedrock Converse",
        ),
        (&["check"], INTERACTION, "this looks like a Gemini Interactions body"),
        (&["repair"], INTERACTION, "this looks like a Gemini Interactions body"),
        (
            &["check", "--wire", "openai-responses"],
            INTERACTION,
            "this is a Gemini Interactions body, and --wire names openai-responses",
        ),
        (
            &["repair", "--wire", "anthropic"],
            b"{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"r\"}]}",
            "this is a Chat Completions body, and --wire names anthropic",
        ),
        (
            &["check", "--wire", "gemini"],
            b"{\"input\":[]}",
            "this is a Responses body, and --wire names gemini",
        ),
        (&["check", "no/such/file.json"], b"", "no/such/file.json"),
        (
            &["check", "--wire", "anthropic"],
            b"{\"messages\":[],\"messages\":[]}",
            "the history key occurs twice",
        ),
        (&["check", "--wire", "latin"], b"", "[possible values: anthropic, "),
        (&["repair"], b"[]", "not of the format's shape"),
    ];
    for (arguments, stdin, wanted) in rows {
        let out = antiphon(arguments, stdin);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&out.stderr).contains(wanted),
            "{arguments:?}: {}",
            text(&out.stderr)
        );
        assert!(out.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn check_prints_json() {
    let out = antiphon(&["check", "--output", "json", "-"], &file(BROKEN));
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(document["version"], 1);
    let body = &document["files"][0];
    assert_eq!(body["file"], "-");
    assert_eq!(body["wire"], "anthropic");
    let finding = &body["findings"][0];
    assert_eq!(finding["kind"], "unanswered");
    assert_eq!(finding["place"], "messages[1].content[0]");
    assert_eq!(finding["id"], "toolu_01A");
    assert_eq!(out.status.code(), Some(1));
}

pub(super) const CALL: &str =
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01","name":"f","input":{}}]}"#;
pub(super) const GO_ON: &str = r#"{"role":"user","content":"go on"}"#;

#[test]
fn check_reads_lists_and_lines() {
    let body = format!("{{\"messages\":[{GO_ON},{CALL},{GO_ON}]}}");
    let chat =
        r#"{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let item = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}"#;
    for (input, wanted) in [
        (
            format!("[{GO_ON},{CALL},{GO_ON}]"),
            "-: messages[1].content[0]: unanswered: ",
        ),
        (
            format!("[{GO_ON},{chat},{GO_ON}]"),
            "-: messages[1].tool_calls[0]: unanswered: ",
        ),
        (format!("[{GO_ON},{item},{GO_ON}]"), "-: input[1]: unanswered: "),
        (format!("{GO_ON}\n\n{CALL}\n{GO_ON}\n"), "-: line 3: unanswered: "),
        (
            format!("{{\"messages\":[{GO_ON}]}}\n{body}\n"),
            "-: line 2: messages[1].content[0]: unanswered: ",
        ),
    ] {
        let out = antiphon(&["check"], input.as_bytes());
        let lines = text(&out.stdout);
        assert_eq!(out.status.code(), Some(1), "{input}: {lines}{}", text(&out.stderr));
        assert!(lines.starts_with(wanted), "{input}: {lines}");
    }
    let out = antiphon(&["check"], format!("{{\"messages\":[{GO_ON}]}}\n{body}\n").as_bytes());
    assert_eq!(text(&out.stderr), "antiphon: -: 1 finding (2 bodies)\n");
}

/// Returns a record of Claude Code's session file.
pub(super) fn line(kind: &str, uuid: &str, parent: &str, message: &str) -> String {
    format!(r#"{{"parentUuid":{parent},"isSidechain":false,"type":"{kind}","uuid":"{uuid}","message":{message}}}"#)
}

#[test]
fn repair_writes_the_body_to_stdout_and_the_report_to_stderr() {
    let out = antiphon(&["repair", BROKEN], b"");
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(out.stdout, file(REPAIRED));
    assert!(
        text(&out.stderr).contains("1 finding: placeholder=1"),
        "{}",
        text(&out.stderr)
    );
    let again = antiphon(&["repair", "-"], &out.stdout);
    assert_eq!(again.stdout, out.stdout);
    assert!(text(&again.stderr).contains("nothing to repair"));
}

/// A file has no provider that could refuse its thinking: it is reported, and stays.
#[test]
fn foreign_thinking_in_a_file_is_reported_and_stays() {
    const FOREIGN: &str = "tests/cases/anthropic/foreign_thinking_of_a_translator/request.json";
    let out = antiphon(&["check", "--wire", "anthropic", FOREIGN], b"");
    assert_eq!(out.status.code(), Some(1));
    let wanted =
        "messages[1].content[0]: foreign_thinking: the signature of this thinking cannot be the provider's own";
    assert!(text(&out.stdout).contains(wanted), "{}", text(&out.stdout));
    let out = antiphon(&["repair", "--wire", "anthropic", FOREIGN], b"");
    assert_eq!(out.stdout, file(FOREIGN));
    assert!(
        text(&out.stderr).contains("1 finding: unrepairable=1"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn repair_can_write_a_file_only_check_or_show_the_difference() {
    let target = scratch("out.json");
    let out = antiphon(&["repair", BROKEN, "-o", target.to_str().unwrap()], b"");
    assert!(out.stdout.is_empty() && out.status.success());
    assert_eq!(std::fs::read(&target).unwrap(), file(REPAIRED));
    let out = antiphon(&["repair", BROKEN, "-o", "no/such/x"], b"");
    assert_eq!(out.status.code(), Some(1));
    let errors = text(&out.stderr);
    assert!(
        errors.ends_with("antiphon: no/such/x: No such file or directory (os error 2)\n"),
        "{errors}"
    );
    let out = antiphon(&["repair", "--check", BROKEN], b"");
    assert!(out.stdout.is_empty());
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(antiphon(&["repair", "--check", HEALTHY], b"").status.code(), Some(0));
    let out = antiphon(&["repair", "--diff", BROKEN], b"");
    let lines = text(&out.stdout);
    assert!(
        lines
            .lines()
            .any(|line| line.starts_with("-{\"role\": \"user\", \"content\": \"hurry\"}")),
        "{lines}"
    );
    assert!(
        lines
            .lines()
            .any(|line| line.starts_with('+') && line.contains("tool_result")),
        "{lines}"
    );
    assert!(antiphon(&["repair", "--diff", HEALTHY], b"").stdout.is_empty());
}

#[test]
fn repair_applies_only_the_allowed_safety_classes() {
    let out = antiphon(&["repair", "--least", "lossless", BROKEN], b"");
    assert_eq!(out.stdout, file(BROKEN));
    assert!(text(&out.stderr).contains("nothing applied"));
}

/// An unanswered call in a format that the file does not name is no clean bill, and nothing else is a list of messages.
#[test]
fn check_refuses_what_it_does_not_understand() {
    let ui = r#"{"role":"assistant","parts":[{"type":"tool-f","toolCallId":"c1","state":"input-available"}]}"#;
    for (input, wanted) in [
        (
            "{\"timestamp\":1,\"text\":\"a\"}\n{\"timestamp\":2,\"text\":\"b\"}\n".to_owned(),
            "-: line 1 is neither a request body nor a message: it has no `messages`, ",
        ),
        (
            format!("{GO_ON}\n{{\"type\":\"tool_call\"}}\n"),
            "-: line 2 is neither ",
        ),
        (
            format!("{{\"messages\":[{GO_ON}]}}\n{{\"timestamp\":1}}\n"),
            "-: line 2 is no request body: it has no `messages`, ",
        ),
        (
            r#"[{"a":1}]"#.to_owned(),
            "-: item 1 of the list is no message: it has no `role`, ",
        ),
        ("[1, 2]".to_owned(), "-: item 1 of the list is no message"),
        (
            format!("[{GO_ON},{{\"type\":\"text\",\"text\":\"t\"}}]"),
            "-: item 2 of the list is no message",
        ),
        (
            format!("[{{\"messages\":[{GO_ON},{CALL}]}}]"),
            "-: item 1 of the list is no message",
        ),
        (format!("[{GO_ON},{ui}]"), "-: item 2 of the list is no message"),
    ] {
        for arguments in [&["check"][..], &["check", "--wire", "anthropic"]] {
            let out = antiphon(arguments, input.as_bytes());
            let (lines, errors) = (text(&out.stdout), text(&out.stderr));
            assert_eq!(out.status.code(), Some(2), "{arguments:?} {input}: {lines}{errors}");
            assert!(errors.starts_with(&format!("antiphon: {wanted}")), "{input}: {errors}");
        }
    }
}

/// The messages of another format than `--wire` names would be read as messages without calls.
#[test]
fn check_compares_a_list_with_the_named_format() {
    let item = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}"#;
    let content = r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}"#;
    for (list, wire, found) in [
        (format!("[{GO_ON},{item}]"), "anthropic", "a Responses body"),
        (format!("{content}\n{content}"), "openai-chat", "a generateContent body"),
        (format!("[{GO_ON},{CALL},{GO_ON}]"), "gemini", "a Messages body"),
    ] {
        let out = antiphon(&["check", "--wire", wire], list.as_bytes());
        assert_eq!(out.status.code(), Some(2), "{list}: {}", text(&out.stdout));
        let wanted = format!("-: this is {found}, and --wire names {wire} ");
        assert!(text(&out.stderr).contains(&wanted), "{list}: {}", text(&out.stderr));
    }
    let out = antiphon(
        &["check", "--wire", "openai-responses"],
        format!("[{GO_ON}]").as_bytes(),
    );
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: every tool call has its result (openai-responses)\n"
    );
}

/// The body of a count is read if it has the history itself. Bedrock's wraps a request of another format.
#[test]
fn check_reads_counts_of_tokens_only_with_a_history() {
    let converse = r#"{"input":{"converse":{"messages":[{"role":"user","content":[{"text":"go"}]}]}}}"#;
    let invoke = r#"{"input":{"invokeModel":{"body":"eyJtZXNzYWdlcyI6W119"}}}"#;
    let bedrock = "this looks like a Bedrock CountTokens body, a format that this version does not support";
    let named = "this is a Bedrock CountTokens body";
    for body in [converse, invoke] {
        for command in ["check", "repair"] {
            let out = antiphon(&[command], body.as_bytes());
            let said = text(&out.stdout) + &text(&out.stderr);
            assert!(said.contains(bedrock), "{command} {body}: {said}");
            assert_eq!(out.status.code(), Some(2), "{command} {body}");
            let out = antiphon(&[command, "--wire", "openai-responses"], body.as_bytes());
            let said = text(&out.stdout) + &text(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{command} --wire {body}: {said}");
        }
        let out = antiphon(&["repair", "--wire", "openai-responses"], body.as_bytes());
        assert!(text(&out.stderr).contains(named), "{}", text(&out.stderr));
        // As one of several lines too.
        let out = antiphon(&["check"], format!("{body}\n{body}\n").as_bytes());
        assert_eq!(out.status.code(), Some(2), "{body}");
    }
    let output = r#"{"type":"function_call_output","call_id":"c1","output":"r"}"#;
    for (body, found) in [
        (
            format!(r#"{{"model":"claude-x","messages":[{GO_ON},{CALL},{GO_ON}]}}"#),
            "unanswered",
        ),
        (format!(r#"{{"model":"gpt-5","input":[{output}]}}"#), "orphan"),
    ] {
        let out = antiphon(&["check"], body.as_bytes());
        assert!(text(&out.stdout).contains(found), "{body}: {}", text(&out.stdout));
        assert_eq!(out.status.code(), Some(1), "{body}");
    }
    let out = antiphon(&["check"], br#"{"model":"gpt-5","input":"count me"}"#);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn check_unwraps_the_lines_of_batch_files() {
    let body = format!("{{\"messages\":[{GO_ON},{CALL},{GO_ON}]}}");
    let openai = format!(r#"{{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{body}}}"#);
    let anthropic = format!(r#"{{"custom_id":"a","params":{body}}}"#);
    let bedrock = format!(r#"{{"recordId":"a","modelInput":{body}}}"#);
    let call = r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}"#;
    let says = r#"{"role":"user","parts":[{"text":"go"}]}"#;
    let gemini = format!(r#"{{"key":"a","request":{{"contents":[{says},{call},{says}]}}}}"#);
    let healthy = format!(r#"{{"custom_id":"b","params":{{"messages":[{GO_ON}]}}}}"#);
    for (line, place) in [
        (openai, "messages[1].content[0]"),
        (anthropic, "messages[1].content[0]"),
        (bedrock, "messages[1].content[0]"),
        (gemini, "request.contents[1].parts[0]"),
    ] {
        let out = antiphon(&["check"], format!("{healthy}\n{line}\n").as_bytes());
        let wanted = format!("-: line 2: {place}: unanswered: ");
        let lines = text(&out.stdout);
        assert!(lines.starts_with(&wanted), "{line}: {lines}{}", text(&out.stderr));
        assert_eq!(out.status.code(), Some(1), "{line}");
        // A batch of one request is a single JSON value.
        let out = antiphon(&["check"], line.as_bytes());
        let (lines, errors) = (text(&out.stdout), text(&out.stderr));
        assert!(
            lines.contains(&format!("{place}: unanswered: ")),
            "{line}: {lines}{errors}"
        );
    }
}

/// A custom tool's call has a member `input`, which is no history.
#[test]
fn check_reads_lines_with_calls_of_custom_tools() {
    let says = r#"{"type":"message","role":"user","content":"go"}"#;
    let call = r#"{"type":"custom_tool_call","call_id":"c1","name":"f","input":"text"}"#;
    let result = r#"{"type":"custom_tool_call_output","call_id":"c1","output":"done"}"#;
    let out = antiphon(&["check"], format!("{says}\n{call}\n{says}\n").as_bytes());
    let wanted = "-: line 2: unanswered: ";
    assert!(
        text(&out.stdout).starts_with(wanted),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    let out = antiphon(&["check"], format!("{says}\n{call}\n{result}\n").as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: every tool call has its result (openai-responses, one message on each line)\n"
    );
    // The result of a call that is not there: one line is a list of messages too.
    let out = antiphon(&["check"], result.as_bytes());
    assert!(
        text(&out.stdout).starts_with("-: line 1: orphan"),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
}

/// A list of messages has no agent.
#[test]
fn check_names_the_kind_of_a_file() {
    let messages = format!("{GO_ON}\n{GO_ON}\n");
    let out = antiphon(&["check"], messages.as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: every tool call has its result (openai-chat, one message on each line)\n"
    );
    let stream = format!(r#"{{"type":"user","parent_tool_use_id":null,"message":{GO_ON}}}"#);
    for (input, is_transcript) in [(messages, false), (format!("{stream}\n{stream}\n"), true)] {
        let out = antiphon(&["check", "--output", "json"], input.as_bytes());
        let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(document["files"][0]["transcript"], is_transcript, "{input}");
    }
}

/// The output of `claude --output-format stream-json` has ids and no links, and names the call of a subagent.
#[test]
fn check_reads_a_stream_of_claude_code_in_the_order_of_its_lines() {
    let sent = |kind: &str, uuid: &str, subagent: &str, message: &str| {
        format!(r#"{{"type":"{kind}","uuid":"{uuid}","parent_tool_use_id":{subagent},"message":{message}}}"#)
    };
    let lines = [
        sent("user", "a", "null", GO_ON),
        sent("assistant", "b", "null", CALL),
        sent("assistant", "c", "\"toolu_01\"", &CALL.replace("toolu_01", "toolu_02")),
        sent("user", "d", "null", GO_ON),
    ];
    let out = antiphon(&["check"], lines.join("\n").as_bytes());
    assert_eq!(
        text(&out.stdout),
        "-: line 2: unanswered: the tool call has no result where one is due (toolu_01)\n",
        "{}",
        text(&out.stderr)
    );
}

/// A value without any history is no healthy body, also if its format is named. One whose history the provider has is.
#[test]
fn check_tells_no_body_from_one_without_a_history_of_its_own() {
    for wire in ["anthropic", "openai-responses"] {
        for input in [
            r#"{"foo":1}"#,
            r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
        ] {
            let out = antiphon(&["check", "--wire", wire], input.as_bytes());
            assert_eq!(out.status.code(), Some(2), "{wire} {input}: {}", text(&out.stdout));
        }
    }
    let remote = r#"{"model":"m","previous_response_id":"r"}"#;
    let next = r#"{"model":"m","input":"hello"}"#;
    for input in [remote.to_owned(), format!("{remote}\n{next}\n")] {
        let out = antiphon(&["check", "--wire", "openai-responses"], input.as_bytes());
        assert_eq!(out.status.code(), Some(0), "{input}: {}", text(&out.stderr));
    }
}

/// Ids and file names come from others: they must not move the cursor, change colours or add lines.
#[test]
fn names_in_the_output_are_escaped() {
    let odd = r"toolu\u001b[31mRED\n\u202e";
    let body = format!("{{\"messages\":[{GO_ON},{CALL},{GO_ON}]}}").replace("toolu_01", odd);
    let out = antiphon(&["check"], body.as_bytes());
    let lines = text(&out.stdout);
    assert!(lines.contains("(toolu\\u{1b}[31mRED\\n\\u{202e})\n"), "{lines:?}");
    // The id itself is a fault as well.
    assert_eq!(lines.lines().count(), 2, "{lines:?}");
    // A name of megabytes is no help for anybody.
    let long = body.replace("RED", &"R".repeat(100_000));
    assert!(antiphon(&["check"], long.as_bytes()).stdout.len() < 1000);
    // JSON has the id as it is.
    let out = antiphon(&["check", "--output", "json"], body.as_bytes());
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        document["files"][0]["findings"][0]["id"],
        "toolu\u{1b}[31mRED\n\u{202e}"
    );

    let file = scratch("a\u{1b}[31m\n\u{202e}b.json");
    let name = file.to_str().unwrap();
    let is_plain = |bytes: &[u8]| !text(bytes).contains(['\u{1b}', '\u{202e}']) && !text(bytes).contains("\n\u{202e}");
    for content in [body.as_str(), "not JSON", "{}"] {
        std::fs::write(&file, content).unwrap();
        for arguments in [&["check", name][..], &["repair", name], &["repair", "--diff", name]] {
            let out = antiphon(arguments, b"");
            let errors = text(&out.stderr);
            assert!(is_plain(&out.stderr), "{arguments:?} {content}: {errors:?}");
            // Standard output of `repair` alone is the body.
            if arguments.len() > 2 || arguments[0] == "check" {
                assert!(
                    is_plain(&out.stdout),
                    "{arguments:?} {content}: {:?}",
                    text(&out.stdout)
                );
            }
        }
    }
    let out = antiphon(&["check", "no\u{1b}[31mfile"], b"");
    assert!(is_plain(&out.stderr), "{:?}", text(&out.stderr));
    // Letters that turn the text around them may stand in a body as they are.
    let turned = body.replace("go on", "go \u{202e}on \\\"quoted\\\"");
    let out = antiphon(&["repair", "--diff"], turned.as_bytes());
    let lines = text(&out.stdout);
    assert!(is_plain(&out.stdout), "{lines:?}");
    assert!(lines.contains("go \\u{202e}on \\\"quoted\\\""), "{lines}");
}
