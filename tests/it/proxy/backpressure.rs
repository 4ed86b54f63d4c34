//! Slow readers cannot make the proxy buffer, and a reader that leaves is released at once. The tests use the built
//! binary and measure its memory.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use antiphon::config::VARIABLES;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{
    app::{before, post},
    state,
    wire::{Conn, PATIENCE, SSE, Upstream, chunk},
};

/// Number of readers that take nothing.
const READERS: usize = 30;
/// Size of each stream at the provider.
const STREAM_BYTES: usize = 50 * 1024 * 1024;
/// Most bytes that the provider can write per stream: the proxy's read buffer, and the kernel's buffers on all four
/// ends.
const TAKEN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest memory cost of one reader in the process.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// Number of uploads that claim a large body and send one byte.
const CLAIMS: usize = 64;
/// Claimed size of each upload: the inspection limit.
const CLAIMED_BYTES: usize = 64 * 1024 * 1024;

/// The binary in front of one upstream. It is stopped on drop.
struct Proxy {
    child: Child,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Proxy {
    async fn start(upstream: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        state::apart(&mut command);
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .args([
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
            ])
            .args(["--upstream", &format!("anthropic=http://{upstream}")])
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = child.stderr.take().unwrap();
        let lines = tokio::process::ChildStderr::from_std(lines).unwrap();
        let mut lines = BufReader::new(lines).lines();
        let mut addresses = None;
        while let Some(line) = lines.next_line().await.unwrap() {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["message"] == "serving" {
                let address = |key: &str| line[key].as_str().unwrap().parse().unwrap();
                addresses = Some((address("listen"), address("admin_listen")));
                break;
            }
        }
        // Later output is ignored, but the pipe must stay open.
        crate::support::wire::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let (data, admin) = addresses.expect("the proxy ended before it was ready");
        Self { child, data, admin }
    }

    /// Returns the resident memory in bytes. `None` if the system does not report it.
    fn held(&self) -> Option<usize> {
        self.status("VmRSS:")
    }

    /// Returns the address space in bytes. `None` if the system does not report it.
    fn reserved(&self) -> Option<usize> {
        self.status("VmSize:")
    }

    fn status(&self, name: &str) -> Option<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// Returns the gauge of open streams.
    async fn streams(&self) -> u64 {
        let mut admin = Conn::connect(self.admin).await;
        admin
            .send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await;
        let page = admin.response().await;
        let lines = page
            .text()
            .lines()
            .filter(|line| line.starts_with("antiphon_streams_active"));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    async fn streams_are(&self, count: u64) {
        let wait = async {
            while self.streams().await != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("streams that nobody reads stay open");
    }
}

fn ask() -> String {
    post("/anthropic/v1/messages", "{\"messages\":[],\"stream\":true}")
}

#[tokio::test]
async fn many_slow_readers_cost_little_memory() {
    let taken = Arc::new(AtomicUsize::new(0));
    let total = Arc::clone(&taken);
    let upstream = Upstream::script(move |mut conn, _| {
        let total = Arc::clone(&total);
        async move {
            conn.narrow();
            conn.request().await;
            conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                .await;
            let event = format!("data: {}\n\n", "x".repeat(1000)).repeat(16);
            let written = conn
                .flood(event.as_bytes(), Duration::from_millis(300), STREAM_BYTES)
                .await;
            total.fetch_add(written, Ordering::SeqCst);
            conn.rest().await;
        }
    })
    .await;
    let proxy = Proxy::start(upstream.address).await;
    // A first exchange allocates everything that is shared.
    let mut warm = Conn::connect(proxy.data).await;
    warm.narrow();
    warm.send(ask()).await;
    warm.head().await;
    proxy.streams_are(1).await;
    let before = proxy.held();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = Conn::connect(proxy.data).await;
        reader.narrow();
        reader.send(ask()).await;
        reader.head().await;
        readers.push(reader);
    }
    proxy.streams_are(READERS as u64 + 1).await;
    let mut last = 0;
    // Waits until no more bytes move.
    loop {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let now = taken.load(Ordering::SeqCst);
        if now > 0 && now == last {
            break;
        }
        last = now;
    }
    let each = last / (READERS + 1);
    println!("taken from the provider: {each} bytes a stream");
    assert!(
        each <= TAKEN_BYTES_MAX,
        "{each} bytes a stream were taken from the provider"
    );
    match (before, proxy.held()) {
        (Some(before), Some(after)) => {
            let each = after.saturating_sub(before) / READERS;
            println!("held: {each} bytes a stream");
            assert!(each <= HELD_BYTES_MAX, "the proxy holds {each} bytes a stream");
        }
        _ => println!("skipped: this system does not tell what a process holds"),
    }
    drop((readers, warm));
    proxy.streams_are(0).await;
}

/// Opens an upload with a large claimed length and one byte of body.
async fn claim(data: SocketAddr) -> Conn {
    let mut conn = Conn::connect(data).await;
    conn.send(format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {CLAIMED_BYTES}\r\n\r\n"
    ))
    .await;
    // The proxy asks for the body once it waits for it.
    assert_eq!(conn.head().await, "HTTP/1.1 100 Continue");
    conn.send("{").await;
    conn
}

#[tokio::test]
async fn a_claimed_length_costs_no_memory() {
    let upstream = Upstream::ok().await;
    let proxy = Proxy::start(upstream.address).await;
    // A first upload allocates everything that is shared.
    let mut uploads = vec![claim(proxy.data).await];
    let before = proxy.reserved();
    for _ in 0..CLAIMS {
        uploads.push(claim(proxy.data).await);
    }
    match (before, proxy.reserved()) {
        (Some(before), Some(after)) => {
            let reserved = after.saturating_sub(before);
            println!("reserved: {reserved} bytes for {CLAIMS} claims");
            assert!(
                reserved < CLAIMS * CLAIMED_BYTES / 2,
                "{CLAIMS} claims of {CLAIMED_BYTES} bytes reserve {reserved} bytes"
            );
        }
        _ => println!("skipped: this system does not tell what a process reserves"),
    }
    drop(uploads);
}

#[tokio::test]
async fn a_thousand_readers_that_leave_are_released() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    let upstream = Upstream::script(move |mut conn, _| {
        let count = Arc::clone(&count);
        async move {
            conn.request().await;
            conn.send(SSE).await;
            conn.send(chunk("data: 1\n\n")).await;
            drop(conn.rest().await);
            count.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let proxy = Proxy::start(upstream.address).await;
    for round in 0..20 {
        let mut readers = Vec::new();
        for _ in 0..50 {
            let mut reader = Conn::connect(proxy.data).await;
            reader.send(ask()).await;
            readers.push(reader);
        }
        for (number, mut reader) in readers.into_iter().enumerate() {
            reader.until("data: 1\n\n").await;
            if number % 2 == 0 {
                reader.reset();
            }
        }
        let all = async {
            while closed.load(Ordering::SeqCst) < (round + 1) * 50 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .expect("the provider goes on for a reader that has left");
    }
    proxy.streams_are(0).await;
}

/// Sends 200 events, 2 ms apart. Each chunk contains whole events; the number of shared chunks is only printed.
#[tokio::test]
async fn events_arrive_whole() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        for number in 0..200 {
            conn.send(chunk(format!("data: {number}\n\n"))).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        conn.send("0\r\n\r\n").await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(ask()).await;
    client.head().await;
    let mut together = 0;
    let mut number = 0;
    while number < 200 {
        let events = client.chunk().await;
        let count = events.windows(2).filter(|end| end == b"\n\n").count();
        assert!(count > 0, "half an event: {}", String::from_utf8_lossy(&events));
        together += count - 1;
        number += count;
    }
    println!("{together} of 200 events came together with another");
}
