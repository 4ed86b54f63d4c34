//! Tables: the call that a posted result is for, and the verdict on the result.

use std::{collections::BTreeSet, time::Duration};

use antiphon::{
    auth::{Owner, OwnerKey, Principal, PrincipalKey},
    late::{
        Service, ServiceReach,
        matching::{CallMatch, CandidateCall, NamedCall, PostRuling, choose_call, is_terminal, judge_result},
        records::{PostRefusal, PostedResult, RecordedCall, RecordedCallState},
    },
    repair::Tier,
    session::SessionStrength,
};

const STRONG: &str = "toolu_01A09q90qw90lq917835lq9";
const STRIPPED: &str = "toolu01A09q90qw90lq917835lq9";
const SPACED: &str = "toolu-01A09q90qw90lq917835lq9";
const WEAK: &str = "call_0";

fn key() -> PrincipalKey {
    PrincipalKey::new([3; 32])
}

fn principal(name: &str) -> Principal {
    match name.split_once('/') {
        Some((account, user)) => Principal::of_user(&key(), Principal::of_token(&key(), account), user.as_bytes()),
        None => Principal::of_token(&key(), name),
    }
}

fn call(account: &str, id: &str, tool: &str) -> RecordedCall {
    let account = account.split('/').next().unwrap();
    RecordedCall {
        account: *principal(account).as_bytes(),
        lane: None,
        session: None,
        session_label: None,
        strength: SessionStrength::Strong,
        id: id.as_bytes().to_vec(),
        tool: tool.as_bytes().to_vec(),
        input: None,
        tier: Tier::Durable,
        opened_at: Duration::from_secs(100),
        heartbeat_at: Duration::from_secs(100),
        deadline: Duration::from_secs(200),
        expires_at: Duration::from_secs(1000),
        state: RecordedCallState::Open,
        posted: None,
        is_emitted: false,
        has_twin: false,
        is_withheld: false,
        is_in_request: false,
        intent_input: None,
        intent: None,
        origin: None,
    }
}

fn service(principals: &[&str], tools: &[&str]) -> Service {
    let everybody = principals == ["*"];
    Service {
        name: "s".to_owned(),
        principal: Principal::of_service(&key(), "s"),
        token: None,
        key: None,
        reach: if everybody {
            ServiceReach::Everyone
        } else {
            ServiceReach::Only(principals.iter().map(|name| principal(name)).collect())
        },
        tools: (tools != ["*"]).then(|| tools.iter().map(ToString::to_string).collect::<BTreeSet<_>>()),
        is_local: false,
        on_behalf: false,
    }
}

/// Service, id, owner, recorded calls as `principal id tool`, and the expected match.
type Row = (
    Service,
    &'static str,
    Option<&'static str>,
    &'static [[&'static str; 3]],
    CallMatch,
);

#[test]
#[rustfmt::skip]
fn late_matching_finds_one_call_or_none() {
    let all = || service(&["*"], &["*"]);
    let one = || service(&["a"], &["*"]);
    let rows: Vec<Row> = vec![
        (all(), STRONG, None, &[], CallMatch::None),
        (all(), STRONG, None, &[["a", STRONG, "t"]], CallMatch::One(0)),
        (all(), STRIPPED, None, &[["a", STRONG, "t"]], CallMatch::One(0)),
        (all(), STRONG, None, &[["a", STRIPPED, "t"]], CallMatch::One(0)),
        // An exact spelling of the id does not make one of two callers the owner.
        (all(), STRONG, None, &[["a", STRIPPED, "t"], ["b", STRONG, "t"]], CallMatch::Several),
        (all(), STRONG, None, &[["a", STRONG, "t"], ["b", STRONG, "t"]], CallMatch::Several),
        (all(), STRIPPED, None, &[["a", STRONG, "t"], ["b", STRONG, "t"]], CallMatch::Several),
        (all(), STRONG, Some("b"), &[["a", STRONG, "t"], ["b", STRONG, "t"]], CallMatch::One(1)),
        // Of two calls of one caller the exact spelling chooses. Without one, they are not told apart.
        (all(), STRONG, None, &[["a", STRIPPED, "t"], ["a", STRONG, "t"]], CallMatch::One(1)),
        (all(), STRIPPED, None, &[["a", STRIPPED, "t"], ["a", STRONG, "t"]], CallMatch::One(0)),
        (all(), SPACED, None, &[["a", STRIPPED, "t"], ["a", STRONG, "t"]], CallMatch::Several),
        // The owner only narrows the choice.
        (all(), STRONG, Some("c"), &[["a", STRONG, "t"], ["b", STRONG, "t"]], CallMatch::None),
        (one(), STRONG, Some("b"), &[["b", STRONG, "t"]], CallMatch::None),
        (one(), STRONG, None, &[["b", STRONG, "t"]], CallMatch::None),
        (one(), STRONG, None, &[["b", STRONG, "t"], ["a", STRONG, "t"]], CallMatch::One(1)),
        (service(&["*"], &["t"]), STRONG, None, &[["a", STRONG, "u"]], CallMatch::None),
        (service(&["*"], &["t"]), STRONG, None, &[["a", STRONG, "u"], ["b", STRONG, "t"]], CallMatch::One(1)),
        (service(&["*"], &[]), STRONG, None, &[["a", STRONG, "t"]], CallMatch::None),
        // A weak id matches no single call.
        (all(), WEAK, None, &[["a", WEAK, "t"]], CallMatch::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"]], CallMatch::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"], ["b", WEAK, "t"]], CallMatch::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"], ["a", WEAK, "u"]], CallMatch::Several),
        (one(), WEAK, None, &[["a", WEAK, "t"]], CallMatch::Several),
        (one(), WEAK, None, &[["a", WEAK, "t"], ["a", WEAK, "t"]], CallMatch::Several),
        (service(&["a", "b"], &["*"]), WEAK, None, &[["a", WEAK, "t"]], CallMatch::Several),
        (all(), WEAK, None, &[], CallMatch::None),
        // A service of an account also answers for its users. With several matches the post must name one.
        (service(&["a"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"]], CallMatch::One(0)),
        (service(&["a"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"], ["a/ben", STRONG, "t"]], CallMatch::Several),
        (service(&["a"], &["*"]), STRONG, Some("a/ben"), &[["a/ann", STRONG, "t"], ["a/ben", STRONG, "t"]], CallMatch::One(1)),
        (service(&["a"], &["*"]), WEAK, None, &[["a/ann", WEAK, "t"]], CallMatch::Several),
        (service(&["a"], &["*"]), WEAK, Some("a"), &[["a/ann", WEAK, "t"]], CallMatch::None),
        (service(&["b"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"]], CallMatch::None),
    ];
    let owners = OwnerKey::from_ledger_secret(&[5; 32]);
    for (service, id, owner, recorded, wanted) in rows {
        let calls: Vec<(Principal, RecordedCall)> = recorded
            .iter()
            .map(|[name, id, tool]| (principal(name), call(name, id, tool)))
            .collect();
        let candidates: Vec<CandidateCall<'_>> =
            calls.iter().map(|(principal, call)| CandidateCall { principal: *principal, call }).collect();
        let named = NamedCall {
            service: &service,
            call_id: id.as_bytes(),
            owner: owner.map(|name| Owner::of_principal(&owners, principal(name))),
            session: None,
            described: None,
        };
        assert_eq!(choose_call(&named, &owners, &candidates, None), wanted, "{id} {owner:?} {recorded:?} {service:?}");
    }
}

#[test]
#[rustfmt::skip]
fn late_matching_lets_the_first_result_win() {
    let posted = |content: &str| PostedResult::new(content.to_owned(), false, "s", Duration::ZERO);
    let digest = posted("1").digest;
    let (early, late) = (Duration::from_secs(150), Duration::from_secs(1000));
    for (state, tier, has, now, wanted, terminal) in [
        (RecordedCallState::Open, Tier::Read, None, early, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Open, Tier::Durable, None, early, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Open, Tier::Durable, None, late, PostRuling::Refused(PostRefusal::Expired), false),
        (RecordedCallState::Open, Tier::OneWay, None, late, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Abandoned, Tier::Durable, None, early, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Expired, Tier::Durable, None, early, PostRuling::Refused(PostRefusal::Expired), true),
        (RecordedCallState::Expired, Tier::OneWay, None, early, PostRuling::Accepted(RecordedCallState::Settled), true),
        (RecordedCallState::Delivered, Tier::Durable, None, early, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Acked, Tier::Durable, None, early, PostRuling::Accepted(RecordedCallState::Settled), false),
        (RecordedCallState::Cancelled, Tier::Revertible, None, early, PostRuling::Refused(PostRefusal::Cancelled), true),
        (RecordedCallState::Cancelled, Tier::OneWay, None, early, PostRuling::Accepted(RecordedCallState::Settled), true),
        (RecordedCallState::Settled, Tier::Durable, Some("1"), early, PostRuling::Repeated, true),
        (RecordedCallState::Settled, Tier::Durable, Some("1"), late, PostRuling::Repeated, true),
        (RecordedCallState::Delivered, Tier::Durable, Some("1"), early, PostRuling::Repeated, true),
        (RecordedCallState::Settled, Tier::Durable, Some("2"), early, PostRuling::Refused(PostRefusal::Conflict), true),
        (RecordedCallState::Acked, Tier::OneWay, Some("2"), late, PostRuling::Refused(PostRefusal::Conflict), true),
    ] {
        let call = RecordedCall { state, tier, posted: has.map(posted), ..call("a", STRONG, "t") };
        assert_eq!(judge_result(&call, &digest, None, now), wanted, "{state:?} {tier:?} {has:?} {now:?}");
        assert_eq!(is_terminal(&call), terminal, "{state:?} {has:?}");
    }
}
