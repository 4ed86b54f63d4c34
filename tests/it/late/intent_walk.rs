//! Random walk over intents: claims, leases, results, cancels, restarts and steps of the clock, against a model.
//!
//! The model is written from the rules of docs/intents.md and shares no code with the store. Each result is a canary that
//! names its intent, so that a result of another user or service shows.
//!
//! `STEPS=` sets the number of steps, `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use antiphon::{
    late::{
        ClaimOutcome, ClaimSubject, GrantedClaim, HeldIntent, Holder, HolderOutcome, IntentClaim, IntentId,
        IntentState, LateSettings, LateStore, Resolution, ResolveOutcome, ServiceSettings, ToolSettings,
    },
    ledger::{Ledger, Moment},
    repair::Tier,
    telemetry::Telemetry,
};

use crate::ledger::switchable::SwitchableLedger;
use crate::support::{
    bodies::Rng,
    late::{over, service},
    seed::seed,
};

const STEPS: u64 = 6_000;
const T0: Moment = Duration::from_secs(2_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// Tools with their tiers, and the windows that the document promises.
const TOOLS: [(&str, Tier, Duration); 4] = [
    ("look", Tier::Read, Duration::ZERO),
    ("render", Tier::Revertible, Duration::from_secs(600)),
    ("deploy", Tier::Durable, HOUR),
    ("mail", Tier::OneWay, Duration::from_secs(86_400)),
];
const SERVICES: [&str; 2] = ["one", "two"];
const USERS: [&str; 2] = ["u", "v"];
/// Two inputs. The second form of the first is the same input.
const INPUTS: [&str; 3] = [r#"{"a":1,"b":[]}"#, r#"{"a":2,"b":[]}"#, r#"{ "b":[], "a":1.0 }"#];

const GRANTED: &str = "granted";
const TAKEN_OVER: &str = "taken over";

/// Service, user, tool and input.
type Effect = (usize, usize, usize, usize);

/// A claim that was granted, as its holder keeps it.
struct Granted {
    id: IntentId,
    secret: String,
    lease: Duration,
}

/// The state of one intent in the model.
#[derive(Clone, Debug)]
enum Is {
    Free,
    Running { until: Moment },
    Done { content: String, failed: bool, at: Moment },
    Cancelled,
}

struct Known {
    is: Is,
    window: Duration,
    key: String,
    /// Every granted claim; the last may report, unless an operator has decided.
    claims: Vec<Granted>,
    may_report: bool,
}

struct Walk {
    ledger: Arc<SwitchableLedger>,
    late: LateStore,
    rng: Rng,
    now: Moment,
    known: BTreeMap<Effect, Known>,
    keys: BTreeSet<String>,
    /// Keys of runs that never ended, whose records expired. A clock that is set back shows such a record again.
    expired: BTreeMap<Effect, String>,
    results: u64,
    counts: BTreeMap<&'static str, u64>,
}

fn settings() -> LateSettings {
    let on_behalf = |name: &&str| ServiceSettings {
        on_behalf: true,
        ..service(name, None, None)
    };
    let tool = |(name, tier, _): &(&str, Tier, Duration)| {
        let settings = ToolSettings {
            tier: *tier,
            ..ToolSettings::default()
        };
        ((*name).to_owned(), settings)
    };
    LateSettings {
        services: SERVICES.iter().map(on_behalf).collect(),
        tools: TOOLS.iter().map(tool).collect(),
        ..LateSettings::default()
    }
}

/// Returns the window of a claim: that of the tool, or a longer one.
fn wanted_window((_, _, tool, _): Effect, claim: &IntentClaim<'_>) -> Duration {
    TOOLS[tool].2.max(claim.window.unwrap_or_default())
}

/// Returns the store of a process.
fn open(ledger: &Arc<SwitchableLedger>) -> LateStore {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    over(&ledger, settings(), Telemetry::default()).0
}

impl Walk {
    fn new(seed: u64) -> Self {
        let ledger = SwitchableLedger::new();
        let late = open(&ledger);
        Self {
            ledger,
            late,
            rng: Rng::new(seed),
            now: T0,
            known: BTreeMap::new(),
            keys: BTreeSet::new(),
            expired: BTreeMap::new(),
            results: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn pick_effect(&mut self) -> (Effect, usize) {
        let [service, user, tool, form] = [2, 2, 4, 3].map(|below| self.rng.below(below));
        ((service, user, tool, form % 2), form)
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..45 => self.claims().await,
            45..65 => self.reports_result().await,
            65..73 => self.sends_heartbeat().await,
            73..78 => self.cancels().await,
            78..83 => self.resolves().await,
            83..95 => {
                let steps = [
                    Duration::from_secs(1),
                    MINUTE / 2,
                    MINUTE * 11,
                    HOUR + MINUTE,
                    HOUR * 25,
                ];
                let step = steps[self.rng.below(steps.len())];
                // A clock may also be set back.
                self.now = if self.rng.chance(10) {
                    self.now.saturating_sub(MINUTE / 3)
                } else {
                    self.now + step
                };
            }
            _ => {
                self.ledger = self.ledger.restart();
                self.late = open(&self.ledger);
                self.count("restart");
            }
        }
    }

    async fn claims(&mut self) {
        let (effect, form) = self.pick_effect();
        let (service, user, tool, _) = effect;
        let holder = self.late.services()[service].clone();
        let claim = IntentClaim {
            subject: ClaimSubject::OnBehalf {
                service: &holder,
                user: USERS[user].as_bytes(),
                tool: TOOLS[tool].0.as_bytes(),
                input: INPUTS[form].as_bytes(),
            },
            chosen_key: None,
            tier: None,
            window: [None, None, Some(MINUTE), Some(HOUR * 48)][self.rng.below(4)],
            lease: Some([Duration::from_secs(1), MINUTE, HOUR][self.rng.below(3)]),
            run_again: self.rng.chance(15),
            retry_failed: self.rng.chance(30),
        };
        let outcome = self.late.intents().claim(&claim, self.now).await.unwrap();
        let what = self.judge(effect, &claim, &outcome);
        if let ClaimOutcome::Granted(granted) = outcome {
            self.note_grant(effect, &claim, &granted, what == TAKEN_OVER);
        }
        self.count(what);
    }

    /// Checks the answer to a claim by the model. Returns the kind of answer.
    fn judge(&self, effect: Effect, claim: &IntentClaim<'_>, outcome: &ClaimOutcome) -> &'static str {
        let (now, tier) = (self.now, TOOLS[effect.2].1);
        let known = self.known.get(&effect);
        let is = known.map_or(Is::Free, |known| known.is.clone());
        let window = known.map_or(Duration::ZERO, |known| known.window);
        let told = format!("{effect:?} {is:?} at {now:?}: {outcome:?}");
        match (&is, outcome) {
            (Is::Free | Is::Cancelled, ClaimOutcome::Granted(_)) => GRANTED,
            (Is::Running { until }, ClaimOutcome::InFlight { lease_until, .. }) => {
                assert!(now < *until && lease_until == until, "{told}");
                "in flight"
            }
            (Is::Running { until }, ClaimOutcome::OutcomeUnknown { .. }) => {
                assert!(now >= *until && tier == Tier::OneWay, "{told}");
                "unknown"
            }
            (Is::Running { until }, ClaimOutcome::Granted(_)) => {
                assert!(now >= *until && tier != Tier::OneWay, "two holders: {told}");
                TAKEN_OVER
            }
            (Is::Done { content, failed, at }, ClaimOutcome::Replayed(replayed)) => {
                assert!(now < *at + window.max(wanted_window(effect, claim)), "{told}");
                assert_eq!(
                    (replayed.content.as_ref(), replayed.failed),
                    (Some(content), *failed),
                    "{told}"
                );
                let may_retry = *failed && (tier != Tier::OneWay || claim.retry_failed);
                let may_repeat = claim.run_again && !(*failed && tier == Tier::OneWay);
                assert!(!may_repeat && !may_retry, "{told}");
                "replayed"
            }
            (Is::Done { failed, at, .. }, ClaimOutcome::Granted(_)) => {
                let may_retry = *failed && (tier != Tier::OneWay || claim.retry_failed);
                // The result of a run is stored for the window of that run, whatever a later claim wants.
                let is_over = now >= *at + window;
                let may_repeat = claim.run_again && !(*failed && tier == Tier::OneWay);
                assert!(may_repeat || may_retry || is_over, "it ran twice: {told}");
                GRANTED
            }
            _ => panic!("{told}"),
        }
    }

    fn note_grant(&mut self, effect: Effect, claim: &IntentClaim<'_>, granted: &GrantedClaim, takes_over: bool) {
        let (now, lease, window) = (self.now, claim.lease.unwrap(), wanted_window(effect, claim));
        let entry = self.known.entry(effect).or_insert_with(|| Known {
            is: Is::Free,
            window,
            key: String::new(),
            claims: Vec::new(),
            may_report: true,
        });
        // A second holder of a run gets its key, unless the record has expired long after the lease. No other run does.
        let is_known = if takes_over {
            granted.idempotency_key == entry.key
        } else {
            self.expired.get(&effect) == Some(&granted.idempotency_key)
        };
        let is_new = self.keys.insert(granted.idempotency_key.clone());
        assert!(
            is_known || is_new,
            "a key was used twice: {effect:?} at {now:?}: {granted:?}"
        );
        assert_eq!((granted.lease_until, granted.window_until), (now + lease, now + window));
        entry.key.clone_from(&granted.idempotency_key);
        (entry.is, entry.window, entry.may_report) = (Is::Running { until: now + lease }, window, true);
        entry.claims.push(Granted {
            id: granted.intent,
            secret: granted.claim.as_str().to_owned(),
            lease,
        });
    }

    /// Returns an intent with one of its claims, most often the last one.
    fn held(&mut self) -> Option<(Effect, usize)> {
        let effect = self.pick_effect().0;
        let claims = self.known.get(&effect)?.claims.len();
        let place = if self.rng.chance(75) {
            claims - 1
        } else {
            self.rng.below(claims)
        };
        Some((effect, place))
    }

    /// Checks an outcome that is the same for every report. Returns `true` if the report was of the last holder and the
    /// intent still exists.
    fn is_live(&mut self, (effect, place): (Effect, usize), outcome: HolderOutcome) -> bool {
        let known = &self.known[&effect];
        let is_last = known.may_report && place + 1 == known.claims.len();
        let told = format!(
            "{effect:?} {:?} claim {place} of {} at {:?}: {outcome:?}",
            known.is,
            known.claims.len(),
            self.now
        );
        if outcome == HolderOutcome::NotFound {
            // Records are removed a day after their last use, and those of one-way tools never while they are open.
            let is_open = match &known.is {
                Is::Running { until } => self.now < *until || TOOLS[effect.2].1 == Tier::OneWay,
                Is::Done { at, .. } => self.now < *at + known.window,
                Is::Free | Is::Cancelled => false,
            };
            assert!(!is_open, "lost: {told}");
            if let Some(Known {
                is: Is::Running { .. },
                key,
                ..
            }) = self.known.remove(&effect)
            {
                self.expired.insert(effect, key);
            }
            self.count("removed");
            return false;
        }
        assert_eq!(!is_last, outcome == HolderOutcome::StaleClaim, "{told}");
        if !is_last {
            self.count("stale");
        }
        is_last
    }

    /// Names a claim of an effect, as its service does.
    fn held_intent(&self, effect: Effect, place: usize) -> HeldIntent<'_> {
        let claim = &self.known[&effect].claims[place];
        HeldIntent {
            holder: Holder::Service(&self.late.services()[effect.0]),
            id: claim.id,
            claim: claim.secret.as_bytes(),
        }
    }

    async fn reports_result(&mut self) {
        let Some((effect, place)) = self.held() else { return };
        let (failed, repeats) = (self.rng.chance(20), self.rng.chance(20));
        self.results += 1;
        let mut result = (format!("\"canary {effect:?} {}\"", self.results), failed);
        if let Is::Done { content, failed, .. } = &self.known[&effect].is
            && repeats
        {
            result = (content.clone(), *failed);
        }
        let held = self.held_intent(effect, place);
        let post = self
            .late
            .intents()
            .post_result(&held, result.0.clone(), result.1, self.now);
        let outcome = post.await.unwrap();
        if !self.is_live((effect, place), outcome) {
            return;
        }
        let now = self.now;
        let known = self.known.get_mut(&effect).unwrap();
        match (&known.is, outcome) {
            (
                Is::Running { .. },
                HolderOutcome::Accepted {
                    state, is_new: true, ..
                },
            ) => {
                let wanted = if result.1 {
                    IntentState::Failed
                } else {
                    IntentState::Settled
                };
                assert_eq!(state, wanted);
                known.is = Is::Done {
                    content: result.0,
                    failed: result.1,
                    at: now,
                };
                self.count("settled");
            }
            (Is::Done { content, failed, .. }, HolderOutcome::Accepted { is_new: false, .. }) => {
                assert_eq!((content, *failed), (&result.0, result.1));
            }
            (Is::Done { content, failed, .. }, HolderOutcome::Conflict) => {
                assert_ne!((content, *failed), (&result.0, result.1));
            }
            (Is::Cancelled, HolderOutcome::Cancelled) => {}
            (is, outcome) => panic!("{effect:?} {is:?}: {outcome:?}"),
        }
    }

    async fn sends_heartbeat(&mut self) {
        let Some((effect, place)) = self.held() else { return };
        let held = self.held_intent(effect, place);
        let outcome = self.late.intents().extend_lease(&held, self.now).await.unwrap();
        if !self.is_live((effect, place), outcome) {
            return;
        }
        let now = self.now;
        let known = self.known.get_mut(&effect).unwrap();
        match (&mut known.is, outcome) {
            (Is::Running { until }, HolderOutcome::Accepted { lease_until, .. }) => {
                *until = (*until).max(now + known.claims[place].lease);
                assert_eq!(lease_until, *until);
                self.count("heartbeat");
            }
            (Is::Done { .. }, HolderOutcome::Conflict) | (Is::Cancelled, HolderOutcome::Cancelled) => {}
            (is, outcome) => panic!("{effect:?} {is:?}: {outcome:?}"),
        }
    }

    async fn cancels(&mut self) {
        let Some((effect, place)) = self.held() else { return };
        let held = self.held_intent(effect, place);
        let outcome = self.late.intents().cancel(&held, false, self.now).await.unwrap();
        if !self.is_live((effect, place), outcome) {
            return;
        }
        let known = self.known.get_mut(&effect).unwrap();
        match (&known.is, outcome) {
            (Is::Running { .. } | Is::Cancelled, HolderOutcome::Accepted { state, .. }) => {
                assert_eq!(state, IntentState::Cancelled);
                known.is = Is::Cancelled;
                self.count("cancelled");
            }
            (Is::Done { .. }, HolderOutcome::Conflict) => {}
            (is, outcome) => panic!("{effect:?} {is:?}: {outcome:?}"),
        }
    }

    async fn resolves(&mut self) {
        let Some((effect, place)) = self.held() else { return };
        let id = self.known[&effect].claims[place].id;
        // `done` has no content, which the walk could not tell from a lost one: tests of intents cover it.
        let outcome = self
            .late
            .intents()
            .resolve(id, Resolution::NotRun, self.now)
            .await
            .unwrap();
        let known = self.known.get_mut(&effect).unwrap();
        let is_unknown =
            matches!(&known.is, Is::Running { until } if self.now >= *until) && TOOLS[effect.2].1 == Tier::OneWay;
        match outcome {
            ResolveOutcome::Resolved(state) => {
                assert!(is_unknown && state == IntentState::Cancelled);
                (known.is, known.may_report) = (Is::Cancelled, false);
                self.count("resolved");
            }
            ResolveOutcome::NotUnknown(_) => assert!(!is_unknown, "{effect:?} {:?}", known.is),
            ResolveOutcome::NotFound => assert!(!is_unknown, "lost: {effect:?} {:?}", known.is),
        }
    }
}

/// Plays a walk, which fails at the first contradiction. Returns the number of events by their names.
pub(crate) async fn play_walk(seed: u64, steps: u64) -> BTreeMap<&'static str, u64> {
    let mut walk = Walk::new(seed);
    for _ in 0..steps {
        walk.step().await;
    }
    walk.counts
}

#[tokio::test]
async fn no_effect_happens_twice_and_no_result_reaches_another_user() {
    let seed = seed();
    let steps = std::env::var("STEPS")
        .ok()
        .and_then(|steps| steps.parse().ok())
        .unwrap_or(STEPS);
    println!("SEED={seed} STEPS={steps}");
    let counts = play_walk(seed, steps).await;
    println!("{counts:?}");
    for what in [
        "granted",
        "taken over",
        "in flight",
        "unknown",
        "replayed",
        "settled",
        "stale",
        "cancelled",
        "resolved",
    ] {
        assert!(
            counts.get(what).is_some_and(|count| *count > 0),
            "the walk never had: {what}"
        );
    }
}
