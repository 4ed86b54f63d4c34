//! Rows 8, 9 and 26 of the decision table: provider errors as a status, before an answer has begun, and after that.

use crate::support::{
    still::{
        Step, error,
        events::{
            anthropic::{end, ping, start, text, text_start},
            chat, gemini, responses,
        },
        json, say, sse, wait,
    },
    table::{Ask, Row, Seen, play},
};

/// Returns a Messages error.
fn says(status: u16, kind: &str) -> Vec<Step> {
    told(status, &[], kind, "words")
}

fn told(status: u16, fields: &[(&str, &str)], kind: &str, message: &str) -> Vec<Step> {
    let body = format!("{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}");
    error(status, fields, &body)
}

/// Returns an OpenAI error.
fn coded(status: u16, code: &str, more: &str) -> Vec<Step> {
    let body =
        format!("{{\"error\":{{\"message\":\"words\",\"type\":\"x\",\"param\":null,\"code\":\"{code}\"{more}}}}}");
    json(status, &body)
}

fn whole() -> Vec<Step> {
    vec![sse(), say(start()), say(text_start(0)), say(end("end_turn")), Step::End]
}

/// As [`whole`], for Responses.
fn response() -> Vec<Step> {
    vec![sse(), say(responses::text_start(0)), say(responses::end()), Step::End]
}

/// Returns the outcome with the client's own credential: the provider's error unchanged.
fn passes(answer: &'static str, log: &'static str, counts: &'static str, endpoint: &'static str) -> Seen {
    [answer, "A@0", log, counts, "-", endpoint]
}

/// Returns a row for an error of the key: another profile succeeds, and the first cools down.
fn moves(name: &'static str, script: Vec<Step>, counts: &'static str, rests: &'static str, own: Seen) -> Row {
    let want = ["200 whole n2 @0", "A@0 B@0", "- done ok", counts, rests, "works"];
    Row::new(name, [script, whole()], want).own(own)
}

/// Returns a row for an error that every key would get: no other profile is tried and none cools down.
fn stays(name: &'static str, script: Vec<Step>, answer: &'static str, class: [&'static str; 3]) -> Row {
    let [log, counts, endpoint] = class;
    Row::new(name, [script, whole()], passes(answer, log, counts, endpoint))
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_status_about_the_key_rotates_and_cools_down_the_key() {
    let own = |answer, class: &'static str, counts| {
        let log = format!("provider headers {class}").leak();
        passes(answer, log, counts, "works")
    };
    let credit = "Your credit balance is too low to access the Anthropic API.";
    let spent = "You have reached your specified API usage limits. You will regain access on 2000-01-01.";
    let limit = || told(429, &[("retry-after", "45")], "rate_limit_error", "words");
    play(vec![
        moves(
            "e1",
            says(401, "authentication_error"),
            "auth=1 ok=1 rotated:auth=1",
            "A:auth 30",
            own("401 authentication_error n1 @0", "auth", "auth=1"),
        ),
        moves(
            "e2",
            says(402, "billing_error"),
            "billing=1 ok=1 rotated:billing=1",
            "A:billing 18000",
            own("402 billing_error n1 @0", "billing", "billing=1"),
        ),
        moves(
            "e3",
            told(400, &[], "invalid_request_error", credit),
            "billing=1 ok=1 rotated:billing=1",
            "A:billing 18000",
            own("400 invalid_request_error n1 @0", "billing", "billing=1"),
        ),
        moves(
            "e4",
            told(400, &[], "invalid_request_error", spent),
            "ok=1 rotated:spend_limit=1 spend_limit=1",
            "A:spend_limit 18000",
            own("400 invalid_request_error n1 @0", "spend_limit", "spend_limit=1"),
        ),
        moves(
            "e6",
            says(403, "permission_error"),
            "ok=1 permission=1 rotated:permission=1",
            "A:permission 600",
            own("403 permission_error n1 @0", "permission", "permission=1"),
        ),
        moves(
            "e8",
            says(429, "rate_limit_error"),
            "ok=1 rate_limit=1 rotated:rate_limit=1",
            "A:rate_limit 30",
            own("429 rate_limit_error n1 @0", "rate_limit", "rate_limit=1"),
        ),
        moves(
            "e8, until then",
            limit(),
            "ok=1 rate_limit=1 rotated:rate_limit=1",
            "A:rate_limit 45",
            own(
                "429 rate_limit_error retry-after=45 n1 @0",
                "rate_limit",
                "rate_limit=1",
            ),
        ),
        Row::new(
            "e5",
            [coded(429, "insufficient_quota", ""), response()],
            [
                "200 whole n2 @0",
                "A@0 B@0",
                "- done ok",
                "ok=1 quota=1 rotated:quota=1",
                "A:quota 18000",
                "works",
            ],
        )
        .ask(Ask::of("/openai/v1/responses"))
        .own(passes(
            "429 insufficient_quota n1 @0",
            "provider headers quota",
            "quota=1",
            "works",
        )),
        Row::new(
            "e5, until then",
            [
                coded(429, "usage_limit_reached", ",\"resets_in_seconds\":1800"),
                response(),
            ],
            [
                "200 whole n2 @0",
                "A@0 B@0",
                "- done ok",
                "ok=1 quota=1 rotated:quota=1",
                "A:quota 1800",
                "works",
            ],
        )
        .ask(Ask::of("/openai/v1/responses"))
        .own(passes(
            "429 usage_limit_reached n1 @0",
            "provider headers quota",
            "quota=1",
            "works",
        )),
        Row::new(
            "e7: the same key, after a short while",
            [told(429, &[("retry-after", "8")], "rate_limit_error", "words"), whole()],
            [
                "200 whole n2 @8",
                "A@0 A@8",
                "- done ok",
                "ok=1 rate_limit=1",
                "-",
                "works",
            ],
        )
        .own(passes(
            "429 rate_limit_error retry-after=8 n1 @0",
            "provider headers rate_limit",
            "rate_limit=1",
            "works",
        )),
        Row::new(
            "R17: a limit moves to any key that is ready",
            [limit(), limit(), whole()],
            [
                "200 whole n3 @0",
                "A@0 B@0 C@0",
                "- done ok",
                "ok=1 rate_limit=2 rotated:rate_limit=2",
                "A:rate_limit 45, B:rate_limit 45",
                "works",
            ],
        )
        .own(own(
            "429 rate_limit_error retry-after=45 n1 @0",
            "rate_limit",
            "rate_limit=1",
        )),
        Row::new(
            "R17: with every key limited, the wait is that of the first",
            [
                limit(),
                told(429, &[("retry-after", "20")], "rate_limit_error", "words"),
                limit(),
            ],
            [
                "429 rate_limit_error retry-after=20 n3 @0",
                "A@0 B@0 C@0",
                "provider headers rate_limit",
                "rate_limit=3 rotated:rate_limit=2",
                "A:rate_limit 45, B:rate_limit 20, C:rate_limit 45",
                "works",
            ],
        )
        .own(own(
            "429 rate_limit_error retry-after=45 n1 @0",
            "rate_limit",
            "rate_limit=1",
        )),
        Row::new(
            "R17: three sends",
            [
                says(401, "authentication_error"),
                says(401, "authentication_error"),
                says(401, "authentication_error"),
                whole(),
            ],
            [
                "401 authentication_error n3 @0",
                "A@0 B@0 C@0",
                "provider headers auth",
                "auth=3 rotated:auth=2",
                "A:auth 30, B:auth 30, C:auth 30",
                "works",
            ],
        )
        .own(own("401 authentication_error n1 @0", "auth", "auth=1")),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_status_about_the_request_or_endpoint_causes_no_cooldown() {
    let client = |class: &'static str, counts: &'static str| -> [&'static str; 3] {
        [format!("client headers {class}").leak(), counts, "works"]
    };
    let bound = "thinking block is bound to a different conversation";
    let orphan = "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1";
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    let failed =
        |name, status, kind: &'static str, answer: &'static str, own: &'static str, last: [&'static str; 3]| {
            let [sends, class, counts] = last;
            let log: &'static str = format!("provider headers {class}").leak();
            let once: &'static str = format!("{class}=1").leak();
            let scripts = (0..3).map(|_| says(status, kind)).chain([whole()]);
            let score = if class == "provider_timeout" { "+0" } else { "+1" };
            Row::new(name, scripts, [answer, sends, log, counts, "-", score]).own([own, "A@0", log, once, "-", score])
        };
    play(vec![
        stays(
            "e12",
            says(400, "invalid_request_error"),
            "400 invalid_request_error n1 @0",
            client("request", "request=1"),
        ),
        stays(
            "e12: pairing, in a body that shows nothing of it",
            told(400, &[], "invalid_request_error", orphan),
            "400 invalid_request_error n1 @0",
            client("request", "request=1"),
        ),
        stays(
            "e12",
            says(422, "invalid_request_error"),
            "422 invalid_request_error n1 @0",
            client("request", "request=1"),
        ),
        stays(
            "e14",
            says(404, "not_found_error"),
            "404 not_found_error n1 @0",
            client("not_found", "not_found=1"),
        ),
        stays(
            "e16",
            says(413, "request_too_large"),
            "413 request_too_large n1 @0",
            client("too_large", "too_large=1"),
        ),
        stays(
            "e16",
            told(400, &[], "invalid_request_error", long),
            "400 invalid_request_error n1 @0",
            client("too_large", "too_large=1"),
        ),
        stays(
            "e13",
            told(400, &[], "invalid_request_error", bound),
            "400 invalid_request_error n1 @0",
            client("affinity", "affinity=1"),
        ),
        Row::new(
            "e17",
            [coded(400, "content_filter", ""), response()],
            passes(
                "400 content_filter n1 @0",
                "provider headers filtered",
                "filtered=1",
                "works",
            ),
        )
        .ask(Ask::of("/openai/v1/responses")),
        Row::new(
            "e15",
            [says(409, "conflict"), whole()],
            [
                "200 whole n2 ~0.5",
                "A@0 A~0.5",
                "- done ok",
                "conflict=1 ok=1",
                "-",
                "works",
            ],
        )
        .own(passes(
            "409 conflict n1 @0",
            "client headers conflict",
            "conflict=1",
            "works",
        )),
        failed(
            "e9",
            529,
            "overloaded_error",
            "529 overloaded_error n3 ~1.5",
            "529 overloaded_error n1 @0",
            ["A@0 A~0.5 A~1.5", "overloaded", "overloaded=3"],
        ),
        failed(
            "e9",
            503,
            "overloaded_error",
            "503 overloaded_error n3 ~1.5",
            "503 overloaded_error n1 @0",
            ["A@0 A~0.5 A~1.5", "overloaded", "overloaded=3"],
        ),
        failed(
            "e10",
            500,
            "api_error",
            "500 api_error n2 ~0.5",
            "500 api_error n1 @0",
            ["A@0 A~0.5", "provider_fault", "provider_fault=2"],
        ),
        failed(
            "e10",
            502,
            "api_error",
            "502 api_error n2 ~0.5",
            "502 api_error n1 @0",
            ["A@0 A~0.5", "provider_fault", "provider_fault=2"],
        ),
        failed(
            "e10",
            524,
            "api_error",
            "524 api_error n2 ~0.5",
            "524 api_error n1 @0",
            ["A@0 A~0.5", "provider_fault", "provider_fault=2"],
        ),
        failed(
            "e11",
            408,
            "timeout_error",
            "408 timeout_error n2 ~0.5",
            "408 timeout_error n1 @0",
            ["A@0 A~0.5", "provider_timeout", "provider_timeout=2"],
        ),
        Row::new(
            "e11: not streamed",
            [says(408, "timeout_error"), whole()],
            passes(
                "408 timeout_error n1 @0",
                "provider headers provider_timeout",
                "provider_timeout=1",
                "+0",
            ),
        )
        .ask(Ask::messages().body("{\"model\":\"m\",\"messages\":[]}")),
        Row::new(
            "e9: the provider asks for no retry",
            [
                told(529, &[("x-should-retry", "false")], "overloaded_error", "words"),
                whole(),
            ],
            passes(
                "529 overloaded_error x-should-retry=false n1 @0",
                "provider headers overloaded",
                "overloaded=1",
                "+1",
            ),
        ),
        Row::new(
            "R18: the client's library tries again, so that the same key is not tried again",
            [says(500, "api_error"), whole()],
            passes(
                "500 api_error n1 @0",
                "provider headers provider_fault",
                "provider_fault=1",
                "+1",
            ),
        )
        .ask(Ask::messages().field("x-stainless-retry-count", "1")),
        Row::new(
            "R18: not the first time",
            [says(500, "api_error"), whole()],
            [
                "200 whole n2 ~0.5",
                "A@0 A~0.5",
                "- done ok",
                "ok=1 provider_fault=1",
                "-",
                "works",
            ],
        )
        .ask(Ask::messages().field("x-stainless-retry-count", "0"))
        .own(passes(
            "500 api_error n1 @0",
            "provider headers provider_fault",
            "provider_fault=1",
            "+1",
        )),
    ])
    .await;
}

/// Returns a stream that starts with an error, alone or after the provider's greeting.
fn opens(greeting: &str, event: String) -> Vec<Step> {
    vec![sse(), say(greeting), wait(3), say(event), Step::End]
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn an_error_before_the_answer_begins_is_treated_as_a_status() {
    let own = |code: &str, class: &str, endpoint| {
        let [answer, log, counts] = [
            format!("200 passed {code} n1 @3"),
            format!("provider body {class}"),
            format!("{class}=1"),
        ];
        passes(answer.leak(), log.leak(), counts.leak(), endpoint)
    };
    let codex = || Ask::of("/openai/v1/responses");
    play(vec![
        Row::new(
            "8: a limit",
            [opens(&start(), error_of("rate_limit_error")), whole()],
            [
                "200 whole n2 @3",
                "A@0 B@3",
                "- done ok",
                "ok=1 rate_limit=1 rotated:rate_limit=1",
                "A:rate_limit 30",
                "works",
            ],
        )
        .own(own("rate_limit_error", "rate_limit", "works")),
        Row::new(
            "8: the key",
            [opens(&ping(), error_of("authentication_error")), whole()],
            [
                "200 whole n2 @3",
                "A@0 B@3",
                "- done ok",
                "auth=1 ok=1 rotated:auth=1",
                "A:auth 30",
                "works",
            ],
        )
        .own(own("authentication_error", "auth", "works")),
        Row::new(
            "8: overloaded",
            [opens(&start(), error_of("overloaded_error")), whole()],
            [
                "200 whole n2 ~3.5",
                "A@0 A~3.5",
                "- done ok",
                "ok=1 overloaded=1",
                "-",
                "works",
            ],
        )
        .own(own("overloaded_error", "overloaded", "+1")),
        Row::new(
            // R15: no attempt can follow the third one, and its error still becomes a status.
            "8: overloaded, to the end",
            (0..3).map(|_| opens(&start(), error_of("overloaded_error"))),
            [
                "529 overloaded_error n3 ~10.5",
                "A@0 A~3.5 A~7.5",
                "provider headers overloaded",
                "overloaded=3",
                "-",
                "+1",
            ],
        )
        .own(own("overloaded_error", "overloaded", "+1")),
        Row::new(
            "8: every key",
            (0..3).map(|_| opens(&start(), error_of("authentication_error"))),
            [
                "401 authentication_error n3 @9",
                "A@0 B@3 C@6",
                "provider headers auth",
                "auth=3 rotated:auth=2",
                "A:auth 30, B:auth 30, C:auth 30",
                "works",
            ],
        )
        .own(own("authentication_error", "auth", "works")),
        Row::new(
            "8: overloaded, and the client retries by itself",
            [opens(&start(), error_of("overloaded_error")), whole()],
            [
                "529 overloaded_error n1 @3",
                "A@0",
                "provider headers overloaded",
                "overloaded=1",
                "-",
                "+1",
            ],
        )
        .settings(|builder| builder.profiles.values_mut().for_each(|profiles| profiles.truncate(1)))
        .ask(Ask::messages().field("x-stainless-retry-count", "1"))
        .own(own("overloaded_error", "overloaded", "+1")),
        Row::new(
            "8: bound to its provider",
            [
                opens(&responses::start(), responses::failed("server_is_overloaded")),
                response(),
            ],
            [
                "503 server_is_overloaded n1 @3",
                "A@0",
                "provider headers overloaded",
                "overloaded=1",
                "-",
                "+1",
            ],
        )
        .ask(codex().body("{\"model\":\"m\",\"stream\":true,\"input\":\"go\",\"previous_response_id\":\"resp_0\"}"))
        .own(own("server_is_overloaded", "overloaded", "+1")),
        Row::new(
            "8: the request",
            [opens(&start(), error_of("invalid_request_error")), whole()],
            passes(
                "400 invalid_request_error n1 @3",
                "client headers request",
                "request=1",
                "works",
            ),
        )
        .own(passes(
            "200 passed invalid_request_error n1 @3",
            "client body request",
            "request=1",
            "works",
        )),
        Row::new(
            "8: Responses",
            [
                opens(&responses::start(), responses::failed("rate_limit_exceeded")),
                response(),
            ],
            [
                "200 whole n2 @3",
                "A@0 B@3",
                "- done ok",
                "ok=1 rate_limit=1 rotated:rate_limit=1",
                "A:rate_limit 30",
                "works",
            ],
        )
        .ask(codex())
        .own(own("rate_limit_exceeded", "rate_limit", "works")),
        Row::new(
            "8: Responses, nobody else's affair",
            [
                opens(&responses::start(), responses::error("context_length_exceeded")),
                response(),
            ],
            passes(
                "400 context_length_exceeded n1 @3",
                "client headers too_large",
                "too_large=1",
                "works",
            ),
        )
        .ask(codex())
        .own(passes(
            "200 passed context_length_exceeded n1 @3",
            "client body too_large",
            "too_large=1",
            "works",
        )),
        Row::new(
            "8: Chat",
            [
                opens(": hm\n\n", chat::error("insufficient_quota")),
                vec![sse(), say(chat::text("a")), say(chat::end("stop")), Step::End],
            ],
            [
                "200 whole n2 @3",
                "A@0 B@3",
                "- done ok",
                "ok=1 quota=1 rotated:quota=1",
                "A:quota 18000",
                "works",
            ],
        )
        .ask(Ask::of("/openai/v1/chat/completions"))
        .own(own("insufficient_quota", "quota", "works")),
        Row::new(
            "8: Gemini",
            [
                vec![sse(), wait(3), say(gemini::error(429, "RESOURCE_EXHAUSTED")), Step::End],
                vec![sse(), say(gemini::end("STOP")), Step::End],
            ],
            [
                "200 whole n2 @3",
                "A@0 B@3",
                "- done ok",
                "ok=1 rate_limit=1 rotated:rate_limit=1",
                "A:rate_limit 30",
                "works",
            ],
        )
        .ask(Ask::of("/gemini/v1beta/models/m:streamGenerateContent?alt=sse"))
        .own(own("RESOURCE_EXHAUSTED", "rate_limit", "works")),
    ])
    .await;
}

/// Returns an error event of Messages.
fn error_of(code: &str) -> String {
    crate::support::still::events::anthropic::error(code)
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_beginning_is_relayed_and_counts_as_its_status() {
    let passed = |name, code: &'static str, class: &'static str, profiles, endpoint| {
        let answer = format!("200 passed {code} n1 @20").leak();
        let log = format!("provider body {class}").leak();
        let counts = format!("{class}=1").leak();
        let script = vec![
            sse(),
            say(start()),
            say(text_start(0)),
            say(text(0, "a")),
            wait(20),
            say(error_of(code)),
            Step::End,
        ];
        Row::new(
            name,
            [script, whole()],
            [answer, "A@0", log, counts, profiles, endpoint],
        )
        .own([answer, "A@0", log, counts, "-", endpoint])
    };
    play(vec![
        passed("9: overloaded", "overloaded_error", "overloaded", "-", "+1"),
        passed(
            "9: a limit",
            "rate_limit_error",
            "rate_limit",
            "A:rate_limit 30",
            "works",
        ),
        passed("9: the key", "authentication_error", "auth", "A:auth 30", "works"),
        passed("9: means", "billing_error", "billing", "A:billing 18000", "works"),
        passed("9: a fault", "api_error", "provider_fault", "-", "+1"),
        passed("9: too long", "timeout_error", "provider_timeout", "-", "+0"),
    ])
    .await;
}
