//! Intents: a tool runs once for one intent of a user, whoever asks, and nobody else gets its result.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, ClientTokens, Principal, TokenHash},
    late::{
        ClaimOutcome, ClaimSubject, HeldIntent, Holder, HolderOutcome, IntentClaim, IntentState, IntentUse,
        LateSettings, LateStore, ObservedCall, Resolution, ResolveOutcome, Service, ServiceSettings, ToolSettings,
    },
    ledger::{Ledger, Moment},
    repair::Tier,
    session::{LaneId, SessionStrength, session_hash},
};
use serde_json::{Value, json};

use super::api::{ANN, BEN, OTHER, STRONG, TOOLS, ask, get};
use crate::support::{
    app::{App, before, post_with},
    kept::durable,
    late::{memory, over, service},
    wire::{Message, Upstream},
};
use antiphon::telemetry::Telemetry;

pub(super) const T0: Moment = Duration::from_secs(2_000_000_000);
pub(super) const SECOND: Duration = Duration::from_secs(1);

fn settings() -> LateSettings {
    let tool = |tier, ignored: &[&str]| ToolSettings {
        tier,
        intent: IntentUse::User,
        ignore_input: ignored.iter().map(|pointer| pointer.parse().unwrap()).collect(),
        ..ToolSettings::default()
    };
    LateSettings {
        settling: Duration::ZERO,
        services: vec![
            ServiceSettings {
                on_behalf: true,
                ..service("tools", None, None)
            },
            service("strangers", Some(&["ben"]), Some(&["render"])),
            ServiceSettings {
                on_behalf: true,
                ..service("neighbours", None, None)
            },
        ],
        personal_tokens: ["ann".to_owned(), "ben".to_owned()].into(),
        tools: [
            ("look".to_owned(), tool(Tier::Read, &[])),
            ("render".to_owned(), tool(Tier::Revertible, &["/request_id"])),
            ("deploy".to_owned(), tool(Tier::Durable, &[])),
            ("mail".to_owned(), tool(Tier::OneWay, &[])),
        ]
        .into(),
        ..LateSettings::default()
    }
}

pub(super) async fn world(ledger: Arc<dyn Ledger>) -> (Upstream, App) {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| {
            let token = |name: &str| (name.to_owned(), TokenHash::hash_token(name.as_bytes()));
            builder.proxy.client_tokens = ClientTokens::new(["ann", "ben", "shared"].map(token).into());
            builder.late = settings();
            builder.ledger = ledger;
        })
        .start()
        .await;
    for who in [ANN, BEN, &[("x-antiphon-client-token", "shared")]] {
        let answer = app.ask(post_with("/anthropic/v1/messages", who, b"{}")).await;
        assert_eq!(answer.status(), 200);
    }
    (upstream, app)
}

pub(super) fn caller(late: &LateStore, name: &str) -> Caller {
    Caller::of_account(Principal::of_token(late.principal_key(), name))
}

pub(super) async fn record(late: &LateStore, name: &str, session: &str, id: &str, tool: &str, input: &Value) {
    let caller = caller(late, name);
    let input = input.to_string();
    let call = ObservedCall {
        lane: Some(LaneId::main_lanes(&caller, session)[0]),
        session: Some(session_hash(caller.principal(), session.as_bytes())),
        session_label: None,
        strength: SessionStrength::Strong,
        id: id.as_bytes().to_vec(),
        tool: tool.as_bytes().to_vec(),
        input: Some(antiphon::repair::input_hash(input.as_bytes())),
        intent_input: Some(late.intents().input_digest(tool.as_bytes(), input.as_bytes())),
        origin: None,
        is_emitted: true,
    };
    late.calls().record_calls(caller, [call]);
    late.flush_updates().await;
}

pub(super) async fn claim(app: &App, body: &Value) -> Message {
    ask(app, "intents", TOOLS, &body.to_string()).await
}

#[track_caller]
pub(super) fn is_problem(answer: &Message, status: u16, kind: &str) {
    assert_eq!(answer.status(), status, "{} {}", answer.head, answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let body = answer.json();
    assert_eq!(body["type"], format!("urn:antiphon:intent:{kind}"), "{body}");
    assert_eq!(body["status"], status);
    assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
}

fn of_user(user: &str, tool: &str, input: &Value) -> Value {
    json!({"user": user, "tool": tool, "input": input})
}

#[tokio::test]
async fn a_claim_is_granted_once_and_then_replayed() {
    let (_upstream, app) = world(durable()).await;
    let effect = of_user("u1", "deploy", &json!({"to": "prod", "at": 1.0}));
    let granted = claim(&app, &effect).await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    let granted = granted.json();
    assert_eq!(granted["scope"], "user");
    assert!(granted["window_until"].as_u64() >= granted["lease_until"].as_u64());

    let second = claim(&app, &of_user("u1", "deploy", &json!({"at": 1, "to": "prod"}))).await;
    is_problem(&second, 409, "in-flight");
    assert!(
        second
            .header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 0)
    );
    assert_eq!(second.json()["claimed_by_you"], true);
    assert_eq!(second.json()["intent"], granted["intent"]);
    // Another input is another intent, and so is that of another user.
    for other in [
        of_user("u1", "deploy", &json!({"to": "test"})),
        of_user("u2", "deploy", &effect["input"]),
    ] {
        assert_eq!(claim(&app, &other).await.status(), 201);
    }

    let path = |what: &str| format!("intents/{}/{what}", granted["intent"].as_str().unwrap());
    let claimed = json!({"claim": granted["claim"]}).to_string();
    let beat = ask(&app, &path("heartbeat"), TOOLS, &claimed).await;
    assert_eq!((beat.status(), &beat.json()["state"]), (200, &json!("claimed")));
    let report = json!({"claim": granted["claim"], "content": {"n": 1.0}});
    let wrong = json!({"claim": "claim_00000000000000000000000000000000", "content": 1});
    is_problem(
        &ask(&app, &path("result"), TOOLS, &wrong.to_string()).await,
        409,
        "stale-claim",
    );
    for first in [true, false] {
        let settled = ask(&app, &path("result"), TOOLS, &report.to_string()).await;
        assert_eq!(settled.status(), 200, "{}", settled.text());
        assert_eq!(settled.json()["first"], first);
    }
    let other = json!({"claim": granted["claim"], "content": 2});
    assert_eq!(
        ask(&app, &path("result"), TOOLS, &other.to_string()).await.status(),
        409
    );

    let replayed = claim(&app, &effect).await;
    assert_eq!(
        (replayed.status(), replayed.header("idempotent-replayed")),
        (200, Some("true"))
    );
    assert!(
        replayed.text().contains(r#""content":{"n":1.0}"#),
        "{}",
        replayed.text()
    );
    assert_eq!(replayed.json()["result"]["is_error"], false);
    let shown = get(&app, &path("")[..path("").len() - 1], TOOLS).await.json();
    assert_eq!(shown["state"], "settled");
    assert_eq!(shown["result"]["content"], json!({"n": 1.0}));

    // The user wants it twice.
    let fields = [TOOLS[0], ("x-antiphon-intent", "new")];
    let again = ask(&app, "intents", &fields, &effect.to_string()).await;
    assert_eq!(again.status(), 201, "{}", again.text());
    assert_ne!(again.json()["idempotency_key"], granted["idempotency_key"]);
    // But not while that runs.
    is_problem(
        &ask(&app, "intents", &fields, &effect.to_string()).await,
        409,
        "in-flight",
    );
}

#[tokio::test]
async fn a_chosen_key_names_one_input() {
    let (_upstream, app) = world(durable()).await;
    let fields = [TOOLS[0], ("idempotency-key", "\"order 7\"")];
    let send = async |input: Value| ask(&app, "intents", &fields, &of_user("u", "mail", &input).to_string()).await;
    assert_eq!(send(json!({"n": 1})).await.status(), 201);
    is_problem(&send(json!({"n": 2})).await, 422, "payload-mismatch");
    is_problem(&send(json!({"n": 1})).await, 409, "in-flight");
    let bare = [TOOLS[0], ("idempotency-key", "order 7")];
    is_problem(
        &ask(
            &app,
            "intents",
            &bare,
            &of_user("u", "mail", &json!({"n": 1})).to_string(),
        )
        .await,
        409,
        "in-flight",
    );
    for wrong in ["", "\"\"", &"k".repeat(256)] {
        let fields = [TOOLS[0], ("idempotency-key", wrong)];
        let refused = ask(&app, "intents", &fields, &of_user("u", "mail", &json!({})).to_string()).await;
        assert_eq!(
            (refused.status(), &refused.json()["code"]),
            (422, &json!("malformed")),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn thirty_two_claims_at_once_have_one_grant() {
    let (_upstream, app) = world(durable()).await;
    let app = Arc::new(app);
    let effect = of_user("u", "mail", &json!({"to": "x"}));
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (app, effect) = (Arc::clone(&app), effect.clone());
        claims.spawn(async move { claim(&app, &effect).await.status() });
    }
    let answers = claims.join_all().await;
    assert_eq!(
        answers.iter().filter(|status| **status == 201).count(),
        1,
        "{answers:?}"
    );
    assert_eq!(
        answers.iter().filter(|status| **status == 409).count(),
        31,
        "{answers:?}"
    );
}

#[tokio::test]
async fn a_call_and_its_intent_settle_each_other() {
    let (_upstream, app) = world(durable()).await;
    let input = json!({"to": "prod"});
    record(&app.late, "ann", "s1", STRONG, "deploy", &input).await;
    record(&app.late, "ann", "s2", OTHER, "deploy", &input).await;
    let of_call = |id: &str| json!({"call_id": id, "owner": super::api::owner(&app, "ann")});
    let granted = claim(&app, &of_call(STRONG)).await;
    assert_eq!(
        (granted.status(), &granted.json()["scope"]),
        (201, &json!("user")),
        "{}",
        granted.text()
    );
    // The user started over: the same intent, in another conversation.
    is_problem(&claim(&app, &of_call(OTHER)).await, 409, "in-flight");
    let posted = ask(
        &app,
        &format!("calls/{STRONG}/result"),
        TOOLS,
        r#"{"content": "deployed"}"#,
    )
    .await;
    assert_eq!(posted.status(), 200, "{}", posted.text());
    for id in [STRONG, OTHER] {
        let replayed = claim(&app, &of_call(id)).await;
        assert_eq!(
            (replayed.status(), &replayed.json()["result"]["content"]),
            (200, &json!("deployed")),
            "{id}"
        );
        assert_eq!(replayed.json()["intent"], granted.json()["intent"]);
    }
    // The other way round.
    let third = "toolu_01C19r80rw80mr826744mr8Zz";
    record(&app.late, "ann", "s3", third, "deploy", &json!({"to": "test"})).await;
    let granted = claim(&app, &of_call(third)).await.json();
    let path = format!("intents/{}/result", granted["intent"].as_str().unwrap());
    let report = json!({"claim": granted["claim"], "content": "tested"});
    assert_eq!(ask(&app, &path, TOOLS, &report.to_string()).await.status(), 200);
    let found = ask(&app, "lookup", ANN, &json!({"call_ids": [third]}).to_string()).await;
    assert_eq!(found.json()["results"][0]["content"], "tested", "{}", found.text());
    // The owner reads its intent, and nobody else does.
    let path = format!("intents/{}", granted["intent"].as_str().unwrap());
    assert_eq!(get(&app, &path, ANN).await.json()["state"], "settled");
    is_problem(&get(&app, &path, BEN).await, 404, "not-found");
    is_problem(
        &get(&app, &path, &[("authorization", "Bearer token of strangers")]).await,
        404,
        "not-found",
    );
}

#[tokio::test]
async fn intents_of_other_callers_and_unknown_users_are_their_own() {
    let (_upstream, app) = world(durable()).await;
    let input = json!({"film": 1, "request_id": "a"});
    let ids: Vec<String> = (0..5).map(|n| format!("toolu_01D{n}9r80rw80mr826744mr8ZzQq")).collect();
    let calls = [
        ("ann", "s1"),
        ("ben", "s1"),
        ("shared", "s1"),
        ("shared", "s2"),
        ("shared", "s1"),
    ];
    for (n, (id, (name, session))) in ids.iter().zip(calls).enumerate() {
        let input = json!({"film": 1, "request_id": n});
        record(&app.late, name, session, id, "render", &input).await;
    }
    drop(input);
    let mut intents = Vec::new();
    for (id, (name, session)) in ids.iter().zip(calls) {
        let body = json!({"call_id": id, "owner": super::api::owner(&app, name)});
        let answer = claim(&app, &body).await;
        let scope = answer.json()["scope"].clone();
        intents.push(answer.json()["intent"].clone());
        match intents.len() {
            5 => is_problem(&answer, 409, "in-flight"),
            _ => assert_eq!(answer.status(), 201, "{name} {session} {}", answer.text()),
        }
        let wanted = if name == "shared" { "session" } else { "user" };
        assert!(intents.len() == 5 || scope == wanted, "{name} {scope}");
    }
    // The fifth is the third: the request id makes no difference.
    assert_eq!(intents[4], intents[2]);
    // A service without the right claims nothing. A caller claims effects of its own, and no calls.
    let body = json!({"call_id": ids[0], "owner": super::api::owner(&app, "ann")}).to_string();
    is_problem(
        &ask(
            &app,
            "intents",
            &[("authorization", "Bearer token of strangers")],
            &body,
        )
        .await,
        404,
        "not-found",
    );
    let refused = ask(&app, "intents", ANN, &body).await;
    assert_eq!(refused.status(), 422, "{}", refused.text());
    let effect = of_user("u", "render", &json!({}));
    let refused = ask(
        &app,
        "intents",
        &[("authorization", "Bearer token of strangers")],
        &effect.to_string(),
    )
    .await;
    assert_eq!(
        (refused.status(), &refused.json()["code"]),
        (403, &json!("not_on_behalf")),
        "{}",
        refused.text()
    );
}

/// Users of a service are no one else's, also if the other service answers for every caller and tool.
#[tokio::test]
async fn an_intent_for_a_user_of_a_service_belongs_to_that_service() {
    let (_upstream, app) = world(durable()).await;
    let granted = claim(&app, &of_user("u-1", "render", &json!({"film": 1}))).await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    let secret = granted.json()["claim"].clone();
    let path = format!("intents/{}", granted.json()["intent"].as_str().unwrap());
    let neighbours = [("authorization", "Bearer token of neighbours")];
    let report = |more: Value| {
        let mut body = json!({"claim": secret});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let reads = async |who: &[(&str, &str)]| get(&app, &path, who).await;
    assert_eq!(reads(&neighbours).await.status(), 404);
    for (end, more) in [
        ("heartbeat", json!({})),
        ("result", json!({"content": "x"})),
        ("cancel", json!({})),
    ] {
        let answer = ask(&app, &format!("{path}/{end}"), &neighbours, &report(more)).await;
        assert_eq!(answer.status(), 404, "{end} {}", answer.text());
    }
    let settled = ask(
        &app,
        &format!("{path}/result"),
        TOOLS,
        &report(json!({"content": "film 1"})),
    )
    .await;
    assert_eq!(settled.status(), 200, "{}", settled.text());
    assert_eq!(reads(&neighbours).await.status(), 404);
    assert_eq!(reads(TOOLS).await.json()["result"]["content"], "film 1");
}

#[tokio::test]
async fn nothing_is_granted_without_a_durable_ledger() {
    let (_upstream, app) = world(memory()).await;
    let refused = claim(&app, &of_user("u", "mail", &json!({}))).await;
    is_problem(&refused, 503, "no-durable-ledger");
    assert!(refused.header("retry-after").is_some());
}

/// A store with a clock of its own.
pub(super) struct Shop {
    pub(super) late: LateStore,
    service: Service,
}

impl Shop {
    pub(super) fn new() -> Self {
        let ledger = durable();
        let (late, _) = over(&ledger, settings(), Telemetry::default());
        let service = late.services()[0].clone();
        Self { late, service }
    }

    pub(super) async fn claim(&self, tool: &str, lease: Duration, now: Moment) -> ClaimOutcome {
        self.claim_with(tool, lease, now, |_| ()).await
    }

    pub(super) async fn claim_with(
        &self,
        tool: &str,
        lease: Duration,
        now: Moment,
        change: impl FnOnce(&mut IntentClaim<'_>),
    ) -> ClaimOutcome {
        let mut claim = IntentClaim {
            subject: ClaimSubject::OnBehalf {
                service: &self.service,
                user: b"u",
                tool: tool.as_bytes(),
                input: b"{}",
            },
            chosen_key: None,
            tier: None,
            window: None,
            lease: Some(lease),
            run_again: false,
            retry_failed: false,
        };
        change(&mut claim);
        self.late.intents().claim(&claim, now).await.unwrap()
    }

    pub(super) async fn settle(&self, outcome: &ClaimOutcome, failed: bool, now: Moment) -> HolderOutcome {
        let ClaimOutcome::Granted(granted) = outcome else {
            panic!("{outcome:?}")
        };
        let held = HeldIntent {
            holder: Holder::Service(&self.service),
            id: granted.intent,
            claim: granted.claim.as_str().as_bytes(),
        };
        self.late
            .intents()
            .post_result(&held, "1".to_owned(), failed, now)
            .await
            .unwrap()
    }
}

/// A claim makes the tier of its tool stricter, and never less strict.
#[tokio::test]
async fn a_claim_may_ask_for_more_care_than_the_configuration() {
    let shop = Shop::new();
    for (tool, tier, is_unknown) in [
        ("deploy", None, false),
        ("deploy", Some(Tier::Read), false),
        ("deploy", Some(Tier::OneWay), true),
        ("mail", Some(Tier::Read), true),
        ("mail", None, true),
    ] {
        let shop = &shop;
        let claim = |at: Moment| {
            let key = format!("{tool} {tier:?}");
            async move {
                shop.claim_with(tool, SECOND, at, |claim| {
                    claim.tier = tier;
                    claim.subject = match claim.subject {
                        ClaimSubject::OnBehalf {
                            service, tool, input, ..
                        } => ClaimSubject::OnBehalf {
                            service,
                            user: key.leak().as_bytes(),
                            tool,
                            input,
                        },
                        other => other,
                    };
                })
                .await
            }
        };
        assert!(matches!(claim(T0).await, ClaimOutcome::Granted(_)));
        let later = claim(T0 + SECOND * 2).await;
        let found = matches!(later, ClaimOutcome::OutcomeUnknown { .. });
        assert_eq!(found, is_unknown, "{tool} {tier:?}: {later:?}");
    }
}

#[tokio::test]
async fn a_lease_that_ends_is_taken_over_but_never_that_of_a_one_way_tool() {
    let shop = Shop::new();
    for tool in ["look", "render", "deploy"] {
        let first = shop.claim(tool, SECOND * 10, T0).await;
        assert!(matches!(
            shop.claim(tool, SECOND, T0 + SECOND * 9).await,
            ClaimOutcome::InFlight { .. }
        ));
        let second = shop.claim(tool, SECOND * 10, T0 + SECOND * 10).await;
        let (ClaimOutcome::Granted(one), ClaimOutcome::Granted(other)) = (&first, &second) else {
            panic!("{first:?} {second:?}")
        };
        assert_eq!(one.idempotency_key, other.idempotency_key);
        assert_eq!(
            shop.settle(&first, false, T0 + SECOND * 11).await,
            HolderOutcome::StaleClaim
        );
        assert!(matches!(
            shop.settle(&second, false, T0 + SECOND * 11).await,
            HolderOutcome::Accepted { .. }
        ));
    }
    let first = shop.claim("mail", SECOND * 10, T0).await;
    let ClaimOutcome::Granted(granted) = &first else {
        panic!("{first:?}")
    };
    // Not after a year, and not for a user who wants it twice.
    for later in [SECOND * 10, SECOND * 31_557_600] {
        let again = shop.claim_with("mail", SECOND, T0 + later, |claim| {
            (claim.run_again, claim.retry_failed) = (true, true);
        });
        assert!(matches!(again.await, ClaimOutcome::OutcomeUnknown { .. }));
    }
    let intents = shop.late.intents();
    let listed = intents
        .list(&[IntentState::Unknown], None, 10, T0 + SECOND * 10)
        .await
        .unwrap();
    assert_eq!(
        listed.rows.iter().map(|listed| listed.id).collect::<Vec<_>>(),
        [granted.intent]
    );
    let resolved = intents
        .resolve(granted.intent, Resolution::NotRun, T0 + SECOND * 20)
        .await
        .unwrap();
    assert_eq!(resolved, ResolveOutcome::Resolved(IntentState::Cancelled));
    // The first holder has come back too late: a human has decided.
    assert_eq!(
        shop.settle(&first, false, T0 + SECOND * 21).await,
        HolderOutcome::StaleClaim
    );
    let second = shop.claim("mail", SECOND * 10, T0 + SECOND * 22).await;
    // Its lease ends, but what it knows is the truth.
    assert!(matches!(
        shop.settle(&second, false, T0 + SECOND * 90).await,
        HolderOutcome::Accepted { .. }
    ));
    assert!(matches!(
        shop.claim("mail", SECOND, T0 + SECOND * 91).await,
        ClaimOutcome::Replayed(_)
    ));
    assert_eq!(
        intents
            .resolve(granted.intent, Resolution::Done, T0 + SECOND * 92)
            .await
            .unwrap(),
        ResolveOutcome::NotUnknown(IntentState::Settled)
    );
}

#[tokio::test]
async fn a_resolved_run_is_replayed_without_a_result() {
    let shop = Shop::new();
    let first = shop.claim("mail", SECOND, T0).await;
    let ClaimOutcome::Granted(granted) = &first else {
        panic!("{first:?}")
    };
    let resolved = shop
        .late
        .intents()
        .resolve(granted.intent, Resolution::Done, T0 + SECOND)
        .await
        .unwrap();
    assert_eq!(resolved, ResolveOutcome::Resolved(IntentState::Settled));
    let ClaimOutcome::Replayed(replayed) = shop.claim("mail", SECOND, T0 + SECOND * 2).await else {
        panic!()
    };
    assert_eq!((replayed.content, replayed.failed), (None, false));
}

#[tokio::test]
async fn the_window_slides_from_the_settle_and_a_claim_can_only_lengthen_it() {
    const MINUTE: Duration = Duration::from_secs(60);
    let shop = Shop::new();
    // Each with the window of its tier, in minutes.
    for (tool, window) in [("look", 0), ("render", 10), ("deploy", 60), ("mail", 24 * 60)] {
        let first = shop.claim(tool, MINUTE, T0).await;
        let settled_at = T0 + MINUTE / 2;
        shop.settle(&first, false, settled_at).await;
        let end = settled_at + MINUTE * window;
        if window > 0 {
            let shorter = shop.claim_with(tool, MINUTE, end.saturating_sub(SECOND), |claim| {
                claim.window = Some(SECOND);
            });
            assert!(matches!(shorter.await, ClaimOutcome::Replayed(_)), "{tool}");
        }
        let longer = shop.claim_with(tool, MINUTE, end + SECOND, |claim| {
            claim.window = Some(MINUTE * 60 * 25);
        });
        assert!(matches!(longer.await, ClaimOutcome::Replayed(_)), "{tool}");
        assert!(
            matches!(shop.claim(tool, MINUTE, end).await, ClaimOutcome::Granted(_)),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn a_failed_run_is_repeated_but_that_of_a_one_way_tool_only_on_demand() {
    let shop = Shop::new();
    for tool in ["look", "render", "deploy", "mail"] {
        let first = shop.claim(tool, SECOND * 10, T0).await;
        shop.settle(&first, true, T0).await;
        let again = shop.claim(tool, SECOND * 10, T0 + SECOND).await;
        match (tool, again) {
            ("mail", ClaimOutcome::Replayed(replayed)) => assert!(replayed.failed),
            (_, ClaimOutcome::Granted(_)) => continue,
            (_, other) => panic!("{tool} {other:?}"),
        }
        let again = shop
            .claim_with(tool, SECOND, T0 + SECOND, |claim| claim.retry_failed = true)
            .await;
        assert!(matches!(again, ClaimOutcome::Granted(_)), "{again:?}");
    }
}
