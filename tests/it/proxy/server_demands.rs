//! Demands of servers through the proxy: what one has taught holds for its caller, over a restart, until the server forgets it.

use std::sync::Arc;

use antiphon::{provider::ProviderKind, wire::MendKind};
use serde_json::{Value, json};
use strict_provider::refusal_rule::{RefusalCondition, RefusalRule};

use crate::{
    proxy::refusal_resends::second_repairs,
    support::{
        app::{App, Builder, before, post_with},
        kept::durable,
        provider::{Provider, Reply, Settings},
    },
};

const CHAT: &str = "/x/v1/chat/completions";
const MESSAGES: &str = "/x/v1/messages";
const NO_DEVELOPER: (&str, &str) = (
    "developer is not one of ['system', 'assistant', 'user', 'tool', 'function']",
    "present messages[role=developer]",
);
const NO_NEIGHBOURS: (&str, &str) = (
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "neighbours messages[*] user user",
);
const NO_REASONING: (&str, &str) = (
    "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
    "present messages[*].reasoning_content",
);
const NO_IMAGE: (&str, &str) = ("Could not process image", "present messages[*].content[type=image]");

/// Starts a server that refuses bodies in these words under these conditions.
async fn server(rules: &[(&str, &str)]) -> Provider {
    let rule = |(text, refused_if): &(&str, &str)| RefusalRule {
        status: 400,
        text: (*text).to_owned(),
        refused_if: RefusalCondition::parse(refused_if).unwrap(),
    };
    Provider::with_settings(Settings {
        refusal_rules: rules.iter().map(rule).collect(),
        ..Settings::default()
    })
    .await
}

async fn start(provider: &Provider, change: impl FnOnce(&mut Builder)) -> App {
    let one = |builder: &mut Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::Compatible;
        change(builder);
    };
    before(provider.address()).with(one).start().await
}

/// Sends a body of the session `one`. Returns the status of the answer, and those of the sends.
async fn ask(app: &App, provider: &Provider, path: &str, key: &str, body: &Value) -> (u16, Vec<u16>) {
    let key = format!("Bearer {key}");
    let fields = [("authorization", key.as_str()), ("x-antiphon-session", "one")];
    ask_with(app, provider, path, &fields, body).await
}

/// Does the same with these headers.
async fn ask_with(
    app: &App,
    provider: &Provider,
    path: &str,
    fields: &[(&str, &str)],
    body: &Value,
) -> (u16, Vec<u16>) {
    let sent = provider.seen().len();
    let got = app.ask(post_with(path, fields, body.to_string().as_bytes())).await;
    let seen = provider.seen();
    (
        got.status(),
        seen[sent..].iter().map(|seen| seen.status.as_u16()).collect(),
    )
}

/// Returns the refusals that rows have read so far, by row and outcome.
fn rows(app: &App) -> Vec<String> {
    let page = app.telemetry.encode_metrics();
    let counted = |line: &str| {
        let (labels, count) = line
            .strip_prefix("antiphon_refusal_rows_total{row=\"")?
            .split_once("\"} ")?;
        Some(format!("{} {count}", labels.replace("\",outcome=\"", " ")))
    };
    let mut rows: Vec<String> = page.lines().filter_map(counted).collect();
    rows.sort();
    rows
}

fn last(provider: &Provider) -> Value {
    serde_json::from_slice(&provider.seen().last().unwrap().body).unwrap()
}

fn developer() -> Value {
    json!({"model": "m", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})
}

#[tokio::test]
async fn a_mend_is_remembered_for_its_caller_over_a_restart() {
    let (provider, kept) = (server(&[NO_DEVELOPER]).await, durable());
    let over = |builder: &mut Builder| builder.ledger = Arc::clone(&kept);
    let mut app = start(&provider, over).await;
    assert_eq!(
        ask(&app, &provider, CHAT, "one", &developer()).await,
        (200, vec![400, 200])
    );
    assert_eq!(second_repairs(&app, "demand"), "1");
    for restarts in [false, true] {
        if restarts {
            app.running.drain().await;
            app = start(&provider, over).await;
        }
        assert_eq!(
            ask(&app, &provider, CHAT, "one", &developer()).await,
            (200, vec![200]),
            "{restarts}"
        );
        assert_eq!(last(&provider)["messages"][0]["role"], "system");
    }
    assert_eq!(
        ask(&app, &provider, CHAT, "two", &developer()).await,
        (200, vec![400, 200])
    );
    // Another model is another server's business.
    let mut other = developer();
    other["model"] = "n".into();
    assert_eq!(ask(&app, &provider, CHAT, "one", &other).await, (200, vec![400, 200]));
}

/// An image that is refused with its right media type too is broken. The user's newest stays until its refusal was seen.
#[tokio::test]
async fn an_image_is_quoted_if_its_media_type_was_not_the_fault() {
    let words = "messages.0.content.0.image.source.base64.data: Image does not match the provided media type image/png";
    let provider = server(&[(words, "present messages[*].content[type=image]")]).await;
    let app = start(&provider, |_| {}).await;
    let image = |kind: &str, data: &str| {
        let source = json!({"type": "base64", "media_type": kind, "data": data});
        json!({"role": "user", "content": [{"type": "image", "source": source}]})
    };
    let later = [
        json!({"role": "assistant", "content": "so"}),
        json!({"role": "user", "content": "go"}),
    ];
    let body = |first: &Value, is_old: bool| {
        let later = if is_old { &later[..] } else { &[] };
        let messages: Vec<&Value> = std::iter::once(first).chain(later).collect();
        json!({"model": "m", "max_tokens": 9, "messages": messages})
    };
    // First the media type, then the image.
    let wrong = image("image/jpeg", "iVBORw0KGgoAAAAN");
    assert_eq!(
        ask(&app, &provider, MESSAGES, "one", &body(&wrong, true)).await,
        (200, vec![400, 400, 200])
    );
    assert_eq!(last(&provider)["messages"][0]["content"][0]["type"], "text");
    assert_eq!(
        ask(&app, &provider, MESSAGES, "one", &body(&wrong, true)).await,
        (200, vec![200])
    );
    // Bytes of no picture, newly from the user: the refusal first, also of the same request again.
    let unknown = image("image/png", "PGh0bWw+");
    for _ in 0..2 {
        assert_eq!(
            ask(&app, &provider, MESSAGES, "one", &body(&unknown, false)).await,
            (400, vec![400])
        );
    }
    assert_eq!(
        ask(&app, &provider, MESSAGES, "one", &body(&unknown, true)).await,
        (200, vec![400, 200])
    );
    assert_eq!(last(&provider)["messages"][0]["content"][0]["type"], "text");
}

#[tokio::test]
async fn a_mend_that_is_switched_off_is_not_made() {
    let provider = server(&[NO_DEVELOPER]).await;
    let app = start(&provider, |builder| {
        builder.proxy.policy.mends_off = vec![MendKind::RenameRole];
    })
    .await;
    assert_eq!(ask(&app, &provider, CHAT, "one", &developer()).await, (400, vec![400]));
    assert_eq!(rows(&app), ["developer_not_one_of_roles switched_off 1"]);
}

/// The first answer names the row. Later ones name the mend: the row is not remembered.
#[tokio::test]
async fn an_answer_names_the_rows_because_of_which_its_body_has_mends() {
    let provider = server(&[NO_DEVELOPER, NO_NEIGHBOURS]).await;
    let app = start(&provider, |_| {}).await;
    let mut body = developer();
    let again = json!({"role": "user", "content": "Hello?"});
    body["messages"].as_array_mut().unwrap().push(again);
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let named = "developer_not_one_of_roles, conversation_roles_must_alternate";
    let taught = "taught:rename_role, taught:merge_neighbours";
    for (body, rules) in [(&body, Some(named)), (&body, Some(taught)), (&plain, None)] {
        let fields = [("authorization", "Bearer one"), ("content-type", "application/json")];
        let got = app.ask(post_with(CHAT, &fields, body.to_string().as_bytes())).await;
        assert_eq!((got.status(), got.header("x-antiphon-rule")), (200, rules));
    }
    assert_eq!(
        rows(&app),
        [
            "conversation_roles_must_alternate mended 1",
            "developer_not_one_of_roles mended 1"
        ]
    );
}

/// A known fault that is not in the body.
#[tokio::test]
async fn a_refusal_that_no_recovery_can_meet_is_counted_as_relayed() {
    let provider = server(&[]).await;
    let app = start(&provider, |_| {}).await;
    let text = "Previous response with id 'resp_1' not found.";
    provider.reply(Reply::Status(400, json!({"error": {"message": text}})));
    assert_eq!(ask(&app, &provider, CHAT, "one", &developer()).await, (400, vec![400]));
    assert_eq!(rows(&app), ["previous_response_id_not_found relayed 1"]);
}

#[tokio::test]
async fn a_server_that_was_updated_is_asked_without_the_mend() {
    let provider = server(&[]).await;
    let app = start(&provider, |_| {}).await;
    let refuse = |text: &str| provider.reply(Reply::Status(400, json!({"error": {"message": text}})));
    refuse(NO_DEVELOPER.0);
    assert_eq!(
        ask(&app, &provider, CHAT, "one", &developer()).await,
        (200, vec![400, 200])
    );
    refuse("Something else is wrong");
    assert_eq!(
        ask(&app, &provider, CHAT, "one", &developer()).await,
        (200, vec![400, 200])
    );
    assert_eq!(last(&provider), developer());
    assert_eq!(ask(&app, &provider, CHAT, "one", &developer()).await, (200, vec![200]));
    assert_eq!(last(&provider), developer(), "the mend is forgotten");
}

/// The next try begins with the mends of the one before, also that of a client that names no session.
#[tokio::test]
async fn a_third_fault_is_mended_by_the_next_try() {
    let body = json!({"model": "m", "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "hm"},
        {"role": "user", "content": "One"},
        {"role": "user", "content": "Two"},
    ]});
    let session = [("authorization", "Bearer one"), ("x-antiphon-session", "one")];
    for fields in [&session[..], &session[..1]] {
        let provider = server(&[NO_DEVELOPER, NO_NEIGHBOURS, NO_REASONING]).await;
        let app = start(&provider, |_| {}).await;
        for outcome in [(400, vec![400, 400, 400]), (200, vec![400, 200]), (200, vec![200])] {
            assert_eq!(
                ask_with(&app, &provider, CHAT, fields, &body).await,
                outcome,
                "{fields:?}"
            );
        }
        assert_eq!(
            last(&provider)["messages"],
            json!([
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "One\n\nTwo"},
            ])
        );
        let counted = rows(&app);
        assert_eq!(counted.len(), 4, "{counted:?}");
        for outcome in [" vain 1", " vain 1", " limited 1", " mended 1"] {
            assert!(
                counted.iter().any(|row| row.ends_with(outcome)),
                "{outcome} {counted:?}"
            );
        }
    }
}

fn image(data: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
}

/// The user's own new picture stays until the client has seen its refusal. Then the session goes on without it.
#[tokio::test]
async fn a_new_picture_is_quoted_once_its_client_has_seen_the_refusal() {
    let provider = server(&[NO_IMAGE]).await;
    let app = start(&provider, |_| {}).await;
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": [image("iVBORw0KGgo="), {"type": "text", "text": "Look."}]},
    ]});
    // More often than a row of vain mends would be asked.
    for _ in 0..4 {
        assert_eq!(
            ask(&app, &provider, MESSAGES, "one", &body).await,
            (400, vec![400]),
            "a retry is no answer"
        );
    }
    body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": "Go on without it."}));
    assert_eq!(
        ask(&app, &provider, MESSAGES, "one", &body).await,
        (200, vec![400, 200])
    );
    let quoted = last(&provider)["messages"][0]["content"][0]["text"].to_string();
    assert!(quoted.contains("[antiphon: an image stood here"), "{quoted}");
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": "I cannot see it."}),
        json!({"role": "user", "content": "Never mind."}),
    ]);
    assert_eq!(
        ask(&app, &provider, MESSAGES, "one", &body).await,
        (200, vec![200]),
        "its hash is known"
    );
    assert_eq!(
        rows(&app),
        ["could_not_process_image kept 4", "could_not_process_image mended 1"]
    );
}

/// A server that reads no images at all teaches a rule. What its client has seen refused is quoted all the same.
#[tokio::test]
async fn a_new_picture_is_quoted_at_a_server_that_reads_none() {
    let text = "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 305";
    let provider = server(&[(text, "present messages[*].content[type=image_url]")]).await;
    let app = start(&provider, |_| {}).await;
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let mut body = json!({"model": "m", "messages": [
        {"role": "user", "content": [picture, {"type": "text", "text": "Look."}]},
    ]});
    assert_eq!(ask(&app, &provider, CHAT, "one", &body).await, (400, vec![400]));
    for (sends, more) in [(vec![400, 200], "Go on without it."), (vec![200], "Never mind.")] {
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "user", "content": more}));
        assert_eq!(ask(&app, &provider, CHAT, "one", &body).await, (200, sends), "{more}");
    }
}

/// Mends that no success has proven are forgotten once one shows that they were not needed.
#[tokio::test]
async fn unproven_mends_do_not_outlast_a_success_without_them() {
    let provider = server(&[]).await;
    let app = start(&provider, |_| {}).await;
    let refuse = |text: &str| provider.reply(Reply::Status(400, json!({"error": {"message": text}})));
    // The second refusal names another fault, so the mend of the first is kept for the next try.
    refuse(NO_DEVELOPER.0);
    refuse(NO_REASONING.0);
    assert_eq!(ask(&app, &provider, CHAT, "one", &developer()).await.0, 400);
    refuse("Something else is wrong");
    assert_eq!(
        ask(&app, &provider, CHAT, "one", &developer()).await,
        (200, vec![400, 200])
    );
    assert_eq!(last(&provider), developer(), "sent without the mend");
    assert_eq!(ask(&app, &provider, CHAT, "one", &developer()).await, (200, vec![200]));
    assert_eq!(last(&provider), developer(), "the mend is forgotten");
}

/// A resend that leaves out rules would be the same request if the only mend is one of the header.
#[tokio::test]
async fn a_beta_that_is_left_out_leads_to_no_resend_without_rules() {
    let provider = server(&[]).await;
    let app = start(&provider, |_| {}).await;
    let refuse = |text: &str| {
        provider.reply(Reply::Status(
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}}),
        ));
    };
    let fields = [("x-api-key", "one"), ("anthropic-beta", "new-1")];
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    refuse(
        "Unexpected value(s) `new-1` for the `anthropic-beta` header. Please consult our documentation at docs.anthropic.com or try again without the header.",
    );
    assert_eq!(
        ask_with(&app, &provider, MESSAGES, &fields, &body).await,
        (200, vec![400, 200])
    );
    refuse("Something else is wrong");
    assert_eq!(
        ask_with(&app, &provider, MESSAGES, &fields, &body).await,
        (400, vec![400])
    );
}

/// A server that refuses everything in the words of a row costs few sends.
#[tokio::test]
async fn a_row_rests_after_three_vain_mends() {
    let text = NO_DEVELOPER.0;
    let provider = server(&[(text, "present messages")]).await;
    let app = start(&provider, |_| {}).await;
    let mut sends = Vec::new();
    for _ in 0..6 {
        let (status, statuses) = ask(&app, &provider, CHAT, "one", &developer()).await;
        assert_eq!(status, 400);
        sends.push(statuses.len());
    }
    assert_eq!(sends, [2, 2, 2, 1, 1, 1]);
    let of_row = |outcome: &str| format!("developer_not_one_of_roles {outcome} 3");
    assert_eq!(rows(&app), ["fits_nowhere", "rests", "vain"].map(of_row));
}

#[tokio::test]
async fn a_beta_that_the_server_does_not_know_leaves_the_header() {
    let provider = server(&[]).await;
    let app = start(&provider, |_| {}).await;
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    let text = "Unexpected value(s) `new-1` for the `anthropic-beta` header. Please consult our documentation at \
                docs.anthropic.com or try again without the header.";
    provider.reply(Reply::Status(400, json!({"error": {"message": text}})));
    for sends in [2, 1] {
        let fields = [
            ("authorization", "Bearer one"),
            ("content-type", "application/json"),
            ("anthropic-beta", "old-1, new-1"),
        ];
        let before = provider.seen().len();
        let got = app.ask(post_with(MESSAGES, &fields, body.to_string().as_bytes())).await;
        assert_eq!(
            (got.status(), got.header("x-antiphon-repair")),
            (200, Some("left_out=1"))
        );
        let rule = if sends == 2 {
            "unexpected_values_for_anthropic_beta_header"
        } else {
            "taught:drop_beta"
        };
        assert_eq!(got.header("x-antiphon-rule"), Some(rule));
        let seen = provider.seen();
        assert_eq!(seen.len() - before, sends);
        assert_eq!(seen.last().unwrap().headers["anthropic-beta"], "old-1");
    }
}
