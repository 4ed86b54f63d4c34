//! Exchanges over loopback. Client, proxy and mock provider are separate processes. The proxy and the floor take turns.
#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]

pub mod child;
mod client;
pub mod counted;
mod floor;
pub mod upstream;

use std::{sync::Barrier, thread, time::Duration};

use antiphon::wire::Format;

pub use child::{Child, play};
pub use client::{Client, post};

/// Number of connections of a closed loop.
const CONNECTIONS: usize = 4;

/// The measured process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The bare pass-through.
    Floor,
    /// The pass-through that also reads the body's syntax, counts and logs.
    WorkingFloor,
    /// The proxy.
    Ours,
    /// The proxy, on an upstream with profiles.
    Keys,
    /// The proxy, with a tool service.
    Service,
}

/// The proxy and the floors in front of one mock provider.
pub struct Stage {
    pub upstream: Child,
    pub floor: Child,
    pub working_floor: Child,
    pub ours: Child,
    pub service: Child,
}

impl Stage {
    /// Starts all five.
    pub fn start() -> Self {
        let upstream = Child::upstream();
        let (floor, ours) = (Child::floor(upstream.address), Child::antiphon(upstream.address));
        let service = Child::antiphon_with_service(upstream.address);
        let working_floor = Child::working_floor_under(upstream.address, &[]);
        Self {
            upstream,
            floor,
            working_floor,
            ours,
            service,
        }
    }

    /// Returns one of them.
    pub fn child(&self, who: Who) -> &Child {
        match who {
            Who::Floor => &self.floor,
            Who::WorkingFloor => &self.working_floor,
            Who::Ours | Who::Keys => &self.ours,
            Who::Service => &self.service,
        }
    }

    /// Returns the body at the provider when `body` is sent through `who`.
    pub fn arrived(&self, who: Who, format: Format, body: &[u8]) -> Vec<u8> {
        Client::connect(self.child(who).address).ask(&request(who, format, upstream::KEEP, body));
        let mut direct = Client::connect(self.upstream.address);
        direct.ask(&request(Who::Floor, format, upstream::LAST, b""))
    }

    /// Returns the processor time and `write` calls of `who` per request, for `count` requests in a closed loop.
    pub fn cost(&self, who: Who, request: &[u8], answer: &[u8], count: usize) -> Cost {
        cost_of(&[self.child(who)], request, answer, count)
    }
}

/// Returns the processor time and `write` calls of processes per request. Each gets an equal part of the connections.
pub fn cost_of(children: &[&Child], request: &[u8], answer: &[u8], count: usize) -> Cost {
    let barrier = Barrier::new(CONNECTIONS + 1);
    let each = count.div_ceil(CONNECTIONS);
    let cpu = || children.iter().map(|child| child.cpu()).sum::<f64>();
    let writes = || children.iter().map(|child| child.writes()).sum::<f64>();
    thread::scope(|scope| {
        for child in children.iter().cycle().take(CONNECTIONS) {
            scope.spawn(|| {
                let mut client = Client::connect(child.address);
                for _ in 0..2 {
                    assert_eq!(client.ask(request), answer, "another answer");
                }
                barrier.wait();
                barrier.wait();
                for _ in 0..each {
                    assert_eq!(client.ask(request), answer, "another answer");
                }
                barrier.wait();
            });
        }
        barrier.wait();
        settle();
        let before = (cpu(), writes());
        barrier.wait();
        barrier.wait();
        settle();
        let requests = (each * CONNECTIONS) as f64;
        Cost {
            seconds: (cpu() - before.0) / requests,
            writes: (writes() - before.1) / requests,
        }
    })
}

/// The cost of one request for a process.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Processor time.
    pub seconds: f64,
    /// Calls of `write` and `writev`.
    pub writes: f64,
}

/// Waits until the rest of an exchange (a log line) is finished.
pub fn settle() {
    thread::sleep(Duration::from_millis(5));
}

/// Returns a request that the proxy does not read: another path, the same body.
pub fn unread(format: Format, body: &[u8]) -> Vec<u8> {
    let path = match format {
        Format::Anthropic => "/anthropic/v1/files",
        Format::OpenAiChat | Format::OpenAiResponses => "/openai/v1/files",
        Format::Gemini => "/gemini/v1beta/files",
    };
    post(path, upstream::TAKE, body)
}

/// Returns the bytes of a request to one of the two.
pub fn request(who: Who, format: Format, bench: &str, body: &[u8]) -> Vec<u8> {
    if who == Who::Keys {
        let path = path(Who::Ours, format);
        let (upstream, rest) = path[1..].split_once('/').unwrap();
        return post(&format!("/{upstream}-keys/{rest}"), bench, body);
    }
    post(path(who, format), bench, body)
}

fn path(who: Who, format: Format) -> &'static str {
    match (who, format) {
        (Who::Floor | Who::WorkingFloor, Format::Anthropic) => "/v1/messages",
        (_, Format::Anthropic) => "/anthropic/v1/messages",
        (Who::Floor | Who::WorkingFloor, Format::OpenAiChat) => "/v1/chat/completions",
        (_, Format::OpenAiChat) => "/openai/v1/chat/completions",
        (Who::Floor | Who::WorkingFloor, Format::OpenAiResponses) => "/v1/responses",
        // Responses is read as `support::wire` reads it.
        (_, Format::OpenAiResponses) => "/deepseek/v1/responses",
        (Who::Floor | Who::WorkingFloor, Format::Gemini) => "/v1beta/models/m:generateContent",
        (_, Format::Gemini) => "/gemini/v1beta/models/m:generateContent",
    }
}
