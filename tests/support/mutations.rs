//! Runs a check of a fuzz target over recorded cases, seeds and cheap mutations of both.
//!
//! `MUTATIONS=` sets the number of mutations for each check, `SEED=` replays one. A failure prints its seed and its
//! input.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the number of mutations and the seed come from the environment"
)]

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
};

use super::{bodies::Rng, cases, repository::repository};

/// Number of mutations for each check.
const MUTATIONS: u64 = 250;

/// Bytes that are inserted anywhere: valid somewhere in a format, damaging elsewhere.
const WORDS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"\\",
    b"\\u005f",
    b"\xff",
    b"\0",
    b"null",
    b"\n\n",
    b"\r",
    b"\"messages\":",
    b"\"role\":\"assistant\",",
    b"\"id\":\"toolu_01A\",",
    b"connection: x-a,",
    b"{},",
    b"[],",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Returns the starting inputs of a check: its own seeds, or else the requests of the recorded cases.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let own = repository("fuzz/seeds").join(name);
    if !own.is_dir() {
        let requests = cases::folders()
            .into_iter()
            .map(|(_, folder)| folder.join("request.json"));
        return requests.map(|file| fs::read(file).unwrap()).collect();
    }
    let mut files: Vec<_> = fs::read_dir(own).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Changes `input` in up to four places.
fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.within(1, 4) {
        let at = rng.below(input.len() + 1);
        let end = (at + rng.within(1, 40)).min(input.len());
        match rng.below(6) {
            0 => drop(input.drain(at..end)),
            1 => drop(input.splice(at..at, rng.pick(&WORDS).iter().copied())),
            2 => {
                let piece = input[at..end].to_vec();
                let to = rng.below(input.len() + 1);
                drop(input.splice(to..to, piece));
            }
            3 if at < input.len() => input[at] = u8::try_from(rng.below(256)).unwrap(),
            4 if !other.is_empty() => {
                let from = rng.below(other.len());
                let piece = &other[from..(from + rng.within(1, 200)).min(other.len())];
                drop(input.splice(at..end, piece.iter().copied()));
            }
            _ => input.truncate(at.max(1)),
        }
    }
}

/// Runs one check. Prints the seed and the input if it fails.
fn run(name: &str, check: fn(&[u8]), seed: Option<u64>, input: &[u8]) {
    if let Err(failure) = panic::catch_unwind(AssertUnwindSafe(|| check(input))) {
        let again = seed.map_or_else(|| "as recorded".to_owned(), |seed| format!("SEED={seed}"));
        println!("{name} {again}\n{input:?}\n{}", String::from_utf8_lossy(input));
        panic::resume_unwind(failure);
    }
}

/// Runs a check over its starting inputs and over mutations of them.
pub fn run_check(name: &str, check: fn(&[u8])) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no seeds");
    let only = number("SEED");
    for input in corpus.iter().filter(|_| only.is_none()) {
        run(name, check, None, input);
    }
    let count = number("MUTATIONS").unwrap_or(MUTATIONS);
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        let mut rng = Rng::new(seed);
        let mut input = rng.pick(&corpus).clone();
        let other = rng.pick(&corpus).clone();
        mutate(&mut rng, &mut input, &other);
        run(name, check, Some(seed), &input);
    }
}
