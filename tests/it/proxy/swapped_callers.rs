//! Swaps the caller between any two requests of a conversation: nothing that one caller left behind reaches another.
//!
//! The caller of an exchange is the only key of its lane, its pinned results, its stored results and what refusals have
//! taught. If any stage took its identity from somewhere else (the session name, an id, the bytes), the second caller's
//! requests would differ from those to a proxy that has never seen the first.

use crate::support::{
    still::{Step, World, json},
    wire::Message,
};

const CALL: &str = "toolu_01AbC9dE3fG7hJ2kL";
const OTHER: &str = "toolu_01QrS4tU6vW8xY1zA";
const REMOTE: &str = "call_9AbC12dE34";
const MESSAGES: &str = "/anthropic/v1/messages";
const RESPONSES: &str = "/openai/v1/responses";

/// The conversation, request by request. Each leaves something behind for the next ones of the same caller.
fn requests(user: &str) -> Vec<(&'static str, String)> {
    let call = |id: &str| {
        format!(
            r#"{{"role":"user","content":"go"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"run","input":{{"a":1}}}}]}}"#
        )
    };
    let result = |id: &str| {
        format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"REAL"}}]}}"#)
    };
    let words = r#"{"role":"user","content":"and now?"}"#;
    let named = if user.is_empty() {
        String::new()
    } else {
        format!(r#""safety_identifier":"{user}","#)
    };
    let messages = |list: &[&str]| {
        format!(
            r#"{{"model":"m",{named}"max_tokens":9,"messages":[{}]}}"#,
            list.join(",")
        )
    };
    let responses = |more: &str| format!(r#"{{"model":"m",{named}{more}}}"#);
    let continued = responses(&format!(r#""previous_response_id":"resp_1","input":[{words}]"#));
    vec![
        // An open call gets a placeholder, which stays.
        (MESSAGES, messages(&[&call(CALL), words])),
        // A real result comes after the placeholder.
        (MESSAGES, messages(&[&call(CALL), &result(CALL), words])),
        // A result that the client brings, and then loses.
        (MESSAGES, messages(&[&call(OTHER), &result(OTHER)])),
        (MESSAGES, messages(&[&call(OTHER), words])),
        // A response with a call: the next request continues from it without a result.
        (RESPONSES, responses(r#""input":"hello""#)),
        (RESPONSES, continued.clone()),
        // What the refusal has taught is used at once.
        (RESPONSES, continued),
        // The first call again: a pinned placeholder stays, although a real result came since.
        (MESSAGES, messages(&[&call(CALL), words])),
    ]
}

/// A provider that refuses the continuation of `resp_1` without the output of its call, and accepts anything else.
fn answer(request: &Message) -> Vec<Step> {
    let body = String::from_utf8_lossy(&request.body);
    if !request.line().contains("/responses") {
        let message = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
        return json(200, message);
    }
    if body.contains("resp_1") && !body.contains("function_call_output") {
        let text = format!("No tool output found for function call {REMOTE}.");
        return json(
            400,
            &format!(r#"{{"error":{{"message":"{text}","type":"invalid_request_error"}}}}"#),
        );
    }
    let output = format!(
        r#"[{{"type":"function_call","id":"fc_1","call_id":"{REMOTE}","name":"run","arguments":"{{}}","status":"completed"}}]"#
    );
    json(
        200,
        &format!(r#"{{"id":"resp_1","object":"response","status":"completed","output":{output}}}"#),
    )
}

/// A client: its key, the user in the trusted header, and the user in its bodies. All share one session name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Client {
    key: &'static str,
    header_user: &'static str,
    body_user: &'static str,
}

const CLIENT: Client = Client {
    key: "sk-one",
    header_user: "",
    body_user: "",
};

/// Clients that differ in one way each.
const CLIENTS: [Client; 6] = [
    CLIENT,
    Client {
        key: "sk-two",
        ..CLIENT
    },
    Client {
        header_user: "ann",
        ..CLIENT
    },
    Client {
        header_user: "ben",
        ..CLIENT
    },
    Client {
        body_user: "ann",
        ..CLIENT
    },
    Client {
        body_user: "ben",
        ..CLIENT
    },
];

/// Sends requests and returns, for each, the repair header and every body that went upstream.
async fn send(world: &World, client: Client, requests: &[(&str, String)]) -> Vec<(String, Vec<String>)> {
    let mut sent = Vec::new();
    for (path, body) in requests {
        let before = world.requests().len();
        let Client { key, header_user, .. } = client;
        let mut fields = format!("x-api-key: {key}\r\nauthorization: Bearer {key}\r\n");
        if !header_user.is_empty() {
            fields.push_str(&format!("x-user: {header_user}\r\n"));
        }
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}x-antiphon-session: shared\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let answer = world.ask(request).await;
        // Background writes of this exchange are done before the next one looks.
        world.settle().await;
        let upstream = world.requests().split_off(before).into_iter();
        sent.push((
            answer.header("x-antiphon-repair").unwrap_or_default().to_owned(),
            upstream
                .map(|request| String::from_utf8(request.message.body).unwrap())
                .collect(),
        ));
    }
    sent
}

fn world() -> World {
    let world = World::with(|builder| {
        let principals = &mut builder.proxy.principals;
        (principals.user_header, principals.trust_body_user) = (Some("x-user".parse().unwrap()), true);
    });
    world.otherwise(answer);
    world
}

#[tokio::test(start_paused = true)]
async fn a_caller_swapped_between_two_requests_finds_nothing() {
    for first in CLIENTS {
        for second in CLIENTS.into_iter().filter(|second| *second != first) {
            // A user is the same one, whether the header or the body names it.
            let user = |client: Client| [client.header_user, client.body_user].concat();
            if first.key == second.key && user(first) == user(second) {
                continue;
            }
            let (before, after) = (requests(first.body_user), requests(second.body_user));
            for at in 0..after.len() {
                let fresh = send(&world(), second, &after[at..]).await;
                let world = world();
                send(&world, first, &before[..at]).await;
                let swapped = send(&world, second, &after[at..]).await;
                assert_eq!(swapped, fresh, "{first:?}, then {second:?} from request {at} on");
            }
        }
    }
}

/// The check above can fail: the same caller finds what it left behind.
#[tokio::test(start_paused = true)]
async fn the_same_caller_finds_what_it_left_behind() {
    for client in CLIENTS {
        let requests = requests(client.body_user);
        let mut found = Vec::new();
        for at in 0..requests.len() {
            let fresh = send(&world(), client, &requests[at..]).await;
            let world = world();
            send(&world, client, &requests[..at]).await;
            if send(&world, client, &requests[at..]).await != fresh {
                found.push(at);
            }
        }
        // The pinned placeholder, the lost result, and what the refusal has taught.
        assert_eq!(found, [1, 3, 6], "{client:?}");
    }
}
