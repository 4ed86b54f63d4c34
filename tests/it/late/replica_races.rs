//! Two replicas of one ledger that do something at the same time, or one after the other's restart.

use std::sync::{Arc, atomic::Ordering};

use antiphon::ledger::Ledger;
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::post_with,
        late::{ID, answered, ask, calls, copies, operate, post_body, says, script_call, world_over},
        still::{self, World},
    },
};

const RESULT: &str = "the result";
const CORRECTION: &str = "the correction";

/// Opens a world over a ledger's handle.
fn open(ledger: &Arc<SwitchableLedger>) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    world_over(&ledger, |_| ())
}

/// Returns a conversation whose call is recorded. With `hurried` a placeholder answers it already.
async fn conversation(world: &World, hurried: bool) -> Vec<Value> {
    ask(world, "s1", &[says("hello")]).await;
    script_call(world, &calls(ID));
    let mut log = vec![says("go")];
    ask(world, "s1", &log).await;
    log.extend([calls(ID), says("is it done?")]);
    if hurried {
        ask(world, "s1", &log).await;
        log.extend([answered(), says("and now?")]);
    }
    log
}

/// A result in a request is neither corrected nor withdrawn by another process: a correction would be acknowledged
/// although nobody has seen it.
#[tokio::test(start_paused = true)]
pub(crate) async fn no_other_process_corrects_what_a_request_contains() {
    for (is_shared, hurried) in [(true, false), (true, true), (false, false), (false, true)] {
        let first = if is_shared {
            SwitchableLedger::shared(false)
        } else {
            SwitchableLedger::new()
        };
        let world = open(&first);
        let log = conversation(&world, hurried).await;
        let posted = post_body(&world, ID, &json!({"content": RESULT})).await;
        assert_eq!(posted.status(), 200, "{}", posted.text());
        ask(&world, "s1", &log).await;
        assert_eq!(copies(&world, RESULT), 1, "the request contains the result");
        // Another replica, or the process after a restart.
        let second = open(&if is_shared { first.replica() } else { first.restart() });
        let correction = json!({"content": CORRECTION, "replaces": posted.json()["digest"]});
        let corrected = post_body(&second, ID, &correction).await;
        assert_eq!(corrected.status(), 409, "{is_shared} {hurried} {}", corrected.text());
        let withdrawn = operate(&second, ID, "withdraw", &json!({})).await;
        assert_eq!(withdrawn.status(), 409, "{is_shared} {hurried} {}", withdrawn.text());
    }
}

/// A result that no request contains is still corrected and withdrawn by any process.
#[tokio::test(start_paused = true)]
async fn any_process_corrects_what_no_request_contains() {
    let first = SwitchableLedger::shared(false);
    let world = open(&first);
    let log = conversation(&world, true).await;
    let posted = post_body(&world, ID, &json!({"content": RESULT})).await;
    let second = open(&first.replica());
    let correction = json!({"content": CORRECTION, "replaces": posted.json()["digest"]});
    let corrected = post_body(&second, ID, &correction).await;
    assert_eq!(corrected.status(), 200, "{}", corrected.text());
    ask(&world, "s1", &log).await;
    assert_eq!((copies(&world, CORRECTION), copies(&world, RESULT)), (1, 0));
}

/// The ledger stores a result and does not answer in time. The service posts it again, and it is delivered.
#[tokio::test(start_paused = true)]
async fn a_result_whose_post_was_not_answered_is_delivered_after_its_repetition() {
    for is_shared in [false, true] {
        let ledger = if is_shared {
            SwitchableLedger::shared(true)
        } else {
            SwitchableLedger::new()
        };
        let world = open(&ledger);
        let log = conversation(&world, true).await;
        ledger.answers_no_commit.store(true, Ordering::Relaxed);
        let service = [("authorization", "Bearer token of tools")];
        let body = json!({"content": RESULT}).to_string();
        let path = format!("/ledger/v1/calls/{ID}/result");
        let mut client = world.client();
        client.send(post_with(&path, &service, body.as_bytes())).await;
        world.until(world.now() + still::secs(1)).await;
        drop(client);
        ledger.answers_no_commit.store(false, Ordering::Relaxed);
        let again = post_body(&world, ID, &json!({"content": RESULT})).await;
        assert_eq!((again.status(), &again.json()["first"]), (200, &json!(false)));
        ask(&world, "s1", &log).await;
        assert_eq!(copies(&world, RESULT), 1, "{is_shared}");
    }
}
