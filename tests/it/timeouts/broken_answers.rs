//! A provider's connection that breaks in an answer breaks the client's, after every byte and without an error event.

use crate::support::{
    still::{
        Step, World,
        events::{anthropic, chat, gemini, responses},
        head, say, secs, sse, wait,
    },
    table::{Ask, Row, play},
};

/// One answer of a format, as the pieces between the places where the connection may break.
struct Answer {
    path: &'static str,
    begin: String,
    text: String,
    call: String,
    /// Everything in front of the last event.
    end: String,
    last: String,
}

fn answers() -> [Answer; 4] {
    let split = |end: String, last: &str| {
        let at = end.find(last).unwrap();
        (end[..at].to_owned(), end[at..].to_owned())
    };
    let (messages_end, messages_last) = split(anthropic::end("tool_use"), "event: message_stop");
    // Without `[DONE]`, further choices and the usage may be missing.
    let (chat_end, chat_last) = split(chat::end("tool_calls"), "data: [DONE]");
    [
        Answer {
            path: "/anthropic/v1/messages",
            begin: anthropic::start(),
            text: anthropic::text_start(0) + &anthropic::text(0, "so"),
            call: anthropic::call(1, "toolu_1"),
            end: messages_end,
            last: messages_last,
        },
        Answer {
            path: "/openai/v1/responses",
            begin: responses::start(),
            text: responses::text_start(0) + &responses::text(0, "so"),
            call: responses::call(1, "call_1"),
            end: String::new(),
            last: responses::end(),
        },
        Answer {
            path: "/openai/v1/chat/completions",
            begin: chat::start(),
            text: chat::text("so"),
            call: chat::call(0, "call_1"),
            end: chat_end,
            last: chat_last,
        },
        Answer {
            path: "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
            begin: gemini::text(""),
            text: gemini::text("so"),
            call: gemini::call("call_1"),
            end: String::new(),
            last: gemini::end("STOP"),
        },
    ]
}

impl Answer {
    /// Returns name and bytes of the answer up to each place where the connection may break.
    fn cuts(&self) -> Vec<(&'static str, String)> {
        let half = &self.call[..self.call.len() - self.call.len() / 3];
        let said = self.begin.clone() + &self.text;
        vec![
            ("after the head", String::new()),
            ("after the first event", self.begin.clone()),
            ("in text", said.clone()),
            ("in an event", said.clone() + half),
            ("before the last event", said + &self.call + &self.end),
        ]
    }

    fn whole(&self) -> String {
        [&self.begin, &self.text, &self.call, &self.end, &self.last]
            .map(String::as_str)
            .concat()
    }
}

fn broken(text: &str, last: &Step) -> Vec<Step> {
    let said = (!text.is_empty()).then(|| say(text));
    [sse()].into_iter().chain(said).chain([wait(5), last.clone()]).collect()
}

#[tokio::test(start_paused = true)]
async fn log_and_metric_name_a_break_that_the_client_only_feels() {
    let mut rows = Vec::new();
    for answer in answers() {
        for last in [Step::Break, Step::Reset] {
            // Before the first output, a profile's attempt is retried: see the decision table.
            for (name, text) in answer.cuts().into_iter().skip(2) {
                let want = [
                    "200 cut bare n1 @5",
                    "A@0",
                    "network body answer_broken",
                    "broken=1",
                    "-",
                    "+1",
                ];
                rows.push(Row::new(name, [broken(&text, &last)], want).ask(Ask::of(answer.path)));
            }
            let want = ["200 whole n1 @5", "A@0", "- done ok", "ok=1", "-", "works"];
            let script = broken(&answer.whole(), &last);
            rows.push(Row::new("after the last event", [script], want).ask(Ask::of(answer.path)));
        }
    }
    play(rows).await;
}

#[tokio::test(start_paused = true)]
async fn every_byte_arrives_before_the_break() {
    for answer in answers() {
        for last in [Step::Break, Step::Reset] {
            for (name, text) in answer.cuts() {
                let world = World::new();
                world.script(broken(&text, &last));
                let got = world.ask(Ask::of(answer.path).bytes()).await;
                assert_eq!(
                    (got.text(), got.complete),
                    (text.as_str(), false),
                    "{} {name}",
                    answer.path
                );
            }
            let world = World::new();
            world.script(broken(&answer.whole(), &last));
            let got = world.ask(Ask::of(answer.path).bytes()).await;
            assert_eq!(
                (got.text(), got.complete),
                (answer.whole().as_str(), true),
                "{}",
                answer.path
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_every_byte_before_the_break() {
    // The connection holds 16 KiB, and the server somewhat more, while the client does not read.
    for events in [1, 15, 20, 30, 40, 100, 400] {
        let events = || (0..events).map(|_| anthropic::text(0, &"a".repeat(1000)));
        let begin = anthropic::start() + &anthropic::text_start(0);
        let plain = head(200, &[("content-type", "application/json")]);
        for (first, begin) in [(sse(), begin), (plain, "{\"content\":\"".to_owned())] {
            for last in [Step::Break, Step::Reset] {
                let text = begin.clone() + &events().collect::<String>();
                let world = World::new();
                let script = [first.clone(), say(&begin)].into_iter().chain(events().map(say));
                world.script(script.chain([last]));
                let mut client = world.client();
                client.send(Ask::messages().bytes()).await;
                world.until(secs(60)).await;
                let got = client.answer().await;
                assert_eq!((got.body.len(), got.complete), (text.len(), false));
                assert_eq!(got.text(), text);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_after_an_error_event_stays_a_break() {
    for (path, error) in [
        ("/anthropic/v1/messages", anthropic::error("overloaded_error")),
        ("/openai/v1/responses", responses::error("server_error")),
        ("/openai/v1/chat/completions", chat::error("server_error")),
        (
            "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
            gemini::error(503, "UNAVAILABLE"),
        ),
    ] {
        let world = World::new();
        world.script([sse(), say(&error), wait(5), Step::Reset]);
        let got = world.ask(Ask::of(path).bytes()).await;
        assert_eq!((got.text(), got.complete), (error.as_str(), false), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_without_an_end_becomes_an_error_that_clients_retry() {
    for answer in answers() {
        let (_, text) = answer.cuts().swap_remove(2);
        let world = World::new();
        world.script([sse(), say(&text), Step::End]);
        let got = world.ask(Ask::of(answer.path).bytes()).await;
        let event = got.text().strip_prefix(text.as_str()).unwrap();
        let data = event.split_once("data: ").unwrap().1.trim_end();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let error = if data["error"].is_object() {
            &data["error"]
        } else {
            &data
        };
        if answer.path.contains("/chat/") || answer.path.contains("/anthropic") {
            assert_eq!(error["type"], "overloaded_error");
        }
        // Chat Completions may end without `[DONE]`, but not without a stop reason.
        let said = "Overloaded: the stream ended before the answer was complete; try again";
        assert_eq!(
            (error["message"].as_str(), got.complete),
            (Some(said), false),
            "{}",
            answer.path
        );
    }
}
