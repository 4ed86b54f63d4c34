//! Work is linear in the size of the input, whatever its depth and its ids. The outputs are checked too.
//!
//! `support/growth.rs` describes the measurement.

use antiphon_core::{
    repair::{Action, RepairPolicy, Repaired},
    wire::{
        Dialect, Format, Wire,
        frames::EventFramer,
        watch::{Framing, Watcher},
    },
};
use bytes::Bytes;
use serde_json::value::RawValue;
use strict_provider::frames::chunk_frame;

use crate::support::{
    bodies::{Rng, Shape, sized},
    growth::{TIMES, is_linear},
};

fn mend(body: &Bytes, wire: Wire) -> Repaired {
    antiphon_core::repair(body, wire, &RepairPolicy::default()).expect("a readable body")
}

fn count(done: &Repaired, action: Action) -> usize {
    done.report.actions.get(&action).copied().unwrap_or_default()
}

#[test]
fn a_history_of_eight_mebibytes() {
    for (format, wire) in [
        (Format::Anthropic, Wire::ANTHROPIC),
        (Format::OpenAiChat, Wire::OPENAI_CHAT),
    ] {
        for shape in [Shape::Balanced, Shape::Orphan, Shape::Displaced] {
            let body = |kibibytes: usize| Bytes::from(sized(format, shape, kibibytes * 1024));
            is_linear(&format!("{wire} {shape:?}"), 8 * 1024 / TIMES, body, |body| {
                let done = mend(body, wire);
                let wanted = match shape {
                    Shape::Balanced => (true, 0, 0),
                    Shape::Orphan => (false, 1, 0),
                    Shape::Displaced => (false, 0, 1),
                };
                let done = (
                    done.body.is_original(),
                    count(&done, Action::Placeholder),
                    count(&done, Action::Move),
                );
                assert_eq!(done, wanted, "{wire} {shape:?} {} bytes", body.len());
            });
        }
    }
}

/// Returns `count` items, separated by commas.
fn many(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

fn history(messages: &str) -> Bytes {
    format!(r#"{{"messages":[{{"role":"user","content":"go"}},{messages}]}}"#).into()
}

fn assistant(blocks: &str) -> String {
    format!(r#"{{"role":"assistant","content":[{blocks}]}}"#)
}

fn call(id: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#)
}

/// Calls of the smaller body. The larger one has 20,000.
const CALLS: usize = 20_000 / TIMES;

/// Repairs bodies with this many calls, each of which must get the same action.
fn grows(what: &str, action: Action, body: impl Fn(usize) -> Bytes) {
    let body = |calls: usize| (calls, body(calls));
    is_linear(what, CALLS, body, |(calls, body)| {
        let done = mend(body, Wire::ANTHROPIC);
        assert_eq!(count(&done, action), *calls, "{what}");
        let out = done.body.to_vec();
        assert!(serde_json::from_slice::<&RawValue>(&out).is_ok(), "{what}");
    });
}

#[test]
fn unanswered_calls() {
    grows("open calls in one message", Action::Placeholder, |calls| {
        history(&assistant(&many(calls, |n| call(&format!("toolu_{n}")))))
    });
    grows("open calls, a message each", Action::Placeholder, |calls| {
        history(&many(calls, |n| {
            assistant(&call(&format!("toolu_{n}"))) + r#",{"role":"user","content":"x"}"#
        }))
    });
    grows("results of no call", Action::Quote, |calls| {
        let result = |n| format!(r#"{{"type":"tool_result","tool_use_id":"toolu_{n}","content":"r"}}"#);
        history(&format!(r#"{{"role":"user","content":[{}]}}"#, many(calls, result)))
    });
}

#[test]
fn calls_with_one_id() {
    grows("equal ids in one message", Action::Placeholder, |calls| {
        history(&assistant(&many(calls, |n| {
            format!(r#"{{"type":"tool_use","id":"toolu_1","name":"f","input":{{"n":{n}}}}}"#)
        })))
    });
    grows("equal ids, a message each", Action::Placeholder, |calls| {
        history(&many(calls, |_| {
            assistant(&call("toolu_1")) + r#",{"role":"user","content":"x"}"#
        }))
    });
}

/// A large result is read once, however many others repeat it.
#[test]
fn many_small_results_repeat_a_large_one() {
    grows("repeats of a large result", Action::Quote, |repeats| {
        let result =
            |content: String| format!(r#"{{"type":"tool_result","tool_use_id":"toolu_1","content":"{content}"}}"#);
        let large = result("x".repeat(repeats * 100));
        let small = many(repeats, |n| result(format!("r{n}")));
        let turn = assistant(&call("toolu_1"));
        history(&format!(r#"{turn},{{"role":"user","content":[{large},{small}]}}"#))
    });
}

#[test]
fn deeply_nested_values() {
    let body = |levels: usize| {
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let input = format!(r#"{{"type":"tool_use","id":"toolu_1","name":"f","input":{{"x":{deep}}}}}"#);
        history(&assistant(&input))
    };
    is_linear("levels", 500_000 / TIMES, body, |body| {
        assert_eq!(count(&mend(body, Wire::ANTHROPIC), Action::Placeholder), 1);
    });
}

/// Chosen ids that collide under common fast hashes cost no more than random ids, because the hash is keyed.
#[test]
fn ids_chosen_to_collide() {
    let letters = |n: usize, pairs: [&str; 2]| (0..16).map(|bit| pairs[n >> bit & 1]).collect::<String>();
    let random = |n: usize| {
        let mut rng = Rng::new(n as u64);
        format!("{:016x}{:016x}", rng.next(), rng.next())
    };
    let kinds: [(&str, &dyn Fn(usize) -> String); 3] = [
        ("random ids", &random),
        // `Aa` and `BB` collide under h * 31 + c, with any text around them.
        ("ids of one hash under h * 31 + c", &|n| letters(n, ["Aa", "BB"])),
        ("ids that differ in their last bytes", &|n| format!("{n:032}")),
    ];
    for (kind, id) in kinds {
        let body = |calls: usize| history(&assistant(&many(calls, |n| call(&id(n)))));
        grows(kind, Action::Placeholder, body);
        let done = mend(&body(CALLS), Wire::ANTHROPIC);
        assert!(done.report.renamed.is_empty(), "{kind}: two ids were taken for one");
    }
}

/// Returns the number of events and the end of the last one.
fn framed(stream: &[u8], chunk: usize) -> (usize, u64) {
    let (mut framer, mut events, mut end) = (EventFramer::default(), 0, 0);
    for chunk in stream.chunks(chunk) {
        framer.push(chunk, |event| {
            events += 1;
            end = event.end;
        });
    }
    (events, end)
}

#[test]
fn one_huge_event_of_a_stream() {
    let stream = |kibibytes: usize| format!("data: {}\n\n", "x".repeat(kibibytes * 1024));
    is_linear("one event in chunks of 1 KiB", 16 * 1024 / TIMES, stream, |stream| {
        assert_eq!(framed(stream.as_bytes(), 1024), (1, stream.len() as u64));
    });
}

#[test]
fn a_million_tiny_events_of_a_stream() {
    for chunk in [7, 4096] {
        let stream = |events: usize| (events, "data: x\n\n".repeat(events));
        is_linear("events", 1_000_000 / TIMES, stream, |(events, stream)| {
            assert_eq!(framed(stream.as_bytes(), chunk), (*events, stream.len() as u64));
        });
    }
}

/// Watches a stream of Amazon's frames. Returns the number of events.
fn watched_frames(stream: &[u8], chunk: usize) -> u64 {
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Frames);
    stream.chunks(chunk).for_each(|chunk| watcher.push(chunk));
    watcher.facts().events
}

#[test]
fn one_huge_frame_of_a_stream() {
    let stream = |kibibytes: usize| chunk_frame("x".repeat(kibibytes * 1024).as_bytes());
    is_linear("one frame in chunks of 1 KiB", 8 * 1024 / TIMES, stream, |stream| {
        assert_eq!(watched_frames(stream, 1024), 1);
    });
}

#[test]
fn many_tiny_frames_of_a_stream() {
    for chunk in [7, 4096] {
        let stream = |frames: usize| (frames as u64, chunk_frame(b"{}").repeat(frames));
        is_linear("frames", 100_000 / TIMES, stream, |(frames, stream)| {
            assert_eq!(watched_frames(stream, chunk), *frames);
        });
    }
}

/// Name, wire and body of a damaged history.
type Trouble = (&'static str, Wire, String);

fn list(size: usize, each: impl Fn(usize) -> String) -> String {
    (0..size).map(each).collect::<Vec<_>>().join(",")
}

/// Returns damaged Responses histories, each with one fault `size` times.
fn item_troubles(size: usize) -> Vec<Trouble> {
    let deepseek = Wire {
        format: Format::OpenAiResponses,
        dialect: Dialect::DeepSeek,
    };
    let input = |parts: &[String]| format!(r#"{{"input":[{}]}}"#, parts.join(","));
    let call = |id: String| format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":""}}"#);
    let output = |id: String| format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"o"}}"#);
    let reasoning = r#"{"type":"reasoning","summary":[]}"#;
    let words = r#"{"role":"user","content":"x"}"#.to_owned();
    let calls = list(size, |n| call(format!("c{n}")));
    let backwards = list(size, |n| output(format!("c{}", size - n - 1)));
    vec![
        (
            "reasoning, then outputs of nobody's",
            Wire::OPENAI_RESPONSES,
            input(&[
                list(size, |_| reasoning.into()),
                list(size, |n| output(format!("x{n}"))),
            ]),
        ),
        (
            "calls of one id, then their outputs",
            Wire::OPENAI_RESPONSES,
            input(&[list(size, |_| call("a".into())), list(size, |_| output("a".into()))]),
        ),
        (
            "screens that nobody shot, each after reasoning",
            Wire::OPENAI_RESPONSES,
            input(&[list(size, |n| {
                format!(r#"{reasoning},{{"type":"computer_call","call_id":"c{n}"}}"#)
            })]),
        ),
        (
            "outputs of one held call",
            Wire::OPENAI_RESPONSES,
            format!(
                r#"{{"conversation":"c","input":[{}]}}"#,
                list(size, |_| output("a".into()))
            ),
        ),
        (
            "calls, words, then their outputs in the other order",
            deepseek,
            input(&[calls, words, backwards]),
        ),
        (
            "a run with outputs of nobody's between its calls",
            deepseek,
            input(&[list(size, |n| {
                format!("{},{}", call(format!("c{n}")), output(format!("x{n}")))
            })]),
        ),
    ]
}

/// Returns damaged Gemini histories, each with one fault `size` times.
fn content_troubles(size: usize) -> Vec<Trouble> {
    let contents = |rest: String| format!(r#"{{"contents":[{{"role":"user","parts":[]}},{rest}]}}"#);
    let content = |role: &str, parts: String| format!(r#"{{"role":"{role}","parts":[{parts}]}}"#);
    let asks = r#"{"functionCall":{"name":"f"}}"#;
    let answers = r#"{"functionResponse":{"name":"f","response":{}}}"#;
    let says = r#"{"text":"x"}"#;
    let half = list(size, |n| if n % 2 == 0 { answers } else { says }.to_owned());
    let all = content("user", list(size, |_| answers.into()));
    let one_each = list(size, |_| content("model", asks.into()));
    vec![
        (
            "calls of one name, half of them answered",
            Wire::GEMINI,
            contents([content("model", list(size, |_| asks.into())), content("user", half)].join(",")),
        ),
        (
            "a content for each call, then all responses",
            Wire::GEMINI,
            contents([one_each, all].join(",")),
        ),
        (
            "responses that no call waits for",
            Wire::GEMINI,
            contents(list(size, |_| content("user", answers.into()))),
        ),
    ]
}

/// Returns every damaged history of both formats.
fn troubles(size: usize) -> Vec<Trouble> {
    [item_troubles(size), content_troubles(size)].concat()
}

#[test]
fn damaged_items_and_contents() {
    for row in 0..troubles(1).len() {
        let body = |size: usize| {
            let (_, wire, body) = troubles(size).swap_remove(row);
            (wire, Bytes::from(body))
        };
        let what = troubles(1)[row].0;
        is_linear(what, CALLS, body, |(wire, body)| {
            let done = mend(body, *wire);
            let again = mend(&Bytes::from(done.body.to_vec()), *wire);
            assert!(again.body.is_original(), "{what}: repairing the output adds edits");
        });
    }
}

/// Batches do not nest: deeper levels are not searched.
#[test]
fn batches_within_batches() {
    for (wire, open, close) in [
        (Wire::ANTHROPIC, r#"{"requests":[{"params":"#, "}]}"),
        (Wire::GEMINI, r#"{"request":"#, "}"),
    ] {
        let body = |deep: usize| Bytes::from(format!("{}{{}}{}", open.repeat(deep), close.repeat(deep)));
        is_linear(
            &format!("{wire}: batches one in the other"),
            200_000 / TIMES,
            body,
            |body| {
                assert!(mend(body, wire).body.is_original());
            },
        );
    }
}

/// Malformed calls cost a body built of them no more than its size: many of them, long ones, and quotes in quotes.
#[test]
fn malformed_calls() {
    let wire: Wire = "openai-chat-minimax".parse().expect("a wire");
    let call = |at: usize, arguments: &str| {
        format!(r#"{{"id":"call_{at}","type":"function","function":{{"name":"b ad","arguments":"{arguments}"}}}}"#)
    };
    let turn = |calls: &str, results: &str| {
        history(&format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}},{results}"#
        ))
    };
    let result = |at: usize| format!(r#"{{"role":"tool","tool_call_id":"call_{at}","content":"x"}}"#);
    let fixed = |body: &Bytes, wanted: usize| {
        let done = mend(body, wire);
        assert_eq!(count(&done, Action::Fix), wanted);
        serde_json::from_slice::<&RawValue>(&done.body.to_vec()).expect("valid JSON out");
    };
    let many_calls = |size: usize| turn(&many(size, |at| call(at, r#"{\"a\": "#)), &many(size, result));
    // 10^5 in the larger of the two.
    is_linear("many malformed calls", 100_000 / TIMES, many_calls, |body| {
        fixed(body, body.windows(6).filter(|at| at == b"\"b ad\"").count());
    });
    // 8 MiB in the larger of the two: quotes and backslashes, which a string in a string doubles.
    for unit in [r#"\"\\"#, r"\ud83d", "x", r"\u0000"] {
        let long = |size: usize| turn(&call(0, &unit.repeat(size / unit.len())), &result(0));
        is_linear("long arguments", 8 * 1024 * 1024 / TIMES, long, |body| fixed(body, 1));
    }
}
