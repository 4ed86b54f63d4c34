//! Streamed answers: the event framer by chunk size, the extra cost of a watcher, and the cost of relaying an event.
//!
//! A stream that does not arrive byte for byte ends the bench, a slow one never does. The relay part needs Linux.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[path = "../tests/support/bodies/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the tests use more of it")]
mod bodies;
mod loopback;
mod support;

use std::hint::black_box;

use antiphon::wire::{
    Format,
    frames::EventFramer,
    watch::{Framing, Watcher},
};

use bodies::{Shape, sized};
use loopback::{Stage, Who, request, upstream};
use support::{Options, Table, Work, best, median, number};

fn main() {
    if loopback::play() {
        return;
    }
    let Some(options) = Options::read() else { return };
    options.introduce(
        "stream",
        "1000 events an answer, four connections, medians of interleaved rounds",
    );
    if cfg!(target_os = "linux") {
        relay(options);
    } else {
        println!("skipped: the relay (processor time of a process is read from /proc)");
    }
    framer(options);
    watcher(options);
    options.conclude();
}

/// Compares the framer with a plain search for the empty line.
fn framer(options: Options) {
    let stream = upstream::events().concat().repeat(8).into_bytes();
    let events = 8 * upstream::EVENTS;
    let head = &["framer", "framer : memmem", "GB/s", "ns an event", "memmem GB/s"];
    let mut table = Table::new("Framing events, by the size of the chunks", head);
    for size in [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, stream.len()] {
        let framed = || {
            let mut framer = EventFramer::default();
            let mut count = 0;
            for chunk in black_box(&stream).chunks(size) {
                framer.push(chunk, |_| count += 1);
            }
            assert_eq!(count, events, "events found");
        };
        let finder = memchr::memmem::Finder::new(b"\n\n");
        let searched = || assert_eq!(finder.find_iter(black_box(&stream)).count(), events);
        let mut works: Vec<Work<'_>> = vec![("framer", Box::new(framed)), ("memmem", Box::new(searched))];
        let [ours, control] = best(options.quick, &mut works).try_into().expect("two times");
        let speed = |time: f64| stream.len() as f64 / time / 1e9;
        let figures = [control / ours, speed(ours), ours / events as f64 * 1e9, speed(control)];
        let name = if size == stream.len() {
            "whole".to_owned()
        } else {
            format!("{size} B")
        };
        table.row(name, figures.map(number));
    }
    table.print(options.markdown);
}

/// Returns text events as each provider writes them.
fn words(format: Format) -> String {
    let event = |number: usize| match format {
        Format::Anthropic => format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\
             \"text_delta\",\"text\":\" word {number}\"}}}}\n\n"
        ),
        Format::OpenAiChat => format!(
            "data: {{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
             \"model\":\"gpt-4.1\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"index\":0,\"delta\":{{\
             \"content\":\" word {number}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\
             \"obfuscation\":\"{number:x}\"}}\n\n"
        ),
        Format::OpenAiResponses => format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":\
             {number},\"item_id\":\"msg_0123456789\",\"output_index\":0,\"content_index\":0,\"delta\":\" word {number}\",\
             \"logprobs\":[],\"obfuscation\":\"{number:x}\"}}\n\n"
        ),
        Format::Gemini => format!(
            "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \" word {number}\"}}],\"role\": \"model\"}},\
             \"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 100,\"candidatesTokenCount\": {number},\
             \"totalTokenCount\": 200}},\"modelVersion\": \"gemini-3-pro\",\"responseId\": \"0123456789\"}}\r\n\r\n"
        ),
    };
    (0..upstream::EVENTS).map(event).collect()
}

/// Compares the watcher with its framer, on text events, which make up most of a stream.
fn watcher(options: Options) {
    let head = &["watcher", "watcher - framer, ns an event", "framer", "watcher"];
    let mut table = Table::new("Watching events, by format and the size of the chunks", head);
    for format in Format::ALL {
        let stream = words(format);
        for size in [100, 16 << 10] {
            let framed = || {
                let (mut framer, mut count) = (EventFramer::default(), 0);
                for chunk in black_box(stream.as_bytes()).chunks(size) {
                    framer.push(chunk, |_| count += 1);
                }
                assert_eq!(count, upstream::EVENTS);
            };
            let watched = || {
                let mut watcher = Watcher::new(Some(format), Framing::Events);
                for chunk in black_box(stream.as_bytes()).chunks(size) {
                    watcher.push(chunk);
                }
                assert_eq!(watcher.facts().events, upstream::EVENTS as u64);
            };
            let mut works: Vec<Work<'_>> = vec![("framer", Box::new(framed)), ("watcher", Box::new(watched))];
            let [framer, watcher] = best(options.quick, &mut works)
                .try_into()
                .map(|times: [f64; 2]| times.map(|time| time / upstream::EVENTS as f64 * 1e9))
                .expect("two times");
            let figures = [watcher - framer, framer, watcher];
            table.row(format!("{}, {size} B", format.label()), figures.map(number));
        }
    }
    table.print(options.markdown);
}

/// Compares the proxy with the floor, for events in one write and for single events.
fn relay(options: Options) {
    let stage = Stage::start();
    let events = upstream::events().concat().into_bytes();
    let rounds = if options.quick { 3 } else { 9 };
    let head = &[
        "relay",
        "ours : floor",
        "floor: µs an event",
        "ours",
        "floor: writes an event",
        "ours",
    ];
    let mut table = Table::new("Relaying events, processor time", head);
    for (name, bench) in [("in one go", upstream::BURST), ("one by one", upstream::SINGLE)] {
        for format in Format::ALL {
            let body = sized(format, Shape::Balanced, 4 << 10);
            let (mut ratios, mut costs) = (Vec::new(), [Vec::new(), Vec::new()]);
            let mut writes = [0.0; 2];
            for _ in 0..rounds {
                let turn = [Who::Floor, Who::Ours].map(|who| {
                    let request = request(who, format, bench, &body);
                    stage.cost(who, &request, &events, 20)
                });
                ratios.push(turn[1].seconds / turn[0].seconds);
                for (index, cost) in turn.iter().enumerate() {
                    costs[index].push(cost.seconds / upstream::EVENTS as f64);
                    writes[index] = cost.writes / upstream::EVENTS as f64;
                }
            }
            let [floor, ours] = costs.map(|costs| median(costs) * 1e6);
            let figures = [median(ratios), floor, ours, writes[0], writes[1]];
            table.row(format!("{}, {name}", format.label()), figures.map(number));
        }
    }
    table.print(options.markdown);
}
