//! The CPU time of a body is linear in its size: a few histories, and refusals of such.
//!
//! `crates/core/tests/core/step_growth.rs` counts steps for every kind of block. Time also shows the loops that count none.
//! `support/growth.rs` describes the measurement.

use antiphon::{
    repair::{KnownResults, PairingContext, RefusalReading, RepairPolicy, parse, plan},
    wire::{Dialect, Format, Refusal, RefusalKind, Wire},
};
use bytes::Bytes;
use tokio::runtime::{self, Runtime};

use crate::support::{
    app::{App, before, post},
    growth::{TIMES, is_linear},
    wire::Upstream,
};

const DEEPSEEK: Wire = Wire {
    format: Format::OpenAiResponses,
    dialect: Dialect::DeepSeek,
};

/// Returns `count` items, separated by commas.
fn many(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

fn call(id: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#)
}

fn result(id: &str, content: &str) -> String {
    format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{content}"}}"#)
}

/// Returns a history: a first user message, one assistant message and one user message.
fn exchange(assistant: &str, user: &str) -> Bytes {
    format!(
        r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{assistant}]}},{{"role":"user","content":[{user}]}}]}}"#
    )
    .into()
}

/// Repairs bodies of one kind.
fn repairs(name: &str, wire: Wire, size: usize, body: impl Fn(usize) -> Bytes) {
    is_linear(name, size, body, |body| {
        drop(antiphon::repair(body, wire, &RepairPolicy::default()).expect("a readable body"));
    });
}

#[test]
fn server_tools_beside_answered_calls() {
    let server = |n: usize| format!(r#"{{"type":"server_tool_use","id":"srv_{n}","name":"web_search","input":{{}}}}"#);
    repairs(
        "open server calls beside answered calls",
        Wire::ANTHROPIC,
        250,
        |size| {
            let calls = many(size, |n| format!("{},{}", call(&format!("toolu_{n}")), server(n)));
            exchange(&calls, &many(size, |n| result(&format!("toolu_{n}"), "r")))
        },
    );
}

#[test]
fn results_without_call_ids() {
    repairs("outputs without ids after answered calls", DEEPSEEK, 250, |size| {
        let calls = many(size, |n| {
            format!(r#"{{"type":"function_call","call_id":"c{n}","name":"f","arguments":""}}"#)
        });
        let outputs = many(size, |n| {
            format!(r#"{{"type":"function_call_output","call_id":"c{n}","output":"o"}}"#)
        });
        let free = many(size, |_| r#"{"type":"function_call_output","output":"o"}"#.into());
        format!(r#"{{"input":[{calls},{outputs},{free}]}}"#).into()
    });
}

/// Two equal calls share one result, so many calls must not copy a long result many times.
#[test]
fn equal_calls_with_one_long_result() {
    let body = |size: usize| {
        exchange(
            &many(size, |_| call("toolu_1")),
            &result("toolu_1", &"x".repeat(size * 60)),
        )
    };
    repairs("equal calls with one long result", Wire::ANTHROPIC, 250, body);
    let body = body(250 * TIMES);
    let done = antiphon::repair(&body, Wire::ANTHROPIC, &RepairPolicy::default()).unwrap();
    assert!(
        done.body.len() < 10 * body.len(),
        "{} bytes become {}",
        body.len(),
        done.body.len()
    );
}

#[test]
fn items_refused_by_id() {
    let policy = RepairPolicy::default();
    // Only the refusal reports a fault: the repaired body has no repeated item id.
    let sent = |size: usize| {
        let item = |_| r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#.to_owned();
        let body = Bytes::from(format!(r#"{{"input":[{}]}}"#, many(size, item)));
        let done = antiphon::repair(&body, Wire::OPENAI_RESPONSES, &policy).expect("a readable body");
        (body, done.body)
    };
    for kind in [RefusalKind::RepeatedItem, RefusalKind::WithoutReasoningItem] {
        let refusal = Refusal {
            row: "row".into(),
            kind,
            ids: vec!["msg_1".into()],
            demand: None,
        };
        is_linear(&format!("{kind:?}"), 250, sent, |(body, sent)| {
            let is_better = RefusalReading::ALL.into_iter().any(|reading| {
                let parsed = parse(body, Wire::OPENAI_RESPONSES).expect("a readable body");
                let paired = parsed.pair_refused(PairingContext::new(&policy), &refusal, reading);
                let plan = plan(&paired, &KnownResults::default(), &policy).expect("a plan");
                let mended = plan.splice(&paired, body).expect("a body");
                reading.is_met(&refusal, &plan.report.findings) && mended.to_vec() != sent.to_vec()
            });
            // The first item keeps the id, unless no item may have it.
            assert_eq!(is_better, kind == RefusalKind::WithoutReasoningItem, "{kind:?}");
        });
    }
}

/// A request through a proxy in this thread, and the provider's 400.
struct Refused {
    ask: String,
    wanted: String,
    app: App,
    upstream: Upstream,
    /// The runtime of `app` and `upstream`. It is dropped after them.
    runtime: Runtime,
}

impl Refused {
    /// Prepares calls with ids that the provider rejects. Its 400 names each replaced id.
    fn new(calls: usize) -> Self {
        let ask = exchange(
            &many(calls, |n| call(&format!("t {n}!"))),
            r#"{"type":"text","text":"x"}"#,
        );
        let done = antiphon::repair(&ask, Wire::ANTHROPIC, &RepairPolicy::default()).unwrap();
        assert_eq!(done.report.renamed.len(), calls);
        let (new, old): (Vec<_>, Vec<_>) = done.report.renamed.into_iter().unzip();
        let text = format!(r#"{{"error":{{"message":"no: {}"}}}}"#, new.join(","));
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (upstream, app) = runtime.block_on(async {
            let upstream = Upstream::answering(answer).await;
            let app = before(upstream.address).start().await;
            (upstream, app)
        });
        Self {
            ask: post("/anthropic/v1/messages", std::str::from_utf8(&ask).unwrap()),
            wanted: format!(r#"{{"error":{{"message":"no: {}"}}}}"#, old.join(",")),
            app,
            upstream,
            runtime,
        }
    }
}

#[test]
fn refusals_with_many_renamed_ids() {
    is_linear("renamed ids in a refusal", 100, Refused::new, |refused| {
        let answer = refused.runtime.block_on(refused.app.ask(&refused.ask));
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.text(), refused.wanted);
        assert!(refused.upstream.connections() > 0);
    });
}
