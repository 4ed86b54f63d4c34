//! Sends of one task side by side, in every combinator, with wakes from other threads: each must end.

use std::{future::Future, pin::Pin, time::Duration};

use antiphon::{
    server::Tasks,
    upstream::{BoxedBody, ProxyEnvironment, Sender, UpstreamSettings},
};
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::{Either, join, join_all, select, select_all},
    stream::{FuturesOrdered, FuturesUnordered, iter},
};
use http::Request;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

/// The sends of one task.
const SENDS: usize = 24;
/// The body of an answer, in two parts.
const PARTS: [&str; 2] = ["{\"state\":", "\"done\"}"];

type Exchange = Pin<Box<dyn Future<Output = usize> + Send>>;

/// One way to run futures side by side in one task. Returns the sum of their outputs.
type Combinator = fn(Vec<Exchange>) -> Exchange;

fn all_combinators() -> Vec<(&'static str, Combinator)> {
    vec![
        ("join_all", |all| Box::pin(async { join_all(all).await.iter().sum() })),
        ("FuturesUnordered", |all| {
            Box::pin(async {
                all.into_iter()
                    .collect::<FuturesUnordered<_>>()
                    .collect::<Vec<_>>()
                    .await
                    .iter()
                    .sum()
            })
        }),
        ("FuturesOrdered", |all| {
            Box::pin(async {
                all.into_iter()
                    .collect::<FuturesOrdered<_>>()
                    .collect::<Vec<_>>()
                    .await
                    .iter()
                    .sum()
            })
        }),
        ("buffer_unordered", |all| {
            Box::pin(async { iter(all).buffer_unordered(SENDS).collect::<Vec<_>>().await.iter().sum() })
        }),
        ("select_all", |mut all| {
            Box::pin(async {
                let mut sum = 0;
                while !all.is_empty() {
                    let (done, _, rest) = select_all(all).await;
                    sum += done;
                    all = rest;
                }
                sum
            })
        }),
        ("select", |all| {
            all.into_iter()
                .fold(Box::pin(async { 0 }), |rest, one| Box::pin(both(rest, one)))
        }),
        ("join", |all| {
            all.into_iter().fold(Box::pin(async { 0 }), |rest, one| {
                Box::pin(async {
                    let (rest, one) = join(rest, one).await;
                    rest + one
                })
            })
        }),
        ("select!", |all| {
            Box::pin(async {
                let (mut all, mut sum) = (all.into_iter().collect::<FuturesUnordered<_>>(), 0);
                loop {
                    // A branch that is never ready, and shares the waker of the task.
                    tokio::select! {
                        done = all.next() => match done {
                            Some(done) => sum += done,
                            None => return sum,
                        },
                        () = std::future::pending() => {}
                    }
                }
            })
        }),
    ]
}

/// Waits for two futures by `select`, and for the other one afterwards.
async fn both(rest: Exchange, one: Exchange) -> usize {
    match select(rest, one).await {
        Either::Left((done, other)) | Either::Right((done, other)) => done + other.await,
    }
}

/// A server on a thread of its own. It sends the first half of each answer at once, and the second when all have come.
async fn start_server(is_chunked: bool) -> std::net::SocketAddr {
    let (telling, told) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            telling.send(listener.local_addr().unwrap()).unwrap();
            let counting = watch::Sender::new(0);
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, counting.clone(), is_chunked));
            }
        });
    });
    told.await.unwrap()
}

async fn answer(mut stream: TcpStream, counting: watch::Sender<usize>, is_chunked: bool) -> Option<()> {
    let mut bytes = Vec::new();
    // The upload ends with its last chunk, or with its only byte.
    while !bytes.ends_with(b"0\r\n\r\n") && !bytes.ends_with(b"\r\n\r\n!") {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    }
    let (head, [first, second], end) = if is_chunked {
        let parts = PARTS.map(|part| format!("{:x}\r\n{part}\r\n", part.len()));
        ("transfer-encoding: chunked".to_owned(), parts, "0\r\n\r\n")
    } else {
        let length = PARTS.concat().len();
        (format!("content-length: {length}"), PARTS.map(str::to_owned), "")
    };
    let begun = format!("HTTP/1.1 200 x\r\n{head}\r\n\r\n{first}");
    stream.write_all(begun.as_bytes()).await.ok()?;
    counting.send_modify(|count| *count += 1);
    let mut seen = counting.subscribe();
    let all = seen.wait_for(|count| *count % SENDS == 0 && *count > 0).await.ok()?;
    drop(all);
    stream.write_all((second + end).as_bytes()).await.ok()?;
    // Open until the client closes it.
    stream.read(&mut [0; 1]).await.ok().map(drop)
}

/// A thread that wakes whoever waits for it, a moment later, as a ledger does.
fn start_other_thread() -> mpsc::UnboundedSender<oneshot::Sender<()>> {
    let (asking, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
    std::thread::spawn(move || {
        while let Some(waiting) = asked.blocking_recv() {
            std::thread::yield_now();
            let _ = waiting.send(());
        }
    });
    asking
}

/// The body of a request: a byte, or parts that another thread hands over.
fn upload(is_streamed: bool) -> BoxedBody {
    if !is_streamed {
        return Full::new(Bytes::from_static(b"!"))
            .map_err(|never| match never {})
            .boxed_unsync();
    }
    let (handing, mut handed) = mpsc::channel::<Bytes>(1);
    std::thread::spawn(move || {
        for _ in 0..8 {
            if handing.blocking_send(Bytes::from_static(b"part")).is_err() {
                return;
            }
        }
    });
    let parts = futures_util::stream::poll_fn(move |cx| handed.poll_recv(cx)).map(|part| Ok(Frame::data(part)));
    StreamBody::new(parts).boxed_unsync()
}

async fn exchange(
    sender: Sender,
    request: Request<BoxedBody>,
    elsewhere: mpsc::UnboundedSender<oneshot::Sender<()>>,
) -> usize {
    let answer = sender.send(request, Duration::from_secs(20)).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, PARTS.concat());
    let (waking, woken) = oneshot::channel();
    elsewhere.send(waking).unwrap();
    woken.await.unwrap();
    1
}

fn settings() -> UpstreamSettings {
    UpstreamSettings {
        connect_timeout: Duration::from_secs(10),
        tls_timeout: Duration::from_secs(10),
        send_timeout: Duration::from_secs(10),
        pool_idle_timeout: Duration::from_secs(10),
        pool_idle_max: SENDS,
        proxies: ProxyEnvironment::default(),
    }
}

/// Every send of a task ends, in whatever combinator it runs, also over connections that were used before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_send_ends_in_every_combinator() {
    for (is_chunked, is_streamed) in [(false, false), (true, false), (false, true), (true, true)] {
        let at = start_server(is_chunked).await;
        let tasks = Tasks::on_current_runtime();
        for (name, combine) in all_combinators() {
            let sender = Sender::new(&settings(), tasks.pool_tasks()).unwrap();
            let elsewhere = start_other_thread();
            let all = (0..SENDS).map(|_| {
                let request = Request::post(format!("http://{at}/"))
                    .body(upload(is_streamed))
                    .unwrap();
                Box::pin(exchange(sender.clone(), request, elsewhere.clone())) as Exchange
            });
            let combined = combine(all.collect());
            let (ending, ended) = oneshot::channel();
            tasks.spawn_background(async move {
                let _ = ending.send(combined.await);
            });
            let done = timeout(Duration::from_secs(20), ended).await;
            assert_eq!(
                done.map(Result::unwrap),
                Ok(SENDS),
                "{name}, chunked answer: {is_chunked}, streamed upload: {is_streamed}"
            );
        }
    }
}
