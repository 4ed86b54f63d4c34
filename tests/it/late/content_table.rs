//! Twenty contents in four formats: the provider accepts every request of the conversation.

use std::sync::{Arc, Mutex};

use antiphon::{
    late::LateSettings,
    wire::{Dialect, Format, Wire},
};
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    judge,
    kept::durable,
    late,
    still::{self, Step, World},
};

/// The contents with which a trial bricked conversations, and usual ones.
const CONTENTS: [&str; 20] = [
    r#""done""#,
    r#""""#,
    r#"{"status":"done","url":"https://e.com"}"#,
    "42.50",
    "null",
    "true",
    "[]",
    "{}",
    r#"[{"type":"text","text":"done"}]"#,
    r#"[{"type":"text","text":""}]"#,
    r#"[{"type":"text","text":"done","extra":1}]"#,
    r#"[{"type":"new","of":"kind"}]"#,
    r#"["one","two"]"#,
    "[1,2]",
    r#"[{"type":"resource","resource":{"uri":"file:///a","text":"x","mimeType":"text/plain"}}]"#,
    r#"[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#,
    r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]"#,
    r#""a\ud800b""#,
    r#"{"a":{"\udc00":["\ud83d"]},"n":1e400,"big":12345678901234567890}"#,
    r#"[{"type":"tool_result","tool_use_id":"x","content":"y"}]"#,
];

const FORMATS: [Format; 4] = [
    Format::Anthropic,
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Gemini,
];

/// A conversation in one format.
struct Talk {
    format: Format,
    log: Vec<Value>,
}

impl Talk {
    fn path(&self) -> &'static str {
        match self.format {
            Format::Anthropic => "/anthropic/v1/messages",
            Format::OpenAiChat => "/openai/v1/chat/completions",
            Format::OpenAiResponses => "/openai/v1/responses",
            Format::Gemini => "/gemini/v1beta/models/m:generateContent",
        }
    }

    fn body(&self) -> String {
        let body = match self.format {
            Format::Anthropic => json!({"model": "m", "max_tokens": 99, "messages": self.log}),
            Format::OpenAiChat => json!({"model": "m", "messages": self.log}),
            Format::OpenAiResponses => json!({"model": "m", "input": self.log}),
            Format::Gemini => json!({"contents": self.log}),
        };
        body.to_string()
    }

    fn says(&mut self, words: &str) {
        self.log.push(match self.format {
            Format::Gemini => json!({"role": "user", "parts": [{"text": words}]}),
            _ => json!({"role": "user", "content": words}),
        });
    }

    fn answers(&mut self, words: &str) {
        self.log.push(match self.format {
            Format::Gemini => json!({"role": "model", "parts": [{"text": words}]}),
            _ => json!({"role": "assistant", "content": words}),
        });
    }

    fn calls(&mut self, id: &str) {
        self.log.push(match self.format {
            Format::Anthropic => {
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "render", "input": {}}]})
            }
            Format::OpenAiChat => json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "render", "arguments": "{}"}}]}),
            Format::OpenAiResponses => {
                json!({"type": "function_call", "call_id": id, "name": "render", "arguments": "{}"})
            }
            Format::Gemini => {
                json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": "render", "args": {}}}]})
            }
        });
    }
}

/// Returns the steps of a provider of this format that refuses what its judge refuses.
fn strict(format: Format, body: &[u8]) -> Vec<Step> {
    let wire = Wire {
        format,
        dialect: Dialect::Standard,
    };
    let read: Value = match serde_json::from_slice(body) {
        Ok(read) => read,
        // Numbers beyond a double are JSON all the same.
        Err(error) if error.to_string().contains("out of range") => json!(null),
        Err(error) => return still::json(400, &json!({"error": {"message": error.to_string()}}).to_string()),
    };
    match judge::of(wire)(&read) {
        Err(refusal) if !read.is_null() => {
            still::json(400, &json!({"error": {"message": refusal.message}}).to_string())
        }
        _ => still::json(200, "{}"),
    }
}

/// Every content in every format, in its place and at the end of a message: the conversation goes on, and every later
/// request is answered.
#[tokio::test(start_paused = true)]
async fn twenty_contents_in_four_formats_brick_no_conversation() {
    let mut requests = 0;
    for format in FORMATS {
        let ledger = durable();
        let world = World::with(|builder| {
            builder.ledger = Arc::clone(&ledger);
            builder.late = LateSettings {
                services: vec![late::service("tools", None, None)],
                ..LateSettings::default()
            };
        });
        let refused = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&refused);
        world.otherwise(move |message| {
            let steps = strict(format, &message.body);
            if format!("{steps:?}").contains("400") {
                noted
                    .lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(&message.body).into_owned());
            }
            steps
        });
        for (number, content) in CONTENTS.iter().enumerate() {
            for hurried in [false, true] {
                let id = format!("call_Content{number:02}{}kJ8sQ2mZx4Lw", u8::from(hurried));
                let mut talk = Talk {
                    format,
                    log: Vec::new(),
                };
                talk.says(&format!("go {id}"));
                ask(&world, &talk).await;
                talk.calls(&id);
                if hurried {
                    talk.says("hurry");
                    ask(&world, &talk).await;
                    talk.answers("fine");
                } else {
                    // The call is recorded without an answer of its own.
                    record(&world, &id).await;
                }
                let service = [("authorization", "Bearer token of tools")];
                let path = format!("/ledger/v1/calls/{id}/result");
                let posted = world
                    .ask(post_with(
                        &path,
                        &service,
                        format!(r#"{{"content":{content}}}"#).as_bytes(),
                    ))
                    .await;
                assert_eq!(posted.status(), 200, "{content}: {}", posted.text());
                for words in ["is it done?", "thanks", "and more"] {
                    talk.says(words);
                    ask(&world, &talk).await;
                    requests += 1;
                    talk.answers("fine");
                }
            }
        }
        let refused = refused.lock().unwrap();
        assert!(
            refused.is_empty(),
            "{format:?}: {} refused, first {}",
            refused.len(),
            refused[0]
        );
    }
    println!("{requests} requests after 160 results were answered 200, and none was refused");
}

async fn ask(world: &World, talk: &Talk) {
    let fields = [("authorization", "Bearer sk-one"), ("x-antiphon-session", "s1")];
    let answer = world.ask(post_with(talk.path(), &fields, talk.body().as_bytes())).await;
    world.settle().await;
    assert_eq!(answer.status(), 200, "{:?}: {}", talk.format, answer.text());
}

/// Records a call as the answer that emits it does.
async fn record(world: &World, id: &str) {
    let call = json!({"type": "tool_use", "id": id, "name": "render", "input": {}});
    let answer =
        json!({"id": "msg_2", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    let mut talk = Talk {
        format: Format::Anthropic,
        log: Vec::new(),
    };
    talk.says("go");
    ask(world, &talk).await;
}

/// M2: an image that came late became its base64 text in the user's message.
#[tokio::test(start_paused = true)]
async fn an_image_that_comes_late_stays_an_image() {
    for (format, block) in [
        (Format::Anthropic, r#""type":"base64""#),
        (Format::OpenAiChat, r#""type":"image_url""#),
        (Format::OpenAiResponses, r#""type":"input_image""#),
        (Format::Gemini, r#""inlineData""#),
    ] {
        let ledger = durable();
        let world_over = |ledger: &Arc<dyn antiphon::ledger::Ledger>| {
            let world = World::with(|builder| {
                builder.ledger = Arc::clone(ledger);
                builder.late = LateSettings {
                    services: vec![late::service("tools", None, None)],
                    ..LateSettings::default()
                };
            });
            world.otherwise(move |message| strict(format, &message.body));
            world
        };
        let mut world = world_over(&ledger);
        let id = "call_ContentImagekJ8sQ2mZx4Lw";
        let mut talk = Talk {
            format,
            log: Vec::new(),
        };
        talk.says("go");
        ask(&world, &talk).await;
        talk.calls(id);
        talk.says("hurry");
        ask(&world, &talk).await;
        talk.answers("fine");
        let service = [("authorization", "Bearer token of tools")];
        let path = format!("/ledger/v1/calls/{id}/result");
        let content =
            r#"[{"type":"text","text":"the plot"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#;
        let body = format!(r#"{{"content":{content}}}"#);
        assert_eq!(
            world.ask(post_with(&path, &service, body.as_bytes())).await.status(),
            200
        );
        let mut first = String::new();
        for words in ["is it done?", "thanks", "after a restart"] {
            talk.says(words);
            if words == "after a restart" {
                world = world_over(&ledger);
            }
            ask(&world, &talk).await;
            talk.answers("fine");
            let sent = String::from_utf8(world.requests().pop().unwrap().message.body).unwrap();
            assert_eq!(sent.matches("iVBORw0KGgo=").count(), 1, "{sent}");
            assert!(
                sent.contains(block) && sent.contains("the plot\\n(image: image/png, 9 bytes)"),
                "{sent}"
            );
            let until = sent.find("iVBORw0KGgo=").unwrap();
            assert!(first.is_empty() || first == sent[..until]);
            first = sent[..until].to_owned();
        }
    }
}

/// Returns the body that the provider gets after a content was posted: in the place of its call, or, if the user was in a
/// hurry, at the end of a message.
async fn sent_after_post(format: Format, hurried: bool, content: &str) -> String {
    let ledger = durable();
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
    });
    world.otherwise(move |message| strict(format, &message.body));
    let id = "call_ContentBlockskJ8sQ2mZx4";
    let mut talk = Talk {
        format,
        log: Vec::new(),
    };
    talk.says("go");
    ask(&world, &talk).await;
    talk.calls(id);
    if hurried {
        talk.says("hurry");
        ask(&world, &talk).await;
        talk.answers("fine");
    } else {
        record(&world, id).await;
    }
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/result");
    let body = format!(r#"{{"content":{content}}}"#);
    let posted = world.ask(post_with(&path, &service, body.as_bytes())).await;
    assert_eq!(posted.status(), 200, "{}", posted.text());
    talk.says("is it done?");
    ask(&world, &talk).await;
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

/// The model reads blocks that no format has, in the place of the call and at the end of a message, and no base64 of them.
#[tokio::test(start_paused = true)]
async fn blocks_of_mcp_are_read_in_every_format() {
    let content = r#"[{"type":"resource","resource":{"uri":"file:///a","text":"the embedded text"}},
        {"type":"resource_link","name":"plan","uri":"https://e.com/p"},
        {"type":"audio","data":"QkFTRTY0QkFTRTY0","mimeType":"audio/wav"},
        {"type":"resource","resource":{"uri":"file:///b.pdf","blob":"QkFTRTY0QkFTRTY0","mimeType":"application/pdf"}}]"#;
    for format in FORMATS {
        for hurried in [false, true] {
            let sent = sent_after_post(format, hurried, content).await;
            for wanted in [
                "the embedded text",
                "plan: https://e.com/p",
                "(audio: audio/wav, 12 bytes)",
                "(resource: file:///b.pdf, application/pdf, 12 bytes)",
            ] {
                assert_eq!(sent.matches(wanted).count(), 1, "{format:?} {hurried} {wanted}: {sent}");
            }
            assert!(
                !sent.contains("QkFT") && !sent.contains("resource_link"),
                "{format:?}: {sent}"
            );
        }
    }
}

/// In the place of its call an image is an image where results have images, and never the text of its base64.
#[tokio::test(start_paused = true)]
async fn an_image_in_the_place_of_its_call_is_no_base64_text() {
    let content =
        r#"[{"type":"text","text":"the plot"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#;
    for (format, wanted) in [
        (Format::Anthropic, r#""type":"base64""#),
        (Format::OpenAiChat, r"the plot\n(image: image/png, 9 bytes)"),
        (Format::OpenAiResponses, r#""type":"input_image""#),
        (
            Format::Gemini,
            r#"{"type":"text","text":"(image: image/png, 9 bytes)"}"#,
        ),
    ] {
        let sent = sent_after_post(format, false, content).await;
        let is_image = matches!(format, Format::Anthropic | Format::OpenAiResponses);
        assert_eq!(sent.contains("iVBORw0KGgo="), is_image, "{sent}");
        assert!(sent.contains(wanted), "{sent}");
    }
}
