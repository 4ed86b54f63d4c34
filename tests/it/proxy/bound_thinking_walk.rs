//! Seeded sessions before a provider that binds thinking: every accepted body begins with the accepted one before (S2).
//!
//! `CASES=` sets the number of sessions, `SEED=` replays one. A failure prints its seed.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cases and the seed come from the environment"
)]

use std::sync::Arc;

use serde_json::json;

use crate::{
    proxy::bound_thinking_sessions::{Session, accepted, assert_stable, call, result, words},
    support::{
        app::before,
        bodies::Rng,
        judge,
        late::memory as ledger,
        provider::{Provider, Reply},
    },
};

/// Returns the seeds that `CASES` and `SEED` select.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CASES").unwrap_or(count),
    }
}

/// A client whose tools run on while the user talks. Calls and results of its growing session come in any order.
struct Busy {
    rng: Rng,
    session: Session,
    calls: usize,
    /// Number of cache markers in the history.
    markers: usize,
    /// Calls without a result, oldest first, and whether the model has spoken since.
    open: Vec<(String, bool)>,
}

impl Busy {
    /// Adds text and results to the history. Returns `true` if a result follows thinking that was generated without it.
    fn speak(&mut self) -> bool {
        let (mut blocks, mut crosses) = (Vec::new(), false);
        let mut left = Vec::new();
        for (id, late) in std::mem::take(&mut self.open) {
            if self.rng.chance(if late { 35 } else { 50 }) {
                blocks.push(result(&id));
                crosses |= late;
            } else {
                left.push((id, true));
            }
        }
        self.open = left;
        if blocks.is_empty() || self.rng.chance(60) {
            let at = if self.rng.chance(20) { 0 } else { blocks.len() };
            let said = format!("words {}", self.rng.below(1000));
            blocks.insert(at, words(&said));
        }
        // A body may contain four markers at most.
        if self.markers < 4 && self.rng.chance(15) {
            self.markers += 1;
            blocks.last_mut().unwrap()["cache_control"] = json!({"type": "ephemeral"});
        }
        self.session.push("user", blocks);
        crosses
    }

    /// Chooses the model's next reply.
    fn reply(&mut self) -> Reply {
        if !self.rng.chance(60) {
            return Reply::Text("I see.".to_owned());
        }
        self.calls += 1;
        // Some ids are used twice.
        let again = self.rng.chance(15);
        let number = if again {
            self.rng.within(1, self.calls)
        } else {
            self.calls
        };
        let id = format!("toolu_{number}");
        self.open.push((id.clone(), false));
        call(&id)
    }
}

/// S2 with bound thinking: accepted bodies only grow, and each request needs one send, even with a late result after
/// thinking. Only a process that lost its ledger needs one refusal to learn again.
#[tokio::test]
async fn growing_sessions_are_accepted_with_stable_prefixes() {
    for keeps in [true, false] {
        let (mut requests, mut turned, mut restarts, mut crossings) = (0, 0, 0, 0);
        for seed in seeds(30) {
            let provider = Provider::binding().await;
            let kept = ledger();
            let start = || {
                let kept = Arc::clone(&kept);
                let builder = before(provider.address()).with(|builder| {
                    if keeps {
                        builder.ledger = kept;
                    }
                });
                builder.start()
            };
            let mut app = start().await;
            let rng = Rng::new(seed);
            let mut busy = Busy {
                rng,
                session: Session::new(),
                calls: 0,
                markers: 0,
                open: Vec::new(),
            };
            let mut forgot = false;
            for round in 0..12 {
                if busy.rng.chance(6) {
                    app.running.drain().await;
                    app = start().await;
                    (forgot, restarts) = (!keeps, restarts + 1);
                }
                provider.reply(busy.reply());
                let told = format!("SEED={seed} round {round}, keeps: {keeps}");
                println!("{told}");
                let sends = busy.session.ask(&app).await;
                let most = if forgot { 2 } else { 1 };
                assert!(sends <= most, "{told}: {sends} sends\n{}", busy.session.body);
                forgot = false;
                requests += 1;
                turned += usize::from(sends > 1);
                crossings += usize::from(busy.speak());
            }
            assert_stable(&provider, &format!("SEED={seed}"));
            let dropped = accepted(&provider)
                .iter()
                .any(|body| body["thinking"].get("block_binding").is_some());
            assert!(!dropped, "SEED={seed}: thinking was given up");
            let (log, last) = (&busy.session.body, accepted(&provider).pop().unwrap());
            let mut sent = log.clone();
            sent["messages"]
                .as_array_mut()
                .unwrap()
                .truncate(log["messages"].as_array().unwrap().len() - 2);
            assert_eq!(judge::lost(&sent, &last), [], "SEED={seed}");
        }
        println!("{requests} requests, {crossings} late results, {turned} turned round, {restarts} restarts");
        let enough = crossings * 10 > requests && restarts > 10 && (keeps || turned * 4 > restarts);
        assert!(std::env::var("SEED").is_ok() || enough);
    }
}
