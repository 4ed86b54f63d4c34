//! Watches every stream of `tests/streams/<format>/`: `<story>.sse`, `.json` or `.eventstream` in, the facts in
//! `<story>.sse.txt`, `.json.txt` or `.eventstream.txt` out, for any chunking.
//!
//! `UPDATE_CASES=1 cargo test --test core watchers` rewrites the facts. Read the difference before you commit it.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of rounds, the seed and the wish to update come from the environment"
)]

use std::{fmt::Write as _, fs, path::PathBuf};

use antiphon_core::wire::{
    Format,
    frames::{EventFramer, SseEvent},
    watch::{EVENT_BYTES_MAX, Facts, Framing, LISTED_MAX, OutputPhase, Watcher},
};

use strict_provider::frames::{chunk_frame, frame};

use crate::support::{bodies::Rng, repository::repository};

struct Story {
    format: Format,
    framing: Framing,
    file: PathBuf,
    bytes: Vec<u8>,
}

fn stories() -> Vec<Story> {
    let mut found = Vec::new();
    for format in Format::ALL {
        let before = found.len();
        let folder = fs::read_dir(repository("tests/streams").join(format.label())).unwrap();
        let mut files: Vec<PathBuf> = folder.map(|file| file.unwrap().path()).collect();
        files.sort();
        for file in files {
            let content_type = match file.extension().and_then(|kind| kind.to_str()) {
                Some("sse") => "text/event-stream",
                Some("json") => "application/json",
                Some("eventstream") => "application/vnd.amazon.eventstream",
                _ => continue,
            };
            let framing = Framing::from_content_type(content_type.as_bytes()).expect(content_type);
            let bytes = fs::read(&file).unwrap();
            found.push(Story {
                format,
                framing,
                file,
                bytes,
            });
        }
        // A stream of a framing that the proxy does not know would pass unwatched.
        let has_stream = found[before..].iter().any(|story: &Story| story.framing.is_stream());
        assert!(has_stream, "no stream of {} found", format.label());
    }
    assert!(found.len() >= 30, "only {} streams found", found.len());
    found
}

/// Returns the facts from these chunks, and whether they are a stream.
fn watch<'c>(format: Format, framing: Framing, chunks: impl IntoIterator<Item = &'c [u8]>) -> (Facts, bool) {
    let mut watcher = Watcher::new(Some(format), framing);
    chunks.into_iter().for_each(|chunk| watcher.push(chunk));
    watcher.finish();
    (watcher.facts().clone(), watcher.is_stream())
}

fn describe(format: Format, (facts, is_stream): &(Facts, bool)) -> String {
    let mut text = String::new();
    let (events, heartbeats, truncated) = (facts.events, facts.heartbeats, facts.truncated);
    writeln!(text, "events={events} heartbeats={heartbeats} truncated={truncated}").unwrap();
    writeln!(text, "calls={}", facts.calls.count).unwrap();
    for call in &facts.calls.list {
        let by = if call.called_by_code { " by code" } else { "" };
        writeln!(text, "  {:?} {}{by}", call.id, call.name).unwrap();
    }
    writeln!(text, "server_tools={}", facts.server_tools.started).unwrap();
    for tool in &facts.server_tools.in_flight {
        writeln!(text, "  in flight: {:?} {}", tool.id, tool.name).unwrap();
    }
    writeln!(
        text,
        "reasoning={:?} compaction={:?}",
        facts.reasoning, facts.compaction
    )
    .unwrap();
    let usage = facts.usage;
    writeln!(
        text,
        "input={} cache_read={} cache_write={} output={} reasoning={}",
        usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning
    )
    .unwrap();
    if let Some(error) = &facts.error {
        writeln!(text, "error={:?} code={:?}", error.kind, error.code).unwrap();
    }
    let answer = facts.answer_id.as_deref().unwrap_or("-");
    let model = facts.model.as_deref().unwrap_or("-");
    writeln!(
        text,
        "answer={answer} model={model} begun={} queued={}",
        facts.has_output, facts.queued
    )
    .unwrap();
    let (stop, label) = (facts.stop.as_deref().unwrap_or("-"), facts.stop_label(format));
    writeln!(
        text,
        "stop={stop} label={label} terminal={} stream={is_stream}",
        facts.terminal
    )
    .unwrap();
    text
}

#[test]
fn every_stream_gives_its_expected_facts() {
    let mut failures = Vec::new();
    for story in stories() {
        let facts = describe(story.format, &watch(story.format, story.framing, [&*story.bytes]));
        let beside = story.file.with_extension(match story.framing {
            Framing::Events => "sse.txt",
            Framing::Values => "json.txt",
            Framing::Frames => "eventstream.txt",
        });
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&beside, &facts).unwrap();
        }
        if fs::read_to_string(&beside).unwrap_or_default() != facts {
            failures.push(format!("{}:\n{facts}", story.file.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const CREATED: &str = r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}"#;
const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;

/// Events that are not the model's output, and one that is.
const BEGINNINGS: &[(Format, &[&str], &str)] = &[
    (
        Format::Anthropic,
        &[
            r#"{"type":"message_start","message":{"id":"msg_1","content":[],"stop_reason":null,"usage":{"input_tokens":1}}}"#,
            r#"{"type":"ping"}"#,
        ],
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ),
    (
        Format::Anthropic,
        &[r#"{"type":"error","error":{"type":"overloaded_error"}}"#],
        r#"{"type":"content_block_delta","index":0,"delta":{}}"#,
    ),
    (
        Format::Anthropic,
        &[],
        r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#,
    ),
    (
        Format::OpenAiResponses,
        &[
            r#"{"type":"response.queued","response":{"id":"resp_1"}}"#,
            CREATED,
            r#"{"type":"response.in_progress","response":{}}"#,
            r#"{"type":"keepalive"}"#,
        ],
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1"}}"#,
    ),
    (
        Format::OpenAiResponses,
        &[
            CREATED,
            r#"{"type":"response.failed","response":{"id":"resp_1","error":{"code":"x"}}}"#,
        ],
        r#"{"type":"response.output_text.delta","delta":"a"}"#,
    ),
    (
        Format::OpenAiChat,
        &[ROLE],
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}"#,
    ),
    (
        Format::OpenAiChat,
        &[ROLE],
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}]}"#,
    ),
    (
        Format::OpenAiChat,
        &[ROLE, r#"{"choices":[],"usage":{"prompt_tokens":1}}"#],
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    ),
    (
        Format::OpenAiChat,
        &[r#"{"choices":[{"index":0,"delta":{"refusal":null}}]}"#],
        r#"{"choices":[{"index":0,"delta":{"refusal":"no"}}]}"#,
    ),
    (
        Format::OpenAiChat,
        &[ROLE],
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#,
    ),
    (
        Format::Gemini,
        &[
            r#"{"usageMetadata":{"promptTokenCount":1}}"#,
            r#"{"candidates":[{"content":{"role":"model"}}]}"#,
            r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
        ],
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#,
    ),
    (Format::Gemini, &[], r#"{"candidates":[{"finishReason":"SAFETY"}]}"#),
];

#[test]
fn an_answer_begins_with_the_first_model_output() {
    for (format, before, first) in BEGINNINGS {
        let mut watcher = Watcher::new(Some(*format), Framing::Events);
        for event in *before {
            watcher.push(format!("data: {event}\n\n").as_bytes());
            assert!(!watcher.facts().has_output, "{event}");
            if watcher.facts().terminal {
                // After an end, only another answer can follow.
                watcher = Watcher::new(Some(*format), Framing::Events);
            }
        }
        let kind = first.split('"').nth(3).unwrap();
        watcher.push(format!("event: {kind}\ndata: {first}\n\n").as_bytes());
        assert!(watcher.facts().has_output, "{first}");
    }
}

#[test]
fn every_cut_of_every_stream_gives_the_same_facts() {
    for story in stories() {
        let (format, framing) = (story.format, story.framing);
        for bytes in spelled(&story) {
            let wanted = watch(format, framing, [&*bytes]);
            let name = story.file.display();
            assert_eq!(watch(format, framing, bytes.chunks(1)), wanted, "{name} byte by byte");
            // The other spellings differ only in their line ends.
            let is_own = bytes == story.bytes;
            let beside_cr = |cut: &usize| bytes[cut.saturating_sub(1)..].iter().take(2).any(|byte| *byte == b'\r');
            for cut in (0..=bytes.len()).filter(|cut| is_own || beside_cr(cut)) {
                let (first, second) = bytes.split_at(cut);
                assert_eq!(watch(format, framing, [first, second]), wanted, "{name} cut at {cut}");
            }
        }
    }
}

/// Returns a stream with each of the three line ends, or JSON unchanged.
fn spelled(story: &Story) -> Vec<Vec<u8>> {
    let Framing::Events = story.framing else {
        return vec![story.bytes.clone()];
    };
    let text = String::from_utf8(story.bytes.clone()).unwrap().replace("\r\n", "\n");
    vec![
        text.clone().into_bytes(),
        text.replace('\n', "\r\n").into_bytes(),
        text.replace('\n', "\r").into_bytes(),
    ]
}

#[test]
fn line_ends_do_not_change_the_facts() {
    for story in stories().iter().filter(|story| story.framing == Framing::Events) {
        let facts: Vec<_> = spelled(story)
            .iter()
            .map(|bytes| watch(story.format, story.framing, [&**bytes]))
            .collect();
        assert!(
            facts.windows(2).all(|pair| pair[0] == pair[1]),
            "{}",
            story.file.display()
        );
    }
}

/// Returns the facts of a stream with a comment at the start of every event. This way no event is recognized by its
/// first bytes or by the event before it. Only comments count as heartbeats.
fn read_slowly(format: Format, stream: &[u8]) -> Facts {
    let mut commented = Vec::new();
    let (mut framer, mut at) = (EventFramer::default(), 0);
    framer.push(stream, |event| {
        let end = usize::try_from(event.end).unwrap();
        commented.extend_from_slice(b": x\n");
        commented.extend_from_slice(&stream[at..end]);
        at = end;
    });
    commented.extend_from_slice(&stream[at..]);
    watch(format, Framing::Events, [&*commented]).0
}

#[test]
fn skipped_events_contain_no_facts() {
    for story in stories().iter().filter(|story| story.framing == Framing::Events) {
        let stream = story.bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&story.bytes);
        let (facts, _) = watch(story.format, story.framing, [stream]);
        let slow = Facts {
            heartbeats: facts.heartbeats,
            heartbeats_in_row: facts.heartbeats_in_row,
            ..read_slowly(story.format, stream)
        };
        assert_eq!(facts, slow, "{}", story.file.display());
    }
}

/// `ROUNDS=` sets the number of streams, `SEED=` replays one.
#[test]
fn mangled_streams_give_the_same_facts_for_every_chunking() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let stories = stories();
    let seeds = number("SEED").map_or_else(|| 0..number("ROUNDS").unwrap_or(2000), |seed| seed..seed + 1);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let story = rng.pick(&stories);
        let mut bytes = story.bytes.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len().max(1));
            let end = (at + rng.within(1, 30)).min(bytes.len());
            match rng.below(4) {
                0 => drop(bytes.drain(at..end)),
                1 if at < bytes.len() => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
                2 => drop(
                    bytes.splice(
                        at..at,
                        rng.pick(&[&b"\r"[..], b"\n\n", b"\"", b"{", b"]", b"\\"])
                            .iter()
                            .copied(),
                    ),
                ),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let framing = if rng.chance(90) { story.framing } else { Framing::Values };
        let wanted = watch(story.format, framing, [&*bytes]);
        let mut chunks = Vec::new();
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rng.below(60).min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        let facts = watch(story.format, framing, chunks);
        assert_eq!(facts, wanted, "SEED={seed} {}", story.file.display());
        if framing == Framing::Events && !bytes.starts_with("\u{feff}".as_bytes()) {
            let (facts, _) = wanted;
            let slow = Facts {
                heartbeats: facts.heartbeats,
                heartbeats_in_row: facts.heartbeats_in_row,
                ..read_slowly(story.format, &bytes)
            };
            assert_eq!(facts, slow, "SEED={seed} {}", story.file.display());
        }
    }
}

#[test]
fn a_too_long_event_is_read_up_to_the_limit() {
    let filler = "x".repeat(EVENT_BYTES_MAX);
    let block = |content: &str| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{content}}}\n\n"
        )
    };
    let stream = [
        block(r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search"}"#),
        block(&format!(
            r#"{{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":"{filler}","tool_use_id":"no"}}"#
        )),
        format!(
            "data: {{\"type\":\"message_delta\",\"x\":[\"{filler}\"],\"delta\":{{\"stop_reason\":\"end_turn\"}}}}\n\n"
        ),
        block(r#"{"type":"tool_use","id":"toolu_1","name":"ls"}"#),
        "data: {\"type\":\"message_stop\"}\n\n".to_owned(),
    ]
    .concat();
    let wanted = watch(Format::Anthropic, Framing::Events, [stream.as_bytes()]);
    let (facts, _) = &wanted;
    assert_eq!((facts.events, facts.truncated, facts.terminal), (5, 2, true));
    assert_eq!(
        (facts.server_tools.started, facts.server_tools.latest_tool()),
        (1, None)
    );
    assert_eq!((facts.calls.count, facts.stop.as_deref()), (1, None));
    for size in [
        1000,
        4096,
        65536,
        EVENT_BYTES_MAX - 1,
        EVENT_BYTES_MAX,
        EVENT_BYTES_MAX + 1,
    ] {
        let chunks = stream.as_bytes().chunks(size);
        assert_eq!(
            watch(Format::Anthropic, Framing::Events, chunks),
            wanted,
            "chunks of {size}"
        );
    }
}

/// Returns the data of the events of a stream.
fn data_of_events(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix("\u{feff}".as_bytes()).unwrap_or(stream);
    let mut data = Vec::new();
    EventFramer::default().push(stream, |event| {
        let [start, end] = [event.start, event.end].map(|at| usize::try_from(at).unwrap());
        let event = SseEvent::read(&stream[start..end]);
        data.extend(Some(event.data.to_vec()).filter(|data| !data.is_empty()));
    });
    data
}

/// Whatever the format: a frame gives the facts of the event inside.
#[test]
fn frames_give_the_facts_of_their_events() {
    let mut checked = 0;
    for story in stories().iter().filter(|story| story.framing == Framing::Events) {
        let events = data_of_events(&story.bytes);
        let plain: Vec<u8> = events
            .iter()
            .flat_map(|data| {
                let lines = data.split(|byte| *byte == b'\n');
                let lines = lines.flat_map(|line| [b"data: ", line, b"\n"].concat());
                lines.chain(*b"\n").collect::<Vec<u8>>()
            })
            .collect();
        let frames: Vec<u8> = events.iter().flat_map(|data| chunk_frame(data)).collect();
        let wanted = watch(story.format, Framing::Events, [&*plain]);
        assert_eq!(
            watch(story.format, Framing::Frames, [&*frames]),
            wanted,
            "{}",
            story.file.display()
        );
        checked += 1;
    }
    assert!(checked >= 20, "{checked}");
}

/// The bytes and the sums of a frame are those of Amazon's own SDK for Python (botocore 1.44).
#[test]
fn the_strict_provider_writes_frames_as_amazon_does() {
    let hex: String = frame(&[(":message-type", "event")], b"{}")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "000000280000001660470efd0d3a6d6573736167652d747970650700056576656e747b7db7184afc"
    );
}

#[test]
fn a_too_long_frame_is_read_up_to_the_limit() {
    let filler = "x".repeat(EVENT_BYTES_MAX);
    let stream: Vec<u8> = [
        format!(r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"toolu_1","name":"ls","input":"{filler}"}}}}"#),
        format!(r#"{{"type":"message_delta","x":["{filler}"],"delta":{{"stop_reason":"end_turn"}}}}"#),
        r#"{"type":"message_stop"}"#.to_owned(),
    ]
    .iter()
    .flat_map(|event| chunk_frame(event.as_bytes()))
    .collect();
    let wanted = watch(Format::Anthropic, Framing::Frames, [&*stream]);
    let (facts, _) = &wanted;
    assert_eq!((facts.events, facts.truncated, facts.terminal), (3, 2, true));
    assert_eq!((facts.calls.count, facts.stop.as_deref()), (1, None));
    for size in [1000, 65536, EVENT_BYTES_MAX, EVENT_BYTES_MAX + 1] {
        let chunks = stream.chunks(size);
        assert_eq!(
            watch(Format::Anthropic, Framing::Frames, chunks),
            wanted,
            "chunks of {size}"
        );
    }
}

#[test]
fn an_impossible_length_is_forgotten_once_the_answer_has_ended() {
    let end = chunk_frame(br#"{"type":"message_stop"}"#);
    for (bytes, lost) in [
        (vec![0; 4], true),
        ([&*end, &[0; 4]].concat(), false),
        ([&[0; 4], &*end].concat(), true),
    ] {
        for size in [1, 7, bytes.len()] {
            let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Frames);
            bytes.chunks(size).for_each(|chunk| watcher.push(chunk));
            assert_eq!((watcher.is_lost(), watcher.is_stream()), (lost, !lost), "{bytes:?}");
        }
    }
}

#[test]
fn a_number_at_the_limit_is_not_read_in_part() {
    let usage = r#""usage":{"completion_tokens":7,"prompt_tokens":12345"#;
    // The limit is after the third digit.
    let blanks = " ".repeat(EVENT_BYTES_MAX - usage.len() + 1);
    let value = format!("{{{blanks}{usage}}},\"x\":[{blanks}]}}");
    assert!(value[..EVENT_BYTES_MAX].ends_with(":123"));
    let (facts, _) = watch(Format::OpenAiChat, Framing::Values, [value.as_bytes()]);
    assert_eq!((facts.truncated, facts.usage.input, facts.usage.output), (1, 0, 7));
}

#[test]
fn lists_are_bounded_but_counts_continue() {
    let block = |id: usize, kind: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"content_block\":{{\"type\":\"{kind}\",\"id\":\"id_{id}\"}}}}\n\n"
        )
    };
    let stream: String = (0..1000)
        .map(|id| block(id, "tool_use") + &block(id, "server_tool_use"))
        .collect();
    let (facts, _) = watch(Format::Anthropic, Framing::Events, [stream.as_bytes()]);
    assert_eq!((facts.calls.count, facts.calls.list.len()), (1000, LISTED_MAX));
    let tools = &facts.server_tools;
    assert_eq!((tools.started, tools.in_flight.len()), (1000, LISTED_MAX));
}

#[test]
fn server_tools_and_compaction_are_tracked_in_flight() {
    let stream = fs::read(repository("tests/streams").join("anthropic/server_tools.sse")).unwrap();
    let text = String::from_utf8(stream).unwrap();
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Events);
    let mut seen = Vec::new();
    for event in text.split_inclusive("\n\n") {
        watcher.push(event.as_bytes());
        let tools = &watcher.facts().server_tools;
        let now = tools
            .latest_tool()
            .map(|tool| (tools.in_flight.len(), tool.name.to_string()));
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    let some = |count, name: &str| Some((count, name.to_owned()));
    let wanted = [
        None,
        some(1, "web_search"),
        None,
        some(1, "echo"),
        None,
        some(1, "future_tool_use"),
        some(2, "code_execution"),
        some(1, "code_execution"),
    ];
    assert_eq!(seen, wanted);
    let stream = fs::read(repository("tests/streams").join("anthropic/compaction.sse")).unwrap();
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Events);
    let mut phases = vec![OutputPhase::Unseen];
    for byte in stream {
        watcher.push(&[byte]);
        if phases.last() != Some(&watcher.facts().compaction) {
            phases.push(watcher.facts().compaction);
        }
    }
    assert_eq!(phases, [OutputPhase::Unseen, OutputPhase::Open, OutputPhase::Over]);
}

#[test]
fn without_a_format_only_events_are_framed() {
    let mut watcher = Watcher::new(None, Framing::Events);
    assert!(watcher.is_between_events());
    watcher.push(b"data: {\"type\":\"message_stop\"}\n");
    assert!(!watcher.is_between_events());
    watcher.push(b"\n");
    assert!(watcher.is_between_events());
    assert_eq!(watcher.facts(), &Facts::default());
}
