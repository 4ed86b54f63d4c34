//! Round trips to the shared ledger that a request waits for.

use std::sync::{Arc, atomic::Ordering};

use antiphon::ledger::Ledger;
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        late::{FINE, ask, brings, calls, replies, says, service},
        still::{self, World},
    },
};

fn world(ledger: &Arc<SwitchableLedger>) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let world = World::with(|builder| {
        builder.ledger = ledger;
        builder.late.services = vec![service("tools", None, None)];
    });
    world.otherwise(|_| still::json(200, FINE));
    world
}

/// A conversation whose calls have all been answered by its client.
fn healthy() -> Vec<Value> {
    let id = "toolu_01AbC9dE3fG7hJ2kL4mN0001";
    vec![
        says("go"),
        calls(id),
        brings(id, &json!("done")),
        replies("fine"),
        says("and now?"),
    ]
}

/// Returns the questions to the ledger that the second of two healthy requests of a caller has caused.
async fn questions(tells: bool) -> u64 {
    let ledger = SwitchableLedger::shared(tells);
    let world = world(&ledger);
    world.settle().await;
    for log in [vec![says("hello")], healthy()] {
        assert_eq!(ask(&world, "s0", &log).await.status(), 200);
        world.until(world.now() + still::secs(2)).await;
    }
    let before = ledger.questions.load(Ordering::Relaxed);
    assert_eq!(ask(&world, "s0", &healthy()).await.status(), 200);
    world.settle().await;
    ledger.questions.load(Ordering::Relaxed) - before
}

#[tokio::test(start_paused = true)]
async fn a_healthy_request_without_open_calls_asks_nothing() {
    assert_eq!(questions(true).await, 0);
    // Without news of the other replicas nothing in memory is certain: the count above can see a question.
    assert!(questions(false).await > 0);
}
