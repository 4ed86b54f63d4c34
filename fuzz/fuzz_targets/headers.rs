//! The check of headers (`src/header.rs`) under libFuzzer.
#![no_main]

#[path = "../src/header.rs"]
mod header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| header::headers(data));
