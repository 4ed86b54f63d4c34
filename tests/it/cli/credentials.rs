//! Credentials that expire, with the real binary: programs, the endpoint of a container, and files that change.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    app::{get_with, post, post_with},
    binary::{Install, Process},
    wire::{Message, PATIENCE, Upstream},
};

const BODY: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"}]}"#;
const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 70\r\n\r\n{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"x\"}}";
/// Part of every secret. Nothing that the proxy writes may contain it.
const CANARY: &str = "canary";

/// Writes a program of the shell into `folder`, and returns its path.
fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// Returns the lines of a program that counts its runs in `$0.runs`, as `$n`.
const COUNT: &str = "n=$(($(cat $0.runs 2>/dev/null || echo 0) + 1)); echo $n > $0.runs";

fn runs(program: &Path) -> u64 {
    let path = format!("{}.runs", program.display());
    fs::read_to_string(path).map_or(0, |text| text.trim().parse().unwrap_or(0))
}

/// Returns the table of an upstream with one profile `p`.
fn table(upstream: &str, kind: &str, provider: &Upstream, profile: &str) -> String {
    let address = provider.address;
    format!(
        "[upstreams.{upstream}]\nurl = \"http://{address}\"\nkind = \"{kind}\"\n[[upstreams.{upstream}.profiles]]\nname = \"p\"\n{profile}\n"
    )
}

async fn ask(process: &Process, upstream: &str) -> (u16, String) {
    let answer = process.ask(post(&format!("/{upstream}/v1/messages"), BODY)).await;
    (answer.status(), answer.text().to_owned())
}

async fn admin(process: &Process, path: &str) -> String {
    let request = get_with(path, &[]).replace("Host: localhost", "Host: 127.0.0.1");
    process.ask_admin(request).await.text().to_owned()
}

/// Returns the admin API's row of the profile of an upstream.
async fn row(process: &Process, upstream: &str) -> Value {
    let page: Value = serde_json::from_str(&admin(process, "/admin/v1/profiles").await).unwrap();
    let rows = page["profiles"].as_array().unwrap();
    rows.iter().find(|row| row["upstream"] == upstream).unwrap().clone()
}

/// Repeats a step until it returns something. Most steps are requests.
async fn until<T>(what: &str, mut step: impl AsyncFnMut() -> Option<T>) -> T {
    let repeated = async {
        loop {
            if let Some(found) = step().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(2 * PATIENCE, repeated).await;
    found.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

/// Checks that nothing the proxy wrote contains a secret.
async fn is_silent(process: &Process) {
    for path in ["/metrics", "/admin/v1/profiles", "/admin/v1/config", "/admin/v1/status"] {
        let page = admin(process, path).await;
        assert!(!page.is_empty() && !page.contains(CANARY), "{path}: {page}");
    }
    let log = process.log().join("\n");
    assert!(!log.contains(CANARY), "{log}");
}

/// Returns the credentials that the provider has received.
fn sent(provider: &Upstream) -> Vec<String> {
    let credential = |request: &Message| {
        let sent = request.header("authorization").or_else(|| request.header("x-api-key"));
        sent.map(str::to_owned)
    };
    provider.requests().iter().filter_map(credential).collect()
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_and_a_reload_keeps_it() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let short = program(
        folder.state(),
        "short",
        &format!("{COUNT}; printf '{{\"access_token\":\"canary-%s\",\"expires_in\":2}}' $n; echo canary >&2"),
    );
    let long = program(folder.state(), "long", &format!("{COUNT}; echo canary-$n"));
    let config = table(
        "vertex",
        "compatible",
        &provider,
        &format!("token_command = [{short:?}]"),
    ) + &table(
        "work",
        "anthropic",
        &provider,
        &format!("token_command = [{long:?}, \"argument\"]"),
    );
    let install = Install::new(&config);
    let process = install.start_with(&[("ANTIPHON_LOG", "trace")]).await;
    // Three lives of two seconds: no request fails, and none has an old token.
    until("the fourth token", async || {
        let (status, text) = ask(&process, "vertex").await;
        assert_eq!(status, 200, "{text}");
        (sent(&provider).last()? == "Bearer canary-4").then_some(())
    })
    .await;
    assert_eq!(ask(&process, "work").await.0, 200);
    assert_eq!(sent(&provider).last().unwrap(), "Bearer canary-1");
    let credential = row(&process, "work").await["credential"].clone();
    assert_eq!(
        credential,
        json!({"source": "token_command", "expires_at": null, "last_failure": null})
    );
    assert!(row(&process, "vertex").await["credential"]["expires_at"].is_string());

    // An unchanged command is not run again. A changed one is.
    let reload = post("/admin/v1/reload", "").replace("Host: localhost", "Host: 127.0.0.1");
    install.write(&format!("{config}weight = 7\n"));
    assert_eq!(process.ask_admin(&reload).await.status(), 200);
    assert_eq!(ask(&process, "work").await.0, 200);
    assert_eq!(
        (sent(&provider).last().unwrap().as_str(), runs(&long)),
        ("Bearer canary-1", 1)
    );
    install.write(&config.replace("argument", "other"));
    assert_eq!(process.ask_admin(&reload).await.status(), 200);
    assert_eq!(ask(&process, "work").await.0, 200);
    assert_eq!(
        (sent(&provider).last().unwrap().as_str(), runs(&long)),
        ("Bearer canary-2", 2)
    );
    is_silent(&process).await;
    process.stop().await;
}

/// Name, text of a program or else its words, part of the message, and label of the failure.
#[rustfmt::skip]
const FAILURES: &[(&str, Result<&str, &str>, &str, &str)] = &[
    ("exits", Ok("echo canary; echo canary >&2; exit 3"), "failed with exit status 3", "exit_status"),
    ("killed", Ok("echo canary; kill -9 $$"), "was ended by a signal", "signal"),
    ("rubbish", Ok("echo canary is not logged in"), "no credential in a known format", "unreadable"),
    ("prints-10-mb", Err(r#""head", "-c", "10000000", "/dev/zero""#), "supplied more than 65536 bytes", "too_long"),
    ("silent", Err(r#""true""#), "no credential in a known format", "unreadable"),
    ("nowhere", Err(r#""/nowhere/program""#), "could not be started", "not_started"),
    // No shell looks at the words.
    ("words", Err(r#""echo", "$(echo x)""#), "no credential in a known format", "unreadable"),
    ("old", Err(r#""echo", "{\"token\":\"${WORD}\",\"expires_at\":1}""#), "had already expired", "expired"),
];

#[tokio::test]
async fn a_program_that_supplies_no_token_is_named_and_its_output_is_not_shown() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let tables = FAILURES.iter().map(|(name, command, ..)| {
        let words = match command {
            Ok(text) => format!("{:?}", program(folder.state(), name, text)),
            Err(words) => (*words).to_owned(),
        };
        table(name, "anthropic", &provider, &format!("token_command = [{words}]"))
    });
    let install = Install::new(&tables.collect::<String>());
    let process = install.start_with(&[("ANTIPHON_LOG", "trace"), ("WORD", CANARY)]).await;
    for (name, _, message, label) in FAILURES {
        let (status, text) = ask(&process, name).await;
        assert_eq!(status, 503, "{name}: {text}");
        for part in [*message, "profile p", "token_command", "run the command"] {
            assert!(text.contains(part), "{name}: {text}");
        }
        assert!(!text.contains(CANARY), "{name}: {text}");
        let row = row(&process, name).await;
        let failed = (&row["state"], &row["credential"]["last_failure"]);
        assert_eq!(failed, (&json!("disabled"), &json!(label)), "{name}");
    }
    assert!(provider.requests().is_empty());
    is_silent(&process).await;
    let log = process.log().join("\n");
    assert!(
        log.contains("failed with exit status 3") && log.contains("\"profile\":\"p\""),
        "{log}"
    );
    process.stop().await;
}

#[tokio::test]
async fn a_program_that_hangs_ends_with_the_proxy_and_with_its_own_programs() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let hangs = program(
        folder.state(),
        "hangs",
        "sleep 1000 & echo $! > $0.child; echo $$ > $0.pid; wait",
    );
    let config = table("work", "anthropic", &provider, &format!("token_command = [{hangs:?}]"));
    let install = Install::new(&config);
    let process = install.start().await;
    let id = async |process: &Process, name: &str| {
        let path = format!("{}.{name}", hangs.display());
        until("a process id", async || {
            assert!(!admin(process, "/health").await.is_empty());
            fs::read_to_string(&path).ok()?.trim().parse::<u32>().ok()
        })
        .await
    };
    let ids = [id(&process, "pid").await, id(&process, "child").await];
    let runs_still = |id: &u32| {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    assert!(ids.iter().all(runs_still), "{ids:?}");
    // A client that waits for less has its error sooner.
    let hurried = post_with("/work/v1/messages", &[("x-stainless-timeout", "1")], BODY.as_bytes());
    let answer = process.ask(hurried).await;
    assert_eq!(answer.status(), 503);
    assert!(answer.text().contains("has not supplied one yet"), "{}", answer.text());
    process.stop().await;
    until("the end of both", async || (!ids.iter().any(runs_still)).then_some(())).await;
}

/// A program may leave another one that has its output open, such as an agent that it has started.
#[tokio::test]
async fn a_program_that_leaves_its_output_open_has_printed_its_token() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let leaves = program(folder.state(), "leaves", "sleep 20 & echo canary-1");
    let config = table("work", "anthropic", &provider, &format!("token_command = [{leaves:?}]"));
    let install = Install::new(&config);
    let process = install.start().await;
    until("a request with the token", async || {
        (ask(&process, "work").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(sent(&provider), ["Bearer canary-1"]);
    process.stop().await;
}

/// Starts a proxy whose key is in this file.
async fn start_with_file(provider: &Upstream, key: &Path) -> Process {
    let profile = table(
        "work",
        "anthropic",
        provider,
        &format!("api_key_file = \"{}\"", key.display()),
    );
    let install = Install::new(&format!("[server]\nsecret_poll = \"100ms\"\n{profile}"));
    install.start_with(&[("ANTIPHON_LOG", "trace")]).await
}

/// Sends a request. Returns its status and its key.
async fn key_used(process: &Process, provider: &Upstream) -> (u16, String) {
    let status = ask(process, "work").await.0;
    (status, sent(provider).pop().unwrap())
}

/// Waits until the log has `count` lines with `text`.
async fn until_logged(process: &Process, text: &str, count: usize) {
    until(text, async || {
        row(process, "work").await;
        (process.log().iter().filter(|line| line.contains(text)).count() == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_changed_file_is_another_key_without_cooldowns() {
    let provider = Upstream::answering_each([FINE, FINE, REFUSED, FINE].map(Into::into)).await;
    let folder = Install::new("");
    let at = |name: &str| folder.state().join(name);
    // As Kubernetes mounts a secret: KEY -> ..data/KEY, ..data -> ..v1.
    for (version, text) in [("..v1", "canary-a"), ("..v2", "canary-b")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("key"), text).unwrap();
    }
    symlink("..v1", at("..data")).unwrap();
    symlink("..data/key", at("key")).unwrap();
    let process = start_with_file(&provider, &at("key")).await;
    assert_eq!(key_used(&process, &provider).await, (200, "canary-a".to_owned()));
    assert_eq!(row(&process, "work").await["credential"]["source"], "file");
    symlink("..v2", at("..new")).unwrap();
    fs::rename(at("..new"), at("..data")).unwrap();
    until_logged(&process, "the new key is used", 1).await;
    assert_eq!(key_used(&process, &provider).await, (200, "canary-b".to_owned()));
    // As Vault and editors replace a file.
    assert_eq!(key_used(&process, &provider).await.0, 401);
    assert_eq!(row(&process, "work").await["rests"][0]["reason"], "auth");
    fs::write(at("next"), "canary-c\n").unwrap();
    fs::rename(at("next"), at("key")).unwrap();
    until_logged(&process, "the new key is used", 2).await;
    assert_eq!(row(&process, "work").await["rests"], json!([]));
    assert_eq!(key_used(&process, &provider).await, (200, "canary-c".to_owned()));
    is_silent(&process).await;
    process.stop().await;
}

#[tokio::test]
async fn an_unusable_file_keeps_the_old_key_and_is_logged_once() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let key = folder.state().join("key");
    fs::write(&key, "canary-a").unwrap();
    let process = start_with_file(&provider, &key).await;
    let change = |step: usize| match step {
        0 => fs::write(&key, "\n"),
        1 => fs::remove_file(&key),
        2 => fs::write(&key, "canary with spaces"),
        3 => fs::remove_file(&key).and_then(|()| fs::create_dir(&key)),
        _ => fs::remove_dir(&key).and_then(|()| fs::write(&key, vec![b'x'; 70_000])),
    };
    let reasons = [
        "is empty",
        "does not exist",
        "contains spaces",
        "not a regular file",
        "is too long",
    ];
    for (step, reason) in reasons.into_iter().enumerate() {
        change(step).unwrap();
        until_logged(&process, reason, 1).await;
        assert_eq!(
            key_used(&process, &provider).await,
            (200, "canary-a".to_owned()),
            "{reason}"
        );
    }
    fs::write(&key, "canary-a").unwrap();
    until_logged(&process, "can be read again", 1).await;
    fs::write(&key, "canary-b").unwrap();
    until_logged(&process, "the new key is used", 1).await;
    assert_eq!(key_used(&process, &provider).await, (200, "canary-b".to_owned()));
    is_silent(&process).await;
    process.stop().await;
}

/// Sends a request for Bedrock. Returns the key ID and the session token of its signature.
async fn signature(process: &Process, provider: &Upstream) -> (String, String) {
    let answer = process.ask(post("/bedrock/model/anthropic.claude/invoke", BODY)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let request = provider.requests().pop().unwrap();
    let id = request
        .header("authorization")
        .unwrap()
        .split_once("Credential=")
        .unwrap()
        .1;
    let id = id.split('/').next().unwrap().to_owned();
    (id, request.header("x-amz-security-token").unwrap().to_owned())
}

#[tokio::test]
async fn a_credential_process_signs_requests_and_is_run_again() {
    let provider = Upstream::ok().await;
    let folder = Install::new("");
    let keys = program(
        folder.state(),
        "keys",
        &format!(
            "{COUNT}; end=$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%S+00:00)\nprintf '{{\"Version\":1,\"AccessKeyId\":\"canary-%s\",\"SecretAccessKey\":\"canary\",\"SessionToken\":\"canary-s%s\",\"Expiration\":\"%s\"}}' $n $n $end"
        ),
    );
    let profile = format!("aws_credential_process = [{keys:?}]\naws_region = \"us-east-1\"");
    let process = Install::new(&table("bedrock", "bedrock", &provider, &profile))
        .start_with(&[("ANTIPHON_LOG", "trace")])
        .await;
    until("the second keys", async || {
        let (id, session) = signature(&process, &provider).await;
        assert_eq!(session.replace("-s", "-"), id);
        (id != "canary-1").then_some(())
    })
    .await;
    assert_eq!(
        row(&process, "bedrock").await["credential"]["source"],
        "aws_credential_process"
    );
    is_silent(&process).await;
    process.stop().await;
}

#[tokio::test]
async fn the_endpoint_of_a_container_is_asked_with_its_present_token() {
    let provider = Upstream::ok().await;
    let end = |seconds| {
        let at = std::time::UNIX_EPOCH + antiphon::clock::unix_time() + Duration::from_secs(seconds);
        humantime::format_rfc3339_seconds(at).to_string()
    };
    let answer = |status: &str, id: &str, end: &str| {
        let body =
            format!(r#"{{"AccessKeyId":"{id}","SecretAccessKey":"canary","Token":"canary-s","Expiration":"{end}"}}"#);
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
            .into_bytes()
    };
    let agent = Upstream::answering_each([
        answer("200 OK", "canary-1", &end(3)),
        answer("200 OK", "canary-2", &end(3600)),
    ])
    .await;
    let folder = Install::new("");
    let token = folder.state().join("token");
    fs::write(&token, "canary-t1\n").unwrap();
    let profile = "aws_container_credentials = true\naws_region = \"us-east-1\"";
    let address = format!("http://{}/v1/credentials", agent.address);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", address.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().unwrap()),
        // No forward proxy reaches an agent of this machine.
        ("HTTP_PROXY", "http://127.0.0.1:9"),
        ("ANTIPHON_LOG", "trace"),
    ];
    let process = Install::new(&table("bedrock", "bedrock", &provider, profile))
        .start_with(&variables)
        .await;
    assert_eq!(signature(&process, &provider).await.1, "canary-s");
    fs::write(&token, "canary-t2").unwrap();
    until("the second keys", async || {
        (signature(&process, &provider).await.0 == "canary-2").then_some(())
    })
    .await;
    let asked = agent.requests();
    let tokens: Vec<_> = asked
        .iter()
        .filter_map(|request| request.header("authorization"))
        .collect();
    assert_eq!(tokens, ["canary-t1", "canary-t2"]);
    assert_eq!(asked[0].line(), "GET /v1/credentials HTTP/1.1");
    is_silent(&process).await;
    process.stop().await;

    let agent = Upstream::answering_each([answer("403 Forbidden", "canary", "canary")]).await;
    let address = format!("http://{}/v1/credentials", agent.address);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", address.as_str()),
        ("ANTIPHON_LOG", "trace"),
    ];
    let process = Install::new(&table("bedrock", "bedrock", &provider, profile))
        .start_with(&variables)
        .await;
    let answer = process.ask(post("/bedrock/model/anthropic.claude/invoke", BODY)).await;
    assert_eq!(answer.status(), 503);
    assert!(
        answer.text().contains("aws_container_credentials got status 403"),
        "{}",
        answer.text()
    );
    is_silent(&process).await;
    process.stop().await;
}
