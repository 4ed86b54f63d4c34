//! File descriptors and the kernel's queue: limits at the start, and what works when none is left.
#![cfg(target_os = "linux")]

use std::{net::SocketAddr, time::Duration};

use antiphon::server;
use tokio::net::TcpStream;

use crate::support::{
    app::{get_with, post},
    binary::{Install, Process},
    wire::{Client, Message, PATIENCE, Upstream},
};

/// Enough for the process itself and some connections.
const FILES: u64 = 64;
/// More connections than the process has descriptors.
const FLOOD: usize = 120;

/// Opens connections that send nothing. The process accepts them until no descriptor is left.
async fn flood(address: SocketAddr) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..FLOOD {
        clients.push(Client::connect(address).await);
    }
    clients
}

/// Sends requests over one connection until the status is no longer 200.
async fn first_failure(client: &mut Client) -> Message {
    let failing = async {
        loop {
            client.send(post("/local/v1/messages", "{\"messages\":[]}")).await;
            let answer = client.response().await;
            if answer.status() != 200 {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, failing)
        .await
        .expect("no request failed")
}

/// Returns a proxy with few descriptors, in front of an upstream that closes each connection.
async fn limited() -> (Upstream, Process) {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await;
    let config = format!(
        "[upstreams.local]\nurl = \"http://{}\"\nkind = \"anthropic\"\n",
        upstream.address
    );
    let process = Install::new(&config).start_with_files(FILES, FILES).await;
    (upstream, process)
}

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let process = Install::new("").start_with_files(FILES, 256).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(files, ["256", "256"]);
    let warned = |process: &Process| {
        process
            .log()
            .iter()
            .filter(|line| line.contains("connections_max"))
            .count()
    };
    assert_eq!(warned(&process), 1, "{:?}", process.log());
    let enough = Install::new("[server]\nconnections_max = 64\n")
        .start_with_files(FILES, 256)
        .await;
    assert_eq!(warned(&enough), 0, "{:?}", enough.log());
}

#[tokio::test]
async fn health_checks_are_answered_while_no_descriptor_is_left() {
    let (_upstream, process) = limited().await;
    let mut client = Client::connect(process.data).await;
    let clients = flood(process.data).await;
    first_failure(&mut client).await;
    // Each takes the reserved descriptor, which must be there again for the next.
    for _ in 0..20 {
        let answer = process.ask_admin(get_with("/livez", &[("connection", "close")])).await;
        assert_eq!((answer.status(), answer.text()), (200, "ok\n"));
    }
    // A connection that nobody closes gives the descriptor back too.
    let mut idle = Client::connect(process.admin).await;
    idle.send(get_with("/livez", &[])).await;
    assert_eq!(idle.response().await.status(), 200);
    assert_eq!(process.ask_admin(get_with("/readyz", &[])).await.status(), 200);
    let failed = |line: &&String| line.contains("failed to accept");
    let log = process.log();
    let lines: Vec<&String> = log.iter().filter(failed).collect();
    assert!((1..=2).contains(&lines.len()), "once for each listener: {lines:?}");
    drop(clients);
}

#[tokio::test]
async fn a_lack_of_descriptors_is_the_proxys_own_fault_and_passes() {
    let (_upstream, process) = limited().await;
    let mut client = Client::connect(process.data).await;
    let clients = flood(process.data).await;
    // More than the failures that open a breaker.
    for _ in 0..12 {
        let answer = first_failure(&mut client).await;
        assert_eq!(
            (
                answer.status(),
                answer.header("x-antiphon-fault"),
                answer.header("proxy-status"),
                answer.header("retry-after"),
            ),
            (
                503,
                Some("proxy"),
                Some("antiphon; error=proxy_internal_error"),
                Some("1")
            ),
            "{answer:?}"
        );
        assert!(answer.text().contains("file descriptors"), "{answer:?}");
    }
    drop(clients);
    let recovered = async {
        loop {
            client.send(post("/local/v1/messages", "{\"messages\":[]}")).await;
            if client.response().await.status() == 200 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, recovered)
        .await
        .expect("it never recovered");
    let page = process.ask_admin(get_with("/metrics", &[])).await;
    assert!(!page.text().contains("state=\"open\"} 1"), "a breaker has opened");
}

#[tokio::test]
async fn hundreds_of_connections_wait_in_the_kernels_queue() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let allowed: usize = allowed.trim().parse().unwrap();
    if allowed < 512 {
        println!("skipped: this kernel allows a queue of {allowed}");
        return;
    }
    // Never accepts.
    let listener = server::bind_listener(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for number in 0..400 {
        // A connection that finds no place is tried again by the kernel after a second.
        let connected = tokio::time::timeout(Duration::from_secs(20), TcpStream::connect(address)).await;
        let stream = connected.unwrap_or_else(|_| panic!("connection {number} found no place"));
        waiting.push(stream.unwrap());
    }
}
