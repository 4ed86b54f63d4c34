//! Tests of tools that run once: every answer to a claim, every end of a run, and every line that may hide a call.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    tests::{Bench, Done, answer, call, cancel},
    *,
};
use crate::cli::mcp::answer_after::AnswerAfter;

const FILM: &str = "the film";

/// The number of the only run.
const RUN: RunNumber = 1;

fn bench() -> Bench {
    Bench::new(RelaySettings {
        once: OnceTools::of_names(&["render".to_owned()]),
        server_name: "toy.sh".to_owned(),
        ..RelaySettings::default()
    })
}

fn film() -> ToolOutcome {
    ToolOutcome {
        is_failure: false,
        body: json!({"content": [{"type": "text", "text": FILM}]}).to_string(),
    }
}

/// A bench whose only run is claimed.
fn claiming() -> Bench {
    let mut bench = bench();
    let done = bench.client(&call(1, Some("toolu_1"), &json!({"a": 1})));
    assert!(done.is_nothing() && done.names() == ["claim"], "{done:?}");
    bench
}

/// A bench whose only run goes on in the server.
fn running() -> Bench {
    let mut bench = claiming();
    let done = bench.handle(RelayEvent::Claimed(RUN, ClaimAnswer::Granted));
    assert_eq!(done.to_server, [call(1, Some("toolu_1"), &json!({"a": 1}))]);
    bench
}

/// Returns the text of an answer, and `true` if it is an error.
fn text_of(line: &str) -> (String, bool) {
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line.as_object().unwrap().len(), 3, "{line}");
    let result = &line["result"];
    let text = result["content"][0]["text"].as_str().unwrap();
    (text.to_owned(), result["isError"] == true)
}

#[test]
fn a_claim_names_server_tool_and_input() {
    for (info, wanted) in [
        (None, "toy.sh"),
        (Some(r#"{"serverInfo":{"name":"toy"}}"#), "toy"),
        (Some(r#"{"serverInfo":{"name":" "}}"#), "toy.sh"),
        (Some("{}"), "toy.sh"),
    ] {
        let mut bench = bench();
        bench.client("{\"id\":0,\"method\":\"initialize\",\"params\":{\"clientInfo\":{\"name\":\"c\"}}}\n");
        if let Some(info) = info {
            bench.server(&format!("{{\"id\":0,\"result\":{info}}}\n"));
        }
        let done = bench.client(&call(1, None, &json!({"b": 1.50, "a": "ä"})));
        let [RelayEffect::Claim(RUN, claim)] = &done.others[..] else {
            panic!("{done:?}");
        };
        assert_eq!((&claim.server[..], &claim.tool[..]), (wanted, "render"));
        assert_eq!(claim.arguments, json!({"b": 1.50, "a": "ä"}).to_string());
    }
    // Other tools pass as ever, and with `*` none does.
    let other = call(2, None, &json!({})).replace("render", "look");
    assert_eq!(bench().client(&other).to_server, [&other[..]]);
    let mut all = Bench::new(RelaySettings {
        once: OnceTools::of_names(&["*".to_owned()]),
        ..RelaySettings::default()
    });
    assert_eq!(all.client(&other).names(), ["claim"]);
}

/// Something that happens before a claim is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Timeout,
    Person,
    ClientGone,
    ServerGone,
}

impl Meanwhile {
    const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Timeout,
        Self::Person,
        Self::ClientGone,
        Self::ServerGone,
    ];

    fn happen(self, bench: &mut Bench) -> Done {
        match self {
            Self::Nothing => Done::default(),
            Self::Timeout => bench.client(&cancel(1, "Request timed out")),
            Self::Person => bench.client(&cancel(1, "Escape")),
            Self::ClientGone => bench.handle(RelayEvent::ClientGone),
            Self::ServerGone => bench.handle(RelayEvent::ServerGone),
        }
    }
}

/// Only a grant runs the tool, only while its call is wanted. Nobody else gets an answer.
#[test]
fn every_answer_to_a_claim_meets_everything_that_may_come_before_it() {
    let why = "render did not run";
    for meanwhile in Meanwhile::ALL {
        for (answer, wanted) in [
            (ClaimAnswer::Granted, None),
            (ClaimAnswer::Ran(film(), "it ran".to_owned()), Some((FILM, false))),
            (
                ClaimAnswer::RanUnseen(why.to_owned()),
                Some(("[antiphon: render did not run]", false)),
            ),
            (ClaimAnswer::InFlight, None),
            (
                ClaimAnswer::Refused(why.to_owned()),
                Some(("[antiphon: render did not run]", true)),
            ),
        ] {
            let mut bench = claiming();
            let before = meanwhile.happen(&mut bench);
            assert!(
                before.is_nothing() && before.names().is_empty(),
                "{meanwhile:?} {before:?}"
            );
            let is_wanted = meanwhile == Meanwhile::Nothing;
            let is_grant = answer == ClaimAnswer::Granted;
            let is_in_flight = answer == ClaimAnswer::InFlight;
            let case = format!("{meanwhile:?} {answer:?}");
            let done = bench.handle(RelayEvent::Claimed(RUN, answer));
            assert_eq!(done.to_server.len(), usize::from(is_wanted && is_grant), "{case}");
            let said: Vec<_> = done.to_client.iter().map(|line| text_of(line)).collect();
            let wanted = wanted
                .filter(|_| is_wanted)
                .map(|(text, is_error)| (text.to_owned(), is_error));
            assert_eq!(said, Vec::from_iter(wanted), "{case}");
            let orders: &[&str] = if is_grant && !is_wanted { &["not run"] } else { &[] };
            assert_eq!(done.names(), orders, "{case}");
            let goes_on = is_grant || (is_wanted && is_in_flight);
            assert_eq!(bench.relay.is_idle(), !goes_on, "{case}");
            if is_grant && !is_wanted {
                bench.handle(RelayEvent::Reported(RUN, None));
                assert!(bench.relay.is_idle(), "{case}");
            }
        }
    }
}

/// The name of somebody who does something, the line or the event of it, and the names of the effects.
type RunStep<'s> = (&'s str, &'s str, &'s [&'s str]);

/// Rows: what happens in a granted run, and what the proxy is told.
#[test]
fn the_proxy_learns_of_every_end_of_a_run() {
    let failure = "{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"no\"}}\n";
    let error = "{\"id\":1,\"result\":{\"content\":[],\"isError\":true}}\n";
    let question = "{\"id\":1,\"result\":{\"resultType\":\"input_required\",\"requestState\":\"s\"}}\n";
    let film = answer(1, FILM);
    let rows: &[&[RunStep<'_>]] = &[
        &[("server", &film, &["ended"])],
        &[("server", error, &["failed"])],
        &[("server", failure, &["failed"])],
        &[("server", question, &["not run"])],
        &[
            ("cancel", "timed out", &["mark"]),
            ("server", &film, &["ended", "keep", "post"]),
        ],
        &[
            ("cancel", "timed out", &["mark"]),
            ("server", question, &["not run", "keep", "post"]),
        ],
        &[("cancel", "Escape", &["leave"]), ("server", failure, &["failed"])],
        &[
            ("cancel", "Escape", &["leave"]),
            ("server", &film, &["ended", "keep", "post"]),
        ],
        &[("cancel", "Escape", &["leave"]), ("server gone", "", &["lost"])],
        &[
            ("client gone", "", &["mark"]),
            ("server", &film, &["ended", "keep", "post"]),
        ],
        &[
            ("client gone", "", &["mark"]),
            ("server gone", "", &["lost", "keep", "post"]),
        ],
        &[("server gone", "", &["lost"])],
    ];
    for row in rows {
        let mut bench = running();
        for (who, what, wanted) in *row {
            let done = match *who {
                "server" => bench.server(what),
                "cancel" => bench.client(&cancel(1, what)),
                "client gone" => bench.handle(RelayEvent::ClientGone),
                _ => bench.handle(RelayEvent::ServerGone),
            };
            assert_eq!(&done.names(), wanted, "{row:?}");
        }
        assert!(!bench.relay.is_running(), "{row:?}");
    }
    // An id that is in use again has no end that can be told from that of the newer request.
    let mut bench = running();
    assert_eq!(
        bench.client(&call(1, None, &json!({"b": 1}))).names(),
        ["lost", "claim"]
    );
    // Its report failed: a person reads that.
    let mut bench = running();
    bench.server(&film);
    assert!(!bench.relay.is_idle());
    let done = bench.handle(RelayEvent::Reported(RUN, Some("stale".to_owned())));
    assert!(matches!(&done.others[..], [RelayEffect::Say(said)] if said.contains("could not be stored: stale")));
    assert!(bench.relay.is_idle());
}

/// Calls with the same input for which a client waits are one run, which no single one of them stops.
#[test]
fn calls_at_the_same_time_share_a_run() {
    for is_running in [false, true] {
        let mut bench = if is_running { running() } else { claiming() };
        let input = json!({"a": 1});
        for id in [2, 3] {
            assert!(bench.client(&call(id, None, &input)).is_nothing());
        }
        for id in [1, 3] {
            assert!(bench.client(&cancel(id, "Escape")).is_nothing(), "{id}");
        }
        if !is_running {
            let done = bench.handle(RelayEvent::Claimed(RUN, ClaimAnswer::Granted));
            assert_eq!(done.to_server, [call(2, None, &input)]);
        }
        let id = if is_running { 1 } else { 2 };
        let done = bench.server(&answer(id, FILM));
        let line: Value = serde_json::from_str(&done.to_client[0]).unwrap();
        assert_eq!((done.to_client.len(), &line["id"]), (1, &json!(2)), "{done:?}");
        assert!(done.names().contains(&"ended"), "{done:?}");
    }
}

/// A run that goes on elsewhere is claimed again and again. Whoever still waits when it may begin starts it.
#[test]
fn a_run_elsewhere_is_waited_for() {
    let mut bench = Bench::new(RelaySettings {
        once: OnceTools::of_names(&["render".to_owned()]),
        answer_after: AnswerAfter::After(Duration::from_secs(5)),
        ..RelaySettings::default()
    });
    bench.client(&call(1, Some("toolu_1"), &json!({})));
    // It is not told to run elsewhere before that is known.
    assert_eq!(bench.relay.next_wake(), None);
    assert!(bench.tick(6).is_nothing());
    bench.client(&call(2, None, &json!({})));
    let mut pauses = Vec::new();
    let mut now = Duration::from_secs(6);
    for _ in 0..4 {
        let done = bench.handle(RelayEvent::Claimed(RUN, ClaimAnswer::InFlight));
        assert!(done.is_nothing() && done.names().is_empty(), "{done:?}");
        let next = bench.relay.next_claim().unwrap();
        pauses.push(next.saturating_sub(now).as_millis());
        now = next;
        let names = bench.tick_at(now).names();
        assert_eq!(names, ["claim"]);
    }
    assert_eq!(pauses, [250, 500, 1000, 2000]);
    let done = bench.handle(RelayEvent::Claimed(RUN, ClaimAnswer::Granted));
    assert_eq!(done.to_server, [call(2, None, &json!({}))]);
}

#[test]
fn an_early_answer_says_that_the_run_goes_on_elsewhere() {
    for answer in [ClaimAnswer::Granted, ClaimAnswer::InFlight] {
        let mut bench = Bench::new(RelaySettings {
            once: OnceTools::of_names(&["render".to_owned()]),
            answer_after: AnswerAfter::After(Duration::from_secs(5)),
            ..RelaySettings::default()
        });
        bench.client(&call(1, Some("toolu_1"), &json!({})));
        bench.handle(RelayEvent::Claimed(RUN, ClaimAnswer::InFlight));
        assert_eq!(bench.tick(1).names(), ["claim"]);
        assert_eq!(bench.relay.next_wake(), Some(Duration::from_secs(5)));
        // The claim is on its way, so the run is not forgotten before it is answered.
        let done = bench.tick(5);
        let (text, is_error) = text_of(&done.to_client[0]);
        assert_eq!(
            text,
            "[antiphon: \"render\" is running elsewhere, still after 5 s; this is not its result. The same call with the \
             same input waits for it and does not start it again.]"
        );
        assert!(!is_error && done.to_client.len() == 1, "{done:?}");
        let is_grant = answer == ClaimAnswer::Granted;
        let done = bench.handle(RelayEvent::Claimed(RUN, answer));
        assert!(done.is_nothing(), "{done:?}");
        assert_eq!(done.names().len(), usize::from(is_grant), "{done:?}");
        assert_eq!(bench.relay.next_wake(), None);
    }
}

/// Nothing runs that cannot be watched. Rows: a line, what passes, and what the client reads.
#[test]
fn a_call_that_cannot_be_watched_does_not_run() {
    let line = call(1, None, &json!({}));
    let line = line.trim();
    let large = call(1, None, &json!({"pad": "x".repeat(9 * 1024 * 1024)}));
    let task = line.replace("\"name\"", "\"task\":{},\"name\"");
    let ping = "{\"id\":2,\"method\":\"ping\"}";
    let rows: &[(&str, usize, Option<&str>)] = &[
        (
            &large,
            0,
            Some("[antiphon: the call is larger than 8 MiB; render did not run]"),
        ),
        (
            &task,
            0,
            Some("[antiphon: a tool that runs once cannot be called as a task; render did not run]"),
        ),
        (&line.replace("\"id\":1,", ""), 0, None),
        (&line.replace("\"id\":1,", "\"id\":null,"), 0, None),
        (&line.replace("{}", "{\"x\":NaN}"), 0, None),
        (&format!("[[{line}],{ping}]"), 1, None),
        (&format!("[{ping}]"), 1, None),
        ("noise", 1, None),
    ];
    for (line, passed, wanted) in rows {
        let mut bench = bench();
        let done = bench.client(&format!("{line}\n"));
        let case = line.chars().take(99).collect::<String>();
        assert_eq!(done.to_server.len(), *passed, "{case}");
        let said = done.to_client.first().map(|line| text_of(line));
        assert_eq!(said, wanted.map(|text| (text.to_owned(), true)), "{case}");
        assert!(!done.names().contains(&"claim"), "{case}");
    }
    // The calls of a batch are claimed one by one.
    let mut bench = bench();
    let done = bench.client(&format!("[{ping},{line}]\n"));
    assert_eq!(done.to_server, [format!("{ping}\n")]);
    assert_eq!(done.names(), ["claim"]);
    // So is a call with what the server has asked for.
    let retry = line
        .replace("\"id\":1", "\"id\":3")
        .replace("\"name\"", "\"requestState\":\"s\",\"name\"");
    let mut bench = self::bench();
    assert_eq!(bench.client(&format!("{retry}\n")).names(), ["claim"]);
    // A line that is too long to be read is held back as a whole.
    assert!(
        bench
            .handle(RelayEvent::ClientPiece(Bytes::from(line.to_owned())))
            .is_nothing()
    );
}

#[test]
fn beyond_the_limit_calls_are_refused() {
    let mut bench = bench();
    let mut refused = 0;
    for id in 0..300 {
        let done = bench.client(&call(id, None, &json!({"id": id})));
        assert!(done.to_server.is_empty());
        for line in &done.to_client {
            refused += 1;
            let wanted = "[antiphon: 256 calls are open; render did not run]";
            assert_eq!(text_of(line), (wanted.to_owned(), true));
        }
    }
    assert_eq!(refused, 300 - 256);
}
