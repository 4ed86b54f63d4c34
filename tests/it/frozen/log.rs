//! Pins the fields of log lines: level, target and keys of each event. Messages are not pinned.

use std::sync::{Arc, Mutex};

use antiphon::{
    repair::{Action, RepairReport},
    telemetry::{
        Telemetry,
        events::{ExchangeEnded, ResultPosted},
    },
    wire::Unreadable,
};
use serde_json::Value;
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
};

use crate::{
    frozen::golden::same,
    house::architecture::{Source, sources},
    support::log::listen,
    telemetry::metrics::{Lines, ended},
};

/// A log layer that collects the level, the target and the keys of each event.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Keys {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let known = event.metadata();
        let names = known.fields().iter().map(|field| field.name());
        let keys: Vec<&str> = names.filter(|name| *name != "message").collect();
        let line = format!("{} {}: {}", known.level(), known.target(), keys.join(" "));
        self.0.lock().unwrap().push(line);
    }
}

/// Returns the fields of the events that telemetry writes under its own targets.
fn of_telemetry() -> Vec<String> {
    let telemetry = Telemetry::default();
    let tell = || {
        telemetry.record_exchange(&ended());
        telemetry.record_exchange(&ExchangeEnded {
            side: Some("provider"),
            ..ended()
        });
        telemetry.record_post(&ResultPosted {
            service: "s",
            answer: "settled",
            bytes: 1,
            source: None,
        });
    };
    // A log call site that is first met by a thread without a listener may stay disabled, so each event is written once
    // before.
    tell();
    let keys = Keys::default();
    let _listening = listen(tracing_subscriber::registry().with(keys.clone()));
    tell();
    keys.0.lock().unwrap().clone()
}

/// Returns the arguments of a macro whose opening parenthesis starts the text.
fn arguments(code: &str) -> Vec<String> {
    let (mut depth, mut is_text, mut is_escaped) = (0, false, false);
    let mut arguments = vec![String::new()];
    for letter in code.chars() {
        let ends = match letter {
            _ if is_escaped => false,
            '"' => {
                is_text = !is_text;
                false
            }
            '(' | '[' | '{' if !is_text => {
                depth += 1;
                false
            }
            ')' | ']' | '}' if !is_text => {
                depth -= 1;
                depth == 0
            }
            ',' => !is_text && depth == 1,
            _ => false,
        };
        is_escaped = is_text && !is_escaped && letter == '\\';
        if depth == 0 {
            break;
        }
        if ends {
            arguments.push(String::new());
        } else {
            arguments.last_mut().unwrap().push(letter);
        }
    }
    arguments
        .iter()
        .map(|argument| argument.trim_start_matches('(').trim().to_owned())
        .collect()
}

/// Returns the key of an argument. `None` for a target or a message.
fn key(argument: &str) -> Option<String> {
    let is_field = !argument.is_empty() && !argument.starts_with('"') && !argument.starts_with("target:");
    let name = argument
        .split('=')
        .next()
        .unwrap()
        .trim()
        .trim_start_matches(['%', '?']);
    is_field.then(|| name.to_owned())
}

/// Returns the keys of every event at `level` without a target, as they are in the code.
fn of_the_code(level: &str) -> Vec<String> {
    let name = format!("tracing::{level}!");
    let mut lines = Vec::new();
    for Source { code: text, .. } in &sources() {
        for (at, _) in text.match_indices(&name) {
            let arguments = arguments(&text[at + name.len()..]);
            if arguments.iter().any(|argument| argument.starts_with("target:")) {
                continue;
            }
            let keys: Vec<String> = arguments.iter().filter_map(|argument| key(argument)).collect();
            lines.push(format!("{} (own module): {}", level.to_uppercase(), keys.join(" ")));
        }
    }
    lines
}

/// Returns the values of `repair` in the log line of an exchange, for unread and for read bodies.
fn words_for_repair() -> Vec<String> {
    let telemetry = Telemetry::default();
    let report = RepairReport {
        actions: [(Action::Move, 2), (Action::Placeholder, 1)].into(),
        ..RepairReport::default()
    };
    let (lines, _listening) = Lines::listen();
    for unreadable in Unreadable::ALL.map(Some) {
        telemetry.record_exchange(&ExchangeEnded { unreadable, ..ended() });
    }
    for report in [None, Some(report)] {
        telemetry.record_exchange(&ExchangeEnded { report, ..ended() });
    }
    let rejected = true;
    telemetry.record_exchange(&ExchangeEnded {
        is_rejected: rejected,
        ..ended()
    });
    let said = |line: &str| serde_json::from_str::<Value>(line).unwrap()["repair"].to_string();
    lines
        .text()
        .lines()
        .map(|line| format!("value of repair: {}", said(line)))
        .collect()
}

#[test]
fn keys_of_log_lines_are_pinned() {
    let mut lines = of_telemetry();
    lines.extend(words_for_repair());
    for level in ["error", "warn", "info"] {
        lines.extend(of_the_code(level));
    }
    assert!(lines.len() > 30, "{lines:#?}");
    for line in &lines {
        // JSON lines have these keys already, and most readers take only one of two equal keys.
        let keys = line.split_once(": ").map_or("", |(_, keys)| keys);
        let is_taken = |key: &str| ["timestamp", "level", "target", "message"].contains(&key);
        assert!(!keys.split(' ').any(is_taken), "{line}");
    }
    lines.sort();
    let lines: Vec<String> = lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect();
    same("log-lines.txt", &lines.concat());
}

#[test]
fn macro_arguments_are_split_correctly() {
    let code = r#"(target: "a::b", one, %two.three, four = five(6, "7, )"), "said, \" )")) more(x)"#;
    let keys: Vec<String> = arguments(code).iter().filter_map(|argument| key(argument)).collect();
    assert_eq!(keys, ["one", "two.three", "four"]);
}
