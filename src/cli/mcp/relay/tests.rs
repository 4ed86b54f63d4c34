//! Tests of the relay: what passes, what is joined, held, answered and posted.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::cli::mcp::answer_after::AnswerAfter;

/// A relay, and what it wanted done so far.
pub(super) struct Bench {
    pub(super) relay: CallRelay,
    now: Duration,
}

/// The effects of an event, as a test reads them.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) to_server: Vec<String>,
    pub(super) to_client: Vec<String>,
    pub(super) others: Vec<RelayEffect>,
}

impl Bench {
    pub(super) fn new(settings: RelaySettings) -> Self {
        Self {
            relay: CallRelay::new(settings),
            now: Duration::ZERO,
        }
    }

    /// Handles an event. No other process has a run.
    pub(super) fn handle(&mut self, event: RelayEvent) -> Done {
        let mut done = Done::default();
        for effect in self.relay.handle_event(self.now, event) {
            let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            match effect {
                RelayEffect::ToServer(line) => done.to_server.push(text(line)),
                RelayEffect::ToClient(line) => done.to_client.push(text(line)),
                RelayEffect::Look(hash) => {
                    let found = self.handle(RelayEvent::Found(hash, FoundRun::Nothing));
                    done.to_server.extend(found.to_server);
                    done.to_client.extend(found.to_client);
                    done.others.extend(found.others);
                }
                other => done.others.push(other),
            }
        }
        done
    }

    pub(super) fn client(&mut self, line: &str) -> Done {
        self.handle(RelayEvent::ClientLine(Bytes::from(line.to_owned())))
    }

    pub(super) fn server(&mut self, line: &str) -> Done {
        self.handle(RelayEvent::ServerLine(Bytes::from(line.to_owned())))
    }

    pub(super) fn tick(&mut self, seconds: u64) -> Done {
        self.tick_at(Duration::from_secs(seconds))
    }

    pub(super) fn tick_at(&mut self, now: Duration) -> Done {
        self.now = now;
        self.handle(RelayEvent::Tick)
    }
}

impl Done {
    pub(super) fn names(&self) -> Vec<&'static str> {
        let name = |effect: &RelayEffect| match effect {
            RelayEffect::Say(_) | RelayEffect::Heartbeat(_) | RelayEffect::StopPost(_) => None,
            RelayEffect::Ask(..) => Some("ask"),
            RelayEffect::Post(..) => Some("post"),
            RelayEffect::PostIfMissing(..) => Some("post if missing"),
            RelayEffect::Withdraw(..) => Some("withdraw"),
            RelayEffect::Mark(..) => Some("mark"),
            RelayEffect::Unmark(_) => Some("unmark"),
            RelayEffect::Keep(..) => Some("keep"),
            RelayEffect::Forget(..) => Some("forget"),
            RelayEffect::Claim(..) => Some("claim"),
            RelayEffect::Order(_, ClaimOrder::Ended(outcome)) if outcome.has_failed() => Some("failed"),
            RelayEffect::Order(_, ClaimOrder::Ended(_)) => Some("ended"),
            RelayEffect::Order(_, ClaimOrder::NotRun) => Some("not run"),
            RelayEffect::Order(_, ClaimOrder::Leave) => Some("leave"),
            RelayEffect::Order(_, ClaimOrder::Lost) => Some("lost"),
            RelayEffect::ToServer(_) | RelayEffect::ToClient(_) | RelayEffect::Look(_) => Some("line"),
        };
        self.others.iter().filter_map(name).collect()
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.to_server.is_empty() && self.to_client.is_empty()
    }
}

pub(super) fn call(id: u32, call_id: Option<&str>, input: &Value) -> String {
    let meta = call_id.map_or_else(
        || json!({}),
        |id| json!({"claudecode/toolUseId": id, "progressToken": 7}),
    );
    let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "render", "arguments": input, "_meta": meta}});
    format!("{line}\n")
}

pub(super) fn answer(id: u32, text: &str) -> String {
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
    )
}

pub(super) fn cancel(id: u32, reason: &str) -> String {
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": reason}})
    )
}

pub(super) fn greeting(name: &str) -> String {
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": {"name": name}}})
    )
}

/// Any lines pass as they came, in both directions, as long as each call is answered.
#[test]
fn lines_pass_as_they_came() {
    let seed: u64 = 0x5eed_0046;
    println!("seed {seed}");
    let mut state = seed;
    let mut next = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    for _ in 0..200 {
        let mut bench = Bench::new(RelaySettings::default());
        let mut open = Vec::new();
        for at in 0..60u32 {
            let noise = [
                "",
                "x",
                "{",
                "[1,2",
                "\u{1}\u{2}",
                "{\"id\":null}",
                "{\"method\":5,\"id\":1}",
                "\"a\"",
            ];
            let pick = usize::try_from(next(8)).unwrap();
            let batch = format!("[{},{}]\n", call(at, None, &json!({})).trim(), answer(3, "x").trim());
            let from_client = match next(7) {
                0 => format!("{}\r\n", noise[pick]),
                1 => batch.clone(),
                2 => greeting("toy"),
                3 => format!("{{\"id\":{at},\"method\":\"tools/list\"}}\n"),
                4 => cancel(at + 1000, "timed out"),
                _ => {
                    open.push(at);
                    call(at, (next(2) == 0).then_some("toolu_1"), &json!({"at": next(3)}))
                }
            };
            let done = bench.client(&from_client);
            assert_eq!((done.to_server, done.to_client), (vec![from_client], Vec::new()));
            let from_server = match next(6) {
                0 => format!("{}\n", noise[pick]),
                1 => batch,
                2 => format!("{{\"id\":\"s{at}\",\"method\":\"sampling/createMessage\"}}\n"),
                3 => answer(at + 5000, "unknown"),
                4 if !open.is_empty() => answer(open.remove(0), "done"),
                _ => "{\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7}}\n".to_owned(),
            };
            let done = bench.server(&from_server);
            assert_eq!((done.to_client, done.to_server), (vec![from_server], Vec::new()));
        }
    }
}

#[test]
fn a_call_after_a_timeout_joins_the_run() {
    let mut bench = Bench::new(RelaySettings::default());
    let input = json!({"a": 1, "b": 2.0});
    assert_eq!(bench.client(&call(1, None, &input)).to_server.len(), 1);
    // Two attached calls are two runs.
    assert_eq!(bench.client(&call(2, None, &input)).to_server.len(), 1);
    assert_eq!(bench.server(&answer(2, "own")).to_client, [answer(2, "own")]);
    let held = bench.client(&cancel(1, "McpError: Request timed out"));
    assert!(held.is_nothing() && held.names() == ["mark"], "{held:?}");
    assert!(bench.client(&cancel(1, "aborted")).is_nothing());
    // The same input, written in another way.
    let retry = call(3, None, &input)
        .replace("2.0", "2")
        .replace("\"a\":1", "\"a\": 1e0");
    assert!(bench.client(&retry).is_nothing());
    // A joined request that is given up leaves the run alone.
    assert!(bench.client(&call(4, None, &input)).is_nothing());
    assert!(bench.client(&cancel(4, "any reason")).is_nothing());
    let done = bench.server(&answer(1, "the film"));
    let line: Value = serde_json::from_str(&done.to_client[0]).unwrap();
    assert_eq!((done.to_client.len(), &line["id"]), (1, &json!(3)));
    assert_eq!(line["result"]["content"][0]["text"], "the film");
    assert_eq!(line.as_object().unwrap().len(), 3);
    assert_eq!(done.names(), ["forget", "unmark"]);
    assert!(bench.relay.is_idle());
    // The result was given once: the next call is a new run.
    assert_eq!(bench.client(&call(5, None, &input)).to_server.len(), 1);
}

#[test]
fn a_cancel_of_a_person_reaches_the_server() {
    let revertible = RelaySettings {
        revertible: ["render".to_owned()].into(),
        ..RelaySettings::default()
    };
    for (settings, client, age, reason, is_held) in [
        (RelaySettings::default(), "toy", 5, "User requested", false),
        (RelaySettings::default(), "toy", 5, "AbortError: TimeoutError", true),
        (
            RelaySettings::default(),
            "codex-mcp-client",
            299,
            "MCP request cancelled by caller",
            true,
        ),
        (
            RelaySettings::default(),
            "codex-mcp-client",
            200,
            "MCP request cancelled by caller",
            false,
        ),
        (
            RelaySettings::default(),
            "codex-mcp-client",
            400,
            "MCP request cancelled by caller",
            false,
        ),
        (revertible, "toy", 5, "timed out", false),
    ] {
        let settings = RelaySettings {
            answer_after: AnswerAfter::Never,
            ..settings
        };
        let mut bench = Bench::new(settings);
        bench.client(&greeting(client));
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.tick(age);
        let done = bench.client(&cancel(1, reason));
        assert_eq!(done.to_server.is_empty(), is_held, "{client} {reason}");
        assert_eq!(bench.relay.is_running(), is_held, "{client} {reason}");
        // A run that ends all the same is posted. A cancelled one is not joined.
        assert_eq!(bench.client(&call(2, None, &json!({}))).to_server.is_empty(), is_held);
        bench.client(&cancel(2, "timed out"));
        assert_eq!(
            bench.server(&answer(1, "late")).names(),
            ["keep", "post"],
            "{client} {reason}"
        );
    }
}

#[test]
fn an_early_answer_comes_before_the_timeout_and_says_how_to_wait() {
    for (name, flag, call_id, due) in [
        ("codex-mcp-client", None, Some("call_1"), Some(295)),
        ("opencode", None, None, Some(55)),
        ("toy", Some(20), None, Some(18)),
        ("toy", None, Some("call_1"), None),
        ("claude-code", None, Some("toolu_1"), None),
    ] {
        let mut bench = Bench::new(RelaySettings {
            client_timeout: flag.map(Duration::from_secs),
            ..RelaySettings::default()
        });
        bench.client(&greeting(name));
        bench.client("{\"id\":1,\"method\":\"tools/list\"}\n");
        bench.server("{\"id\":1,\"result\":{\"tools\":[{\"name\":\"render\",\"outputSchema\":{}}]}}\n");
        bench.client(&call(2, call_id, &json!({})));
        assert_eq!(bench.relay.next_wake(), due.map(Duration::from_secs), "{name}");
        let Some(due) = due else { continue };
        assert!(bench.tick(due - 1).is_nothing());
        let asked = bench.tick(due);
        let done = if call_id.is_some() {
            assert_eq!(asked.names(), ["ask"]);
            bench.handle(RelayEvent::CallKnown(1, true))
        } else {
            asked
        };
        let line: Value = serde_json::from_str(&done.to_client[0]).unwrap();
        let mut wanted = format!(
            "[antiphon: \"render\" is still running after {due} s; this is not its result. The same call with the same \
             input waits for it and does not start it again."
        );
        if call_id.is_some() {
            wanted.push_str(" If you end your turn, the result is added to the user's next message when it is ready.");
        }
        wanted.push(']');
        assert_eq!(line["result"]["content"][0]["text"], wanted);
        assert_eq!(line["result"]["isError"], true);
        // Nothing of the answered request reaches the client any more.
        let progress = "{\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7}}\n";
        assert_eq!(bench.server(progress).to_client.len(), usize::from(call_id.is_none()));
        assert!(bench.server(&answer(2, "late")).is_nothing());
    }
}

#[test]
fn the_clock_stops_while_the_server_asks_its_client() {
    let mut bench = Bench::new(RelaySettings {
        answer_after: AnswerAfter::After(Duration::from_secs(10)),
        ..RelaySettings::default()
    });
    bench.client(&call(1, None, &json!({})));
    bench.tick(4);
    bench.server("{\"id\":\"q\",\"method\":\"elicitation/create\"}\n");
    assert_eq!(bench.relay.next_wake(), None);
    assert!(bench.tick(100).is_nothing());
    bench.client("{\"id\":\"q\",\"result\":{}}\n");
    assert_eq!(bench.relay.next_wake(), Some(Duration::from_secs(106)));
    assert_eq!(bench.tick(106).to_client.len(), 1);
}

/// After the client has gone, a result is posted, and one that a retry joins is not delivered twice.
#[test]
fn a_posted_result_is_taken_back_before_a_retry_gets_it() {
    for (reply, is_given) in [
        (WithdrawReply::Withdrawn, true),
        (WithdrawReply::Unclear, true),
        (WithdrawReply::Delivered, false),
    ] {
        let mut bench = Bench::new(RelaySettings::default());
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.client(&cancel(1, "timeout"));
        let done = bench.server(&answer(1, "the film"));
        let [RelayEffect::Keep(hash, _), RelayEffect::Post(number, _, call_id, body)] = &done.others[..] else {
            panic!("{done:?}");
        };
        assert_eq!(call_id, "toolu_1");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body,
            json!({"content": [{"type": "text", "text": "the film"}], "is_error": false, "source": "mcp:"})
        );
        let done = bench.handle(RelayEvent::Posted(*number, PostReply::Settled));
        assert_eq!(done.names(), ["keep", "unmark"]);
        let kept = done.others.into_iter().find_map(|effect| match effect {
            RelayEffect::Keep(_, kept) => Some(kept),
            _ => None,
        });
        assert!(bench.relay.is_idle());
        let asked = bench.relay.handle_event(
            bench.now,
            RelayEvent::ClientLine(Bytes::from(call(2, Some("toolu_2"), &json!({})))),
        );
        assert!(
            matches!(&asked[..], [RelayEffect::Look(looked)] if looked == hash),
            "{asked:?}"
        );
        let done = bench.handle(RelayEvent::Found(*hash, FoundRun::Kept(kept.unwrap())));
        let [RelayEffect::Withdraw(number, call_id)] = &done.others[..] else {
            panic!("{done:?}");
        };
        assert_eq!(call_id, "toolu_1");
        let done = bench.handle(RelayEvent::Withdrawn(*number, reply));
        assert_eq!(
            (done.to_client.len() == 1, done.to_server.is_empty()),
            (is_given, is_given),
            "{reply:?}"
        );
    }
}

/// The proxy hears of a detached run at once and each minute, and of no other.
#[test]
fn a_detached_run_is_reported_each_minute() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, Some("toolu_1"), &json!({"a": 1})));
    bench.client(&call(2, Some("toolu_2"), &json!({"b": 1})));
    bench.client(&call(3, None, &json!({"c": 1})));
    assert_eq!(bench.relay.next_wake(), None);
    bench.client(&cancel(2, "timeout"));
    bench.client(&cancel(3, "timeout"));
    let reports = |done: Done| {
        let is_report = |effect: &RelayEffect| matches!(effect, RelayEffect::Heartbeat(id) if id == "toolu_2");
        assert!(done.others.iter().all(is_report), "{done:?}");
        done.others.len()
    };
    assert_eq!(bench.relay.next_wake(), Some(Duration::ZERO));
    for (at, wanted) in [(0, 1), (59, 0), (60, 1), (61, 0), (200, 1)] {
        assert_eq!(reports(bench.tick(at)), wanted, "{at}");
    }
    bench.server(&answer(2, "done"));
    assert_eq!(bench.relay.next_wake(), None);
}

/// An answer that cannot be written is the result of a detached run: posted, or kept for a retry.
#[test]
fn an_answer_that_cannot_be_written_is_posted() {
    let written = |call_id| {
        let mut bench = Bench::new(RelaySettings::default());
        bench.client(&call(1, call_id, &json!({})));
        let line = bench.server(&answer(1, "the film")).to_client.remove(0);
        (bench, RelayEvent::Unwritten(Bytes::from(line)))
    };
    let (mut bench, unwritten) = written(Some("toolu_1"));
    let done = bench.handle(unwritten);
    assert_eq!(done.names(), ["mark", "keep", "post"]);
    assert!(!bench.relay.is_idle() && !bench.relay.has_sent());
    let (mut bench, unwritten) = written(None);
    assert_eq!(bench.handle(unwritten).names(), ["mark", "keep", "unmark"]);
    // A line that was written is nobody's any more.
    let (mut bench, unwritten) = written(Some("toolu_1"));
    bench.handle(RelayEvent::AllWritten);
    assert!(bench.handle(unwritten).names().is_empty());
}

/// A client that ends may not have read what was written last. Its conversation says so.
#[test]
fn an_answer_that_may_be_unread_is_posted_for_conversations_that_miss_it() {
    for (call_id, end, seconds, wanted) in [
        (Some("toolu_1"), RelayEvent::ClientGone, 4, &["post if missing"][..]),
        (Some("toolu_1"), RelayEvent::InputEnded, 4, &["post if missing"]),
        (Some("toolu_1"), RelayEvent::ClientGone, 6, &[]),
        (None, RelayEvent::ClientGone, 4, &[]),
    ] {
        let mut bench = Bench::new(RelaySettings::default());
        bench.client(&call(1, call_id, &json!({})));
        bench.server(&answer(1, "the film"));
        bench.tick(seconds);
        bench.handle(RelayEvent::AllWritten);
        let done = bench.handle(end);
        assert_eq!(done.names(), wanted, "{call_id:?} {seconds}");
        for effect in done.others {
            let RelayEffect::PostIfMissing(call_id, body) = effect else {
                panic!("{effect:?}");
            };
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((&call_id[..], &body["only_if_missing"]), ("toolu_1", &json!(true)));
        }
        assert!(bench.handle(RelayEvent::ClientGone).names().is_empty());
    }
}

/// Rows: the name that the server tells, that of its program, and the source of the posts.
#[test]
fn posts_name_the_server() {
    let long = "n".repeat(100);
    for (told, program, source) in [
        (Some("toy"), "npx", "mcp:toy".to_owned()),
        (None, "npx", "mcp:npx".to_owned()),
        (Some(" "), "npx", "mcp:npx".to_owned()),
        (Some("m\u{f6}bel\n\"1\""), "npx", "mcp:m?bel?\"1\"".to_owned()),
        (Some(&long[..]), "npx", format!("mcp:{}", "n".repeat(60))),
    ] {
        let mut bench = Bench::new(RelaySettings {
            server_name: program.to_owned(),
            ..RelaySettings::default()
        });
        bench.client(&greeting("a client"));
        let info = told.map_or_else(|| json!({}), |name| json!({"serverInfo": {"name": name}}));
        bench.server(&format!("{}\n", json!({"jsonrpc": "2.0", "id": 0, "result": info})));
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.client(&call(2, Some("toolu_2"), &json!({"b": 1})));
        bench.client(&cancel(1, "timeout"));
        let mut done = bench.server(&answer(1, "the film")).others;
        // The answer to the second call is written, and its client ends at once.
        bench.server(&answer(2, "the song"));
        bench.handle(RelayEvent::AllWritten);
        done.extend(bench.handle(RelayEvent::ClientGone).others);
        let bodies = done.into_iter().filter_map(|effect| match effect {
            RelayEffect::Post(_, _, _, body) | RelayEffect::PostIfMissing(_, body) => Some(body),
            _ => None,
        });
        let sources: Vec<Value> = bodies
            .map(|body| serde_json::from_str::<Value>(&body).unwrap()["source"].clone())
            .collect();
        assert_eq!(sources, [json!(source), json!(source)]);
    }
}

/// The client dies while it reads a line that is too long to be read here, and a joined call has its answer behind that.
#[test]
fn an_answer_behind_a_long_line_is_posted() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, Some("toolu_1"), &json!({})));
    bench.client(&cancel(1, "timeout"));
    bench.client(&call(2, Some("toolu_2"), &json!({})));
    bench.handle(RelayEvent::ServerPiece(Bytes::from("xx"), false));
    assert!(bench.server(&answer(1, "the film")).is_nothing());
    let done = bench.handle(RelayEvent::ClientGone);
    let posted = done.others.iter().find_map(|effect| match effect {
        RelayEffect::Post(_, _, call_id, _) => Some(&call_id[..]),
        _ => None,
    });
    assert_eq!(posted, Some("toolu_2"), "{done:?}");
}

#[test]
fn a_server_that_ends_during_a_detached_run_leaves_a_fault() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, Some("toolu_1"), &json!({})));
    bench.client(&call(2, Some("toolu_2"), &json!({"b": 1})));
    bench.client(&cancel(1, "timeout"));
    let done = bench.handle(RelayEvent::ServerGone);
    let [RelayEffect::Keep(..), RelayEffect::Post(number, _, _, body)] = &done.others[..] else {
        panic!("{done:?}");
    };
    assert!(
        body.contains("the outcome is unknown") && body.contains("\"is_error\":true"),
        "{body}"
    );
    // Nobody else gets it: a retry may run the tool.
    let done = bench.handle(RelayEvent::Posted(*number, PostReply::Refused));
    assert_eq!(done.names(), ["forget", "unmark"]);
}

#[test]
fn a_server_that_asks_a_client_that_has_gone_gets_an_answer() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, None, &json!({})));
    bench.server("{\"id\":\"q\",\"method\":\"sampling/createMessage\"}\n");
    let done = bench.handle(RelayEvent::ClientGone);
    assert!(
        done.to_server[0].starts_with("{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"error\":"),
        "{done:?}"
    );
    assert_eq!(done.names(), ["mark"]);
    let done = bench.server("{\"id\":5,\"method\":\"ping\"}\n");
    assert_eq!(done.to_server, ["{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n"]);
}

#[test]
fn beyond_the_limit_calls_pass_unwatched() {
    let mut bench = Bench::new(RelaySettings::default());
    let mut notes = 0;
    for id in 0..10_000 {
        let line = call(id, None, &json!({"id": id}));
        let done = bench.client(&line);
        assert_eq!(done.to_server, [line]);
        notes += done.others.len();
    }
    assert_eq!(notes, 1);
    for id in 0..10_000 {
        assert_eq!(bench.server(&answer(id, "x")).to_client.len(), 1);
    }
    assert!(bench.relay.is_idle());
}

#[test]
fn an_own_line_never_stands_within_a_line_of_the_server() {
    let mut bench = Bench::new(RelaySettings {
        answer_after: AnswerAfter::After(Duration::from_secs(1)),
        ..RelaySettings::default()
    });
    bench.client(&call(1, None, &json!({})));
    bench.handle(RelayEvent::ServerPiece(Bytes::from("xx"), false));
    assert!(bench.tick(2).is_nothing());
    let done = bench.handle(RelayEvent::ServerPiece(Bytes::from("x\n"), true));
    assert_eq!((done.to_client.len(), &done.to_client[0][..]), (2, "x\n"));
}
