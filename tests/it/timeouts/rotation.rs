//! Profile selection and cooldowns on a manual clock: every rule about them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use antiphon::{
    keys::rotation::{
        AttemptReport, ChangeCause, CredentialState, LaneBindings, PoolMember, ProfileId, ProfileQuery, Rotation,
        Selection,
    },
    policy::{Class, CooldownReason, LimitHints, ProfileState, Verdict, VerdictScope},
};
use proptest::prelude::*;

use crate::frozen::words::cooldown_classes;

const MODEL: Option<&str> = Some("claude-opus");

/// A pool with its own clock.
/// Returns profiles a, b, c … with these organisations, if known.
fn members(organisations: &[Option<&str>]) -> Vec<PoolMember> {
    let member = |(at, organisation): (usize, Option<&str>)| PoolMember {
        label: ["a", "b", "c", "d"][at].into(),
        weight: 1,
        organisation: organisation.map(Into::into),
        models: Vec::new(),
        max_concurrent: None,
    };
    organisations.iter().copied().enumerate().map(member).collect()
}

struct Pool {
    rotation: Rotation,
    start: Instant,
    now: Instant,
}

impl Pool {
    fn of(members: Vec<PoolMember>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        Self {
            rotation: Rotation::new(members, Duration::from_secs(10), false),
            start,
            now: start,
        }
    }

    /// Creates profiles a, b, c … with these organisations, if known.
    fn with(organisations: &[Option<&str>]) -> Self {
        Self::of(members(organisations))
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn fails(&mut self, id: ProfileId, class: Class) -> Option<CooldownReason> {
        self.fails_for(id, class, None)
    }

    fn fails_for(&mut self, id: ProfileId, class: Class, rest: Option<u64>) -> Option<CooldownReason> {
        let began = self.now;
        self.reports(id, class, rest, MODEL, began)
    }

    fn reports(
        &mut self,
        id: ProfileId,
        class: Class,
        rest: Option<u64>,
        model: Option<&str>,
        began: Instant,
    ) -> Option<CooldownReason> {
        let report = AttemptReport {
            model,
            hints: LimitHints {
                cooldown: rest.map(Duration::from_secs),
                ..LimitHints::default()
            },
            began,
            ..self.report(class)
        };
        self.rotation.record_attempt(id, &report, self.now)
    }

    /// Returns a report of an attempt that begins now.
    fn report(&self, class: Class) -> AttemptReport<'static> {
        AttemptReport {
            verdict: Verdict::from_class(class),
            model: MODEL,
            path: None,
            hints: LimitHints::default(),
            began: self.now,
            jitter: 0.0,
        }
    }

    fn state(&self, id: ProfileId) -> ProfileState {
        self.rotation.profile_statuses(self.now)[id].state
    }

    /// Returns the seconds left of a profile's longest cooldown.
    fn rests(&self, id: ProfileId) -> Option<u64> {
        let view = self.rotation.profile_statuses(self.now);
        let until = view[id].cooldowns.iter().map(|rest| rest.until).max()?;
        Some(until.duration_since(self.now).as_secs())
    }

    fn pick(&self, ask: &ProfileQuery<'_>) -> Selection {
        self.rotation.select_profile(ask, self.now)
    }
}

/// Returns a query of a lane that is pinned to the first profile.
fn pinned() -> ProfileQuery<'static> {
    ProfileQuery {
        model: MODEL,
        pinned: Some(0),
        ..ProfileQuery::default()
    }
}

fn used(pick: &Selection) -> Option<ProfileId> {
    match pick {
        Selection::Use { id, .. } => Some(*id),
        _ => None,
    }
}

#[test]
fn only_credential_classes_change_a_profile() {
    let classes = [
        Class::Success,
        Class::Overloaded,
        Class::ProviderFault,
        Class::ProviderTimeout,
        Class::Request,
        Class::Affinity,
        Class::NotFound,
        Class::Conflict,
        Class::TooLarge,
        Class::Filtered,
        Class::Unreachable,
        Class::Handshake,
        Class::Certificate,
        Class::Interrupted,
        Class::Headless,
        Class::Malformed,
        Class::NotAnAnswer,
        Class::Parked { queued: true },
        Class::Parked { queued: false },
        Class::Stalled,
        Class::ServerTool,
        Class::Compaction,
        Class::Broken,
        Class::Upload,
        Class::ClientGone,
        Class::ClientGaveUp,
        Class::ClientStalled,
        Class::Exhausted,
        Class::Deadline,
        Class::Refused,
    ];
    let mut pool = Pool::with(&[None, None]);
    let before = format!("{:?}", pool.rotation);
    for class in classes {
        for _ in 0..20 {
            assert_eq!(pool.fails_for(0, class, Some(3600)), None, "{class:?}");
        }
        assert_eq!(format!("{:?}", pool.rotation), before, "{class:?}");
    }
}

#[test]
fn cooldowns_grow_with_consecutive_failures_only() {
    for (class, expected) in [
        (Class::RateLimit, [30, 60, 300, 300, 300]),
        // The third refusal in a row disables the profile: 10 min, doubled each time, an hour at most.
        (Class::Auth, [30, 60, 600, 1200, 2400]),
        (Class::Billing, [18_000, 36_000, 72_000, 86_400, 86_400]),
        (Class::Quota, [18_000, 36_000, 72_000, 86_400, 86_400]),
        (Class::SpendLimit, [18_000, 36_000, 72_000, 86_400, 86_400]),
        (Class::Permission, [600, 600, 600, 600, 600]),
    ] {
        let mut pool = Pool::with(&[None, None]);
        for seconds in expected {
            assert_eq!(pool.fails(0, class), class.cooldown_reason(), "{class:?}");
            assert_eq!(pool.rests(0), Some(seconds), "{class:?}");
            // Within a cooldown nothing changes: a retry must not lengthen it (the counterpart of
            // <https://github.com/openclaw/openclaw/issues/84457>).
            pool.pass(seconds / 2);
            assert_eq!(pool.fails(0, class), None, "{class:?}");
            assert_eq!(pool.rests(0), Some(seconds - seconds / 2), "{class:?}");
            pool.pass(seconds - seconds / 2);
            assert_eq!((pool.state(0), pool.rests(0)), (ProfileState::Ready, None), "{class:?}");
        }
        assert_eq!(pool.state(1), ProfileState::Ready, "{class:?}");
    }
}

#[test]
fn jitter_never_exceeds_the_longest_cooldown() {
    for (class, longest) in [
        (Class::Auth, 3600),
        (Class::Billing, 86_400),
        (Class::Quota, 86_400),
        (Class::SpendLimit, 86_400),
    ] {
        let mut pool = Pool::with(&[None, None]);
        let rested: Vec<u64> = (0..8)
            .map(|_| {
                let report = AttemptReport {
                    jitter: 1.0,
                    ..pool.report(class)
                };
                pool.rotation.record_attempt(0, &report, pool.now);
                let rested = pool.rests(0).unwrap();
                pool.pass(rested);
                rested
            })
            .collect();
        assert_eq!(rested.iter().max(), Some(&longest), "{class:?}: {rested:?}");
        // Jitter lengthens a shorter cooldown.
        assert!([36, 21_600].contains(&rested[0]), "{class:?}: {rested:?}");
    }
    // An end that the provider names is kept exactly.
    let mut pool = Pool::with(&[None, None]);
    let report = AttemptReport {
        hints: LimitHints {
            cooldown: Some(Duration::from_secs(100)),
            ..LimitHints::default()
        },
        jitter: 1.0,
        ..pool.report(Class::RateLimit)
    };
    pool.rotation.record_attempt(0, &report, pool.now);
    assert_eq!(pool.rests(0), Some(100));
}

#[test]
fn a_verdict_of_exchange_scope_causes_no_cooldown() {
    for class in cooldown_classes() {
        let mut pool = Pool::with(&[None, None]);
        let before = format!("{:?}", pool.rotation);
        let report = AttemptReport {
            verdict: Verdict::from_class(class).with_scope(VerdictScope::Exchange),
            ..pool.report(class)
        };
        assert_eq!(pool.rotation.record_attempt(0, &report, pool.now), None, "{class:?}");
        assert_eq!(format!("{:?}", pool.rotation), before, "{class:?}");
        let report = AttemptReport {
            verdict: Verdict::from_class(class).with_scope(VerdictScope::Text),
            ..pool.report(class)
        };
        assert_eq!(
            pool.rotation.record_attempt(0, &report, pool.now),
            class.cooldown_reason(),
            "{class:?}"
        );
    }
}

#[test]
fn only_limits_use_the_providers_duration() {
    for (class, first, second) in [
        (Class::Auth, 30, 30),
        (Class::Permission, 600, 600),
        (Class::RateLimit, 5000, 9000),
        (Class::Quota, 5000, 9000),
    ] {
        let mut pool = Pool::with(&[None, None]);
        pool.fails_for(0, class, Some(5000));
        assert_eq!(pool.rests(0), Some(first), "{class:?}");
        pool.fails_for(0, class, Some(9000));
        assert_eq!(pool.rests(0), Some(second), "{class:?}");
    }
}

#[test]
fn unknown_models_have_their_own_cooldowns() {
    let long = "m".repeat(300);
    for (failed, asked, used_first) in [
        (None, MODEL, true),
        (MODEL, None, true),
        (None, None, false),
        (MODEL, MODEL, false),
        (Some(long.as_str()), Some(long.as_str()), false),
        (Some(long.as_str()), MODEL, true),
    ] {
        for class in [Class::RateLimit, Class::Permission] {
            let mut pool = Pool::with(&[None, None]);
            let began = pool.now;
            pool.reports(0, class, Some(60), failed, began);
            let ask = ProfileQuery {
                model: asked,
                pinned: Some(0),
                ..ProfileQuery::default()
            };
            assert_eq!(
                used(&pool.pick(&ask)) == Some(0),
                used_first,
                "{class:?} {failed:?} {asked:?}"
            );
            // A success ends the cooldowns of its own model.
            pool.pass(1);
            let began = pool.now;
            pool.reports(0, Class::Success, None, asked, began);
            assert_eq!(
                pool.state(0) == ProfileState::Ready,
                !used_first,
                "{class:?} {failed:?} {asked:?}"
            );
        }
        // A cooldown of the key itself applies to every model.
        let mut pool = Pool::with(&[None, None]);
        let began = pool.now;
        pool.reports(0, Class::Quota, None, failed, began);
        let ask = ProfileQuery {
            model: asked,
            pinned: Some(0),
            ..ProfileQuery::default()
        };
        assert_eq!(used(&pool.pick(&ask)), Some(1));
    }
}

#[test]
fn disabling_classes_have_the_state_disabled() {
    for (class, state) in [
        (Class::RateLimit, ProfileState::Cooling),
        (Class::Auth, ProfileState::Cooling),
        (Class::Permission, ProfileState::Cooling),
        (Class::Billing, ProfileState::Disabled),
        (Class::Quota, ProfileState::Disabled),
        (Class::SpendLimit, ProfileState::Disabled),
    ] {
        let mut pool = Pool::with(&[None, None]);
        pool.fails(0, class);
        assert_eq!(pool.state(0), state, "{class:?}");
    }
}

#[test]
fn a_named_duration_can_only_lengthen_a_cooldown() {
    let mut pool = Pool::with(&[None, None]);
    pool.fails_for(0, Class::RateLimit, Some(45));
    assert_eq!(pool.rests(0), Some(45));
    assert_eq!(pool.fails_for(0, Class::RateLimit, Some(20)), None);
    assert_eq!(pool.rests(0), Some(45));
    assert_eq!(
        pool.fails_for(0, Class::RateLimit, Some(90)),
        Some(CooldownReason::RateLimit)
    );
    assert_eq!(pool.rests(0), Some(90));
    pool.fails_for(1, Class::Quota, Some(7200));
    assert_eq!((pool.rests(1), pool.state(1)), (Some(7200), ProfileState::Disabled));
}

#[test]
fn a_success_ends_only_older_cooldowns() {
    // Bookkeeping of a success removed a cooldown that was set milliseconds before:
    // <https://github.com/openclaw/openclaw/issues/84457>.
    let mut pool = Pool::with(&[None, None]);
    let before = pool.now;
    pool.pass(1);
    pool.fails(0, Class::RateLimit);
    pool.pass(1);
    pool.reports(0, Class::Success, None, MODEL, before);
    assert_eq!(pool.rests(0), Some(29));
    let after = pool.now;
    pool.reports(0, Class::Success, None, Some("another model"), after);
    assert_eq!(pool.rests(0), Some(29));
    pool.reports(0, Class::Success, None, MODEL, after);
    assert_eq!(pool.state(0), ProfileState::Ready);
    // The failure counter is reset too.
    pool.fails(0, Class::RateLimit);
    assert_eq!(pool.rests(0), Some(30));
}

#[test]
fn failure_counters_expire_after_a_day() {
    let mut pool = Pool::with(&[None, None]);
    for seconds in [30, 60] {
        pool.fails(0, Class::Auth);
        pool.pass(seconds);
    }
    pool.pass(24 * 3600);
    pool.fails(0, Class::Auth);
    assert_eq!((pool.rests(0), pool.state(0)), (Some(30), ProfileState::Cooling));
}

#[test]
fn a_rate_limit_applies_to_one_model_of_the_organisation() {
    let mut pool = Pool::with(&[Some("one"), Some("one"), Some("two")]);
    pool.fails(0, Class::RateLimit);
    let of = |model| ProfileQuery {
        model,
        ..ProfileQuery::default()
    };
    for lane in 0..50 {
        let ask = ProfileQuery {
            lane: [lane; 32],
            ..of(MODEL)
        };
        assert_eq!(used(&pool.pick(&ask)), Some(2));
    }
    let others: std::collections::BTreeSet<_> = (0..50)
        .filter_map(|lane| {
            used(&pool.pick(&ProfileQuery {
                lane: [lane; 32],
                ..of(Some("claude-haiku"))
            }))
        })
        .collect();
    assert_eq!(others.len(), 3);
    let rests = &pool.rotation.profile_statuses(pool.now)[1].cooldowns;
    assert!(rests.len() == 1 && rests[0].of_other_profile && rests[0].reason == CooldownReason::RateLimit);
}

#[test]
fn a_rotation_for_a_rate_limit_changes_the_organisation() {
    let mut pool = Pool::with(&[Some("one"), Some("one")]);
    pool.fails(0, Class::RateLimit);
    let ask = ProfileQuery {
        tried: &[0],
        other_quota: true,
        ..pinned()
    };
    assert!(matches!(pool.pick(&ask), Selection::NoneAvailable(_)));
    // The same with organisations learned from answers.
    let mut pool = Pool::with(&[None, None, None]);
    for (id, organisation) in [(0, "one"), (1, "one"), (2, "two")] {
        pool.rotation.learn_organisation(id, organisation);
    }
    pool.fails(0, Class::RateLimit);
    assert_eq!(used(&pool.pick(&ask)), Some(2));
}

#[test]
fn a_pinned_lane_waits_shortly_and_then_moves() {
    let mut pool = Pool::with(&[None, None, None]);
    assert_eq!(used(&pool.pick(&pinned())), Some(0));
    pool.fails_for(0, Class::RateLimit, Some(10));
    assert_eq!(
        pool.pick(&pinned()),
        Selection::Wait {
            id: 0,
            until: pool.now + Duration::from_secs(10)
        }
    );
    pool.fails_for(0, Class::RateLimit, Some(11));
    let Selection::Use {
        id, moved: Some(moved), ..
    } = pool.pick(&pinned())
    else {
        panic!("{:?}", pool.pick(&pinned()));
    };
    assert!(id != 0 && moved.from == 0 && moved.cause == ChangeCause::Cooldown(CooldownReason::RateLimit));
    pool.pass(11);
    assert_eq!(used(&pool.pick(&pinned())), Some(0));
}

#[test]
fn a_forced_move_prefers_the_same_organisation() {
    let mut pool = Pool::with(&[Some("one"), Some("two"), None, Some("one")]);
    pool.fails(0, Class::Auth);
    assert_eq!(used(&pool.pick(&pinned())), Some(3));
    pool.fails(3, Class::Auth);
    assert_eq!(used(&pool.pick(&pinned())), Some(2));
    pool.fails(2, Class::Auth);
    assert_eq!(used(&pool.pick(&pinned())), Some(1));
}

#[test]
fn bindings_keep_a_lane_on_its_profile() {
    let bound = |bound| ProfileQuery { bound, ..pinned() };
    let reasoning = bound(LaneBindings {
        reasoning: true,
        ..LaneBindings::default()
    });
    let state = bound(LaneBindings {
        provider_state: true,
        ..LaneBindings::default()
    });
    let calls = bound(LaneBindings {
        open_calls: true,
        ..LaneBindings::default()
    });
    let held = |pool: &Pool, ask: &ProfileQuery<'_>| match pool.pick(ask) {
        Selection::NoneAvailable(stuck) => {
            assert!(
                stuck.is_bound && stuck.reasons.len() == 1 && stuck.until.is_some(),
                "{stuck:?}"
            );
            true
        }
        _ => false,
    };
    // Another organisation cannot read the reasoning. The same or an unknown organisation may.
    for (other, holds) in [(Some("two"), true), (Some("one"), false), (None, false)] {
        let mut pool = Pool::with(&[Some("one"), other]);
        pool.fails(0, Class::Auth);
        assert_eq!(held(&pool, &reasoning), holds, "{other:?}");
        assert!(held(&pool, &state) && held(&pool, &calls));
    }
    // Open calls bind a lane, but not to a disabled profile: <https://github.com/openclaw/openclaw/issues/29324>.
    let mut pool = Pool::with(&[None, None]);
    pool.fails(0, Class::Billing);
    assert!(!held(&pool, &calls) && held(&pool, &state));
    // The operator may allow reasoning to change its organisation.
    let organisations = [Some("one"), Some("two")];
    let mut pool = Pool::with(&organisations);
    pool.rotation = Rotation::new(members(&organisations), Duration::ZERO, true);
    pool.fails(0, Class::Auth);
    assert_eq!(used(&pool.pick(&reasoning)), Some(1));
    assert!(held(&pool, &state) && held(&pool, &calls));
}

#[test]
fn the_last_enabled_profile_is_always_available() {
    let mut pool = Pool::with(&[None]);
    pool.fails(0, Class::RateLimit);
    assert_eq!(used(&pool.pick(&pinned())), Some(0));
    assert_eq!(used(&pool.pick(&ProfileQuery::default())), Some(0));
    let mut pool = Pool::with(&[None, None]);
    pool.fails(0, Class::RateLimit);
    pool.fails(1, Class::RateLimit);
    assert!(matches!(pool.pick(&pinned()), Selection::NoneAvailable(_)));
    pool.fails(1, Class::Billing);
    assert_eq!(used(&pool.pick(&pinned())), Some(0));
    pool.fails(0, Class::Billing);
    let Selection::NoneAvailable(stuck) = pool.pick(&pinned()) else {
        panic!()
    };
    assert_eq!(stuck.reasons, [CooldownReason::Billing]);
}

#[test]
fn with_all_cooling_down_the_reasons_and_the_earliest_end_are_reported() {
    // The reported reason was not the recorded one: <https://github.com/openclaw/openclaw/issues/5240>.
    let mut pool = Pool::with(&[None, None]);
    pool.fails_for(0, Class::RateLimit, Some(100));
    pool.fails(1, Class::Auth);
    let Selection::NoneAvailable(stuck) = pool.pick(&ProfileQuery {
        model: MODEL,
        ..ProfileQuery::default()
    }) else {
        panic!()
    };
    assert_eq!(stuck.reasons, [CooldownReason::Auth, CooldownReason::RateLimit]);
    assert_eq!(stuck.until, Some(pool.now + Duration::from_secs(30)));
}

#[test]
fn an_operator_can_clear_a_profile() {
    // A disabled state of hours survived the top-up: <https://github.com/openclaw/openclaw/issues/70903>,
    // <https://github.com/openclaw/openclaw/issues/107671>.
    let mut pool = Pool::with(&[None, None]);
    pool.fails(0, Class::Billing);
    assert!(pool.rotation.clear_cooldowns(0, pool.now) && !pool.rotation.clear_cooldowns(7, pool.now));
    assert_eq!(pool.state(0), ProfileState::Ready);
    assert_eq!(used(&pool.pick(&pinned())), Some(0));
}

/// A cooldown for one model does not make it serve another.
#[test]
fn a_profile_without_a_credential_serves_no_model() {
    let mut pool = Pool::with(&[None, None]);
    pool.fails(1, Class::RateLimit);
    let serves = |pool: &Pool, model| pool.rotation.profile_statuses(pool.now)[1].serves(model);
    assert!(!serves(&pool, MODEL) && serves(&pool, Some("other")));
    pool.rotation.set_credential_state(1, CredentialState::Missing);
    assert!(!serves(&pool, MODEL) && !serves(&pool, Some("other")));
}

#[test]
fn a_profile_gets_only_the_models_it_serves() {
    let member = |label: &str, models: &[&str]| PoolMember {
        label: label.into(),
        weight: 1,
        organisation: None,
        models: models.iter().map(ToString::to_string).collect(),
        max_concurrent: None,
    };
    let pool = Pool::of(vec![member("a", &["claude-haiku-*"]), member("b", &["claude-opus"])]);
    for lane in 0..20 {
        let ask = |model| ProfileQuery {
            lane: [lane; 32],
            model: Some(model),
            ..ProfileQuery::default()
        };
        assert_eq!(used(&pool.pick(&ask("claude-haiku-4"))), Some(0));
        assert_eq!(used(&pool.pick(&ask("claude-opus"))), Some(1));
        let Selection::NoneAvailable(stuck) = pool.pick(&ask("gpt")) else {
            panic!()
        };
        assert!(stuck.reasons.is_empty() && stuck.until.is_none());
    }
}

#[test]
fn lanes_are_assigned_by_weight_and_consistently() {
    let mut pool = Pool::with(&[None, None, None]);
    let mut heavier = members(&[None, None, None]);
    heavier[2].weight = 2;
    pool.rotation = Rotation::new(heavier, Duration::ZERO, false);
    let mut counts: BTreeMap<ProfileId, u32> = BTreeMap::new();
    for number in 0_u32..8000 {
        let lane = *blake3::hash(&number.to_le_bytes()).as_bytes();
        let ask = ProfileQuery {
            lane,
            ..ProfileQuery::default()
        };
        let id = used(&pool.pick(&ask)).unwrap();
        assert_eq!(used(&pool.pick(&ask)), Some(id));
        *counts.entry(id).or_default() += 1;
    }
    assert!(
        (1800..2200).contains(&counts[&0]) && (3700..4300).contains(&counts[&2]),
        "{counts:?}"
    );
}

#[test]
fn the_former_profile_is_offered_unless_it_is_disabled() {
    let mut pool = Pool::with(&[Some("one"), Some("two")]);
    pool.fails(0, Class::RateLimit);
    let ask = ProfileQuery {
        pinned: Some(0),
        tried: &[1],
        model: MODEL,
        ..ProfileQuery::default()
    };
    assert_eq!(pool.rotation.former_profile(0, &ask, pool.now), Some(0));
    let ask = ProfileQuery { tried: &[0, 1], ..ask };
    assert_eq!(pool.rotation.former_profile(0, &ask, pool.now), None);
    pool.fails(0, Class::Billing);
    let ask = ProfileQuery { tried: &[1], ..ask };
    assert_eq!(pool.rotation.former_profile(0, &ask, pool.now), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// In any sequence of failures, no cooldown is shortened (unless there are many), and their number is bounded.
    #[test]
    fn no_cooldown_is_shortened(
        steps in proptest::collection::vec((0_usize..3, 0_u8..8, 0_u64..4000, 0_u64..700), 1..200),
    ) {
        let classes = [
            Class::RateLimit, Class::Auth, Class::Billing, Class::Quota, Class::Permission, Class::Stalled,
            Class::ServerTool, Class::ClientGone,
        ];
        let mut pool = Pool::with(&[Some("one"), Some("one"), None]);
        for (id, class, rest, pause) in steps {
            let before = pool.rotation.profile_statuses(pool.now);
            let rest = (rest > 2000).then_some(rest);
            let model = format!("model-{}", rest.unwrap_or(0) % 97);
            let now = pool.now;
            pool.reports(id, classes[usize::from(class)], rest, Some(&model), now);
            let after = pool.rotation.profile_statuses(pool.now);
            for (before, after) in before.iter().zip(&after) {
                for old in &before.cooldowns {
                    let same = |new: &&antiphon::keys::rotation::Cooldown| {
                        new.reason == old.reason && new.model == old.model && new.since == old.since
                    };
                    let kept = after.cooldowns.iter().find(same);
                    prop_assert!(kept.is_some_and(|new| new.until >= old.until) || before.cooldowns.len() >= 64);
                }
                prop_assert!(after.cooldowns.len() <= 128);
            }
            pool.pass(pause);
        }
        prop_assert!(pool.now >= pool.start);
    }
}
