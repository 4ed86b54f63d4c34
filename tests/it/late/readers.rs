//! Callers that read their late results: the users of one key.

use serde_json::{Value, json};

use crate::support::{
    app::{get_with, post_with},
    kept::durable,
    late::{ID, MESSAGES, calls, messages_body, owner, post_to, says, send, world_over},
    still::World,
};

const KEY: (&str, &str) = ("x-api-key", "sk-one");

/// Lets the model call a tool for a user that the body names, without a result. Returns the owner of the call.
async fn emits(world: &World, user: &str, id: &str) -> String {
    let mut body = messages_body(&[says("go"), calls(id), says("hurry")]);
    body["metadata"] = json!({"user_id": json!({"device_id": user, "session_id": "s"}).to_string()});
    owner(&send(world, MESSAGES, &[], &body).await)
}

async fn outstanding(world: &World, fields: &[(&str, &str)]) -> (u16, Value) {
    let answer = world.ask(get_with("/ledger/v1/outstanding", fields)).await;
    (answer.status(), answer.json()["outstanding"].clone())
}

/// M5: a read has no body that names its user.
#[tokio::test(start_paused = true)]
async fn a_user_that_bodies_name_reads_its_own_results() {
    for is_trusted in [true, false] {
        let ledger = durable();
        let world = world_over(&ledger, |builder| builder.proxy.principals.trust_body_user = is_trusted);
        emits(&world, "bob", "toolu_01ZzC9dE3fG7hJ2kL4mN6pQ8").await;
        let owner = emits(&world, "alice", ID).await;
        assert_eq!(post_to(&world, ID, &owner, &json!("done")).await.status(), 200);
        let count = async |fields: &[(&str, &str)]| {
            let (status, list) = outstanding(&world, fields).await;
            (status, list.as_array().map_or(0, Vec::len))
        };
        let user = |name| [KEY, ("x-antiphon-user", name)];
        if !is_trusted {
            assert_eq!(count(&[KEY]).await, (200, 1), "one key is one caller");
            assert_eq!(count(&user("alice")).await, (404, 0));
            continue;
        }
        assert_eq!(count(&user("alice")).await, (200, 1));
        assert_eq!(count(&user("bob")).await, (200, 0));
        for fields in [
            &[KEY][..],
            &user("carol"),
            &user(""),
            &[KEY, ("x-antiphon-user", "alice"), ("x-antiphon-user", "bob")],
        ] {
            assert_eq!(count(fields).await, (404, 0), "{fields:?}");
        }
        assert_eq!(
            count(&[("x-api-key", "sk-two"), ("x-antiphon-user", "alice")]).await,
            (404, 0)
        );
    }
}

/// M6: everybody who runs a local server has such a key. Off this machine its results would be everybody's.
#[tokio::test(start_paused = true)]
async fn a_key_that_many_clients_send_reads_nothing_off_this_machine() {
    for (listen, wanted) in [
        ("127.0.0.1:0", 200),
        ("[::1]:0", 200),
        ("0.0.0.0:0", 403),
        ("10.0.0.7:0", 403),
    ] {
        let ledger = durable();
        let world = world_over(&ledger, |builder| builder.server.listen = listen.parse().unwrap());
        let body = messages_body(&[says("go")]).to_string();
        for (key, wanted) in [("EMPTY", wanted), ("sk-xxx", wanted), ("sk-one", 200)] {
            let fields = [("authorization", &*format!("Bearer {key}"))];
            let request = post_with(MESSAGES, &fields, body.as_bytes());
            assert_eq!(world.ask(request).await.status(), 200, "{listen} {key}");
            world.settle().await;
            let answer = world.ask(get_with("/ledger/v1/me", &fields)).await;
            assert_eq!(answer.status(), wanted, "{listen} {key}: {}", answer.text());
            if wanted == 403 {
                assert_eq!(answer.json()["code"], "shared_key");
            }
        }
    }
}
