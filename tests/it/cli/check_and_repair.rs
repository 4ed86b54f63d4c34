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

fn antiphon(arguments: &[&str], stdin: &[u8]) -> Output {
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

fn text(bytes: &[u8]) -> String {
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
    let lines = text(&out.stdout);
    let wanted = format!(
        "{BROKEN}: messages[1].content[0]: unanswered: the tool call has no result where one is due (toolu_01A)"
    );
    assert!(lines.contains(&wanted), "{lines}");
    assert!(lines.contains(&format!("{BROKEN}: 1 finding (anthropic)")), "{lines}");
    assert!(
        lines.contains(&format!("{HEALTHY}: every tool call has its result (openai-chat)")),
        "{lines}"
    );
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

#[test]
fn check_exits_0_on_a_healthy_body_and_2_on_an_unreadable_one() {
    assert_eq!(antiphon(&["check", HEALTHY], b"").status.code(), Some(0));
    let rows: &[(&[&str], &[u8], &str)] = &[
        (&["check"], b"{\"messages\":[", "not JSON"),
        (
            &["check", "-"],
            b"{}",
            "no `messages`, `input` or `contents` in this body",
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
        (&["check", "--wire", "latin"], b"", "expected one of anthropic, "),
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
    assert_eq!(document[0]["file"], "-");
    assert_eq!(document[0]["wire"], "anthropic");
    let finding = &document[0]["findings"][0];
    assert_eq!(finding["kind"], "unanswered");
    assert_eq!(finding["place"], "messages[1].content[0]");
    assert_eq!(finding["id"], "toolu_01A");
    assert_eq!(out.status.code(), Some(1));
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
