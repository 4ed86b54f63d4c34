//! No body costs more than its size: histories that say one thing very often, in every wire, and refusals of such.
//!
//! How growth is measured, and why that may fail a test, stands in `support/growth.rs`.

use antiphon::{
    repair::{KnownAnswers, PairingContext, RefusalReading, RepairPolicy, client_results, parse, plan},
    wire::{Dialect, Format, Refusal, RefusalKind, Wire},
};
use bytes::Bytes;
use tokio::runtime::{self, Runtime};

use crate::support::{
    app::{App, before, post},
    growth::{TIMES, is_linear},
    shapes::{Layout, Shape, pieces},
    wire::Upstream,
};

/// Pieces of the smaller history.
const PIECES: usize = 60;
/// One of so many pairs of pieces is tried, beside those that are always tried.
const SAMPLE: usize = 40;

/// The pairs of pieces that are tried: each with itself, each behind every long one, and some of the others.
fn shapes(wire: Wire) -> Vec<Shape> {
    let pieces = pieces(wire.format);
    let mut shapes = Vec::new();
    let mut others = 0;
    for first in &pieces {
        for second in pieces.iter().filter(|second| !second.is_large()) {
            for layout in Layout::ALL {
                let same = first.name == second.name;
                let (always, worthwhile) = match layout {
                    Layout::Apart => (same || first.is_large(), true),
                    Layout::Mixed => (false, !same && !first.is_large()),
                    Layout::Together => (same, first.is_block() || second.is_block()),
                };
                others += usize::from(worthwhile && !always);
                if worthwhile && (always || others.is_multiple_of(SAMPLE)) {
                    shapes.push(Shape {
                        wire,
                        first: *first,
                        second: *second,
                        layout,
                    });
                }
            }
        }
    }
    shapes
}

/// Repairs every shape, and looks at its calls as those do who remember them.
fn every_shape(wire: Wire) {
    let policy = RepairPolicy::default();
    for shape in shapes(wire) {
        let body = |size: usize| Bytes::from(shape.body(size));
        is_linear(&shape.name(), PIECES, body, |body| {
            let done = antiphon::repair(body, wire, &policy).expect("a readable body");
            drop(done);
            let paired = parse(body, wire)
                .expect("a readable body")
                .pair(PairingContext::new(&policy));
            drop(client_results(body, wire.format, &paired.outline(), true));
            drop(paired.all_calls());
        });
    }
}

#[test]
fn histories_of_messages() {
    every_shape(Wire::ANTHROPIC);
}

#[test]
fn histories_of_chats() {
    every_shape(Wire::OPENAI_CHAT);
}

#[test]
fn histories_of_items() {
    every_shape(Wire::OPENAI_RESPONSES);
}

#[test]
fn histories_of_contents() {
    every_shape(Wire::GEMINI);
}

const DEEPSEEK: Wire = Wire {
    format: Format::OpenAiResponses,
    dialect: Dialect::DeepSeek,
};

/// So many of these, parted by commas.
fn many(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

fn call(id: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#)
}

fn result(id: &str, content: &str) -> String {
    format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{content}"}}"#)
}

/// A history of the user's first words, of what the assistant says, and of what the user says to it.
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
fn tools_of_the_provider_in_a_turn_that_the_user_only_answers() {
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
fn results_that_name_no_call_where_they_are_free_to() {
    repairs("outputs without ids behind answered calls", DEEPSEEK, 250, |size| {
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

/// Two equal calls with one result share it: many calls do not multiply a long one.
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
fn items_that_the_provider_refuses_by_their_ids() {
    let policy = RepairPolicy::default();
    // What was sent has no item id twice: only the refusal says that something is wrong with the one that is left.
    let sent = |size: usize| {
        let item = |_| r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#.to_owned();
        let body = Bytes::from(format!(r#"{{"input":[{}]}}"#, many(size, item)));
        let done = antiphon::repair(&body, Wire::OPENAI_RESPONSES, &policy).expect("a readable body");
        (body, done.body)
    };
    for kind in [RefusalKind::RepeatedItem, RefusalKind::WithoutReasoning] {
        let refusal = Refusal {
            kind,
            ids: vec!["msg_1".into()],
        };
        is_linear(&format!("{kind:?}"), 250, sent, |(body, sent)| {
            let is_better = RefusalReading::ALL.into_iter().any(|reading| {
                let parsed = parse(body, Wire::OPENAI_RESPONSES).expect("a readable body");
                let paired = parsed.pair_refused(PairingContext::new(&policy), &refusal, reading);
                let plan = plan(&paired, &KnownAnswers::default(), &policy).expect("a plan");
                let mended = plan.splice(&paired, body).expect("a body");
                reading.is_met(&refusal, &plan.report.findings) && mended.to_vec() != sent.to_vec()
            });
            // The first item of an id keeps it, unless none may have it.
            assert_eq!(is_better, kind == RefusalKind::WithoutReasoning, "{kind:?}");
        });
    }
}

/// What goes through a proxy in this thread: a body, and the provider's 400.
struct Refused {
    ask: String,
    wanted: String,
    app: App,
    upstream: Upstream,
    /// Dropped behind what runs on it.
    runtime: Runtime,
}

impl Refused {
    /// So many calls with ids that the provider rejects, each of which it names as it got them.
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
fn a_refusal_that_names_very_many_renamed_ids() {
    is_linear("renamed ids in a refusal", 100, Refused::new, |refused| {
        let answer = refused.runtime.block_on(refused.app.ask(&refused.ask));
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.text(), refused.wanted);
        assert!(refused.upstream.connections() > 0);
    });
}
