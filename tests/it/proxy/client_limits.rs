//! Client tokens: they never reach a provider, and each may have limits of its own.

use std::time::Duration;

use antiphon::auth::{ClientTokens, TokenHash, TokenLimits};

use crate::support::{
    app::get_with,
    pool::{BROKEN, MESSAGES, body, does, fine, of_session, pooled, reached, strangers},
    still::{Step, World, assert_at, events::anthropic, json, say, secs, sse},
    wire::Message,
};

/// The token of the client `ci`.
const TOKEN: &str = "antiphon_ci";
/// The header in which it always may be.
const TOKEN_HEADER: &str = "x-antiphon-client-token";

/// Returns a world in which the client `ci` has these limits, and `dev` has none. `anthropic` has profile `a`, if
/// `is_pool` is set, and all other upstreams pass the client's credential through.
fn world_with(limits: TokenLimits, is_pool: bool) -> World {
    World::with(|builder| {
        if is_pool {
            pooled(builder, &strangers("a"));
            builder.profiles.retain(|name, _| name == "anthropic");
        }
        let token = |name: &str, token: &str| (name.to_owned(), TokenHash::hash_token(token.as_bytes()));
        let tokens = ClientTokens::new(vec![token("ci", TOKEN), token("dev", "antiphon_dev")]);
        builder.proxy.client_tokens = tokens.with_limits([("ci".to_owned(), limits)].into());
    })
}

/// Reports whether any part of a request contains the token.
fn leaks(message: &Message) -> bool {
    format!("{message:?}").contains(TOKEN)
}

/// Headers, query, and the provider's key that arrives; `None` if the request is refused.
type Row<'r> = (&'r [(&'r str, &'r str)], &'r str, Option<&'r str>);

#[tokio::test(start_paused = true)]
async fn a_client_token_never_reaches_a_provider() {
    let bearer = format!("Bearer {TOKEN}");
    let rows: &[Row<'_>] = &[
        (&[("x-api-key", TOKEN)], "", None),
        (&[("x_api_key", TOKEN)], "", None),
        (&[("api-key", TOKEN)], "", None),
        (&[("authorization", &bearer)], "", None),
        (&[("authorization", TOKEN)], "", None),
        (&[("cookie", TOKEN)], "", None),
        (&[], "?key=antiphon_ci", None),
        (&[("x-api-key", "sk-1")], "?k%65y=antiphon%5Fci", None),
        (&[("x-api-key", "sk-1")], "?access_token=antiphon_ci", None),
        (&[(TOKEN_HEADER, TOKEN), ("x-api-key", TOKEN)], "", None),
        (&[("x-api-key", TOKEN), ("authorization", &bearer)], "", None),
        // Beside a key of the provider, the token is removed.
        (&[("x-api-key", "sk-1"), ("authorization", &bearer)], "", Some("sk-1")),
        (&[("x-api-key", "sk-1"), (TOKEN_HEADER, TOKEN)], "", Some("sk-1")),
        (&[("x-api-key", "sk-1")], "?key=other", Some("sk-1")),
        // Another proxy behind this one may have tokens too.
        (
            &[("x-api-key", "antiphon_2"), (TOKEN_HEADER, TOKEN)],
            "",
            Some("antiphon_2"),
        ),
        (
            &[("x-api-key", "antiphon_2"), ("authorization", &bearer)],
            "",
            Some("antiphon_2"),
        ),
    ];
    for (fields, query, arrives) in rows {
        let world = world_with(TokenLimits::default(), false);
        world.otherwise(|_| fine());
        let answer = world
            .ask(of_session("s1", &format!("{MESSAGES}{query}"), fields, &body(0)))
            .await;
        let seen = world.requests();
        assert!(
            !seen.iter().any(|request| leaks(&request.message)),
            "{fields:?} {query}"
        );
        if let Some(key) = arrives {
            assert_eq!((answer.status(), seen.len()), (200, 1), "{fields:?} {query}");
            assert_eq!(seen[0].message.header("x-api-key"), Some(*key));
            continue;
        }
        assert_eq!((answer.status(), seen.len()), (401, 0), "{fields:?} {query}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains("authentication_error"), "{text}");
        assert!(text.contains("upstream anthropic passes your own key on"), "{text}");
        assert!(!text.contains(TOKEN), "{text}");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
}

/// A token that was revoked or mistyped has the prefix of a token, and is no key of the provider.
#[tokio::test(start_paused = true)]
async fn an_unknown_client_token_never_reaches_a_provider() {
    let world = world_with(TokenLimits::default(), false);
    world.otherwise(|_| fine());
    for (fields, query) in [
        (&[("x-api-key", "antiphon_gone")][..], ""),
        (&[("authorization", "Bearer antiphon_gone")], ""),
        (&[("x-api-key", "sk-1"), ("api-key", "antiphon_gone")], ""),
        (&[], "?key=antiphon_gone"),
    ] {
        let request = of_session("s1", &format!("{MESSAGES}{query}"), fields, &body(0));
        let answer = world.ask(request).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(
            (answer.status(), world.requests().len()),
            (401, 0),
            "{fields:?} {query}"
        );
        assert!(
            text.contains("authentication_error") && !text.contains("gone"),
            "{text}"
        );
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_beside_a_key_names_the_caller() {
    let limits = TokenLimits {
        upstreams: vec!["openai".to_owned()],
        ..TokenLimits::default()
    };
    let world = world_with(limits, false);
    world.otherwise(|_| fine());
    let bearer = format!("Bearer {TOKEN}");
    let fields = [("x-api-key", "sk-1"), ("authorization", bearer.as_str())];
    assert_eq!(
        reached(&world, of_session("s1", MESSAGES, &fields, &body(0))).await.1,
        403
    );
    assert_eq!(
        reached(&world, of_session("s1", MESSAGES, &fields[..1], &body(0)))
            .await
            .1,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_may_use_only_its_upstreams() {
    let limits = TokenLimits {
        upstreams: vec!["openai".to_owned()],
        ..TokenLimits::default()
    };
    let world = world_with(limits, true);
    world.otherwise(|_| fine());
    let token = [("x-api-key", TOKEN)];
    let list = get_with("/anthropic/v1/models", &token).into_bytes();
    for request in [of_session("s1", MESSAGES, &token, &body(0)), list] {
        let answer = world.ask(request).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status(), 403, "{text}");
        assert!(text.contains("permission_error"), "{text}");
        assert!(
            text.contains("client token ci may not use upstream anthropic"),
            "{text}"
        );
        assert_eq!(answer.header("x-antiphon-fault"), Some("client"));
    }
    assert!(world.requests().is_empty());
    let other = of_session("s1", MESSAGES, &[("x-api-key", "antiphon_dev")], &body(0));
    assert_eq!(world.ask(other).await.status(), 200);
    let own = [("authorization", "Bearer sk-1"), (TOKEN_HEADER, TOKEN)];
    let openai = get_with("/openai/v1/models", &own);
    assert_eq!(world.ask(openai).await.status(), 200);
}

/// Returns a streamed request.
fn streamed(token: &str) -> Vec<u8> {
    let body = body(0).replace("{\"model\"", "{\"stream\":true,\"model\"");
    of_session("s1", MESSAGES, &[("x-api-key", token)], &body)
}

#[tokio::test(start_paused = true)]
async fn a_token_has_a_limited_number_of_exchanges_at_once() {
    let limits = TokenLimits {
        max_concurrent: Some(1),
        ..TokenLimits::default()
    };
    let world = world_with(limits, true);
    let begun = || say(anthropic::start() + &anthropic::text_start(0));
    let end = || say(anthropic::stop(0) + &anthropic::end("end_turn"));
    // A stream of four seconds: the next waits until its end.
    world.script([sse(), begun(), Step::Wait(secs(4)), end(), Step::End]);
    world.script(fine());
    let mut first = world.client();
    first.send(streamed(TOKEN)).await;
    world.settle().await;
    let (answer, second) = tokio::join!(first.answer(), world.ask(streamed(TOKEN)));
    assert!(answer.complete);
    assert_eq!(second.status(), 200);
    assert_at(second.head_at, secs(4));
    // One that lasts too long: 429 after `rotation.wait`. Others are not concerned.
    world.script([sse(), begun(), Step::Hang]);
    let mut long = world.client();
    long.send(streamed(TOKEN)).await;
    long.head().await;
    let asked_at = world.now();
    let refused = world.ask(streamed(TOKEN)).await;
    assert_eq!(refused.status(), 429);
    assert_at(refused.ended_at, asked_at + secs(10));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("x-antiphon-phase"), Some("queue"));
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(
        text.contains("rate_limit_error") && text.contains("client token ci"),
        "{text}"
    );
    does(&world, &[]);
    assert_eq!(world.ask(streamed("antiphon_dev")).await.status(), 200);
    // A client that leaves frees its place, also one that waits for it.
    let mut waiting = world.client();
    waiting.send(streamed(TOKEN)).await;
    world.until(world.now() + secs(1)).await;
    drop((waiting, long));
    world.settle().await;
    let asked_at = world.now();
    let answer = world.ask(streamed(TOKEN)).await;
    assert_eq!(answer.status(), 200);
    assert_at(answer.head_at, asked_at + Duration::ZERO);
    // So does a refusal by the proxy, and one by the provider.
    does(&world, &[("a", json(400, BROKEN))]);
    let wrong_mode = of_session(
        "s1",
        MESSAGES,
        &[("x-api-key", TOKEN), ("x-antiphon-mode", "x")],
        &body(0),
    );
    for request in [wrong_mode.clone(), streamed(TOKEN), wrong_mode, streamed(TOKEN)] {
        assert_eq!(world.ask(request).await.status(), 400);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_may_have_another_part_of_the_retry_budget() {
    for (percent, retries) in [(Some(0), 0), (Some(1), 8), (None, 100), (Some(5), 40)] {
        let limits = TokenLimits {
            retry_percent: percent,
            ..TokenLimits::default()
        };
        let world = world_with(limits, true);
        does(&world, &[("a", json(500, BROKEN))]);
        let mut retried = 0;
        for number in 0..110 {
            // A model of its own each time, so that no breaker opens.
            let body = body(number).replace("\"m\"", &format!("\"m{number}\""));
            let seen = reached(&world, of_session("s1", MESSAGES, &[("x-api-key", TOKEN)], &body))
                .await
                .0;
            retried += seen.len() - 1;
        }
        assert_eq!(retried, retries, "{percent:?}");
    }
}
