//! Timeouts of an answer: the timeout of each state, the events that reset it, and the shorter ones of clients (R21 to
//! R24).

use crate::support::{
    still::{
        Answer, Step, World,
        events::{anthropic::*, chat, comment, gemini, responses},
        json, say, secs, sse, wait,
    },
    table::{Ask, Footing, Row, Seen, got, play, profiled, with_profiles},
};

/// Returns `event` every ten seconds, for more than an hour.
fn alive(event: &str) -> Vec<Step> {
    alive_for(event, 4000)
}

fn alive_for(event: &str, seconds: u64) -> Vec<Step> {
    (0..seconds / 10).flat_map(|_| [wait(10), say(event)]).collect()
}

fn script(parts: &[Vec<Step>]) -> Vec<Step> {
    [vec![sse()], parts.concat()].concat()
}

/// Returns a row that ends with a stall of this kind, cut in the shape of Messages.
fn silent(name: &'static str, parts: &[Vec<Step>], kind: Kind, second: u64) -> Row {
    let (log, counts, endpoint) = kind.words();
    let answer = format!("200 cut overloaded_error n1 @{second}").leak();
    let want: Seen = [answer, "A@0", log, counts, "-", endpoint];
    Row::new(name, [script(parts)], want)
}

#[derive(Clone, Copy)]
enum Kind {
    Parked,
    /// Parked, as far as a client with little patience can tell.
    Hurried,
    Stalled,
    Tool,
    Compaction,
}

impl Kind {
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Parked => ("provider body parked", "parked=1 stall:provider=1", "+1"),
            Self::Hurried => ("provider body parked", "parked=1 stall:provider=1", "+0"),
            Self::Stalled => ("provider body answer_stalled", "stall:provider=1 stalled=1", "+1"),
            Self::Tool => (
                "provider_tool body server_tool",
                "server_tool=1 stall:provider_tool=1",
                "+0",
            ),
            Self::Compaction => (
                "provider_compaction body compaction",
                "compaction=1 stall:provider_compaction=1",
                "+0",
            ),
        }
    }
}

use Kind::{Compaction, Hurried, Parked, Stalled, Tool};

#[tokio::test(start_paused = true)]
async fn heartbeats_reset_the_socket_timeout_but_not_the_answer_timeout() {
    let begun = || vec![say(start()), say(text_start(0)), say(text(0, "a"))];
    play(vec![
        silent("R21: pings, and no content", &[begun(), alive(&ping())], Stalled, 240),
        silent(
            "R21: comments, and no content",
            &[begun(), alive(&comment())],
            Stalled,
            240,
        ),
        silent(
            "R21: pings before any content",
            &[vec![say(start())], alive(&ping())],
            Parked,
            120,
        ),
        silent("R21: comments before any content", &[alive(&comment())], Parked, 120),
        silent(
            "the last word counts",
            &[
                begun(),
                alive_for(&ping(), 200),
                vec![say(text(0, "b"))],
                alive(&ping()),
            ],
            Stalled,
            440,
        ),
        silent(
            "the last ping counts",
            &[begun(), alive_for(&ping(), 100), vec![Step::Hang]],
            Stalled,
            190,
        ),
        silent("no ping ever", &[begun(), vec![Step::Hang]], Stalled, 240),
        silent(
            "a first sign of life that comes late is not what ends it",
            &[vec![say(start()), wait(150)], alive(&ping())],
            Parked,
            // After the second at 170 s, the socket may be silent for another 90 s.
            260,
        ),
        silent(
            "a first sign of life that comes soon changes nothing",
            &[vec![wait(90)], alive(&comment())],
            Parked,
            120,
        ),
        silent("nothing ever", &[vec![Step::Hang]], Parked, 600),
        silent("a greeting alone", &[vec![say(start()), Step::Hang]], Parked, 600),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn each_state_has_its_own_timeout() {
    let thought = || vec![say(reasoning_start(0)), say(reasoning(0, "hm"))];
    let search = || vec![say(server_tool(0, "s"))];
    let summary = || vec![say(compaction_start(0))];
    play(vec![
        silent("R22: reasoning", &[thought(), alive(&ping())], Stalled, 600),
        silent("R22: reasoning, silent", &[thought(), vec![Step::Hang]], Stalled, 600),
        silent(
            "R22: reasoning is over",
            &[thought(), alive_for(&ping(), 500), vec![say(stop(0))], alive(&ping())],
            Stalled,
            740,
        ),
        silent("R22: a tool", &[search(), alive(&ping())], Tool, 900),
        silent("R22: a tool, silent", &[search(), vec![Step::Hang]], Tool, 900),
        silent(
            "R22: the tool is over",
            &[
                search(),
                alive_for(&ping(), 800),
                vec![say(server_result(1, "s"))],
                alive(&ping()),
            ],
            Stalled,
            1040,
        ),
        silent(
            "R22: the tool is over, silent, no ping",
            &[search(), vec![wait(800), say(server_result(1, "s")), Step::Hang]],
            Stalled,
            1040,
        ),
        silent("R22: compaction", &[summary(), alive(&ping())], Compaction, 900),
        silent(
            "R22: compaction, silent",
            &[summary(), vec![Step::Hang]],
            Compaction,
            900,
        ),
        silent(
            "R22: compaction is over",
            &[summary(), alive_for(&ping(), 800), vec![say(stop(0))], alive(&ping())],
            Stalled,
            1040,
        ),
        silent(
            "R22: a word restarts the state's own clock",
            &[
                thought(),
                alive_for(&ping(), 500),
                vec![say(reasoning(0, "hm"))],
                alive(&ping()),
            ],
            Stalled,
            1100,
        ),
        silent(
            "10: a tool, signs of life, then a dead socket",
            &[search(), alive_for(&ping(), 300), vec![Step::Hang]],
            Stalled,
            390,
        ),
        silent(
            "10: reasoning, signs of life, then a dead socket",
            &[thought(), alive_for(&ping(), 300), vec![Step::Hang]],
            Stalled,
            390,
        ),
        silent(
            "10: compaction, signs of life, then a dead socket",
            &[summary(), alive_for(&ping(), 300), vec![Step::Hang]],
            Stalled,
            390,
        ),
        silent(
            "the longest of them",
            &[thought(), vec![say(server_tool(1, "s"))], alive(&ping())],
            Tool,
            900,
        ),
    ])
    .await;
}

/// One sign of life is no rhythm: two in a row tell how long the next may take.
#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn the_timeout_between_heartbeats_needs_two_and_follows_their_gap() {
    let search = || vec![say(start()), say(server_tool(0, "s"))];
    let pings = |gaps: &[u64]| -> Vec<Step> { gaps.iter().flat_map(|gap| [wait(*gap), say(ping())]).collect() };
    let dead = || vec![Step::Hang];
    let of_responses = |name, parts: &[Vec<Step>], kind: Kind, second: u64| {
        let code = match kind {
            Parked | Hurried => "parked",
            Stalled => "answer_stalled",
            Tool => "server_tool",
            Compaction => "compaction",
        };
        let mut row = silent(name, parts, kind, second).ask(Ask::of("/openai/v1/responses"));
        let answer: &str = format!("200 cut {code} n1 @{second}").leak();
        row.want.iter_mut().for_each(|want| want[0] = answer);
        row
    };
    let opened = || vec![say(responses::start()), say(responses::in_progress())];
    let code = "\"id\":\"ci_1\",\"type\":\"code_interpreter_call\",\"status\":\"in_progress\"";
    let code = format!(
        "event: response.output_item.added\ndata: {{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{{{code}}}}}\n\n"
    );
    play(vec![
        silent(
            "one early ping, then a tool",
            &[vec![say(ping())], search(), dead()],
            Tool,
            900,
        ),
        silent(
            "one ping after the tool",
            &[search(), vec![say(ping())], dead()],
            Tool,
            900,
        ),
        silent(
            "one early ping, then reasoning",
            &[vec![say(start()), say(ping()), say(reasoning_start(0))], dead()],
            Stalled,
            600,
        ),
        silent(
            "one early ping, and a long prompt",
            &[vec![say(start()), say(ping())], dead()],
            Parked,
            600,
        ),
        silent(
            "two pings at one time are one",
            &[search(), pings(&[0, 0]), dead()],
            Tool,
            900,
        ),
        silent(
            "two pings with a word between them",
            &[search(), pings(&[10]), vec![say(text_start(1))], pings(&[10]), dead()],
            Tool,
            910,
        ),
        silent("two pings soon", &[search(), pings(&[10, 10]), dead()], Stalled, 110),
        silent(
            "two pings a minute apart",
            &[search(), pings(&[60, 60]), dead()],
            Stalled,
            360,
        ),
        silent(
            "the largest gap counts",
            &[search(), pings(&[10, 10, 50, 10]), dead()],
            Stalled,
            280,
        ),
        silent(
            "a gap that grows",
            &[search(), pings(&[30, 30, 100, 300]), dead()],
            Tool,
            900,
        ),
        silent(
            "no longer than the state itself",
            &[vec![say(start()), say(text_start(0))], pings(&[0, 70]), dead()],
            Stalled,
            240,
        ),
        of_responses("Responses: a prompt", &[opened(), dead()], Parked, 600),
        of_responses(
            "Responses: queued",
            &[vec![say(responses::queued())], dead()],
            Parked,
            600,
        ),
        of_responses(
            "Responses: states are no signs of life, however often",
            &[
                opened(),
                vec![
                    wait(10),
                    say(responses::in_progress()),
                    wait(10),
                    say(responses::queued()),
                ],
                dead(),
            ],
            Parked,
            600,
        ),
        of_responses(
            "Responses: reasoning",
            &[opened(), vec![say(responses::reasoning_start(0))], dead()],
            Stalled,
            600,
        ),
        of_responses(
            "Responses: a search",
            &[opened(), vec![say(responses::server_tool(0, "ws_1"))], dead()],
            Tool,
            900,
        ),
        of_responses("Responses: code", &[opened(), vec![say(code)], dead()], Tool, 900),
        of_responses(
            "Responses: signs of life, then a dead socket",
            &[
                opened(),
                vec![say(responses::server_tool(0, "ws_1"))],
                vec![wait(30), say(responses::ping()), wait(30), say(responses::ping())],
                dead(),
            ],
            Stalled,
            180,
        ),
    ])
    .await;
}

/// A block of Messages from its beginning to its end.
fn block(index: u64, fields: &str) -> String {
    let begin = format!(
        "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{{fields}}}}}\n\n"
    );
    begin + &stop(index)
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn server_tools_are_counted_by_id() {
    let result = |index, kind: &str, id: &str| {
        block(
            index,
            &format!("\"type\":\"{kind}\",\"tool_use_id\":\"{id}\",\"content\":[]"),
        )
    };
    let tool = |index, kind: &str, id: &str| {
        block(
            index,
            &format!("\"type\":\"{kind}\",\"id\":\"{id}\",\"name\":\"x\",\"input\":{{}}"),
        )
    };
    let row = |name, events: Vec<String>, kind, second| {
        silent(
            name,
            &[events.into_iter().map(say).collect(), alive(&ping())],
            kind,
            second,
        )
    };
    play(vec![
        row(
            "R23: two, one is over",
            vec![server_tool(0, "s"), server_tool(1, "t"), server_result(2, "s")],
            Tool,
            900,
        ),
        row(
            "R23: two, both are over",
            vec![
                server_tool(0, "s"),
                server_tool(1, "t"),
                server_result(2, "t"),
                server_result(3, "s"),
            ],
            Stalled,
            240,
        ),
        row(
            "R23: a result of another",
            vec![server_tool(0, "s"), server_result(1, "t")],
            Tool,
            900,
        ),
        row(
            "R23: a kind of tool that nobody knows",
            vec![tool(0, "teleport_tool_use", "s")],
            Tool,
            900,
        ),
        row(
            "R23: and its result",
            vec![
                tool(0, "teleport_tool_use", "s"),
                result(1, "teleport_tool_result", "s"),
            ],
            Stalled,
            240,
        ),
        row(
            "R23: the result of another kind",
            vec![tool(0, "mcp_tool_use", "s"), result(1, "unheard_of_tool_result", "s")],
            Stalled,
            240,
        ),
        row(
            "R23: an index that is used again",
            vec![server_tool(0, "s"), server_result(0, "s"), server_tool(0, "t")],
            Tool,
            900,
        ),
        row(
            "R23: an index that is used again, and over",
            vec![
                server_tool(0, "s"),
                server_tool(0, "t"),
                server_result(0, "s"),
                server_result(0, "t"),
            ],
            Stalled,
            240,
        ),
        row(
            "R23: the same id twice, one is over",
            vec![server_tool(0, "s"), server_tool(1, "s"), server_result(2, "s")],
            Tool,
            900,
        ),
        row(
            "R23: a second result is not below zero",
            vec![
                server_tool(0, "s"),
                server_result(1, "s"),
                server_result(2, "s"),
                server_tool(3, "t"),
            ],
            Tool,
            900,
        ),
        row("a tool of the client's own", vec![call(0, "toolu_1")], Stalled, 240),
    ])
    .await;
}

/// R24: two lanes of one session at once, one of them with a server tool in flight.
#[tokio::test(start_paused = true)]
async fn a_server_tool_in_one_lane_does_not_affect_another() {
    for (other, wanted) in [
        (
            script(&[vec![say(start()), say(text_start(0))], alive(&ping())]),
            "200 cut overloaded_error n1 @241",
        ),
        (
            script(&[vec![say(start()), say(server_tool(0, "t"))], alive(&ping())]),
            "200 cut overloaded_error n1 @901",
        ),
    ] {
        let world = profiled(|_| ());
        let lane = || Ask::messages().field("x-claude-code-session-id", "d2e70091-3007-41a3-a916-cb8b0d3098de");
        world.script(script(&[vec![say(start()), say(server_tool(0, "s"))], alive(&ping())]));
        world.script(other);
        let (mut first, mut second) = (world.client(), world.client());
        first.send(lane().bytes()).await;
        world.until(secs(1)).await;
        second
            .send(lane().field("x-claude-code-agent-id", "agent-1").bytes())
            .await;
        let (first, second): (Answer, Answer) = tokio::join!(first.answer(), second.answer());
        assert_eq!(
            (got(&first).as_str(), got(&second).as_str()),
            ("200 cut overloaded_error n1 @900", wanted)
        );
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn without_heartbeats_the_state_timeout_replaces_the_socket_timeout() {
    const GEMINI: &str = "/gemini/v1beta/models/m:streamGenerateContent?alt=sse";
    const CHAT: &str = "/openai/v1/chat/completions";
    const RESPONSES: &str = "/openai/v1/responses";
    let row = |name, path, events: Vec<String>, [answer, kind]: [&'static str; 2]| {
        let (log, counts, endpoint) = match kind {
            "tool" => Tool.words(),
            "compaction" => Compaction.words(),
            "parked" => Parked.words(),
            _ => Stalled.words(),
        };
        let steps = events.into_iter().map(say).chain([Step::Hang]).collect();
        Row::new(name, [script(&[steps])], [answer, "A@0", log, counts, "-", endpoint]).ask(Ask::of(path))
    };
    play(vec![
        row(
            "Gemini: words",
            GEMINI,
            vec![gemini::text("a")],
            ["200 cut UNAVAILABLE n1 @240", ""],
        ),
        row(
            "Gemini: code runs",
            GEMINI,
            vec![gemini::server_tool()],
            ["200 cut UNAVAILABLE n1 @900", "tool"],
        ),
        row(
            "Gemini: code has run",
            GEMINI,
            vec![gemini::server_tool(), gemini::server_result()],
            ["200 cut UNAVAILABLE n1 @240", ""],
        ),
        row(
            "Gemini: reasoning",
            GEMINI,
            vec![gemini::reasoning("hm")],
            ["200 cut UNAVAILABLE n1 @600", ""],
        ),
        row(
            "Gemini: nothing",
            GEMINI,
            vec![],
            ["200 cut UNAVAILABLE n1 @600", "parked"],
        ),
        row(
            "Chat: words",
            CHAT,
            vec![chat::text("a")],
            ["200 cut answer_stalled n1 @240", ""],
        ),
        row(
            "Chat: reasoning",
            CHAT,
            vec![chat::reasoning("hm")],
            ["200 cut answer_stalled n1 @600", ""],
        ),
        row(
            "Chat: reasoning is over",
            CHAT,
            vec![chat::reasoning("hm"), chat::text("a")],
            ["200 cut answer_stalled n1 @240", ""],
        ),
        row(
            "Responses: reasoning",
            RESPONSES,
            vec![responses::reasoning_start(0)],
            ["200 cut answer_stalled n1 @600", ""],
        ),
        row(
            "Responses: a tool",
            RESPONSES,
            vec![responses::server_tool(0, "ws_1")],
            ["200 cut server_tool n1 @900", "tool"],
        ),
        row(
            "Responses: a tool and one sign of life",
            RESPONSES,
            vec![responses::server_tool(0, "ws_1"), responses::ping()],
            ["200 cut server_tool n1 @900", "tool"],
        ),
        row(
            "Responses: compaction",
            RESPONSES,
            vec![responses::compaction_start(0)],
            ["200 cut compaction n1 @900", "compaction"],
        ),
        row(
            "Responses: compaction is over",
            RESPONSES,
            vec![responses::compaction_start(0), responses::compaction_stop(0)],
            ["200 cut answer_stalled n1 @240", ""],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_compaction_request_gets_the_compaction_timeout() {
    let summary = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Your task is to create a detailed summary: \
        an <analysis> block followed by a <summary> block.";
    let of = |words: &str| {
        Ask::messages().body(&format!(
            "{{\"model\":\"m\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{words}\"}}]}}"
        ))
    };
    let trigger = "{\"model\":\"m\",\"stream\":true,\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":\"go\"},{\"type\":\"compaction_trigger\"}]}";
    let marked = |name, value| Ask::messages().field(name, value);
    let responses = || Ask::of("/openai/v1/responses");
    let mut rows = Vec::new();
    for (name, ask, compacts) in [
        ("a header", marked("x-claude-code-compaction", "auto"), true),
        (
            "another header",
            marked("x-claude-code-request-class", "compaction"),
            true,
        ),
        (
            "a header of another class",
            marked("x-claude-code-request-class", "main"),
            false,
        ),
        ("Claude Code's words", of(summary), true),
        ("some of the words", of(&summary[..70]), false),
        ("Codex' header", responses().field("x-openai-subagent", "compact"), true),
        (
            "Codex' header of another kind",
            responses().field("x-openai-subagent", "review"),
            false,
        ),
        ("Codex' trigger", responses().body(trigger), true),
    ] {
        let is_messages = ask.path.contains("messages");
        let (begun, sign) = if is_messages {
            (vec![say(start()), say(text_start(0))], ping())
        } else {
            (vec![say(responses::text_start(0))], responses::ping())
        };
        let (kind, second, code) = if compacts {
            (Compaction, 900, "compaction")
        } else {
            (Stalled, 240, "answer_stalled")
        };
        let code = if is_messages { "overloaded_error" } else { code };
        let mut row = silent(name, &[begun, alive(&sign)], kind, second).ask(ask.clone());
        let answer: &str = format!("200 cut {code} n1 @{second}").leak();
        row.want.iter_mut().for_each(|want| want[0] = answer);
        rows.push(row);
        // The head may take as long as the compaction.
        let second = if compacts { 900 } else { 60 };
        let code = if is_messages {
            "timeout_error"
        } else {
            "headers_timeout"
        };
        let answer = format!("504 {code} ours:provider/headers n1 @{second}").leak();
        let want = [
            answer,
            "A@0",
            "provider headers headers_timeout",
            "headless=1",
            "-",
            "+1",
        ];
        rows.push(Row::new(name, [vec![Step::Hang]], want).ask(ask));
    }
    let compact = Ask::of("/openai/v1/responses/compact").body("{\"model\":\"m\",\"input\":\"go\"}");
    let answer = "{\"id\":\"r\",\"object\":\"response.compaction\",\"output\":[]}";
    rows.push(
        Row::new(
            "a path",
            [[vec![wait(850)], json(200, answer)].concat()],
            ["200 n1 @850", "A@0", "- done ok", "ok=1", "-", "works"],
        )
        .ask(compact),
    );
    play(rows).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_shorter_timeout_is_answered_before_it() {
    let headless = |name, budget: [&'static str; 2], second: u64, credit: &'static str| {
        let answer = format!("504 timeout_error ours:provider/headers n1 @{second}").leak();
        let want = [
            answer,
            "A@0",
            "provider headers headers_timeout",
            "headless=1",
            "-",
            credit,
        ];
        let ask = Ask::messages()
            .field(budget[0], budget[1])
            .body("{\"model\":\"m\",\"messages\":[]}");
        Row::new(name, [vec![Step::Hang]], want).ask(ask)
    };
    let stream = |name, value: &'static str, parts: &[Vec<Step>], kind, second| {
        silent(name, parts, kind, second).ask(Ask::messages().field("x-stainless-timeout", value))
    };
    let begun = || vec![say(text_start(0))];
    play(vec![
        headless("600 s", ["x-stainless-timeout", "600"], 595, "+1"),
        headless("60 s", ["x-stainless-timeout", "60"], 55, "+0"),
        headless("of reading", ["x-stainless-read-timeout", "60"], 55, "+0"),
        headless("6 s", ["x-stainless-timeout", "6"], 3, "+0"),
        headless("more than ours", ["x-stainless-timeout", "3000"], 600, "+1"),
        headless("not given", ["x-stainless-timeout", "NOT_GIVEN"], 600, "+1"),
        headless("nonsense", ["x-stainless-read-timeout", "-3"], 600, "+1"),
        headless("none at all", ["x-stainless-timeout", "0"], 600, "+1"),
        stream("the first event", "305", &[vec![Step::Hang]], Hurried, 300),
        stream("more than half of it", "306", &[vec![Step::Hang]], Parked, 301),
        stream(
            "the first event, not given",
            "NOT_GIVEN",
            &[vec![Step::Hang]],
            Parked,
            600,
        ),
        stream(
            "a stream with signs of life feeds the client too",
            "305",
            &[alive(&ping())],
            Parked,
            120,
        ),
        stream("what has begun", "100", &[begun(), vec![Step::Hang]], Stalled, 240),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_ends_after_an_hour_in_any_state() {
    let deadline = |name, parts: &[Vec<Step>]| {
        let want = [
            "200 cut overloaded_error n1 @3600",
            "A@0",
            "proxy body deadline",
            "deadline=1",
            "-",
            "+0",
        ];
        Row::new(name, [script(parts)], want)
    };
    let often = |events: fn(u64) -> String| {
        (0..40)
            .flat_map(|number| [wait(100), say(events(number))])
            .collect::<Vec<_>>()
    };
    let short = |builder: &mut crate::support::app::Builder| builder.proxy.timeouts.total = secs(100);
    play(vec![
        deadline("words", &[vec![say(text_start(0))], often(|_| text(0, "a"))]),
        deadline("one tool after the other", &[often(|number| server_tool(number, "s"))]),
        deadline(
            "compaction",
            &[vec![say(compaction_start(0))], often(|_| compaction(0, "a"))],
        ),
        Row::new(
            "another limit",
            [script(&[vec![say(text_start(0)), Step::Hang]])],
            [
                "200 cut overloaded_error n1 @100",
                "A@0",
                "proxy body deadline",
                "deadline=1",
                "-",
                "+0",
            ],
        )
        .settings(short),
        Row::new(
            "before the head",
            [vec![Step::Hang]],
            [
                "504 timeout_error ours:proxy/headers n1 @40",
                "A@0",
                "proxy headers deadline",
                "deadline=1",
                "-",
                "+0",
            ],
        )
        .settings(|builder| builder.proxy.timeouts.total = secs(40)),
    ])
    .await;
}

/// R15: the gate holds every stream with a profile, for ten seconds at most.
#[tokio::test(start_paused = true)]
async fn the_gate_opens_with_the_first_event_or_after_ten_seconds() {
    let late = |seconds| {
        script(&[vec![
            say(start()),
            wait(seconds),
            say(text_start(0)),
            say(end("end_turn")),
            Step::End,
        ]])
    };
    for (footing, seconds, head) in [
        (Footing::Profiles, 4, 4),
        (Footing::Profiles, 30, 10),
        (Footing::Passthrough, 4, 0),
    ] {
        let world = World::with(|builder| {
            if footing == Footing::Profiles {
                with_profiles(builder);
            }
        });
        world.script(late(seconds));
        let answer = world.ask(Ask::messages().bytes()).await;
        assert_eq!(got(&answer), format!("200 whole n1 @{seconds}"));
        crate::support::still::assert_at(answer.head_at, secs(head));
        assert_eq!(
            answer.text(),
            start() + &text_start(0) + &end("end_turn"),
            "what was held is whole"
        );
    }
    // A body that names provider-side state is never resent, and its answer is held for the status of an early error.
    let world = profiled(|_| ());
    world.script(vec![
        sse(),
        say(responses::start()),
        wait(4),
        say(responses::text_start(0)),
        say(responses::end()),
        Step::End,
    ]);
    let held = "{\"model\":\"m\",\"stream\":true,\"input\":\"go\",\"previous_response_id\":\"resp_0\"}";
    let answer = world.ask(Ask::of("/openai/v1/responses").body(held).bytes()).await;
    crate::support::still::assert_at(answer.head_at, secs(4));
}
