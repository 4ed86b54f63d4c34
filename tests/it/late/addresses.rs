//! Addresses of calls: reusable ids with their session or their input, and ids of no known maker that come again.

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::{LateSettings, ObservedCall, records::RecordedCall},
    ledger::RecordKind,
    repair::input_hash,
    session::SessionStrength,
    table::RecordValue,
};
use serde_json::{Value, json};

use crate::support::{
    kept::durable,
    late::{
        ID, ask, calls_with, last_body, memory, owner, post, post_body, running, says, script_call, send, service,
        verified_world,
    },
    still::{Step, World, events, say, sse},
};

/// Lets the model answer the session with this call. Returns the owner of the call.
async fn emits(world: &World, session: &str, id: &str, input: &Value) -> String {
    script_call(world, &calls_with(id, input));
    owner(&ask(world, session, &[says("go")]).await)
}

/// Asks on after the call, and returns the body upstream.
async fn goes_on(world: &World, session: &str, id: &str, input: &Value) -> String {
    ask(
        world,
        session,
        &[says("go"), calls_with(id, input), says("is it done?")],
    )
    .await;
    last_body(world)
}

/// C2: a reusable id is addressed by its owner and its session, or by its owner and its tool and input.
#[tokio::test(start_paused = true)]
async fn a_reusable_id_is_addressed_by_its_session_or_its_input() {
    let world = verified_world(&durable()).await;
    let (one, two) = (json!({"of": 1}), json!({"of": 2, "more": [1.0]}));
    let owner = emits(&world, "s1", "call_0", &one).await;
    emits(&world, "s2", "call_0", &two).await;
    for (body, status) in [
        (json!({"content": "X"}), 409),
        (json!({"content": "X", "owner": owner}), 409),
        (json!({"content": "X", "session": "s1"}), 409),
        (json!({"content": "X", "tool": "render", "input": one}), 409),
        (json!({"content": "X", "owner": owner, "tool": "render"}), 409),
        (json!({"content": "X", "owner": owner, "session": "s9"}), 404),
        (
            json!({"content": "X", "owner": owner, "tool": "other", "input": one}),
            404,
        ),
        (json!({"content": "RESULT ONE", "owner": owner, "session": "s1"}), 200),
        (
            json!({"content": "RESULT TWO", "owner": owner, "tool": "render", "input": {"more": [1.0], "of": 2}}),
            200,
        ),
        // Again, and with another content.
        (json!({"content": "RESULT ONE", "owner": owner, "session": "s1"}), 200),
        (json!({"content": "X", "owner": owner, "session": "s1"}), 409),
    ] {
        let answer = post_body(&world, "call_0", &body).await;
        assert_eq!(answer.status(), status, "{body}: {}", answer.text());
    }
    for (session, input, own, other) in [
        ("s1", &one, "RESULT ONE", "RESULT TWO"),
        ("s2", &two, "RESULT TWO", "RESULT ONE"),
    ] {
        let sent = goes_on(&world, session, "call_0", input).await;
        assert!(sent.contains(own) && !sent.contains(other), "{session}: {sent}");
    }
}

/// Frameworks add default values to inputs. An id that its maker has made needs no description.
#[tokio::test(start_paused = true)]
async fn a_makers_id_is_found_whatever_its_service_says_of_the_input() {
    let world = verified_world(&durable()).await;
    emits(&world, "s1", ID, &json!({"of": 1})).await;
    let body = json!({"content": "X", "tool": "render", "input": {"of": 1, "quality": "high"}, "session": "other"});
    assert_eq!(post_body(&world, ID, &body).await.status(), 200);
}

/// A client strips characters from ids, and its request is recorded first. The id of the answer is the one that counts.
#[tokio::test(start_paused = true)]
async fn a_call_has_the_id_of_its_answer_whichever_is_recorded_first() {
    let letters = ID.replace('_', "");
    let stripped = letters.as_str();
    for order in [[(ID, true), (stripped, false)], [(stripped, false), (ID, true)]] {
        let ledger = memory();
        let settings = LateSettings {
            services: vec![service("tools", None, None)],
            ..LateSettings::default()
        };
        let late = running(&ledger, settings);
        let caller = Caller::of_account(Principal::of_token(late.principal_key(), "ann"));
        late.callers().mark_verified(caller);
        late.flush_updates().await;
        for (id, is_emitted) in order {
            let call = ObservedCall {
                lane: None,
                session: None,
                session_label: None,
                strength: SessionStrength::Strong,
                id: id.as_bytes().to_vec(),
                tool: b"render".to_vec(),
                input: Some(input_hash(b"{}")),
                intent_input: None,
                origin: None,
                is_emitted,
            };
            late.calls().record_calls(caller, [call]);
            late.flush_updates().await;
        }
        let (principal, now) = (*caller.principal().as_bytes(), clock::unix_time());
        let records = ledger.list_records(RecordKind::Call, principal, 9, now).await.unwrap();
        let decoded = records
            .iter()
            .map(|record| RecordedCall::decode(&record.value).unwrap());
        let ids: Vec<Vec<u8>> = decoded.map(|call| call.id).collect();
        assert_eq!(ids, [ID.as_bytes()], "{order:?}");
    }
}

/// C2: two open calls fit the address.
#[tokio::test(start_paused = true)]
async fn an_address_that_fits_two_open_calls_is_ambiguous() {
    let world = verified_world(&durable()).await;
    let owner = emits(&world, "s1", "call_0", &json!({"of": 1})).await;
    emits(&world, "s1", "call_0", &json!({"of": 2})).await;
    let by_session = json!({"content": "X", "owner": owner, "session": "s1"});
    assert_eq!(post_body(&world, "call_0", &by_session).await.status(), 409);
    let by_both = json!({"content": "X", "owner": owner, "session": "s1", "tool": "render", "input": {"of": 2}});
    assert_eq!(post_body(&world, "call_0", &by_both).await.status(), 200);
    // Now one open call is left in the session. The same content could be the first post again.
    assert_eq!(post_body(&world, "call_0", &by_session).await.status(), 409);
    let other = json!({"content": "Y", "owner": owner, "session": "s1"});
    assert_eq!(post_body(&world, "call_0", &other).await.status(), 200);
}

/// H6: an id that looks like chance comes again, with another input or in another session.
#[tokio::test(start_paused = true)]
async fn a_second_different_call_of_one_id_is_a_second_record() {
    let world = verified_world(&durable()).await;
    for (number, (first, second)) in [
        (("s1", json!({"of": 1})), ("s2", json!({"of": 2}))),
        (("s3", json!({"of": 1})), ("s4", json!({"of": 1}))),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("kJ8sQ2mZx4Lw{number}");
        let owner = emits(&world, first.0, &id, &first.1).await;
        assert_eq!(post(&world, &id, &json!("RESULT ONE")).await.status(), 200);
        emits(&world, second.0, &id, &second.1).await;
        let sent = goes_on(&world, second.0, &id, &second.1).await;
        assert!(!sent.contains("RESULT ONE"), "another conversation's result: {sent}");
        let own = json!({"content": "RESULT TWO", "owner": owner, "session": second.0});
        let posted = post_body(&world, &id, &own).await;
        assert_eq!(posted.status(), 200, "{}", posted.text());
        let sent = goes_on(&world, first.0, &id, &first.1).await;
        assert!(sent.contains("RESULT ONE") && !sent.contains("RESULT TWO"), "{sent}");
        if first.1 == second.1 {
            // The rest of two such bodies is equal too, so that nothing but the session could tell them apart.
            continue;
        }
        let log = [
            says("go"),
            calls_with(&id, &second.1),
            says("is it done?"),
            says("and now?"),
        ];
        ask(&world, second.0, &log).await;
        let sent = last_body(&world);
        assert!(sent.contains("RESULT TWO") && !sent.contains("RESULT ONE"), "{sent}");
    }
}

/// A conversation that another process resumes under another session keeps its result.
#[tokio::test(start_paused = true)]
async fn a_resumed_conversation_keeps_the_result_of_its_call() {
    let world = verified_world(&durable()).await;
    let input = json!({"of": 1});
    emits(&world, "s1", "kJ8sQ2mZx4Lw", &input).await;
    assert_eq!(post(&world, "kJ8sQ2mZx4Lw", &json!("RESULT ONE")).await.status(), 200);
    let sent = goes_on(&world, "resumed", "kJ8sQ2mZx4Lw", &input).await;
    assert!(sent.contains("RESULT ONE"), "{sent}");
}

fn anthropic_stream([front, back]: [&str; 2]) -> String {
    use events::anthropic::{end, start, stop, text_start};
    let begin = json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "call_0", "name": "render", "input": {}}});
    let delta = |part: &str| json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": part}});
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let parts = [
        event(&begin),
        event(&delta("")),
        event(&delta(front)),
        event(&delta(back)),
    ]
    .concat();
    start() + &text_start(0) + &events::anthropic::text(0, "so") + &stop(0) + &parts + &stop(1) + &end("tool_use")
}

fn chat_stream([front, back]: [&str; 2]) -> String {
    let delta = |call: Value| {
        format!(
            "data: {}\n\n",
            json!({"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]})
        )
    };
    let first =
        delta(json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "render", "arguments": ""}}));
    let piece = |part: &str| delta(json!({"index": 0, "function": {"arguments": part}}));
    events::chat::start() + &first + &piece(front) + &piece(back) + &events::chat::end("tool_calls")
}

fn responses_stream(text: &str) -> String {
    let item = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "call_2", "name": "render", "arguments": arguments});
    let event = |kind: &str, arguments: &str| {
        format!(
            "event: {kind}\ndata: {}\n\n",
            json!({"type": kind, "output_index": 0, "item": item(arguments)})
        )
    };
    events::responses::start()
        + &event("response.output_item.added", "")
        + &event("response.output_item.done", text)
        + &events::responses::end()
}

fn gemini_stream(input: &Value) -> String {
    let part = json!({"functionCall": {"name": "render", "args": input}});
    let chunk = json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]});
    format!("data: {chunk}\n\n") + &events::gemini::end("STOP")
}

/// The input is recorded from streams of every format, however it is cut.
#[tokio::test(start_paused = true)]
async fn inputs_are_recorded_from_streams_of_every_format() {
    let world = verified_world(&durable()).await;
    let owner = owner(&ask(&world, "s0", &[says("hello")]).await);
    let input = json!({"path": "a\"b\u{e9}", "n": [1, 2]});
    let text = input.to_string();
    let (front, back) = text.split_at(9);
    let anthropic = anthropic_stream([front, back]);
    let chat = chat_stream([front, back]);
    let (responses, gemini) = (responses_stream(&text), gemini_stream(&input));
    for (path, body, stream, id) in [
        (
            "/anthropic/v1/messages",
            json!({"model": "m", "max_tokens": 9, "stream": true, "messages": [says("go")]}),
            anthropic,
            "call_0",
        ),
        (
            "/openai/v1/chat/completions",
            json!({"model": "m", "stream": true, "messages": [says("go")]}),
            chat,
            "call_1",
        ),
        (
            "/openai/v1/responses",
            json!({"model": "m", "stream": true, "input": "go"}),
            responses,
            "call_2",
        ),
        (
            "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
            json!({"contents": [{"role": "user", "parts": [{"text": "go"}]}]}),
            gemini,
            "render",
        ),
    ] {
        // The credential of the OpenAI and Gemini dialects is the same caller, whichever header carries it.
        world.script(vec![sse(), say(stream), Step::End]);
        let session = [("x-antiphon-session", "s1")];
        assert_eq!(send(&world, path, &session, &body).await.status(), 200);
        let other = json!({"content": "X", "owner": owner, "tool": "render", "input": {"path": "other"}});
        assert_eq!(post_body(&world, id, &other).await.status(), 404, "{path}");
        let own = json!({"content": "X", "owner": owner, "tool": "render", "input": input});
        let posted = post_body(&world, id, &own).await;
        assert_eq!(posted.status(), 200, "{path}: {}", posted.text());
    }
}
