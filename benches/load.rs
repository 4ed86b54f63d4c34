//! Hostile load over loopback: the worst bodies from eight clients, and more bodies than fit into memory.
//!
//! Another client and the health endpoint are timed meanwhile. The control is a bare hyper pass-through that gets the
//! same bodies in the same run. A slow answer never ends the bench, a wrong one does. Needs Linux: figures come from
//! `/proc`, and `prlimit` sets the limit of the address space.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[path = "../tests/support/bodies/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the tests use more of it")]
mod bodies;
mod loopback;
mod support;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use antiphon::wire::Format;
use flate2::{Compression, write::GzEncoder};

use bodies::{Shape, sized};
use loopback::{Child, Who, request, upstream};
use support::{Options, Table, number, quantile};

/// Clients that send the worst bodies, each from an address of its own.
const CLIENTS: u8 = 8;
/// Bodies of the memory test, and the size of each.
const BODIES: usize = 64;
const BODY_BYTES: usize = 16 << 20;
/// Limit of the address space in the memory test.
const ADDRESS_SPACE: u64 = 4 << 30;
/// Connections that claim a body of 64 MiB and send one byte.
const CLAIMS: usize = 1000;

const MIB: f64 = (1 << 20) as f64;

fn main() {
    if loopback::play() {
        return;
    }
    let Some(options) = Options::read() else { return };
    options.introduce("load", "plain HTTP/1.1, default limits");
    if !cfg!(target_os = "linux") {
        println!("skipped: memory of a process is read from /proc");
        return;
    }
    work(options);
    memory(options);
    options.conclude();
}

/// A body that costs more than it weighs.
struct Body {
    name: &'static str,
    coding: &'static str,
    bytes: Vec<u8>,
}

/// Returns the worst bodies that are known.
fn worst_bodies() -> Vec<Body> {
    let gzip = |plain: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    let history = |message: &dyn Fn(usize) -> String, count: usize| {
        let messages: Vec<String> = (0..count).map(message).collect();
        format!(r#"{{"model":"m","max_tokens":1,"messages":[{}]}}"#, messages.join(","))
    };
    let empty = history(&|_| r#"{"role":"user","content":""}"#.to_owned(), 200_000);
    let unanswered = |count| {
        history(
            &|i| {
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{i}","name":"x","input":{{}}}}]}},{{"role":"user","content":"go"}}"#
                )
            },
            count,
        )
    };
    vec![
        Body {
            name: "200,000 empty messages, gzip",
            coding: "gzip",
            bytes: gzip(empty.as_bytes()),
        },
        Body {
            name: "20,000 unanswered calls",
            coding: "identity",
            bytes: unanswered(20_000).into_bytes(),
        },
        Body {
            name: "50,000 unanswered calls, gzip",
            coding: "gzip",
            bytes: gzip(unanswered(50_000).as_bytes()),
        },
        Body {
            name: "1,500 unanswered calls (below the size of heavy work)",
            coding: "identity",
            bytes: unanswered(1_500).into_bytes(),
        },
        Body {
            name: "healthy history of 8 MiB",
            coding: "identity",
            bytes: sized(Format::Anthropic, Shape::Balanced, 8 << 20),
        },
    ]
}

/// Times another client and the health endpoint while eight clients send the worst bodies.
fn work(options: Options) {
    let seconds = if options.quick { 2 } else { 10 };
    let mut table = Table::new(
        format!("Latency in ms of another client (4 KiB) and of /livez, while {CLIENTS} clients send the worst bodies"),
        &[
            "body",
            "KiB sent",
            "floor p99",
            "ours p50",
            "ours p99",
            "ours max",
            "livez p99",
            "livez max",
            "answers 200",
            "answers 503",
        ],
    );
    for body in worst_bodies() {
        let upstream = Child::upstream();
        let floor = Child::floor(upstream.address);
        let ours = Child::antiphon(upstream.address);
        let control = under_load(&floor, Who::Floor, &body, seconds);
        let loaded = under_load(&ours, Who::Ours, &body, seconds);
        let ms = |times: &[f64], part: usize| number(quantile(times.to_vec(), part) * 1e3);
        table.row(
            body.name,
            [
                number(body.bytes.len() as f64 / 1024.0),
                ms(&control.client, 99),
                ms(&loaded.client, 50),
                ms(&loaded.client, 99),
                ms(&loaded.client, 100),
                ms(&loaded.livez, 99),
                ms(&loaded.livez, 100),
                loaded.statuses.get(&200).copied().unwrap_or_default().to_string(),
                loaded.statuses.get(&503).copied().unwrap_or_default().to_string(),
            ],
        );
        let others: Vec<_> = loaded
            .statuses
            .keys()
            .filter(|status| ![200, 503].contains(*status))
            .collect();
        assert!(others.is_empty(), "unexpected statuses {others:?}");
    }
    table.print(options.markdown);
}

/// Times under load, and the statuses that the attacking clients got.
struct Loaded {
    client: Vec<f64>,
    livez: Vec<f64>,
    statuses: BTreeMap<u16, usize>,
}

fn under_load(child: &Child, who: Who, body: &Body, seconds: u64) -> Loaded {
    let is_over = AtomicBool::new(false);
    let small = request(
        who,
        Format::Anthropic,
        upstream::TAKE,
        &sized(Format::Anthropic, Shape::Balanced, 4 << 10),
    );
    let path = String::from_utf8(small.split(|byte| *byte == b' ').nth(1).unwrap().to_vec()).unwrap();
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (is_over, path) = (&is_over, &path);
                scope.spawn(move || {
                    let from = Ipv4Addr::new(127, 0, 1, client + 1);
                    let head = head_of(path, body, client);
                    let mut statuses = BTreeMap::<u16, usize>::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let mut connection = Connection::open(child.address, Some(from));
                        connection.send(&head);
                        connection.send(&body.bytes);
                        *statuses.entry(connection.status()).or_default() += 1;
                    }
                    statuses
                })
            })
            .collect();
        let livez = child.admin.map(|admin| {
            let is_over = &is_over;
            scope.spawn(move || {
                every_ten_ms(is_over, || {
                    let mut connection = Connection::open(admin, None);
                    connection.send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
                    assert_eq!(connection.status(), 200, "/livez");
                })
            })
        });
        let client = {
            let (is_over, small) = (&is_over, &small);
            scope.spawn(move || {
                let mut connection = Connection::open(child.address, None);
                every_ten_ms(is_over, || {
                    connection.send(small);
                    assert_eq!(connection.status(), 200, "another client");
                })
            })
        };
        thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
        let mut statuses = BTreeMap::<u16, usize>::new();
        for attacker in attackers {
            for (status, count) in attacker.join().unwrap() {
                *statuses.entry(status).or_default() += count;
            }
        }
        Loaded {
            client: client.join().unwrap(),
            livez: livez.map(|times| times.join().unwrap()).unwrap_or_default(),
            statuses,
        }
    })
}

fn head_of(path: &str, body: &Body, client: u8) -> Vec<u8> {
    let (coding, length) = (body.coding, body.bytes.len());
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-api-key: key-{client}\r\n\
         x-bench: take\r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// Calls `ask` about every 10 ms until `is_over`. Returns the time of each call, in seconds.
fn every_ten_ms(is_over: &AtomicBool, mut ask: impl FnMut()) -> Vec<f64> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        ask();
        times.push(begin.elapsed().as_secs_f64());
        thread::sleep(Duration::from_millis(10).saturating_sub(begin.elapsed()));
    }
    times
}

/// Sends more bodies than fit, and claims of bodies, under a limited address space.
fn memory(options: Options) {
    let upstream = Child::upstream();
    let ours = Child::antiphon_limited(upstream.address, ADDRESS_SPACE);
    let idle = ours.resident();
    let mut table = Table::new(
        format!("Memory in MiB under an address space of {} GiB", ADDRESS_SPACE >> 30),
        &["load", "peak", "afterwards", "answers 200", "answers 503"],
    );
    table.row(
        "idle",
        [number(idle / MIB), String::new(), String::new(), String::new()],
    );

    ours.forget_peak();
    let claims: Vec<Connection> = (0..CLAIMS)
        .map(|_| {
            let mut connection = Connection::open(ours.address, None);
            connection
                .send(b"POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 67108864\r\n\r\n{");
            connection
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    let peak = ours.peak();
    drop(claims);
    let name = format!("{CLAIMS} claims of 64 MiB with one byte each");
    thread::sleep(Duration::from_secs(1));
    table.row(
        name,
        [
            number(peak / MIB),
            number(ours.resident() / MIB),
            String::new(),
            String::new(),
        ],
    );

    ours.forget_peak();
    let body = sized(Format::Anthropic, Shape::Balanced, BODY_BYTES);
    let request = request(Who::Ours, Format::Anthropic, upstream::TAKE, &body);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let clients: Vec<_> = (0..BODIES)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::open(ours.address, None);
                    connection.send(&request);
                    connection.status()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let peak = ours.peak();
    thread::sleep(Duration::from_secs(if options.quick { 15 } else { 60 }));
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    let (answered, refused) = (count(200), count(503));
    let name = format!("{BODIES} bodies of {} MiB at once", BODY_BYTES >> 20);
    table.row(
        name,
        [
            number(peak / MIB),
            number(ours.resident() / MIB),
            answered.to_string(),
            refused.to_string(),
        ],
    );
    assert_eq!(answered + refused, BODIES, "unexpected statuses in {statuses:?}");
    table.print(options.markdown);
}

/// A connection of a client that accepts any answer.
struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects, from the address `from` if there is one.
    fn open(to: SocketAddr, from: Option<Ipv4Addr>) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        if let Some(from) = from {
            socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        }
        socket.connect(&to.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends bytes. The proxy may have answered and closed before it has read all of them.
    fn send(&mut self, bytes: &[u8]) {
        drop(self.0.get_mut().write_all(bytes));
    }

    /// Reads an answer with a length. Returns its status.
    fn status(&mut self) -> u16 {
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.expect("an answer with a status");
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if line.trim_end().is_empty() {
                break;
            }
            let value = line.to_ascii_lowercase();
            if let Some(value) = value.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        status
    }
}
