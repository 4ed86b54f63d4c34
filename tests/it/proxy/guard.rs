//! Admission of requests by host, origin, method and target. Everything else is refused before the provider is
//! contacted.

use crate::support::{
    app::before,
    wire::{Message, Upstream},
};

/// Request head without its end, and the expected status.
const ROWS: &[(&str, u16)] = &[
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost", 200),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: LOCALHOST:4747", 200),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: 127.9.9.9:1", 200),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: [::1]:4747", 200),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: llm.internal:80", 200),
    // Host.
    ("GET /openai/v1/models HTTP/1.1", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost:", 400),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost",
        400,
    ),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
        400,
    ),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost, evil.example", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: user@localhost", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost/x", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost:99999", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost:", 400),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: evil.example", 403),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost.evil.example", 403),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: 10.0.0.1", 403),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost",
        403,
    ),
    // Origin.
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example",
        200,
    ),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example",
        403,
    ),
    ("GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: null", 403),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\nOrigin: null",
        403,
    ),
    (
        "OPTIONS /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example",
        204,
    ),
    (
        "OPTIONS /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example",
        403,
    ),
    // Method and target.
    ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443", 405),
    ("CONNECT localhost:443 HTTP/1.1\r\nHost: localhost", 405),
    ("TRACE /openai/v1/models HTTP/1.1\r\nHost: localhost", 405),
    (
        "GET http://evil.example/openai/v1/models HTTP/1.1\r\nHost: evil.example",
        400,
    ),
    ("GET http://localhost/openai/v1/models HTTP/1.1\r\nHost: localhost", 400),
    ("GET * HTTP/1.1\r\nHost: localhost", 400),
    ("OPTIONS * HTTP/1.1\r\nHost: localhost", 400),
    ("GET /openai/../v1/models HTTP/1.1\r\nHost: localhost", 400),
    ("GET /openai/v1%2fmodels HTTP/1.1\r\nHost: localhost", 400),
    ("GET /nowhere HTTP/1.1\r\nHost: localhost", 404),
    // Upgrades and expectations.
    (
        "GET /openai/v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket",
        426,
    ),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c",
        200,
    ),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nExpect: 200-ok",
        417,
    ),
    (
        "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nX-Antiphon-Mode: lenient",
        400,
    ),
];

#[tokio::test]
async fn each_row_gets_its_status_and_only_accepted_rows_go_upstream() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    for (head, status) in ROWS {
        let seen = upstream.requests().len();
        let answer = app.ask(format!("{head}\r\n\r\n")).await;
        assert_eq!(answer.status(), *status, "{head:?} gave {answer:?}");
        assert_eq!(
            upstream.requests().len() - seen,
            usize::from(*status == 200),
            "{head:?}"
        );
        if *status >= 400 {
            assert_client_error(&answer);
        }
    }
}

fn assert_client_error(answer: &Message) {
    assert_eq!(answer.header("x-antiphon-fault"), Some("client"), "{answer:?}");
    assert_eq!(answer.header("x-antiphon-phase"), Some("request"));
    assert!(
        answer
            .header("proxy-status")
            .is_some_and(|status| status.starts_with("antiphon; error=http_request_"))
    );
    assert!(answer.header("x-antiphon-request-id").is_some());
    assert!(answer.header("access-control-allow-origin").is_none());
    assert!(answer.json()["error"]["message"].is_string(), "{answer:?}");
}

#[tokio::test]
async fn no_byte_after_an_upgrade_goes_upstream() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client
        .send(
            "GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\
             \x01\x02smuggled /openai HTTP/1.1\r\n\r\n",
        )
        .await;
    assert_eq!(client.response().await.status(), 426);
    client.rest().await;
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn an_unknown_path_names_the_right_base_urls() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let answer = app
        .ask("POST /chat HTTP/1.1\r\nHost: localhost:4747\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    for base in [
        "http://localhost:4747/anthropic",
        "http://localhost:4747/openai/v1",
        "http://localhost:4747/gemini",
    ] {
        assert!(message.contains(base), "{message}");
    }
}

#[tokio::test]
async fn preflights_of_allowed_origins_get_no_more_access() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let answer = app
        .ask("OPTIONS /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n\r\n")
        .await;
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST")));
    assert!(answer.header("access-control-allow-origin").is_none());
}
