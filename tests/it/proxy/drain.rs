//! The drain: no new connections, and no cut for streams that end in time.

use std::{
    future::pending,
    pin::pin,
    sync::{Arc, mpsc},
    time::Duration,
};

use antiphon::{
    clock,
    server::budget::{BodyPass, BudgetClient},
    server::{Runtimes, Tasks},
};
use bytes::Bytes;
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use tokio::sync::{Notify, oneshot};

use crate::{
    proxy::http2,
    support::{
        app::{before, post},
        pool::{MESSAGES, limited, pooled, strangers},
        still::{Step, World, secs},
        wire::{Client, PATIENCE, SSE, Upstream, chunk, spawn},
    },
};

async fn streaming(gate: Arc<Notify>) -> Upstream {
    Upstream::script(move |mut conn, _| {
        let gate = Arc::clone(&gate);
        async move {
            conn.request().await;
            conn.send(SSE).await;
            conn.send(chunk("data: 1\n\n")).await;
            gate.notified().await;
            conn.send(chunk("data: 2\n\n")).await;
            conn.send("0\r\n\r\n").await;
            conn.rest().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_running_stream_may_finish() {
    let gate = Arc::new(Notify::new());
    let upstream = streaming(Arc::clone(&gate)).await;
    let app = before(upstream.address).start().await;
    let (mut client, mut idle) = (app.client().await, app.client().await);
    client.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    client.until("data: 1\n\n\r\n").await;
    let address = app.running.data;
    let drained = spawn(app.running.drain());
    assert!(idle.is_closed().await, "an idle connection outlives the drain");
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "the drain still accepts"
    );
    assert!(!drained.is_finished());
    gate.notify_one();
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert!(rest.contains("data: 2\n\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
    drained.await.unwrap();
}

/// A load balancer that notices the end late still sends requests, which must not fail.
#[tokio::test]
async fn new_connections_are_served_during_the_drain_delay() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| builder.server.drain_delay = Duration::from_secs(3600))
        .start()
        .await;
    let mut idle = app.client().await;
    let address = app.running.data;
    let drained = spawn(app.running.drain());
    for _ in 0..3 {
        let mut late = Client::connect(address).await;
        late.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
        assert_eq!(late.response().await.status(), 200);
    }
    idle.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    assert_eq!(idle.response().await.status(), 200);
    assert!(!drained.is_finished());
    drained.abort();
}

#[tokio::test]
async fn a_stream_beyond_the_drain_timeout_ends_with_the_error_event_of_its_format() {
    for (path, event) in [
        (
            "/anthropic/v1/messages",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded: the \
             proxy restarts; try again\"}",
        ),
        (
            "/openai/v1/chat/completions",
            "data: {\"error\":{\"message\":\"Overloaded: the proxy restarts; try again\",\"type\":\"overloaded_error\",\
             \"param\":null,\"code\":\"drained\"}}\n\n",
        ),
    ] {
        let upstream = streaming(Arc::default()).await;
        let app = before(upstream.address)
            .with(|builder| builder.server.drain_timeout = Duration::from_millis(50))
            .start()
            .await;
        let mut client = app.client().await;
        client.send(post(path, "{\"messages\":[]}")).await;
        client.until("data: 1\n\n").await;
        app.running.drain().await;
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(rest.contains(event), "{path}: {rest}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{path} ended as if it were whole: {rest}");
    }
}

/// Keeps paused time from moving by itself, for as long as a test may wait. Work on other threads would not hold it.
struct HeldTime(#[expect(dead_code, reason = "its drop ends the blocking task")] mpsc::Sender<()>);

impl HeldTime {
    fn hold() -> Self {
        let (held, end) = mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || end.recv_timeout(PATIENCE)));
        Self(held)
    }
}

/// Begins a drain without a timeout, up to `time` after its begin.
async fn pass_drain(drained: &mut (impl Future<Output = usize> + Unpin), time: Duration) {
    let (end, step) = (clock::now() + time, Duration::from_millis(100));
    while clock::now() < end {
        assert!(poll_immediate(&mut *drained).await.is_none(), "the drain has ended");
        tokio::time::advance(step).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exchange_on_a_thread_for_heavy_work_notices_the_end_of_the_drain() {
    let (runtimes, held) = (Runtimes::start(|| {}).unwrap(), HeldTime::hold());
    let (tasks, heavy) = (Tasks::on_current_runtime(), runtimes.handles().heavy);
    let (started, is_started) = oneshot::channel();
    let (told, is_told) = oneshot::channel();
    let (closing, work) = (tasks.closing_signal(), heavy.clone());
    let exchange = heavy.relocatable(async move {
        let waiting = pin!(work.run(BudgetClient::Unknown, BodyPass::First, async {
            started.send(()).unwrap();
            pending::<()>().await;
        }));
        closing.run_until_noticed(waiting).await.is_none()
    });
    tasks.spawn_connection(async move { told.send(exchange.await).unwrap() });
    is_started.await.unwrap();
    let mut drained = pin!(tasks.drain(Duration::ZERO));
    pass_drain(&mut drained, Duration::from_millis(100)).await;
    let (ended, has_noticed) = tokio::join!(drained, is_told);
    assert_eq!((ended, has_noticed), (1, Ok(true)));
    drop(held);
    runtimes.shut_down(Duration::ZERO);
}

/// A state whose drop takes until it is told to end.
struct SlowState {
    dropping: Option<oneshot::Sender<()>>,
    end: mpsc::Receiver<()>,
}

impl Drop for SlowState {
    fn drop(&mut self) {
        let _ = self.dropping.take().unwrap().send(());
        let _ = self.end.recv();
    }
}

#[tokio::test(start_paused = true)]
async fn the_drain_waits_for_the_state_of_an_exchange_on_another_thread() {
    let (runtimes, held) = (Runtimes::start(|| {}).unwrap(), HeldTime::hold());
    let (tasks, heavy) = (Tasks::on_current_runtime(), runtimes.handles().heavy);
    let (started, is_started) = oneshot::channel();
    let (dropping, is_dropping) = oneshot::channel();
    let (end, ended) = mpsc::channel();
    let (state, work) = (
        SlowState {
            dropping: Some(dropping),
            end: ended,
        },
        heavy.clone(),
    );
    let exchange = heavy.relocatable(tasks.exchange_tracker().track_future(async move {
        let _state = state;
        let waiting = work.run(BudgetClient::Unknown, BodyPass::First, async {
            started.send(()).unwrap();
            pending::<()>().await;
        });
        waiting.await.ok();
    }));
    tasks.spawn_connection(exchange);
    is_started.await.unwrap();
    let mut drained = pin!(tasks.drain(Duration::ZERO));
    // Up to the cut of the connection, and not up to the last moment of the exchange.
    pass_drain(&mut drained, secs(1)).await;
    tokio::select! {
        biased;
        _ = &mut drained => panic!("the drain does not wait"),
        dropped = is_dropping => dropped.unwrap(),
    }
    for _ in 0..100 {
        assert!(poll_immediate(&mut drained).await.is_none());
        tokio::task::yield_now().await;
    }
    end.send(()).unwrap();
    assert_eq!(drained.await, 1);
    drop(held);
    runtimes.shut_down(Duration::ZERO);
}

/// A wait of an exchange before the head of its answer.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// For the head of the provider's answer.
    Provider,
    /// For the rest of the client's body.
    Upload,
    /// For memory for the body.
    Memory,
    /// For a place in heavy work.
    HeavyWork,
    /// For the end of a key's rate limit.
    LimitedKey,
}

impl Wait {
    /// Returns a world in which an exchange waits like this, and its request.
    async fn world_and_request(self) -> (World, Vec<u8>) {
        let world = World::with(|builder| {
            if matches!(self, Self::LimitedKey) {
                pooled(builder, &strangers("a"));
            }
        });
        let whole = |body: &str| post(MESSAGES, body).into_bytes();
        let plain = r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hi"}]}"#;
        match self {
            Self::Provider => world.script([Step::Wait(secs(60))]),
            Self::Upload => {
                let mut cut = whole(plain);
                cut.truncate(cut.len() - 1);
                return (world, cut);
            }
            Self::Memory => {
                let bytes = world.body_memory.memory_use().bytes_max;
                let all = Bytes::from(vec![0; usize::try_from(bytes).unwrap()]);
                let held = world.body_memory.count_bytes(BudgetClient::Unknown, all);
                // Held until the end of the process.
                std::mem::forget(held);
            }
            Self::HeavyWork => {
                while world.heavy_work.waiting() == 0 {
                    let work = world.heavy_work.clone();
                    let pass = BodyPass::Later {
                        deadline: clock::now() + secs(3600),
                    };
                    spawn(async move { work.run(BudgetClient::Unknown, pass, pending::<()>()).await });
                    tokio::task::yield_now().await;
                }
                return (world, whole(&unanswered(200)));
            }
            Self::LimitedKey => world.script(limited("5")),
        }
        (world, whole(plain))
    }

    const fn phase(self) -> &'static str {
        match self {
            Self::Provider => "headers",
            Self::LimitedKey => "queue",
            Self::Upload | Self::Memory | Self::HeavyWork => "request",
        }
    }
}

/// Returns a body with `calls` unanswered calls.
fn unanswered(calls: usize) -> String {
    let turns: Vec<String> = (0..calls)
        .map(|i| {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{i}","name":"x","input":{{}}}}]}},{{"role":"user","content":"go"}}"#
            )
        })
        .collect();
    format!(r#"{{"model":"m","max_tokens":16,"messages":[{}]}}"#, turns.join(","))
}

#[tokio::test(start_paused = true)]
async fn an_exchange_without_a_head_is_answered_at_the_end_of_the_drain_timeout() {
    for wait in [
        Wait::Provider,
        Wait::Upload,
        Wait::Memory,
        Wait::HeavyWork,
        Wait::LimitedKey,
    ] {
        let (world, request) = wait.world_and_request().await;
        let mut client = world.client();
        client.send(request).await;
        world.settle().await;
        let began = world.now();
        let (ended, answer) = tokio::join!(world.drain(Duration::from_millis(10)), client.answer());
        assert_eq!(ended, 1, "{wait:?}");
        assert_eq!(answer.status(), 503, "{wait:?}");
        assert_eq!(answer.header("x-antiphon-fault"), Some("proxy"), "{wait:?}");
        assert_eq!(answer.header("x-antiphon-phase"), Some(wait.phase()), "{wait:?}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{wait:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{wait:?}");
        assert!(answer.complete && answer.text().contains("\"api_error\""), "{wait:?}");
        let took = world.now().saturating_sub(began);
        assert!(took < secs(1), "{wait:?} took {took:?}");
        let totals = world.shared.telemetry.exchange_totals();
        assert_eq!(totals.failures, [("503".to_owned(), 1)].into(), "{wait:?}");
    }
}

/// The answer names the same code as the event of a stream, and HTTP/2 is no exception.
#[tokio::test]
async fn a_drained_exchange_has_the_code_of_a_drained_stream() {
    let asked = Arc::new(Notify::new());
    let is_asked = Arc::clone(&asked);
    let upstream = Upstream::script(move |mut conn, _| {
        let asked = Arc::clone(&asked);
        async move {
            conn.request().await;
            asked.notify_one();
            conn.rest().await;
        }
    })
    .await;
    for is_http2 in [false, true] {
        let app = before(upstream.address)
            .with(|builder| builder.server.drain_timeout = Duration::ZERO)
            .start()
            .await;
        let address = app.running.data;
        let answer = spawn(async move {
            if is_http2 {
                let request = http2::request("localhost", "/openai/v1/responses", "{\"input\":[]}");
                let answer = http2::ask(address, request).await;
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                (status, String::from_utf8(body.to_vec()).unwrap())
            } else {
                let mut client = Client::connect(address).await;
                client.send(post("/openai/v1/responses", "{\"input\":[]}")).await;
                let answer = client.response().await;
                (answer.status(), answer.text().to_owned())
            }
        });
        is_asked.notified().await;
        tokio::time::pause();
        let held = HeldTime::hold();
        let answered = async {
            let answer = answer.await.unwrap();
            drop(held);
            answer
        };
        let passing = tokio::time::advance(Duration::from_millis(10));
        let ((), (), (status, text)) = tokio::join!(app.running.drain(), passing, answered);
        tokio::time::resume();
        assert_eq!(status, 503);
        assert!(text.contains("\"code\":\"drained\""), "{text}");
    }
}
