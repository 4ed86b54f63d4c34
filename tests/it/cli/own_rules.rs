//! Own rows of refusals: their faults at the load, the file they stand in, and the commands of `antiphon rules`.

use std::{fs, io::Write as _, path::Path};

use antiphon::config::{CurrentFile, Flags, LoadedRules, build_config, load_config, load_rules};
use serde_json::{Value, json};
use strict_provider::refusal_rule::{RefusalCondition, RefusalRule};

use super::check_and_repair::{antiphon, text};
use crate::support::{
    app::{post, post_with},
    binary::Install,
    provider::{Provider, Settings},
    wire::Upstream,
};

/// A row without a fault.
const ROW: &str = r#"
[[row]]
name = "house_members"
text = ["House rule 7: the member <member> is not known here"]
then = ["See the manual"]
mend = "drop_member <member>"
seen = "a gateway, 2026-10"
[[row.example]]
text = 'House rule 7: the member "mood" is not known here. See the manual.'
[row.repair]
wire = "openai-chat-compatible"
before = '{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"a","mood":"b"}]}'
after = '{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"a"}]}'
"#;
const REFUSAL: &str = r#"{"error":{"message":"House rule 7: the member \"mood\" is not known here."}}"#;
const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"a","mood":"b"},{"role":"user","content":"on"}]}"#;

/// Reads rows as a file.
fn read(rows: &str) -> (LoadedRules, Vec<String>) {
    let rows = rows.to_owned();
    let (loaded, problems) = load_rules("r.toml", &|_| Ok(rows.clone())).unwrap();
    (loaded, problems.iter().map(ToString::to_string).collect())
}

/// Changes of the sound row, and the problem of each: its line, its key and a part of its text.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "name = \"house_members\"\n",
        "",
        "line 2, column 1: row[0].name: the row has no name",
    ),
    (
        "house_members",
        "House",
        "line 3, column 8: row[0].name: row House: expected a name of lower-case letters",
    ),
    ("house_members", "orphan_item", ""),
    (
        "house_members",
        "developer_not_one_of_roles",
        "row[0].name: row developer_not_one_of_roles: \"developer_not_one_of_roles\" is the name of a built-in row",
    ),
    (
        "\"drop_member <member>\"",
        "\"drop_member role\"",
        "line 6, column 8: row[0].mend: row house_members: drop_member does not take \"role\" away",
    ),
    (
        "\"drop_member <member>\"",
        "\"drop_member\"",
        "drop_member needs an argument: a word or <member> or <name>",
    ),
    (
        "\"drop_member <member>\"",
        "\"drop_member <number>\"",
        "lacks <number>, which its mend needs",
    ),
    (
        "\"drop_member <member>\"",
        "\"quote_block chair\"",
        "quote_block does not take \"chair\": write image or",
    ),
    (
        "\"drop_member <member>\"",
        "\"drop_parameter tools\"",
        "drop_parameter does not take \"tools\"",
    ),
    (
        "mend = \"drop_member <member>\"\n",
        "",
        "row[0].fault: row house_members: the row says neither `mend` nor `fault`",
    ),
    (
        "mend = \"drop_member <member>\"",
        "fault = \"chair\"",
        "unknown fault \"chair\": write one of any_fault, unanswered",
    ),
    (
        "mend = \"drop_member <member>\"",
        "fault = \"orphan\"",
        "row[0].then: row house_members: `then` is only for texts that must be the whole message",
    ),
    (
        "House rule 7: the member <member> is not known here\"",
        "No <member> here\"",
        "line 4, column 9: row[0].text[0]: row house_members: \"No <member> here\" has less than 16 bytes",
    ),
    (
        "\"House rule 7: the member <member> is not known here\"",
        "\"\"",
        "row[0].text[0]: row house_members: it is empty, and would match everything",
    ),
    (
        "is not known here\"]",
        "is not <words>\"]",
        "ends with <ids> or <words>, and it must be the whole message",
    ),
    (
        "<member> is not known here\"",
        "<thing> is not known here\"",
        "has an unknown variable",
    ),
    (
        "then = [\"See the manual\"]",
        "then = [\"See my manual\"]",
        "row[0].example[0].text: row house_members: the row does not read it: the text matches, but something follows at byte",
    ),
    (
        "7: the member \"mood\"",
        "8: the member \"mood\"",
        "they differ from byte 11 on",
    ),
    (
        "\"mood\" is not known here. See the manual.'",
        "\"mood\" is'",
        "the text ends at byte 34, before the pattern does",
    ),
    (
        "\"content\":\"a\"}]}'\n",
        "\"content\":\"c\"}]}'\n",
        "row[0].repair.after: row house_members: it is not what is sent: from byte",
    ),
    (
        ",\"mood\":\"b\"}",
        "}",
        "row[0].repair.before: row house_members: nothing changes",
    ),
    (
        "openai-chat-compatible",
        "telex",
        "row[0].repair.wire: row house_members: unknown wire \"telex\"",
    ),
    (
        "before = '{\"model\"",
        "before = '\"model\"",
        "row[0].repair.before: row house_members: it cannot be read",
    ),
    ("seen =", "sene =", "row[0].sene: unknown key (did you mean `seen`?)"),
    (
        "seen =",
        "status = [200]\nseen =",
        "row[0].status[0]: row house_members: 200 is no status of an error",
    ),
    (
        "seen =",
        "status = [\"x\"]\nseen =",
        "row[0].status[0]: expected a whole number",
    ),
    (
        "seen =",
        "learn = \"never\"\nseen =",
        "row[0].learn: row house_members: unknown word \"never\"",
    ),
    (
        "seen =",
        "fits = \"some\"\nseen =",
        "row[0].fits: row house_members: unknown word \"some\"",
    ),
    ("seen = \"a gateway, 2026-10\"", "seen = \"C:\\Users\"", "not TOML"),
];

#[test]
fn each_fault_of_a_row_is_named_with_its_place() {
    assert_eq!(read(ROW).1, Vec::<String>::new());
    let mut wrong = Vec::new();
    for (from, to, wanted) in FAULTS {
        assert!(ROW.contains(from), "{from}");
        let (_, problems) = read(&ROW.replacen(from, to, 1));
        let is_right = match *wanted {
            "" => problems.is_empty(),
            wanted => problems.len() == 1 && problems[0].contains(wanted) && problems[0].starts_with("r.toml: line "),
        };
        if !is_right {
            wrong.push(format!("{to}\n  wanted {wanted}\n  got    {problems:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_of_several_rows_are_named_at_once() {
    let again = read(&format!("{ROW}{ROW}")).1;
    assert_eq!(again.len(), 1, "{again:#?}");
    assert!(
        again[0].contains("line 16, column 8: row[1].name: row house_members: another row has the name"),
        "{again:#?}"
    );
    let twin = ROW.replacen("house_members", "house_twin", 1);
    let fight = read(&format!("{ROW}{twin}")).1;
    assert_eq!(fight.len(), 1, "{fight:#?}");
    assert!(
        fight[0].contains("the rows house_members and house_twin both read this"),
        "{fight:#?}"
    );
    // Two hundred are allowed, and each is checked.
    let row = |at: usize| {
        format!(
            "[[row]]\nname = \"r{at}\"\ntext = [\"House rule number {at}: no blanks at the end\"]\nmend = \"trim_end\"\n"
        )
    };
    let many: String = (0..200).map(row).collect();
    let (loaded, problems) = read(&many);
    assert_eq!((loaded.rows.len(), problems.len()), (200, 0), "{problems:#?}");
    let faulty = read(&many.replace("trim_end", "trim_end x")).1;
    assert_eq!(faulty.len(), 51, "{faulty:#?}");
    assert!(
        faulty[50].contains("150 more problems of rows are not listed"),
        "{}",
        faulty[50]
    );
    let most: String = (0..10_000).map(row).collect();
    let beyond = read(&most).1;
    assert_eq!(beyond.len(), 1, "{beyond:#?}");
    assert!(
        beyond[0].contains("there are 10000 of them, and at most 200 are allowed"),
        "{beyond:#?}"
    );
}

#[test]
fn a_row_of_a_later_version_is_left_out_with_a_warning() {
    let later = ROW
        .replacen("house_members", "later", 1)
        .replacen("drop_member", "translate_member", 1);
    let (loaded, problems) = read(&format!("{ROW}{later}"));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(loaded.warnings.len(), 1);
    assert!(
        loaded.warnings[0].contains("row later: this version has no mend \"translate_member\""),
        "{}",
        loaded.warnings[0]
    );
    assert!(
        loaded
            .checked
            .reader
            .read(None, REFUSAL.as_bytes())
            .is_some_and(|found| found.row.is_own)
    );
}

/// Writes rows and a configuration that names them.
fn written(folder: &Path, rows: &str) -> Flags {
    let (path, config) = (folder.join("rules.toml"), folder.join("antiphon.toml"));
    fs::write(&path, rows).unwrap();
    set_mode(&path, 0o644);
    fs::write(&config, format!("[repair]\nrules_file = '{}'\n", path.display())).unwrap();
    Flags {
        config: Some(config),
        ..Flags::default()
    }
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) {}

#[cfg(unix)]
#[test]
fn only_a_regular_file_that_nobody_else_may_write_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (flags, path) = (written(folder.path(), ROW), folder.path().join("rules.toml"));
    let load = || load_config(&flags, &|_| None, &CurrentFile::default());
    assert_eq!(load().unwrap().config.rules.rows.len(), 1);
    let fails = |wanted: &str| {
        let error = load().unwrap_err().to_string();
        assert!(
            error.contains("repair.rules_file: ") && error.contains(wanted),
            "{wanted}: {error}"
        );
    };
    for mode in [0o664, 0o646, 0o666] {
        set_mode(&path, mode);
        fails(&format!(
            "other users may write {} (mode {mode:o}): chmod go-w",
            path.display()
        ));
    }
    set_mode(&path, 0o644);
    let mut large = fs::File::options().append(true).open(&path).unwrap();
    large.write_all(&vec![b'#'; 10 << 20]).unwrap();
    fails("it has more than 1 MiB");
    fs::remove_file(&path).unwrap();
    fails("cannot read");
    fs::create_dir(&path).unwrap();
    fails("it is not a regular file");
    fs::remove_dir(&path).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    fails("it is not a regular file");
}

/// Rows of the configuration come with the lines of the configuration, and both places share the limit.
#[test]
fn rows_of_the_configuration_are_checked_like_those_of_a_file() {
    let none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let load = |text: &str| build_config(Some(("antiphon.toml", text)), &Flags::default(), &|_| None, &none);
    let inline = ROW
        .replace("[[row]]", "[[repair.rules]]")
        .replace("[[row.", "[[repair.rules.")
        .replace("[row.", "[repair.rules.");
    let loaded = load(&inline).unwrap();
    let shown = loaded.to_toml().unwrap();
    assert_eq!(
        load(&shown).unwrap().config.rules.rows,
        loaded.config.rules.rows,
        "{shown}"
    );
    let error = load(&inline.replacen("<member> is", "<words> is", 1)).unwrap_err();
    assert_eq!(error.problems[0].line_number(), Some(4), "{error}");
    assert_eq!(error.problems[0].key, "repair.rules[0].text[0]", "{error}");
    let windows = load("[repair]\nrules_file = \"C:\\Users\\x\\rules.toml\"\n")
        .unwrap_err()
        .to_string();
    assert!(
        windows.contains("line 2") && windows.contains("single quotes"),
        "{windows}"
    );
}

/// Runs a command beside the files `rules.toml` and `body.json`.
fn rules(arguments: &[&str], rows: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), rows);
    let body = folder.path().join("body.json");
    fs::write(&body, BODY).unwrap();
    let named = |argument: &&str| match *argument {
        "RULES" => folder.path().join("rules.toml").display().to_string(),
        "CONFIG" => folder.path().join("antiphon.toml").display().to_string(),
        "BODY" => body.display().to_string(),
        other => other.to_owned(),
    };
    let arguments: Vec<String> = ["rules"].iter().chain(arguments).map(named).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let out = antiphon(&arguments, b"");
    let shown = |bytes: &[u8]| text(bytes).replace(&format!("{}/", folder.path().display()), "");
    (out.status.code().unwrap(), shown(&out.stdout), shown(&out.stderr))
}

#[test]
fn rules_are_listed_own_ones_first() {
    let (code, listed, _) = rules(&["ls", "-c", "CONFIG"], ROW);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, 0);
    assert_eq!(
        lines[1],
        [
            "house_members",
            "rules.toml",
            "400",
            "drop_member",
            "<member>",
            "left_out",
            "yes",
            "rule"
        ]
    );
    assert_eq!(
        lines[2][..4],
        ["tool_use_without_tool_result", "built-in", "400", "fault"]
    );
    let (_, document, _) = rules(&["ls", "-c", "CONFIG", "--output", "json"], ROW);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        (
            &document["version"],
            &document["rules"][0]["mend"],
            &document["rules"][0]["own"],
            &document["rules"][1]["own"]
        ),
        (&json!(1), &json!("drop_member <member>"), &json!(true), &json!(false))
    );
}

#[test]
fn rules_are_tested_row_by_row() {
    assert_eq!(
        rules(&["test", "RULES"], ROW),
        (
            0,
            "ok  house_members  (1 example, repair)\n".to_owned(),
            "antiphon: 1 rows ok, 0 skipped, 0 problems\n".to_owned()
        )
    );
    assert_eq!(rules(&["test", "-c", "CONFIG"], ROW).0, 0);
    let faulty = ROW
        .replacen("House rule 7", "House rule 9", 1)
        .replacen("house_members", "wrong", 1)
        + ROW;
    for arguments in [["test", "RULES", "RULES"], ["test", "-c", "CONFIG"]] {
        let arguments = if arguments[1] == "RULES" {
            &arguments[..2]
        } else {
            &arguments[..]
        };
        let (code, lines, _) = rules(arguments, &faulty);
        assert_eq!(code, 1);
        assert!(
            lines.contains("fault  rules.toml: line 9, column 8: row[0].example[0].text: row wrong:"),
            "{lines}"
        );
        assert_eq!(lines.contains("ok  house_members"), arguments.len() == 2, "{lines}");
    }
    let (code, out, err) = rules(&["test", "nowhere.toml"], ROW);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("cannot read nowhere.toml"), "{err}");
}

#[test]
fn a_text_and_a_body_are_tried() {
    let known = "House rule 7: the member \"mood\" is not known here.";
    let (code, out, _) = rules(&["try", "--rules", "RULES", "--text", known, "BODY"], ROW);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.starts_with(
            "house_members (own) reads this text: drop_member <member>\nbody.json: the mend changes this body\n"
        ),
        "{out}"
    );
    assert!(out.contains("\n-{\"role\":\"assistant\",\"content\":\"a\",\"mood\":\"b\"}\n+{\"role\":\"assistant\",\"content\":\"a\"}\n"), "{out}");
    let rows = [
        // Its member is not in the body.
        (known.replace("mood", "tone"), "the mend fits nowhere in this body", 1),
        (
            format!("{known} So said Ann."),
            "house_members (own): the text matches, but something follows at byte 49",
            1,
        ),
        (
            "tool_use ids were found without tool_result blocks immediately after: toolu_1".to_owned(),
            "a known fault",
            0,
        ),
        ("Nobody says this.".to_owned(), "no row reads this text", 1),
        (
            "Unexpected value(s) `x-2026` for the `anthropic-beta` header.".to_owned(),
            "the header anthropic-beta",
            0,
        ),
    ];
    for (text, wanted, code) in rows {
        let (got, out, _) = rules(&["try", "-c", "CONFIG", "--text", &text, "BODY"], ROW);
        assert!(got == code && out.contains(wanted), "{text}: {got} {out}");
    }
    let (code, out, _) = rules(
        &["try", "-c", "CONFIG", "--status", "422", "--text", known, "BODY"],
        ROW,
    );
    assert!(code == 1 && out.contains("with the status 400 alone"), "{out}");
    let (code, out, _) = rules(
        &["try", "-c", "CONFIG", "--text", known, "--output", "json", "BODY"],
        ROW,
    );
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &document["row"]["name"], &document["bodies"][0]["has_effect"]),
        (0, &json!("house_members"), &json!(true))
    );
    let faulty = ROW.replace("drop_member", "drop_everything x");
    for (rows, body, wanted) in [
        (faulty.as_str(), "BODY", ""),
        (ROW, "nowhere.json", "nowhere.json"),
        ("[[row]]\n", "BODY", "the row has no name"),
    ] {
        let (code, out, err) = rules(&["try", "--rules", "RULES", "--text", "x", body], rows);
        assert!(
            code == if wanted.is_empty() { 1 } else { 2 } && err.contains(wanted),
            "{code} {out} {err}"
        );
    }
}

#[tokio::test]
async fn a_running_proxy_is_asked_to_forget() {
    let answer = |status: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let rows = [
        (
            answer("200 OK", r#"{"removed":3}"#),
            0,
            "removed 3 facts: each server is asked anew",
        ),
        (answer("200 OK", r#"{"removed":1}"#), 0, "removed 1 fact:"),
        (answer("200 OK", "{}"), 2, ""),
        (
            answer("401 Unauthorized", r#"{"detail":"the admin token is wrong"}"#),
            1,
            "",
        ),
    ];
    for (reply, code, wanted) in rows {
        let server = Upstream::answering(reply.clone()).await;
        let url = format!("http://{}", server.address);
        let run = move || antiphon(&["rules", "clear", "--url", &url], b"");
        let out = tokio::task::spawn_blocking(run).await.unwrap();
        assert_eq!(out.status.code(), Some(code), "{reply}: {}", text(&out.stderr));
        assert!(text(&out.stdout).starts_with(wanted), "{reply}: {}", text(&out.stdout));
        assert_eq!(server.request().line(), "DELETE /admin/v1/taught HTTP/1.1");
    }
}

#[test]
fn a_body_is_noted_if_a_row_with_a_note_would_change_it() {
    let developer =
        br#"{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"developer","content":"Be brief."}]}"#;
    let out = antiphon(&["check", "--wire", "openai-chat"], developer);
    assert_eq!(out.status.code(), Some(0));
    let lines = text(&out.stdout);
    let wanted =
        "-: messages[1]: note: some servers refuse this: developer_not_one_of_roles: developer is not one of [";
    assert!(lines.lines().any(|line| line.starts_with(wanted)), "{lines}");
    let folder = tempfile::tempdir().unwrap();
    let noted = ROW
        .replace("drop_member <member>", "drop_member mood")
        .replace("seen =", "note = true\nseen =");
    written(folder.path(), &noted);
    let path = folder.path().join("rules.toml").display().to_string();
    let out = antiphon(&["check", "--rules", &path, "--output", "json"], BODY.as_bytes());
    let document: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    let note = &document["files"][0]["notes"][0];
    assert_eq!(
        (out.status.code(), &note["kind"], &note["place"]),
        (Some(0), &json!("house_members"), &json!("messages[1]"))
    );
}

/// Sends the body to a process. Returns the status of the answer, and the number of sends.
async fn ask(process: &crate::support::binary::Process, provider: &Provider) -> (u16, usize) {
    let sent = provider.seen().len();
    let fields = [("authorization", "Bearer one"), ("content-type", "application/json")];
    let got = process
        .ask(post_with("/x/v1/chat/completions", &fields, BODY.as_bytes()))
        .await;
    (got.status(), provider.seen().len() - sent)
}

#[tokio::test]
async fn a_reload_takes_new_rows_and_keeps_the_old_ones_if_a_new_one_has_a_fault() {
    let provider = Provider::with_settings(Settings {
        refusal_rules: vec![RefusalRule {
            status: 400,
            text: "House rule 7: the member \"mood\" is not known here.".to_owned(),
            refused_if: RefusalCondition::parse("present messages[*].mood").unwrap(),
        }],
        ..Settings::default()
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "");
    let path = folder.path().join("rules.toml");
    let config = format!(
        "[upstreams.x]\nurl = \"http://{}\"\nkind = \"compatible\"\n[repair]\nrules_file = '{}'\n",
        provider.address(),
        path.display()
    );
    let process = Install::new(&config).start().await;
    let reload = post("/admin/v1/reload", "").replace("Host: localhost", "Host: 127.0.0.1");
    assert_eq!(ask(&process, &provider).await, (400, 1));
    // A mend for once, so that nothing is learned.
    let once = ROW.replace("seen =", "learn = \"once\"\nseen =");
    fs::write(&path, &once).unwrap();
    let reloaded = process.ask_admin(&reload).await;
    assert!(
        reloaded.status() == 200 && reloaded.text().contains("repair.rules_file"),
        "{}",
        reloaded.text()
    );
    assert_eq!(ask(&process, &provider).await, (200, 2));
    fs::write(&path, once.replacen("drop_member <member>", "drop_member role", 1)).unwrap();
    let refused = process.ask_admin(&reload).await;
    assert!(
        refused.status() != 200 && refused.text().contains("row house_members: drop_member does not take"),
        "{}",
        refused.text()
    );
    assert_eq!(ask(&process, &provider).await, (200, 2));
    fs::write(&path, "").unwrap();
    assert_eq!(process.ask_admin(&reload).await.status(), 200);
    assert_eq!(ask(&process, &provider).await, (400, 1));
    process.stop().await;
}
