//! Odd JSON values that few readers preserve stay byte for byte wherever repair changes nothing.
//!
//! `CASES=` sets the number of bodies, `SEED=` replays one. A failure prints its seed.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cases and the seed come from the environment"
)]

use antiphon_core::{repair::RepairPolicy, wire::Wire};
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::support::{
    bodies::Rng,
    checks::{feed::Feed, odd},
};

/// Number of bodies, half of them for each format.
const CASES: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Odd values, each under a unique key.
struct Odds {
    choices: Vec<u8>,
    written: Vec<String>,
    count: usize,
}

impl Odds {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let choices = (0..rng.within(4, 300)).map(|_| u8::try_from(rng.below(256)).unwrap());
        Self {
            choices: choices.collect(),
            written: Vec::new(),
            count: 0,
        }
    }

    /// Returns an object member `"odd_7":…` and records it.
    fn member(&mut self) -> String {
        self.count += 1;
        let number = self.count;
        let mut feed = Feed::new(&self.choices);
        let value = odd::value(&mut feed, 4);
        let step = 7 % self.choices.len();
        self.choices.rotate_left(step);
        let member = format!("\"odd_{number}\":{value}");
        self.written.push(member.clone());
        member
    }
}

/// A history of two rounds: the message after the first one, the first result, and the rest.
type Rounds = [String; 3];

fn messages(odds: &mut Odds) -> Rounds {
    let mut odd = || odds.member();
    let call = |id: &str, odd: String, input: String| {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"run","input":{{{input}}},{odd}}}"#)
    };
    let result = format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":"ok",{}}}]}},"#,
        odd()
    );
    let one = call("toolu_1", odd(), odd());
    let two = call("toolu_2", odd(), odd());
    let first = format!(r#"{{{},"role":"assistant","content":[{one}]}},"#, odd());
    let rest = format!(
        r#"{{"role":"user","content":[{{"type":"text","text":"go on",{}}}]}},{{"role":"assistant","content":[{two}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_2",{},"content":[]}}]}}"#,
        odd(),
        odd()
    );
    [first, result, rest]
}

fn chat(odds: &mut Odds) -> Rounds {
    let mut odd = || odds.member();
    let call = |id: &str, odd: String, within: String| {
        format!(r#"{{"id":"{id}","type":"function",{odd},"function":{{"name":"run","arguments":"{{}}",{within}}}}}"#)
    };
    let tool = |id: &str, odd: String| format!(r#"{{"role":"tool",{odd},"tool_call_id":"{id}","content":"ok"}}"#);
    let result = tool("call_1", odd()) + ",";
    let one = call("call_1", odd(), odd());
    let two = call("call_2", odd(), odd());
    let first = format!(
        r#"{{"role":"assistant","content":null,{},"tool_calls":[{one}]}},"#,
        odd()
    );
    let rest = format!(
        r#"{{"role":"user","content":"go on",{}}},{{"role":"assistant","tool_calls":[{two}]}},{}"#,
        odd(),
        tool("call_2", odd())
    );
    [first, result, rest]
}

/// Returns a request with this history, with or without its first result.
fn body(rounds: fn(&mut Odds) -> Rounds, odds: &mut Odds, whole: bool) -> String {
    let [first, result, rest] = rounds(odds);
    let result = if whole {
        result
    } else {
        // The result's own member was recorded first.
        odds.written.remove(0);
        String::new()
    };
    let (head, tail) = (odds.member(), odds.member());
    let begin = format!(r#"{{"role":"user","content":"go",{}}},"#, odds.member());
    format!("{{{head},\"messages\":[{begin}{first}{result}{rest}],{tail}}}\r\n")
}

fn survives(rounds: fn(&mut Odds) -> Rounds, wire: Wire) {
    let cases = number("CASES").unwrap_or(CASES) / 2;
    for seed in number("SEED").map_or(0..cases, |seed| seed..seed + 1) {
        let whole = seed % 2 == 0;
        let mut odds = Odds::new(seed);
        let body = Bytes::from(body(rounds, &mut odds, whole));
        let told = || format!("SEED={seed} {wire}\n{}", String::from_utf8_lossy(&body));
        let is_json = |body: &[u8]| serde_json::from_slice::<&RawValue>(body).is_ok();
        assert!(is_json(&body), "the generator wrote no JSON: {}", told());
        let done = antiphon_core::repair(&body, wire, &RepairPolicy::default())
            .unwrap_or_else(|why| panic!("{why}: {}", told()));
        assert_eq!(done.body.is_original(), whole, "{}", told());
        let out = done.body.to_vec();
        assert!(is_json(&out), "{}", told());
        for member in &odds.written {
            let kept = memchr::memmem::find(&out, member.as_bytes()).is_some();
            assert!(kept, "{member:.200} is lost: {}", told());
        }
    }
}

#[test]
fn odd_values_survive_in_messages() {
    survives(messages, Wire::ANTHROPIC);
}

#[test]
fn odd_values_survive_in_chat_completions() {
    survives(chat, Wire::OPENAI_CHAT);
}
