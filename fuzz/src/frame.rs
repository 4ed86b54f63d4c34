//! The event framer against a reader of the whole stream, and the watchers for every chunking.

use std::ops::Range;

use antiphon_core::wire::{
    Format,
    frames::EventFramer,
    watch::{Facts, Framing, Watcher},
};

/// Checks every chunking against the whole stream: the framer gives the same events, and watchers of every format the
/// same facts.
pub fn frames(stream: &[u8]) {
    let wanted = frame_whole(stream);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in stream {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut sizes = hash;
    let mut random = || {
        sizes = sizes.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(sizes >> 60).unwrap_or_default()
    };
    assert_eq!(frame_chunks(stream, || stream.len().max(1)), wanted, "in one chunk");
    for size in [1, 2, 3, 7] {
        assert_eq!(frame_chunks(stream, || size), wanted, "in chunks of {size}");
    }
    assert_eq!(
        frame_chunks(stream, &mut random),
        wanted,
        "in random chunks, empty ones among them"
    );
    for format in Format::ALL {
        for framing in [Framing::Events, Framing::Values, Framing::Frames] {
            let wanted = watch_chunks(stream, format, framing, || stream.len().max(1));
            for size in [1, 7] {
                assert_eq!(
                    watch_chunks(stream, format, framing, || size),
                    wanted,
                    "{format:?} in chunks of {size}"
                );
            }
            assert_eq!(
                watch_chunks(stream, format, framing, &mut random),
                wanted,
                "{format:?} in random chunks"
            );
        }
    }
}

fn watch_chunks(stream: &[u8], format: Format, framing: Framing, mut size: impl FnMut() -> usize) -> Facts {
    let mut watcher = Watcher::new(Some(format), framing);
    let mut rest = stream;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(size().min(rest.len()));
        watcher.push(chunk);
        rest = behind;
    }
    watcher.finish();
    watcher.facts().clone()
}

fn frame_chunks(stream: &[u8], mut size: impl FnMut() -> usize) -> (Vec<Range<u64>>, bool) {
    let mut framer = EventFramer::default();
    let mut events = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(size().min(rest.len()));
        framer.push(chunk, |event| events.push(event));
        rest = behind;
    }
    (events, framer.is_between_events())
}

/// Returns the events, and whether the end lies between two. A CR at the very end ends no line, since an LF may follow.
fn frame_whole(stream: &[u8]) -> (Vec<Range<u64>>, bool) {
    let (mut events, mut begin, mut line, mut at) = (Vec::new(), 0, 0, 0);
    while at < stream.len() {
        let end = match (stream[at], stream.get(at + 1)) {
            (b'\r', None) => return (events, at == line || begin == stream.len()),
            (b'\r', Some(b'\n')) => at + 2,
            (b'\r' | b'\n', _) => at + 1,
            _ => {
                at += 1;
                continue;
            }
        };
        if at == line {
            events.push(begin as u64..end as u64);
            begin = end;
        }
        (line, at) = (end, end);
    }
    (events, begin == stream.len())
}
