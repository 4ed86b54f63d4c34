//! The scanner against its oracle: equal spans, roles, kinds and ids for every case and for random documents.

use std::fs;

use antiphon_core::wire::{Dialect, Format, Wire};

use crate::support::{bodies, cases, documents::Document, oracle};

/// Number of documents per run. `CASES=` overrides it.
fn documents() -> u64 {
    std::env::var("CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(40_000)
}

/// Compares both readings. Returns the number of parts if both have read the body.
fn compare(body: &[u8], format: Format, name: &str) -> Option<usize> {
    let dialect = Dialect::Standard;
    let wire = Wire { format, dialect };
    let wanted = oracle::read(body, wire);
    let read = wire.read(body);
    match (wanted, read) {
        (Some(wanted), Ok(read)) => {
            let told = oracle::from_conversation(&read);
            assert_eq!(told, wanted, "{name}: {}", String::from_utf8_lossy(body));
            Some(told.iter().map(|(.., parts)| parts.len()).sum())
        }
        (Some(_), Err(why)) => panic!(
            "{name}: the oracle reads it, the scanner says {why}: {}",
            String::from_utf8_lossy(body)
        ),
        // The scanner may read invalid JSON. The full parse before an edit refuses it.
        (None, Ok(_)) if antiphon_core::wire::json::validate(body).is_err() => None,
        (None, Ok(_)) => panic!(
            "{name}: the oracle refuses it, the scanner reads it: {}",
            String::from_utf8_lossy(body)
        ),
        (None, Err(_)) => None,
    }
}

#[test]
fn every_case_is_read_as_the_oracle_reads_it() {
    for (_, folder) in cases::folders() {
        for file in ["request.json", "repaired.json"] {
            let Ok(body) = fs::read(folder.join(file)) else {
                continue;
            };
            for format in Format::ALL {
                compare(&body, format, &folder.display().to_string());
            }
        }
    }
}

#[test]
fn generated_bodies_are_read_as_the_oracle_reads_them() {
    for seed in 0..documents() / 16 {
        let (_, wire) = Wire::NAMES[usize::try_from(seed).unwrap() % Wire::NAMES.len()];
        let (healthy, mangled) = (bodies::healthy(seed, wire), bodies::mangle(seed, wire).0);
        for body in [healthy.bytes(), mangled.bytes()] {
            for format in Format::ALL {
                compare(&body, format, &format!("SEED={seed} {wire}"));
            }
        }
    }
}

#[test]
fn random_documents_are_read_as_the_oracle_reads_them() {
    let (mut read, mut parts) = (0, 0);
    for seed in 0..documents() {
        let body = Document::new(seed).body();
        for format in Format::ALL {
            let seen = compare(body.as_bytes(), format, &format!("SEED={seed}"));
            read += u64::from(seen.is_some());
            parts += seen.unwrap_or_default();
        }
    }
    println!("{read} of {} readings have {parts} parts", 2 * documents());
    assert!(
        read > documents() / 2 && parts > 1000,
        "too little was read to tell anything"
    );
}

/// Compares the full parse with `serde_json` and returns the verdict.
fn check_same_verdict(body: &[u8], name: &str) -> bool {
    let wanted = serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
    let told = antiphon_core::wire::json::validate(body).is_ok();
    assert_eq!(told, wanted, "{name}: {}", String::from_utf8_lossy(body));
    wanted
}

/// JSON texts, and texts that are almost JSON.
const ROWS: &[&[u8]] = &[
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"{}",
    b"[]",
    b" {} ",
    b"{}{}",
    b"[,]",
    b"[1,]",
    b"[1 2]",
    b"{\"a\"}",
    b"{\"a\":}",
    b"{\"a\":1,}",
    b"{,}",
    b"{\"a\" 1}",
    b"{1:2}",
    b"[}",
    b"{]",
    b"[1}",
    b"{\"a\":1]",
    b"[[]",
    b"nul",
    b"null",
    b"nulll",
    b"true",
    b"tru",
    b"false",
    b"falsee",
    b"0",
    b"00",
    b"01",
    b"-0",
    b"-",
    b"-a",
    b"+1",
    b"1.",
    b".1",
    b"1.5",
    b"1e5",
    b"1E+5",
    b"1e",
    b"1e+",
    b"1.e5",
    b"1e400",
    b"-1.5e-7",
    b"NaN",
    b"Infinity",
    b"\"",
    b"\"a\"",
    b"\"\\\"",
    b"\"\\\"\"",
    b"\"\\x\"",
    b"\"\\u12\"",
    b"\"\\u12g4\"",
    b"\"\\ud83d\"",
    b"\"\\u0000\"",
    b"\"\n\"",
    b"\"\x1f\"",
    b"\"\x7f\"",
    b"\"\xff\"",
    b"\"\xc3\xa9\"",
    b"\"\xed\xa0\x80\"",
    b"\xef\xbb\xbf{}",
    b"{}\x00",
    b"\x0b{}",
    b"[\"a\",\"b\"]x",
    b"'a'",
    b"{\"a\":1}//",
];

#[test]
fn the_full_parse_refuses_what_serde_json_refuses() {
    let accepted = ROWS.iter().filter(|row| check_same_verdict(row, "row")).count();
    assert!((15..ROWS.len()).contains(&accepted), "{accepted} rows accepted");
    for row in ROWS {
        // A prefix of every length puts the row at every offset of a SIMD block.
        for length in 0..140 {
            let mut body = format!("[\"{}\\\\\",", "x".repeat(length)).into_bytes();
            body.extend_from_slice(row);
            body.push(b']');
            check_same_verdict(&body, "row in a list");
        }
    }
    for depth in [1, 63, 64, 65, 127, 128, 129, 100_000] {
        let mut body = "[{\"a\":".repeat(depth) + "1" + &"}]".repeat(depth);
        assert!(check_same_verdict(body.as_bytes(), "deep"));
        body.pop();
        assert!(!check_same_verdict(body.as_bytes(), "deep and cut"));
    }
}

#[test]
fn the_full_parse_agrees_with_serde_json_on_damaged_documents() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..documents() / 2 {
        let mut document = Document::new(seed);
        let mut body = Document::new(seed).body().into_bytes();
        for _ in 0..document.next(3) {
            let at = document.next(body.len());
            match document.next(4) {
                0 => body.truncate(at),
                1 => body[at] = b"\"\\{}[],:0x\n\x01 \xe9"[document.next(14)],
                2 => drop(body.remove(at)),
                _ => body.insert(at, b"\"\\{}[],:0-\t\x1f u"[document.next(14)]),
            }
            if body.is_empty() {
                break;
            }
        }
        if check_same_verdict(&body, &format!("SEED={seed}")) {
            accepted += 1;
        } else {
            refused += 1;
        }
    }
    assert!(
        accepted > documents() / 20 && refused > documents() / 20,
        "{accepted} accepted, {refused} refused"
    );
}
