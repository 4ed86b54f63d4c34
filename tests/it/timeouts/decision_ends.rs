//! Events after an end, repeated events, and events of other exchanges change nothing.

use crate::support::{
    still::{
        Step, World,
        events::{anthropic::*, chat, gemini, responses},
        say, secs, sse, wait,
    },
    table::{Ask, Client, Row, cooldowns, failures, got, play, pool_state, profiled},
};

const SUCCESS: [&str; 4] = ["- done ok", "ok=1", "-", "works"];

fn alive(seconds: u64) -> Vec<Step> {
    (0..seconds / 10).flat_map(|_| [wait(10), say(ping())]).collect()
}

/// Returns rows with a whole answer and further events after its end, in one write and with pauses.
fn rows_after_end(name: &'static str, ask: &Ask, words: &[String], late: &[String], answer: &'static str) -> [Row; 2] {
    let [log, counts, profiles, endpoint] = SUCCESS;
    let row = |script: Vec<Step>, answer| {
        Row::new(name, [script], [answer, "A@0", log, counts, profiles, endpoint]).ask(ask.clone())
    };
    let at_once = [words.concat(), late.concat()].concat();
    let later = words.iter().chain(late).flat_map(|event| [say(event), wait(1)]);
    let seconds = words.len() + late.len();
    let answer_later = answer.replace("@0", &format!("@{seconds}")).leak();
    [
        row(vec![sse(), say(at_once), Step::End], answer),
        row(
            [sse()].into_iter().chain(later).chain([Step::End]).collect(),
            answer_later,
        ),
    ]
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn an_event_after_the_end_changes_nothing() {
    let messages = Ask::messages();
    let of_chat = Ask::of("/openai/v1/chat/completions");
    let of_responses = Ask::of("/openai/v1/responses");
    let of_gemini = Ask::of("/gemini/v1beta/models/m:streamGenerateContent?alt=sse");
    let whole = [start(), text_start(0), stop(0), end("end_turn")];
    let mut rows = Vec::new();
    for (name, late, answer) in [
        (
            "a limit",
            error("rate_limit_error"),
            "200 passed rate_limit_error n1 @0",
        ),
        (
            "the key",
            error("authentication_error"),
            "200 passed authentication_error n1 @0",
        ),
        (
            "overloaded",
            error("overloaded_error"),
            "200 passed overloaded_error n1 @0",
        ),
        ("a tool", server_tool(1, "s"), "200 whole n1 @0"),
        ("a call", call(1, "toolu_1"), "200 whole n1 @0"),
        ("compaction", compaction_start(1), "200 whole n1 @0"),
        ("another end", end("tool_use"), "200 whole n1 @0"),
    ] {
        rows.extend(rows_after_end(name, &messages, &whole, &[late], answer));
    }
    rows.extend(rows_after_end(
        "Responses",
        &of_responses,
        &[responses::start(), responses::text_start(0), responses::end()],
        &[responses::failed("rate_limit_exceeded")],
        "200 passed rate_limit_exceeded n1 @0",
    ));
    rows.extend(rows_after_end(
        "Chat",
        &of_chat,
        &[chat::text("a"), chat::end("stop")],
        &[chat::error("insufficient_quota")],
        "200 passed insufficient_quota n1 @0",
    ));
    rows.extend(rows_after_end(
        "Gemini",
        &of_gemini,
        &[gemini::text("a"), gemini::end("STOP")],
        &[gemini::error(429, "RESOURCE_EXHAUSTED")],
        "200 passed RESOURCE_EXHAUSTED n1 @0",
    ));
    // Before the end, each of these errors counts.
    rows.push(
        Row::new(
            "a limit in front of the end",
            [vec![
                sse(),
                say(text_start(0)),
                say(error("rate_limit_error")),
                say(end("end_turn")),
                Step::End,
            ]],
            [
                "200 whole n1 @0",
                "A@0",
                "provider body rate_limit",
                "rate_limit=1",
                "A:rate_limit 30",
                "works",
            ],
        )
        .own([
            "200 whole n1 @0",
            "A@0",
            "provider body rate_limit",
            "rate_limit=1",
            "-",
            "works",
        ]),
    );
    play(rows).await;
}

#[tokio::test(start_paused = true)]
async fn failures_after_the_end_change_nothing() {
    let [log, counts, profiles, endpoint] = SUCCESS;
    let over = |last: Vec<Step>| {
        let words = [start(), text_start(0), stop(0), end("end_turn")].map(say);
        [vec![sse()], words.to_vec(), last].concat()
    };
    let row = |name, last, answer| Row::new(name, [over(last)], [answer, "A@0", log, counts, profiles, endpoint]);
    play(vec![
        row("the provider forgets to hang up", vec![Step::Hang], "200 whole n1 @240"),
        row("the provider goes on pinging", alive(4000), "200 whole n1 @240"),
        row("the connection breaks", vec![wait(5), Step::Reset], "200 whole n1 @5"),
        row("the client leaves", vec![Step::Hang], "left, cancelled @200").client(Client::Leaves(200)),
        row(
            "a tool was in flight",
            vec![say(server_tool(1, "s")), Step::Hang],
            "200 whole n1 @240",
        ),
        // Before the end, each of these failures counts.
        Row::new(
            "without the end",
            [vec![sse(), say(text_start(0)), wait(5), Step::Reset]],
            [
                "200 cut bare n1 @5",
                "A@0",
                "network body answer_broken",
                "broken=1",
                "-",
                "+1",
            ],
        ),
    ])
    .await;
}

/// Surplus results: the count of tools in flight stops at zero, and a later tool gets its timeout.
#[tokio::test(start_paused = true)]
async fn repeated_tool_results_never_count_below_zero() {
    let tool = [
        "A@0",
        "provider_tool body server_tool",
        "server_tool=1 stall:provider_tool=1",
        "-",
        "+0",
    ];
    let stalled = [
        "A@0",
        "provider body answer_stalled",
        "stall:provider=1 stalled=1",
        "-",
        "+1",
    ];
    let mut rows = Vec::new();
    for ends in [1, 2, 9] {
        let results: Vec<String> = (0..ends).map(|index| server_result(index + 1, "s")).collect();
        let events = |last: Vec<String>| {
            let events = [vec![start(), server_tool(0, "s")], results.clone(), last].concat();
            [vec![sse()], events.into_iter().map(say).collect(), alive(4000)].concat()
        };
        for (last, second, [sends, log, counts, profiles, endpoint]) in [
            (vec![server_tool(20, "t")], 900, tool),
            (vec![server_tool(20, "s")], 900, tool),
            (vec![], 240, stalled),
        ] {
            let answer: &str = format!("200 cut overloaded_error n1 @{second}").leak();
            rows.push(Row::new(
                "results",
                [events(last)],
                [answer, sends, log, counts, profiles, endpoint],
            ));
        }
        // Blocks that stop more often than they start.
        let stops = (0..ends).map(|_| stop(0)).collect::<String>();
        let again = [
            vec![sse(), say(reasoning_start(0)), say(stops), say(reasoning_start(1))],
            alive(4000),
        ]
        .concat();
        let [sends, log, counts, profiles, endpoint] = stalled;
        rows.push(Row::new(
            "stops",
            [again],
            [
                "200 cut overloaded_error n1 @600",
                sends,
                log,
                counts,
                profiles,
                endpoint,
            ],
        ));
    }
    play(rows).await;
}

/// Consecutive exchanges on one connection: tools, compaction and heartbeats of the first do not affect the second.
#[tokio::test(start_paused = true)]
async fn state_never_crosses_exchanges() {
    let lane = || Ask::messages().field("x-claude-code-session-id", "d2e70091-3007-41a3-a916-cb8b0d3098de");
    let silent = || vec![sse(), say(start()), say(text_start(0)), Step::Hang];
    for (name, first, ask) in [
        ("a tool", vec![say(server_tool(0, "s"))], lane()),
        ("compaction", vec![say(compaction_start(0))], lane()),
        (
            "a compaction that was asked for",
            vec![say(text_start(0))],
            lane().field("x-claude-code-compaction", "auto"),
        ),
        ("reasoning", vec![say(reasoning_start(0))], lane()),
        ("signs of life", vec![say(text_start(0)), say(ping())], lane()),
    ] {
        let world = profiled(|_| ());
        let whole = [vec![sse(), say(start())], first, vec![say(end("end_turn")), Step::Keep]].concat();
        world.script(whole);
        world.script(silent());
        let mut client = world.client();
        client.send(ask.bytes()).await;
        assert_eq!(got(&client.answer().await), "200 whole n1 @0", "{name}");
        client.send(lane().bytes()).await;
        // The default timeout, not 900, 600 or 90 s.
        assert_eq!(
            got(&client.answer().await),
            "200 cut overloaded_error n1 @240",
            "{name}"
        );
        assert_eq!(world.connections().len(), 1, "{name}: the same connection");
        assert_eq!((cooldowns(&world).as_str(), failures(&world)), ("-", 1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn consecutive_stalls_are_judged_separately() {
    let world = profiled(|_| ());
    let lane = || Ask::messages().field("x-claude-code-session-id", "d2e70091-3007-41a3-a916-cb8b0d3098de");
    world.script([vec![sse(), say(server_tool(0, "s"))], alive(4000)].concat());
    assert_eq!(
        got(&world.ask(lane().bytes()).await),
        "200 cut overloaded_error n1 @900"
    );
    assert_eq!(
        (cooldowns(&world).as_str(), failures(&world)),
        ("-", 0),
        "a tool is nobody's fault"
    );
    world.until(secs(1000)).await;
    world.script([vec![sse(), say(text_start(0))], alive(4000)].concat());
    assert_eq!(
        got(&world.ask(lane().bytes()).await),
        "200 cut overloaded_error n1 @1240"
    );
    assert_eq!((cooldowns(&world).as_str(), failures(&world)), ("-", 1));
    // The reverse order.
    world.until(secs(2000)).await;
    let before = pool_state(&world);
    world.script([vec![sse(), say(server_tool(0, "s"))], alive(4000)].concat());
    assert_eq!(
        got(&world.ask(lane().bytes()).await),
        "200 cut overloaded_error n1 @2900"
    );
    assert_eq!(pool_state(&world), before);
}

/// R30: the same session id under another credential is another session.
#[tokio::test(start_paused = true)]
async fn sessions_of_the_same_name_are_separate_per_caller() {
    let ask = |own: &'static str| {
        let body = Ask::messages().body;
        let session = ("x-claude-code-session-id", "d2e70091-3007-41a3-a916-cb8b0d3098de");
        crate::support::app::post_with(
            "/anthropic/v1/messages",
            &[session, ("x-api-key", own)],
            body.as_bytes(),
        )
    };
    let key = |world: &World| {
        world
            .requests()
            .last()
            .unwrap()
            .message
            .header("x-api-key")
            .unwrap()
            .to_owned()
    };
    let limited = || {
        let body = "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"words\"}}";
        crate::support::still::error(429, &[("retry-after", "45")], body)
    };
    let mut moved = 0;
    for stranger in ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"] {
        let world = profiled(|_| ());
        world.otherwise(|_| vec![sse(), say(text_start(0)), say(end("end_turn")), Step::End]);
        world.ask(ask(stranger)).await;
        let natural = key(&world);
        // A limit moves the first caller's lane, which then stays on its new profile.
        world.script(limited());
        world.ask(ask("first")).await;
        let pinned = key(&world);
        world.until(secs(100)).await;
        world.ask(ask("first")).await;
        assert_eq!(key(&world), pinned);
        world.ask(ask(stranger)).await;
        assert_eq!(key(&world), natural, "the stranger is where it was");
        moved += usize::from(natural != pinned);
    }
    assert!(moved > 0, "nobody could have told the two apart");
}
