//! Tests of runs that share an input, an id or a client's patience: no result is lost to another one, or given twice.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use serde_json::json;

use super::{
    tests::{Bench, Done, answer, call, cancel},
    *,
};
use crate::cli::mcp::answer_after::AnswerAfter;

fn posted_number(done: &Done) -> u64 {
    let number = done.others.iter().find_map(|effect| match effect {
        RelayEffect::Post(number, ..) => Some(*number),
        _ => None,
    });
    number.unwrap_or_else(|| panic!("{done:?}"))
}

/// The mark stays for the run that goes on.
#[test]
fn the_end_of_a_run_leaves_the_mark_of_another_with_its_input() {
    let mut bench = Bench::new(RelaySettings::default());
    for id in [1, 2] {
        bench.client(&call(id, Some(&format!("toolu_{id}")), &json!({})));
    }
    for id in [1, 2] {
        bench.client(&cancel(id, "timeout"));
    }
    let ended = bench.server(&answer(1, "one"));
    let done = bench.handle(RelayEvent::Posted(posted_number(&ended), PostReply::Settled));
    assert_eq!(done.names(), ["keep"]);
    let ended = bench.server(&answer(2, "two"));
    let done = bench.handle(RelayEvent::Posted(posted_number(&ended), PostReply::Settled));
    assert_eq!(done.names(), ["keep", "unmark"]);
}

/// The proxy may have the result of a post whose answer was lost.
#[test]
fn a_result_whose_post_has_failed_is_taken_back_before_a_retry_gets_it() {
    for is_joined_first in [false, true] {
        let mut bench = Bench::new(RelaySettings::default());
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.client(&cancel(1, "timeout"));
        let number = posted_number(&bench.server(&answer(1, "the film")));
        let retry = call(2, Some("toolu_2"), &json!({}));
        let done = if is_joined_first {
            assert!(bench.client(&retry).is_nothing());
            bench.handle(RelayEvent::Posted(number, PostReply::Failing))
        } else {
            bench.handle(RelayEvent::Posted(number, PostReply::Failing));
            bench.client(&retry)
        };
        assert!(done.is_nothing() && done.names() == ["withdraw"], "{done:?}");
        let stops = |effect: &RelayEffect| matches!(effect, RelayEffect::StopPost(stopped) if *stopped == number);
        assert!(done.others.iter().any(stops), "{done:?}");
        let done = bench.handle(RelayEvent::Withdrawn(number, WithdrawReply::Unclear));
        assert_eq!((done.to_client.len(), bench.relay.is_idle()), (1, true));
    }
}

/// A client uses the id of a call that it has given up for another one.
#[test]
fn an_id_that_is_in_use_again_leaves_no_mark_and_no_waiting_call() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, None, &json!({"a": 1})));
    bench.client(&cancel(1, "timeout"));
    assert!(bench.client(&call(2, None, &json!({"a": 1}))).is_nothing());
    let done = bench.client(&call(1, None, &json!({"b": 1})));
    assert_eq!(done.names(), ["unmark"]);
    // The one that had joined has a run of its own.
    assert_eq!(done.to_server.len(), 2);
    assert_eq!(bench.server(&answer(2, "a")).to_client.len(), 1);
    assert_eq!(bench.server(&answer(1, "b")).to_client.len(), 1);
}

/// Servers do not answer what was stopped.
#[test]
fn stopped_runs_take_no_places() {
    let mut bench = Bench::new(RelaySettings::default());
    for id in 0..1000 {
        bench.client(&call(id, None, &json!({"id": id})));
        assert_eq!(bench.client(&cancel(id, "Escape")).to_server.len(), 1);
    }
    bench.client(&call(1000, None, &json!({})));
    bench.client(&cancel(1000, "timeout"));
    assert!(bench.client(&call(1001, None, &json!({}))).is_nothing());
}

/// Cancels of a tool whose work can be undone reach the server, also after an early answer.
#[test]
fn a_revertible_tool_is_stopped_after_an_early_answer() {
    for is_revertible in [false, true] {
        let mut bench = Bench::new(RelaySettings {
            answer_after: AnswerAfter::After(Duration::from_secs(1)),
            revertible: is_revertible
                .then(|| "render".to_owned())
                .into_iter()
                .collect::<BTreeSet<_>>(),
            ..RelaySettings::default()
        });
        bench.client(&call(1, None, &json!({})));
        assert_eq!(bench.tick(2).to_client.len(), 1);
        let done = bench.client(&cancel(1, "timeout"));
        assert_eq!(done.to_server.len(), usize::from(is_revertible));
        assert_eq!(bench.relay.is_running(), !is_revertible);
    }
}

/// The client has closed its input before its last answer was written.
#[test]
fn an_answer_that_is_written_after_the_end_of_the_input_is_posted_if_missing() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, Some("toolu_1"), &json!({})));
    bench.server(&answer(1, "the film"));
    assert!(bench.handle(RelayEvent::InputEnded).names().is_empty());
    assert_eq!(bench.handle(RelayEvent::AllWritten).names(), ["post if missing"]);
}

/// A cancelled retry leaves the result with the call that has it.
#[test]
fn a_retry_that_is_given_up_changes_no_owner_of_an_ended_run() {
    let mut bench = Bench::new(RelaySettings::default());
    bench.client(&call(1, Some("toolu_1"), &json!({})));
    bench.client(&cancel(1, "timeout"));
    let number = posted_number(&bench.server(&answer(1, "the film")));
    bench.client(&call(2, Some("toolu_2"), &json!({})));
    bench.client(&cancel(2, "timeout"));
    let done = bench.handle(RelayEvent::Posted(number, PostReply::Settled));
    let owner = done.others.iter().find_map(|effect| match effect {
        RelayEffect::Keep(_, kept) => kept.call_id.as_deref(),
        _ => None,
    });
    assert_eq!(owner, Some("toolu_1"));
}

/// Returns the effects of a call whose result is kept by an ended process.
fn call_with_kept_result(bench: &mut Bench, line: &str, place: KeptPlace) -> Done {
    let event = RelayEvent::ClientLine(Bytes::from(line.to_owned()));
    let looked = bench.relay.handle_event(Duration::ZERO, event);
    let hash = looked.iter().find_map(|effect| match effect {
        RelayEffect::Look(hash) => Some(*hash),
        _ => None,
    });
    let kept = KeptResult {
        tool: "render".to_owned(),
        call_id: Some("toolu_0".to_owned()),
        place,
        outcome: ToolOutcome {
            is_failure: false,
            body: "{}".to_owned(),
        },
    };
    bench.handle(RelayEvent::Found(hash.unwrap(), FoundRun::Kept(kept)))
}

/// A kept result stays until the client has it, and is not posted meanwhile: a kill then costs no result, and none comes
/// twice. A second call is meant once more.
#[test]
fn a_kept_result_stays_until_the_client_has_it() {
    let mut bench = Bench::new(RelaySettings::default());
    let done = call_with_kept_result(&mut bench, &call(1, Some("toolu_1"), &json!({})), KeptPlace::Due);
    assert_eq!((done.names(), done.to_client.len()), (vec!["keep"], 1));
    let places = done.others.iter().filter_map(|effect| match effect {
        RelayEffect::Keep(_, kept) => Some((kept.place, kept.call_id.as_deref())),
        _ => None,
    });
    assert_eq!(places.collect::<Vec<_>>(), [(KeptPlace::RetryOnly, Some("toolu_0"))]);
    let again = call_with_kept_result(&mut bench, &call(2, Some("toolu_2"), &json!({})), KeptPlace::RetryOnly);
    assert_eq!((again.to_server.len(), again.to_client.len()), (1, 0));
    assert_eq!(bench.handle(RelayEvent::AllWritten).names(), ["forget", "unmark"]);
    assert!(bench.handle(RelayEvent::AllWritten).names().is_empty());
}

/// A kept result that could not be written is the result of the call that was to get it.
#[test]
fn a_kept_result_that_could_not_be_written_is_kept_for_the_later_call() {
    let mut bench = Bench::new(RelaySettings::default());
    let done = call_with_kept_result(&mut bench, &call(1, Some("toolu_1"), &json!({})), KeptPlace::RetryOnly);
    bench.handle(RelayEvent::ClientGone);
    let line = Bytes::from(done.to_client[0].clone());
    let done = bench.handle(RelayEvent::Unwritten(line));
    assert_eq!(done.names(), ["forget", "unmark", "mark", "keep", "post"]);
    assert!(bench.handle(RelayEvent::AllWritten).names().is_empty());
}

/// A person who gives up a call that has joined a run wants it stopped, if nobody else waits for it.
#[test]
fn a_person_stops_the_run_that_a_retry_has_joined() {
    for (reason, waiters, is_stopped) in [("timeout", 1, false), ("user abort", 1, true), ("user abort", 2, false)] {
        let mut bench = Bench::new(RelaySettings::default());
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.client(&cancel(1, "timeout"));
        for id in 2..2 + waiters {
            assert!(bench.client(&call(id, Some("toolu_2"), &json!({}))).is_nothing());
        }
        let done = bench.client(&cancel(2, reason));
        let told: Vec<&str> = done.to_server.iter().map(String::as_str).collect();
        // The server knows the run by the request that has started it.
        let wanted = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";
        assert_eq!(
            told,
            if is_stopped { vec![wanted] } else { vec![] },
            "{reason} {waiters}"
        );
        assert_eq!(bench.relay.is_running(), !is_stopped, "{reason} {waiters}");
    }
}

/// Own answers that wait for the end of a long line of the server take a bounded number of bytes. The rest counts as not
/// written: it is posted.
#[test]
fn answers_behind_a_long_line_are_bounded() {
    let mut bench = Bench::new(RelaySettings::default());
    let text = "x".repeat(6 * 1024 * 1024);
    let mut posts = 0;
    for id in 1..=6 {
        let input = json!({ "id": id });
        bench.client(&call(id, Some("toolu_1"), &input));
        bench.client(&cancel(id, "timeout"));
        bench.client(&call(10 + id, Some("toolu_2"), &input));
    }
    bench.handle(RelayEvent::ServerPiece(Bytes::from_static(b"{"), false));
    for id in 1..=6 {
        let done = bench.server(&answer(id, &text));
        assert!(done.to_client.is_empty());
        posts += done.names().iter().filter(|name| **name == "post").count();
    }
    assert_eq!(posts, 4);
    let done = bench.handle(RelayEvent::ServerPiece(Bytes::from_static(b"}"), true));
    assert_eq!(done.to_client.len(), 3);
}
