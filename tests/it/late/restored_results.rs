//! Results that their service wants in the place of their call alone: restored there, and never appended.

use serde_json::json;

use crate::support::{
    kept::durable,
    late::{
        ID, answered, ask, brings, calls, copies, counted, get, operate, outstanding, post, post_body, says,
        script_call, verified_world,
    },
};

/// The call has no answer in the next request: the result is restored, also if the post came before the call.
#[tokio::test(start_paused = true)]
async fn it_is_restored_where_its_call_has_no_answer() {
    let body = json!({"content": "the film", "only_if_missing": true});
    for is_parked in [false, true] {
        let world = verified_world(&durable()).await;
        let owner = get(&world, "me").await.json()["owner"].clone();
        let mut posted = body.clone();
        posted["owner"] = owner;
        if is_parked {
            assert_eq!(post_body(&world, ID, &posted).await.status(), 202);
        }
        script_call(&world, &calls(ID));
        let mut log = vec![says("go")];
        ask(&world, "s1", &log).await;
        assert_eq!(post_body(&world, ID, &posted).await.status(), 200);
        // It waits for nobody: no reader is told of it.
        assert_eq!(outstanding(&world).await, json!([]));
        log.extend([calls(ID), says("is it done?")]);
        let restored = ask(&world, "s1", &log).await;
        assert_eq!(restored.header("x-antiphon-repair"), Some("restored=1"), "{is_parked}");
        assert_eq!(copies(&world, "the film"), 1);
        assert_eq!(counted(&world, "delivered"), 1);
    }
}

/// The provider has a placeholder, or the client's own answer: nothing is appended, now or later.
#[tokio::test(start_paused = true)]
async fn it_is_never_appended() {
    for is_answered in [false, true] {
        let world = verified_world(&durable()).await;
        script_call(&world, &calls(ID));
        let mut log = vec![says("go")];
        ask(&world, "s1", &log).await;
        log.push(calls(ID));
        if is_answered {
            log.push(brings(ID, &json!("timed out")));
        } else {
            log.push(says("hurry"));
        }
        ask(&world, "s1", &log).await;
        let body = json!({"content": "the film", "only_if_missing": true});
        let posted = post_body(&world, ID, &body).await;
        assert_eq!(posted.status(), 200, "{}", posted.text());
        let state = posted.json()["state"].clone();
        assert_eq!(
            state,
            if is_answered {
                json!("delivered")
            } else {
                json!("settled")
            }
        );
        for words in ["and now?", "really?"] {
            log.extend([answered(), says(words)]);
            ask(&world, "s1", &log).await;
            assert_eq!(copies(&world, "the film"), 0, "{is_answered}");
        }
        assert_eq!(outstanding(&world).await, json!([]));
    }
}

/// A client that brings an answer after the post has received it, whatever its words are.
#[tokio::test(start_paused = true)]
async fn any_answer_of_the_client_is_the_receipt() {
    let world = verified_world(&durable()).await;
    script_call(&world, &calls(ID));
    let mut log = vec![says("go")];
    ask(&world, "s1", &log).await;
    let body = json!({"content": "the film", "only_if_missing": true});
    assert_eq!(post_body(&world, ID, &body).await.status(), 200);
    log.extend([calls(ID), brings(ID, &json!("the film, in other words"))]);
    ask(&world, "s1", &log).await;
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_eq!(copies(&world, "the film"), 1);
    assert_eq!(counted(&world, "delivered"), 1);
}

/// A correction goes where the result that it corrects goes. After a withdrawal the next post decides.
#[tokio::test(start_paused = true)]
async fn the_first_post_decides() {
    let world = verified_world(&durable()).await;
    let mut log = vec![says("go"), calls(ID), says("hurry")];
    ask(&world, "s1", &log).await;
    let body = json!({"content": "a draft", "only_if_missing": true});
    let digest = post_body(&world, ID, &body).await.json()["digest"].clone();
    let corrected = json!({"content": "the film", "replaces": digest});
    assert_eq!(post_body(&world, ID, &corrected).await.status(), 200);
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_eq!(copies(&world, "the film"), 0);
    assert_eq!(operate(&world, ID, "withdraw", &"{}").await.status(), 200);
    assert_eq!(post(&world, ID, &json!("the film")).await.status(), 200);
    log.extend([answered(), says("and at last?")]);
    ask(&world, "s1", &log).await;
    assert_eq!(copies(&world, "the film"), 1);
}
