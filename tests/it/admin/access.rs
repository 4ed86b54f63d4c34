//! Access to the admin listener: origins, wrong tokens, and what the configuration shows of tokens.

use antiphon::{
    api::admin::{AdminService, Readiness},
    auth::TokenHash,
};
use http::{Method, StatusCode};

use super::api::{Ask, answer, get, with_token};
use crate::support::{app::admin, binary::Install, wire::Conn};

/// Returns a request to reload from a page of `origin`, which calls the listener under `host`.
fn reload<'a>(fields: &'a [(&'a str, &'a str)]) -> Ask<'a> {
    Ask {
        method: Method::POST,
        ..get("/admin/v1/reload", fields)
    }
}

#[tokio::test]
async fn only_the_listeners_own_pages_may_call_it() {
    let router = AdminService::new(admin(Readiness::new()));
    let rows = [
        ("127.0.0.1:4748", "http://127.0.0.1:4748", true),
        ("localhost:4748", "http://localhost:4748", true),
        ("LOCALHOST:4748", "http://localhost:4748", true),
        ("[::1]:4748", "http://[::1]:4748", true),
        // Behind a server with TLS.
        ("admin.example", "https://admin.example", true),
        // Other pages of this machine.
        ("127.0.0.1:4748", "http://127.0.0.1:5173", false),
        ("127.0.0.1:4748", "http://localhost:4748", false),
        ("localhost:4748", "http://localhost:3000", false),
        ("localhost:4748", "http://localhost", false),
        ("localhost:4748", "http://127.0.0.1:4748", false),
        ("localhost:4748", "http://[::1]:8080", false),
        ("localhost:4748", "http://sub.localhost:4748", false),
        ("localhost:4748", "file://", false),
        ("localhost:4748", "null", false),
        ("localhost:4748", "http://localhost:4748.evil.example", false),
        ("localhost:4748", "http://user@localhost:4748", false),
    ];
    for (host, origin, is_allowed) in rows {
        let fields = [("host", host), ("origin", origin)];
        for ask in [
            reload(&fields),
            get("/admin/v1/status", &fields),
            get("/livez", &fields),
        ] {
            let told = format!("{} {} from {origin} at {host}", ask.method, ask.path);
            let (status, _, text) = answer(&router, ask).await;
            assert_eq!(status != StatusCode::FORBIDDEN, is_allowed, "{told}: {text}");
        }
    }
}

/// Returns the fields of a request with this token.
fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test(start_paused = true)]
async fn ten_wrong_tokens_a_minute_slow_their_address_down() {
    let router = AdminService::new(with_token());
    let right = [("authorization", "Bearer the token")];
    for guess in 0..10 {
        let guess = bearer(&guess.to_string());
        let (status, ..) = answer(&router, get("/metrics", &[("authorization", &guess)])).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{guess}");
    }
    tokio::time::advance(std::time::Duration::from_secs(20)).await;
    // A guess must not be told from another, so the right one has to wait too.
    for fields in [&[("authorization", "Bearer 11")], &right] {
        for path in ["/admin/v1/status", "/metrics", "/admin/v1/openapi.json"] {
            let (status, head, text) = answer(&router, get(path, fields)).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{path}: {text}");
            assert_eq!(head["retry-after"], "40");
            assert!(text.contains("\"too_many_attempts\""), "{text}");
        }
    }
    // Health checks and the page need no token. A request without one is no guess.
    for path in ["/", "/livez", "/readyz"] {
        assert_eq!(answer(&router, get(path, &[])).await.0, StatusCode::OK, "{path}");
    }
    let (status, ..) = answer(&router, get("/admin/v1/status", &[])).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    tokio::time::advance(std::time::Duration::from_secs(41)).await;
    assert_eq!(answer(&router, get("/admin/v1/status", &right)).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn one_stale_token_sent_again_and_again_locks_nobody_out() {
    let router = AdminService::new(with_token());
    let stale = [("authorization", "Bearer of last year")];
    for attempt in 0..30 {
        let wanted = if attempt < 10 {
            StatusCode::UNAUTHORIZED
        } else {
            StatusCode::TOO_MANY_REQUESTS
        };
        assert_eq!(answer(&router, get("/metrics", &stale)).await.0, wanted, "{attempt}");
    }
    let right = [("authorization", "Bearer the token")];
    assert_eq!(answer(&router, get("/admin/v1/status", &right)).await.0, StatusCode::OK);
    // Without a token nothing was tried.
    for _ in 0..30 {
        assert_eq!(answer(&router, get("/metrics", &[])).await.0, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn another_address_is_not_slowed_down() {
    let token = TokenHash::hash_token(b"the token");
    let process = Install::new(&format!("[server]\nadmin_token = \"{token}\"\n"))
        .start()
        .await;
    let socket = || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        socket
    };
    let get =
        |token: &str| format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    let Ok(stream) = socket().connect(process.admin).await else {
        println!("skipped: this system has one loopback address");
        return;
    };
    let mut other = Conn::over(stream);
    for guess in 0..11 {
        other.send(get(&guess.to_string())).await;
        assert_eq!(other.response().await.status(), if guess < 10 { 401 } else { 429 });
    }
    assert_eq!(process.ask_admin(get("the token")).await.status(), 200);
}

#[tokio::test]
async fn the_configuration_does_not_show_hashes_of_tokens() {
    let hashes = ["one", "two", "three"].map(|token| TokenHash::hash_token(token.as_bytes()).to_string());
    let [admin, client, service] = &hashes;
    let config = format!(
        "[server]\nadmin_token = \"{admin}\"\n[client_tokens]\nci = \"{client}\"\n\
         [services.runner]\ntoken = \"{service}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n"
    );
    let install = Install::new(&config);
    let process = install.start().await;
    let request = |method: &str, path: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\n\r\n")
    };
    let shown = async || {
        let shown = process.ask_admin(request("GET", "/admin/v1/config")).await;
        assert_eq!(shown.status(), 200);
        shown.text().to_owned()
    };
    for _ in 0..2 {
        let text = shown().await;
        for hash in &hashes {
            let (kind, hex) = hash.split_once(':').unwrap();
            assert!(!text.contains(&hex[..9]), "{text}");
            // Enough to tell which one is in force.
            assert!(text.contains(&format!("\"{kind}:{}…\"", &hex[..8])), "{text}");
        }
        assert_eq!(
            process.ask_admin(request("POST", "/admin/v1/reload")).await.status(),
            200
        );
    }
}
