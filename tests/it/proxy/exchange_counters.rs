//! Every exchange is counted once, under the side that ended it.

use std::time::Duration;

use crate::support::{
    app::{App, before, post},
    wire::{PATIENCE, SSE, Upstream, chunk},
};

const BODY: &str = "{\"messages\":[]}";

/// Returns the sum of all samples whose line starts with `name` and contains every one of `labels`.
fn sum(app: &App, name: &str, labels: &[&str]) -> u64 {
    let text = app.telemetry.encode_metrics();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Waits until `count` exchanges have ended.
async fn ended(app: &App, count: u64) {
    let all = async {
        while sum(app, "antiphon_requests_total", &[]) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("an exchange was not counted");
    assert_eq!(
        sum(app, "antiphon_requests_total", &[]),
        count,
        "{}",
        app.telemetry.encode_metrics()
    );
}

#[tokio::test]
async fn each_exchange_is_counted_once_under_the_side_that_ended_it() {
    let upstream = Upstream::script(|mut conn, _| async move {
        while conn.is_open().await {
            let request = conn.request().await;
            let script = request.header("x-script").unwrap_or_default();
            match script {
                "stream" | "break" | "hang" => {
                    conn.send(SSE).await;
                    conn.send(chunk("data: 1\n\n")).await;
                }
                "wait" => {}
                _ => conn.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await,
            }
            match script {
                "stream" => conn.send("0\r\n\r\n").await,
                "break" => return,
                "hang" | "wait" => drop(conn.rest().await),
                _ => {}
            }
        }
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| builder.proxy.timeouts.idle = Duration::from_millis(80))
        .start()
        .await;
    let scripted = |script: &str| {
        post("/anthropic/v1/messages", BODY).replacen("\r\n\r\n", &format!("\r\nX-Script: {script}\r\n\r\n"), 1)
    };
    for (count, script, outcome) in [
        (1, "plain", "outcome=\"ok\""),
        (2, "stream", "outcome=\"ok\""),
        (3, "break", "outcome=\"network\""),
        (4, "hang", "outcome=\"provider\""),
    ] {
        let before = sum(&app, "antiphon_requests_total", &[outcome]);
        assert_eq!(app.ask(scripted(script)).await.status(), 200);
        ended(&app, count).await;
        assert_eq!(sum(&app, "antiphon_requests_total", &[outcome]), before + 1, "{script}");
    }
    // A client that leaves, during a stream and before the head.
    let mut client = app.client().await;
    client.send(scripted("hang")).await;
    client.until("data: 1\n\n").await;
    assert_eq!(sum(&app, "antiphon_streams_active", &[]), 1);
    drop(client);
    ended(&app, 5).await;
    let mut client = app.client().await;
    client.send(scripted("wait")).await;
    client.finish().await;
    ended(&app, 6).await;
    assert_eq!(sum(&app, "antiphon_requests_total", &["outcome=\"client\""]), 2);
    // Requests that the proxy refuses.
    app.ask("GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    ended(&app, 7).await;
    assert_eq!(sum(&app, "antiphon_requests_total", &["outcome=\"client\""]), 3);
    assert_eq!(sum(&app, "antiphon_streams_active", &[]), 0);
}
