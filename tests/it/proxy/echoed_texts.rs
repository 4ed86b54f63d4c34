//! A client's text that a provider echoes never causes a cooldown. Only the provider's own known sentences do.

use std::time::{Duration, UNIX_EPOCH};

use antiphon::{
    clock::unix_time,
    policy::ACCOUNT_PHRASES,
    provider::{ProviderKind, Upstream},
};

use crate::support::{
    app::{gzipped, post_with},
    pool::{MESSAGES, RESPONSES, ask, cooldowns, does, fine, keys, pooled, reached, strangers, untouched, world},
    still::{Step, World, error, events::anthropic, json, say, secs, sse},
};

const CHAT: &str = "/openai/v1/chat/completions";
const GEMINI: &str = "/gemini/v1beta/models/m:generateContent";
const CREDIT: &str = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.";
const LIMIT: &str = "You have reached your specified API usage limits.";

/// Returns an Anthropic error.
fn refusal(kind: &str, message: &str) -> String {
    serde_json::json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).to_string()
}

fn anthropics(message: &str) -> String {
    refusal("invalid_request_error", message)
}

fn openais(message: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}})
        .to_string()
}

fn googles(message: &str) -> String {
    let violation = serde_json::json!({"description": message});
    let details =
        [serde_json::json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]})];
    serde_json::json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": details}})
        .to_string()
}

/// Returns a request body with `name` as an unknown member.
fn with_member(name: &str) -> String {
    serde_json::json!({"model": "m", "max_tokens": 16, name: 1, "messages": [{"role": "user", "content": "hi"}]})
        .to_string()
}

/// Sends a normal question in a session of its own and returns the status.
async fn ask_unrelated(world: &World, path: &str) -> u16 {
    let body = r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hello"}],"input":"hello"}"#;
    world
        .ask(post_with(path, &[("x-antiphon-session", "s9")], body.as_bytes()))
        .await
        .status()
}

/// Path, unknown member of the request, status, and the body that echoes it.
type Echo = (&'static str, &'static str, u16, String);

fn echoes() -> Vec<Echo> {
    let spent = "specified api usage limits. you will regain access on 2099-01-01";
    let extra = |name: &str| anthropics(&format!("{name}: Extra inputs are not permitted"));
    let unknown = |name: &str| openais(&format!("Unknown parameter: '{name}'."));
    let no_field = |name: &str| {
        googles(&format!(
            "Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."
        ))
    };
    vec![
        (
            MESSAGES,
            "credit balance is too low",
            400,
            extra("credit balance is too low"),
        ),
        (
            MESSAGES,
            "credit balance is too low",
            422,
            extra("credit balance is too low"),
        ),
        (MESSAGES, spent, 400, extra(spent)),
        (
            MESSAGES,
            "specified workspace api usage limits",
            400,
            extra("specified workspace api usage limits"),
        ),
        // The whole sentence, but not the whole message.
        (MESSAGES, CREDIT, 400, extra(CREDIT)),
        (MESSAGES, LIMIT, 400, anthropics(&format!("messages.0.{LIMIT}"))),
        (
            MESSAGES,
            "x",
            400,
            anthropics(&format!("{LIMIT} You will regain access on 2099-01-01 at 00:00 UTC. x")),
        ),
        (
            MESSAGES,
            "x",
            400,
            anthropics(&format!("{LIMIT} You will regain access on 2099-01-01x")),
        ),
        (MESSAGES, "x", 400, anthropics(&format!(" {CREDIT}"))),
        (MESSAGES, "x", 400, anthropics(&format!("{CREDIT}\n"))),
        // Another error type or status.
        (MESSAGES, "x", 400, refusal("not_found_error", CREDIT)),
        (MESSAGES, "x", 422, anthropics(CREDIT)),
        // A provider that has no such sentence.
        (
            CHAT,
            "credit balance is too low",
            400,
            unknown("credit balance is too low"),
        ),
        (CHAT, spent, 400, unknown(spent)),
        (CHAT, "x", 400, openais(CREDIT)),
        (RESPONSES, "x", 400, openais(LIMIT)),
        (CHAT, "api key not valid", 400, unknown("api key not valid")),
        (GEMINI, "api key not valid", 400, no_field("api key not valid")),
        (GEMINI, "api_key_invalid", 400, no_field("api_key_invalid")),
        (
            GEMINI,
            "x",
            400,
            googles("API key not valid. Please pass a valid API key."),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_echoed_member_name_causes_no_cooldown() {
    for (path, name, status, body) in echoes() {
        let world = world(&strangers("abc"));
        world.script(error(status, &[], &body));
        world.otherwise(|_| fine());
        let sent = post_with(path, &[("x-antiphon-session", "s1")], with_member(name).as_bytes());
        assert_eq!(reached(&world, sent).await, ("a".into(), status), "{path} {body}");
        assert!(
            untouched(&world),
            "{path} {body}: {:?}",
            cooldowns(&world, "anthropic", "a")
        );
        assert_eq!(ask_unrelated(&world, path).await, 200, "{path} {body}");
        assert_eq!(keys(&world.requests()), "aa", "{path} {body}");
    }
}

/// Returns the texts that cost a key something if a provider writes them, and the phrases in them.
fn account_texts() -> Vec<String> {
    let dated = format!("{LIMIT} You will regain access on 2099-01-01 at 00:00 UTC.");
    let workspace = LIMIT.replace("specified", "specified workspace");
    let leaked = "Your API key was reported as leaked. Please use another API key.";
    let sentences = [CREDIT, LIMIT, &dated, &workspace, leaked].map(ToOwned::to_owned);
    let phrases = ACCOUNT_PHRASES.map(ToOwned::to_owned);
    let words = [
        "api key not valid",
        "API_KEY_INVALID",
        "insufficient_quota",
        "authentication_error",
    ];
    sentences
        .into_iter()
        .chain(phrases)
        .chain(words.map(ToOwned::to_owned))
        .collect()
}

/// Returns an error with this message.
type ErrorBody = fn(&str) -> String;

/// Providers put a client's key names first, so that their message begins with the client's text.
#[tokio::test(start_paused = true)]
async fn no_text_of_a_client_changes_a_profile_in_any_format() {
    let mistral = |text: &str| {
        serde_json::json!({"object": "error", "message": text, "type": "invalid_request_error", "code": "1"})
            .to_string()
    };
    let apis: [(&str, ErrorBody); 4] = [
        (MESSAGES, anthropics),
        (CHAT, openais),
        (RESPONSES, openais),
        (GEMINI, googles),
    ];
    let apis = apis
        .into_iter()
        .chain([("/mistral/v1/chat/completions", mistral as ErrorBody)]);
    let mut tried = 0;
    for (path, shape) in apis {
        for text in account_texts() {
            let messages = [
                text.clone(),
                format!("{text}: Extra inputs are not permitted"),
                format!("Unknown parameter: '{text}'."),
                format!("messages.0.{text}"),
                format!("{text} "),
            ];
            for (message, status) in messages
                .iter()
                .flat_map(|message| [400, 403, 422].map(|status| (message, status)))
            {
                let world = World::with(|builder| {
                    let template = builder.upstreams[0].clone();
                    builder.upstreams.push(Upstream {
                        name: "mistral".to_owned(),
                        kind: ProviderKind::Mistral,
                        ..template
                    });
                    pooled(builder, &strangers("abc"));
                });
                let refusal = error(status, &[], &shape(message));
                world.otherwise(move |_| refusal.clone());
                let sent = post_with(path, &[("x-antiphon-session", "s1")], with_member(&text).as_bytes());
                world.ask(sent).await;
                assert!(untouched(&world), "{path} {status} {message}");
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[tokio::test(start_paused = true)]
async fn an_echoed_header_causes_no_cooldown() {
    let beta = "credit balance is too low";
    let body = anthropics(&format!(
        "Unexpected value(s) `{beta}` for the `anthropic-beta` header. Please consult our documentation."
    ));
    let world = world(&strangers("abc"));
    world.otherwise(move |request| match request.header("anthropic-beta") {
        Some(_) => json(400, &body),
        None => fine(),
    });
    let sent = post_with(MESSAGES, &[("anthropic-beta", beta)], with_member("x").as_bytes());
    assert_eq!(reached(&world, sent).await, ("a".into(), 400));
    assert!(untouched(&world));
    assert_eq!(ask_unrelated(&world, MESSAGES).await, 200);
}

#[tokio::test(start_paused = true)]
async fn echoed_text_in_an_error_event_causes_no_cooldown() {
    let event = |message: &str| format!("event: error\ndata: {}\n\n", anthropics(message));
    let echo = "credit balance is too low: Extra inputs are not permitted";
    for begun in [false, true] {
        let word = anthropic::text_start(0) + &anthropic::text(0, "hello");
        let before = anthropic::start() + if begun { &word } else { "" };
        let world = world(&strangers("abc"));
        world.script([sse(), say(before + &event(echo)), Step::End]);
        world.otherwise(|_| fine());
        let body = with_member("credit balance is too low").replace("{\"credit", "{\"stream\":true,\"credit");
        let answer = world.ask(post_with(MESSAGES, &[], body.as_bytes())).await;
        assert_eq!(answer.status(), if begun { 200 } else { 400 });
        world.settle().await;
        assert!(untouched(&world), "begun: {begun}");
        assert_eq!(keys(&world.requests()), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_sentence_rotates_a_request_once() {
    let sentences = [
        (CREDIT.to_owned(), "billing"),
        ("Your credit balance is too low to access the Claude API.".to_owned(), "billing"),
        (LIMIT.to_owned(), "spend_limit"),
        (format!("{LIMIT} You will regain access on 2099-01-01."), "spend_limit"),
        (
            "You have reached your specified workspace API usage limits. You will regain access on 2099-01-01 at 00:00 UTC."
                .to_owned(),
            "spend_limit",
        ),
    ];
    for (sentence, reason) in sentences {
        let world = world(&strangers("abc"));
        let refused = json(400, &anthropics(&sentence));
        world.otherwise(move |_| refused.clone());
        assert_eq!(reached(&world, ask("s1", 0)).await, ("ab".into(), 400), "{sentence}");
        for label in ["a", "b"] {
            let reasons: Vec<_> = cooldowns(&world, "anthropic", label)
                .iter()
                .map(|rest| (rest.0, rest.2))
                .collect();
            assert_eq!(reasons, [(reason, true)], "{sentence} {label}");
        }
        assert_eq!(cooldowns(&world, "anthropic", "c"), [], "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sentence_that_is_also_in_the_request_causes_no_cooldown() {
    let quoted = with_member("x").replace("hi", &format!("what does this mean? {CREDIT}"));
    let plain = with_member("x");
    let coded: &[(&str, &str)] = &[("content-encoding", "gzip")];
    let asked = "credit balance is too low";
    for (path, fields, body) in [
        (MESSAGES, &[][..], quoted.clone().into_bytes()),
        (MESSAGES, coded, gzipped(&quoted)),
        (MESSAGES, &[("x-note", asked)][..], plain.clone().into_bytes()),
        (
            MESSAGES,
            &[][..],
            quoted
                .replace("credit balance", "cr\\u0065dit b\\u0061lance")
                .into_bytes(),
        ),
        (
            "/anthropic/v1/messages?note=%63redit+balance%20is%20too%20low",
            &[][..],
            plain.clone().into_bytes(),
        ),
        (
            "/anthropic/v1/messages?note=credit%20balance%20is%20too%20low",
            &[][..],
            plain.clone().into_bytes(),
        ),
    ] {
        for (elsewhere, status) in [(fine(), 200), (json(400, &anthropics(CREDIT)), 400)] {
            let world = world(&strangers("abc"));
            does(&world, &[("a", json(400, &anthropics(CREDIT))), ("b", elsewhere)]);
            let seen = reached(&world, post_with(path, fields, &body)).await;
            assert_eq!(seen, ("ab".into(), status), "{path} {fields:?}");
            assert!(untouched(&world), "{path} {fields:?}");
        }
    }
    // Without the sentence in the request, the same answer counts.
    let world = world(&strangers("abc"));
    does(&world, &[("a", json(400, &anthropics(CREDIT)))]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("ab".into(), 200));
    assert_eq!(cooldowns(&world, "anthropic", "a")[0].0, "billing");
}

/// Returns the date and the seconds until midnight UTC, `days` days from now.
fn in_days(days: u64) -> (String, u64) {
    let now = unix_time().as_secs();
    let at = (now / 86_400 + days) * 86_400;
    let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at)).to_string();
    (date[..10].to_owned(), at.saturating_sub(now))
}

#[tokio::test(start_paused = true)]
async fn a_named_date_is_capped_at_the_end_of_the_next_month() {
    let limited = |date: &str| {
        json(
            400,
            &anthropics(&format!("{LIMIT} You will regain access on {date} at 00:00 UTC.")),
        )
    };
    let left = async |date: &str| {
        let world = world(&strangers("ab"));
        world.script(limited(date));
        world.otherwise(|_| fine());
        reached(&world, ask("s1", 0)).await;
        cooldowns(&world, "anthropic", "a")[0].4
    };
    let (date, seconds) = in_days(20);
    let rested = left(&date).await;
    assert!(secs(rested) + secs(2) >= secs(seconds), "{date}: {rested}");
    assert!(secs(rested) <= secs(seconds).mul_f64(1.2), "{date}: {rested}");
    // The cap is the end of the next month, and no month is longer than 31 days.
    for date in ["2099-01-01", "9999-12-31"] {
        let rested = left(date).await;
        assert!(rested > 28 * 86_400 && rested <= 62 * 86_400, "{date}: {rested}");
    }
    let (past, _) = in_days(0);
    let rested = left(&past).await;
    assert!((17_998..=21_600).contains(&rested), "{past}: {rested}");
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_is_capped() {
    let day = 86_400;
    let far = (unix_time().as_secs() + 400 * day).to_string();
    let unified = [
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-reset", far.as_str()),
    ];
    let limit = refusal("rate_limit_error", "Error");
    for (fields, most) in [(&[("retry-after", "999999999")][..], day), (&unified, 7 * day)] {
        // The jitter differs from request to request.
        for number in 0..8 {
            let world = world(&strangers("ab"));
            world.script(error(429, fields, &limit));
            world.otherwise(|_| fine());
            assert_eq!(reached(&world, ask("s1", number)).await, ("ab".into(), 200));
            let rested = cooldowns(&world, "anthropic", "a")[0].4;
            assert!(rested <= most && rested + 2 >= most, "{fields:?}: {rested}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dates_in_other_errors_do_not_extend_a_cooldown() {
    let words = "Too many. You will regain access on 2099-01-01 at 00:00 UTC.";
    for (status, kind, reason, seconds) in [
        // A rate limit uses the named duration, but not the date.
        (429, "rate_limit_error", "rate_limit", 20 * 3600),
        (429, "insufficient_quota", "quota", 18_000),
        (402, "billing_error", "billing", 18_000),
        (401, "authentication_error", "auth", 30),
        (403, "permission_error", "permission", 600),
    ] {
        let world = world(&strangers("a"));
        world.otherwise(move |_| {
            json(
                status,
                &refusal(kind, &format!("{words} Please try again in 20 hours.")),
            )
        });
        for number in 0..2 {
            world.ask(ask("s1", number)).await;
        }
        let rest = cooldowns(&world, "anthropic", "a")[0].clone();
        assert_eq!(rest.0, reason);
        assert!(secs(rest.4) + secs(2) >= secs(seconds), "{rest:?}");
        assert!(secs(rest.4) <= secs(seconds).mul_f64(1.2), "{rest:?}");
    }
}
