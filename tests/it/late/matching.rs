//! Which call a service means, and what becomes of its result: as tables.

use std::{collections::BTreeSet, time::Duration};

use antiphon::{
    auth::{Owner, OwnerKey, Principal, PrincipalKey},
    late::{
        entry::{Call, Posted, State, Why},
        matching::{Candidate, Match, Named, Reach, Ruling, Service, choose, is_terminal, judge},
    },
    repair::Tier,
    session::Strength,
};

const STRONG: &str = "toolu_01A09q90qw90lq917835lq9";
const STRIPPED: &str = "toolu01A09q90qw90lq917835lq9";
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

fn call(account: &str, id: &str, tool: &str) -> Call {
    let account = account.split('/').next().unwrap();
    Call {
        account: *principal(account).as_bytes(),
        lane: None,
        session: None,
        strength: Strength::Strong,
        id: id.as_bytes().to_vec(),
        tool: tool.as_bytes().to_vec(),
        input: None,
        tier: Tier::Durable,
        opened_at: Duration::from_secs(100),
        heard_at: Duration::from_secs(100),
        deadline: Duration::from_secs(200),
        expires_at: Duration::from_secs(1000),
        state: State::Open,
        posted: None,
    }
}

fn service(principals: &[&str], tools: &[&str]) -> Service {
    let everybody = principals == ["*"];
    Service {
        name: "s".to_owned(),
        own: Principal::of_service(&key(), "s"),
        token: None,
        key: None,
        reach: if everybody {
            Reach::Everybody
        } else {
            Reach::Only(principals.iter().map(|name| principal(name)).collect())
        },
        tools: (tools != ["*"]).then(|| tools.iter().map(ToString::to_string).collect::<BTreeSet<_>>()),
    }
}

/// Service, id, owner, recorded calls as `principal id tool`, and which of them is meant.
type Row = (
    Service,
    &'static str,
    Option<&'static str>,
    &'static [[&'static str; 3]],
    Match,
);

#[test]
#[rustfmt::skip]
fn late_matching_finds_one_call_or_none() {
    let all = || service(&["*"], &["*"]);
    let one = || service(&["a"], &["*"]);
    let rows: Vec<Row> = vec![
        (all(), STRONG, None, &[], Match::None),
        (all(), STRONG, None, &[["a", STRONG, "t"]], Match::One(0)),
        (all(), STRIPPED, None, &[["a", STRONG, "t"]], Match::One(0)),
        (all(), STRONG, None, &[["a", STRIPPED, "t"]], Match::One(0)),
        // How a client writes it down makes nobody its owner.
        (all(), STRONG, None, &[["a", STRIPPED, "t"], ["b", STRONG, "t"]], Match::Several),
        (all(), STRONG, None, &[["a", STRONG, "t"], ["b", STRONG, "t"]], Match::Several),
        (all(), STRIPPED, None, &[["a", STRONG, "t"], ["b", STRONG, "t"]], Match::Several),
        (all(), STRONG, Some("b"), &[["a", STRONG, "t"], ["b", STRONG, "t"]], Match::One(1)),
        // The owner narrows and never widens.
        (all(), STRONG, Some("c"), &[["a", STRONG, "t"], ["b", STRONG, "t"]], Match::None),
        (one(), STRONG, Some("b"), &[["b", STRONG, "t"]], Match::None),
        (one(), STRONG, None, &[["b", STRONG, "t"]], Match::None),
        (one(), STRONG, None, &[["b", STRONG, "t"], ["a", STRONG, "t"]], Match::One(1)),
        (service(&["*"], &["t"]), STRONG, None, &[["a", STRONG, "u"]], Match::None),
        (service(&["*"], &["t"]), STRONG, None, &[["a", STRONG, "u"], ["b", STRONG, "t"]], Match::One(1)),
        (service(&["*"], &[]), STRONG, None, &[["a", STRONG, "t"]], Match::None),
        // An id that comes again means no call.
        (all(), WEAK, None, &[["a", WEAK, "t"]], Match::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"]], Match::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"], ["b", WEAK, "t"]], Match::Several),
        (all(), WEAK, Some("a"), &[["a", WEAK, "t"], ["a", WEAK, "u"]], Match::Several),
        (one(), WEAK, None, &[["a", WEAK, "t"]], Match::Several),
        (one(), WEAK, None, &[["a", WEAK, "t"], ["a", WEAK, "t"]], Match::Several),
        (service(&["a", "b"], &["*"]), WEAK, None, &[["a", WEAK, "t"]], Match::Several),
        (all(), WEAK, None, &[], Match::None),
        // A service of an account answers its users, and must say which where several fit.
        (service(&["a"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"]], Match::One(0)),
        (service(&["a"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"], ["a/ben", STRONG, "t"]], Match::Several),
        (service(&["a"], &["*"]), STRONG, Some("a/ben"), &[["a/ann", STRONG, "t"], ["a/ben", STRONG, "t"]], Match::One(1)),
        (service(&["a"], &["*"]), WEAK, None, &[["a/ann", WEAK, "t"]], Match::Several),
        (service(&["a"], &["*"]), WEAK, Some("a"), &[["a/ann", WEAK, "t"]], Match::None),
        (service(&["b"], &["*"]), STRONG, None, &[["a/ann", STRONG, "t"]], Match::None),
    ];
    let owners = OwnerKey::of(&[5; 32]);
    for (service, id, owner, recorded, wanted) in rows {
        let calls: Vec<(Principal, Call)> = recorded
            .iter()
            .map(|[name, id, tool]| (principal(name), call(name, id, tool)))
            .collect();
        let candidates: Vec<Candidate<'_>> =
            calls.iter().map(|(principal, call)| Candidate { principal: *principal, call }).collect();
        let named = Named {
            service: &service,
            call_id: id.as_bytes(),
            owner: owner.map(|name| Owner::of(&owners, principal(name))),
        };
        assert_eq!(choose(&named, &owners, &candidates), wanted, "{id} {owner:?} {recorded:?} {service:?}");
    }
}

#[test]
#[rustfmt::skip]
fn late_matching_lets_the_first_result_win() {
    let posted = |content: &str| Posted::new(content.to_owned(), false, "s", Duration::ZERO);
    let digest = posted("1").digest;
    let (early, late) = (Duration::from_secs(150), Duration::from_secs(1000));
    for (state, tier, has, now, wanted, terminal) in [
        (State::Open, Tier::Read, None, early, Ruling::First(State::Settled), false),
        (State::Open, Tier::Durable, None, early, Ruling::First(State::Settled), false),
        (State::Open, Tier::Durable, None, late, Ruling::Refused(Why::Expired), false),
        (State::Open, Tier::OneWay, None, late, Ruling::First(State::Settled), false),
        (State::Abandoned, Tier::Durable, None, early, Ruling::First(State::Settled), false),
        (State::Expired, Tier::Durable, None, early, Ruling::Refused(Why::Expired), true),
        (State::Expired, Tier::OneWay, None, early, Ruling::First(State::Settled), true),
        (State::Delivered, Tier::Durable, None, early, Ruling::First(State::Delivered), true),
        (State::Acked, Tier::Durable, None, early, Ruling::First(State::Acked), true),
        (State::Cancelled, Tier::Revertible, None, early, Ruling::Refused(Why::Cancelled), true),
        (State::Cancelled, Tier::OneWay, None, early, Ruling::First(State::Settled), true),
        (State::Settled, Tier::Durable, Some("1"), early, Ruling::Again, true),
        (State::Settled, Tier::Durable, Some("1"), late, Ruling::Again, true),
        (State::Delivered, Tier::Durable, Some("1"), early, Ruling::Again, true),
        (State::Settled, Tier::Durable, Some("2"), early, Ruling::Refused(Why::Conflict), true),
        (State::Acked, Tier::OneWay, Some("2"), late, Ruling::Refused(Why::Conflict), true),
    ] {
        let call = Call { state, tier, posted: has.map(posted), ..call("a", STRONG, "t") };
        assert_eq!(judge(&call, &digest, now), wanted, "{state:?} {tier:?} {has:?} {now:?}");
        assert_eq!(is_terminal(&call), terminal, "{state:?} {has:?}");
    }
}
