//! A walk by chance: two callers with equal call ids, who drop or keep what their answers carry, through restarts.
//!
//! `SEED=` replays one walk.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{
    ledger::switchable::durable,
    proxy::continuity::{DEEPSEEK, DEEPSEEK_MESSAGES, GATEWAY, GEMINI, GEMINI_CHAT, KIMI, Server, Stage, VERTEX},
    support::{bodies::Rng, seed::seed},
};

/// One caller's conversation.
#[derive(Default)]
struct Talk {
    history: Vec<Value>,
    /// The value that the provider made for each call, by the index of the call's message.
    made: HashMap<usize, String>,
    /// The messages that were accepted last, without the closing bracket.
    accepted: String,
    /// Set by a restart that lost the reasoning in memory.
    has_lost: bool,
}

/// Returns the value at the message of a call.
fn value_at(server: Server, body: &Value, index: usize) -> Option<String> {
    let list = &body[server.history_key()];
    let value = list[index].pointer(server.value_pointer())?;
    Some(value.as_str()?.to_owned())
}

/// Judges what goes up with each call: what the provider made for this very caller, or the neutral value. Returns the
/// number of values that were put back, and those that are neither.
fn judge_values(server: Server, talk: &Talk, up: &Value) -> (usize, Vec<String>) {
    let lost = server.neutral.unwrap();
    let (mut returned, mut wrong) = (0, Vec::new());
    for (index, made) in &talk.made {
        let Some(value) = value_at(server, up, *index) else {
            continue;
        };
        returned += usize::from(value == *made);
        if value != *made && value != lost {
            wrong.push(format!("the value of another call: {value:?} for {made:?}"));
        }
    }
    (returned, wrong)
}

/// Plays a walk before one server. Returns the number of values that were put back, and the first contradictions.
pub(crate) async fn play_walk(server: Server, seed: u64, steps: usize) -> (usize, Vec<String>) {
    let (mut rng, mut returned) = (Rng::new(seed), 0);
    let keeps_seen = rng.chance(50);
    let mut stage = Stage::with(server, durable(), keeps_seen, |_| {}).await;
    let mut talks: HashMap<&str, Talk> = HashMap::new();
    for step in 0..steps {
        if rng.chance(8) {
            stage.restart().await;
            let has_lost = !keeps_seen && !server.lasts;
            for talk in talks.values_mut() {
                talk.has_lost |= has_lost;
            }
        }
        if rng.chance(30) {
            stage.provider.restart_cache();
        }
        let key = *rng.pick(&["one", "two"]);
        let talk = talks.entry(key).or_default();
        if talk.history.is_empty() || rng.chance(20) {
            if !talk.history.is_empty() {
                talk.history.push(server.text("done"));
            }
            talk.history.push(server.user("go"));
        }
        // Both callers have the same ids, names and arguments, and often the same words before them.
        let turn = talk.history.len();
        let id = if rng.chance(50) {
            format!("functions.f:{turn}")
        } else {
            format!("call_00_aB3dE5fG7h{turn}x9")
        };
        let input = json!({"turn": turn});
        stage.provider.reply(server.reply(&id, &input));
        let sent = stage.send(key, &server.body(&talk.history, false)).await;
        let told = format!("{}, step {step}", server.name);
        assert_eq!(sent.status, 200, "{told}: {sent:#?}");
        let up: Value = serde_json::from_str(&sent.up).unwrap();
        let list = up[server.history_key()].to_string();
        let list = list.strip_suffix(']').unwrap();
        let (put_back, mut wrong) = judge_values(server, talk, &up);
        returned += put_back;
        // Lost reasoning is missing while the cache is warm, and neutral from the refusal on.
        let may_change = talk.has_lost;
        talk.has_lost &= sent.sends == "1";
        if !may_change && !list.starts_with(&talk.accepted) {
            wrong.push(format!("an accepted prefix has changed\n{}\n{list}", talk.accepted));
        }
        list.clone_into(&mut talk.accepted);
        if !may_change && rng.chance(20) {
            // The same request again: the same bytes, at once.
            stage.provider.reply(server.reply(&id, &input));
            let again = stage.send(key, &server.body(&talk.history, false)).await;
            if (again.sends.as_str(), &again.up) != ("1", &sent.up) {
                wrong.push(format!("another body for the same request\n{}\n{}", sent.up, again.up));
            }
        }
        if !wrong.is_empty() {
            let of_step = |wrong: String| format!("{told}: {wrong}");
            return (returned, wrong.into_iter().map(of_step).collect());
        }

        let answer: Value = serde_json::from_str(&sent.text).unwrap();
        let made = answer.pointer(server.answer_pointer()).and_then(Value::as_str);
        let made = made.unwrap_or_else(|| panic!("{told}: {answer:#}")).to_owned();
        let mut message = server.call(&id, &input);
        if rng.chance(30) {
            server.keep_value(&mut message, &made);
        }
        talk.made.insert(turn, made);
        talk.history.extend([message, server.result(&id)]);
    }
    (returned, Vec::new())
}

#[tokio::test]
async fn no_caller_gets_the_value_of_another() {
    let seed = seed();
    println!("SEED={seed}");
    let mut returned = 0;
    let servers = [DEEPSEEK, KIMI, DEEPSEEK_MESSAGES, GATEWAY, GEMINI, GEMINI_CHAT, VERTEX];
    for (number, server) in servers.into_iter().enumerate() {
        let (put_back, wrong) = play_walk(server, seed + number as u64 * 1000, 60).await;
        assert!(wrong.is_empty(), "SEED={seed}, {wrong:#?}");
        returned += put_back;
    }
    assert!(returned > 100, "SEED={seed}: only {returned} values were judged");
}
