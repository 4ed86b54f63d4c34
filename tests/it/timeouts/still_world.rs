//! Self-test of the ready-made stream events: the watchers read the intended facts from them.

use antiphon::wire::{
    Format,
    watch::{Facts, Framing, OutputPhase, Watcher},
};

use crate::support::still::events::{anthropic, chat, comment, gemini, responses};

/// Returns the facts of these events.
fn facts(format: Format, events: &[String]) -> Facts {
    let mut watcher = Watcher::new(Some(format), Framing::Events);
    for event in events {
        watcher.push(event.as_bytes());
    }
    assert!(watcher.is_between_events());
    watcher.facts().clone()
}

/// Events, heartbeats, calls, server tools in flight, reasoning, compaction, and whether the answer has ended.
type Row = (u64, u64, u64, usize, OutputPhase, OutputPhase, bool);

fn row(format: Format, events: &[String]) -> Row {
    let facts = facts(format, events);
    (
        facts.events,
        facts.heartbeats,
        facts.calls.count,
        facts.server_tools.in_flight.len(),
        facts.reasoning,
        facts.compaction,
        facts.terminal,
    )
}

use OutputPhase::{Open, Over, Unseen};

#[test]
fn messages() {
    use anthropic::*;
    let row = |events: &[String]| row(Format::Anthropic, events);
    assert_eq!(row(&[start(), ping(), comment()]), (1, 2, 0, 0, Unseen, Unseen, false));
    let words = [text_start(0), text(0, "a"), text(0, "b"), stop(0)];
    assert_eq!(row(&words), (4, 0, 0, 0, Unseen, Unseen, false));
    let thinking = [reasoning_start(0), reasoning(0, "hm"), ping(), stop(0)];
    assert_eq!(row(&thinking[..3]), (2, 1, 0, 0, Open, Unseen, false));
    assert_eq!(row(&thinking), (3, 1, 0, 0, Over, Unseen, false));
    let search = [server_tool(0, "srvtoolu_1"), server_result(1, "srvtoolu_1")];
    assert_eq!(row(&search[..1]), (2, 0, 0, 1, Unseen, Unseen, false));
    assert_eq!(row(&search), (4, 0, 0, 0, Unseen, Unseen, false));
    let compacting = [compaction_start(0), compaction(0, "sum"), stop(0)];
    assert_eq!(row(&compacting[..2]), (2, 0, 0, 0, Unseen, Open, false));
    assert_eq!(row(&compacting), (3, 0, 0, 0, Unseen, Over, false));
    assert_eq!(
        row(&[call(0, "toolu_1"), end("tool_use")]),
        (5, 0, 1, 0, Unseen, Unseen, true)
    );
    let ended = facts(Format::Anthropic, &[start(), end("end_turn")]);
    assert_eq!(ended.stop_label(Format::Anthropic), "end_turn");
    let failed = facts(Format::Anthropic, &[start(), error("overloaded_error")]);
    assert_eq!(&*failed.error.unwrap().kind, "overloaded_error");
}

#[test]
fn of_responses() {
    use responses::*;
    let row = |events: &[String]| row(Format::OpenAiResponses, events);
    assert_eq!(
        row(&[queued(), ping(), in_progress(), comment()]),
        (0, 2, 0, 0, Unseen, Unseen, false)
    );
    assert_eq!(
        row(&[start(), text_start(0), text(0, "a")]),
        (3, 0, 0, 0, Unseen, Unseen, false)
    );
    let thinking = [reasoning_start(0), reasoning(0, "hm"), reasoning_stop(0)];
    assert_eq!(row(&thinking[..2]), (2, 0, 0, 0, Open, Unseen, false));
    assert_eq!(row(&thinking), (3, 0, 0, 0, Over, Unseen, false));
    let search = [server_tool(0, "ws_1"), server_result(0, "ws_1")];
    assert_eq!(row(&search[..1]), (1, 0, 0, 1, Unseen, Unseen, false));
    assert_eq!(row(&search), (2, 0, 0, 0, Unseen, Unseen, false));
    let compacting = [compaction_start(0), compaction_stop(0)];
    assert_eq!(row(&compacting[..1]), (1, 0, 0, 0, Unseen, Open, false));
    assert_eq!(row(&compacting), (2, 0, 0, 0, Unseen, Over, false));
    assert_eq!(row(&[call(0, "call_1"), end()]), (3, 0, 1, 0, Unseen, Unseen, true));
    let stop = |event| facts(Format::OpenAiResponses, &[event]).stop_label(Format::OpenAiResponses);
    assert_eq!(
        (stop(end()), stop(incomplete("content_filter"))),
        ("completed", "content_filter")
    );
    for event in [error("rate_limit_exceeded"), failed("rate_limit_exceeded")] {
        let facts = facts(Format::OpenAiResponses, &[event]);
        assert_eq!(
            (&*facts.error.unwrap().code, facts.terminal),
            ("rate_limit_exceeded", true)
        );
    }
}

#[test]
fn of_chat() {
    use chat::*;
    let row = |events: &[String]| row(Format::OpenAiChat, events);
    assert_eq!(
        row(&[comment(), start(), text("a")]),
        (2, 1, 0, 0, Unseen, Unseen, false)
    );
    assert_eq!(row(&[start(), reasoning("hm")]), (2, 0, 0, 0, Open, Unseen, false));
    assert_eq!(row(&[reasoning("hm"), text("a")]), (2, 0, 0, 0, Over, Unseen, false));
    assert_eq!(
        row(&[call(0, "call_1"), end("tool_calls")]),
        (3, 0, 1, 0, Unseen, Unseen, true)
    );
    assert_eq!(
        facts(Format::OpenAiChat, &[end("stop")]).stop_label(Format::OpenAiChat),
        "stop"
    );
    let failed = facts(Format::OpenAiChat, &[error("server_error")]);
    assert_eq!(&*failed.error.unwrap().code, "server_error");
}

#[test]
fn of_gemini() {
    use gemini::*;
    let row = |events: &[String]| row(Format::Gemini, events);
    assert_eq!(row(&[text("a"), call("c")]), (2, 0, 1, 0, Unseen, Unseen, false));
    assert_eq!(row(&[reasoning("hm")]), (1, 0, 0, 0, Open, Unseen, false));
    assert_eq!(row(&[reasoning("hm"), text("a")]), (2, 0, 0, 0, Over, Unseen, false));
    assert_eq!(row(&[server_tool()]), (1, 0, 0, 1, Unseen, Unseen, false));
    assert_eq!(
        row(&[server_tool(), server_result()]),
        (2, 0, 0, 0, Unseen, Unseen, false)
    );
    let ended = facts(Format::Gemini, &[end("STOP")]);
    assert_eq!((ended.stop_label(Format::Gemini), ended.terminal), ("stop", true));
    let failed = facts(Format::Gemini, &[error(503, "UNAVAILABLE")]);
    assert_eq!(&*failed.error.unwrap().kind, "UNAVAILABLE");
}
