//! Answers with a status of success that no model gave: they are relayed, cost nothing and clear nothing.

use crate::support::{
    still::{
        Step,
        events::{anthropic::*, responses},
        head, json, say, sse,
    },
    table::{Ask, Row, Seen, play},
};

const SERVED: [&str; 5] = ["A@0", "- done ok", "ok=1", "-", "works"];

/// Returns an answer with these headers and this body.
fn page(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<Step> {
    let length = body.len().to_string();
    let fields = [&[("content-length", length.as_str())], fields].concat();
    vec![head(status, &fields), Step::Bytes(body.as_bytes().to_vec()), Step::End]
}

fn typed(kind: &str, body: &str) -> Vec<Step> {
    page(200, &[("content-type", kind)], body)
}

/// Returns a row whose answer is none of a model. The place says when that was known.
fn foreign(name: &'static str, script: Vec<Step>, answer: &'static str, log: &'static str) -> Row {
    Row::new(name, [script], [answer, "A@0", log, "not_an_answer=1", "-", "+0"])
}

fn served(name: &'static str, script: Vec<Step>, answer: &'static str) -> Row {
    let [sends, log, counts, profiles, endpoint] = SERVED;
    Row::new(name, [script], [answer, sends, log, counts, profiles, endpoint])
}

/// Returns a row of a path whose answers have no known format. Its body names no model, so that no failure is cleared.
fn heard(name: &'static str, script: Vec<Step>, path: &'static str) -> Row {
    Row::new(name, [script], ["200 n1 @0", "A@0", "- done ok", "ok=1", "-", "+0"]).ask(Ask::of(path))
}

const LOGIN: &str = "<!DOCTYPE html><html>Sign in to the network</html>";
const MESSAGE: &str = "{\"id\":\"m\",\"type\":\"message\",\"content\":[],\"stop_reason\":\"end_turn\"}";

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn an_answer_that_no_model_gave_clears_nothing() {
    let (in_head, in_body) = ("network headers not_an_answer", "network body not_an_answer");
    let speech = || Ask::of("/openai/v1/audio/speech");
    play(vec![
        foreign(
            "a redirect",
            page(302, &[("location", "http://portal.example/")], ""),
            "302 n1 @0",
            "network headers redirect",
        ),
        foreign(
            "a permanent redirect with a page",
            page(308, &[("location", "/v2"), ("content-type", "text/html")], LOGIN),
            "308 n1 @0",
            "network headers redirect",
        ),
        foreign("a page", typed("text/html; charset=utf-8", LOGIN), "200 n1 @0", in_head),
        foreign(
            "a page in other letters",
            typed("Text/HTML", LOGIN),
            "200 n1 @0",
            in_head,
        ),
        foreign("XHTML", typed("application/xhtml+xml", LOGIN), "200 n1 @0", in_head),
        foreign("nothing", page(200, &[], ""), "200 n1 @0", in_head),
        foreign("nothing, as JSON", typed("application/json", ""), "200 n1 @0", in_head),
        foreign("no content", vec![head(204, &[]), Step::End], "204 n1 @0", in_head),
        foreign(
            "nothing, in chunks",
            vec![head(200, &[("content-type", "application/json")]), Step::End],
            "200 n1 @0",
            in_body,
        ),
        foreign("white space", typed("application/json", " \n"), "200 n1 @0", in_body),
        foreign("a page without a type", page(200, &[], LOGIN), "200 n1 @0", in_body),
        foreign("a page as JSON", typed("application/json", LOGIN), "200 n1 @0", in_body),
        foreign("words", typed("text/plain", "It works!"), "200 n1 @0", in_body),
        foreign("a JSON text", typed("application/json", "\"ok\""), "200 n1 @0", in_body),
        foreign("speech that is a page", typed("text/html", LOGIN), "200 n1 @0", in_head).ask(speech()),
        foreign(
            "a redirect of speech",
            page(307, &[("location", "/login")], ""),
            "307 n1 @0",
            "network headers redirect",
        )
        .ask(speech()),
        served("JSON", typed("application/json", MESSAGE), "200 n1 @0"),
        served("JSON as text", typed("text/plain", MESSAGE), "200 n1 @0"),
        served(
            "JSON after white space",
            typed("text/plain", &format!("\r\n\t {MESSAGE}")),
            "200 n1 @0",
        ),
        served(
            "JSON after a mark",
            typed("text/plain", &format!("\u{feff}{MESSAGE}")),
            "200 n1 @0",
        ),
        served("JSON without a type", page(200, &[], MESSAGE), "200 n1 @0"),
        served(
            "JSON byte by byte",
            [
                vec![head(200, &[("content-type", "text/plain")])],
                MESSAGE.chars().map(|letter| say(letter.to_string())).collect(),
                vec![Step::End],
            ]
            .concat(),
            "200 n1 @0",
        ),
        served("an array", typed("application/json", "[{}]"), "200 n1 @0"),
        served(
            "events as text",
            typed("text/plain", &(start() + &end("end_turn"))),
            "200 n1 @0",
        ),
        served("events without a type", page(200, &[], "data: {}\n\n"), "200 n1 @0"),
        served(
            "a comment without a type",
            page(200, &[], ": hm\n\ndata: {}\n\n"),
            "200 n1 @0",
        ),
        served(
            "Amazon's events",
            typed("application/vnd.amazon.eventstream", "\0\0\0\u{1}"),
            "200 n1 @0",
        ),
        served(
            "packed",
            page(
                200,
                &[("content-type", "application/json"), ("content-encoding", "br")],
                "\u{b}",
            ),
            "200 n1 @0",
        ),
        heard("speech", typed("audio/mpeg", "ID3"), "/openai/v1/audio/speech"),
        heard(
            "speech without a type",
            page(200, &[], "ID3"),
            "/openai/v1/audio/speech",
        ),
        heard(
            "a transcript",
            typed("text/plain", "words"),
            "/openai/v1/audio/transcriptions",
        ),
        // No model answers here, so nothing could be cleared.
        Row::new(
            "a file",
            [page(302, &[("location", "/content")], "")],
            ["302 n1 @0", "A@0", "- done ok", "ok=1", "-", "+0"],
        )
        .ask(Ask::of("/openai/v1/files")),
        Row::new(
            "a page about files",
            [typed("text/html", LOGIN)],
            ["200 n1 @0", "A@0", "- done ok", "ok=1", "-", "+0"],
        )
        .ask(Ask::of("/openai/v1/files")),
    ])
    .await;
}

/// An error in the body of a 200 counts as in a stream, in every format.
#[tokio::test(start_paused = true)]
async fn an_error_in_a_whole_answer_is_no_success() {
    let whole = |name, path: &'static str, body: &str, answer: &'static str, class: [&'static str; 3]| {
        let [log, counts, endpoint] = class;
        let want: Seen = [answer, "A@0", log, counts, "-", endpoint];
        Row::new(name, [json(200, body)], want).ask(Ask::of(path))
    };
    let overloaded = ["provider body overloaded", "overloaded=1", "+1"];
    let faulty = ["provider body provider_fault", "provider_fault=1", "+1"];
    let (messages, chat) = ("/anthropic/v1/messages", "/openai/v1/chat/completions");
    let (codex, gemini) = ("/openai/v1/responses", "/gemini/v1beta/models/m:generateContent");
    let typed = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"words\"}}";
    let bare = "{\"error\":{\"type\":\"overloaded_error\",\"message\":\"words\"}}";
    let failed = "{\"id\":\"r\",\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"words\"},\"output\":[]}";
    let text = "{\"error\":\"out of memory\"}";
    let mut rows = vec![
        whole(
            "a failed response",
            codex,
            failed,
            "200 server_is_overloaded n1 @0",
            overloaded,
        ),
        // Some relays leave out the name and the type of the event.
        Row::new(
            "an error event without a name",
            [vec![
                sse(),
                say(responses::start()),
                say(responses::text_start(0)),
                say(format!("data: {bare}\n\n")),
                Step::End,
            ]],
            [
                "200 passed overloaded_error n1 @0",
                "A@0",
                "provider body overloaded",
                "overloaded=1",
                "-",
                "+1",
            ],
        )
        .ask(Ask::of(codex)),
    ];
    for path in [messages, chat, codex, gemini] {
        rows.push(whole("typed", path, typed, "200 overloaded_error n1 @0", overloaded));
        rows.push(whole("bare", path, bare, "200 overloaded_error n1 @0", overloaded));
        rows.push(whole("a text", path, text, "200 n1 @0", faulty));
    }
    play(rows).await;
}

/// With the client's own credential an error is relayed unread, and its text still decides the class.
#[tokio::test(start_paused = true)]
async fn the_text_of_a_relayed_error_decides_its_class() {
    let row = |name, path: &'static str, script: Vec<Step>, answer: &'static str, class: [&'static str; 3]| {
        let [log, counts, endpoint] = class;
        let want: Seen = [answer, "A@0", log, counts, "-", endpoint];
        Row::new(name, [script], want)
            .ask(Ask::of(path).field("x-stainless-retry-count", "1"))
            .settings(|builder| {
                builder.profiles.values_mut().for_each(|profiles| profiles.truncate(1));
            })
    };
    let (messages, codex) = ("/anthropic/v1/messages", "/openai/v1/responses");
    let slow = "{\"type\":\"error\",\"error\":{\"type\":\"timeout_error\",\"message\":\"words\"}}";
    let used_up = "{\"error\":{\"type\":\"usage_limit_reached\",\"message\":\"words\",\"resets_in_seconds\":1800}}";
    let long = format!(
        "{{\"error\":{{\"message\":\"{}\",\"type\":\"timeout_error\"}}}}",
        "x".repeat(100_000)
    );
    let too_slow = ["provider headers provider_timeout", "provider_timeout=1", "+0"];
    let faulty = ["provider headers provider_fault", "provider_fault=1", "+1"];
    let pieces = || {
        let body = slow.chars().map(|letter| say(letter.to_string()));
        let head = head(504, &[("content-type", "application/json; charset=utf-8")]);
        [head].into_iter().chain(body).chain([Step::End]).collect()
    };
    let mut quota = row(
        "a quota",
        codex,
        json(429, used_up),
        "429 usage_limit_reached n1 @0",
        ["provider headers quota", "quota=1", "works"],
    );
    quota.want[0][4] = "A:quota 1800";
    // The wait of the pool.
    quota.want[0][0] = "429 usage_limit_reached retry-after=1800 n1 @0";
    play(vec![
        row(
            "a timeout",
            messages,
            json(504, slow),
            "504 timeout_error n1 @0",
            too_slow,
        ),
        row(
            "a timeout, in pieces",
            messages,
            pieces(),
            "504 timeout_error n1 @0",
            too_slow,
        ),
        row("another 504", messages, json(504, "{}"), "504 n1 @0", faulty),
        row(
            "a text that is too long",
            messages,
            json(504, &long),
            "504 timeout_error n1 @0",
            faulty,
        ),
        row(
            "a page",
            messages,
            page(504, &[("content-type", "text/html")], LOGIN),
            "504 n1 @0",
            faulty,
        ),
        quota,
    ])
    .await;
}
