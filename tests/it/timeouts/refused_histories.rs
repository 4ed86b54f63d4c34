//! A refusal of the history with a status of the provider's own failures: the request is at fault.
//!
//! Servers that apply chat templates report such faults with 500 (ggml-org/llama.cpp#25510, 2026-07). The client may have
//! written any such text, so it proves nothing about the endpoint either.

use crate::support::{
    app::post_with,
    pool::{BROKEN, MESSAGES, ask, body, does, failures, fine, reached, strangers, untouched, world},
    still::{Step, World, events::anthropic, json, say, sse},
};

/// Texts of each kind, which no repair of the request below answers.
const REFUSALS: [&str; 6] = [
    r#"{"error":{"code":500,"message":"No user query found in messages.","type":"server_error"}}"#,
    r#"{"error":{"code":500,"message":"Jinja Exception: No user query found in messages.","type":"server_error"}}"#,
    r#"{"error":{"code":500,"message":"Error rendering prompt with jinja template: \"Unexpected role 'user' after role 'tool'\"","type":"server_error"}}"#,
    r#"{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]","type":"server_error"}}"#,
    r#"{"object":"error","message":"Unterminated string starting at: line 1 column 9 (char 8)","type":"InternalServerError"}"#,
    r#"{"error":{"message":"messages with role 'tool' must be a response to a preceding message with 'tool_calls'"}}"#,
];

fn counted(world: &World, label: &str) -> u64 {
    let page = world.shared.telemetry.encode_metrics();
    let lines = page.lines().filter(|line| line.starts_with("antiphon_requests_total{"));
    let of_side = lines.filter(|line| line.contains(&format!("outcome=\"{label}\"")));
    of_side
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_history_with_a_5xx_is_neither_retried_nor_blamed_on_the_provider() {
    for status in [500, 502] {
        for refusal in REFUSALS {
            for with_profiles in [true, false] {
                let world = if with_profiles {
                    world(&strangers("ab"))
                } else {
                    World::new()
                };
                world.otherwise(move |_| json(status, refusal));
                for number in 0..12 {
                    let before = world.requests().len();
                    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
                    let answer = world.ask(post_with(MESSAGES, &fields, body(number).as_bytes())).await;
                    assert_eq!((answer.status(), answer.text()), (status, refusal));
                    assert_eq!(world.requests().len() - before, 1, "{status} {refusal}");
                }
                assert!(untouched(&world), "{refusal}");
                assert_eq!(failures(&world, "anthropic"), 0, "{status} {refusal}");
                assert_eq!(
                    (counted(&world, "client"), counted(&world, "provider")),
                    (12, 0),
                    "{refusal}"
                );
            }
        }
    }
}

/// The same inside of a stream, before its first event.
#[tokio::test(start_paused = true)]
async fn a_refusal_at_the_begin_of_a_stream_is_not_retried_either() {
    let world = world(&strangers("ab"));
    let event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"message\":\"Jinja Exception: No \
        user query found in messages.\"}}\n\n";
    world.otherwise(move |_| vec![sse(), say(event), Step::End]);
    let request = body(0).replace("\"m\",", "\"m\",\"stream\":true,");
    let (seen, _) = reached(&world, post_with(MESSAGES, &[], request.as_bytes())).await;
    assert_eq!((seen.as_str(), failures(&world, "anthropic")), ("a", 0));
    assert_eq!((counted(&world, "client"), counted(&world, "provider")), (1, 0));
}

/// A stream that was held begins with a refusal that a repair answers: the client gets the answer to the resend.
#[tokio::test(start_paused = true)]
async fn a_refusal_at_the_start_of_a_stream_is_repaired_like_any_other() {
    let world = world(&strangers("a"));
    let refusal = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\
        \"messages.1.content.0: Invalid `signature` in `thinking` block\"}}\n\n";
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"c2lnbmF0dXJlIG9mIGFub3RoZXIgY2FsbGVyIGF0"},"#;
    let history = |thinking: &str| {
        format!(
            r#"{{"model":"m","stream":true,"max_tokens":16,"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{thinking}{{"type":"text","text":"done"}}]}},{{"role":"user","content":"on"}}]}}"#
        )
    };
    let whole = [
        anthropic::start(),
        anthropic::text_start(0),
        anthropic::text(0, "yes"),
        anthropic::stop(0),
        anthropic::end("end_turn"),
    ];
    let whole = whole.concat();
    world.otherwise(move |request| {
        let first = if request.text().contains("signature") {
            refusal
        } else {
            &whole
        };
        vec![sse(), say(first), Step::End]
    });
    let answer = world.ask(post_with(MESSAGES, &[], history(thinking).as_bytes())).await;
    assert_eq!(
        (answer.status(), answer.header("x-antiphon-attempts")),
        (200, Some("2")),
        "{}",
        answer.text()
    );
    assert!(answer.text().starts_with("event: message_start"), "{}", answer.text());
    let requests = world.requests();
    let sent: Vec<&str> = requests.iter().map(|request| request.message.text()).collect();
    assert_eq!(sent, [history(thinking), history("")]);
    assert_eq!((counted(&world, "client"), counted(&world, "provider")), (0, 0));
}

/// A text that a client may have written hides no failure of the endpoint: it neither counts as one nor as a success.
#[tokio::test(start_paused = true)]
async fn such_a_text_does_not_clear_the_failures_of_an_endpoint() {
    let world = world(&strangers("a"));
    does(&world, &[("a", json(500, BROKEN))]);
    reached(&world, ask("s1", 0)).await;
    let before = failures(&world, "anthropic");
    assert!(before > 0);
    does(&world, &[("a", json(500, REFUSALS[0]))]);
    reached(&world, ask("s1", 1)).await;
    assert_eq!(failures(&world, "anthropic"), before);
    does(&world, &[("a", fine())]);
    reached(&world, ask("s1", 2)).await;
    assert_eq!(failures(&world, "anthropic"), 0);
}

/// Other texts with the same status go on as before.
#[tokio::test(start_paused = true)]
async fn any_other_text_with_a_5xx_is_the_providers_failure() {
    for text in [
        r#"{"error":{"code":500,"message":"Internal error","type":"server_error"}}"#,
        r#"{"error":{"code":500,"message":"The worker died. No user query found in messages.","type":"server_error"}}"#,
        "",
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[("a", json(500, text)), ("b", json(500, text))]);
        let (seen, status) = reached(&world, ask("s1", 0)).await;
        assert_eq!((seen.as_str(), status), ("aa", 500), "{text}");
        assert!(failures(&world, "anthropic") > 0, "{text}");
        assert_eq!(counted(&world, "provider"), 1, "{text}");
    }
}
