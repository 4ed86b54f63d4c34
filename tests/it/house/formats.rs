//! Choices among formats: each names every format, so that the compiler asks for those of a new one.
//!
//! What is looked for is text, in code without comments, strings and unit tests:
//!
//! 1. a `match` with an arm that names a format, and an arm that leaves the format open: `_`, `..` alone, or a binding,
//!    also inside `Some(…)` and in the format's place of a tuple;
//! 2. a comparison with one format: `==`, `!=`, `matches!`, `if let`, `let … else`.
//!
//! Names of a format are those with a path (`Format::Gemini`), `Self::…` in the file of the enum, and bare ones where a
//! file imports them. The same holds for the shapes of histories, and for the formats of the strict provider.

use std::{fs, path::PathBuf};

use super::architecture::{Source, sources, walk};
use crate::support::repository::repository;

/// Fewest choices that the reader must see: it would pass if it saw none.
const CHOICES_MIN: usize = 100;

/// An enum whose variants are formats.
struct FormatEnum {
    name: &'static str,
    variants: Vec<String>,
    /// The file that defines it.
    home: String,
}

/// A file.
struct Code {
    path: String,
    /// Its code without comments, the inside of strings, and unit tests.
    text: String,
}

#[test]
fn every_choice_names_every_format() {
    let (gateway, provider) = (gateway_code(), files_under("crates/strict-provider/src"));
    let core = [enum_in(&gateway, "Format"), enum_in(&gateway, "HistoryShape")];
    let judged = [enum_in(&provider, "Format")];
    let (mut seen, mut faults) = (0, Vec::new());
    for (code, enums) in [
        (&gateway, &core[..]),
        (&files_under("tests/support"), &core[..]),
        (&provider, &judged[..]),
    ] {
        for file in code {
            let (choices, found) = judge(file, enums);
            seen += choices;
            faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", file.path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen >= CHOICES_MIN, "the reader sees only {seen} choices among formats");
}

#[test]
fn the_reader_sees_open_choices_and_comparisons() {
    let enums = [FormatEnum {
        name: "Format",
        variants: vec!["One".to_owned(), "Two".to_owned()],
        home: "home.rs".to_owned(),
    }];
    for (text, choices, faults) in [
        ("match format { Format::One => 1, Format::Two => 2 }", 1, 0),
        ("match format { Format::One => 1, _ => 2 }", 1, 1),
        ("match format { Format::One => { 1 } _ => 2 }", 1, 1),
        ("match format { Format::One => '{', other => '}' }", 1, 1),
        (
            "match format { Format::One if a => r#\"{\"#, Format::One | Format::Two => \"{\" }",
            1,
            0,
        ),
        ("match (format, user) { (Format::One, _) => 1, (_, true) => 2 }", 1, 1),
        (
            "match (format, user) { (Format::One, _) => 1, (Format::Two, _) => 2 }",
            1,
            0,
        ),
        (
            "match (kind, format) { (_, Format::One) => 1, (Kind::A, ..) => 2 }",
            1,
            0,
        ),
        ("match (kind, format) { (_, Format::One) => 1, (..) => 2 }", 1, 1),
        (
            "match (kind, format) { (_, Format::One) => 1, (None, format) => 2 }",
            1,
            1,
        ),
        ("match wire { Some(Format::One) => 1, None => 2, Some(_) => 3 }", 1, 1),
        (
            "match kind { Kind::A => match format { Format::One => 1, _ => 2 }, _ => 3 }",
            1,
            1,
        ),
        ("match kind { Kind::A => Format::One, _ => Format::Two }", 0, 0),
        ("match self { Self::One => 1, _ => 2 }", 0, 0),
        ("// match format { Format::One => 1, _ => 2 }", 0, 0),
        ("a == Format::One", 0, 1),
        ("a != Some(wire::Format::One)", 0, 1),
        ("Format::One == a", 0, 1),
        ("a == OtherFormat::One", 0, 0),
        ("a.map(|b| matches!(b, Format::One | Format::Two))", 0, 1),
        ("if let Some(Format::One) = a {}", 0, 1),
        ("let a = Format::One;", 0, 0),
    ] {
        let file = |path: &str, text: &str| Code {
            path: path.to_owned(),
            text: without_texts(text),
        };
        let (seen, found) = judge(&file("any.rs", text), &enums);
        assert_eq!((seen, found.len()), (choices, faults), "{text}: {found:?}");
        let inside = text
            .replace("wire::", "")
            .replace(" Format::", " Self::")
            .replace("(Format::", "(Self::");
        if !text.starts_with("match self") && !text.starts_with("Format") {
            let (seen, found) = judge(&file("home.rs", &inside), &enums);
            assert_eq!((seen, found.len()), (choices, faults), "{inside}: {found:?}");
        }
    }
}

/// Returns the code of the gateway, its core included.
fn gateway_code() -> Vec<Code> {
    let code = |source: Source| Code {
        path: source.path,
        text: without_texts(&source.code),
    };
    sources().into_iter().map(code).collect()
}

fn files_under(folder: &str) -> Vec<Code> {
    let (root, mut files) = (repository(""), Vec::new());
    walk(&root.join(folder), &mut files);
    let code = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        Code {
            path: file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/"),
            text: without_texts(text.split("#[cfg(test)]").next().unwrap_or_default()),
        }
    };
    files.iter().map(code).collect()
}

/// Reads the variants of the only enum with this name.
fn enum_in(code: &[Code], name: &'static str) -> FormatEnum {
    let head = format!("enum {name} {{");
    let mut homes = code.iter().filter(|file| file.text.contains(&head));
    let home = homes.next().unwrap_or_else(|| panic!("no file has an enum {name}"));
    assert!(homes.next().is_none(), "two files have an enum {name}");
    let body = home.text.split(&head).nth(1).and_then(|rest| rest.split('}').next());
    let variants: Vec<String> = split_at_depth(body.unwrap_or_default(), ',')
        .into_iter()
        .map(|variant| variant.trim().to_owned())
        .filter(|variant| !variant.is_empty())
        .collect();
    assert!(variants.len() >= 4, "{name} has only {variants:?}");
    FormatEnum {
        name,
        variants,
        home: home.path.clone(),
    }
}

/// Returns the number of choices among formats in a file, and its faults.
fn judge(file: &Code, enums: &[FormatEnum]) -> (usize, Vec<String>) {
    let may_name = |formats: &FormatEnum| file.path == formats.home || file.text.contains(formats.name);
    if !enums.iter().any(may_name) {
        return (0, Vec::new());
    }
    let names = |pattern: &str| enums.iter().any(|formats| names_variant(pattern, formats, file));
    let (mut choices, mut faults) = (0, Vec::new());
    for (at, _) in file
        .text
        .match_indices("match ")
        .filter(|(at, _)| is_word_start(&file.text, *at))
    {
        let alternatives: Vec<&str> = arms(&file.text[at..])
            .into_iter()
            .flat_map(|pattern| split_at_depth(without_guard(pattern), '|'))
            .map(str::trim)
            .collect();
        let Some(named) = alternatives.iter().find(|pattern| names(pattern)) else {
            continue;
        };
        choices += 1;
        let place = elements(named).and_then(|parts| parts.iter().position(|part| names(part)));
        let open: Vec<&&str> = alternatives
            .iter()
            .filter(|pattern| leaves_open(pattern, place))
            .collect();
        if !open.is_empty() {
            faults.push(format!("a match that names {named} has {open:?}"));
        }
    }
    for (at, sign) in ["==", "!="].iter().flat_map(|sign| file.text.match_indices(sign)) {
        let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let before = file.text[..at].trim_end().trim_end_matches(')');
        let after = file.text[at + sign.len()..].trim_start().trim_start_matches('&');
        let after = after.trim_start_matches("Some(");
        let left = &before[before.trim_end_matches(is_path).len()..];
        let right = &after[..after.len() - after.trim_start_matches(is_path).len()];
        let one = [left, right].into_iter().filter(|path| names(path));
        faults.extend(one.map(|path| format!("a comparison with {path}")));
    }
    for (at, name) in file.text.match_indices("matches!(") {
        let inside = enclosed(&file.text[at + name.len() - 1..]);
        if split_at_depth(inside, ',').iter().skip(1).any(|pattern| names(pattern)) {
            faults.push(format!("matches!({inside})"));
        }
    }
    for (at, word) in file
        .text
        .match_indices("let ")
        .filter(|(at, _)| is_word_start(&file.text, *at))
    {
        let rest = &file.text[at + word.len()..];
        let pattern = rest.split(['=', ';']).next().unwrap_or_default();
        if names(pattern) {
            faults.push(format!("let {}", pattern.trim()));
        }
    }
    (choices, faults)
}

/// Reports whether a text names a variant.
fn names_variant(text: &str, formats: &FormatEnum, file: &Code) -> bool {
    let is_home = file.path == formats.home;
    // An import of variants makes their bare names those of the enum.
    let is_imported = file.text.contains(&format!("{}::{{", formats.name));
    formats.variants.iter().any(|variant| {
        let is_whole = |(at, _): &(usize, &str)| {
            !text[at + variant.len()..].starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
        };
        text.match_indices(variant.as_str())
            .filter(is_whole)
            .any(|(at, _)| match text[..at].strip_suffix("::") {
                Some(path) => {
                    let owner = path
                        .rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_')
                        .next();
                    owner == Some(formats.name) || (is_home && owner == Some("Self"))
                }
                None => is_imported && is_word_start(text, at),
            })
    })
}

/// Reports whether a pattern leaves the format open, which is the whole value or an element of a tuple.
fn leaves_open(pattern: &str, place: Option<usize>) -> bool {
    let (Some(place), Some(parts)) = (place, elements(pattern)) else {
        return is_open(pattern);
    };
    match parts.iter().position(|part| *part == "..") {
        Some(rest) if rest <= place => parts.iter().all(|part| *part == ".." || is_open(part)),
        _ => parts
            .get(place)
            .is_some_and(|part| split_at_depth(part, '|').into_iter().any(is_open)),
    }
}

/// Reports whether a pattern is `_` or a binding, also inside `Some`.
fn is_open(pattern: &str) -> bool {
    let pattern = pattern.trim().trim_start_matches('&');
    let inside = pattern.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')'));
    let pattern = inside.unwrap_or(pattern).trim();
    let is_name = |letter: char| letter.is_lowercase() || letter.is_ascii_digit() || letter == '_';
    !pattern.is_empty() && pattern.chars().all(is_name) && !["true", "false"].contains(&pattern)
}

/// Returns the elements of a tuple pattern. `None` for any other pattern.
fn elements(pattern: &str) -> Option<Vec<&str>> {
    let inside = pattern.strip_prefix('(')?.strip_suffix(')')?;
    Some(split_at_depth(inside, ',').into_iter().map(str::trim).collect())
}

/// Returns the patterns of the `match` with which a text begins.
fn arms(text: &str) -> Vec<&str> {
    let Some(body) = find_at_depth(text, "{").map(|open| enclosed(&text[open..])) else {
        return Vec::new();
    };
    let (mut patterns, mut rest) = (Vec::new(), body);
    while let Some(arrow) = find_at_depth(rest, "=>") {
        patterns.push(rest[..arrow].trim());
        rest = rest[arrow + 2..].trim_start();
        let end = if rest.starts_with('{') {
            enclosed(rest).len() + 2
        } else {
            find_at_depth(rest, ",").unwrap_or(rest.len())
        };
        rest = rest[end..].trim_start_matches([',', ' ']);
    }
    patterns
}

/// Returns a pattern without its guard.
fn without_guard(pattern: &str) -> &str {
    find_at_depth(pattern, " if ").map_or(pattern, |guard| &pattern[..guard])
}

/// Returns the text between the bracket with which `text` begins and its other end.
fn enclosed(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 1 => return &text[1..at],
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    ""
}

/// Returns the first place of `wanted` outside of all brackets.
fn find_at_depth(text: &str, wanted: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        if depth == 0 && text[at..].starts_with(wanted) {
            return Some(at);
        }
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn split_at_depth(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(at) = find_at_depth(rest, separator.encode_utf8(&mut [0; 4])) {
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len_utf8()..];
    }
    parts.push(rest);
    parts
}

fn is_word_start(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Removes comments and the inside of strings and characters, and makes one blank of several.
fn without_texts(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(letter) = rest.chars().next() {
        let raw = rest
            .trim_start_matches('b')
            .strip_prefix('r')
            .filter(|_| rest.starts_with(['r', 'b']) && is_word_start(&out, out.len()));
        let hashes = raw.map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = raw.filter(|raw| raw[hashes..].starts_with('"')) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = rest.len() - raw.len() + hashes + 1;
            out.push_str("\"\"");
            start + rest[start..].find(&end).map_or(rest.len() - start, |at| at + end.len())
        } else if letter == '"' {
            out.push_str("\"\"");
            1 + end_of_quoted(&rest[1..], '"')
        } else if letter == '\'' && is_character(rest) {
            out.push_str("''");
            1 + end_of_quoted(&rest[1..], '\'')
        } else if letter.is_whitespace() {
            out.push(' ');
            rest.len() - rest.trim_start().len()
        } else {
            out.push(letter);
            letter.len_utf8()
        };
        rest = &rest[skipped..];
    }
    out
}

/// Reports whether a quote begins a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    let first = letters.next();
    first == Some('\\') || letters.next() == Some('\'')
}

/// Returns the bytes up to and with the quote that ends a text.
fn end_of_quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        if letter == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}
