//! Credentials that expire, on paused time: their renewal, failures of their source, and the cooldowns that stay.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use antiphon::{
    auth::{Credential, Profile, Secret},
    clock,
    keys::credentials::{CredentialFetcher, RenewedProfile, renew_forever},
    keys::profiles::Profiles,
    keys::{
        credential_source::CredentialSource,
        credential_source::{CommandLine, SourceFailure, SuppliedCredential},
    },
    policy::{CooldownReason, ProfileState, RotationSettings},
    telemetry::Telemetry,
};
use tokio::time::Instant;

use crate::support::{
    pool::{
        CANARY, MESSAGES, UNKNOWN, ask, body, cooldowns, fine, key, limited, of_session, pooled, profile, strangers,
        view,
    },
    still::{World, error, secs, wait},
    wire::spawn,
};

const HOUR: Duration = Duration::from_secs(3600);
/// Error of a missing permission.
const FORBIDDEN: &str = r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#;
/// Error of an account without credit.
const BILLED: &str = r#"{"type":"error","error":{"type":"billing_error","message":"no credit"}}"#;
/// The upstream of these tests.
const UPSTREAM: &str = "anthropic";

/// One run of a source: its duration, and the life of the token that it supplies, or its failure.
type Run = (u64, Result<Option<Duration>, SourceFailure>);

/// A scripted source. Each token is the number of its run. After the script all runs are like the last one.
#[derive(Clone)]
struct Script(Arc<Mutex<(VecDeque<Run>, usize)>>);

impl Script {
    fn new(runs: &[Run]) -> Self {
        Self(Arc::new(Mutex::new((runs.iter().copied().collect(), 0))))
    }

    fn runs(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl CredentialFetcher for Script {
    async fn fetch_credential(&mut self) -> Result<SuppliedCredential, SourceFailure> {
        let (number, (seconds, outcome)) = {
            let mut state = self.0.lock().unwrap();
            state.1 += 1;
            let run = if state.0.len() > 1 {
                state.0.pop_front()
            } else {
                state.0.front().copied()
            };
            (state.1, run.unwrap())
        };
        tokio::time::sleep(secs(seconds)).await;
        outcome.map(|life| SuppliedCredential {
            credential: Credential::Bearer(Secret::new(format!("{CANARY}{number}"))),
            expires_at: life.map(|life| clock::unix_time() + life),
        })
    }
}

fn source() -> CredentialSource {
    source_of(&[])
}

/// Returns the source of a command with these arguments. Nothing runs it.
fn source_of(arguments: &[&str]) -> CredentialSource {
    CredentialSource::Token {
        command: CommandLine {
            program: "unused".to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        },
        refresh: HOUR,
    }
}

fn awaited(label: &str) -> Profile {
    Profile {
        credential: Credential::Awaited { signs: false },
        ..profile(label, None, 1_000_000_000)
    }
}

/// Returns a world with the renewed profile `a`, which is preferred, and the fixed profiles of `others`.
fn world(script: &Script, others: &str) -> World {
    let fixed = others.split_inclusive(|_| true).map(|label| profile(label, None, 1));
    let profiles: Vec<Profile> = std::iter::once(awaited("a")).chain(fixed).collect();
    let world = World::with(|builder| {
        pooled(builder, &profiles);
        let of_upstream = [("a".to_owned(), source())].into();
        builder.sources.insert(UPSTREAM.to_owned(), of_upstream);
    });
    world.otherwise(|_| fine());
    drop(spawn(renew_forever(renewed(&world.shared.profiles), script.clone())));
    world
}

fn renewed(profiles: &Profiles) -> RenewedProfile {
    RenewedProfile::new(profiles.pool(UPSTREAM).credential(0), &source()).unwrap()
}

/// Sends a request of its own session. Returns its status, and the labels or numbers of the credentials used for it.
async fn reached(world: &World, number: usize) -> (u16, String) {
    let before = world.requests().len();
    let answer = world.ask(ask(&format!("s{number}"), number)).await;
    let used = world.requests().split_off(before);
    (
        answer.status(),
        used.iter().map(|request| key(&request.message)).collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_its_end_without_a_failed_request() {
    let script = Script::new(&[(2, Ok(Some(HOUR)))]);
    let world = world(&script, "");
    // The first request comes before the first token, and waits for it.
    assert_eq!(reached(&world, 0).await, (200, "1".to_owned()));
    assert_eq!(world.now().as_secs(), 2);
    let mut seen = vec!["1".to_owned()];
    for number in 1..60 {
        world.until(secs(number * 300)).await;
        let (status, token) = reached(&world, usize::try_from(number).unwrap()).await;
        assert_eq!(status, 200, "{number}");
        if seen.last() != Some(&token) {
            seen.push(token);
        }
    }
    // Five hours, a token every 48 minutes.
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_source_leaves_the_old_token_until_its_end_and_then_the_other_profiles() {
    let script = Script::new(&[(0, Ok(Some(HOUR))), (1, Err(SourceFailure::ExitStatus(7)))]);
    let world = world(&script, "b");
    world.settle().await;
    assert_eq!(reached(&world, 0).await, (200, "1".to_owned()));
    world.until(secs(3590)).await;
    assert!(script.runs() > 3, "retried with a delay");
    assert!(script.runs() < 12, "{} runs", script.runs());
    assert_eq!(reached(&world, 1).await, (200, "1".to_owned()), "valid until its end");
    world.until(secs(3601)).await;
    assert_eq!(reached(&world, 2).await, (200, "b".to_owned()));
    assert_eq!(view(&world, UPSTREAM, "a").state, ProfileState::Disabled);
    // The lane that had the renewed profile moves on too.
    assert_eq!(reached(&world, 0).await, (200, "b".to_owned()));
    let status = world.shared.profiles.pool(UPSTREAM).credential_statuses();
    assert_eq!(status[0].as_ref().unwrap().last_failure, Some("exit_status"));
    assert_eq!(status[1], None);
}

#[tokio::test(start_paused = true)]
async fn without_any_credential_the_error_says_what_failed_and_a_token_ends_it() {
    let mut runs = vec![(1, Err(SourceFailure::ExitStatus(7)))];
    runs.extend([(40, Err(SourceFailure::Unreadable)), (0, Ok(None))]);
    let script = Script::new(&runs);
    let world = world(&script, "");
    let answer = world.ask(ask("s", 0)).await;
    assert_eq!(
        (answer.status(), world.now().as_secs()),
        (503, 1),
        "it waits for the first run only"
    );
    assert_eq!(answer.header("x-antiphon-fault"), Some("proxy"));
    for part in [
        "profile a",
        "token_command failed with exit status 7",
        "run the command",
    ] {
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    assert!(world.requests().is_empty(), "nothing is sent without a credential");
    // The second run hangs and is ended after 30 seconds.
    world.until(secs(37)).await;
    let answer = world.ask(ask("s", 1)).await;
    assert!(
        answer.text().contains("did not finish within 30 s"),
        "{}",
        answer.text()
    );
    world.until(secs(60)).await;
    assert_eq!(reached(&world, 2).await, (200, "3".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_ends_the_cooldowns_of_the_token_but_not_those_of_the_account() {
    let script = Script::new(&[(0, Ok(Some(HOUR)))]);
    let world = world(&script, "b");
    world.settle().await;
    // A rate limit that lasts beyond the renewal, and then a model that the token may not use.
    world.script(limited("7200"));
    assert_eq!(reached(&world, 0).await.0, 200);
    world.until(secs(2870)).await;
    let other = body(1).replace(r#""model":"m""#, r#""model":"n""#);
    world.script(error(403, &[], FORBIDDEN));
    assert_eq!(world.ask(of_session("s", MESSAGES, &[], &other)).await.status(), 200);
    let reasons = || -> Vec<&str> { cooldowns(&world, UPSTREAM, "a").iter().map(|rest| rest.0).collect() };
    assert_eq!(
        reasons(),
        [CooldownReason::Permission.label(), CooldownReason::RateLimit.label()]
    );
    world.until(secs(2881)).await;
    assert_eq!(script.runs(), 2);
    assert_eq!(reasons(), [CooldownReason::RateLimit.label()]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_renewed_early() {
    let script = Script::new(&[(0, Ok(Some(HOUR)))]);
    let world = world(&script, "b");
    world.until(secs(300)).await;
    world.script(error(401, &[], UNKNOWN));
    assert_eq!(reached(&world, 0).await, (200, "1b".to_owned()));
    world.settle().await;
    assert_eq!((script.runs(), cooldowns(&world, UPSTREAM, "a").len()), (2, 0));
    // A new token that is refused at once is not replaced before a minute has passed.
    world.script(error(401, &[], UNKNOWN));
    assert_eq!(reached(&world, 1).await, (200, "2b".to_owned()));
    world.until(secs(350)).await;
    assert_eq!((script.runs(), cooldowns(&world, UPSTREAM, "a").len()), (2, 0));
    world.until(secs(362)).await;
    assert_eq!((script.runs(), cooldowns(&world, UPSTREAM, "a").len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_old_token_does_not_count_against_the_new_one() {
    let script = Script::new(&[(0, Ok(Some(HOUR)))]);
    let world = world(&script, "b");
    world.until(secs(2870)).await;
    // The answer comes when the token has been renewed.
    world.script([vec![wait(20)], error(401, &[], UNKNOWN)].concat());
    assert_eq!(reached(&world, 0).await, (200, "1b".to_owned()));
    assert_eq!((script.runs(), cooldowns(&world, UPSTREAM, "a").len()), (2, 0));
    assert_eq!(reached(&world, 1).await, (200, "2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn another_key_has_no_cooldown_and_no_learned_organisation() {
    let world = World::with(|builder| pooled(builder, &strangers("ab")));
    world.otherwise(|_| error(200, &[("anthropic-organization-id", "org-1")], "{}"));
    assert_eq!(reached(&world, 0).await, (200, "a".to_owned()));
    world.script(limited("7200"));
    assert_eq!(reached(&world, 0).await, (200, "ab".to_owned()));
    let status = view(&world, UPSTREAM, "a");
    assert_eq!(
        (status.cooldowns.len(), status.organisation.as_deref()),
        (1, Some("org-1"))
    );
    let replace = |text: &str| {
        let key = Credential::Key(Secret::new(format!("{CANARY}{text}")));
        world.shared.profiles.pool(UPSTREAM).credential(0).replace(key);
    };
    replace("c");
    let status = view(&world, UPSTREAM, "a");
    assert_eq!((status.cooldowns.len(), status.organisation), (0, None));
    assert_eq!(reached(&world, 1).await, (200, "c".to_owned()));
    // What the old key was refused for does not concern the new one.
    world.script([vec![wait(20)], error(402, &[], BILLED)].concat());
    let (answer, ()) = tokio::join!(reached(&world, 2), async {
        tokio::time::sleep(secs(10)).await;
        replace("d");
    });
    assert_eq!(answer.0, 200);
    assert_eq!(view(&world, UPSTREAM, "a").state, ProfileState::Ready);
}

#[tokio::test(start_paused = true)]
async fn the_error_names_missing_credentials_and_the_cooldowns_of_the_others() {
    let script = Script::new(&[(0, Err(SourceFailure::NotStarted))]);
    let world = world(&script, "b");
    world.settle().await;
    world.script(error(402, &[], BILLED));
    assert_eq!(reached(&world, 0).await, (402, "b".to_owned()));
    let answer = world.ask(ask("s", 1)).await;
    assert_eq!(answer.status(), 503);
    for part in [
        "profile a: its token_command could not be started",
        "in cooldown (billing)",
    ] {
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_token_of_an_unchanged_source() {
    let script = Script::new(&[(0, Ok(Some(HOUR)))]);
    let world = world(&script, "b");
    world.until(secs(1000)).await;
    let build = |source: CredentialSource| {
        let sources = [(UPSTREAM.to_owned(), [("a".to_owned(), source)].into())].into();
        let profiles = [(UPSTREAM.to_owned(), vec![awaited("a"), profile("b", None, 1)])].into();
        let telemetry = Telemetry::default();
        let fresh = Profiles::with_sources([UPSTREAM], profiles, &sources, &RotationSettings::default(), telemetry);
        fresh.inherit_state(&world.shared.profiles);
        fresh
    };
    let state = |profiles: &Profiles| {
        let (_, views) = profiles.profile_statuses(Instant::now().into_std()).swap_remove(0);
        views[0].state
    };
    let kept = build(source());
    assert_eq!(state(&kept), ProfileState::Ready);
    assert!(matches!(
        &kept.pool(UPSTREAM).profile(0).unwrap().credential,
        Credential::Bearer(_)
    ));
    // Its refresh is due when it would have been without the reload: not at once, and not later.
    let again = Script::new(&[(0, Ok(Some(HOUR)))]);
    drop(spawn(renew_forever(renewed(&kept), again.clone())));
    world.until(secs(2879)).await;
    assert_eq!(again.runs(), 0);
    world.until(secs(2881)).await;
    assert_eq!(again.runs(), 1);
    let changed = build(source_of(&["other"]));
    assert_eq!(state(&changed), ProfileState::Disabled);
}
