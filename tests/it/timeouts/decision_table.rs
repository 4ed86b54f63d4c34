//! The decision table, row by row: the outcomes of an exchange and their effects on profiles and
//! breakers.
//!
//! Rows 8, 9 and 26 are in [`crate::timeouts::decision_errors`]. Rows 2 and 21 to 24, which need several exchanges, are
//! in [`crate::timeouts::decision_sequences`].

use std::time::Duration;

use crate::support::{
    still::{
        Step,
        events::{anthropic::*, chat, gemini, responses},
        say, secs, sse, wait,
    },
    table::{Ask, Client, Row, play},
};

/// Returns `event` every ten seconds, for this long.
fn every_ten(event: &str, seconds: u64) -> Vec<Step> {
    (0..seconds / 10).flat_map(|_| [wait(10), say(event)]).collect()
}

fn stream(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [sse(), say(start())].into_iter().chain(steps).collect()
}

/// Returns a stream whose text has begun, followed by `steps`.
fn text_and(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    stream([say(text_start(0)), say(text(0, "a"))].into_iter().chain(steps))
}

fn whole() -> Vec<Step> {
    text_and([say(stop(0)), say(end("end_turn")), Step::End])
}

const SERVED: [&str; 6] = ["200 whole n1 @0", "A@0", "- done ok", "ok=1", "-", "works"];

#[tokio::test(start_paused = true)]
async fn an_incomplete_request_is_blamed_on_the_client() {
    play(vec![
        Row::new("0: nothing happens", [whole()], SERVED),
        Row::new(
            "1: the upload stalls",
            [],
            [
                "408 timeout_error ours:client/request @30",
                "",
                "client request body_stalled",
                "",
                "-",
                "+0",
            ],
        )
        .client(Client::StopsSending),
        Row::new(
            "1: the upload breaks off",
            [],
            ["left", "", "client request body_broken", "", "-", "+0"],
        )
        .client(Client::BreaksOff(7)),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_failed_connection_causes_no_cooldown() {
    let large = || {
        Ask::messages().body(&format!(
            "{{\"model\":\"m\",\"stream\":true,\"messages\":[],\"x\":\"{}\"}}",
            "x".repeat(100_000)
        ))
    };
    play(vec![
        Row::new(
            "3: refused",
            [vec![Step::Refuse], vec![Step::Refuse]],
            [
                "502 api_error ours:network/connect n2 ~0.5",
                "",
                "network connect connect",
                "unreachable=2",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "3: refused once",
            [vec![Step::Refuse], whole()],
            [
                "200 whole n2 ~0.5",
                "A~0.5",
                "- done ok",
                "ok=1 unreachable=1",
                "-",
                "works",
            ],
        ),
        Row::new(
            "3: no such name",
            [vec![Step::Dns], vec![Step::Dns]],
            [
                "502 api_error ours:network/connect n2 ~0.5",
                "",
                "network connect dns",
                "unreachable=2",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "3: nobody answers",
            [vec![Step::ConnectHang], vec![Step::ConnectHang]],
            [
                "504 timeout_error ours:network/connect n2 ~10.5",
                "",
                "network connect connect_timeout",
                "unreachable=2",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "4: a certificate",
            [vec![Step::TlsFail], whole()],
            [
                "502 api_error ours:network/connect n1 @0",
                "",
                "network connect tls",
                "certificate=1",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "4: a handshake that takes too long",
            [vec![Step::TlsHang], vec![Step::TlsHang]],
            [
                "504 timeout_error ours:network/connect n2 ~10.5",
                "",
                "network connect tls_timeout",
                "handshake=2",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "5: the request is not taken",
            [vec![Step::StopReading], vec![Step::StopReading]],
            [
                "504 timeout_error ours:network/send n2 ~60.5",
                "",
                "network send send_timeout",
                "interrupted=2",
                "-",
                "+1",
            ],
        )
        .ask(large())
        // The request may have arrived, so with the client's own credential it is not resent.
        .own([
            "504 timeout_error ours:network/send n1 @30",
            "",
            "network send send_timeout",
            "interrupted=1",
            "-",
            "+1",
        ]),
        Row::new(
            "5: reset before the head",
            [vec![wait(3), Step::Reset], whole()],
            [
                "200 whole n2 ~3.5",
                "A@0 A~3.5",
                "- done ok",
                "interrupted=1 ok=1",
                "-",
                "works",
            ],
        )
        .own([
            "502 api_error ours:network/headers n1 @3",
            "A@0",
            "network headers headers",
            "interrupted=1",
            "-",
            "+1",
        ]),
        Row::new(
            "6: no head",
            [vec![Step::Hang], whole()],
            [
                "504 timeout_error ours:provider/headers n1 @60",
                "A@0",
                "provider headers headers_timeout",
                "headless=1",
                "-",
                "+1",
            ],
        ),
        Row::new(
            "6: no head of an answer that is not streamed",
            [vec![Step::Hang], whole()],
            [
                "504 timeout_error ours:provider/headers n1 @600",
                "A@0",
                "provider headers headers_timeout",
                "headless=1",
                "-",
                "+1",
            ],
        )
        .ask(Ask::messages().body("{\"model\":\"m\",\"messages\":[]}")),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_request_is_resent_once_if_possible() {
    let parked = || [vec![sse()], every_ten(&ping(), 1000)].concat();
    let queued = || {
        [
            vec![sse(), say(responses::queued())],
            every_ten(&responses::ping(), 1000),
        ]
        .concat()
    };
    let served = || vec![sse(), say(responses::text_start(0)), say(responses::end()), Step::End];
    // By default the gate opens long before a request counts as parked, and then nothing is sent again.
    let over_it = |row: Row| row.settings(|builder| builder.proxy.timeouts.gate = secs(300));
    play(vec![
        Row::new(
            "7: after the gate",
            [parked()],
            [
                "200 cut overloaded_error n1 @120",
                "A@0",
                "provider body parked",
                "parked=1 stall:provider=1",
                "-",
                "+1",
            ],
        ),
        over_it(Row::new(
            "7: before the commit",
            [parked(), parked()],
            [
                "504 timeout_error ours:provider/body n2 @240",
                "A@0 B@120",
                "provider body parked",
                "parked=2 rotated:other=1 stall:provider=1",
                "-",
                "+1",
            ],
        ))
        .own([
            "200 cut overloaded_error n1 @120",
            "A@0",
            "provider body parked",
            "parked=1 stall:provider=1",
            "-",
            "+1",
        ]),
        over_it(Row::new(
            "7: said to be queued",
            [queued(), served()],
            [
                "200 whole n2 ~120.5",
                "A@0 A~120.5",
                "- done ok",
                "ok=1 parked=1",
                "-",
                "works",
            ],
        ))
        .ask(Ask::of("/openai/v1/responses"))
        .own([
            "200 cut parked n1 @120",
            "A@0",
            "provider body parked",
            "parked=1 stall:provider=1",
            "-",
            "+1",
        ]),
    ])
    .await;
}

const STALLED: [&str; 3] = ["A@0", "provider body answer_stalled", "stall:provider=1 stalled=1"];

fn stalled(name: &'static str, script: Vec<Step>, answer: &'static str) -> Row {
    let [sends, log, counts] = STALLED;
    Row::new(name, [script], [answer, sends, log, counts, "-", "+1"])
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_stalled_stream_causes_no_cooldown_and_uses_the_timeout_of_its_state() {
    let tool = [
        "A@0",
        "provider_tool body server_tool",
        "server_tool=1 stall:provider_tool=1",
        "-",
        "+0",
    ];
    let compacting = [
        "A@0",
        "provider_compaction body compaction",
        "compaction=1 stall:provider_compaction=1",
        "-",
        "+0",
    ];
    let excused = |name, script, answer, [sends, log, counts, profiles, endpoint]: [&'static str; 5]| {
        Row::new(name, [script], [answer, sends, log, counts, profiles, endpoint])
    };
    play(vec![
        stalled(
            "10: silence",
            text_and([wait(100), say(text(0, "b")), Step::Hang]),
            "200 cut overloaded_error n1 @340",
        ),
        stalled(
            "10: silence of a socket that had shown signs of life",
            text_and([say(ping()), wait(20), say(ping()), Step::Hang]),
            "200 cut overloaded_error n1 @110",
        ),
        stalled(
            "10: the same, with a tool in flight",
            stream([say(server_tool(0, "s")), say(ping()), wait(10), say(ping()), Step::Hang]),
            "200 cut overloaded_error n1 @100",
        ),
        stalled(
            "10: the same, while compacting",
            stream([say(compaction_start(0)), say(ping()), wait(10), say(ping()), Step::Hang]),
            "200 cut overloaded_error n1 @100",
        ),
        stalled(
            "11: signs of life alone",
            text_and(every_ten(&ping(), 4000)),
            "200 cut overloaded_error n1 @240",
        ),
        stalled(
            "12: the same, with reasoning open",
            stream([vec![say(reasoning_start(0))], every_ten(&ping(), 4000)].concat()),
            "200 cut overloaded_error n1 @600",
        ),
        excused(
            "13: the same, with a tool in flight",
            stream([vec![say(server_tool(0, "s"))], every_ten(&ping(), 4000)].concat()),
            "200 cut overloaded_error n1 @900",
            tool,
        ),
        excused(
            "14: the same, while compacting",
            stream([vec![say(compaction_start(0))], every_ten(&ping(), 4000)].concat()),
            "200 cut overloaded_error n1 @900",
            compacting,
        ),
        stalled(
            "10: Chat",
            vec![sse(), say(chat::text("a")), Step::Hang],
            "200 cut answer_stalled n1 @240",
        )
        .ask(Ask::of("/openai/v1/chat/completions")),
        stalled(
            "10: Gemini",
            vec![sse(), say(gemini::text("a")), Step::Hang],
            "200 cut UNAVAILABLE n1 @240",
        )
        .ask(Ask::of("/gemini/v1beta/models/m:streamGenerateContent?alt=sse")),
        stalled(
            "10: Responses",
            vec![sse(), say(responses::text_start(0)), Step::Hang],
            "200 cut answer_stalled n1 @240",
        )
        .ask(Ask::of("/openai/v1/responses")),
        excused(
            "13: Responses",
            [
                vec![sse(), say(responses::server_tool(0, "ws_1"))],
                every_ten(&responses::ping(), 4000),
            ]
            .concat(),
            "200 cut server_tool n1 @900",
            tool,
        )
        .ask(Ask::of("/openai/v1/responses")),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_broken_stream_is_resent_only_before_it_has_begun() {
    let broken = |name, last: Step| {
        Row::new(
            name,
            [text_and([wait(20), last])],
            [
                "200 cut bare n1 @20",
                "A@0",
                "network body answer_broken",
                "broken=1",
                "-",
                "+1",
            ],
        )
    };
    let early = |name, last: Step, cut: &'static str, counts: [&'static str; 2]| {
        Row::new(
            name,
            [stream([wait(3), last]), whole()],
            [
                "200 whole n2 ~3.5",
                "A@0 A~3.5",
                "- done ok",
                "broken=1 ok=1",
                "-",
                "works",
            ],
        )
        .own([cut, "A@0", counts[0], counts[1], "-", "+1"])
    };
    play(vec![
        Row::new(
            "15: an end that is none",
            [text_and([wait(20), Step::End])],
            [
                "200 cut overloaded_error n1 @20",
                "A@0",
                "network body incomplete_stream",
                "broken=1",
                "-",
                "+1",
            ],
        ),
        broken("16: closed", Step::Break),
        broken("16: reset", Step::Reset),
        early(
            "15: before the commit",
            Step::End,
            "200 cut overloaded_error n1 @3",
            ["network body incomplete_stream", "broken=1"],
        ),
        early(
            "16: before the commit",
            Step::Reset,
            "200 cut bare n1 @3",
            ["network body answer_broken", "broken=1"],
        ),
        Row::new(
            "15: twice before the commit",
            [stream([Step::End]), stream([Step::End]), whole()],
            [
                "502 api_error ours:network/body n2 ~0.5",
                "A@0 A~0.5",
                "network body incomplete_stream",
                "broken=2",
                "-",
                "+1",
            ],
        )
        .own([
            "200 cut overloaded_error n1 @0",
            "A@0",
            "network body incomplete_stream",
            "broken=1",
            "-",
            "+1",
        ]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_or_stops_reading_causes_no_cooldown() {
    let gone = |name, script, second, endpoint, code| {
        let answer = leaked(format!("left, cancelled @{second}"));
        let class = if code == "client_gone" {
            "client_gone=1"
        } else {
            "client_gave_up=1"
        };
        let log = leaked(format!("client body {code}"));
        Row::new(name, [script], [answer, "A@0", log, class, "-", endpoint]).client(Client::Leaves(second))
    };
    let flows = || text_and(every_ten(&text(0, "b"), 4000));
    let tool = || stream([vec![say(server_tool(0, "s"))], every_ten(&ping(), 4000)].concat());
    let compacting = || stream([vec![say(compaction_start(0))], every_ten(&ping(), 4000)].concat());
    let flood = (0..100).map(|_| say(text(0, &"a".repeat(1000))));
    let headers = |name, second, code, endpoint| {
        let [answer, log] = [format!("left, cancelled @{second}"), format!("client headers {code}")].map(leaked);
        let class = leaked(format!("{code}=1"));
        Row::new(name, [vec![Step::Hang]], [answer, "A@0", log, class, "-", endpoint]).client(Client::Leaves(second))
    };
    play(vec![
        gone("17: while words come", flows(), 1005, "+0", "client_gone"),
        gone("17: soon", text_and([Step::Hang]), 119, "+0", "client_gone"),
        gone(
            "18: after more than half of our patience",
            text_and([Step::Hang]),
            121,
            "+0.5",
            "client_gave_up",
        ),
        gone(
            "17: signs of life, soon",
            text_and(every_ten(&ping(), 4000)),
            119,
            "+0",
            "client_gone",
        ),
        gone(
            "18: signs of life, late",
            text_and(every_ten(&ping(), 4000)),
            125,
            "+0.5",
            "client_gave_up",
        ),
        headers("17: soon, without a head", 29, "client_gone", "+0"),
        headers("18: late, without a head", 31, "client_gave_up", "+0.5"),
        // The provider has already failed, so its failure counts although the client leaves.
        Row::new(
            "17: before the same key is tried again",
            [vec![Step::Wait(Duration::from_millis(39_800)), Step::Reset]],
            ["left", "A@0", "client queue client_gone", "interrupted=1", "-", "+1"],
        )
        .client(Client::Leaves(40))
        .own(["left", "A@0", "network headers headers", "interrupted=1", "-", "+1"]),
        gone("19: with a tool in flight", tool(), 805, "+0", "client_gone"),
        gone("19: while compacting", compacting(), 805, "+0", "client_gone"),
        Row::new(
            "20: the client stops reading",
            [text_and([wait(50)].into_iter().chain(flood).chain([Step::Hang]))],
            [
                "left, cancelled @170",
                "A@0",
                "client body client_stalled",
                "client_stalled=1 stall:client=1",
                "-",
                "+0",
            ],
        )
        .client(Client::StopsReading),
    ])
    .await;
}

fn leaked(text: String) -> &'static str {
    text.leak()
}

#[tokio::test(start_paused = true)]
async fn an_exchange_ends_after_an_hour_without_blame() {
    play(vec![Row::new(
        "25: words without end",
        [text_and((0..100).flat_map(|_| [wait(200), say(text(0, "b"))]))],
        [
            "200 cut overloaded_error n1 @3600",
            "A@0",
            "proxy body deadline",
            "deadline=1",
            "-",
            "+0",
        ],
    )])
    .await;
}
