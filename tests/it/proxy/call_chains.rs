//! Call chains of a lane, and the forks they show: two loops on one history.

use antiphon::{
    auth::{Caller, Principal},
    conversation::{CallChain, Outline, call_chain::TAIL_MAX},
    repair::{RepairPolicy, parse, repair},
    session::{LaneId, SessionSource},
    session_table::{LaneNames, SessionSettings, SessionTable},
    wire::{Format, Wire},
};
use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

use super::sessions::request;
use crate::support::bodies::Rng;

fn chain(ids: &[&str]) -> CallChain {
    CallChain::of_ids(ids.iter().map(|id| id.as_bytes()))
}

fn now() -> Instant {
    antiphon::clock::now()
}

fn lane() -> LaneId {
    let mut headers = HeaderMap::new();
    headers.insert("x-antiphon-session", "s".parse().unwrap());
    let asked = antiphon::session::SessionRequest {
        caller: &const { Caller::of_account(Principal::from_bytes([1; 32])) },
        format: Format::Anthropic,
        headers: antiphon::session::ClientHeaders::read(&headers),
        body: b"",
        outline: &Outline::default(),
        first_text: None,
        path_model: None,
    };
    let lane = antiphon::session::find_lane(&asked, |_, _| None).unwrap();
    assert_eq!(lane.source, SessionSource::Antiphon);
    lane.id
}

/// Returns the number of forks that each request of one lane adds.
fn forks(requests: &[(&str, bool)]) -> Vec<usize> {
    let (table, lane) = (SessionTable::new(SessionSettings::default()), lane());
    let show = |(ids, goes_on): &(&str, bool)| {
        let outline = Outline {
            chain: chain(&ids.split_whitespace().collect::<Vec<_>>()),
            ..Outline::default()
        };
        table
            .enter_lane(lane, LaneNames::default(), request(&outline, *goes_on), now())
            .forks
    };
    requests.iter().map(show).collect()
}

#[test]
fn a_fork_is_an_older_branch_that_grows_after_a_newer_one() {
    type Story = (&'static str, &'static [&'static str], &'static [usize]);
    let stories: &[Story] = &[
        ("it grows", &["a", "a b", "a b c d", "a b c d e"], &[0, 0, 0, 0]),
        ("sent again", &["a", "a b", "a b", "a b", "a b c"], &[0, 0, 0, 0, 0]),
        ("asked again", &["a b", "a", "a c", "a c d"], &[0, 0, 0, 0]),
        ("edited", &["a b c", "", "x", "x y"], &[0, 0, 0, 0]),
        ("a side request", &["a", "", "a b", "", "a b c"], &[0, 0, 0, 0, 0]),
        (
            "an earlier part of it",
            &["a b", "a", "a b c", "a", "a b c d"],
            &[0, 0, 0, 0, 0],
        ),
        ("killed, resumed in two", &["a", "a d", "a e", "a d d2"], &[0, 0, 0, 1]),
        (
            "the newer alone",
            &["a", "a d", "a e", "a e e2", "a e e2 e3"],
            &[0, 0, 0, 0, 0],
        ),
        ("sent again after", &["a", "a d", "a e", "a d"], &[0, 0, 0, 0]),
        (
            "once a pair",
            &["a d", "a e", "a d d2", "a e e2", "a d d2 d3", "a e e2 e3"],
            &[0, 0, 1, 0, 0, 0],
        ),
        (
            "three loops",
            &["a d", "a e", "a f", "a d d2", "a e e2", "a f f2"],
            &[0, 0, 0, 2, 1, 0],
        ),
        (
            "another agent",
            &["a b", "x", "a b c", "x y", "a b c d"],
            &[0, 0, 0, 0, 0],
        ),
        ("stripped ids", &["t_1", "t1 t_2", "t_1 t2 t_3", "t1 t2"], &[0, 0, 0, 0]),
    ];
    for (name, requests, wanted) in stories {
        let requests: Vec<(&str, bool)> = requests.iter().map(|ids| (*ids, true)).collect();
        assert_eq!(forks(&requests), *wanted, "{name}");
    }
    // Counts and compactions continue no branch.
    assert_eq!(forks(&[("a d", true), ("a e", true), ("a d d2", false)]), [0, 0, 0]);
    assert_eq!(forks(&[("a d", true), ("a e", false), ("a d d2", true)]), [0, 0, 0]);
}

#[test]
fn two_processes_on_one_session_are_one_fork() {
    // Worked sequence 5: loop d got the placeholder, loop e contains the real result. Then the histories are merged.
    let call = |id: &str| {
        format!(r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"toolu_{id}","name":"f","input":{{}}}}]}}"#)
    };
    let result = |id: &str, text: &str| {
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{id}","content":"{text}"}}]}}"#
        )
    };
    let body = |messages: &[String]| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"go"}},{}]}}"#,
            messages.join(",")
        )
    };
    let lost = "[Tool execution was interrupted]";
    let begun = [call("a"), result("a", lost)];
    let real = [call("a"), result("a", "42")];
    let d = [call("d1"), result("d1", "1")];
    let e = [call("e1"), result("e1", "2")];
    let d2 = [call("d2"), result("d2", "3")];
    let join = |pieces: &[&[String]]| body(&pieces.concat());
    let requests = [
        (join(&[&begun]), 0),
        (join(&[&begun, &d]), 0),
        (join(&[&real]), 0),
        (join(&[&real, &e]), 0),
        (join(&[&begun, &d, &d2]), 1),
        // The merged history.
        (join(&[&real, &d, &e, &d2]), 0),
        (join(&[&real, &d, &e, &d2, &[call("m"), result("m", "4")]]), 0),
    ];
    let (table, lane) = (SessionTable::new(SessionSettings::default()), lane());
    for (at, (body, forks)) in requests.iter().enumerate() {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let repaired = repair(&bytes, Wire::ANTHROPIC, &RepairPolicy::default()).unwrap();
        assert!(repaired.report.actions.is_empty(), "request {at} is untouched");
        let outline = parse(&bytes, Wire::ANTHROPIC).unwrap().outline();
        let entered = table.enter_lane(lane, LaneNames::default(), request(&outline, true), now());
        assert_eq!(entered.forks, *forks, "request {at}");
    }
}

#[test]
fn a_chain_is_built_from_call_ids() {
    let of = |wire: Wire, body: &str| wire.read(body.as_bytes()).map(|read| CallChain::of(&read)).unwrap();
    let chat = of(
        Wire::OPENAI_CHAT,
        r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"call_1"},{"id":"call_2"}]},{"role":"tool","tool_call_id":"call_1"},{"role":"assistant","tool_calls":[{"id":"call3"}]}]}"#,
    );
    assert_eq!(chat, chain(&["call1", "call_2", "call_3"]));
    let gemini = of(
        Wire::GEMINI,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"ls"}},{"functionCall":{"name":"cat","id":"x"}}]}]}"#,
    );
    assert_eq!(gemini, chain(&["ls", "x"]));
    let held =
        r#"{"previous_response_id":"r","input":[{"type":"function_call","call_id":"a","name":"f","arguments":""}]}"#;
    assert!(of(Wire::OPENAI_RESPONSES, held).is_empty(), "no beginning");
    assert_ne!(chain(&["a", "b"]), chain(&["b", "a"]));
    assert_ne!(chain(&["ab"]), chain(&["a", "b"]));
    assert_eq!(
        chain(&["toolu_01Abcdefghijklmnopqrstuv"]),
        chain(&["toolu01Abcdefghijklmnopqrstuv"])
    );
}

/// Returns random ids, some with a separator between their letters.
fn ids(rng: &mut Rng, count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("t{}{}{}", ["", "_", "-"][rng.below(3)], rng.below(1_000_000), n))
        .collect()
}

#[test]
fn prefixes_are_recognized_within_the_tail() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (shared, one, two) = (rng.below(150), rng.below(80), rng.below(80));
        let mut first = ids(&mut rng, shared + one);
        let mut second: Vec<String> = first[..shared].to_vec();
        second.extend(ids(&mut rng, two).into_iter().map(|id| format!("{id}other")));
        let of = |ids: &[String]| CallChain::of_ids(ids.iter().map(String::as_bytes));
        let (a, b) = (of(&first), of(&second));
        assert_eq!((a.count(), b.count()), (shared + one, shared + two), "seed {seed}");
        assert!(a.heap_bytes() <= TAIL_MAX * 8, "seed {seed}");
        let begins = shared + one > 0 && one == 0 && two < TAIL_MAX;
        assert_eq!(a.is_prefix_of(&b), begins, "seed {seed}");
        let known = |count: usize| (count.saturating_sub(TAIL_MAX) + 1).max(1);
        let kin = shared >= known(a.count()).max(known(b.count()));
        assert_eq!(a.shares_first_call(&b), kin, "seed {seed}");
        assert_eq!(b.shares_first_call(&a), kin, "seed {seed}");
        for id in &mut first {
            id.retain(|letter| letter.is_ascii_alphanumeric());
        }
        assert_eq!(of(&first), a, "seed {seed}");
    }
}

#[test]
fn branches_take_bounded_memory() {
    let settings = SessionSettings {
        entries_max: 1000,
        bytes_max: 64 * 1024,
        ..SessionSettings::default()
    };
    let (table, lane) = (SessionTable::new(settings), lane());
    let mut rng = Rng::new(7);
    for n in 0..500 {
        let mut list = vec!["a".to_owned()];
        list.extend(ids(&mut rng, 70));
        let outline = Outline {
            chain: CallChain::of_ids(list.iter().map(String::as_bytes)),
            ..Outline::default()
        };
        assert_eq!(
            table
                .enter_lane(lane, LaneNames::default(), request(&outline, true), now())
                .forks,
            0,
            "request {n}"
        );
    }
    assert_eq!(table.lane_totals(now()).lanes, 1, "the lane weighs little");
}
