//! The strength of call ids: a strong id names one call among all of a caller, a reusable one such as `call_0` does
//! not.

use memchr::memmem;

use crate::work;

/// Longest tool name in bytes that is searched in an id. Providers accept 128 at most.
const TOOL_BYTES_MAX: usize = 512;
/// Shortest tool name, in letters and digits, that is taken out of an id.
const TOOL_LETTERS_MIN: usize = 3;
/// Different characters that a random part has at least. A padded counter has fewer.
const DIFFERENT_MIN: u32 = 6;
/// Chance in an id, in tenths of a bit, from which on it is strong: 40 bits, as nine random letters and digits have.
const CHANCE_MIN: usize = 400;
/// Words of which clients and servers make counters, such as `turn1tool2call3`.
const WORDS: &[&[u8]] = &[
    b"functions",
    b"function",
    b"func",
    b"tools",
    b"tool",
    b"calls",
    b"call",
    b"turn",
    b"step",
    b"agent",
    b"task",
    b"run",
    b"job",
    b"use",
    b"item",
    b"message",
    b"msg",
    b"request",
    b"req",
    b"session",
    b"thread",
    b"user",
    b"chat",
    b"result",
    b"res",
    b"index",
    b"idx",
    b"round",
    b"iteration",
    b"iter",
    b"node",
    b"loop",
    b"test",
    b"id",
    b"no",
];

/// Returns `true` if an id names one call among all calls of a caller.
///
/// The ids of known makers are strong by their form. Others are if enough of them is chance: counters, dates, the name
/// of the tool and plain words are not. `call_0`, `functions.read:3` and `read_1763800000000_2` are reused.
pub fn is_strong(id: &[u8], tool: &[u8]) -> bool {
    has_makers_form(id) || chance_of(id, tool) >= CHANCE_MIN
}

/// Returns `true` if the id has the form of a maker whose ids are random.
///
/// Anthropic: `toolu_` and 20 to 26 letters and digits, also after `bdrk_` or `vrtx_`. `OpenAI`: `call_` and 24. Bedrock:
/// `tooluse_` and 20 to 24, also `-` and `_`. vLLM: `chatcmpl-tool-` and 32 hexadecimal digits. UUIDs. Some clients strip
/// the separators (openclaw 2026.9.6).
pub fn has_makers_form(id: &[u8]) -> bool {
    work::count(id.len());
    // Without an early exit the loop runs on many bytes at once.
    let is_word = |rest: &[u8]| rest.iter().fold(true, |all, byte| all & byte.is_ascii_alphanumeric());
    let is_url = |rest: &[u8]| {
        rest.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let is_hex = |rest: &[u8]| rest.iter().all(u8::is_ascii_hexdigit);
    let random = if let Some(rest) = strip(id, &[b"tooluse_", b"tooluse"]) {
        ((20..=24).contains(&rest.len()) && is_url(rest)).then_some(rest)
    } else if let Some(rest) = strip(
        id,
        &[
            b"toolu_bdrk_",
            b"toolu_vrtx_",
            b"toolu_",
            b"toolubdrk",
            b"tooluvrtx",
            b"toolu",
        ],
    ) {
        ((20..=26).contains(&rest.len()) && is_word(rest)).then_some(rest)
    } else if let Some(rest) = strip(id, &[b"chatcmpl-tool-", b"chatcmpltool"]) {
        (rest.len() == 32 && is_hex(rest)).then_some(rest)
    } else if let Some(rest) = strip(id, &[b"call_", b"call"]) {
        (rest.len() == 24 && is_word(rest)).then_some(rest)
    } else {
        is_uuid(id).then_some(id)
    };
    random.is_some_and(|random| count_different(random) >= DIFFERENT_MIN)
}

fn strip<'i>(id: &'i [u8], prefixes: &[&[u8]]) -> Option<&'i [u8]> {
    prefixes.iter().find_map(|prefix| id.strip_prefix(*prefix))
}

/// Returns `true` for the 36 characters of a UUID.
fn is_uuid(id: &[u8]) -> bool {
    id.len() == 36
        && id.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns the number of different ASCII characters.
fn count_different(text: &[u8]) -> u32 {
    let seen = text.iter().fold(0_u128, |seen, byte| {
        seen | 1_u128.checked_shl((*byte).into()).unwrap_or(0)
    });
    seen.count_ones()
}

/// Estimates the chance in an id, in tenths of a bit.
fn chance_of(id: &[u8], tool: &[u8]) -> usize {
    // The tool's name is searched in each piece, so its length bounds the work.
    if tool.len() > TOOL_BYTES_MAX {
        return 0;
    }
    let tool: Vec<u8> = tool.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    let pieces = id.split(|byte| !byte.is_ascii_alphanumeric());
    pieces.map(|piece| chance_of_piece(piece, &tool)).sum()
}

/// Estimates the chance in letters and digits. `tool` has no other characters.
fn chance_of_piece(piece: &[u8], tool: &[u8]) -> usize {
    work::count(piece.len());
    work::count_bytes(tool.len());
    // A part of the tool's name proves nothing, however random it looks, nor does the whole name inside of it.
    if memmem::find(tool, piece).is_some() {
        return 0;
    }
    if tool.len() >= TOOL_LETTERS_MIN
        && let Some(at) = memmem::find(piece, tool)
    {
        let (before, rest) = piece.split_at(at);
        let after = rest.get(tool.len()..).unwrap_or_default();
        return chance_of_piece(before, b"") + chance_of_piece(after, b"");
    }
    let has = |is: fn(&u8) -> bool| piece.iter().any(is);
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let has_both = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    // Words alone, and counters alone.
    if !is_mixed && !has_both {
        return 0;
    }
    let runs = || piece.chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit());
    let is_letters = |run: &&[u8]| run.first().is_some_and(u8::is_ascii_alphabetic);
    // `20261122T120000Z` is a date.
    let is_counter = |run: &[u8]| is_made_of_words(run) || matches!(run, b"T" | b"Z");
    if runs().filter(is_letters).all(is_counter) {
        return 0;
    }
    runs().map(chance_of_run).sum()
}

/// Estimates the chance in a run of letters, or of digits.
fn chance_of_run(run: &[u8]) -> usize {
    let has = |is: fn(&u8) -> bool| run.iter().any(is);
    let of_character = match () {
        () if has(u8::is_ascii_digit) => 33,
        () if has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) => 57,
        // A longer run in one case may be a word.
        () if run.len() > 3 => 15,
        () => 47,
    };
    run.len().saturating_mul(of_character)
}

/// Returns `true` if letters consist of words of [`WORDS`] alone, in any case.
fn is_made_of_words(mut letters: &[u8]) -> bool {
    while !letters.is_empty() {
        let word = WORDS.iter().find(|word| {
            work::count(1);
            let head = letters.get(..word.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(word))
        });
        let Some(word) = word else { return false };
        letters = letters.get(word.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of random characters, the same for every run.
    struct Chance(u64);

    impl Chance {
        fn pick(&mut self, letters: &[u8], count: usize) -> String {
            let mut pick = || {
                // SplitMix64.
                self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = self.0;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let mixed = usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap();
                char::from(letters[mixed % letters.len()])
            };
            (0..count).map(|_| pick()).collect()
        }
    }

    const HEX: &[u8] = b"0123456789abcdef";
    const BASE36: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    const BASE62: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const URL: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

    /// Makes ids of one maker.
    type Maker = fn(&mut Chance) -> String;

    /// Makers with a form of their own: none of 10^6 ids is taken for a counter.
    #[test]
    fn no_id_of_a_known_form_is_taken_for_a_counter() {
        let makers: [(&str, Maker); 6] = [
            ("Anthropic", |chance| format!("toolu_01{}", chance.pick(BASE62, 22))),
            ("Bedrock", |chance| format!("toolu_bdrk_01{}", chance.pick(BASE62, 22))),
            ("Bedrock Converse", |chance| format!("tooluse_{}", chance.pick(URL, 22))),
            ("OpenAI", |chance| format!("call_{}", chance.pick(BASE62, 24))),
            ("vLLM", |chance| format!("chatcmpl-tool-{}", chance.pick(HEX, 32))),
            ("UUID", |chance| {
                let parts = [8, 4, 4, 4, 12].map(|count| chance.pick(HEX, count));
                parts.join("-")
            }),
        ];
        for (maker, make) in makers {
            let mut chance = Chance(1);
            for _ in 0..1_000_000 {
                let id = make(&mut chance);
                assert!(is_strong(id.as_bytes(), b"bash"), "{maker}: {id}");
            }
        }
    }

    /// Makers without one: the share of ids taken for counters is printed.
    #[test]
    fn few_other_random_ids_are_taken_for_counters() {
        let makers: [(&str, Maker, usize); 4] = [
            ("Mistral, nine letters and digits", |chance| chance.pick(BASE62, 9), 60),
            (
                "24 lowercase letters and digits",
                |chance| format!("call-{}", chance.pick(BASE36, 24)),
                5,
            ),
            (
                "16 hexadecimal digits",
                |chance| format!("x_{}", chance.pick(HEX, 16)),
                5,
            ),
            (
                "Ollama, eight lowercase letters and digits",
                |chance| format!("call_{}", chance.pick(BASE36, 8)),
                100,
            ),
        ];
        for (maker, make, most) in makers {
            let mut chance = Chance(2);
            let weak = (0..100_000)
                .filter(|_| !is_strong(make(&mut chance).as_bytes(), b"bash"))
                .count();
            println!("{maker}: {weak} of 100,000 taken for counters");
            assert!(weak <= most * 1000, "{maker}: {weak}");
        }
    }

    #[test]
    fn ids_made_of_chance_are_strong_and_counters_are_not() {
        for id in [
            "toolu_01A09q90qw90lq917835lq9",
            "toolu01A09q90qw90lq917835lq9",
            "toolu_01fIPaxlEpOOxAeJDOjoAmSm",
            "call_FthC9qRpsL5kBpwwyw6c7j4k",
            "call_RDqEAMQmERNyOqLUycsThOAw",
            "callRDqEAMQmERNyOqLUycsThOAw",
            "chatcmpl-tool-5f2a9d0c7e1b4a6f8c3d2e1f0a9b8c7d",
            "D681PevK3",
            "UHCGqxbXp",
            "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q1",
            "3754373f-564e-45dd-be92-de5a4a220e8d",
        ] {
            assert!(is_strong(id.as_bytes(), b"bash"), "{id}");
        }
        for (id, tool) in [
            ("call_0", "bash"),
            ("call0", "bash"),
            ("call_000000000000000000000012", "bash"),
            ("toolu_0000000000000000000012", "bash"),
            ("00000000-0000-0000-0000-000000000001", "bash"),
            ("functions.read2all:3", "read2all"),
            ("functionsgetweather0", "get_weather"),
            ("run_shell_command_1763800000000_2", "run_shell_command"),
            ("toolcall17", "bash"),
            ("turn1tool2call3", "bash"),
            ("agent0step12call1", "bash"),
            ("call_20261122T120000Z", "bash"),
            ("my-application-task-12", "bash"),
            ("widget12", "bash"),
            ("", "bash"),
            ("1763800000000", ""),
        ] {
            assert!(!is_strong(id.as_bytes(), tool.as_bytes()), "{id}");
        }
        // A name of that length is not searched, and a form needs no search.
        let (long, id) = ([b'x'; TOOL_BYTES_MAX + 1], b"D681PevK3");
        assert!(is_strong(id, &[b'x'; TOOL_BYTES_MAX]) && !is_strong(id, &long));
        assert!(is_strong(b"toolu_01A09q90qw90lq917835lq9", &long));
    }
}
